package redis

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/front/memcached"
	"github.com/declock/declock/objstore"
)

// A store that is served to clients of Redis and of memcached has the same items for both: values, times to live to the millisecond, flushes.
func TestBesideMemcached(t *testing.T) {
	cluster := openCluster(t)
	_, address := startServer(t, cluster, Options{Store: "both"})
	s, err := memcached.New(memcached.Options{Store: "both", MaxItem: 1 << 16})
	if err == nil {
		err = s.Attach(cluster, objstore.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(nc)
	mc := func(request, want string) {
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
			if line = strings.TrimSuffix(line, "\r\n"); line == "MN" {
				break
			}
			got = append(got, line)
		}
		if text := strings.Join(got, "|"); text != want {
			t.Errorf("%s: memcached's client gets %q, want %q", request, text, want)
		}
	}
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
