package objstore

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/declock/declock/memory"
)

// If a test of this file fails, the format has changed.

func TestHashGolden(t *testing.T) {
	for _, x := range []struct {
		key  string
		want uint64
	}{
		{"", 0x6567e90e1f3d8d78}, {"a", 0x9eaf6554d9fabb6c}, {"abcd", 0x9463d2531086c893}, {"abcdefgh", 0xfa409e38bcde7463}, {"abcdefghijklmnop", 0x1def3f5b642a1072},
		{"abcdefghijklmnopq", 0x7e71261cc581ceca}, {"the quick brown fox jumps over the lazy dog", 0xb148b76c37f8896},
	} {
		if got := hashKey([]byte(x.key), 42); got != x.want {
			t.Errorf("{%q, %#x},", x.key, got)
		}
	}
}

// Buckets get about as many keys as chance would give them, whichever bits are taken.
func TestHashSpreads(t *testing.T) {
	const keys, buckets = 1 << 16, 1 << 10
	for _, shift := range []uint{0, 14, 32, 54} {
		var n [buckets]int
		for i := range keys {
			n[hashKey(fmt.Appendf(nil, "user:%d", i), 1)>>shift%buckets]++
		}
		var chi float64
		for _, k := range n {
			d := float64(k) - keys/buckets
			chi += d * d / (keys / buckets)
		}
		// Mean buckets-1, standard deviation sqrt(2*buckets) = 45.
		if chi < buckets-250 || chi > buckets+250 {
			t.Errorf("shift %d: chi square %.0f over %d buckets", shift, chi, buckets)
		}
	}
}

func TestClasses(t *testing.T) {
	last := uint64(0)
	for c := range class(objectClasses) {
		if c.size() <= last || c.size()%chunkUnit != 0 {
			t.Fatalf("class %d: %d bytes after %d", c, c.size(), last)
		}
		if last >= 512 && c.size() > last+last/8 {
			t.Fatalf("class %d: %d bytes after %d is more than an eighth", c, c.size(), last)
		}
		for _, n := range []uint64{last + 1, c.size() - 1, c.size()} {
			if n > last && classFor(n) != c {
				t.Fatalf("classFor(%d) is %d, want %d", n, classFor(n), c)
			}
		}
		last = c.size()
	}
	if last != maxChunk {
		t.Fatal(last)
	}
}

// What is read of a chunk holds the object, and not much more.
func TestSlack(t *testing.T) {
	for c := range class(objectClasses) {
		lo := uint64(headerSize + 1)
		for n := lo; n <= c.size(); n += 1 + n/50 {
			w := makeSlot(1, chunk{off64: 5, class: c}, n, 0)
			if r := w.readLen(); r < n || r > c.size() {
				t.Fatalf("class %d, object of %d: reads %d", c, n, r)
			}
			if r := w.readLen(); c > 8 && n > (c-1).size() && r > n+n/28+8 {
				t.Errorf("class %d, object of %d: reads %d", c, n, r)
			}
		}
	}
}

func TestSlotGolden(t *testing.T) {
	w := makeSlot(0x12aa, chunk{off64: 0x3_1234_5678, class: 9}, 600, 0x2b)
	if got := uint64(w); got != 0x955095af12345678 {
		t.Errorf("%#x", got)
	}
	if w.fp() != 0x12aa || w.class() != 9 || w.tag() != 0x2b || w.chunk().off64 != 0x3_1234_5678 || w.readLen() < 600 {
		t.Error(w)
	}
	l := makeLink(chunk{off64: 0x123, class: overflowClass})
	if ch, ok := l.chunk(); uint64(l) != 0x4f78_0000_0000_48c0 || !ok || ch.off64 != 0x123 || ch.class != overflowClass {
		t.Errorf("%#x", uint64(l))
	}
}

func TestHeaderGolden(t *testing.T) {
	h := header{unique: 0x0102030405060708, access: access{second: 0x11121314}, expiry: expiry{second: 0x21222324}, flags: 0x31323334,
		valueLen: 0x41, keyLen: 3, class: 5, check: 0x51525354}
	var b [headerSize]byte
	h.encode(b[:])
	const golden = "0807060504030201" + "14131211" + "24232221" + "34333231" + "41000000" + "03050000" + "54535251"
	if got := hex.EncodeToString(b[:]); got != golden {
		t.Errorf("%s\nwant %s", got, golden)
	}
	var d header
	if err := d.decode(b[:], makeSlot(0, chunk{off64: 1, class: 5}, 384, 0)); err != nil || d != h {
		t.Error(d, err)
	}
}

// The word of access and expiry, in both forms. Words that programs have written which count in seconds are read as they meant them.
func TestMetaGolden(t *testing.T) {
	for _, x := range []struct {
		expiry expiry
		access uint32
		word   uint64
		seen   uint32 // access as it is read, a day later
	}{
		{expiry{}, 1_800_000_000, 0x6b49d200, 1_800_000_000},
		{expiry{}, 1 << 31, 1 << 31, 1 << 31},
		{expiry{second: 1_800_000_100}, 1_800_000_003, 0x6b49d264_6b49d203, 1_800_000_003},
		{expiry{1_800_000_100, 999}, 1_800_000_003, 0x6b49d264_fcf27480, 1_800_000_000},
		{expiry{1_800_000_100, 1}, 1_800_000_003, 0x6b49d264_80327480, 1_800_000_000},
		{expiry{second: 1 << 31}, 1<<31 + 5, 0x80000000_80000001, 1<<31 + 4},
	} {
		if got := metaWord(x.expiry, access{second: x.access}); got != x.word {
			t.Errorf("%+v, %d: %#x, want %#x", x.expiry, x.access, got, x.word)
		}
		e, a := fromMeta(x.word)
		if got := a.at(x.access + 86400); e != x.expiry || got != x.seen {
			t.Errorf("%#x is read as %+v, %d", x.word, e, got)
		}
		if got := a.at(x.access - 100); got != x.seen { // by a clock that is behind
			t.Errorf("%#x: access %d", x.word, got)
		}
		if mask := expiryMask(x.word); x.word&mask&fineMark != metaWord(x.expiry, access{second: x.access + 1000})&mask&fineMark {
			t.Errorf("%#x: mask %#x", x.word, mask)
		}
	}
}

func TestGeometryGolden(t *testing.T) {
	g := geometry{lockSize: 72, slots: 14, bucketSize: 192, nodes: 2, buckets: 1000, seed: 5, limit: 6, maxValue: 7, id: 8}
	i := g.info(1, false)
	if i != (memory.Info{0x04020100c00e0048, 1000, 5, 6, 7, 8}) {
		t.Errorf("%#x", i)
	}
	d, err := decodeGeometry(&memory.Entry{Info: i, Length: g.tableSize()}, 1)
	if err != nil || d != g {
		t.Error(d, err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, headerSize), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, word uint64) {
		if len(b) < headerSize {
			return
		}
		w := slotWord(word)
		var h header
		if err := h.decode(b, w); err == nil && (h.size() > w.readLen() || h.keyLen == 0 || h.keyLen > MaxKey) {
			t.Fatalf("%+v in %v", h, w)
		}
		if w.readLen() > w.class().size() || w.class().size() > maxChunk {
			t.Fatal(w)
		}
		if ch, ok := linkWord(word).chunk(); ok && ch.off64 > maxOffset64 {
			t.Fatal(ch)
		}
	})
}
