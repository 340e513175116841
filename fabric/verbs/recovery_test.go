//go:build cgo && !shmonly

package verbs

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
)

// Queue pairs to the memory node fail again and again while clients add. No operation is executed twice, none
// that has succeeded is missing, and every client can go on.
func TestFailedQueuePairsAreReplaced(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	var good, unknown atomic.Uint64
	var working atomic.Int32
	const clients, each = 8, 400
	for range clients {
		p, err := c.Node(0).Open()
		if err != nil {
			t.Fatal(err)
		}
		working.Add(1)
		c.Go(p, func(p fabric.Port) {
			defer working.Add(-1)
			last := uint64(0)
			for range each {
				ops := []fabric.Op{fabric.FAA(counter, 1), fabric.Load(counter)}
				err := p.Do(ops)
				var ce *fabric.ChainError
				switch {
				case err == nil:
					good.Add(1)
					if ops[0].Old < last || ops[1].Old <= ops[0].Old {
						t.Errorf("the counter: %d, then %d, %d", last, ops[0].Old, ops[1].Old)
					}
					last = ops[1].Old
				case errors.Is(err, fabric.ErrUnknownOutcome) && errors.As(err, &ce):
					if ce.Index == 0 {
						unknown.Add(1)
					} else {
						good.Add(1)
					}
				default:
					t.Errorf("Do: %v", err)
					return
				}
			}
		})
	}
	r := remoteOf(c.Nodes[0], 0)
	broken := 0
	for working.Load() > 0 {
		time.Sleep(20 * time.Millisecond)
		l := r.lanes[broken%len(r.lanes)]
		l.mu.Lock()
		if l.state == laneUp {
			l.q.fail() // as an error of the network would
			broken++
		}
		l.mu.Unlock()
	}
	c.Wait()
	ops := []fabric.Op{fabric.Load(counter)}
	err := c.Node(0).Agent().Do(ops)
	for errors.Is(err, fabric.ErrUnknownOutcome) { // of the last failure
		err = c.Node(0).Agent().Do(ops)
	}
	if err != nil {
		t.Fatal(err)
	}
	if v := ops[0].Old; v < good.Load() || v > good.Load()+unknown.Load() || good.Load()+unknown.Load() != clients*each {
		t.Errorf("the counter is %d; %d additions succeeded, of %d it is unknown", v, good.Load(), unknown.Load())
	}
	t.Logf("%d failures: %d additions succeeded, of %d it is unknown; the counter is %d", broken, good.Load(), unknown.Load(), ops[0].Old)
	if broken == 0 {
		t.Error("no queue pair was broken")
	}
}

// The queue pair between two compute nodes fails again and again, on either side. Messages stay in order, and none
// is lost or doubled. What the network loses the device sends again, on both sides: nothing else looks for it.
func TestMessagesSurviveFailedQueuePairs(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	s, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Node(1).Open()
	if err != nil {
		t.Fatal(err)
	}
	const messages = 3000
	var received atomic.Uint64
	to := r.ID()
	c.Go(s, func(p fabric.Port) {
		for i := range uint64(messages) {
			if err := p.Send(to, &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i}}); err != nil {
				t.Error(err)
			}
			if i%16 == 15 {
				_ = p.Pause(p.Now() + 2*fabric.Millisecond)
			}
		}
	})
	c.Go(r, func(p fabric.Port) {
		for i := range uint64(messages) {
			m, err := p.Recv(p.Now() + 30*fabric.Second)
			if err != nil || m.Body[0] != i {
				t.Errorf("message %d: %+v, %v", i, m, err)
				break
			}
			received.Add(1)
		}
		received.Store(messages)
	})
	fail := func(q *qp) {
		if q.path.timeout == 0 {
			t.Error("nothing is sent again")
		}
		q.fail()
	}
	broken := 0
	for ; received.Load() < messages; broken++ {
		time.Sleep(50 * time.Millisecond)
		if broken%2 == 0 {
			if l := linkTo(c.Nodes[0], c.Nodes[1].ID()); l != nil {
				l.Mu.Lock()
				if l.q != nil {
					fail(l.q)
				}
				l.Mu.Unlock()
			}
			continue
		}
		n := c.Nodes[1]
		n.linkMu.Lock()
		for _, l := range n.inLinks {
			fail(l.q)
		}
		n.linkMu.Unlock()
	}
	c.Wait()
	t.Logf("%d failures", broken)
}

// A client that does not take its messages makes their sender wait, and the process does not grow; when it takes them
// again, all come, in order.
func TestClientsThatDoNotReceiveHoldSendersBack(t *testing.T) {
	needDevice(t)
	const limit, messages = 100, 1000
	c := newTestCluster(t)
	c.change = func(o *Options) { o.inboxLimit, o.Heartbeat = limit, 50*time.Millisecond }
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	c.Join()
	c.Join()
	s, r := c.Node(0).Agent(), c.Node(1).Agent()
	for i := range uint64(messages) {
		if err := s.Send(r.ID(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i}}); err != nil {
			t.Fatal(err)
		}
	}
	out := linkTo(c.Nodes[0], c.Nodes[1].ID())
	posted := func() uint64 {
		out.Mu.Lock()
		defer out.Mu.Unlock()
		return out.Written
	}
	held := func() bool { // whether the receiver keeps credits back
		n := c.Nodes[1]
		n.Mu.Lock()
		defer n.Mu.Unlock()
		for _, l := range n.inLinks {
			l.cq.mu.Lock()
			defer l.cq.mu.Unlock()
			return l.unposted >= linkCredit
		}
		return false
	}
	for !held() {
		if posted() == messages {
			t.Fatal("the sender is not held back")
		}
		time.Sleep(time.Millisecond)
	}
	table := c.Nodes[1].Table
	for i := range uint64(messages) {
		if n := table.Len(0); n > limit+linkWindow {
			t.Fatalf("%d messages wait for a client that is slow to take them", n)
		}
		m, err := r.Recv(r.Now() + 30*fabric.Second)
		for err == nil && m.Kind == fabric.MsgView {
			m, err = r.Recv(r.Now() + 30*fabric.Second)
		}
		if err != nil || m.Body[0] != i {
			t.Fatalf("message %d: %+v, %v", i, m, err)
		}
	}
}

// A client that waits for each of its chains rings the doorbell once for each, however long they are.
func TestOneDoorbellPerChain(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	p, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	doorbells := func() (n uint64) {
		for _, l := range remoteOf(c.Nodes[0], 0).lanes {
			l.mu.Lock()
			n += l.doorbells
			l.mu.Unlock()
		}
		return n
	}
	before := doorbells()
	buf := p.Alloc(100)
	ops := make([]fabric.Op, fabric.MaxChain)
	for n := range fabric.MaxChain + 1 {
		for i := range n {
			ops[i] = []fabric.Op{fabric.FAA(counter, 1), fabric.Read(page, buf), fabric.Write(page, buf), fabric.Load(counter)}[i%4]
		}
		if err := p.Do(ops[:n]); err != nil {
			t.Fatal(err)
		}
	}
	if rung, chains := doorbells()-before, p.Stats().Chains; rung != chains || chains != fabric.MaxChain {
		t.Errorf("%d doorbells for %d chains", rung, chains)
	}
}

// Clients share queue pairs: there are no more of them when there are more clients.
func TestQueuePairsDoNotGrowWithClients(t *testing.T) {
	c := cluster(t, 1<<20, 2)
	if _, err := os.Stat("/usr/bin/rdma"); err != nil {
		t.Skip(err)
	}
	work := func(clients int) int {
		for k := range clients {
			p, err := c.Node(k % 2).Open()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Do([]fabric.Op{fabric.FAA(counter, 1)}); err != nil {
				t.Fatal(err)
			}
			if err := p.Send(c.Node(1-k%2).Agent().ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Node(1 - k%2).Agent().Recv(p.Now() + 20*fabric.Second); err != nil {
				t.Fatal(err)
			}
		}
		n, _, err := countResources("qp")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	few, many := work(2), work(100)
	// Both ends of two lanes for each compute node, and of a link in each direction.
	if want := 2*2*2 + 2*2; few != want || many != want {
		t.Errorf("%d queue pairs with 2 clients, %d with 102, want %d", few, many, want)
	}
}

// The check at the end of all tests sees what a cluster holds.
func TestLeftoversAreSeen(t *testing.T) {
	if _, err := os.Stat("/usr/bin/rdma"); err != nil {
		t.Skip(err)
	}
	cluster(t, 1<<20, 1)
	if leftResources() == nil {
		t.Error("the resources of an open cluster are not seen")
	}
}
