package btree

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
)

// Clients of three compute nodes build a tree at once, from the empty one: roots split concurrently.
func TestConcurrentRootSplits(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, sim.Config{Seed: seed, Tear: sim.Tear{Prob: 0.3, Grain: 8}}, 2, 4<<20, 3)
		cfg := w.tiny()
		cfg.MaxKey, cfg.NodeSize = 7, minNodeSize(7, 16)
		const clients, each = 6, 40
		for i := range clients {
			tr := w.open(i%3, cfg)
			c := w.client(i%3, tr)
			w.c.GoOn(c.port, fmt.Sprint("client ", i), func(fabric.Port) {
				for k := range each {
					if err := c.Insert(keyOf(k*clients+i), valueOf(k, i)); err != nil {
						panic(err)
					}
				}
			})
		}
		wantErr(t, "run", w.c.Run(), nil)
		c := w.client(0, w.open(0, cfg))
		if r := mustBeSound(t, c); !r.Clean() || r.Keys != clients*each {
			t.Fatalf("seed %d: %v", seed, r)
		}
	}
}

// Real goroutines of three compute nodes over shared memory: point operations are linearizable, and a scan
// finds what is there throughout.
func TestConcurrentShm(t *testing.T) {
	t.Run("cas", func(t *testing.T) { concurrent(t, shmCluster(t, 16<<20, 3), casLocks()) })
	t.Run("declock", func(t *testing.T) {
		cl := shmCluster(t, 16<<20, 3)
		concurrent(t, cl, decLocks(t, cl, 3))
	})
}

func concurrent(t *testing.T, cl fabrictest.Cluster, l lockers) {
	cfg := shmConfig()
	cfg.Lock = l.layout
	cfg.MaxKey, cfg.MaxInline, cfg.NodeSize = 8, 16, minNodeSize(8, 16)
	trees := make([]*Tree, 3)
	for i := range trees {
		var err error
		trees[i], err = Open(shmPort(t, cl, i), cfg)
		wantErr(t, "open", err, nil)
	}
	client := func(i int) *Client {
		c, err := trees[i].Client(l.locker(i, shmPort(t, cl, i)))
		wantErr(t, "client", err, nil)
		return c
	}
	steady := client(0)
	for i := range 50 {
		wantErr(t, "put", steady.Put(fmt.Appendf(nil, "s%03d", i), valueOf(i, 0)), nil)
	}
	var clock atomic.Int64
	var mu sync.Mutex
	byKey := map[string][]porcupine.Operation{}
	var wg sync.WaitGroup
	for i := range 6 {
		c := client(i % 3)
		wg.Go(func() {
			defer c.Close()
			for n := range 300 {
				r := c.port.Rand()
				o := &call{client: i, key: fmt.Sprintf("s%03dx", r%12*4), value: fmt.Sprintf("%d.%d", i, n)}
				o.op = []string{"get", "put", "insert", "delete", "delete"}[r>>20%5]
				if n%20 == 0 {
					scanSteady(t, c, r&1 == 0)
					continue
				}
				begun := clock.Add(1)
				err := point(c, o)
				o.ended = clock.Add(1)
				if err != nil {
					t.Errorf("%v: %v", o, err)
					return
				}
				mu.Lock()
				byKey[o.key] = append(byKey[o.key], porcupine.Operation{ClientId: i, Input: o, Call: begun, Return: o.ended})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for k, ops := range byKey {
		if porcupine.CheckOperationsTimeout(pointModel, ops, 10*time.Second) == porcupine.Illegal {
			t.Errorf("key %s: %d operations are not linearizable", k, len(ops))
		}
	}
	if r, err := steady.Check(CheckOptions{Repair: true}); err != nil || !r.Clean() {
		t.Fatal(r, err)
	}
}

// point does a point operation.
func point(c *Client, o *call) (err error) {
	key := []byte(o.key)
	switch o.op {
	case "get":
		var v []byte
		v, err = c.Get(key)
		if o.value = ""; err == nil {
			o.value = string(v)
		}
	case "put":
		err = c.Put(key, []byte(o.value))
	case "insert":
		err = c.Insert(key, []byte(o.value))
	case "delete":
		err = c.Delete(key)
	}
	o.found = err == nil
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrExists) {
		err = nil
	}
	return err
}

// scanSteady scans and looks for the keys that are there throughout.
func scanSteady(t *testing.T, c *Client, descending bool) {
	n, last := 0, ""
	err := c.Each(Range{Descending: descending}, func(k, _ []byte) bool {
		key := string(k)
		if last != "" && (key == last || (key < last) != descending) {
			t.Errorf("scan: %q behind %q", key, last)
		}
		if last = key; !strings.HasSuffix(key, "x") {
			n++
		}
		return true
	})
	if err != nil || n != 50 {
		t.Errorf("scan: %d of 50 keys that are there throughout, %v", n, err)
	}
}
