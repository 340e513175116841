package tcp

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// stall makes a memory node execute nothing that comes over the present connections of lanes, and returns what lets it go on.
func (s *MemoryServer) stall(lanes ...uint16) (goOn func()) {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	var held []*laneConn
	for k, l := range s.lanes {
		for _, i := range lanes {
			if c := l.conn.Load(); c != nil && k.index == i {
				c.exec.Lock()
				held = append(held, c)
			}
		}
	}
	return sync.OnceFunc(func() {
		for _, c := range held {
			c.exec.Unlock()
		}
	})
}

// twoLanes is a cluster of a memory node and a compute node with two lanes, and a Port on each.
func twoLanes(t *testing.T) (s *MemoryServer, n *node, first, second fabric.Port) {
	return patientLanes(t, 100*time.Millisecond)
}

// patientLanes is twoLanes with a time after which a connection without answers is given up.
func patientLanes(t *testing.T, patience time.Duration) (s *MemoryServer, n *node, first, second fabric.Port) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) {
		o.Heartbeat, o.DeadAfter, o.Lanes, o.Workers = patience/5, patience, 2, 2
	}
	s = c.Serve(0, 1<<20)
	n = c.Join()
	ports := [2]fabric.Port{}
	for ports[0] == nil || ports[1] == nil {
		p := peertest.Open(t, n)
		peertest.Await(t, "the lane is connected, however busy the machine is", func() bool { return p.Do([]fabric.Op{fabric.Load(fabric.At(0, 64))}) == nil })
		ports[p.(*port).Lane%2] = p
	}
	return s, n, ports[0], ports[1]
}

// An operation of unknown outcome lies in a connection that the memory node has not cut yet: nothing that the node posts afterwards,
// over whichever lane, is executed before that.
func TestNothingOvertakesAnUnknownOutcome(t *testing.T) {
	s, _, first, second := twoLanes(t)
	word := fabric.At(0, 64)
	goOn := s.stall(0)
	defer goOn()
	if err := first.Do([]fabric.Op{fabric.FAA(word, 1)}); !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Fatalf("FAA on a memory node that hangs: %v", err)
	}
	if err := second.Do([]fabric.Op{fabric.Load(word)}); !errors.Is(err, fabric.ErrNodeDown) {
		t.Fatalf("a READ over the other lane, while the FAA may still be executed: %v", err)
	}
	goOn()
	settles(t, second, word)
}

// settles reads a word until that succeeds: from then on it must not change.
func settles(t *testing.T, p fabric.Port, word fabric.Addr) {
	t.Helper()
	ops := []fabric.Op{fabric.Load(word)}
	peertest.Await(t, "the memory node can be used again", func() bool { return p.Do(ops) == nil })
	was := ops[0].Old
	for range 50 {
		if peertest.Do(t, p, ops...); ops[0].Old != was {
			t.Fatalf("the word was %d when an operation behind the one of unknown outcome had been executed, and is %d", was, ops[0].Old)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// An interrupted Port does not wait for a memory node that does not answer: whether its client reads the lane's answers, sleeps until
// another has, or waits until nothing is in limbo. What it has left behind does not touch its memory.
func TestInterruptEndsTheWaitForAMemoryNode(t *testing.T) {
	s, n, first, second := twoLanes(t)
	word, data := fabric.At(0, 64), fabric.At(0, 4096)
	peertest.Do(t, second, fabric.Store(word, 0))
	goOn := s.stall(0, 1)
	defer goOn()
	var tasks sync.WaitGroup
	returned := make(chan error, 64)
	waits := func(p fabric.Port, op fabric.Op, want ...error) {
		tasks.Go(func() {
			err := p.Do([]fabric.Op{op})
			for _, w := range want {
				if !errors.Is(err, w) {
					t.Errorf("%v, interrupted: %v, want %v", op, err, w)
				}
			}
			if len(want) == 1 && errors.Is(err, fabric.ErrUnknownOutcome) {
				t.Errorf("%v, interrupted: %v", op, err)
			}
			returned <- err
		})
	}
	ports := []fabric.Port{first, second}
	waits(first, fabric.FAA(word, 1), fabric.ErrUnknownOutcome, fabric.ErrInterrupted)
	waits(second, fabric.FAA(word, 1), fabric.ErrUnknownOutcome, fabric.ErrInterrupted)
	var bufs [][]byte
	for range 4 {
		p, q := peertest.Open(t, n), peertest.Open(t, n)
		buf := p.Alloc(512)
		bufs = append(bufs, buf)
		ports = append(ports, p, q)
		waits(p, fabric.Read(data, buf), fabric.ErrInterrupted)
		waits(q, fabric.FAA(word, 1), fabric.ErrUnknownOutcome, fabric.ErrInterrupted)
	}
	time.Sleep(20 * time.Millisecond)
	for _, p := range ports {
		p.Interrupt()
	}
	for range ports {
		select {
		case <-returned:
		case <-time.After(4 * time.Second): // sooner than any connection is given up
			t.Fatal("an interrupted Port waits for a memory node that does not answer")
		}
	}
	// Nor do chains that are posted later.
	waits(ports[2], fabric.Load(word), fabric.ErrInterrupted)
	<-returned
	for i := range bufs {
		for j := range bufs[i] {
			bufs[i][j] = 0xee
		}
	}
	goOn()
	for _, p := range ports {
		p.ClearInterrupt()
	}
	settles(t, ports[2], word)
	for _, b := range bufs {
		if !bytes.Equal(b, bytes.Repeat([]byte{0xee}, len(b))) {
			t.Error("a READ that was left behind has changed its client's memory")
		}
	}
	tasks.Wait()
	for _, r := range []*remote{remoteOf(n, 0)} {
		if k := r.limbo.Load(); k != 0 {
			t.Errorf("%d operations are in limbo", k)
		}
	}
}

// A Port that is interrupted and whose memory node answers goes on as ever.
func TestInterruptedPortExecutes(t *testing.T) {
	_, _, p, _ := twoLanes(t)
	p.Interrupt()
	defer p.ClearInterrupt()
	executed := 0
	peertest.Await(t, "100 FAAs of an interrupted Port", func() bool { // on a busy machine some answers come too late
		if p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}) == nil {
			executed++
		}
		if executed%40 == 0 {
			time.Sleep(2 * grace)
		}
		return executed >= 100
	})
}

// The answer comes at the moment at which its client leaves the chain behind: what is in limbo is never counted too low, or another lane would
// overtake what is.
func TestLimboIsCountedBeforeItIsLeft(t *testing.T) {
	_, n, _, _ := twoLanes(t)
	r := remoteOf(n, 0)
	l := r.lanes[0]
	rounds := 20000
	if testing.Short() {
		rounds = 4000
	}
	for i := range rounds {
		c := &chain{wake: make(chan struct{}, 1), lane: l, ops: []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}}
		c.state.Store(chainUnderWay)
		var left bool
		var tasks sync.WaitGroup
		tasks.Go(func() { left = l.leave(c) })
		for spins := 0; !c.isLeft() && (i%2 == 0 || spins < i%1000); spins++ {
		}
		l.complete(c)
		if limbo, of := r.limbo.Load(), l.left.Load(); limbo < 0 || of < 0 {
			t.Fatalf("after %d rounds %d operations in limbo, %d left behind", i, limbo, of)
		}
		tasks.Wait()
		if limbo, of := r.limbo.Load(), l.left.Load(); limbo != 0 || of != 0 {
			t.Fatalf("after %d rounds %d operations in limbo, %d left behind; left: %v", i, limbo, of, left)
		}
	}
}

// TestClearedInterruptStaysCleared: a client that an interrupt wakes clears it while Interrupt is not done: nothing of it is left.
func TestClearedInterruptStaysCleared(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	p := peertest.Open(t, c.Join()).(*port)
	for range 20000 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Interrupt()
		}()
		if _, err := p.Recv(fabric.Forever); !errors.Is(err, fabric.ErrInterrupted) {
			t.Fatal(err)
		}
		p.ClearInterrupt()
		<-done
		if p.limit.on || p.Interrupted() {
			t.Fatal("an interrupt that was cleared bounds the next operation")
		}
	}
}
