package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
)

// A rawPeer speaks the protocol by hand, as a member that does what it likes.
type rawPeer struct {
	t testing.TB
	net.Conn
	reply reply
}

// call connects to a server as lane 7 of a member.
func call(t testing.TB, s *MemoryServer, n *node, number uint32) *rawPeer {
	t.Helper()
	p, err := tryCall(t, s, n, number)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryCall(t testing.TB, s *MemoryServer, n *node, number uint32) (*rawPeer, error) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := hello{role: roleLane, cn: uint8(n.Own.ID), index: 7, min: 1, max: 1, from: uint64(n.Own.Incarnation), to: uint64(s.peer.Own.Incarnation), number: uint64(number)}
	st := &stream{}
	r, err := st.greet(&switchConn{conn}, &h)
	return &rawPeer{t, conn, r}, err
}

// connOf returns the connection of a lane, once it is served.
func (s *MemoryServer) connOf(t testing.TB, k laneKey) (c *laneConn) {
	t.Helper()
	peertest.Await(t, "the connection is served", func() bool {
		s.peer.Mu.Lock()
		defer s.peer.Mu.Unlock()
		c = s.lanes[k].conn.Load()
		return c != nil && c.stream.Load() != nil
	})
	return c
}

// chain returns a frame that adds to word 64.
func (p *rawPeer) chain(number uint32, ops ...fabric.Op) []byte {
	frame, _, count, _ := appendChain(nil, ops, cursor{})
	h := header{length: len(frame), kind: frameChain, count: count, number: laneNumber(number, p.reply.key)}
	h.put(frame)
	return frame
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	if _, err := p.Conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits until the node has hung up.
func (p *rawPeer) ends(what string) {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, p.Conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		p.t.Errorf("%s: the connection stays", what)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func counter(t testing.TB, p fabric.Port) uint64 {
	t.Helper()
	return peertest.Do(t, p, fabric.Load(fabric.At(0, 64)))[0].Old
}

// A frame of which a part had come when its sender was declared dead does not execute when the rest comes; nor does one that comes
// behind it. A node that comes back learns what was executed.
func TestFencedFramesDoNotExecute(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	victim, other := c.Join(), c.Join()
	port := peertest.Open(t, other)
	add := fabric.FAA(fabric.At(0, 64), 1)
	p := call(t, s, victim, 100)
	p.write(p.chain(100, add))
	answer := make([]byte, headerSize+8)
	if _, err := io.ReadFull(p, answer); err != nil {
		t.Fatal(err)
	}
	half := p.chain(101, add)
	p.write(half[:20])
	c.Members.Now().Kill(victim.Own.Incarnation)
	peertest.Await(t, "the victim is out of the view", func() bool { return !other.View().Live.Has(victim.ID()) })
	_, _ = p.Conn.Write(half[20:])
	_, _ = p.Conn.Write(p.chain(102, add))
	p.ends("a fenced node")
	if n := counter(t, port); n != 1 {
		t.Errorf("%d frames were executed, want 1", n)
	}
	q, err := tryCall(t, s, victim, 102)
	if !errors.Is(err, fabric.ErrFenced) || !q.reply.known || q.reply.number != 101 {
		t.Errorf("a fenced node that comes back hears %v, %+v", err, q.reply)
	}
	if err := peertest.Open(t, other).Do([]fabric.Op{fabric.Load(fabric.At(0, 64))}); err != nil {
		t.Error(err)
	}
	peertest.Await(t, "the victim knows", func() bool {
		p, err := victim.Open()
		return err == nil && errors.Is(p.Do([]fabric.Op{fabric.Load(fabric.At(0, 64))}), fabric.ErrFenced)
	})
	if err := victim.Agent().Send(fabric.AgentOf(other.ID()), &fabric.Message{}); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("Send of a fenced node: %v", err)
	}
}

// What the kernel had received of a node when it was shut out is not executed afterwards.
func TestReceivedFramesOfTheFencedDoNotExecute(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	victim, other := c.Join(), c.Join()
	p := call(t, s, victim, 0)
	conn := s.connOf(t, laneKey{victim.Own.Incarnation, 7, target{}})
	conn.exec.Lock() // as if a frame was being executed
	const frames = 5000
	var all []byte
	for i := range uint32(frames) {
		all = append(all, p.chain(i, fabric.FAA(fabric.At(0, 64), 1))...)
	}
	p.write(all)
	c.Members.Now().Kill(victim.Own.Incarnation)
	// The memory node has begun to shut the victim out, and waits for the frame: it holds its mutex meanwhile.
	held := 0
	peertest.Await(t, "the memory node shuts the victim out", func() bool {
		if s.peer.Mu.TryLock() {
			s.peer.Mu.Unlock()
			held = 0
		} else {
			held++
		}
		return held > 50
	})
	if !other.View().Live.Has(victim.ID()) {
		t.Error("the victim is out of the view while a frame of it executes")
	}
	conn.exec.Unlock()
	peertest.Await(t, "the victim is out of the view", func() bool { return !other.View().Live.Has(victim.ID()) })
	p.ends("a fenced node")
	if n := counter(t, peertest.Open(t, other)); n != 0 {
		t.Errorf("%d frames were executed", n)
	}
}

// A new connection of a lane shuts the old one out first.
func TestNewConnectionReplacesTheOld(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	n := c.Join()
	add := fabric.FAA(fabric.At(0, 64), 1)
	p := call(t, s, n, 0)
	half := p.chain(0, add)
	p.write(half[:len(half)-1])
	q := call(t, s, n, 1)
	if !q.reply.known || q.reply.number != 0 {
		t.Errorf("the memory node says %+v", q.reply)
	}
	_, _ = p.Conn.Write(half[len(half)-1:])
	p.ends("the old connection")
	q.write(q.chain(1, add))
	answer := make([]byte, headerSize+8)
	if _, err := io.ReadFull(q, answer); err != nil {
		t.Fatal(err)
	}
	if n := counter(t, peertest.Open(t, n)); n != 1 {
		t.Errorf("%d frames were executed, want 1", n)
	}
}

// Bytes that no member would send cost the sender its connection, and others nothing.
func TestBadFramesEndTheConnection(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	n := c.Join()
	port := peertest.Open(t, n)
	frame := func(p *rawPeer, change func(h *header, body []byte)) []byte {
		b := p.chain(0, fabric.FAA(fabric.At(0, 64), 1))
		var h header
		_, _ = h.parse(b)
		change(&h, b[headerSize:])
		h.put(b)
		return b
	}
	for name, change := range map[string]func(h *header, body []byte){
		"length 0":             func(h *header, _ []byte) { h.length = 0 },
		"a length of 2 GiB":    func(h *header, _ []byte) { h.length = 1 << 31 },
		"a length not of 8":    func(h *header, _ []byte) { h.length = 33 },
		"another kind":         func(h *header, _ []byte) { h.kind = frameAnswer },
		"another number":       func(h *header, _ []byte) { h.number++ },
		"too many operations":  func(h *header, _ []byte) { h.count = 17 },
		"an operation missing": func(h *header, _ []byte) { h.count = 2 },
		"bytes too many":       func(h *header, _ []byte) { h.count = 0 },
		"no such operation":    func(_ *header, body []byte) { body[7] = 99 },
		"bits that are not":    func(_ *header, body []byte) { body[6] = 1 },
	} {
		p := call(t, s, n, 0)
		p.write(frame(p, change))
		p.ends(name)
	}
	p := call(t, s, n, 0)
	noise := make([]byte, 100_000)
	_, _ = rand.Read(noise)
	_, _ = p.Conn.Write(noise)
	p.ends("noise")
	peertest.Do(t, port, fabric.FAA(fabric.At(0, 64), 1))
}

// A node that does not take its answers is not read any more, and in the end loses its connection; the memory that
// it costs is bounded.
func TestSlowReader(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 20*time.Millisecond, 200*time.Millisecond }
	s := c.Serve(0, 1<<20)
	n := c.Join()
	p := call(t, s, n, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	buf := make([]byte, 60_000)
	sent := 0
	_ = p.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for i := range uint32(1 << 20) {
		if _, err := p.Conn.Write(p.chain(i, fabric.Read(fabric.At(0, 64), buf))); err != nil {
			if isTimeout(err) {
				t.Fatal("the connection stays")
			}
			break
		}
		sent++
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("%d READs without taking the answers cost %d bytes", sent, grown)
	}
	peertest.Do(t, peertest.Open(t, n), fabric.FAA(fabric.At(0, 64), 1))
}

// Very many connections that say nothing, or half a hello, and stay: nodes at another address, and at the same one, are let in meanwhile.
func TestIdleConnectionsKeepNoNodeOut(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	n := c.Join()
	var held []net.Conn
	t.Cleanup(func() {
		for _, conn := range held {
			conn.Close()
		}
	})
	for i := range 1000 {
		conn, err := net.Dial("tcp", []net.Addr{s.Addr(), n.acceptor.door.Addr()}[i%2].String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
		if i%3 == 0 {
			_, _ = conn.Write([]byte(magic))
		}
	}
	m := c.Join() // at once, while they are there
	peertest.Do(t, peertest.Open(t, m), fabric.FAA(fabric.At(0, 64), 1))
	peertest.Do(t, peertest.Open(t, n), fabric.FAA(fabric.At(0, 64), 1))
	// And a node that is cut off comes back.
	s.connOf(t, laneKey{n.Own.Incarnation, 0, target{}}).cut()
	p := peertest.Open(t, n)
	peertest.Await(t, "it is connected again", func() bool { return p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}) == nil })
}

// Strangers: connections that send nothing, nonsense, or half a hello, and very many of them.
func TestStrangers(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	n := c.Join()
	to := []net.Addr{s.Addr(), n.acceptor.door.Addr()}
	var conns []net.Conn
	for i := range 2*peer.MaxStrangers + 50 {
		conn, err := net.Dial("tcp", to[i%2].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		switch i % 3 {
		case 1:
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: declock\r\nAccept: everything under the sun, please\r\n\r\n"))
		case 2:
			_, _ = conn.Write([]byte(magic))
		}
	}
	peertest.Do(t, peertest.Open(t, n), fabric.FAA(fabric.At(0, 64), 1)) // a member stays connected
	for _, conn := range conns {
		conn.Close()
	}
	peertest.Await(t, "there is room again", func() bool {
		m, err := Join(context.Background(), c.options())
		if err != nil {
			return false
		}
		return m.Close() == nil
	})
	h := hello{role: roleLane, cn: uint8(n.Own.ID), min: 7, max: 9, from: uint64(n.Own.Incarnation), to: uint64(s.peer.Own.Incarnation)}
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := (&stream{}).greet(&switchConn{conn}, &h); !errors.Is(err, ErrVersion) {
		t.Errorf("a peer of versions 7 to 9 hears %v", err)
	}
}

// A memory node that does not answer any more, though its machine does.
func TestMemoryNodeThatHangs(t *testing.T) {
	c, p := proxied(t)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 20*time.Millisecond, 100*time.Millisecond }
	port := peertest.Open(t, c.Join())
	peertest.Do(t, port, fabric.FAA(fabric.At(0, 64), 1))
	// The next answer never comes: the memory node waits for the lock that its nic takes.
	s := c.Servers[0]
	s.peer.Mu.Lock()
	for _, l := range s.lanes {
		c := l.conn.Load()
		c.exec.Lock()
		defer c.exec.Unlock()
	}
	s.peer.Mu.Unlock()
	p.breakAt()
	err := port.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)})
	if !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("FAA on a memory node that hangs: %v", err)
	}
}

// A client that does not take its messages costs its node no more than a bounded inbox; when it takes them, all come.
func TestInboxIsBounded(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 10*time.Millisecond, 10*time.Second }
	a, b := c.Join(), c.Join()
	from, to := peertest.Open(t, a), peertest.Open(t, b)
	const count = 3 * maxInbox
	for i := range uint64(count) {
		if err := from.Send(to.ID(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i}}); err != nil {
			t.Fatal(err)
		}
	}
	peertest.Await(t, "the inbox is full", func() bool { return b.Table.Len(to.ID().Index()) >= maxInbox })
	for i := range uint64(count) {
		m, err := to.Recv(to.Now() + patienceTime)
		if err != nil || m.Body[0] != i {
			t.Fatalf("message %d: %+v, %v", i, m, err)
		}
		if n := b.Table.Len(to.ID().Index()); n > maxInbox+maxBatch {
			t.Fatalf("%d messages in the inbox", n)
		}
	}
	link := linkTo(a, b.ID())
	// Acknowledgements of the last messages come with the heartbeat: none may come while the queue seems full.
	peertest.Await(t, "all messages are acknowledged", func() bool { return !link.Unsent() })
	link.Mu.Lock()
	link.Filled = link.Acked + peer.MaxQueue // as if they waited
	link.Mu.Unlock()
	if err := from.Send(to.ID(), &fabric.Message{Kind: fabric.MsgUser}); !errors.Is(err, fabric.ErrResources) {
		t.Errorf("one message more than are kept: %v", err)
	}
	link.Mu.Lock()
	link.Filled = link.Written
	link.Mu.Unlock()
}

// The kernel gives up a connection on which answers are not taken; where it does not, the memory node does.
func TestStalledAnswersCutTheConnection(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	s := c.Serve(0, 1<<20)
	n := c.Join()
	call(t, s, n, 0)
	conn := s.connOf(t, laneKey{n.Own.Incarnation, 7, target{}})
	stalls := func() {
		s.peer.Mu.Lock()
		defer s.peer.Mu.Unlock()
		conn.stalls(3)
	}
	stalls()
	st := conn.stream.Load()
	st.mu.Lock()
	st.backlog = make([]byte, 100)
	st.mu.Unlock()
	for i := range 8 {
		switch i {
		case 2:
			conn.sent.Add(1) // something moves
		case 4:
			st.mu.Lock()
			st.backlog = st.backlog[1:] // though slowly
			st.mu.Unlock()
		}
		if stalls(); conn.isCut() != (i == 7) {
			t.Fatalf("at look %d it is cut: %v", i, conn.isCut())
		}
	}
}

// What a node had sent before it was declared dead is delivered before the news that it has gone, and nothing after it.
func TestMessagesOfCrashedNodesComeBeforeTheView(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	victim, n := c.Join(), c.Join()
	from := peertest.Open(t, victim)
	send := func(i uint64) error {
		return from.Send(fabric.AgentOf(n.ID()), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i}})
	}
	recv := func() fabric.Message {
		m, err := n.Agent().Recv(n.Now() + patienceTime)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if err := send(0); err != nil {
		t.Fatal(err)
	}
	for recv().Kind != fabric.MsgUser { // the link is there
	}
	n.mail.mu.Lock() // nothing is delivered
	const count = 10
	for i := range uint64(count) {
		if err := send(1 + i); err != nil {
			t.Fatal(err)
		}
	}
	peertest.Await(t, "all has been written", func() bool { // send leaves it to a goroutine that is writing
		l := linkTo(victim, n.ID())
		l.Mu.Lock()
		defer l.Mu.Unlock()
		return l.Written == 1+count && !l.writing
	})
	c.Members.Now().Kill(victim.Own.Incarnation)
	peertest.Await(t, "the victim is out of the view", func() bool { return !n.View().Live.Has(victim.ID()) })
	_ = send(1 + count) // by a zombie
	n.mail.mu.Unlock()
	next := uint64(1)
	for gone := false; !gone; {
		m := recv()
		switch {
		case m.Kind == fabric.MsgUser && m.Body[0] == next:
			next++
		case m.Kind == fabric.MsgView:
			gone = m.Body[0] >= n.View().Epoch
		default:
			t.Fatalf("message %+v, want %d", m, next)
		}
	}
	if next <= count {
		t.Errorf("the news came before message %d", next)
	}
	if m, err := n.Agent().Recv(n.Now() + fabric.Millisecond); err == nil && m.Kind == fabric.MsgUser {
		t.Errorf("message %+v behind the news", m)
	}
}
