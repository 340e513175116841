package tcp

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// A rawMember is a compute node that has joined and acts on no message: its links are the test's.
type rawMember struct {
	t    testing.TB
	m    member.Member
	own  member.CN
	done chan struct{}
}

// joinRaw joins a member that others reach at an address.
func (c *testCluster) joinRaw(addr string) *rawMember {
	c.T.Helper()
	r := &rawMember{t: c.T, done: make(chan struct{})}
	m, err := c.Members.Now().JoinCN(c.T.Context(), addr, func(m member.Member) {
		go func() {
			defer close(r.done)
			for {
				st, changed := m.State()
				m.Ack(st.Revision)
				select {
				case <-changed:
				case <-m.Done():
					return
				}
			}
		}()
	})
	if err != nil {
		c.T.Fatal(err)
	}
	r.m, r.own = m, m.CN()
	return r
}

func (r *rawMember) leave() {
	if err := r.m.Leave(r.t.Context()); err != nil {
		r.t.Error(err)
	}
	<-r.done
}

// connect opens a link to a node, and returns how many messages that has got.
func (r *rawMember) connect(n *node) (*net.TCPConn, uint64) {
	r.t.Helper()
	conn, err := net.Dial("tcp", n.acceptor.door.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	h := hello{role: roleLink, cn: uint8(r.own.ID), min: 1, max: 1, from: uint64(r.own.Incarnation), to: uint64(n.Own.Incarnation)}
	a, err := (&stream{}).greet(&switchConn{conn}, &h)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn.(*net.TCPConn), a.number
}

func (n *node) linkFrom(r *rawMember) *inLink {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.arrived[r.own.Incarnation]
}

// messages returns a frame of as many messages as go in one, numbered from number on.
func messages(number uint64, to int) []byte {
	h := header{length: headerSize + maxBatch*fabric.MaxMessage, kind: frameMessages, count: maxBatch, number: number}
	b := make([]byte, headerSize, h.length)
	h.put(b)
	for i := range uint64(maxBatch) {
		var w peer.WireMessage
		w.Encode(1, to, &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{number + i}})
		b = append(b, w[:]...)
	}
	return b
}

// The sender of messages for which there is no room resets its connection: that is noticed, once, and does not keep the processor
// busy. However often it connects, it makes no room; when there is some, what was left comes.
func TestResetOfAFullLink(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	c.change = func(o *Options) { o.Heartbeat = 10 * time.Millisecond }
	n := c.Join()
	to := peertest.Open(t, n)
	box := to.ID().Index()
	r := c.joinRaw("127.0.0.1:1")
	defer r.leave()
	conn, number := r.connect(n)
	for number < maxInbox+10*maxBatch {
		if _, err := conn.Write(messages(number, box)); err != nil {
			t.Fatal(err)
		}
		number += maxBatch
	}
	in := n.linkFrom(r)
	peertest.Await(t, "the inbox is full", in.isFull)
	full := n.Table.Len(box)
	for range 5 {
		_ = conn.SetLinger(0)
		conn.Close()
		peertest.Await(t, "the reset is noticed", func() bool { return n.mail.poller.count.Load() == 0 })
		if conn, number = r.connect(n); number != uint64(full) {
			t.Fatalf("%d messages have been delivered, it says %d", full, number)
		}
		if _, err := conn.Write(messages(number, box)); err != nil {
			t.Fatal(err)
		}
		peertest.Await(t, "the new connection is looked at", func() bool { return n.mail.poller.count.Load() == 1 })
	}
	defer conn.Close()
	for i := range uint64(full + maxBatch) {
		if m, err := to.Recv(to.Now() + patienceTime); err != nil || m.Body[0] != i {
			t.Fatalf("message %d: %+v, %v", i, m, err)
		}
		if got := n.Table.Len(box); got > full {
			t.Fatalf("%d messages in the inbox, %d when it was full", got, full)
		}
	}
}

// A member that says the same again and again, as fast as it can: that it has got nothing.
func TestFloodOfAcknowledgements(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	n, other := c.Join(), c.Join()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := c.joinRaw(l.Addr().String())
	defer r.leave()
	port := peertest.Open(t, n)
	if err := port.Send(fabric.AgentOf(r.own.ID), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b [helloSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		t.Fatal(err)
	}
	a := reply{version: 1, known: true}
	if _, err := conn.Write(a.encode()); err != nil {
		t.Fatal(err)
	}
	var acks []byte
	for range 4096 {
		var ack [headerSize]byte
		h := header{length: headerSize, kind: frameAck}
		h.put(ack[:])
		acks = append(acks, ack[:]...)
	}
	for err == nil { // until it hangs up
		_, err = conn.Write(acks)
	}
	if isTimeout(err) {
		t.Error(err)
	}
	from := peertest.Open(t, other)
	if err := from.Send(port.ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
		t.Fatal(err)
	}
	if _, err := port.Recv(port.Now() + patienceTime); err != nil {
		t.Errorf("a message from another node: %v", err)
	}
}

// A member that sends as fast as it can, to a client without an owner, does not keep others waiting: it is read in turns.
func TestFloodOfMessages(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	n := c.Join()
	r := c.joinRaw("127.0.0.1:1")
	defer r.leave()
	conn, number := r.connect(n)
	defer conn.Close()
	peertest.Await(t, "it is let in", func() bool { return n.mail.poller.count.Load() == 1 })
	n.mail.mu.Lock() // nothing is delivered
	const frames = 4 * readsPerTurn * inBuffer / maxBatch / fabric.MaxMessage
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := uint64(0); i < frames && err == nil; i++ {
			_, err = conn.Write(messages(number+i*maxBatch, fabric.MaxClientIndex))
		}
		sent <- err
	}()
	in := n.linkFrom(r)
	in.mu.Lock()
	s := in.conn
	in.mu.Unlock()
	most, all := 0, 0
	for all < frames*(headerSize+maxBatch*fabric.MaxMessage) {
		got, _, err := in.turn(s)
		if err != nil {
			t.Fatal(err)
		}
		most, all = max(most, got), all+got
	}
	n.mail.mu.Unlock()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if most > readsPerTurn*inBuffer {
		t.Errorf("%d bytes of one sender were read in a turn", most)
	}
}
