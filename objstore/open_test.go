package objstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// openSlots is a store in which slots open, one bucket of which nothing is evicted.
func (w *world) openSlots() Config {
	cfg := w.plain()
	cfg.OpenSlots, cfg.EpochNs, cfg.Objects, cfg.NoEvict = true, 1, 1, true
	return cfg
}

// pass lets four epochs pass, if no operation is under way; it needs a client of each compute node.
func pass(t testing.TB, clients ...*Client) {
	t.Helper()
	passEpochs(t, 4, clients...)
}

func passEpochs(t testing.TB, n uint64, clients ...*Client) {
	t.Helper()
	grace := clients[0].s.graces[0]
	epoch := func() uint64 {
		e, err := grace.Epoch(clients[0].port.Do)
		wantErr(t, "epoch", err, nil)
		return e
	}
	for began, tries := epoch(), 0; epoch() < began+n && tries < 10; tries++ {
		for _, c := range clients {
			wantErr(t, "pause", c.port.Pause(c.port.Now()+2), nil)
			_, err := c.ReclaimStep(func() fabric.View { return fabric.View{Live: fabric.CNSet{^uint64(0)}} })
			wantErr(t, "tend", err, nil)
		}
	}
}

// wordOf returns the word of a key's slot.
func wordOf(t testing.TB, c *Client, key string) slotWord {
	t.Helper()
	for slot := range c.s.geo.slots {
		a := c.s.slotsAddr(c.s.locate(b(key)).bucket).Add(uint64(slot) * slotSize)
		ops := []fabric.Op{fabric.Load(a)}
		wantErr(t, "slot", c.port.Do(ops), nil)
		w := slotWord(ops[0].Old)
		if w == 0 {
			continue
		}
		buf := c.port.Alloc(headerSize + len(key))
		wantErr(t, "object", c.port.Do([]fabric.Op{fabric.Read(c.s.h.Parts[0].At(w.chunk().off64), buf)}), nil)
		found := string(buf[headerSize:]) == key
		c.port.Free(buf)
		if found {
			return w
		}
	}
	return 0
}

// opened gives a key a value in an open slot.
func opened(t testing.TB, c *Client, key, value string) {
	t.Helper()
	wantErr(t, "set", c.Set(b(key), b("-"), Options{}), nil)
	pass(t, c)
	wantErr(t, "set", c.Set(b(key), b(value), Options{}), nil)
	if w := wordOf(t, c, key); !w.open() {
		t.Fatalf("slot of %q after a set and three epochs: %v", key, w)
	}
}

// A key's slot is new, then open; sets take no lock then, all else does.
func TestOpenSlot(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	c := w.plainClient(0, w.open(0, w.openSlots()))
	for range opensAfter {
		wantErr(t, "set", c.Set(b("k"), b("a"), Options{}), nil)
		if w := wordOf(t, c, "k"); w.tag() >= tagHeld {
			t.Fatalf("slot of a new key: %v", w)
		}
		passEpochs(t, 1, c)
	}
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	if w := wordOf(t, c, "k"); !w.open() {
		t.Fatalf("slot of a key after %d epochs: %v", opensAfter, w)
	}
	locks := c.l.Stats().Acquires
	for i := range 100 {
		wantErr(t, "set", c.Set(b("k"), fmt.Append(nil, i), Options{}), nil)
		wantValue(t, c, "k", fmt.Sprint(i))
	}
	if c.stats.Open != 100 || c.stats.Overtaken != 0 || c.l.Stats().Acquires != locks {
		t.Fatalf("%d of 100 sets without the lock, %d overtaken, %d locks", c.stats.Open, c.stats.Overtaken, c.l.Stats().Acquires-locks)
	}
	if v, err := c.Incr(b("k"), 1); v != 100 || err != nil {
		t.Fatalf("incr: %d, %v", v, err)
	}
	if w := wordOf(t, c, "k"); w.open() || w.tag() < tagHeld {
		t.Fatalf("slot after incr: %v", w)
	}
	wantErr(t, "set", c.Set(b("k"), b("x"), Options{}), nil) // opens it again
	wantErr(t, "set", c.Set(b("k"), b("y"), Options{}), nil)
	if c.stats.Open != 101 {
		t.Fatalf("%d sets without the lock", c.stats.Open)
	}
	wantErr(t, "delete", c.Delete(b("k")), nil)
	wantErr(t, "set", c.Set(b("k"), b("z"), Options{}), nil)
	wantErr(t, "set", c.Set(b("k"), b("z"), Options{}), nil)
	if w := wordOf(t, c, "k"); w.tag() >= tagHeld {
		t.Fatalf("slot of a key that was deleted between: %v", w)
	}
	mustBeSound(t, c)
}

// Another compute node opens the store as it is, and one that has segments has no open slots.
func TestOpenSlotsIsTheStores(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 32<<20, 2)
	w.open(0, w.openSlots())
	cfg := w.plain()
	cfg.Objects = 0
	if s := w.open(1, cfg); !s.geo.opens {
		t.Error("a store with open slots was opened without")
	}
	cfg.Name, cfg.OpenSlots, cfg.MaxValue = "large", true, maxPlain+1
	if s := w.open(1, cfg); s.geo.opens {
		t.Error("open slots and segments")
	}
}

// openOps is what another client may do beside, by name.
var openOps = map[string]func(c *Client, key []byte) error{
	"set":  func(c *Client, key []byte) error { return c.Set(key, b("7"), Options{}) },
	"sets": func(c *Client, key []byte) error { return manySets(c, key, 32) },
	"sets of both": func(c *Client, key []byte) error {
		return errors.Join(manySets(c, key, 31), c.Set(key, b("9"), Options{}))
	},
	"append": func(c *Client, key []byte) error { return c.Append(key, b("5")) },
	"incr":   func(c *Client, key []byte) error { _, err := c.Incr(key, 100); return err },
	"touch":  func(c *Client, key []byte) error { return c.Touch(key, 1000) },
	"delete": func(c *Client, key []byte) error { return c.Delete(key) },
	"delete and set": func(c *Client, key []byte) error {
		if err := c.Delete(key); err != nil {
			return err
		}
		return c.Set(key, b("8"), Options{})
	},
}

// manySets ends with the same slot word with which it began, if nobody else sets: tags of open slots have 5 bits.
func manySets(c *Client, key []byte, n int) error {
	for i := range n {
		if err := c.Set(key, fmt.Append(nil, 1000+i), Options{}); err != nil {
			return err
		}
	}
	return nil
}

// applyOpen is what an operation of openOps does to a value; "" is none.
func applyOpen(op, v string) string {
	n := 0
	if v != "" {
		_, _ = fmt.Sscan(v, &n)
	}
	switch op {
	case "set":
		return "7"
	case "sets":
		return "1031"
	case "sets of both":
		return "9"
	case "append":
		return v + "5"
	case "incr":
		return fmt.Sprint(n + 100)
	case "touch":
		return v
	case "delete":
		return ""
	}
	return "8"
}

// Each operation meets each other one, between any two of its own operations on memory: what is left is what one after the other would have left.
func TestOperationsMeetOnOpenSlot(t *testing.T) {
	for mine := range openOps {
		for other := range openOps {
			if strings.HasPrefix(mine, "sets") || mine == "delete and set" {
				continue
			}
			t.Run(mine+" meets "+other, func(t *testing.T) {
				for at := 0; meetOnOpenSlot(t, mine, other, at); at++ {
				}
			})
		}
	}
}

// meetOnOpenSlot has another client's operation come before the at-th operation on memory of mine, and reports whether there was such. The other needs no lock that mine has: else it
// does nothing.
func meetOnOpenSlot(t *testing.T, mine, other string, at int) (met bool) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	p := &slowPort{Port: w.port(0), between: func() {}}
	cfg := w.openSlots()
	s := w.open(0, cfg)
	c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	cfg.LockTimeoutNs = 1
	beside := w.plainClient(0, s)
	s.cfg.LockTimeoutNs = 1 // of the other: the one that is met has the lock when it gets it
	opened(t, c, "k", "3")
	var otherErr error
	n := 0
	p.between = func() {
		if n == at {
			met = true
			between := p.between
			p.between = func() {}
			otherErr = openOps[other](beside, b("k"))
			p.between = between
		}
		n++
	}
	before := "3"
	mineErr := openOps[mine](c, b("k"))
	p.between = func() {}
	if !met {
		return false
	}
	it, err := beside.Get(b("k"))
	if err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	got := string(it.Value)
	do := func(op, v string, err error) string {
		if err != nil {
			return v
		}
		return applyOpen(op, v)
	}
	wants := []string{do(other, do(mine, before, mineErr), otherErr), do(mine, do(other, before, otherErr), mineErr)}
	if !slices.Contains(wants, got) {
		t.Fatalf("%s (%v) meets %s (%v) at %d: %q, want one of %q", mine, mineErr, other, otherErr, at, got, wants)
	}
	mustBeSound(t, c)
	return true
}

// An object in an open slot is moved, or unlinked as expired, while others set its key: nothing that they set is lost.
func TestOpenSlotMeetsMoverAndExpiry(t *testing.T) {
	for _, what := range []string{"move", "expiry"} {
		for at := 0; meetUnlinker(t, what, at); at++ {
		}
	}
}

func meetUnlinker(t *testing.T, what string, at int) (met bool) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	p := &slowPort{Port: w.port(0), between: func() {}}
	s := w.open(0, w.openSlots())
	c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	beside := w.plainClient(0, s)
	s.cfg.LockTimeoutNs = 1
	opened(t, c, "k", "3")
	wantErr(t, "set", c.Set(b("k"), b("3"), Options{TTL: 1}), nil)
	var k work
	wantErr(t, "start", c.start(&k, b("k")), nil)
	if s, err := c.tryRead(&k); s != present || err != nil {
		t.Fatal(s, err)
	}
	to, err := c.alloc(k.n, k.word.class())
	wantErr(t, "alloc", err, nil)
	n, last := 0, ""
	p.between = func() {
		if n++; n-1 == at {
			met = true
			between := p.between
			p.between = func() {}
			for i := range 32 {
				if v := fmt.Sprint(1000 + i); beside.Set(b("k"), b(v), Options{}) == nil { // else the lock is held
					last = v
				}
			}
			p.between = between
		}
	}
	if what == "move" {
		v := candidate{bucket: k.bucket, slot: k.slot, word: k.word, hash: k.hash}
		_, err = c.move(k.n, &v, to)
	} else {
		_, err = c.unlink(k.n, k.bucket, k.slot, k.word, k.h.expiry)
	}
	wantErr(t, what, err, nil)
	if p.between = func() {}; last != "" {
		beside.SetNow(k.h.expiry.second + 1)
		if it, err := beside.Get(b("k")); string(it.Value) != last {
			t.Fatalf("%s meets sets at %d: get is %q, %v; want %q", what, at, it.Value, err, last)
		}
	}
	return met
}

// While a set is under way that has found its key in an open slot, no other key's slot opens that was not open, whatever becomes of the slot: so the set never replaces another key's object.
func TestOpenSlotStaysTheKeys(t *testing.T) {
	for at := 1; openSlotStays(t, at); at++ {
	}
}

// openSlotStays has all happen before the at-th operation on memory of the set, and reports whether there was such.
func openSlotStays(t *testing.T, at int) (met bool) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	p := &slowPort{Port: w.port(0), between: func() {}}
	s := w.open(0, w.openSlots())
	c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	other, tender := w.plainClient(0, s), w.plainClient(0, s)
	far := w.plainClient(1, w.open(1, w.openSlots()))
	passAll := func() { pass(t, tender, far) }
	wantErr(t, "set", c.Set(b("k"), b("a"), Options{}), nil)
	passAll()
	wantErr(t, "set", c.Set(b("k"), b("a"), Options{}), nil)
	was := wordOf(t, other, "k")
	twin := twinOf(s, "k")
	n := 0
	p.between = func() {
		if n++; n < at {
			return
		}
		met, p.between = true, func() {}
		wantErr(t, "delete", other.Delete(b("k")), nil)
		for i := range 70 {
			passAll()
			wantErr(t, "set", other.Set(b(twin), fmt.Appendf(nil, "%c", 'A'+i%26), Options{}), nil)
			if w := wordOf(t, other, twin); w.open() && w == was {
				break
			}
		}
		wantErr(t, "set", other.Set(b(twin), b("b"), Options{}), nil)
	}
	if !was.open() {
		t.Fatalf("slot of k: %v", was)
	}
	wantErr(t, "set", c.Set(b("k"), b("c"), Options{}), nil)
	if !met {
		return false
	}
	wantValue(t, other, twin, "b")
	wantValue(t, other, "k", "c")
	mustBeSound(t, other)
	passAll()
	wantErr(t, "set", other.Set(b(twin), b("d"), Options{}), nil)
	if w := wordOf(t, other, twin); !w.open() {
		t.Errorf("slot of the other key when all is over: %v", w)
	}
	return true
}

// A client whose compute node is an epoch behind that of another does not take a key that has just come for one that has been there for seven epochs.
func TestOpenSlotOfTheNextEpoch(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	ahead, behind := w.plainClient(0, w.open(0, w.openSlots())), w.plainClient(1, w.open(1, w.openSlots()))
	epoch := func(c *Client) uint64 {
		e, err := c.s.graces[0].Epoch(c.port.Do)
		wantErr(t, "epoch", err, nil)
		return e
	}
	for round := range 16 {
		for pass(t, ahead, behind); epoch(ahead) != epoch(behind)+1; {
			wantErr(t, "pause", ahead.port.Pause(ahead.port.Now()+2), nil)
			_, err := ahead.ReclaimStep(func() fabric.View { return fabric.View{Live: fabric.CNSet{^uint64(0)}} })
			wantErr(t, "tend", err, nil)
			if epoch(ahead) < epoch(behind) {
				pass(t, behind)
			}
		}
		key := fmt.Sprint("k", round)
		wantErr(t, "set", ahead.Set(b(key), b("1"), Options{}), nil)
		wantErr(t, "set", behind.Set(b(key), b("2"), Options{}), nil)
		if w := wordOf(t, ahead, key); w.tag() >= tagHeld {
			t.Fatalf("slot of a new key, for a client an epoch behind: %v", w)
		}
		wantErr(t, "delete", ahead.Delete(b(key)), nil)
	}
}

// A flush beside sets of an open slot ends.
func TestFlushMeetsOpenSlot(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	p := &slowPort{Port: w.port(0), between: func() {}}
	s := w.open(0, w.openSlots())
	c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	beside := w.plainClient(0, s)
	opened(t, c, "k", "3")
	s.cfg.LockTimeoutNs = 1
	sets, operations := 0, 0
	p.between = func() {
		if operations++; operations > 1000 {
			t.Fatal("the flush does not end")
		}
		between := p.between
		p.between = func() {}
		if beside.Set(b("k"), fmt.Append(nil, sets), Options{}) == nil { // else the lock is held
			sets++
		}
		p.between = between
	}
	_, err = c.Flush()
	p.between = func() {}
	if wantErr(t, "flush", err, nil); sets == 0 {
		t.Error("no set met the flush")
	}
	mustBeSound(t, c)
}

// Each part has epochs of its own, and no slot is opened, nor changed without the lock, after the first part was lost.
func TestOpenSlotsOfParts(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 1)
	c := w.plainClient(0, w.open(0, w.openSlots()))
	n := c.s.h.Parts[1]
	if !c.opens(n) {
		t.Error("slots do not open")
	}
	if c.s.h.Survivors = true; c.opens(n) {
		t.Error("slots open though the first part was lost")
	}
	c.s.graces[0] = nil
	_, err := c.epoch(&work{look: look{place: place{node: 1}}})
	wantErr(t, "epoch", err, nil)
}

// While the memory node of a part is down, whether it was there when the store was opened or not, slots of the others open.
func TestEpochsOfOtherPartsGoOn(t *testing.T) {
	for _, missing := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
		cfg := w.openSlots()
		cfg.Objects = 40
		s := w.open(0, cfg)
		if missing {
			w.c.KillMN(w.mns[1])
		}
		clients := []*Client{w.plainClient(0, s), w.plainClient(1, w.open(1, cfg))}
		w.c.KillMN(w.mns[1])
		key := ""
		for i := 0; key == ""; i++ {
			if k := fmt.Sprint(i); s.locate(b(k)).node == 0 {
				key = k
			}
		}
		wantErr(t, "set", clients[0].Set(b(key), b("1"), Options{}), nil)
		for range 40 {
			for _, c := range clients {
				wantErr(t, "pause", c.port.Pause(c.port.Now()+2), nil)
				if _, err := c.ReclaimStep(w.cns[0].View); err != nil && !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrUnknownOutcome) {
					t.Fatal(err)
				}
			}
			wantErr(t, "set", clients[0].Set(b(key), b("2"), Options{}), nil)
		}
		if n := clients[0].Stats().Open; n == 0 {
			t.Errorf("missing from the start %v: no set without the lock in forty steps", missing)
		}
	}
}

// A set of a key that has come lately has epochs be shorter, until its slot opens.
func TestSetAwaitsEpochs(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	cfg := w.openSlots()
	cfg.EpochNs = fabric.Second
	c := w.plainClient(0, w.open(0, cfg))
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	if c.EpochsAwaited() {
		t.Error("a key that comes waits for an epoch")
	}
	wantErr(t, "set", c.Set(b("k"), b("2"), Options{}), nil)
	steps := 0
	for ; c.EpochsAwaited() && steps < 100; steps++ {
		wantErr(t, "pause", c.port.Pause(c.port.Now()+50*fabric.Millisecond), nil)
		wantErr(t, "step", c.StepEpochs(w.cns[0].View), nil)
	}
	wantErr(t, "set", c.Set(b("k"), b("3"), Options{}), nil)
	if w := wordOf(t, c, "k"); !w.open() || steps < 6 || steps > 12 {
		t.Errorf("slot %v after %d steps of 50 ms", w, steps)
	}
}

// A port that does something after each chain.
type afterPort struct {
	fabric.Port
	after func()
}

func (p *afterPort) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	p.after()
	return err
}

// An open slot is remembered with an epoch from before it was opened: while the set that opened it waits for its chain to complete, another key may come to the slot, and epochs pass.
func TestOpenSlotIsNotedInTime(t *testing.T) {
	remembered := 0
	for seed := range uint64(400) {
		if openSlotNoted(t, rand.New(rand.NewPCG(seed, 1))) {
			remembered++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if remembered < 5 {
		t.Errorf("of 400 sets %d went to a slot that was remembered, and had become another key's", remembered)
	}
}

func openSlotNoted(t *testing.T, r *rand.Rand) (remembered bool) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	p := &afterPort{w.port(0), func() {}}
	s := w.open(0, w.openSlots())
	c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	near, far := w.plainClient(0, s), w.plainClient(1, w.open(1, w.openSlots()))
	twin := twinOf(s, "k")
	step := func(most int) {
		for _, x := range r.Perm(2) {
			k := []*Client{near, far}[x]
			for range r.IntN(most + 1) {
				wantErr(t, "pause", k.port.Pause(k.port.Now()+2), nil)
				_, err := k.ReclaimStep(func() fabric.View { return fabric.View{Live: fabric.CNSet{^uint64(0)}} })
				wantErr(t, "tend", err, nil)
			}
		}
	}
	wantErr(t, "set", c.Set(b("k"), b("a"), Options{}), nil)
	pass(t, near, far)
	step(3)
	p.after = func() {
		if w := wordOf(t, near, "k"); !w.open() {
			return
		}
		p.after = func() {}
		wantErr(t, "delete", far.Delete(b("k")), nil)
		wantErr(t, "set", far.Set(b(twin), b("1"), Options{}), nil)
		step(3)
		step(3)
	}
	wantErr(t, "set", c.Set(b("k"), b("b"), Options{}), nil)
	step(3)
	last := "1"
	slow := &slowPort{Port: p.Port, between: func() {}}
	late, err := s.Client(cas.New(slow, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	x := s.spots.at(s.locate(b("k")).hash).Load()
	epoch, err := s.graces[0].Epoch(near.port.Do)
	wantErr(t, "epoch", err, nil)
	remembered = x != nil && x.epoch == epoch
	slow.between = func() {
		slow.between = func() {}
		for i := range 8 {
			step(4)
			last = fmt.Sprint("2", i)
			wantErr(t, "set", far.Set(b(twin), b(last), Options{}), nil)
		}
	}
	wantErr(t, "set", late.Set(b("k"), b("c"), Options{}), nil)
	wantValue(t, near, twin, last)
	wantValue(t, near, "k", "c")
	mustBeSound(t, near)
	return remembered
}

// twinOf returns another key with a key's fingerprint, in the same bucket.
func twinOf(s *Store, key string) string {
	want := s.locate(b(key))
	for i := 0; ; i++ {
		twin := fmt.Sprint("twin", i)
		if p := s.locate(b(twin)); p.fp == want.fp && p.bucket == want.bucket {
			return twin
		}
	}
}

// Sets without the lock among all other operations, by clients of three compute nodes.
func TestLinearizableOpen(t *testing.T) {
	const keys, clients, steps = 3, 6, 60
	open, overtaken := uint64(0), uint64(0)
	for seed := range uint64(24) {
		w := newWorld(t, sim.Config{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}}, 1, 4<<20, 3)
		cfg := w.config()
		cfg.OpenSlots, cfg.EpochNs, cfg.Objects = true, 1, 1+seed%2*100
		stores := []*Store{w.open(0, cfg), w.open(1, cfg), w.open(2, cfg)}
		var history []porcupine.Operation
		working := clients
		var all []*Client
		for i := range clients {
			c := w.client(i%3, stores[i%3])
			all = append(all, c)
			w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
				unique := uint64(1)
				for k := range steps {
					in := linInput{key: int(c.port.Rand() % keys), value: fmt.Sprintf("<%d.%d>", i, k), cas: unique}
					begin := w.c.Now()
					out := openOp(t, c, &in)
					history = append(history, porcupine.Operation{ClientId: i, Input: in, Output: out, Call: int64(begin), Return: int64(w.c.Now())})
					if in.op == "get" && out.found {
						unique = out.cas
					}
				}
				working--
			})
		}
		for i, s := range stores {
			c := w.client(i, s)
			w.c.GoOn(c.port, fmt.Sprint("tender ", i), func(fabric.Port) {
				for working > 0 {
					_, err := c.ReclaimStep(w.cns[i].View)
					wantErr(t, "tend", err, nil)
					wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Microsecond), nil)
				}
			})
		}
		wantErr(t, "run", w.c.Run(), nil)
		if r := porcupine.CheckOperationsTimeout(linModel, history, 20*time.Second); r != porcupine.Ok {
			t.Fatalf("seed %d: history is %v", seed, r)
		}
		for _, c := range all {
			open, overtaken = open+c.stats.Open, overtaken+c.stats.Overtaken
		}
		mustBeSound(t, all[0])
	}
	if t.Logf("%d sets without the lock, %d overtaken", open, overtaken); open < 200 || overtaken == 0 {
		t.Error("too few")
	}
}

// openOp is linOp with more sets.
func openOp(t *testing.T, c *Client, in *linInput) linOutput {
	if c.port.Rand()%2 == 0 {
		return linOp(t, c, in)
	}
	in.op = "set"
	err := c.Set(keyOf(in.key), b(in.value), Options{})
	wantErr(t, "set", err, nil)
	return linOutput{ok: true}
}
