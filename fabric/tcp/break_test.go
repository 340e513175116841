package tcp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// proxied is a cluster of which the memory node is reached through a proxy.
func proxied(t testing.TB) (*testCluster, *proxy) {
	c, p := newTestCluster(t), newProxy(t)
	c.change = func(o *Options) { o.Advertise = p.addr() }
	s := c.Serve(0, 1<<20)
	p.forward(s.Addr().String())
	c.change = nil
	t.Cleanup(c.Close)
	return c, p
}

// workload are chains that count in words 64 and 72 what they do. READs see what was written before.
func workload(p fabric.Port, buf []byte) [][]fabric.Op {
	return [][]fabric.Op{
		{fabric.FAA(fabric.At(0, 64), 1)},
		{fabric.Load(fabric.At(0, 64)), fabric.Read(fabric.At(0, 128), buf[:300])},
		{fabric.Write(fabric.At(0, 128), buf[300:600]), fabric.FAA(fabric.At(0, 72), 1)},
		{fabric.Load(fabric.At(0, 72))},
		{fabric.Store(fabric.At(0, 80), 5), fabric.FAA(fabric.At(0, 64), 1), fabric.FAA(fabric.At(0, 72), 1)},
		{fabric.Load(fabric.At(0, 64)), fabric.Load(fabric.At(0, 72))},
	}
}

// counted are what chains of workload add to the words.
var counted = [][2]uint64{{1, 0}, {0, 0}, {0, 1}, {0, 0}, {1, 1}, {0, 0}}

// The connection breaks before the k-th request reaches the memory node, or before the k-th answer
// reaches us, for all k: what was not executed is sent again, and what was is an unknown outcome if it changes memory; both exactly.
func TestConnectionBreaksAtEveryFrame(t *testing.T) {
	c, p := proxied(t)
	port := peertest.Open(t, c.Join())
	buf := port.Alloc(600)
	for _, pipelined := range []bool{false, true} {
		for _, direction := range []int{requests, answers} {
			for _, bytes := range []int{0, 9, 1 << 20} {
				for k := range len(workload(port, buf)) {
					t.Run(fmt.Sprintf("pipelined %v/direction %d/frame %d/bytes %d", pipelined, direction, k, bytes), func(t *testing.T) {
						peertest.Do(t, port, fabric.Store(fabric.At(0, 64), 0), fabric.Store(fabric.At(0, 72), 0))
						p.breakAt(cut{direction, k, bytes})
						errs := runAll(t, port, workload(port, buf), pipelined)
						p.breakAt()
						checkOutcome(t, port, errs, direction == answers && !pipelined, k)
					})
				}
			}
		}
	}
}

func runAll(t *testing.T, p fabric.Port, chains [][]fabric.Op, pipelined bool) []error {
	errs := make([]error, len(chains))
	if !pipelined {
		for i := range chains {
			errs[i] = p.Do(chains[i])
		}
		return errs
	}
	pend := make([]fabric.Pending, len(chains))
	for i := range chains {
		var err error
		if pend[i], err = p.Post(chains[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range chains {
		errs[i] = p.Wait(pend[i])
	}
	return errs
}

func checkOutcome(t *testing.T, p fabric.Port, errs []error, exact bool, k int) {
	t.Helper()
	var want [2]uint64
	unknown := false
	for i, err := range errs {
		if err != nil && (!errors.Is(err, fabric.ErrUnknownOutcome) || counted[i] == [2]uint64{}) {
			t.Errorf("chain %d: %v", i, err)
		}
		unknown = unknown || err != nil
		// What the memory node says that it has executed it has: an unknown outcome is a lost answer.
		want[0] += counted[i][0]
		want[1] += counted[i][1]
	}
	if exact && unknown != (counted[k] != [2]uint64{}) {
		t.Errorf("the answer to chain %d was lost: %v", k, errs)
	}
	ops := peertest.Do(t, p, fabric.Load(fabric.At(0, 64)), fabric.Load(fabric.At(0, 72)))
	if got := [2]uint64{ops[0].Old, ops[1].Old}; got != want {
		t.Errorf("the counters are %d, want %d; %v", got, want, errs)
	}
}

// Many clients, and connections that break again and again: each FAA that is acknowledged has happened once, and
// each of which the outcome is unknown at most once.
func TestManyClientsAndManyBreaks(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d lanes", lanes), func(t *testing.T) { manyBreaks(t, lanes) })
	}
}

func manyBreaks(t *testing.T, lanes int) {
	c, p := proxied(t)
	c.change = func(o *Options) { o.Lanes = lanes }
	n := c.Join()
	const clients, each = 8, 300
	var sure, maybe [clients]uint64
	for i := range clients {
		port := peertest.Open(t, n)
		c.Go(port, func(port fabric.Port) {
			for range each {
				switch err := port.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}); {
				case err == nil:
					sure[i]++
				case errors.Is(err, fabric.ErrUnknownOutcome):
					maybe[i]++
				case errors.Is(err, fabric.ErrNodeDown) && lanes > 1: // while an operation on another lane may still be under way
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for i := range 20 {
			p.breakAt(cut{i % 2, 20 + i*7, i * 3})
			time.Sleep(3 * time.Millisecond)
		}
		p.breakAt()
	}()
	c.Wait()
	<-stop
	p.breakAt()
	low, high := uint64(0), uint64(0)
	for i := range clients {
		low += sure[i]
		high += sure[i] + maybe[i]
	}
	if got := peertest.Do(t, peertest.Open(t, n), fabric.Load(fabric.At(0, 64)))[0].Old; got < low || got > high {
		t.Errorf("the counter is %d, want %d to %d", got, low, high)
	}
}

// A chain of many frames over a connection that breaks in the middle: READs are read to the end, a WRITE says that
// its outcome is unknown, or has been written to the end.
func TestLargeChainsOverBreaks(t *testing.T) {
	c, p := proxied(t)
	port := peertest.Open(t, c.Join())
	const size = 500_000
	out, in := port.Alloc(size), port.Alloc(size)
	for i := range out {
		out[i] = byte(i * 7)
	}
	peertest.Do(t, port, fabric.Write(fabric.At(0, 4097), out))
	for k := range 10 {
		for direction := range 2 {
			clear(in)
			p.breakAt(cut{direction, k, 1000 * k})
			peertest.Do(t, port, fabric.Read(fabric.At(0, 4097), in))
			if string(in) != string(out) {
				t.Fatalf("frame %d, direction %d: other bytes were read", k, direction)
			}
			p.breakAt(cut{direction, k, 1000 * k})
			err := port.Do([]fabric.Op{fabric.Write(fabric.At(0, 4097), out), fabric.FAA(fabric.At(0, 64), 1)})
			if err != nil && !errors.Is(err, fabric.ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
	}
}

// A chain that reads more than fits a frame before it changes memory, of which the answers are lost: it is one chain. If the FAA was
// executed, the outcome of the chain is unknown, whether the memory node can be reached again or not; and what is left
// of it disturbs no other chain.
func TestLateAtomicOfALargeChainIsNotForgotten(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		for k := range 4 {
			t.Run(fmt.Sprintf("refuse %v/answer %d", refuse, k), func(t *testing.T) { lateAtomic(t, refuse, k) })
		}
	}
}

func lateAtomic(t *testing.T, refuse bool, k int) {
	c, p := proxied(t)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 20*time.Millisecond, 300*time.Millisecond }
	port := peertest.Open(t, c.Join())
	buf := port.Alloc(128 << 10)
	s := c.Servers[0]
	p.breakAt(cut{answers, k, 0})
	p.mu.Lock()
	p.refuse = refuse // new connections, once this one has broken
	p.mu.Unlock()
	err := port.Do([]fabric.Op{fabric.Read(fabric.At(0, 1024), buf), fabric.FAA(fabric.At(0, 64), 1)})
	p.breakAt()
	was := s.Stats().Ops[fabric.OpFAA]
	if !refuse {
		for range 50 {
			peertest.Do(t, port, fabric.FAA(fabric.At(0, 72), 1))
		}
		was = peertest.Do(t, port, fabric.Load(fabric.At(0, 64)))[0].Old
	}
	switch {
	case err == nil && was == 1, errors.Is(err, fabric.ErrUnknownOutcome) && was <= 1:
	case errors.Is(err, fabric.ErrNodeDown) && was == 0 && refuse:
	default:
		t.Errorf("the FAA behind a long READ was executed %d times: %v", was, err)
	}
}

// A chain fails while pieces of it wait for room, because the memory node is out of reach. It is back before they have
// woken up: nothing more of the chain is executed.
func TestRestOfAFailedChainIsNotExecuted(t *testing.T) {
	c, _ := proxied(t)
	port := peertest.Open(t, c.Join()).(*port)
	buf := port.Alloc(1 << 20)
	ops := []fabric.Op{fabric.Write(fabric.At(0, 0), buf), fabric.Write(fabric.At(0, 0), buf), fabric.FAA(fabric.At(0, 64), 1)}
	l := remoteOf(port.n, 0).lanes[0]
	l.lead.Lock() // it is not connected again
	l.mu.Lock()
	l.broke(l.conn.Load(), errors.New("broken"))
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- port.Do(ops) }()
	peertest.Await(t, "it waits for room", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.roomers > 0
	})
	first := l.posted.Load()
	conn, r, err := l.r.dial(l.ctx, l.index, first)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.fall(fabric.ErrNodeDown, nil, laneDown)
	l.resume(conn, l.ride(conn, &r), &r, first)
	l.mu.Unlock()
	l.lead.Unlock()
	if err := <-done; !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("a chain on a memory node out of reach: %v", err)
	}
	peertest.Do(t, port, fabric.Load(fabric.At(0, 64)))
	if n := c.Servers[0].Stats().Ops[fabric.OpFAA]; n != 0 {
		t.Errorf("%d FAAs of a chain that had failed were executed", n)
	}
}

// A memory node that cannot be reached for a while: chains say so, and go when it is back.
func TestMemoryNodeOutOfReach(t *testing.T) {
	c, p := proxied(t)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 20*time.Millisecond, 100*time.Millisecond }
	port := peertest.Open(t, c.Join())
	peertest.Do(t, port, fabric.FAA(fabric.At(0, 64), 1))
	p.breakAll(true)
	err := port.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)})
	if !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("FAA on a memory node out of reach: %v", err)
	}
	if err := port.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("the next FAA: %v", err)
	}
	p.breakAll(false)
	peertest.Await(t, "it is back", func() bool { return port.Do([]fabric.Op{fabric.Load(fabric.At(0, 64))}) == nil })
}

// The same for messages: they come in order, each once, however often the connection breaks.
func TestMessagesOverBreaks(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	p := newProxy(t)
	c.change = func(o *Options) { o.Advertise = p.addr() }
	b := c.Join()
	p.forward(b.acceptor.door.Addr().String())
	c.change = nil
	a := c.Join()
	from, to := peertest.Open(t, a), peertest.Open(t, b)
	next := uint64(0)
	for k := range 40 {
		p.breakAt(cut{k % 2, k / 4, k * 11}, cut{requests, k / 3, k})
		const burst = 700
		for i := range uint64(burst) {
			m := fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{next + i}}
			if err := from.Send(to.ID(), &m); err != nil {
				t.Fatal(err)
			}
		}
		for range burst {
			m, err := to.Recv(to.Now() + patienceTime)
			if err != nil || m.Body[0] != next || m.From != from.ID() {
				t.Fatalf("break %d: message %d is %+v, %v", k, next, m, err)
			}
			next++
		}
	}
	p.breakAt()
	if _, err := to.Recv(to.Now() + fabric.Millisecond); !errors.Is(err, fabric.ErrDeadline) {
		t.Errorf("a message too many: %v", err)
	}
}

// A node that closes sees to it that its messages arrive.
func TestCloseFlushesMessages(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	to := peertest.Open(t, c.Join())
	n, err := Join(context.Background(), c.options())
	if err != nil {
		t.Fatal(err)
	}
	from := peertest.Open(t, n)
	const count = 5000
	for i := range uint64(count) {
		if err := from.Send(to.ID(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(count) {
		if m, err := to.Recv(to.Now() + patienceTime); err != nil || m.Body[0] != i {
			t.Fatalf("message %d: %+v, %v", i, m, err)
		}
	}
}

// A chain goes in two frames: one that reads, one that writes. Both are executed, and the answers are lost: the chain failed at its first
// operation, for what that read never came.
func TestUnknownOutcomeBeginsWhereResultsAreMissing(t *testing.T) {
	c, p := proxied(t)
	port := peertest.Open(t, c.Join())
	in, out := port.Alloc(65000), port.Alloc(1000)
	unknown := 0
	peertest.Await(t, "five unknown outcomes", func() bool {
		peertest.Do(t, port, fabric.Load(fabric.At(0, 64)))
		p.breakAt(cut{direction: answers, frame: 0})
		err := port.Do([]fabric.Op{fabric.Read(fabric.At(0, 4096), in), fabric.Write(fabric.At(0, 128), out)})
		p.breakAt()
		var ce *fabric.ChainError
		if !errors.As(err, &ce) || !errors.Is(err, fabric.ErrUnknownOutcome) {
			return false // the second frame was not executed
		}
		if unknown++; ce.Index != 0 {
			t.Fatalf("the READ has no result, and the error is one of operation %d: %v", ce.Index, err)
		}
		return unknown == 5
	})
}
