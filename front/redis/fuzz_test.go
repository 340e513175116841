package redis

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/declock/declock"
)

// A recorded connection has requests to read, some bytes at a time, and keeps how much was answered.
type recorded struct {
	net.Conn
	requests []byte
	step     int
	answers  bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error) {
	if len(r.requests) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(b, r.requests[:min(r.step, len(r.requests))])
	r.requests = r.requests[n:]
	return n, nil
}

func (r *recorded) Write(b []byte) (int, error)     { return r.answers.Write(b) }
func (r *recorded) Close() error                    { return nil }
func (r *recorded) RemoteAddr() net.Addr            { return new(net.TCPAddr) }
func (r *recorded) LocalAddr() net.Addr             { return new(net.TCPAddr) }
func (r *recorded) SetReadDeadline(time.Time) error { return nil }

// Whatever a client sends, the server ends with it, its answer is not out of proportion, and its buffers are bounded.
func FuzzRequests(f *testing.F) {
	for _, words := range [][]string{{"SET", "a", "b", "PX", "100", "NX", "GET"}, {"GET", "a"}, {"MGET", "a", "b"}, {"MSET", "a", "1"}, {"INCRBYFLOAT", "a", "1e-5"},
		{"SETRANGE", "a", "100", "x"}, {"GETRANGE", "a", "-1", "5"}, {"EXPIRE", "a", "10", "GT"}, {"SCAN", "0", "MATCH", "[a-b]*\\?"}, {"EVAL", "return 1", "1", "a"},
		{"HELLO", "3", "AUTH", "a", "b", "SETNAME", "x"}, {"CLIENT", "REPLY", "SKIP"}, {"CONFIG", "GET", "*"}, {"INFO", "all"}, {"GETEX", "a", "PXAT", "1"}, {"DELEX", "a", "IFEQ", "b"}} {
		f.Add([]byte(request(words...)), uint8(255))
		f.Add([]byte(request(words...)+request(words...)), uint8(3))
	}
	f.Add([]byte("SET \"a\\x00\" 'b'\r\nGET a\r\n*-1\r\n*0\r\n"), uint8(1))
	cluster, err := declock.Open(f.Context(), "shm:", declock.WithMemory(32<<20))
	if err != nil {
		f.Fatal(err)
	}
	defer cluster.Close()
	s, err := New(Options{MaxValue: 64 << 10})
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{Objects: 100})
	}
	if err != nil {
		f.Fatal(err)
	}
	defer s.Detach()
	f.Fuzz(func(t *testing.T, requests []byte, step uint8) {
		r := &recorded{requests: requests, step: int(step) + 1}
		c := newConn(s, r)
		c.serve()
		if n := r.answers.Len(); n > 128<<10*(1+len(requests)) {
			t.Errorf("an answer of %d B to %d B", n, len(requests))
		}
		if n := cap(c.in); n > 4*(len(requests)+idleBuffer+busyBuffer) {
			t.Errorf("a buffer of %d B for %d B", n, len(requests))
		}
	})
}

// However requests are cut into reads, the parser finds the same ones.
func FuzzParser(f *testing.F) {
	f.Add([]byte(request("SET", "a", "b")+request("GET", "")+"PING 'a b'\r\n*0\r\n"), uint8(1))
	f.Add([]byte("*1\r\n$5\r\nab"), uint8(2))
	f.Add([]byte("\"a\\x41\" b\n*x"), uint8(3))
	parse := func(b []byte, step int) (out []byte, failed string) {
		p := parser{mostValue: 1 << 10, mostRequest: 4 << 10}
		from := 0
		for to := min(step, len(b)); ; {
			args, n, err := p.next(b[from:to])
			if err != nil {
				return out, err.Error()
			}
			if n > 0 {
				for _, a := range args {
					out = bulk(out, a)
				}
				out = append(out, '|')
				from += n
				continue
			}
			if to == len(b) {
				return out, ""
			}
			to = min(to+step, len(b))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		whole, err := parse(b, len(b)+1)
		cut, errCut := parse(b, int(step)+1)
		if !bytes.Equal(whole, cut) || err != errCut {
			t.Errorf("at once %q, %s; cut %q, %s", whole, err, cut, errCut)
		}
	})
}

// Integers are those that Redis takes: their own text, and no other.
func FuzzIntegers(f *testing.F) {
	for _, s := range []string{"0", "-0", "-1", "+7", "9223372036854775807", "-9223372036854775808", "9223372036854775808", " 5", "05", "", "-", "1e3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, ok := integer(b)
		if got := line(nil, ':', v); ok && string(got) != ":"+string(b)+"\r\n" {
			t.Errorf("%q is %d", b, v)
		}
		if x, isFloat := float(b); ok && !isFloat {
			t.Errorf("%q is an integer and no float", b)
		} else if isFloat {
			appendFloat(nil, x)
		}
	})
}
