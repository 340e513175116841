package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/objstore"
)

// Some of the operations of all clients are timed, for the page: of replays, and of clients of memcached and Redis.
func TestOperationsAreTimed(t *testing.T) {
	cluster, err := declock.Open(t.Context(), "shm:", declock.WithMemory(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	d := &CN{cluster: cluster}
	d.cfg.Log = slog.New(slog.DiscardHandler)
	d.cfg.Memcached = Memcached{Listen: "127.0.0.1:0", Store: "memcached"}
	d.cfg.Redis = Redis{Listen: "127.0.0.1:0", Store: "redis"}
	for _, start := range []func() error{d.serveMemcached, d.serveRedis, d.attachFronts} {
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	defer d.closeFronts()
	const times = 500 // so that it is all but certain that one is timed
	for i, requests := range []string{strings.Repeat("set k 0 0 1\r\nv\r\nget k\r\n", times), strings.Repeat("SET k v\r\nGET k\r\n", times)} {
		was, _, _ := d.seen(nil)
		nc, err := net.Dial("tcp", d.fronts[i].addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		go func() {
			_, _ = io.WriteString(nc, requests+"quit\r\n")
		}()
		if _, err := io.Copy(io.Discard, nc); err != nil {
			t.Fatal(err)
		}
		now, _, _ := d.seen(nil)
		soundTimes(t, d.fronts[i].name, &was.Counters, &now.Counters, times)
	}

	spec := &control.Replay{Store: "replay", Objects: 100, MaxValue: 100}
	if err := d.openStore(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	c, err := d.openClient(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for range times {
		if err := c.cache.Set([]byte("k"), []byte("v"), objstore.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.cache.Get([]byte("k")); err != nil {
			t.Fatal(err)
		}
	}
	now := c.counters()
	soundTimes(t, "replay", new(control.Counters), &now, times)
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// soundTimes checks that some gets and stores have been timed, and not all, and that they took a time.
func soundTimes(t *testing.T, who string, was, now *control.Counters, all uint64) {
	t.Helper()
	for what, n := range map[string][2]uint64{"gets": {now.Gets.Count - was.Gets.Count, now.Gets.Ns - was.Gets.Ns}, "stores": {now.Stores.Count - was.Stores.Count, now.Stores.Ns - was.Stores.Ns}} {
		if n[0] == 0 || n[0] > all/4 || n[1] < 100*n[0] || n[1] > uint64(time.Minute) {
			t.Errorf("%s: %d of %d %s were timed, and took %d ns", who, n[0], all, what, n[1])
		}
	}
}
