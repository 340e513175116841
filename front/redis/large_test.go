package redis

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
)

// startLarge starts a server of a store with values of up to 64 MiB, in segments of 256 KiB.
func startLarge(t testing.TB, o Options) (*declock.Cluster, *Server, string) {
	t.Helper()
	c, err := declock.Open(t.Context(), "shm:", declock.WithMemory(512<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Store(t.Context(), "redis", declock.StoreConfig{Objects: 10_000, MaxValue: 64<<20 + 16, Segment: 256 << 10, NoEvict: o.NoEvict}); err != nil {
		t.Fatal(err)
	}
	o.MaxValue = 64 << 20
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(c, declock.StoreConfig{Objects: 10_000, MaxValue: 64<<20 + 16, NoEvict: o.NoEvict}); err != nil {
		t.Fatal(err)
	}
	return c, s, listenFor(t, s)
}

func letters(c byte, n int) string {
	b := bytes.Repeat([]byte{c}, n)
	for i := range b {
		b[i] += byte(i>>4) % 7
	}
	return string(b)
}

// Requests that have to do with values in segments are answered as those for small ones, alone and in pipelines.
func TestLargeValues(t *testing.T) {
	if testing.Short() {
		t.Skip("many megabytes")
	}
	_, s, address := startLarge(t, Options{})
	c := dial(t, address)
	for i, n := range []int{256 << 10, 256<<10 + 1, 300_000, 1 << 20, 5<<20 + 17, 33 << 20} {
		v := letters(byte('a'+i), n)
		if got := c.do("SET", "k", v, "PX", "100000"); got != "OK" {
			t.Fatalf("SET of %d bytes: %q", n, got)
		}
		if c.do("GET", "k") != v {
			t.Fatalf("GET of %d bytes has another value", n)
		}
		c.want("STRLEN k", fmt.Sprint(":", n))
		c.want("EXISTS k", ":1")
		c.want("GETRANGE k 5 20", v[5:21])
		c.want("GETRANGE k -5 -1", v[n-5:])
		c.want("GETRANGE k 99999999 -1", "")
		if got := c.do("GETRANGE", "k", "100", fmt.Sprint(n-2)); got != v[100:n-1] {
			t.Fatalf("GETRANGE of most of %d bytes has %d, or others", n, len(got))
		}
		if ms := c.do("PTTL", "k"); len(ms) < 6 {
			t.Errorf("PTTL is %s", ms)
		}
	}
	big, other := letters('A', 700_000), letters('B', 2_000_000)
	c.send(request("SET", "a", big) + request("SET", "b", "small") + request("SET", "a", other, "NX") + request("SET", "d", other, "XX") + request("SET", "e", big, "WHAT") +
		request("MGET", "b", "a", "none", "k") + request("SET", "b", other, "GET") + request("APPEND", "a", "end") + request("SETRANGE", "a", "3", "xyz") + request("PING"))
	for i, want := range []string{"OK", "OK", "nil", "nil", "-ERR syntax error", fmt.Sprint("*", []string{"small", big, "nil", letters('f', 33<<20)}), "small", ":700003", ":700003", "PONG"} {
		if got := c.answer(); got != want {
			t.Fatalf("answer %d: %.100q, want %.100q", i, got, want)
		}
	}
	if got, want := c.do("GET", "a"), big[:3]+"xyz"+big[6:]+"end"; got != want {
		t.Errorf("after APPEND and SETRANGE there are %d bytes, or others: %d", len(got), len(want))
	}
	c.want("EXPIRE a 100", ":1")
	c.want("DEL a b k d", ":3")
	c.want("DBSIZE", ":0")
	if n := s.buffers.Load(); n > 4<<20 {
		t.Errorf("%d bytes of buffers are counted", n)
	}
}

// While values in segments are stored and read by many, each answer is one of the values, whole; a connection that announces one and ends leaves nothing.
func TestLargeValuesBesideWriters(t *testing.T) {
	cluster, _, address := startLarge(t, Options{NoEvict: true})
	if got := dial(t, address).do("SET", "k", strings.Repeat("z", 600_000)); got != "OK" {
		t.Fatalf("SET: %.100q", got)
	}
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			c := dial(t, address)
			for j := range 10 {
				v := strings.Repeat(string(rune('a'+(i*10+j)%26)), 600_000)
				if got := c.do("SET", "k", v); got != "OK" {
					t.Errorf("SET: %.100q", got)
				}
			}
		})
	}
	all.Go(func() {
		reads := 0
		for range 20 {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			c := &client{t, nc, nil}
			c.send(request("GET", "k"))
			b, err := io.ReadAll(io.LimitReader(nc, 600_011))
			nc.Close()
			if err != nil || !bytes.HasPrefix(b, []byte("$600000\r\n")) || len(b) < 600_011 {
				continue // it was changed while it was sent: the connection has ended
			}
			reads++
			if v := b[9:600_009]; bytes.Count(v, v[:1]) != len(v) {
				t.Error("a value is made of two")
			}
		}
		if reads == 0 {
			t.Error("no read has succeeded")
		}
	})
	all.Wait()
	for i := range 5 {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		text := request("SET", "cut", strings.Repeat("x", 3<<20))
		if _, err := io.WriteString(nc, text[:len(text)*(i+1)/6]); err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
	c := dial(t, address)
	c.want("EXISTS cut", ":0")
	c.want("DEL k", ":1")
	noSegments(t, cluster)
}

// A value that arrives in pieces of any size is stored where it lies, and one of which the client sends a part only leaves nothing.
func TestLargeValuesArriveInPieces(t *testing.T) {
	cluster, s, address := startLarge(t, Options{IdleTimeout: time.Minute})
	c, v := dial(t, address), letters('p', 900_001)
	head := request("SET", "k", v)[:len(request("SET", "k", v))-len(v)-2]
	for i, text := 1, request("SET", "k", v)+request("SET", "k2", v[:700_000])+request("GETRANGE", "k2", "699990", "-1"); text != ""; i += 2 {
		n := min(len(text), i*1009)
		c.send(text[:n])
		text = text[n:]
		time.Sleep(100 * time.Microsecond)
	}
	for _, want := range []string{"OK", "OK", v[699_990:700_000]} {
		if got := c.answer(); got != want {
			t.Fatalf("%.100q, want %.100q", got, want)
		}
	}
	if c.do("GET", "k") != v {
		t.Error("the value is another")
	}
	c.want("DEL k k2", ":2")
	if n := s.buffers.Load(); n > 1<<20 {
		t.Errorf("%d bytes of buffers are counted", n)
	}
	for _, n := range []int{0, 1, 100_000, 256 << 10, 500_000, len(v)} {
		cut := dial(t, address)
		cut.send(head + v[:n])
		time.Sleep(time.Millisecond)
		_ = cut.Close()
	}
	c.want("EXISTS k", ":0")
	noSegments(t, cluster)
}

// A connection has memory for some segments, however large the value that passes through it.
func TestLargeValuesTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("one client, values of many megabytes")
	}
	_, _, address := startLarge(t, Options{})
	c, v := dial(t, address), letters('m', 60<<20)
	text := []byte(request("SET", "k", v))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.Write(text); err != nil {
		t.Fatal(err)
	}
	if got := c.answer(); got != "OK" {
		t.Fatal(got)
	}
	c.send(request("GET", "k"))
	if n, err := io.CopyN(io.Discard, c.r, int64(len("$62914560\r\n")+60<<20+2)); err != nil {
		t.Fatal(n, err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 { // most of it by the search for free pages
		t.Errorf("%d bytes were allocated for a value of %d", n, len(v))
	}
}

// Another expiry neither reads nor writes a value, and a part of a value is read without the rest.
func TestExpiryLeavesTheValue(t *testing.T) {
	_, s, address := startLarge(t, Options{})
	c, v := dial(t, address), letters('m', 60<<20)
	if got := c.do("SET", "k", v); got != "OK" {
		t.Fatal(got)
	}
	c.want("EXISTS k", ":1") // what SET has stored is counted when it has ended, which is after its answer
	var before, after runtime.MemStats
	stored := s.StoreStats().BytesWritten
	runtime.ReadMemStats(&before)
	for range 3 {
		c.want("PEXPIRE k 100001", ":1")
		c.want("EXPIRE k 1000 GT", ":1")
		c.want("PERSIST k", ":1")
		c.want("GETRANGE k 50000000 50000009", v[50000000:50000010])
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if n := s.StoreStats().BytesWritten - stored; n != 0 {
		t.Errorf("%d bytes were stored", n)
	}
	c.want("PEXPIRE k 50", ":1")
	time.Sleep(60 * time.Millisecond)
	c.want("EXISTS k", ":0")
}

// What SET, GET and MGET of values of 4 MiB take, in turns with a plain connection that carries as many bytes to and from a server in the same process. The figures are medians.
func BenchmarkLarge(b *testing.B) {
	const size = 4 << 20
	c, err := declock.Open(b.Context(), "shm:", declock.WithMemory(512<<20))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := New(Options{MaxValue: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Attach(c, declock.StoreConfig{Objects: 1000}); err != nil {
		b.Fatal(err)
	}
	k := dial(b, listenFor(b, s))
	_ = k.SetDeadline(time.Time{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	value, dst := []byte(letters('a', size)), make([]byte, 4*size+100)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		memory := bytes.Repeat(value, 16)
		one := make([]byte, 1)
		for i := 0; ; i = (i + 4) % 16 {
			if _, err := io.ReadFull(nc, one); err != nil {
				return
			}
			switch one[0] {
			case 'w':
				if _, err = io.ReadFull(nc, memory[i*size:(i+1)*size]); err == nil {
					_, err = nc.Write(one)
				}
			case 'r':
				_, err = nc.Write(memory[i*size : (i+1)*size])
			case 'm':
				_, err = nc.Write(memory[i*size : (i+4)*size])
			}
			if err != nil {
				return
			}
		}
	}()
	plain := dial(b, l.Addr().String())
	_ = plain.SetDeadline(time.Time{})
	put := func(c *client, head string, answer int) error {
		c.send(head)
		if _, err := c.Write(value); err != nil {
			return err
		}
		if head != "w" {
			c.send("\r\n")
		}
		_, err := io.ReadFull(c.Conn, dst[:answer])
		return err
	}
	get := func(c *client, request string, n int) error {
		c.send(request)
		_, err := io.ReadFull(c.Conn, dst[:n])
		return err
	}
	one := len(fmt.Sprintf("$%d\r\n\r\n", size))
	key := func(i int) string { return fmt.Sprintf("key%02d", i%16) }
	set := func(i int) error {
		return put(k, fmt.Sprintf("*3\r\n$3\r\nSET\r\n$5\r\n%s\r\n$%d\r\n", key(i), size), 5)
	}
	steps := []func(i int) error{
		set,
		func(int) error { return put(plain, "w", 1) },
		func(i int) error { return get(k, request("GET", key(i+8)), size+one) },
		func(int) error { return get(plain, "r", size) },
		func(i int) error {
			return get(k, request("MGET", key(i), key(i+3), key(i+6), key(i+9)), 4+4*(size+one))
		},
		func(int) error { return get(plain, "m", 4*size) },
	}
	for i := range 32 {
		if err := set(i); err != nil {
			b.Fatal(err)
		}
	}
	took := make([][]float64, len(steps))
	for i := 0; b.Loop(); i++ {
		for j, f := range steps {
			began := time.Now()
			if err := f(i); err != nil {
				b.Fatal(err)
			}
			took[j] = append(took[j], time.Since(began).Seconds())
		}
	}
	median := func(j int) float64 {
		slices.Sort(took[j])
		return took[j][len(took[j])/2]
	}
	b.ReportMetric(size/median(1)/1e6, "plain-MB/s")
	b.ReportMetric(median(1)/median(0), "SET/plain")
	b.ReportMetric(median(3)/median(2), "GET/plain")
	b.ReportMetric(median(5)/median(4), "MGET/plain")
}
