package redis

import (
	"bufio"
	"context"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front/memcached"
)

// serveMemcached serves a cluster's store to clients of memcached, too, and returns one: it sends a request, | for the ends of lines, and compares what is answered, unless nothing is wanted.
func serveMemcached(t *testing.T, cluster *declock.Cluster, o memcached.Options) (mc func(request, want string) string) {
	t.Helper()
	s, err := memcached.New(o)
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{})
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(nc)
	return func(request, want string) string {
		t.Helper()
		if _, err := nc.Write([]byte(strings.ReplaceAll(request, "|", "\r\n") + "\r\nmn\r\n")); err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line = strings.TrimRight(line, "\r\n"); line == "MN" {
				break
			}
			got = append(got, line)
		}
		text := strings.Join(got, "|")
		if text != want && want != "" {
			t.Errorf("%s: memcached's client gets %q, want %q", request, text, want)
		}
		return text
	}
}

// A store that is served to clients of Redis and of memcached has the same items for both: values, times to live to the millisecond, flushes.
func TestBesideMemcached(t *testing.T) {
	cluster := openCluster(t)
	_, address := startServer(t, cluster, Options{Store: "both"})
	mc := serveMemcached(t, cluster, memcached.Options{Store: "both", MaxItem: 1 << 16})
	c := dial(t, address)
	mc("set k 7 0 1|v", "STORED")
	c.want("APPEND k x", ":2")
	mc("get k", "VALUE k 7 2|vx|END")
	c.want("SET k 41", "OK")
	mc("get k", "VALUE k 0 2|41|END")
	mc("incr k 1", "42")
	c.want("GET k", "42")

	const ms = 300 * time.Millisecond
	begun := time.Now()
	left := func() time.Duration { return time.Until(begun.Add(ms)) }
	for _, key := range []string{"plain", "appended", "counted", "touched", "forever"} {
		c.want("SET "+key+" 1 PX 300", "OK")
	}
	mc("append appended 0 0 1|2", "STORED")
	mc("incr counted 1", "2")
	mc("touch touched 60", "TOUCHED")
	mc("touch forever 0", "TOUCHED")
	mc("get plain appended", "VALUE plain 0 1|1|VALUE appended 0 2|12|END")
	if left() < 0 {
		t.Skip("too slow a machine: they have expired")
	}
	time.Sleep(left() + time.Millisecond + ms/10)
	mc("get plain appended counted", "END")
	mc("get plain", "END")
	mc("add plain 0 0 1|2", "STORED")
	mc("touch appended 10", "NOT_FOUND")
	mc("replace counted 0 0 1|2", "NOT_STORED")
	c.want("GET plain", "2")
	c.want("MGET appended counted", "*[nil nil]")
	c.want("TTL forever", ":-1")
	if ttl := c.do("TTL", "touched"); ttl != ":60" && ttl != ":59" && ttl != ":61" {
		t.Errorf("a touch for 60 s leaves %s s", ttl)
	}
	c.want("FLUSHALL", "OK")
	mc("get touched forever k", "END")
	mc("set k 0 0 1|v", "STORED")
	mc("flush_all", "OK")
	c.want("GET k", "nil")
}

// Memcached's clients get an error for a value that is larger than their largest, and the server reads no segment of it. They may replace it, give it another expiry and delete it.
func TestLargeBesideMemcached(t *testing.T) {
	cluster, _, address := startLarge(t, Options{})
	mc := serveMemcached(t, cluster, memcached.Options{Store: "redis"})
	c := dial(t, address)
	const tooLarge = "SERVER_ERROR object too large for cache"
	half := letters('h', 500_000) // in segments, and not too large
	for _, v := range []string{"1" + strings.Repeat(" ", 40<<20), letters('l', 1<<20+1)} {
		for key, value := range map[string]string{"k": v, "half": half} {
			if got := c.do("SET", key, value); got != "OK" {
				t.Fatal(got)
			}
		}
		mc("set small 0 0 1|v", "STORED")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for request, answer := range map[string]string{
			"get k": tooLarge, "gets k": tooLarge, "get small k": tooLarge, "get k k k small": tooLarge, "gat 100 k": tooLarge, "mg k v": tooLarge, "mg k T100 v": tooLarge, "md k I": tooLarge,
			"append k 0 0 1|x": "NOT_STORED", "add k 0 0 1|x": "NOT_STORED", "incr k 1": "CLIENT_ERROR cannot increment or decrement non-numeric value", "touch k 100": "TOUCHED",
			"get small": "VALUE small 0 1|v|END",
		} {
			mc(request, answer)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 20<<20 {
			t.Errorf("%d bytes were allocated for requests for a value of %d", n, len(v))
		}
		mc("get half small", "VALUE half 0 500000|"+half+"|VALUE small 0 1|v|END")
		mc("get half", "VALUE half 0 500000|"+half+"|END")
		mc("append half 0 0 1|x", "STORED")
		if got := c.do("GET", "half"); got != half+"x" {
			t.Errorf("after an append there are %d bytes, or others", len(got))
		}
		if lines := strings.Split(mc("lru_crawler metadump all", ""), "|"); len(lines) != 4 || !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "key=k exp=") }) {
			t.Errorf("a list of three items: %q", lines)
		}
		mc("delete k", "DELETED")
		c.want("EXISTS k", ":0")
		if got := c.do("SET", "k", v); got != "OK" {
			t.Fatal(got)
		}
		mc("set k 0 0 1|1", "STORED")
		c.want("GET k", "1")
	}
}
