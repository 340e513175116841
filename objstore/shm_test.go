package objstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock/locktest"
	"github.com/declock/declock/memory"
)

// shmCluster returns a formatted memory node in shared memory and compute nodes.
func shmCluster(t testing.TB, size uint64, cns int) fabrictest.Cluster {
	t.Helper()
	cl := locktest.Shm(t.TempDir()).Start(t, fabrictest.Config{Mem: []uint64{size}, CNs: cns})
	t.Cleanup(cl.Close)
	wantErr(t, "format", memory.Format(shmPort(t, cl, 0), 0, memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16}), nil)
	return cl
}

func shmPort(t testing.TB, cl fabrictest.Cluster, cn int) fabric.Port {
	t.Helper()
	p, err := cl.Node(cn).Open()
	wantErr(t, "port", err, nil)
	return p
}

func shmConfig() Config {
	return Config{Name: "shm", Nodes: []fabric.MemID{0}, Lock: cas.Config{Plain: true}.Layout(), Objects: 1000}
}

func shmClient(t testing.TB, cl fabrictest.Cluster, cn int, s *Store) *Client {
	t.Helper()
	c, err := s.Client(cas.New(shmPort(t, cl, cn), cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	return c
}

// Real goroutines of three compute nodes on a few keys, with memory full now and then.
func TestConcurrentShm(t *testing.T) {
	for _, limit := range []uint64{0, 40 << 10} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			cl := shmCluster(t, 4<<20, 3)
			cfg := shmConfig()
			cfg.Objects, cfg.MemoryLimit = 30, limit
			stores := make([]*Store, 3)
			for i := range stores {
				var err error
				stores[i], err = Open(shmPort(t, cl, i), cfg)
				wantErr(t, "open", err, nil)
			}
			var wg sync.WaitGroup
			for i := range 6 {
				c := shmClient(t, cl, i%3, stores[i%3])
				wg.Go(func() {
					for range 1500 {
						concurrentStep(t, c, int(c.port.Rand()%40))
					}
				})
			}
			wg.Wait()
			c := shmClient(t, cl, 0, stores[0])
			for i, s := range stores {
				wantErr(t, "drain", shmClient(t, cl, i, s).Drain(), nil)
			}
			if r := mustBeSound(t, c); r.Nodes[0].Elsewhere != 0 {
				t.Fatal(r)
			}
		})
	}
}

// What a compute node knows of slots is not right any more: others have stored its keys anew, in other slots, and objects of other keys in the old ones. Gets and
// batches of gets find them.
func TestGetsOfMovedKeys(t *testing.T) {
	cl := shmCluster(t, 4<<20, 2)
	var clients [2]*Client
	for i := range clients {
		s, err := Open(shmPort(t, cl, i), shmConfig())
		wantErr(t, "open", err, nil)
		clients[i] = shmClient(t, cl, i, s)
	}
	reader, writer := clients[0], clients[1]
	if reader.batch.gatherer == nil {
		t.Fatal("shared memory has no Gatherer")
	}
	const keys = 200
	for round := range 20 {
		value := func(i int) string { return fmt.Sprintf("value %d of round %d", i, round) }
		names := make([][]byte, keys)
		order := make([]int, keys)
		for i := range names {
			names[i], order[i] = fmt.Appendf(nil, "key %d", i), int(writer.port.Rand()%keys)
		}
		for _, i := range order {
			if err := writer.Delete(names[i]); err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
		}
		slices.Reverse(order)
		for _, i := range order {
			wantErr(t, "set", writer.Set(names[i], b(value(i)), Options{}), nil)
		}
		results := make([]Result, keys)
		for from := 0; from < keys; {
			n, _, err := reader.GetMulti(names[from:], results[from:], nil)
			wantErr(t, "GetMulti", err, nil)
			from += n
		}
		for _, i := range order {
			if r := results[i]; r.Err != nil || string(r.Value) != value(i) {
				t.Errorf("round %d: key %d in a batch: %q, %v", round, i, r.Value, r.Err)
			}
			if it, err := reader.Get(names[i]); err != nil || string(it.Value) != value(i) {
				t.Errorf("round %d: key %d: %q, %v", round, i, it.Value, err)
			}
		}
	}
}

// Several goroutines of a compute node look for the memory of one that has gone, while others of it use the store: they do it one at a time,
// and what is found is given out once.
func TestReclaimByManyAtOnce(t *testing.T) {
	cl := shmCluster(t, 16<<20, 2)
	stores := make([]*Store, 2)
	for i := range stores {
		var err error
		stores[i], err = Open(shmPort(t, cl, i), shmConfig())
		wantErr(t, "open", err, nil)
	}
	gone := shmClient(t, cl, 1, stores[1])
	for i := range 300 {
		wantErr(t, "set", gone.Set(fmt.Appendf(nil, "k%d", i), make([]byte, 100+i), Options{}), nil)
	}
	for i := range 200 {
		wantErr(t, "delete", gone.Delete(fmt.Appendf(nil, "k%d", i)), nil)
	}
	wantErr(t, "close", cl.Node(1).Close(), nil)
	view := cl.Node(0).View
	var reclaiming, others sync.WaitGroup
	var done atomic.Bool
	for range 3 {
		c := shmClient(t, cl, 0, stores[0])
		reclaiming.Go(func() {
			for range 5 {
				if err := c.Reclaim(view); err != nil && !errors.Is(err, ErrUnanswered) {
					t.Errorf("reclaim: %v", err)
				}
			}
		})
		user := shmClient(t, cl, 0, stores[0])
		others.Go(func() {
			for !done.Load() {
				concurrentStep(t, user, int(user.port.Rand()%40))
			}
		})
	}
	reclaiming.Wait()
	done.Store(true)
	others.Wait()
	c := shmClient(t, cl, 0, stores[0])
	if c.Found().Blocks == 0 {
		t.Error("nothing was found")
	}
	wantErr(t, "drain", c.Drain(), nil)
	mustBeSound(t, c)
}

// Operations on 414-byte objects with 96-byte keys (cluster14 of the Twitter
// traces), over shared memory, with CAS locks, one client.
func BenchmarkShm(b *testing.B) {
	const objects = 10_000
	cl := shmCluster(b, 64<<20, 1)
	cfg := shmConfig()
	cfg.Objects = objects
	s, err := Open(shmPort(b, cl, 0), cfg)
	wantErr(b, "open", err, nil)
	c := shmClient(b, cl, 0, s)
	keys := make([][]byte, objects)
	value := make([]byte, 414)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%096d", i)
		wantErr(b, "set", c.Set(keys[i], value, Options{}), nil)
	}
	for _, x := range []struct {
		name string
		f    func(key []byte) error
	}{
		{"get", func(k []byte) error { _, err := c.Get(k); return err }},
		{"get-uncached", func(k []byte) error {
			s.places.put(s.locate(k).hash, 0, 0)
			_, err := c.Get(k)
			return err
		}},
		{"set", func(k []byte) error { return c.Set(k, value, Options{}) }},
		{"delete+set", func(k []byte) error { return errors.Join(c.Delete(k), c.Set(k, value, Options{})) }},
	} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			took := make([]time.Duration, 0, 1<<20)
			i := 0
			for b.Loop() {
				k := keys[i*7919%objects]
				i++
				begin := time.Now()
				if err := x.f(k); err != nil {
					b.Fatal(err)
				}
				if d := time.Since(begin); len(took) < cap(took) {
					took = append(took, d)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
		})
	}
}
