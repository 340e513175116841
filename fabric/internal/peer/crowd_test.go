package peer

import (
	"fmt"
	"net"
	"testing"
)

// A fake is a connection from an address.
type fake struct {
	net.Conn
	from   string
	closed bool
}

func (f *fake) RemoteAddr() net.Addr { return address(f.from) }
func (f *fake) Close() error         { f.closed = true; return nil }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// Whoever opens very many connections closes its own: those of other addresses stay, and new ones are let in.
func TestCrowd(t *testing.T) {
	var w Crowd
	enter := func(host string, n int) (list []*fake) {
		for i := range n {
			f := &fake{from: net.JoinHostPort(host, fmt.Sprint(1000+i))}
			if !w.Enter(f) {
				t.Fatal("not let in")
			}
			list = append(list, f)
		}
		return list
	}
	open := func(list []*fake) (n int) {
		for _, f := range list {
			if !f.closed {
				n++
			}
		}
		return n
	}
	good := enter("10.0.0.1", 3)
	bad := enter("10.0.0.2", 1000)
	if n := open(bad); n != maxOfSource || bad[0].closed == bad[999].closed {
		t.Errorf("%d of the many are open", n)
	}
	// Many addresses: the one with most connections loses the oldest.
	for i := range 240 { // so that some more are closed than of the first many
		enter(fmt.Sprintf("10.1.%d.%d", i/200, i%200), 1)
	}
	if len(w.list) != MaxStrangers {
		t.Errorf("%d are under way", len(w.list))
	}
	late := enter("10.0.0.1", 1)
	for _, f := range append(good[2:], late...) {
		if !w.Leave(f) || f.closed {
			t.Errorf("%s is closed", f.from)
		}
	}
	if w.Leave(bad[0]) {
		t.Error("one that was closed for another is not known")
	}
	w.Close()
	if w.Enter(&fake{from: "10.0.0.3:1"}) || open(bad) != 0 {
		t.Error("after Close")
	}
}
