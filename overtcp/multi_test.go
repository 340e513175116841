package overtcp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
)

// A far is a proxy behind which a server is away by a time in each direction. It counts round trips, and not how long they take: each side has a count, which travels with
// what it sends, and a client's request is one more than the highest that has come back to it.
type far struct {
	by             atomic.Int64
	client, server atomic.Int64
}

// proxy returns the address of the proxy to a server.
func (f *far) proxy(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go f.pass(out, in, &f.server, func() int64 { return f.client.Load() + 1 })
			go f.pass(in, out, &f.client, f.server.Load)
		}
	}()
	return l.Addr().String()
}

// pass forwards what comes, some time later, with the count of its sender.
func (f *far) pass(to, from net.Conn, receiver *atomic.Int64, sender func() int64) {
	type bytes struct {
		b     []byte
		when  time.Time
		count int64
	}
	under := make(chan bytes, 1<<12)
	go func() {
		defer to.Close()
		for x := range under {
			time.Sleep(time.Until(x.when))
			for old := receiver.Load(); old < x.count && !receiver.CompareAndSwap(old, x.count); old = receiver.Load() {
			}
			if _, err := to.Write(x.b); err != nil {
				from.Close()
			}
		}
	}()
	defer close(under)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		under <- bytes{b[:n], time.Now().Add(time.Duration(f.by.Load())), sender()}
	}
}

// Over a network, batches of 100 keys take few round trips to the memory node: each change of a key that this process knows needs two, and keys of one bucket are changed one after the other.
func TestBatchesInFewRoundTrips(t *testing.T) {
	if testing.Short() {
		t.Skip("a slow network")
	}
	t.Parallel()
	const keys, away = 100, 50 * time.Millisecond
	var network far
	dir, err := os.MkdirTemp("", "declock-overtcp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	address := fmt.Sprintf("tcp://%s/test?insecure=true&dead-after=10s&listen=", filepath.Join(dir, "etcd.sock"))
	startSelf(t, memoryEnv+"="+address+listen+"&advertise="+network.proxy(t, listen))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := declock.Open(ctx, address+"127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	var items []declock.SetItem
	var names [][]byte
	in, pairs := map[uint64]int{}, 0
	for i := 0; len(names) < keys || pairs == 0; i++ { // not three in one bucket, and two in some
		key := fmt.Appendf(nil, "key %d", i)
		_, bucket := st.Locate(key)
		if in[bucket] == 2 || in[bucket] == 0 && len(names) >= keys {
			continue
		}
		pairs += in[bucket]
		in[bucket]++
		names = append(names, key)
		items = append(items, declock.SetItem{Key: key, Value: []byte("value")})
	}
	// Sessions and memory are taken before the network is slow.
	if err := st.SetMulti(ctx, items); err != nil {
		t.Fatal(err)
	}
	network.by.Store(int64(away))
	defer network.by.Store(0) // to close takes many round trips
	for _, x := range []struct {
		what string
		most int64
		f    func() error
	}{
		{"SetMulti", 4, func() error { return st.SetMulti(ctx, items) }},
		{"GetMulti", 2, func() error { _, err := st.GetMulti(ctx, names); return err }},
		{"DeleteMulti", 4, func() error { _, err := st.DeleteMulti(ctx, names); return err }},
	} {
		best := int64(1 << 62) // the memory node is asked for other things, too
		for range 6 {
			if x.what == "DeleteMulti" {
				if err := st.SetMulti(ctx, items); err != nil {
					t.Fatal(err)
				}
			}
			before := network.client.Load()
			if err := x.f(); err != nil {
				t.Fatalf("%s: %v", x.what, err)
			}
			if best = min(best, network.client.Load()-before); best <= x.most {
				break
			}
		}
		if best > x.most {
			t.Errorf("%s of %d keys took %d round trips, want at most %d", x.what, keys, best, x.most)
		}
		t.Logf("%s of %d keys: %d round trips", x.what, keys, best)
	}
}
