package tcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// What happens when a connection has more to do than it takes: clients wait for room, frames for the socket, answers for their reader.

// crowded is a cluster of a memory node and a compute node with one lane, which gives no connection up for a minute, and a Port.
func crowded(t *testing.T) (s *MemoryServer, n *node, l *lane, p fabric.Port) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter, o.Lanes, o.Workers = time.Second, time.Minute, 1, 2 }
	s, n = c.Serve(0, 1<<20), c.Join()
	p = peertest.Open(t, n)
	peertest.Await(t, "the lane is connected", func() bool { return p.Do([]fabric.Op{fabric.Load(peertest.Word)}) == nil })
	return s, n, remoteOf(n, 0).lanes[0], p
}

// within fails the test if something does not end in time.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
}

// A lane has as many frames under way as it may have: a client that posts another waits until one of them is answered, though nothing is written meanwhile.
func TestClientWaitsForRoomInALane(t *testing.T) {
	s, n, l, p := crowded(t)
	goOn := s.stall(0)
	defer goOn()
	var pending []fabric.Pending
	for range ringSize - 1 {
		c, err := p.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, c)
	}
	last := peertest.Open(t, n)
	posted := make(chan error, 1)
	go func() { posted <- last.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}) }()
	peertest.Await(t, "a client waits for room", func() bool { return l.parked.Load() > 0 })
	select {
	case err := <-posted:
		t.Fatalf("more frames are under way than the lane has room for: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	goOn()
	within(t, "the client that waits for room goes on", func() {
		if err := <-posted; err != nil {
			t.Error(err)
		}
	})
	for _, c := range pending {
		if err := p.Wait(c); err != nil {
			t.Fatal(err)
		}
	}
	if got := peertest.Do(t, p, fabric.Load(peertest.Word))[0].Old; got != ringSize {
		t.Errorf("%d FAAs were executed %d times", ringSize, got)
	}
}

// A connection takes no more for a while, so that a chain waits behind what is left of the last write: it goes out when there is room, though nobody else posts anything.
func TestChainBehindABacklog(t *testing.T) {
	s, n, l, p := crowded(t)
	goOn := s.stall(0)
	defer goOn()
	var pending []fabric.Pending
	block := p.Alloc(100 << 10)
	for i := 0; l.wire.Load().conn.backlogged() == 0; i++ {
		if i == 500 {
			t.Fatal("the connection takes all that is written to it")
		}
		c, err := p.Post([]fabric.Op{fabric.Write(fabric.At(0, 4096), block)})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, c)
	}
	q := peertest.Open(t, n)
	behind, err := q.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)})
	if err != nil {
		t.Fatal(err)
	}
	goOn()
	within(t, "a chain behind a backlog", func() {
		if err := q.Wait(behind); err != nil {
			t.Error(err)
		}
	})
	for _, c := range pending {
		if err := p.Wait(c); err != nil {
			t.Fatal(err)
		}
	}
}

// A memory node gathers answers of no more than some bytes before it sends them, whatever lies in the connection: of a lane's own, and of one that lanes share.
func TestGatheredAnswersAreBounded(t *testing.T) {
	g, own, _ := newSharing(t)
	s := g.p
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	rider := s.lanes[laneKey{g.n.Own.Incarnation, own.index, target{id: 0, epoch: own.r.MN.Epoch}}].conn.Load()
	key := s.copyOf(0).nic.key.Load()
	for _, shared := range []bool{true, false} {
		rider.exec.Lock()
		due := rider.expect
		rider.exec.Unlock()
		c := &laneConn{s: s, lane: &served{laneKey: rider.lane.laneKey}, expect: due}
		mark := rider.tag
		if !shared {
			c.region, mark = rider.region, key
		}
		c.lane.conn.Store(c)
		const read = 16 << 10
		for i := uint32(0); i < 64; i++ { // answers of 1 MiB
			frame, _, count, _ := appendChain(nil, []fabric.Op{fabric.Read(fabric.At(0, 0), make([]byte, read))}, cursor{})
			f := header{length: len(frame), kind: frameChain, count: count, number: laneNumber(due+i, mark)}
			f.put(frame)
			c.have += copy(c.in[c.have:], frame)
		}
		full, err := c.execute(new(workerStats))
		if err != nil || !full || len(c.out) < fullAnswers || len(c.out) > fullAnswers+maxFrame {
			t.Errorf("shared %v: %d bytes of answers have gathered, there is more: %v, %v", shared, len(c.out), full, err)
		}
	}
}

// A compute node does not take its answers from a connection that lanes share: it is cut, as a lane's own is.
func TestSharedConnectionThatIsNotRead(t *testing.T) {
	g, own, _ := newSharing(t)
	shared := g.p.sharedOf(g.n)
	// The kernel gives a connection up, too, of which nothing is taken. Here the memory node is to do it.
	if err := unix.SetsockoptInt(shared.stream.Load().fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0); err != nil {
		t.Fatal(err)
	}
	wire := own.wire.Load()
	wire.lead.Lock() // nobody reads
	defer wire.lead.Unlock()
	buf := g.port.Alloc(1 << 15)
	for range 500 { // answers of 16 MB
		if _, err := g.port.Post([]fabric.Op{fabric.Read(fabric.At(0, 0), buf)}); err != nil {
			t.Fatal(err)
		}
	}
	peertest.Await(t, "the memory node's answers wait for room, or the connection is cut", func() bool {
		st := shared.stream.Load()
		return st == nil || st.backlogged() > 0 || shared.isCut()
	})
	for limit := time.Now().Add(10 * time.Second); !shared.isCut(); time.Sleep(time.Millisecond) { // the compute node gives it up after 20 s
		if time.Now().After(limit) {
			t.Fatal("the connection is not cut")
		}
	}
}
