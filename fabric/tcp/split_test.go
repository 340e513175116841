package tcp

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// on returns a Port of a node that uses the lane with an index.
func on(t *testing.T, n *node, index int) *port {
	t.Helper()
	for {
		p := peertest.Open(t, n).(*port)
		peertest.Do(t, p, fabric.Load(fabric.At(0, 64)))
		if p.Lane%n.o.Lanes == index {
			return p
		}
	}
}

// queueInPart makes a Port queue a part of a chain and have it interrupted while the rest waits for room. The memory node executes nothing, and
// the lane's lead is held.
func queueInPart(t *testing.T, p *port, l *lane, ops []fabric.Op) fabric.Pending {
	t.Helper()
	l.lead.Lock()
	done := make(chan fabric.Pending)
	go func() {
		pending, err := p.Post(ops)
		if err != nil {
			t.Error(err)
		}
		done <- pending
	}()
	peertest.Await(t, "it waits for room", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.roomers > 0
	})
	p.Interrupt()
	select {
	case pending := <-done:
		return pending
	case <-time.After(10 * time.Second):
		t.Fatal("an interrupted client waits for room")
	}
	return 0
}

// breakConn breaks the connection of a lane of which the lead is held.
func breakConn(l *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broke(l.conn.Load(), errors.New("broken"))
}

// A chain of which a part is queued is interrupted, and then its connection breaks: its outcome is unknown if the queued part may have changed
// memory, and what is known of its operations is right.
func TestInterruptedHalfQueuedChainThenBreak(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		for _, reachable := range []bool{false, true} {
			for _, executed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d lanes/reachable %v/executed %v", lanes, reachable, executed), func(t *testing.T) {
					halfQueued(t, lanes, reachable, executed)
				})
			}
		}
	}
}

func halfQueued(t *testing.T, lanes int, reachable, executed bool) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Lanes, o.Heartbeat, o.DeadAfter = lanes, time.Second, 20*time.Second }
	s := c.Serve(0, 1<<20)
	n := c.Join()
	p := on(t, n, lanes-1)
	l := remoteOf(p.n, 0).lanes[lanes-1]
	others := on(t, n, lanes-1)
	goOn := s.stall(uint16(lanes - 1))
	defer goOn()
	load := []fabric.Op{fabric.Load(peertest.Word)}
	for range ringSize - 12 { // READs go in small frames: there is room for 11 more
		if _, err := others.Post(load); err != nil {
			t.Fatal(err)
		}
	}
	i := queueInPart(t, p, l, []fabric.Op{fabric.FAA(peertest.Word, 1), fabric.Read(fabric.At(0, 4096), p.Alloc(1<<20-4096))})
	if executed {
		goOn()
		peertest.Await(t, "the first frame is executed", func() bool { return s.Stats().Ops[fabric.OpFAA] == 1 })
	}
	breakConn(l)
	l.mu.Lock()
	if reachable {
		first := l.posted.Load()
		l.mu.Unlock()
		goOn()
		conn, r, err := l.r.dial(l.ctx, l.index, first)
		if err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.resume(conn, l.ride(conn, &r), &r, first)
	} else {
		l.fall(fabric.ErrNodeDown, nil, laneDown)
	}
	l.mu.Unlock()
	l.lead.Unlock()
	err := p.Wait(i)
	if !errors.Is(err, fabric.ErrUnknownOutcome) || fabric.Refused(err) {
		t.Errorf("a chain of which a part was given to a connection that has broken: %v", err)
	}
	p.ClearInterrupt()
	goOn()
	settles(t, p, peertest.Word)
	if got := peertest.Do(t, p, fabric.Load(peertest.Word))[0].Old; got > 1 || executed && got != 1 {
		t.Errorf("an FAA was executed %d times", got)
	}
	if n := l.r.limbo.Load(); n != 0 {
		t.Errorf("%d operations are in limbo", n)
	}
	if l.split != 0 {
		t.Errorf("%d chains are queued in part", l.split)
	}
}

// A WRITE of which a part was executed when the memory node could not be reached any more has changed memory.
func TestWriteInPartIsNotRefused(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	p := peertest.Open(t, c.Join()).(*port)
	l := remoteOf(p.n, 0).lanes[0]
	ops := []fabric.Op{fabric.Load(peertest.Word), fabric.Write(fabric.At(0, 4096), p.Alloc(1<<17)), fabric.Read(fabric.At(0, 4096), p.Alloc(1<<17))}
	for _, at := range []cursor{{0, 0}, {1, 0}, {1, 4096}, {2, 0}, {2, 4096}} {
		ch := p.take(0, ops)
		ch.lane = l
		ch.fail(at, fmt.Errorf("%w: %v", fabric.ErrNodeDown, l.r.MN.ID))
		if f := ch.failure.Load(); f.Index != at.op || fabric.Refused(f) == (at == cursor{1, 4096}) {
			t.Errorf("failed at %+v: %v", at, f)
		}
		l.mu.Lock()
		end := ch.breakOff(at, fabric.ErrInterrupted)
		l.mu.Unlock()
		if want := min(at.op+at.off, at.op+1); end.op != want || len(ch.ops) != want || ch.refused != at.op ||
			errors.Is(ch.refusal, fabric.ErrUnknownOutcome) != (at == cursor{1, 4096}) {
			t.Errorf("broken off at %+v: %d operations, %v of operation %d", at, len(ch.ops), ch.refusal, ch.refused)
		}
	}
}

// A timer that was set for one chain and comes late does not end the wait for another.
func TestLateTimerEndsNoOtherWait(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	p := peertest.Open(t, c.Join()).(*port)
	p.Interrupt()
	p.ClearInterrupt()
	p.Interrupt()
	defer p.ClearInterrupt()
	p.limit.mu.Lock()
	p.limit.since = time.Now().Add(time.Hour)
	p.limit.mu.Unlock()
	p.expire() // of the first
	if p.limit.over.Load() {
		t.Error("the wait is over, by a timer of before")
	}
	p.limit.mu.Lock()
	p.limit.since = time.Now().Add(-grace)
	p.limit.mu.Unlock()
	if p.expire(); !p.limit.over.Load() {
		t.Error("the wait is not over when its time has passed")
	}
}
