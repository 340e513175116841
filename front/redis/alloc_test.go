package redis

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

// No get allocates memory, but for what the network needs, and a set next to nothing.
func TestNoAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("where races are looked for, what is allocated is not what it is else")
	}
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(openCluster(t), declock.StoreConfig{Objects: 1000}); err != nil {
		t.Fatal(err)
	}
	defer s.Detach()
	for _, x := range []struct {
		words []string
		most  float64
	}{
		{[]string{"GET", "k"}, 0}, {[]string{"GET", "none"}, 0}, {[]string{"MGET", "k", "k", "none"}, 0}, {[]string{"EXISTS", "k"}, 0}, {[]string{"TTL", "k"}, 0},
		{[]string{"STRLEN", "k"}, 0}, {[]string{"PING"}, 0}, {[]string{"SET", "k", "abc"}, 0}, {[]string{"INCR", "n"}, 5},
	} {
		e := &endless{requests: []byte(request("SET", "k", "abc")), left: 1}
		c := newConn(s, e)
		c.in = make([]byte, idleBuffer)
		for range 2 {
			if err := c.next(); err != nil {
				t.Fatal(err)
			}
		}
		e.requests = []byte(request(x.words...))
		// Many runs: the reclaimer's rounds allocate meanwhile, and the average is rounded down.
		if n := testing.AllocsPerRun(5000, func() {
			e.left++
			for range 2 { // reads, and serves
				if err := c.next(); err != nil {
					t.Fatal(err)
				}
			}
		}); n > x.most {
			t.Errorf("%q: %v allocations", x.words, n)
		} else {
			t.Logf("%q: %v allocations", x.words, n)
		}
		_ = c.flush()
		if e.answers == 0 {
			t.Errorf("%q is not answered", x.words)
		}
	}
}
