package objstore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// Sizes drift from 300 B to 30 KB in a store that evicts nothing, and of which objects are deleted at random so that 60 % of the memory is live: hardly any set is
// refused, for what is left in runs of sizes that no client uses any more is moved together. (Without that, 54 % are refused, and 99.9 % in the end.)
func TestDriftWithoutEviction(t *testing.T) {
	const size, sets, live = 4 << 20, 4000, 60
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, size, 2)
	cfg := w.config()
	cfg.Objects, cfg.NoEvict = 10_000, true
	all := []*Client{w.client(0, w.open(0, cfg)), w.client(1, w.open(1, cfg))}
	type object struct{ key, size int }
	var have []object
	r, total, refused, moved := rand.New(rand.NewPCG(1, 2)), 0, 0, uint64(0)
	value := func(x object) []byte {
		b := make([]byte, x.size)
		for i := range b {
			b[i] = byte(x.key + i)
		}
		return b
	}
	for i := range sets {
		c := all[i%2]
		x := object{i, min(int(300*math.Pow(100, float64(i)/sets)*math.Exp(r.NormFloat64()/2)), 100_000)}
		for total+x.size > live*size/100 {
			k := r.IntN(len(have))
			wantErr(t, "delete", c.Delete(keyOf(have[k].key)), nil)
			total -= have[k].size
			have[k] = have[len(have)-1]
			have = have[:len(have)-1]
		}
		if err := c.Set(keyOf(i), value(x), Options{}); err != nil {
			wantErr(t, "set", err, ErrNoSpace)
			refused++
			_, err := all[1-i%2].ReclaimStep(w.cns[1-i%2].View) // as in the background
			wantErr(t, "tend", err, nil)
			continue
		}
		have, total = append(have, x), total+x.size
	}
	for _, c := range all {
		for _, x := range have {
			wantValue(t, c, string(keyOf(x.key)), string(value(x)))
		}
		moved += c.Stats().Moved
	}
	t.Logf("%.2f %% of %d sets refused, %d objects moved\n%v", float64(refused)/sets*100, sets, moved, mustBeSound(t, all[0]))
	if refused > sets/100 || moved < 50 {
		t.Errorf("%d of %d sets refused, %d objects moved", refused, sets, moved)
	}
}

// A moving is a store of four runs of small objects, of which all but some of each have been deleted: a client that sets a large one moves the others.
type moving struct {
	w    *world
	cfg  Config
	keys []int
}

func newMoving(t *testing.T) *moving {
	m := &moving{w: newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 1<<20, 3)}
	m.cfg = m.w.config()
	m.cfg.Objects, m.cfg.MemoryLimit, m.cfg.NoEvict = 100, 4<<10, true // a page has 1 KiB
	m.cfg.LockTimeoutNs = fabric.Millisecond
	c := m.w.client(0, m.w.open(0, m.cfg))
	n := fill(t, c, 90, 1000) // chunks of 128 B: 8 in a run
	if n != 32 {
		t.Fatalf("%d objects", n)
	}
	for i := range n {
		if i%8 < 2 {
			m.keys = append(m.keys, i)
		} else {
			wantErr(t, "delete", c.Delete(movingKey(i)), nil)
		}
	}
	wantErr(t, "leave", c.Leave(), nil)
	return m
}

func movingKey(i int) []byte { return fmt.Append(nil, 90, "-", i) }

func (m *moving) want(t *testing.T, what string, c *Client) {
	t.Helper()
	for _, i := range m.keys {
		if it, err := c.Get(movingKey(i)); err != nil || len(it.Value) != 90 {
			t.Fatalf("%s: object %d: %d B, %v", what, i, len(it.Value), err)
		}
	}
}

// A compute node crashes at every operation while it moves objects: all are there, once, and no memory is lost.
func TestCrashWhileObjectsMove(t *testing.T) {
	for k := 0; ; k++ {
		m := newMoving(t)
		p := &crashPort{Port: m.w.port(1), w: m.w, victim: m.w.cns[1], until: -1}
		dying, err := m.w.open(1, m.cfg).Client(cas.New(p, cas.Config{}))
		wantErr(t, "client", err, nil)
		c := m.w.client(2, m.w.open(2, m.cfg))
		p.until = k
		m.w.c.GoOn(p.Port, "dies", func(fabric.Port) {
			wantErr(t, "set", dying.Set(b("large"), make([]byte, 600), Options{}), nil)
		})
		wantErr(t, "run", m.w.c.Run(), nil)
		what := fmt.Sprintf("crash at operation %d", k)
		if !p.hit {
			if dying.Stats().Moved < 3 || k < 40 {
				t.Errorf("%d operations, %+v", k, *dying.Stats())
			}
			wantErr(t, "leave", dying.Leave(), nil)
		}
		c.port.Pause(c.port.Now() + fabric.Second)
		clearLocks(m.w, c.s)
		m.want(t, what, c)
		tend(t, c, m.w.cns[2].View)
		if n := mustBeSound(t, c).Nodes[0]; n.Elsewhere != 0 || n.FreeCentral+n.FreeLocal+n.ChunkBytes+n.Rest != n.ExtentBytes {
			t.Fatalf("%s: memory is missing: %+v", what, n)
		}
		wantErr(t, what+": set", c.Set(b("large"), make([]byte, 600), Options{}), nil)
		m.want(t, what+", then a set", c)
		m.w.c.Close()
		if !p.hit {
			t.Logf("%d operations", k)
			return
		}
	}
}

// Between any two chains of a compute node that moves objects another gets them, changes them, or deletes them: nothing of that is lost.
func TestOthersWhileObjectsMove(t *testing.T) {
	does := map[string]func(c *Client, key []byte) error{
		"get":    func(c *Client, key []byte) error { _, err := c.Get(key); return err },
		"append": func(c *Client, key []byte) error { return c.Append(key, b("x")) },
		"delete": func(c *Client, key []byte) error { return c.Delete(key) },
	}
	for what, do := range does {
		for k, done := 1, false; !done; k++ {
			m := newMoving(t)
			p := &hookPort{Port: m.w.port(1)}
			mover, err := m.w.open(1, m.cfg).Client(cas.New(p, cas.Config{}))
			wantErr(t, "client", err, nil)
			c := m.w.client(2, m.w.open(2, m.cfg))
			m.want(t, what, c) // it knows where they are
			doneTo := map[int]bool{}
			p.until, p.hook = k, func() {
				for _, i := range m.keys {
					err := do(c, movingKey(i))
					doneTo[i] = err == nil
					if err != nil { // the mover has the lock, or all free chunks
						wantErr(t, what, ignore(ignore(err, lock.ErrTimeout), ErrNoSpace), nil)
					}
				}
			}
			wantErr(t, "large set", ignore(mover.Set(b("large"), make([]byte, 600), Options{}), ErrNoSpace), nil)
			for _, i := range m.keys {
				size := 90
				if doneTo[i] && what == "append" {
					size++
				}
				it, err := c.Get(movingKey(i))
				if gone := doneTo[i] && what == "delete"; gone && !errors.Is(err, ErrNotFound) || !gone && (err != nil || len(it.Value) != size) {
					t.Fatalf("%s before chain %d: object %d: %d B, %v", what, k, i, len(it.Value), err)
				}
			}
			r := mustBeSound(t, c)
			if n := r.Nodes[0]; n.Elsewhere != mover.held() {
				t.Fatalf("%s before chain %d: %d B in the mover's lists\n%v", what, k, mover.held(), r)
			}
			if done = p.until > 0; done && k < 20 {
				t.Errorf("%s: %d chains", what, k)
			}
			m.w.c.Close()
		}
	}
}

// held returns how many bytes are in the lists of a client's compute node.
func (c *Client) held() (n uint64) {
	c.s.h.Parts[0].Heap.EachHeld(func(from, to uint64) { n += (to - from) * chunkUnit })
	return n
}
