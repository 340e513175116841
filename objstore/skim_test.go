package objstore

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// skimmed are the keys that Skim finds in the whole store, in as many calls as it takes with so many bytes each.
func skimmed(t *testing.T, c *Client, most uint64) map[string]Brief {
	t.Helper()
	list := map[string]Brief{}
	for next := uint64(0); next < c.s.AllBuckets(); {
		before := next
		var err error
		next, err = c.Skim(next, most, func(x *Brief) bool {
			if _, twice := list[string(x.Key)]; twice {
				t.Errorf("%q twice", x.Key)
			}
			y := *x
			y.Key, y.Value = nil, slices.Clone(x.Value)
			list[string(x.Key)] = y
			return true
		})
		if err != nil || next <= before {
			t.Fatalf("from bucket %d to %d: %v", before, next, err)
		}
	}
	return list
}

// Skim finds each key once, with what it tells of its object: those in overflow blocks and values in segments too, and neither segments nor what has expired.
func TestSkim(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 64<<20, 1)
	cfg := w.config()
	cfg.Objects, cfg.MaxValue, cfg.Segment = 300, 32<<10, 4<<10
	c := w.client(0, w.open(0, cfg))
	c.SetNow(100)
	want := map[string]int{}
	for i := range 700 {
		value := bytes.Repeat([]byte{byte(i)}, i%50)
		if i%100 == 7 {
			value = bytes.Repeat([]byte{byte(i)}, 30<<10)
		}
		o := Options{Flags: uint32(i)}
		if i%10 == 3 {
			o.TTL = 5
		}
		wantErr(t, "set", c.Set(keyOf(i), value, o), nil)
		if i%10 != 3 {
			want[string(keyOf(i))] = len(value)
		}
	}
	long := bytes.Repeat(b("k"), MaxKey)
	wantErr(t, "set", c.Set(long, bytes.Repeat([]byte{byte(len(want))}, 20<<10), Options{}), nil)
	want[string(long)] = 20 << 10
	c.SetNow(200)
	for _, most := range []uint64{1, 2000, 1 << 30} {
		got := skimmed(t, c, most)
		for key, size := range want {
			x, ok := got[key]
			if !ok || x.Size != size || len(x.Value) != min(size, BriefValue) || key != string(long) && size > 0 && x.Value[0] != byte(x.Flags) {
				t.Errorf("%q of %d bytes: %+v, %v", key, size, x, ok)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d keys with %d bytes each time, there are %d: %v", len(got), most, len(want), slices.Collect(maps.Keys(got)))
		}
	}
	// One that wants a key at a time gets all of them, those of a bucket together.
	n, calls := 0, 0
	for next := uint64(0); next < c.s.AllBuckets(); calls++ {
		var err error
		if next, err = c.Skim(next, 1<<30, func(*Brief) bool { n++; return false }); err != nil {
			t.Fatal(err)
		}
	}
	if n != len(want) || calls < 20 {
		t.Errorf("%d keys in %d calls, there are %d", n, calls, len(want))
	}
}

// Skim of an empty store reads many buckets with each chain, and of large objects in it only some hundred bytes, in one chain for each bucket that has some.
func TestSkimCost(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 256<<20, 1)
	cfg := w.config()
	cfg.Objects = 100_000
	c := w.client(0, w.open(0, cfg))
	cost := func() (chains, read uint64, keys int) {
		before := *c.port.Stats()
		keys = len(skimmed(t, c, 1<<30))
		return c.port.Stats().Chains - before.Chains, c.port.Stats().ReadBytes - before.ReadBytes, keys
	}
	table := c.s.IndexBytes()
	chains, read, keys := cost()
	if chains > table/skimRead+8 || read != table || keys != 0 {
		t.Errorf("%d chains and %d bytes for an empty table of %d bytes", chains, read, table)
	}
	const n = 50
	for i := range n {
		wantErr(t, "set", c.Set(fmt.Append(nil, "large", i), make([]byte, 1<<20), Options{}), nil)
	}
	chains, read, keys = cost()
	if chains > table/skimRead+8+n || read > table+n*512 || keys != n {
		t.Errorf("%d chains and %d bytes for %d of %d objects in a table of %d bytes", chains, read, keys, n, table)
	}
	// A call reads little more than what it may, and less if it finds enough.
	before := c.port.Stats().ReadBytes
	if _, err := c.Skim(0, 10_000, func(*Brief) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if read := c.port.Stats().ReadBytes - before; read > 10_000+skimRead {
		t.Errorf("a call that may read 10,000 bytes has read %d", read)
	}
}

// A look at a bucket in which an object was changed meanwhile is not taken for all of it: the key is not to be seen, or another one twice, or one of another bucket.
func TestTornBucket(t *testing.T) {
	_, c := one(t, nil)
	key := b("a")
	wantErr(t, "set", c.Set(key, b("v"), Options{}), nil)
	other := []byte(nil)
	_, at := c.s.Locate(key)
	for i := 0; other == nil; i++ {
		k := fmt.Append(nil, i)
		if _, n := c.s.Locate(k); n != at {
			other = k
		}
	}
	wantErr(t, "set", c.Set(other, b("v"), Options{}), nil)
	k := skimming{c: c, now: c.Clock(), most: 1 << 30, n: c.s.h.Parts[0]}
	k.heads = c.port.Alloc(64 << 10)
	slots := func(key []byte) []byte {
		buf := make([]byte, c.s.slotsLen())
		mn, at := c.s.Locate(key)
		w := slotWord(0)
		d, err := c.Inspect(mn, at)
		for i := range d.Slots {
			if d.Slots[i].Key == string(key) {
				_, err = fmt.Sscanf(d.Slots[i].Word, "%x", &w)
			}
		}
		if err != nil || w == 0 {
			t.Fatal(d, err)
		}
		putWord(buf, 0, uint64(w))
		return buf
	}
	for _, x := range []struct {
		name   string
		second slotWord // beside the key's
		sound  bool
	}{
		{"the key alone", 0, true},
		{"the key twice", slotWord(wordAt(slots(key), 0)), false},
		{"a key of another bucket", slotWord(wordAt(slots(other), 0)), false},
		{"a slot of another fingerprint", slotWord(wordAt(slots(key), 0)) ^ 1<<fpShift, false},
		{"a slot that leads nowhere", 1, false},
	} {
		buf := slots(key)
		putWord(buf, 1, uint64(x.second))
		k.found, k.look = k.found[:0], k.look+1
		if sound, err := k.all(at, buf); sound != x.sound || err != nil || len(k.found) != 1 || string(k.found[0].Key) != "a" {
			t.Errorf("%s: sound is %v, %v: %+v", x.name, sound, err, k.found)
		}
		// A later look does not find it twice.
		k.look++
		if sound, err := k.all(at, slots(key)); !sound || err != nil || len(k.found) != 1 {
			t.Errorf("%s, and again: sound is %v, %v: %+v", x.name, sound, err, k.found)
		}
	}
}

// A tornPort has something happen between the READs of objects and that of their slots, once, or again and again.
type tornPort struct {
	fabric.Port
	between func(object []byte)
	again   bool
}

func (p *tornPort) Do(ops []fabric.Op) error {
	f := p.between
	if f == nil || len(ops) != 2 || ops[0].Kind != fabric.OpRead || ops[1].Kind != fabric.OpRead {
		return p.Port.Do(ops)
	}
	p.between = nil
	if err := p.Port.Do(ops[:1]); err != nil {
		return err
	}
	f(ops[0].Buf)
	if p.again {
		p.between = f
	}
	return p.Port.Do(ops[1:])
}

// An object that is replaced while it is read, whose memory has another by then, has the beginning of one and the rest of the other: its key is found all the same, with its new value.
func TestSkimOfTornObject(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	p := &tornPort{Port: w.port(0)}
	s := w.open(0, w.config())
	c, err := s.Client(cas.New(p, cas.Config{}))
	wantErr(t, "client", err, nil)
	other := w.client(1, w.open(1, w.config()))
	wantErr(t, "set", c.Set(b("k"), b("old"), Options{}), nil)
	p.between = func(object []byte) {
		wantErr(t, "set", other.Set(b("k"), b("new"), Options{}), nil)
		object[len(object)-1] = 0xff // of the value
	}
	got := ""
	_, err = c.Skim(0, 1<<30, func(x *Brief) bool { got += string(x.Key) + " " + string(x.Value) + " "; return true })
	if err != nil || got != "k new " || p.between != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// An object that is replaced at each look at it, by a client that goes on while the lock of its bucket is held, as long as that lets it: its key is found all the same, with its value. So it is where
// sets need no lock.
func TestSkimOfBusyBucket(t *testing.T) {
	for _, open := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
		p := &tornPort{Port: w.port(0), again: true}
		cfg := w.openSlots()
		cfg.OpenSlots, cfg.LockTimeoutNs = open, 10*fabric.Microsecond
		s := w.open(0, cfg)
		c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
		wantErr(t, "client", err, nil)
		other := w.plainClient(0, s)
		if open {
			opened(t, other, "k", "old")
		} else {
			wantErr(t, "set", other.Set(b("k"), b("old"), Options{}), nil)
		}
		sets, refused, last := 0, 0, "old"
		p.between = func(object []byte) {
			value := fmt.Sprint("new ", sets)
			if err := other.Set(b("k"), b(value), Options{}); err == nil {
				sets, last = sets+1, value
				object[len(object)-1] = 0xff // of the value
			} else if wantErr(t, "set", err, lock.ErrTimeout); true {
				refused++
			}
		}
		got := ""
		_, err = c.Skim(0, 1<<30, func(x *Brief) bool { got += string(x.Key) + " " + string(x.Value) + ","; return true })
		if err != nil || got != "k "+last+"," || sets != skimLooks || refused != 1 {
			t.Errorf("open slots %v: %q after %d sets, %q the last, and %d that were refused: %v", open, got, sets, last, refused, err)
		}
		p.between = nil
		wantErr(t, "set", c.Set(b("k"), b("free"), Options{}), nil) // the lock is
	}
}

// Where READs of a chain may be exchanged, the slots after an object do not tell that it was the slot's: each bucket in use is looked at under its lock.
func TestSkimWithoutOrder(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), ExchangeReads: 0.5}, 1, 4<<20, 1)
	cfg := w.config()
	cfg.Objects = 1
	c := w.client(0, w.open(0, cfg))
	const n = 5
	for i := range n {
		wantErr(t, "set", c.Set(keyOf(i), nil, Options{}), nil)
	}
	locks := c.l.Stats().Acquires
	if got := skimmed(t, c, 1<<30); len(got) != n || c.l.Stats().Acquires != locks+c.s.geo.buckets {
		t.Errorf("%d of %d keys with %d locks of %d buckets", len(got), n, c.l.Stats().Acquires-locks, c.s.geo.buckets)
	}
}
