package overtcp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
)

// A link is a way to a compute node on which what certain others send can be held up, also over new connections. What is held up comes later.
type link struct {
	l    net.Listener
	to   string
	mu   sync.Mutex
	cond *sync.Cond
	held map[fabric.CNID]bool
	over bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &link{l: l, to: to, held: map[fabric.CNID]bool{}}
	p.cond = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		l.Close()
		p.set(func() { p.over = true })
	})
	go p.run()
	return p
}

func (p *link) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.cond.Broadcast()
}

func (p *link) run() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		go p.forward(in)
	}
}

// A hello has the number of the compute node that it is from: docs/tcp.md.
const (
	helloSize = 64
	helloFrom = 13
)

// forward forwards a connection. Answers always pass: they only say what has arrived.
func (p *link) forward(in net.Conn) {
	defer in.Close()
	b := make([]byte, 32<<10)
	if _, err := io.ReadFull(in, b[:helloSize]); err != nil {
		return
	}
	from, n := fabric.CNID(b[helloFrom]), helloSize
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(in, out)
		in.Close()
	}()
	for {
		p.mu.Lock()
		for p.held[from] && !p.over {
			p.cond.Wait()
		}
		p.mu.Unlock()
		if _, err := out.Write(b[:n]); err != nil {
			return
		}
		if n, err = in.Read(b); err != nil {
			return
		}
	}
}

// A cutNode is a compute node that others reach over a link.
type cutNode struct {
	id fabric.CNID
	in *link
	c  *declock.Cluster
	s  *declock.Session
	l  declock.LockID
}

// openBehind opens the cluster as a compute node behind a link.
func (x *stand) openBehind() *cutNode {
	x.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		x.t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	k := &cutNode{in: newLink(x.t, listen)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if k.c, err = declock.Open(ctx, fmt.Sprintf("%s&listen=%s&advertise=%s", x.address, listen, k.in.l.Addr())); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { k.c.Close() })
	if k.s, err = k.c.Session(); err != nil {
		x.t.Fatal(err)
	}
	locks, err := k.c.Locks(ctx, "l", 1)
	if err != nil {
		x.t.Fatal(err)
	}
	k.id, k.l = k.c.Node().Fabric().ID(), locks.At(0)
	return k
}

// The link between two members of a train is cut, in one direction or both, while both reach memory, etcd and a third node. The lock goes on all the same: after
// three looks of the client that waits behind the link, by a reset whose messages go over the third node. No node is given up.
func TestCutLinkOverTCP(t *testing.T) {
	x := newStand(t)
	nodes := [3]*cutNode{x.openBehind(), x.openBehind(), x.openBehind()}
	for _, both := range []bool{false, true} {
		resets := uint64(0)
		for try := 0; resets == 0 && !t.Failed(); try++ {
			if try == 5 {
				t.Fatalf("both ways %v: passed on without a reset: in no train", both)
			}
			resets = cutLink(t, nodes, both)
		}
	}
}

// cutLink has the first node hold the lock while the others wait for it, cuts the link between these, and releases it. It returns how many resets there were.
func cutLink(t *testing.T, nodes [3]*cutNode, both bool) uint64 {
	t.Helper()
	led := func() (n uint64) {
		for _, k := range nodes {
			n += k.c.Node().Observe(0).Resets.Led
		}
		return n
	}
	before := led()
	g, err := nodes[0].s.Lock(context.Background(), nodes[0].l)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for _, k := range nodes[1:] {
		go func() {
			g, err := k.s.Lock(context.Background(), k.l)
			if err == nil {
				err = g.Unlock()
			}
			done <- err
		}()
		time.Sleep(30 * time.Millisecond) // it waits, and has written its entry
	}
	first, last := nodes[1], nodes[2]
	last.in.set(func() { last.in.held[first.id] = true })
	first.in.set(func() { first.in.held[last.id] = both })
	began := time.Now()
	if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(8 * time.Second): // it is reset after 10 s in any case
			t.Fatalf("both ways %v: the lock is not passed on", both)
		}
	}
	resets := led() - before
	t.Logf("both ways %v: after %v, %d resets", both, time.Since(began), resets)
	for _, k := range nodes {
		k.in.set(func() { clear(k.in.held) })
		if live := k.c.Node().Fabric().View().Live; live.Len() != len(nodes) {
			t.Errorf("%v knows of %d nodes", k.id, live.Len())
		}
	}
	return resets
}
