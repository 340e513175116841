package btree

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// loadBeside has the first of some clients load parts, of which each client writes one, and more later if there are more: all of them beside each other, as tasks of a simulated cluster. It returns the
// error of the load when the tasks are over, or their compute node is dead.
func (w *world) loadBeside(clients []*Client, parts []iter.Seq2[[]byte, []byte], o BulkOptions) (err error) {
	w.t.Helper()
	var b *Bulk
	next, errs := 0, make([]error, len(clients))
	over := make([]bool, len(clients))
	write := func(k int, c *Client) {
		for next < len(parts) && errs[k] == nil {
			i := next
			next++
			errs[k] = b.Part(i, c, parts[i])
		}
		over[k] = true
	}
	loaded := false
	for k, c := range clients[1:] {
		w.c.GoOn(portOf(c), fmt.Sprint("part ", k), func(p fabric.Port) {
			for b == nil && !loaded {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
			if !loaded {
				write(k+1, c)
			}
		})
	}
	w.c.GoOn(portOf(clients[0]), "load", func(p fabric.Port) {
		defer func() { loaded = true }()
		err = clients[0].BulkLoadParts(len(parts), o, func(x *Bulk) error {
			b = x
			write(0, clients[0])
			for slices.Contains(over, false) {
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
			return errors.Join(errs...)
		})
	})
	wantErr(w.t, "run", w.c.Run(), nil)
	return err
}

func portOf(c *Client) fabric.Port {
	if h, ok := c.port.(*hookPort); ok {
		return h.Port
	}
	return c.port
}

// somePairs yields the pairs from one number to another, of which some have large values.
func somePairs(from, to int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := from; i < to; i++ {
			if !yield(keyOf(i), bytes.Repeat([]byte{byte(i)}, 1+i%7*20)) {
				return
			}
		}
	}
}

// wantPairs checks that a tree has what somePairs yields of n numbers.
func wantPairs(t *testing.T, c *Client, n int) {
	t.Helper()
	i := 0
	wantErr(t, "each", c.Each(Range{}, func(k, v []byte) bool {
		if !bytes.Equal(k, keyOf(i)) || !bytes.Equal(v, bytes.Repeat([]byte{byte(i)}, 1+i%7*20)) {
			t.Fatalf("%q with %d bytes where number %d is to be", k, len(v), i)
		}
		i++
		return true
	}), nil)
	if i != n {
		t.Fatalf("%d keys, want %d", i, n)
	}
}

// Several clients load parts beside each other, wherever one part ends and the next begins: the tree is as if one had loaded all.
func TestBulkLoadParts(t *testing.T) {
	for _, n := range []int{0, 1, 10, 60, 3000} {
		for name, cuts := range map[string][]int{
			"equal": {n / 4, n / 2, n * 3 / 4}, "nothing first": {0, n / 2}, "nothing last": {n / 3, n}, "only the middle": {0, 0, n, n}, "one key each": {min(n, 1), min(n, 2), min(n, 3)},
			"more parts than clients": {n / 8, n / 7, n / 6, n / 5, n / 4, n / 3, n / 2},
		} {
			for _, mns := range []int{1, 2} {
				for _, percent := range []int{0, 50, 100} {
					w := newWorld(t, sim.Config{NIC: sim.CX4()}, mns, 8<<20, 1)
					tree := w.open(0, w.config())
					clients := []*Client{w.client(0, tree), w.client(0, tree), w.client(0, tree)}
					var parts []iter.Seq2[[]byte, []byte]
					from := 0
					for _, to := range append(cuts, n) {
						parts, from = append(parts, somePairs(from, to)), to
					}
					wantErr(t, "load", w.loadBeside(clients, parts, BulkOptions{FillPercent: percent}), nil)
					c := clients[1]
					if r := mustBeSound(t, c); !r.Clean() || r.Keys != uint64(n) || r.elsewhere() > uint64(mns*(len(clients)-1)) { // each client keeps a slot for shadows on each memory node
						t.Fatalf("%s of %d keys: %v", name, n, r)
					}
					wantPairs(t, c, n)
					for i := 0; i < n; i += 1 + n/50 {
						wantErr(t, "put", c.Put(append(keyOf(i), 'a'), valueOf(i, 0)), nil)
					}
					if r := mustBeSound(t, c); !r.Clean() {
						t.Fatalf("%s of %d keys, and puts: %v", name, n, r)
					}
				}
			}
		}
	}
}

// Keys of all lengths, in nodes that are to be full: no fence is longer than what is left for it.
func TestBulkLoadFullOfKeysOfAllLengths(t *testing.T) {
	var keys []string
	for i := range 3000 {
		keys = append(keys, fmt.Sprintf("%04d", i))
		if i%7 == 0 {
			keys = append(keys, fmt.Sprintf("%04d%s", i, strings.Repeat("x", 1+i*13%124)), fmt.Sprintf("%04d%sz", i, strings.Repeat("x", 1+i*13%123)))
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	pairs := func(list []string) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) {
			for i, k := range list {
				if !yield([]byte(k), make([]byte, i%9)) {
					return
				}
			}
		}
	}
	for _, percent := range []int{90, 95, 100} {
		for _, parts := range []int{1, 5} {
			w, c := one(t, 1, func(cfg *Config) { cfg.MaxKey, cfg.NodeSize, cfg.MaxInline = 128, 1024, 64 })
			var list []iter.Seq2[[]byte, []byte]
			for i := range parts {
				list = append(list, pairs(keys[len(keys)*i/parts:len(keys)*(i+1)/parts]))
			}
			wantErr(t, "load", w.loadBeside([]*Client{c, w.client(0, c.t)}, list, BulkOptions{FillPercent: percent}), nil)
			if r := mustBeSound(t, c); !r.Clean() || r.Keys != uint64(len(keys)) {
				t.Fatalf("%d parts, filled to %d %%: %v", parts, percent, r)
			}
		}
	}
}

// What is wrong with a part ends the load, and the tree is empty.
func TestBulkLoadPartsRefuses(t *testing.T) {
	w, c := one(t, 2, nil)
	cfg := w.config()
	cfg.Name = "other"
	other, stranger := w.client(0, c.t), w.client(0, w.open(0, cfg))
	load := func(f func(b *Bulk) error) error { return c.BulkLoadParts(3, BulkOptions{}, f) }
	fault := errors.New("fault")
	for what, x := range map[string]struct {
		load func(b *Bulk) error
		want error
	}{
		"a part that begins before the last one ends": {func(b *Bulk) error {
			return errors.Join(b.Part(0, c, somePairs(0, 300)), b.Part(2, other, somePairs(299, 500)))
		}, ErrOrder},
		"parts the wrong way round": {func(b *Bulk) error {
			return errors.Join(b.Part(1, c, somePairs(300, 500)), b.Part(2, other, somePairs(0, 300)))
		}, ErrOrder},
		"a part that is out of order": {func(b *Bulk) error {
			return errors.Join(b.Part(0, c, somePairs(0, 300)), b.Part(1, other, func(yield func(k, v []byte) bool) { _ = yield(keyOf(400), nil) && yield(keyOf(399), nil) }))
		}, ErrOrder},
		"a part twice": {func(b *Bulk) error {
			return errors.Join(b.Part(1, c, somePairs(0, 9)), b.Part(1, other, somePairs(9, 20)))
		}, lock.ErrMisuse},
		"another tree":            {func(b *Bulk) error { return b.Part(0, stranger, somePairs(0, 9)) }, lock.ErrMisuse},
		"the callback's error":    {func(b *Bulk) error { return errors.Join(b.Part(0, other, somePairs(0, 300)), fault) }, fault},
		"a client that is in it":  {func(b *Bulk) error { return c.Put(keyOf(0), nil) }, lock.ErrMisuse},
		"a part before the first": {func(b *Bulk) error { return b.Part(-1, other, somePairs(0, 9)) }, lock.ErrMisuse},
		"a part behind the last":  {func(b *Bulk) error { return b.Part(3, other, somePairs(0, 9)) }, lock.ErrMisuse},
		"a client that is closed": {func(b *Bulk) error {
			x := clientOn(t, c.t, c.port)
			return b.Part(0, x, func(yield func(k, v []byte) bool) { x.Close() })
		}, ErrClosed},
	} {
		if err := load(x.load); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
		wantMiss(t, other, string(keyOf(0)))
		if r := mustBeSound(t, other); r.Keys != 0 {
			t.Errorf("%s: %v", what, r)
		}
	}
	if v := apart(func() {
		_ = load(func(b *Bulk) error { return b.Part(1, other, endsIn(300, func() { panic("sequence") })) })
	}); v != "sequence" {
		t.Errorf("panic %v", v)
	}
	wantErr(t, "no parts", c.BulkLoadParts(0, BulkOptions{}, nil), ErrConfig)
	wantErr(t, "nothing", load(func(*Bulk) error { return nil }), nil)
	wantErr(t, "load", load(func(b *Bulk) error {
		return errors.Join(b.Part(2, other, somePairs(7, 500)), b.Part(0, c, somePairs(0, 7)))
	}), nil)
	wantPairs(t, other, 500)
	mustBeSound(t, other)
}

// A part that has failed, or has not been written to its end, fails the load, whatever the callback returns: nothing of a part that is cut off is published.
func TestBulkLoadOfAPartThatIsCut(t *testing.T) {
	_, c := one(t, 2, nil)
	var other *Client
	for what, x := range map[string]struct {
		part func(b *Bulk)
		want error
	}{
		"out of order": {func(b *Bulk) {
			_ = b.Part(1, other, func(yield func(k, v []byte) bool) { _ = yield(keyOf(400), nil) && yield(keyOf(399), nil) })
		}, ErrOrder},
		"ends its goroutine": {func(b *Bulk) { apart(func() { _ = b.Part(1, other, endsIn(300, runtime.Goexit)) }) }, lock.ErrMisuse},
		"panics":             {func(b *Bulk) { apart(func() { _ = b.Part(1, other, endsIn(300, func() { panic("sequence") })) }) }, lock.ErrMisuse},
		"refused":            {func(b *Bulk) { _ = b.Part(7, other, somePairs(0, 9)) }, lock.ErrMisuse},
		"has not returned": {func(b *Bulk) {
			next, _ := iter.Pull(func(yield func(struct{}) bool) {
				_ = b.Part(1, other, endsIn(300, func() { yield(struct{}{}) }))
			})
			next()
		}, lock.ErrMisuse},
	} {
		other = clientOn(t, c.t, c.port) // one whose part has not returned stays in use
		if err := c.BulkLoadParts(2, BulkOptions{}, func(b *Bulk) error { x.part(b); return nil }); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
		if r := mustBeSound(t, c); r.Keys != 0 {
			t.Errorf("%s: %d keys", what, r.Keys)
		}
	}
}

// A memory node loses its memory while parts are loaded: a client that has opened the tree since is told so, not that its tree is another.
func TestBulkLoadPartsOverALoss(t *testing.T) {
	w, c := one(t, 1, nil)
	var part error
	err := c.BulkLoadParts(2, BulkOptions{}, func(b *Bulk) error {
		w.c.RestartMN(w.mns[0])
		wantErr(t, "format", memory.Format(w.port(0), w.mns[0], memory.Params{Size: 64 << 20, CapacityLog2: 3, VersionBits: 16, Generation: 1}), nil)
		c.t.MemoryLost(w.mns[0])
		_, err := c.t.Client(cas.New(w.port(0), cas.Config{Plain: c.t.geo.lockSize == 8}))
		wantErr(t, "client", err, lock.ErrMemoryLost)
		later, err := c.t.Client(cas.New(w.port(0), cas.Config{Plain: c.t.geo.lockSize == 8}))
		wantErr(t, "client", err, nil)
		part = b.Part(1, later, somePairs(300, 600))
		return errors.Join(part, b.Part(0, c, somePairs(0, 300)))
	})
	wantErr(t, "part", part, lock.ErrMemoryLost)
	wantErr(t, "load", err, lock.ErrMemoryLost)
}

// The compute node whose clients load parts crashes, at every operation: the tree is empty, or has all keys. The next load succeeds, and all memory is found.
func TestBulkLoadPartsCrash(t *testing.T) {
	const n = 40
	empty, full, step := 0, 0, 1
	if testing.Short() {
		step = 5
	}
	parts := []iter.Seq2[[]byte, []byte]{somePairs(0, 13), somePairs(13, 27), somePairs(27, n)}
	for k, hit := 0, true; hit; k += step {
		w := newWorld(t, sim.Config{Seed: uint64(k), NIC: sim.CX4(), Late: sim.LateDrop}, 2, 4<<20, 2)
		cfg := w.config()
		tree := w.open(0, cfg)
		clients := []*Client{w.client(0, tree), w.client(0, tree), w.client(0, tree)}
		c := w.client(1, w.open(1, cfg))
		left := k
		w.c.SetObserver(observer(func(e *sim.Event) {
			if e.Step == sim.StepEffect {
				if left--; left == -1 {
					w.c.At(w.c.Now(), func() { w.c.Kill(w.cns[0]) })
				}
			}
		}))
		_ = w.loadBeside(clients, parts, BulkOptions{})
		w.c.SetObserver(nil)
		if hit = left < 0; !hit {
			break
		}
		wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil) // it is fenced
		clearLocks(w, c)
		r, err := c.Check(CheckOptions{Repair: true})
		if wantErr(t, "check", err, nil); !r.Clean() {
			t.Fatalf("operation %d: %v", k, r)
		}
		switch r.Keys {
		case 0:
			empty++
			wantErr(t, "load", w.loadBeside([]*Client{c, w.client(1, c.t)}, parts, BulkOptions{}), nil)
		case n:
			full++
		default:
			t.Fatalf("operation %d: %d of %d keys", k, r.Keys, n)
		}
		wantPairs(t, c, n)
		tend(t, c, w.cns[1].View)
		if r := mustBeSound(t, c); r.elsewhere() > 2 { // the other client keeps a slot for shadows on each memory node
			t.Fatalf("operation %d: memory is missing: %v", k, r)
		}
		w.c.Close()
	}
	t.Logf("%d times nothing, %d times all", empty, full)
	if empty*step < 50 || full == 0 {
		t.Error("that is too few")
	}
}

// A round of reclamation that begins while a load is under way takes nothing of what clients have written that are not at work any more.
func TestBulkLoadPartsBesideReclamation(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	tree := w.open(0, w.config())
	c, other, idle := w.client(0, tree), w.client(0, tree), w.client(0, tree)
	beside := w.client(1, w.open(1, w.config()))
	rounds := func(steps int) {
		beside.t.h.Member.Force()
		for range steps {
			for i, x := range []*Client{idle, beside} {
				_, err := x.ReclaimStep(w.cns[i].View)
				wantErr(t, "step", err, nil)
			}
		}
	}
	wantErr(t, "load", c.BulkLoadParts(2, BulkOptions{}, func(b *Bulk) error {
		err := b.Part(1, other, somePairs(300, 600))
		rounds(100)
		return errors.Join(err, b.Part(0, c, somePairs(0, 300)))
	}), nil)
	before := beside.Found().Forced
	rounds(100)
	if beside.Found().Forced == before {
		t.Error("no round has ended since")
	}
	for i := range 500 { // what a round has freed is used for these
		wantErr(t, "put", beside.Put(append(keyOf(i), 'x'), bytes.Repeat([]byte("y"), 50)), nil)
		wantErr(t, "delete", beside.Delete(append(keyOf(i), 'x')), nil)
	}
	wantPairs(t, c, 600)
	wantErr(t, "drain", beside.Drain(), nil)
	if r := mustBeSound(t, c); r.elsewhere() > 2 { // what the other clients here keep for shadows
		t.Error(r)
	}
}

// Over a network, four clients load a tree on four memory nodes in less than a third of the time that one takes: all but the inner nodes is written beside each other. More clients wait for
// memory: of each memory node it is taken one run after the other.
func TestBulkLoadPartsTime(t *testing.T) {
	const n = 20_000
	load := func(loaders int) fabric.Time {
		w := newWorld(t, sim.Config{NIC: sim.CX4()}, 4, 64<<20, 1)
		cfg := w.config()
		cfg.NodeSize = 1024
		tree := w.open(0, cfg)
		var clients []*Client
		var parts []iter.Seq2[[]byte, []byte]
		for i := range loaders {
			clients = append(clients, w.client(0, tree))
			parts = append(parts, func(yield func(k, v []byte) bool) {
				for j := n * i / loaders; j < n*(i+1)/loaders; j++ {
					if !yield(keyOf(j), valueOf(j, 0)) {
						return
					}
				}
			})
		}
		began := w.c.Now()
		wantErr(t, "load", w.loadBeside(clients, parts, BulkOptions{}), nil)
		took := w.c.Now() - began
		if r := mustBeSound(t, clients[0]); r.Keys != n {
			t.Fatal(r)
		}
		return took
	}
	one, four, eight := load(1), load(4), load(8)
	t.Logf("%d keys: 1 client %d us, 4 clients %d us, 8 clients %d us", n, one/fabric.Microsecond, four/fabric.Microsecond, eight/fabric.Microsecond)
	if four*3 > one || eight > four {
		t.Error("that is not enough")
	}
}
