package objstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// A crashPort kills its compute node at one operation: the k-th from now on, counted over all chains. The
// operations before it are done; of it, if it is a WRITE, as much as torn says.
type crashPort struct {
	fabric.Port
	w      *world
	victim *sim.Node
	until  int
	torn   tearing
	hit    bool
	tore   bool // the operation was a WRITE of more than a word
}

// tearing says which words of the WRITE in which a node dies reach memory.
type tearing func(word, of int) bool

var tearings = map[string]tearing{
	"not at all":      nil,
	"first half":      func(i, n int) bool { return i < n/2 },
	"second half":     func(i, n int) bool { return i >= n/2 },
	"every other":     func(i, n int) bool { return i%2 == 0 },
	"all but the end": func(i, n int) bool { return i < n-1 },
}

func (p *crashPort) Do(ops []fabric.Op) error {
	if p.until < 0 || p.until >= len(ops) {
		if p.until >= 0 {
			p.until -= len(ops)
		}
		return p.Port.Do(ops)
	}
	i := p.until
	p.until, p.hit = -1, true
	if i > 0 {
		if err := p.Port.Do(ops[:i]); err != nil {
			return err
		}
	}
	if op := &ops[i]; p.torn != nil && op.Kind == fabric.OpWrite && op.Size() > 8 {
		p.tore = true
		n := len(op.Buf) / 8
		for k := range n {
			if p.torn(k, n) {
				p.w.c.Poke(op.Addr.Add(uint64(8*k)), op.Buf[8*k:8*k+8])
			}
		}
	}
	p.w.c.Kill(p.victim)
	return p.Port.Do(ops[i:]) // the dead get no further
}

// A scripted operation of TestCrashAtEveryOperation: what it makes of the values of keys. "" is no object.
type scripted struct {
	key  string
	to   func(old string) string
	does func(c *Client) error
}

var crashScript = []scripted{
	{"a", is("1"), func(c *Client) error { return c.Set(b("a"), b("1"), Options{}) }},
	{"b", is("2"), func(c *Client) error { return c.Set(b("b"), b("2"), Options{}) }},
	{"a", is("one"), func(c *Client) error { return c.Set(b("a"), b("one"), Options{}) }},
	{"a", is(long), func(c *Client) error { return c.Set(b("a"), b(long), Options{}) }},
	{"b", func(old string) string { return old + long }, func(c *Client) error { return c.Append(b("b"), b(long)) }},
	{"b", func(old string) string { return old }, func(c *Client) error { _, err := c.Get(b("b")); return err }},
	{"a", is(""), func(c *Client) error { return c.Delete(b("a")) }},
	{"n", is("41"), func(c *Client) error { return c.Set(b("n"), b("41"), Options{}) }},
	{"n", is("42"), func(c *Client) error { _, err := c.Incr(b("n"), 1); return err }},
	{"c", is(long), func(c *Client) error { return c.Set(b("c"), b(long), Options{}) }},
	{"b", is(""), func(c *Client) error { return c.Delete(b("b")) }},
	{"a", is("again"), func(c *Client) error { return c.Add(b("a"), b("again"), Options{}) }},
	{"c", func(old string) string { return "<" + old }, func(c *Client) error { return c.Prepend(b("c"), b("<")) }},
}

func is(v string) func(string) string { return func(string) string { return v } }

var long = string(valueOf(3, 7))

// A compute node dies at every single operation of a script of stores, updates, deletes and reads, and in the middle
// of every WRITE of it. Whatever was acknowledged is there, the operation it was at is done or not, the store is
// sound, and what the dead node had of its memory is found and used again.
func TestCrashAtEveryOperation(t *testing.T) {
	names := make([]string, 0, len(tearings))
	for name := range tearings {
		names = append(names, name)
	}
	slices.Sort(names)
	crashes := 0
	for k := 0; ; k++ {
		hit := false
		for _, name := range names {
			p := crashOnce(t, fmt.Sprintf("crash at operation %d, WRITE %s", k, name), k, tearings[name])
			hit = hit || p.hit
			if tearings[name] == nil && !p.hit {
				break
			}
			if p.hit && (tearings[name] == nil || p.tore) {
				crashes++
			}
		}
		if !hit {
			t.Logf("%d operations, %d crashes", k, crashes)
			if k < 40 || crashes < k+20 {
				t.Errorf("that is too few")
			}
			return
		}
	}
}

func crashOnce(t *testing.T, what string, k int, torn tearing) *crashPort {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 4<<20, 2)
	defer w.c.Close()
	cfg := w.config()
	cfg.Objects = 1 // one bucket, with overflow blocks
	p := &crashPort{Port: w.port(0), w: w, victim: w.cns[0], until: -1, torn: torn}
	dying, err := w.open(0, cfg).Client(cas.New(p, cas.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	p.until = k
	acked, doing, done := map[string]string{}, -1, false
	w.c.GoOn(p.Port, "dies", func(fabric.Port) {
		for i, x := range crashScript {
			doing = i
			if err := x.does(dying); err != nil {
				t.Errorf("%s: operation %d of the script: %v", what, i, err)
				return
			}
			acked[x.key] = x.to(acked[x.key])
		}
		done = true
	})
	if err := w.c.Run(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if p.hit == done {
		t.Fatalf("%s: hit %v, done %v", what, p.hit, done)
	}
	c := w.client(1, w.open(1, cfg))
	c.port.Pause(c.port.Now() + fabric.Second)
	clearLocks(w, c.s)
	mustBeSound(t, c)
	for _, key := range []string{"a", "b", "c", "n"} {
		it, err := c.Get(b(key))
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s: get %s: %v", what, key, err)
		}
		old := acked[key]
		x := crashScript[doing]
		if got := string(it.Value); got != old && (done || x.key != key || got != x.to(old)) {
			t.Fatalf("%s: %s is %q, was %q, in operation %d of the script", what, key, got, old, doing)
		}
	}
	p.until = -1
	if done { // it has not died
		wantErr(t, what+": leave", dying.Leave(), nil)
	}
	reuse(t, what, w, c)
	return p
}

// reuse reclaims what the dead node had, and checks that it can all be used again.
func reuse(t *testing.T, what string, w *world, c *Client) {
	t.Helper()
	tend(t, c, w.cns[1].View)
	n := mustBeSound(t, c).Nodes[0]
	if n.Elsewhere != 0 || n.FreeCentral+n.FreeLocal+n.ChunkBytes+n.Overflows*overflowSize+n.Rest != n.ExtentBytes {
		t.Fatalf("%s: memory is missing after Reclaim: %+v", what, n)
	}
	// The script runs on what the dead node had: it takes no more of the region than a node that does not die.
	for i, x := range crashScript {
		if err := ignore(ignore(x.does(c), ErrExists), ErrNotFound); err != nil {
			t.Fatalf("%s: then operation %d of the script: %v", what, i, err)
		}
	}
	if after := mustBeSound(t, c).Nodes[0]; after.ExtentBytes > scriptBytes+c.s.h.Parts[0].Region.PageSize() {
		t.Fatalf("%s: extents of %d B, then of %d B; the script needs %d B", what, n.ExtentBytes, after.ExtentBytes, scriptBytes)
	}
}

// scriptBytes is what the runs of one undisturbed run of the script have.
const scriptBytes = 6144

// Compute nodes come, fill the store, take and free memory of all sizes, and die in the middle of that, thirty one after the other. What each had is found by the
// one that stays, and used by the next: after the fifth the store takes no more memory from the region than ever.
func TestMemoryDoesNotGrowOverCrashes(t *testing.T) {
	const cycles, warmup, keys = 30, 5, 40
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 1, 16<<20, 1)
	cfg := w.config()
	cfg.Objects = keys
	c := w.client(0, w.open(0, cfg))
	found, most := uint64(0), uint64(0)
	for cycle := range cycles {
		n := w.c.AddCN()
		w.cns = append(w.cns, n)
		wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil)
		p := &crashPort{Port: w.port(len(w.cns) - 1), w: w, victim: n, until: -1}
		s, err := Open(p, cfg)
		wantErr(t, "open", err, nil)
		dying, err := s.Client(cas.New(p, cas.Config{}))
		wantErr(t, "client", err, nil)
		p.until = 1500 + 37*cycle
		w.c.GoOn(p.Port, "dies", func(fabric.Port) {
			for i := 0; ; i++ {
				key := keyOf(i * 7 % keys)
				err := dying.Set(key, valueOf(i%keys, cycle+i/keys), Options{})
				if i%3 == 2 {
					err = errors.Join(err, ignore(dying.Delete(keyOf(i*5%keys)), ErrNotFound))
				}
				if err != nil {
					t.Errorf("cycle %d, step %d: %v", cycle, i, err)
					return
				}
			}
		})
		wantErr(t, "run", w.c.Run(), nil)
		if !p.hit {
			t.Fatalf("cycle %d: it has not died", cycle)
		}
		wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil) // it is fenced
		clearLocks(w, c.s)
		before := mustBeSound(t, c).Nodes[0].Elsewhere
		tend(t, c, w.cns[0].View)
		after := mustBeSound(t, c).Nodes[0]
		if after.Elsewhere != 0 {
			t.Fatalf("cycle %d: memory is missing: %+v", cycle, after)
		}
		found += before
		part := c.s.h.Parts[0]
		used, err := part.Region.Used(c.port)
		wantErr(t, "used", err, nil)
		if cycle < warmup {
			most = max(most, used)
		} else if used > most {
			t.Fatalf("after cycle %d %d B of the region are used, after the first %d it was %d B at most", cycle+1, used, warmup, most)
		}
	}
	t.Logf("%d B of the region are used; %d B of the dead have been found", most, found)
	if found == 0 {
		t.Error("the dead had nothing")
	}
}
