package tcp

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands before a node and forwards its connections frame by frame, until it is told to break one.
type proxy struct {
	t        testing.TB
	listener net.Listener
	tasks    sync.WaitGroup

	mu     sync.Mutex
	to     string
	conns  map[net.Conn]bool
	cuts   []cut
	seen   [2]int // frames forwarded, by direction
	refuse bool
}

// Directions of frames.
const (
	requests = 0 // from the connecting node
	answers  = 1
)

// A cut breaks the connection when a frame is due: in a direction, after so many, and after some bytes of it.
type cut struct{ direction, frame, bytes int }

// newProxy listens; forward says where to.
func newProxy(t testing.TB) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, conns: map[net.Conn]bool{}}
	p.tasks.Go(p.run)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) forward(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// breakAt makes the proxy break connections: once for each cut, in this order.
func (p *proxy) breakAt(cuts ...cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts, p.seen = cuts, [2]int{}
}

// breakAll breaks all connections, and refuses new ones or not.
func (p *proxy) breakAll(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.breakAll(true)
	p.tasks.Wait()
}

func (p *proxy) run() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to, refuse := p.to, p.refuse
		p.mu.Unlock()
		out, err := net.Dial("tcp", to)
		if refuse || err != nil {
			in.Close()
			if out != nil {
				out.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.tasks.Go(func() { p.pump(in, out, requests) })
		p.tasks.Go(func() { p.pump(out, in, answers) })
	}
}

// pump forwards one direction. Both ends are closed when it ends.
func (p *proxy) pump(from, to net.Conn, direction int) {
	defer func() {
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
		from.Close()
		to.Close()
	}()
	first := make([]byte, helloSize)
	if _, err := io.ReadFull(from, first); err != nil {
		return
	}
	if direction == answers {
		var r reply
		n, err := r.decode((*[replySize]byte)(first))
		if err != nil {
			p.t.Error(err)
			return
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(from, text); err != nil {
			return
		}
		first = append(first, text...)
	}
	if _, err := to.Write(first); err != nil {
		return
	}
	frame := make([]byte, maxFrame)
	for {
		if _, err := io.ReadFull(from, frame[:headerSize]); err != nil {
			return
		}
		var h header
		if _, err := h.parse(frame[:headerSize]); err != nil {
			p.t.Error(err)
			return
		}
		if _, err := io.ReadFull(from, frame[headerSize:h.length]); err != nil {
			return
		}
		n, ok := p.passes(direction, h.length)
		if _, err := to.Write(frame[:n]); err != nil || !ok {
			return
		}
	}
}

// passes counts a frame, and tells how much of it passes.
func (p *proxy) passes(direction, length int) (n int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cuts) > 0 && p.cuts[0].direction == direction && p.cuts[0].frame == p.seen[direction] {
		n = min(p.cuts[0].bytes, length-1)
		p.cuts, p.seen = p.cuts[1:], [2]int{}
		return n, false
	}
	p.seen[direction]++
	return length, true
}
