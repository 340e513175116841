//go:build !shmonly

package etcd_test

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A proxy is a connection to etcd that can be cut.
type proxy struct {
	l      net.Listener
	target string // socket of the server
	gate   *gate

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func startProxy(t *testing.T, endpoint string) *proxy {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(directory(t), "proxy.sock"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: strings.TrimPrefix(endpoint, "unix://"), gate: newGate()}
	t.Cleanup(func() {
		l.Close()
		p.cut()
	})
	go p.run()
	return p
}

func (p *proxy) endpoint() string { return "unix://" + p.l.Addr().String() }

func (p *proxy) run() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		if p.isCut {
			in.Close()
			out.Close()
		} else {
			p.conns = append(p.conns, in, out)
			go p.forward(in, out)
			go p.forward(out, in)
		}
		p.mu.Unlock()
	}
}

func (p *proxy) forward(from, to net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.gate.pass()
		if n > 0 {
			if _, werr := to.Write(b[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut breaks all connections, and refuses new ones until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}
