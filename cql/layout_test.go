package cql

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// The encodings are a memory format: these bytes do not change.
func TestGolden(t *testing.T) {
	c3 := Layout{CapacityBits: 3, VersionBits: 16}
	c11 := Layout{CapacityBits: 11, VersionBits: 27}
	c1 := Layout{CapacityBits: 1, VersionBits: 2}
	for _, g := range []struct {
		what string
		got  uint64
		want uint64
	}{
		{"header", uint64(c3.Header(5, 3, 2, 1)), 0x0000_0000_0005_3201},
		{"header, all counts full", uint64(c3.Header(0, 15, 15, 255)), 0xffff},
		{"header, c=1", uint64(c1.Header(5, 3, 2, 1)), 5<<12 | 3<<10 | 2<<8 | 1},
		{"header, c=11", uint64(c11.Header(5, 2048, 1, 200)), 5<<32 | 2048<<20 | 1<<8 | 200},
		{"acquire shared", c3.acquireDelta(lock.Shared), 0x1000},
		{"acquire exclusive", c3.acquireDelta(lock.Exclusive), 0x1100},
		{"release shared", c3.releaseDelta(lock.Shared), 0xf000},
		{"release exclusive", c3.releaseDelta(lock.Exclusive), 0xef00},
		{"entry", uint64(MakeEntry(lock.Exclusive, fabric.Client(2, 7), 9, 0x1234)), 1<<63 | 0x2007<<43 | 9<<16 | 0x1234},
		{"entry, all fields full", uint64(MakeEntry(lock.Exclusive, fabric.Client(255, 4095), 1<<27-1, 0xffff)), 1<<64 - 1},
		{"entry shared", uint64(MakeEntry(lock.Shared, fabric.Client(1, 0), 1, 0)), 0x1000<<43 | 1<<16},
		{"token", uint64(Token(0, 4, 3)), 5<<10 | 3},
		{"token, all fields full", uint64(Token(MaxGeneration, 1<<44-2, MaxSeq)), 1<<64 - 1},
		{"first token", uint64(Token(0, 0, 0)), 1 << 10},
		{"first token of the next memory", uint64(Token(1, 0, 0)), 1<<54 | 1<<10},
		{"stamp", uint64(KnownStamp(7)), 0x1_0007},
		{"lock size, c=3", c3.Lock().Size, 72},
		{"lock size, c=11", c11.Lock().Size, 8 + 8*2048},
		{"entry address", c3.entryAddr(fabric.At(1, 64), 10).Offset(), 64 + 8 + 8*2},
		{"grant kind", uint64(msgGrant), 0x100},
		{"quiesced kind", uint64(msgQuiesced), 0x106},
	} {
		if g.got != g.want {
			t.Errorf("%s: %#x, want %#x", g.what, g.got, g.want)
		}
	}
	if m := grant(fabric.At(3, 8), 9, KnownStamp(5), KnownStamp(6), nil); m.Kind != msgGrant || m.Body != [7]uint64{3<<48 | 8, 9, 0x1_0005, 0x1_0006} {
		t.Errorf("grant: %+v", m)
	}
	if s := c3.FormatHeader(c3.Header(5, 3, 2, 1)); s != "qhead=5 qsize=3 wcnt=2 reset=1" {
		t.Error(s)
	}
	if s := MakeEntry(lock.Exclusive, fabric.Client(2, 7), 9, 4).String(); s != "exclusive cn2/7 version=9 stamp=4" {
		t.Error(s)
	}
}

// Reasons have names, also those that are none.
func TestReasonNames(t *testing.T) {
	for r := QueueOverflow; r < numReasons; r++ {
		if r.String() == "" || r.String() == Reason(0).String() {
			t.Errorf("reason %d is %q", r, r)
		}
	}
	if Reason(99).String() != "unknown reason" || numReasons.String() != "unknown reason" {
		t.Error("a reason that is none has a name")
	}
}

// "All entries are initialized" (here: to zero), and zeroed memory is a free
// lock: no index of any layout has the version 0 that zeroed entries show.
func TestZeroIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := drawLayout(t)
		if y.Head(0) != 0 || y.Size(0) != 0 || y.Writers(0) != 0 || Header(0).ResetID() != 0 {
			t.Fatal("header 0 is no free lock")
		}
		if i := rapid.Uint64().Draw(t, "index"); y.Version(i) == 0 || y.freshness(0, i) >= 0 {
			t.Fatalf("index %d has version 0", i)
		}
	})
}

func drawLayout(t *rapid.T) Layout {
	return Layout{
		CapacityBits: uint8(rapid.IntRange(MinCapacityBits, MaxCapacityBits).Draw(t, "c")),
		VersionBits:  uint8(rapid.IntRange(MinVersionBits, MaxVersionBits).Draw(t, "v")),
	}
}

// Every field comes back, whatever the others are.
func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := drawLayout(t)
		head := rapid.Uint64Max(1<<y.headBits()-1).Draw(t, "head")
		size := rapid.Uint64Max(y.countMask()).Draw(t, "size")
		writers := rapid.Uint64Max(y.countMask()).Draw(t, "writers")
		reset := fabric.CNID(rapid.Uint8().Draw(t, "reset"))
		h := y.Header(head, size, writers, reset)
		if y.Head(h) != head || y.Size(h) != size || y.Writers(h) != writers || h.ResetID() != reset {
			t.Fatalf("%+v: %d %d %d %d became %s", y, head, size, writers, reset, y.FormatHeader(h))
		}
	})
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := lock.Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
		c := fabric.Client(fabric.CNID(rapid.Uint8().Draw(t, "cn")), rapid.IntRange(0, fabric.MaxClientIndex).Draw(t, "index"))
		v := uint32(rapid.Uint64Max(1<<MaxVersionBits-1).Draw(t, "version"))
		s := rapid.Uint16().Draw(t, "stamp")
		if e := MakeEntry(m, c, v, s); e.Mode() != m || e.Client() != c || e.Version() != v || e.Stamp() != s {
			t.Fatalf("%v %v %d %d became %v", m, c, v, s, e)
		}
	})
}

// Section 4.1: "Overflows of fields in less significant bits corrupt the content of fields in
// more significant bits." With up to 2^(c+1)-1 participants, in any sequence of
// acquisitions and releases, no carry or borrow leaves a field, the head may run
// over, and no delta touches the reset ID.
func TestDeltasKeepFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := drawLayout(t)
		mask := uint64(1)<<y.headBits() - 1
		// Begin anywhere, also just before the head runs over, and nearly full.
		head := (rapid.Uint64Max(64).Draw(t, "head") - 32) & mask
		writers := rapid.Uint64Max(y.countMask()).Draw(t, "writers")
		readers := rapid.Uint64Max(y.countMask()-writers).Draw(t, "readers")
		reset := fabric.CNID(rapid.Uint8().Draw(t, "reset"))
		h := y.Header(head, readers+writers, writers, reset)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			m := lock.Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
			n := &readers
			if m == lock.Exclusive {
				n = &writers
			}
			if rapid.Bool().Draw(t, "acquire") {
				if readers+writers == y.countMask() {
					continue
				}
				*n++
				h += Header(y.acquireDelta(m))
			} else {
				if *n == 0 {
					continue
				}
				*n--
				head = (head + 1) & mask
				h += Header(y.releaseDelta(m))
			}
			if h != y.Header(head, readers+writers, writers, reset) {
				t.Fatalf("%+v: %s, want head %d, %d readers, %d writers, reset %d", y, y.FormatHeader(h), head, readers, writers, reset)
			}
		}
	})
}

// Section 4.3: the version "represents the number of traversals". It is that
// of the round, modulo the cycle; never 0; and within a cycle an earlier round has a
// smaller one, so that "older" and "newer" are what freshness says.
func TestVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := drawLayout(t)
		i := rapid.Uint64Max(y.maxIndex()-1).Draw(t, "index")
		round, cycle := i>>y.CapacityBits, uint64(1)<<y.VersionBits-1
		if v := y.Version(i); uint64(v) != round%cycle+1 || v > 1<<y.VersionBits-1 {
			t.Fatalf("%+v: index %d has version %d", y, i, v)
		}
		if y.exhausted(i) != (round%cycle == cycle-1) {
			t.Fatalf("%+v: exhausted(%d) is %v", y, i, y.exhausted(i))
		}
		e := MakeEntry(lock.Shared, 1, y.Version(i), 0)
		if y.freshness(e, i) != 0 {
			t.Fatal("an entry is not fresh at its own index")
		}
		if next := i + y.Capacity(); !y.exhausted(i) {
			if y.Slot(next) != y.Slot(i) || y.freshness(e, next) != -1 {
				t.Fatalf("%+v: the entry of %d is not older than that of %d", y, i, next)
			}
			if y.freshness(MakeEntry(lock.Shared, 1, y.Version(next), 0), i) != 1 {
				t.Fatalf("%+v: the entry of %d is not newer than that of %d", y, next, i)
			}
		}
	})
}

// Where a queue goes on after a reset: behind all indices that were given out,
// at the start of a round, never a exhausted one, and with a version that no entry of
// this cycle in that slot has.
func TestFreshIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := drawLayout(t)
		used := rapid.Uint64Max(y.maxIndex()-1).Draw(t, "used")
		f := y.freshIndex(used)
		switch {
		case f < used, y.Slot(f) != 0, y.exhausted(f):
			t.Fatalf("%+v: after %d indices goes on at %d", y, used, f)
		case f > used+2*y.Capacity():
			t.Fatalf("%+v: after %d indices goes on as far as %d", y, used, f)
		case f>>y.headBits() != 0:
			t.Fatalf("%+v: after %d indices goes on at %d, beyond the head's field", y, used, f)
		}
		if used == 0 {
			return
		}
		cycle := y.versions() << y.CapacityBits
		earlier := used - 1 - rapid.Uint64Max(min(used-1, cycle-1)).Draw(t, "back")
		if earlier/cycle != f/cycle {
			return // of another cycle: its entries are cleared before this one begins
		}
		for s := range y.Capacity() {
			if y.Version(earlier) == y.Version(f+s) {
				t.Fatalf("%+v: index %d of before and %d have one version", y, earlier, f+s)
			}
		}
	})
}

// Tokens order grants by the memory, then by index, then by seq, up to the last index of every layout.
func TestTokensGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := drawLayout(t)
		i := rapid.Uint64Max(y.maxIndex()-2).Draw(t, "index")
		s := rapid.Uint16Max(MaxSeq-1).Draw(t, "seq")
		b := rapid.Uint32Max(MaxGeneration-1).Draw(t, "generation")
		if !(0 < Token(b, i, s) && Token(b, i, s) < Token(b, i, s+1) && Token(b, i, MaxSeq) < Token(b, i+1, 0) && Token(b, i+1, MaxSeq) < Token(b+1, 0, 0)) {
			t.Fatalf("%+v: tokens at %d, %d, %d", y, b, i, s)
		}
	})
}

func TestLayoutValidate(t *testing.T) {
	for _, c := range []struct {
		y  Layout
		ok bool
	}{
		{Layout{}, false}, {Layout{0, 16}, false}, {Layout{1, 2}, true}, {Layout{11, 27}, true},
		{Layout{12, 16}, false}, {Layout{3, 1}, false}, {Layout{3, 28}, false}, {Layout{255, 255}, false},
	} {
		if err := c.y.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.y, err)
		}
	}
	for _, c := range []struct {
		n    int
		bits uint8
	}{{0, 1}, {1, 1}, {2, 1}, {3, 2}, {8, 3}, {9, 4}, {255, 8}, {2048, 11}} {
		y, err := LayoutFor(c.n)
		if err != nil || y.CapacityBits != c.bits || y.Validate() != nil {
			t.Errorf("LayoutFor(%d) is %+v, %v", c.n, y, err)
		}
	}
	if _, err := LayoutFor(2049); err == nil {
		t.Error("a queue for 2049 participants")
	}
}

// "If the difference between two timestamps is greater than half of the maximum
// timestamp value, the timestamp with the larger value is considered to be the
// earlier timestamp" (section 5.3). At exactly half neither is later; the first is returned.
func TestEarliest(t *testing.T) {
	k := KnownStamp
	for _, c := range []struct{ a, b, want Stamp }{
		{0, 0, 0}, {0, k(5), k(5)}, {k(5), 0, k(5)}, {0, k(0), k(0)},
		{k(5), k(6), k(5)}, {k(6), k(5), k(5)}, {k(5), k(5), k(5)},
		{k(0), k(32767), k(0)}, {k(32767), k(0), k(0)},
		{k(0), k(32769), k(32769)}, {k(32769), k(0), k(32769)},
		{k(65535), k(0), k(65535)}, {k(0), k(65535), k(65535)},
	} {
		if got := Earliest(c.a, c.b); got != c.want {
			t.Errorf("Earliest(%#x, %#x) is %#x, want %#x", c.a, c.b, got, c.want)
		}
	}
	if a, b := Earliest(k(0), k(32768)), Earliest(k(32768), k(0)); !a.Known() || !b.Known() {
		t.Error("a stamp got lost at half the range")
	}
	rapid.Check(t, func(t *rapid.T) {
		// Within half a range it is the minimum of times: associative and commutative.
		when := rapid.Uint64Max(1<<20).Draw(t, "when")
		var s [3]Stamp
		least := Stamp(0)
		first := uint64(1 << 40)
		for i := range s {
			if rapid.IntRange(0, 3).Draw(t, "absent") == 0 {
				continue
			}
			d := rapid.Uint64Max(32767).Draw(t, "later")
			s[i] = KnownStamp(uint16(when + d))
			if d < first {
				first, least = d, s[i]
			}
		}
		for _, got := range []Stamp{
			Earliest(s[0], Earliest(s[1], s[2])), Earliest(Earliest(s[0], s[1]), s[2]),
			Earliest(s[2], Earliest(s[0], s[1])), Earliest(Earliest(s[1], s[2]), s[0]),
		} {
			if got != least {
				t.Fatalf("earliest of %#x is %#x, want %#x", s, got, least)
			}
		}
	})
}
