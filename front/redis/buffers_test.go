package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
)

// serveAll serves requests to a connection of its own, and returns it as it is while it waits for more.
func serveAll(t *testing.T, s *Server, requests string) (*conn, *recorded) {
	t.Helper()
	r := &recorded{requests: []byte(requests), step: len(requests)}
	c := newConn(s, r)
	c.in = make([]byte, idleBuffer)
	for c.next() == nil {
	}
	if len(r.requests) > 0 {
		t.Fatalf("the connection ended before %d bytes of its requests", len(r.requests))
	}
	return c, r
}

// attachedServer returns a server that serves no listener.
func attachedServer(t *testing.T) *Server {
	t.Helper()
	s, err := New(Options{})
	if err == nil {
		err = s.Attach(openCluster(t), declock.StoreConfig{Objects: 1000})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Detach)
	return s
}

// memory returns how many bytes of memory a connection has, as far as they depend on what its client sends.
func (c *conn) memory() int { return cap(c.in) + cap(c.out) + cap(c.value) + c.parser.memory() }

// A connection that waits for a request keeps little of what the one before has needed; and what a request needs is counted as long as it is not whole.
func TestBuffersGivenBack(t *testing.T) {
	s := attachedServer(t)
	big := strings.Repeat("v", 1_000_000)
	const words = 30_000
	for _, x := range []struct{ name, requests string }{
		{"a large value", request("SET", "k", big)},
		{"a large answer", request("SET", "k", big) + request("GET", "k")},
		{"many arguments", request(append([]string{"PING"}, make([]string, words)...)...)},
		{"a line of many words", "PING" + strings.Repeat(" a", words) + "\r\n"},
	} {
		if c, _ := serveAll(t, s, x.requests); c.memory() > 3*keepBuffer+busyBuffer || c.charged != 0 {
			t.Errorf("%s: the connection keeps %d bytes, %d are counted", x.name, c.memory(), c.charged)
		}
	}
	for _, x := range []struct{ name, requests string }{
		{"a value", "*2\r\n$3\r\nGET\r\n$1000000\r\n" + big[:900_000]},
		{"arguments", fmt.Sprintf("*%d\r\n", words+1) + strings.Repeat("$0\r\n\r\n", words)},
		{"arguments of the request before", request(append([]string{"PING"}, make([]string, words)...)...) + "*"},
	} {
		if c, _ := serveAll(t, s, x.requests); c.charged != int64(c.memory()) || c.charged < 16*words {
			t.Errorf("%s: %d of %d bytes are counted", x.name, c.charged, c.memory())
		}
	}
}

// What a client announces takes no memory before it comes: a buffer grows to twice what has arrived.
func TestAnnouncedTakesNoMemory(t *testing.T) {
	for _, arrived := range []int{1, 3 * idleBuffer, 3 * busyBuffer} {
		c, _ := serveAll(t, attachedServer(t), "*100000\r\n$3\r\nSET\r\n$1000000\r\n"+strings.Repeat("v", arrived))
		if n := c.memory(); n > busyBuffer+3*arrived {
			t.Errorf("%d bytes of a value that was announced take %d bytes", arrived, n)
		}
	}
}

// largest is a recorded connection that knows its largest write.
type largest struct {
	*recorded
	bytes int
}

func (l *largest) Write(b []byte) (int, error) {
	l.bytes = max(l.bytes, len(b))
	return l.recorded.Write(b)
}

// Answers to a pipeline are written when there are enough of them, and not gathered: a short pipeline may ask for more than there is memory.
func TestPipelineIsAnsweredAsItGoes(t *testing.T) {
	const size, gets = 100_000, 200
	r := &largest{recorded: &recorded{requests: []byte(request("SET", "k", strings.Repeat("v", size)) + strings.Repeat(request("GET", "k"), gets)), step: 1 << 20}}
	newConn(attachedServer(t), r).serve()
	if n := r.answers.Len(); n < gets*size || r.bytes > enoughOut+size+100 {
		t.Errorf("%d bytes of answers, %d at a time", n, r.bytes)
	}
}

// A request is bounded as a whole, besides each of its arguments.
func TestRequestBound(t *testing.T) {
	for _, x := range []struct {
		sizes []int
		want  string // the error
	}{
		{[]int{100}, ""}, {[]int{101}, "Protocol error: invalid bulk length"},
		{[]int{100, 100}, ""}, {[]int{100, 90, 1}, ""}, {[]int{100, 100, 100}, "Protocol error: invalid bulk length"},
	} {
		var words []string
		for _, n := range x.sizes {
			words = append(words, strings.Repeat("v", n))
		}
		p := parser{mostValue: 100, mostRequest: 250}
		args, _, err := p.next([]byte(request(words...)))
		if got := fmt.Sprint(err); (x.want == "") != (err == nil) || err != nil && got != x.want || err == nil && len(args) != len(words) {
			t.Errorf("arguments of %d bytes: %d of them, %v; want %q", x.sizes, len(args), err, x.want)
		}
	}
}

// CLIENT LIST has the connections that there are, and none that has ended.
func TestClientListHasNoEnded(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	for range 5 {
		d := dial(t, address)
		d.want("PING", "PONG")
		if n := strings.Count(c.do("CLIENT", "LIST"), "id="); n < 2 {
			t.Errorf("%d connections are listed", n)
		}
		d.Close()
	}
	for limit := time.Now().Add(10 * time.Second); strings.Count(c.do("CLIENT", "LIST"), "id=") != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("connections that have ended are listed")
		}
	}
}
