package objstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory/reclaim"
)

// A faultPort fails one operation: the k-th from now on, counted over all chains.
type faultPort struct {
	fabric.Port
	until int   // operations until the fault; negative is never
	err   error // of the fault
	done  bool  // the operations from the fault on take place all the same
	hit   bool
}

func (p *faultPort) Do(ops []fabric.Op) error {
	if p.until < 0 || p.until >= len(ops) {
		if p.until >= 0 {
			p.until -= len(ops)
		}
		return p.Port.Do(ops)
	}
	i := p.until
	p.until, p.hit = -1, true
	upTo := i
	if p.done {
		upTo = len(ops)
	}
	if err := p.Port.Do(ops[:upTo]); err != nil {
		return err
	}
	return &fabric.ChainError{Index: i, Op: ops[i], Err: p.err}
}

// clearLocks does what a reset of all locks does, when their holders are gone.
func clearLocks(w *world, s *Store) {
	for i := range s.h.Parts {
		for b := range s.geo.buckets {
			w.c.Poke(s.bucket(i, b), make([]byte, 8))
		}
	}
}

// Every operation fails at every one of its fabric operations, in each of three ways:
// refused, unknown and not done, unknown and done. Afterwards the store is sound, and the
// key has its old value or its new one, or none if it was deleted.
func TestFaultAtEveryOperation(t *testing.T) {
	big := string(make([]byte, 3000))
	for _, x := range []struct {
		name string
		old  string // "" is none
		new  string // "" is none
		f    func(c *Client) error
	}{
		{"get", "5", "5", func(c *Client) error { _, err := c.Get(b("k")); return err }},
		{"set new", "", "new", func(c *Client) error { return c.Set(b("k"), b("new"), Options{}) }},
		{"set", "5", "new", func(c *Client) error { return c.Set(b("k"), b("new"), Options{}) }},
		{"set big", "5", big, func(c *Client) error { return c.Set(b("k"), b(big), Options{}) }},
		{"append", "5", "56", func(c *Client) error { return c.Append(b("k"), b("6")) }},
		{"prepend", "5", "65", func(c *Client) error { return c.Prepend(b("k"), b("6")) }},
		{"incr", "5", "7", func(c *Client) error { _, err := c.Incr(b("k"), 2); return err }},
		{"touch", "5", "5", func(c *Client) error { return c.Touch(b("k"), 0) }},
		{"delete", "5", "", func(c *Client) error { return c.Delete(b("k")) }},
		{"expired", "gone", "", func(c *Client) error { c.SetNow(90); return ignore(ignore(c.Append(b("k"), b("6")), ErrNotFound), nil) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			for k := 0; ; k++ {
				hit := false
				for _, fault := range []faultPort{
					{err: fabric.ErrNodeDown}, {err: fabric.ErrUnknownOutcome}, {err: fabric.ErrUnknownOutcome, done: true},
				} {
					fault.until = k
					hit = faultOnce(t, k, fault, x.old, x.new, x.f) || hit
				}
				if !hit {
					if k < 3 {
						t.Fatal("no operation failed")
					}
					return
				}
			}
		})
	}
}

func faultOnce(t *testing.T, k int, fault faultPort, old, new string, f func(c *Client) error) bool {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	cfg := w.config()
	cfg.Objects = 1 // one bucket: others' keys are in the same
	s := w.open(0, cfg)
	p := &faultPort{Port: w.port(0), until: -1, err: fault.err, done: fault.done}
	c, err := s.Client(cas.New(p, cas.Config{}))
	wantErr(t, "client", err, nil)
	c.SetNow(80)
	for i := range s.geo.slots - 1 { // the bucket is full, but for the key
		wantErr(t, "set", c.Set(keyOf(i), keyOf(i), Options{}), nil)
	}
	if old != "" {
		o := Options{}
		if old == "gone" {
			o.TTL = 5
		}
		wantErr(t, "set", c.Set(b("k"), b(old), o), nil)
	} else {
		wantErr(t, "set", c.Set(b("full"), b(old), Options{}), nil)
	}
	p.until = fault.until
	err = f(c)
	p.until = -1
	if !p.hit {
		wantErr(t, "without a fault", err, nil)
	} else if err != nil {
		wantErr(t, fmt.Sprintf("fault at %d", k), err, fault.err)
	}
	what := fmt.Sprintf("fault %v (done %v) at operation %d, error %v", fault.err, fault.done, k, err)

	clearLocks(w, s)
	d := w.client(1, w.open(1, cfg))
	d.SetNow(c.nowS)
	mustBeSound(t, c)
	it, gerr := d.Get(b("k"))
	got := string(it.Value)
	if errors.Is(gerr, ErrNotFound) {
		got = ""
	} else {
		wantErr(t, what, gerr, nil)
	}
	if got != new && (err == nil || got != old) && !(old == "gone" && got == "") {
		t.Fatalf("%s: value is %q, was %q, to be %q", what, got, old, new)
	}
	for i := range s.geo.slots - 1 {
		wantValue(t, d, string(keyOf(i)), string(keyOf(i)))
	}
	// The client goes on, and its compute node's memory is still sound.
	for i := range 10 {
		wantErr(t, what+", later set", c.Set(b("k"), keyOf(i), Options{}), nil)
		wantValue(t, d, "k", string(keyOf(i)))
	}
	mustBeSound(t, c)
	// What a fault lost is found again.
	wantErr(t, "leave", c.Leave(), nil)
	w.c.Kill(w.cns[0]) // it has left the cluster
	wantErr(t, "pause", d.port.Pause(d.port.Now()+fabric.Second), nil)
	r, err := d.Check(CheckOptions{Reclaim: w.cns[1].View})
	if err != nil || !r.Sound() {
		t.Fatal(what, r, err)
	}
	if r.Nodes[0].Elsewhere != 0 {
		t.Fatalf("%s: memory is lost after Reclaim:\n%v", what, r)
	}
	return p.hit
}

// A compute node is killed at every moment of its work. What it was at is done
// or not done; everything else is as it was.
func TestKillAtEveryMoment(t *testing.T) {
	for at := fabric.Time(0); at < 60*fabric.Microsecond; at += 700 {
		w := newWorld(t, sim.Config{Seed: uint64(at), Tear: sim.Tear{Prob: 1, Grain: 8}}, 1, 4<<20, 2)
		cfg := w.config()
		cfg.Objects = 20
		s := w.open(0, cfg)
		c := w.client(1, w.open(1, cfg))
		for i := range 10 {
			wantErr(t, "set", c.Set(keyOf(i), valueOf(i, 0), Options{}), nil)
		}
		var begun, ended [10]int
		dying := w.client(0, s)
		w.c.GoOn(dying.port, "dies", func(fabric.Port) {
			for k := 1; ; k++ {
				for i := range 10 {
					begun[i] = k
					if dying.Set(keyOf(i), valueOf(i, k), Options{}) != nil {
						return
					}
					ended[i] = k
				}
			}
		})
		w.c.At(w.c.Now()+at, func() { w.c.Kill(w.cns[0]) })
		w.c.Run()
		c.port.Pause(c.port.Now() + fabric.Second) // what is under way arrives
		clearLocks(w, s)
		mustBeSound(t, c)
		for i := range 10 {
			it, err := c.Get(keyOf(i))
			if err != nil {
				t.Fatal(err)
			}
			if k, ok := parseValue(it.Value, i); !ok || k != ended[i] && k != begun[i] {
				t.Fatalf("killed at %d: %q is version %d (%v), begun %d, ended %d", at, keyOf(i), k, ok, begun[i], ended[i])
			}
		}
		if !tend(t, c, w.cns[1].View) {
			t.Fatal("no node saw the crash")
		}
		if r := mustBeSound(t, c); r.Nodes[0].Elsewhere != 0 {
			t.Fatal(r)
		}
	}
}

// valueOf returns a value that describes itself, and whose size depends on its version.
func valueOf(key, version int) []byte {
	v := fmt.Appendf(nil, "%d %d ", key, version)
	for n := (key*37 + version*101) % 900; len(v) < n; {
		v = append(v, byte(len(v)*version+key))
	}
	return v
}

// parseValue returns the version, if the value is whole and is of the key.
func parseValue(v []byte, key int) (version int, ok bool) {
	var k int
	if n, _ := fmt.Sscanf(string(v), "%d %d ", &k, &version); n != 2 || k != key {
		return 0, false
	}
	return version, string(valueOf(key, version)) == string(v)
}

// Where the first memory node had lost its memory, and others had not, a client that has not been notified is not registered: nothing is looked for while others live.
func TestReclaimBesideSurvivors(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	c := w.client(0, w.open(0, w.config()))
	c.s.h.Survivors = true
	wantErr(t, "while another lives", c.Reclaim(w.cns[0].View), ErrUnanswered)
	w.c.Kill(w.cns[1])
	wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil)
	wantErr(t, "alone", c.Reclaim(w.cns[0].View), nil)
}

// A batch of free chunks that is refused by the central list, at either operation and however it came to be pushed, is not given up: the
// compute node still has it, or it is leaked, and is found.
func TestRefusedBatchIsKept(t *testing.T) {
	for k := range 2 {
		for _, e := range []error{fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome} {
			w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
			p := &faultPort{Port: w.port(0), until: -1, err: e}
			c, err := w.open(0, w.config()).Client(cas.New(p, cas.Config{}))
			wantErr(t, "client", err, nil)
			n, cl := c.s.h.Parts[0], class(0)
			var chunks []chunk
			for range bound(n.Limit, cl) + 1 {
				ch, err := c.alloc(n, cl)
				wantErr(t, "alloc", err, nil)
				chunks = append(chunks, ch)
			}
			for i, ch := range chunks {
				if i == len(chunks)-1 {
					p.until = k // the list is full: a batch goes
				}
				c.free(n, ch)
			}
			lost := e == fabric.ErrUnknownOutcome
			if !p.hit || (c.stats.Leaked > 0) != lost {
				t.Fatalf("%v at %d: hit %v, %d chunks are lost", e, k, p.hit, c.stats.Leaked)
			}
			if lost {
				continue
			}
			p.until, p.hit = k, false
			wantErr(t, "drain", c.Drain(), e)
			if r := mustBeSound(t, c); r.Nodes[0].Elsewhere != 0 {
				t.Fatalf("%v at %d: %v", e, k, r)
			}
			ch, err := c.alloc(n, cl)
			wantErr(t, "alloc", err, nil)
			p.until = k
			wantErr(t, "release", c.session.Release([]reclaim.Block{{Off64: ch.off64, Class: uint8(cl)}}), e)
			wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), nil)
			if r := mustBeSound(t, c); r.Nodes[0].Elsewhere != 0 {
				t.Fatalf("%v at %d: %v", e, k, r)
			}
		}
	}
}
