package memcached

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/declock/declock"
)

// An endless connection has the same requests to read for ever, and forgets the answers.
type endless struct {
	net.Conn
	requests []byte
	left     int // requests to be read
	answers  int // bytes
}

func (e *endless) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	e.left--
	return copy(b, e.requests), nil
}

func (e *endless) Write(b []byte) (int, error) {
	e.answers += len(b)
	return len(b), nil
}

func (e *endless) SetReadDeadline(time.Time) error { return nil }

// No request for items allocates memory, but for what the network needs.
func TestNoAllocations(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(openCluster(t), declock.StoreConfig{Objects: 1000}); err != nil {
		t.Fatal(err)
	}
	defer s.Detach()
	for _, request := range []string{"get k\r\n", "gets k k none\r\n", "set k 0 0 3\r\nabc\r\n", "mg k v t c s k\r\n"} {
		e := &endless{requests: []byte("set k 0 0 3\r\nabc\r\n"), left: 1}
		c := newConn(s, e)
		c.in, c.admitted = make([]byte, idleBuffer), true
		if err := c.next(); err != nil {
			t.Fatal(err)
		}
		e.requests = []byte(request)
		// Many runs: the reclaimer's rounds allocate meanwhile, and the average is rounded down.
		if n := testing.AllocsPerRun(5000, func() {
			e.left++
			if err := c.next(); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%q: %v allocations", request, n)
		}
		_ = c.flush()
		if e.answers == 0 {
			t.Errorf("%q is not answered", request)
		}
	}
}
