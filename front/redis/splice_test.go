package redis

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

// allocated returns how many bytes f has allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// discard reads the answer that a value of n bytes is.
func (c *client) discard(n int) {
	c.t.Helper()
	if _, err := io.CopyN(io.Discard, c.r, int64(len(fmt.Sprintf("$%d\r\n", n))+n+2)); err != nil {
		c.t.Fatal(err)
	}
}

// Commands that change a part of a value, or answer with a value that they change, have memory for some segments, and those that look for a number or a word in it for little more than that. What finds room for
// the new segments allocates most of what there is here: it reads a table of the memory node for each.
func TestChangesOfLargeValuesTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("one client, values of many megabytes")
	}
	_, s, address := startLarge(t, Options{})
	c, n := dial(t, address), 40<<20
	v := letters('m', n)
	set, end := []byte(request("SET", "k", v)), []byte(request("APPEND", "k", v[:n/4]))
	middle, other := []byte(request("SETRANGE", "k", "1000000", v[:n/4])), []byte(request("SETEX", "k2", "1000", v))
	if _, err := c.Write(set); err != nil || c.answer() != "OK" {
		t.Fatal("SET", err)
	}
	for _, x := range []struct {
		name string
		most uint64
		do   func()
	}{
		{"APPEND", 40 << 20, func() { _, _ = c.Write(end); c.wantAnswer(fmt.Sprint(":", n+n/4)) }},
		{"SETRANGE", 40 << 20, func() { _, _ = c.Write(middle); c.wantAnswer(fmt.Sprint(":", n+n/4)) }},
		{"APPEND of little", 40 << 20, func() { c.want("APPEND k abc", fmt.Sprint(":", n+n/4+3)) }},
		{"APPEND of nothing", 1 << 20, func() { c.send(request("APPEND", "k", "")); c.wantAnswer(fmt.Sprint(":", n+n/4+3)) }},
		{"SETEX", 26 << 20, func() { _, _ = c.Write(other); c.wantAnswer("OK") }},
		{"GETEX", 8 << 20, func() { c.send(request("GETEX", "k2", "EX", "100")); c.discard(n) }},
		{"INCR", 1 << 20, func() { c.want("INCR k2", "-ERR value is not an integer or out of range") }},
		{"INCRBYFLOAT", 1 << 20, func() { c.want("INCRBYFLOAT k2 1", "-ERR value is not a valid float") }},
		{"SET with IFEQ", 1 << 20, func() { c.want("SET k2 new IFEQ "+strings.Repeat("m", 100), "nil") }},
		{"SET with GET", 8 << 20, func() { c.send(request("SET", "k2", "new", "GET")); c.discard(n) }},
		{"GETDEL", 8 << 20, func() { c.send(request("GETDEL", "k")); c.discard(n + n/4 + 3) }},
	} {
		if n := allocated(x.do); n > x.most {
			t.Errorf("%s has allocated %d bytes", x.name, n)
		}
	}
	c.want("MGET k k2", "*[nil new]")
	if n := s.buffers.Load(); n > 4<<20 {
		t.Errorf("%d bytes of buffers are counted", n)
	}
}

func (c *client) wantAnswer(want string) {
	c.t.Helper()
	if got := c.answer(); got != want {
		c.t.Errorf("answered %.100q, want %q", got, want)
	}
}

// Changes of values in segments have the results that they have of small ones.
func TestChangesOfLargeValues(t *testing.T) {
	_, _, address := startLarge(t, Options{})
	c, big := dial(t, address), letters('a', 700_000)
	same := func(want string) {
		t.Helper()
		if got := c.do("GET", "k"); got != want {
			t.Fatalf("there are %d bytes, or others, want %d", len(got), len(want))
		}
	}
	for _, x := range []struct {
		name, old, want string
		do              []string
	}{
		{"to none", "", big, []string{"APPEND", "k", big}},
		{"to a small one", "abc", "abc" + big, []string{"APPEND", "k", big}},
		{"to a large one", big, big + big, []string{"APPEND", "k", big}},
		{"little", big, big + "x", []string{"APPEND", "k", "x"}},
		{"beyond small", big[:262_144], big[:262_144] + "x", []string{"APPEND", "k", "x"}},
		{"into none", "", strings.Repeat("\x00", 9) + big, []string{"SETRANGE", "k", "9", big}},
		{"far into none", "", strings.Repeat("\x00", 1<<20) + "x", []string{"SETRANGE", "k", "1048576", "x"}},
		{"far behind", big, big + strings.Repeat("\x00", 1<<20-700_000) + "x", []string{"SETRANGE", "k", "1048576", "x"}},
		{"first", big, "xyz" + big[3:], []string{"SETRANGE", "k", "0", "xyz"}},
		{"last", big, big[:699_997] + "xyz", []string{"SETRANGE", "k", "699997", "xyz"}},
		{"across", big + big, big[:300_000] + big + big[300_000:], []string{"SETRANGE", "k", "300000", big}},
		{"all of a small one", "abc", big, []string{"SETRANGE", "k", "0", big}},
	} {
		if c.do("DEL", "k"); x.old != "" {
			c.do("SET", "k", x.old, "EX", "1000")
		}
		if got := c.do(x.do...); got != fmt.Sprint(":", len(x.want)) {
			t.Fatalf("%s: %.100q", x.name, got)
		}
		same(x.want)
		if ms := c.do("PTTL", "k"); (ms != ":-1") != (x.old != "") {
			t.Errorf("%s: it expires in %s", x.name, ms)
		}
	}
	c.want("SETRANGE k 67108864 x", "-"+tooLong)
	same(big)
	if got := c.do("SET", "k", "x", "GET", "NX"); got != big {
		t.Errorf("SET with GET and NX: %.100q", got)
	}
	if got := c.do("SET", "k", "x", "GET", "IFEQ", big+"!"); got != big {
		t.Errorf("SET with GET and IFEQ: %.100q", got)
	}
	same(big)
	if got := c.do("SET", "k", big+"2", "GET", "IFEQ", big); got != big {
		t.Errorf("SET with GET and IFEQ: %.100q", got)
	}
	if got := c.do("GETEX", "k", "PX", "60000"); got != big+"2" || len(c.do("PTTL", "k")) != 6 {
		t.Errorf("GETEX: %.100q", got)
	}
	if got := c.do("GETSET", "k", big); got != big+"2" {
		t.Errorf("GETSET: %.100q", got)
	}
	if got := c.do("PSETEX", "k", "60000", "small"); got != "OK" {
		t.Errorf("PSETEX: %.100q", got)
	}
	c.want("GETDEL k", "small")
	c.want("DBSIZE", ":0")
}

// A change of a value in segments that has to begin anew, because the value was changed, leaves nothing of what it had made.
func TestChangesOfLargeValuesLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("many megabytes")
	}
	cluster, s, address := startLarge(t, Options{NoEvict: true})
	c, v := dial(t, address), letters('l', 8<<20)
	if got := c.do("SET", "k", v); got != "OK" {
		t.Fatal(got)
	}
	text := request("APPEND", "k", v)
	c.send(text[:len(text)-100])
	for until := time.Now().Add(20 * time.Second); s.StoreStats().BytesWritten < 15<<20; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the value does not arrive")
		}
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { // beside it
			d := dial(t, address)
			for i := range 20 {
				if got := d.do("SETRANGE", "k", "9", fmt.Sprint(i%10)); got[0] != ':' {
					t.Errorf("SETRANGE: %.100q", got)
				}
			}
		})
	}
	c.send(text[len(text)-100:])
	c.wantAnswer(fmt.Sprint(":", 16<<20))
	all.Wait()
	c.want("DEL k", ":1")
	noSegments(t, cluster)
}

// Of many that change a value in segments at a time each change takes place once, in one step.
func TestChangesOfLargeValuesBesideOthers(t *testing.T) {
	_, _, address := startLarge(t, Options{})
	if got := dial(t, address).do("SET", "k", strings.Repeat("z", 600_000)); got != "OK" {
		t.Fatal(got)
	}
	piece := strings.Repeat("p", 300_000) // arrives as an upload
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			c := dial(t, address)
			for range 4 {
				if got := c.do("APPEND", "k", []string{piece, "one", "two"}[i]); got[0] != ':' {
					t.Errorf("APPEND: %.100q", got)
				}
				if got := c.do("SETRANGE", "k", fmt.Sprint(100*i), "same"); got[0] != ':' {
					t.Errorf("SETRANGE: %.100q", got)
				}
			}
		})
	}
	all.Wait()
	got := dial(t, address).do("GET", "k")
	if n := 600_000 + 4*(len(piece)+6); len(got) != n || strings.Count(got, piece) != 4 || strings.Count(got, "one") != 4 || strings.Count(got, "two") != 4 || strings.Count(got, "same") != 3 {
		t.Fatalf("%d bytes, want %d, or not each piece once", len(got), n)
	}
	var taken atomic.Int32
	for i := range 3 {
		all.Go(func() {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(nc, request([][]string{{"GETDEL", "k"}, {"GETDEL", "k"}, {"SET", "k", "new", "XX", "GET"}}[i]...)+request("QUIT"))
			if b, _ := io.ReadAll(nc); strings.Contains(string(b), got+"\r\n") { // else its connection has ended, or the value is another by then
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if n := taken.Load(); n != 1 {
		t.Errorf("%d commands have got the value that they replaced", n)
	}
}

// A client that takes no more of a value than its beginning has not changed it, and one that does not send all that it has announced neither.
func TestChangesOfLargeValuesCut(t *testing.T) {
	cluster, _, address := startLarge(t, Options{NoEvict: true})
	c, v := dial(t, address), letters('k', 30<<20)
	if got := c.do("SET", "k", v); got != "OK" {
		t.Fatal(got)
	}
	for i, text := range []string{request("GETDEL", "k"), request("GETEX", "k", "PX", "1"), request("SET", "k", "x", "GET"), request("GETSET", "k", "x"),
		request("APPEND", "k", v)[:20<<20], request("SETRANGE", "k", "5", v)[:20<<20]} {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err = io.WriteString(nc, text); err == nil && i < 4 {
			_, err = io.ReadFull(nc, make([]byte, 100))
		}
		if nc.Close(); err != nil {
			t.Fatalf("%.30q: %v", text, err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	if got := c.do("GET", "k"); got != v {
		t.Errorf("there are %d bytes, or others", len(got))
	}
	c.want("PTTL k", ":-1")
	c.want("DEL k", ":1")
	noSegments(t, cluster)
}

// A value that is flushed while it is sent is not replaced by the command that sends it.
func TestChangesOfLargeValuesFlushed(t *testing.T) {
	_, _, address := startLarge(t, Options{})
	c, d, v := dial(t, address), dial(t, address), letters('k', 30<<20)
	if got := c.do("SET", "k", v); got != "OK" {
		t.Fatal(got)
	}
	d.send(request("SET", "k", "new", "GET"))
	if _, err := d.r.Peek(100); err != nil {
		t.Fatal(err)
	}
	c.want("FLUSHALL", "OK")
	if n, _ := io.Copy(io.Discard, d); n > 30<<20 {
		t.Errorf("%d bytes were sent", n)
	}
	c.want("GET k", "nil")
}

// noSegments waits until there are no segments.
func noSegments(t *testing.T, cluster *declock.Cluster) {
	t.Helper()
	st, err := cluster.Store(t.Context(), "redis", declock.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var r *objstore.Report
		err := st.Use(t.Context(), func(k *objstore.Client) (err error) { r, err = k.Check(objstore.CheckOptions{}); return err })
		if err == nil && r.Segments == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("segments are left: %v, %v", err, r)
		}
	}
}

// When memory is full, a change of a value in segments is refused, and the value is as it was.
func TestChangesOfLargeValuesWhenFull(t *testing.T) {
	if testing.Short() {
		t.Skip("one client, values of many megabytes")
	}
	cluster, err := declock.Open(t.Context(), "shm:", declock.WithMemory(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	s, err := New(Options{NoEvict: true, MaxValue: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(cluster, declock.StoreConfig{Objects: 1000, NoEvict: true}); err != nil {
		t.Fatal(err)
	}
	c, v := dial(t, listenFor(t, s)), letters('f', 26<<20)
	if got := c.do("SET", "k", v); got != "OK" {
		t.Fatal(got)
	}
	if got := c.do("SET", "k2", v); got != "OK" {
		t.Fatal(got)
	}
	const full = "-OOM command not allowed when used memory > 'maxmemory'."
	for _, words := range [][]string{{"APPEND", "k", "x"}, {"SETRANGE", "k", "3", "xyz"}, {"APPEND", "k", v[:4<<20]}, {"SET", "k", v, "GET"}} {
		if got := c.do(words...); got != full {
			t.Errorf("%s is answered %.100q", words[0], got)
		}
	}
	if got := c.do("GET", "k"); got != v {
		t.Errorf("there are %d bytes, or others", len(got))
	}
	if got := c.do("GETDEL", "k2"); got != v {
		t.Errorf("GETDEL: %.100q", got)
	}
	c.want("APPEND k x", fmt.Sprint(":", len(v)+1))
}

// What large values take of memory while they are sent is bounded, however many clients ask for them and take nothing.
func TestLargeValuesNotTaken(t *testing.T) {
	_, s, address := startLarge(t, Options{MaxBuffers: 4 << 20})
	c, v := dial(t, address), letters('m', 40<<20)
	if got := c.do("SET", "k", v); got != "OK" {
		t.Fatal(got)
	}
	for range 8 {
		d := dial(t, address)
		_ = d.SetReadDeadline(time.Now().Add(20 * time.Second))
		d.send(request("GET", "k"))
		_, _ = d.r.Peek(1) // it is sent, or the connection has ended
	}
	if n := s.buffers.Load(); n > 4<<20 {
		t.Errorf("%d bytes are in use", n)
	}
	if n := s.counted.overBuffers.Load(); n < 4 {
		t.Errorf("%d connections have ended because of memory, want 4 or more", n)
	}
}

// A segment that is placed before its client has sent any of it counts for what the server has for values, too.
func TestAnnouncedSegmentsCount(t *testing.T) {
	_, s, address := startLarge(t, Options{MaxBuffers: 4 << 20})
	for range 40 {
		d := dial(t, address)
		d.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$41943040\r\n")
		_ = d.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = d.r.Peek(1) // it waits, or the connection has ended
	}
	if n := s.buffers.Load(); n == 0 || n > 4<<20 {
		t.Errorf("%d bytes are in use", n)
	}
	if n := s.counted.overBuffers.Load(); n < 4 {
		t.Errorf("%d connections have ended because of memory, want 4 or more", n)
	}
}
