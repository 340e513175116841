package replay

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

const testKey = 0x1234567890abcdef

func block(n int, kind blockKind, key uint64, s stamp) []byte {
	b := make([]byte, n)
	putBlock(b, kind, key, s)
	return b
}

// TestEveryTearIsFound: two versions of a value, mixed at any 8-byte boundary in either order, cut
// anywhere, or with any byte changed.
func TestEveryTearIsFound(t *testing.T) {
	a, b := newWriter(1, 1), newWriter(1, 2)
	for n := MinBlock; n < 400; n += 1 + n/9 {
		v1 := block(n, kindBase, testKey, newStamp(a, 5))
		v2 := block(n, kindBase, testKey, newStamp(b, 9))
		longer := block(n+8, kindBase, testKey, newStamp(b, 9))
		if _, _, what := checkValue(v1, testKey, a); what != "" {
			t.Fatalf("%d bytes: a whole value: %s", n, what)
		}
		bad := func(v []byte, how string, at int) {
			if bytes.Equal(v, v1) || bytes.Equal(v, v2) {
				return // magic, length and key are the same in both
			}
			if _, _, what := checkValue(v, testKey, a); what == "" {
				t.Fatalf("%d bytes, %s at %d: not found", n, how, at)
			}
		}
		for at := 8; at < n; at += 8 {
			bad(append(bytes.Clone(v1[:at]), v2[at:]...), "mixed", at)
			bad(append(bytes.Clone(v2[:at]), v1[at:]...), "mixed", at)
			bad(append(bytes.Clone(v1[:at]), longer[at:]...), "mixed with a longer one", at)
			hole := bytes.Clone(v1)
			copy(hole[at:min(at+8, n)], v2[at:]) // one word of another version
			bad(hole, "one word mixed", at)
		}
		for at := range n {
			bad(v1[:at], "cut", at)
			flipped := bytes.Clone(v1)
			flipped[at] ^= 0x10
			bad(flipped, "byte changed", at)
		}
		bad(append(bytes.Clone(v1), v2...), "two values", n)
		bad(append(bytes.Clone(v1), 0), "a byte too many", n)
		if _, _, what := checkValue(v1, testKey+1, a); what == "" {
			t.Fatal("a value of another key: not found")
		}
	}
}

// TestValueGolden: values outlive a process, so their form must not change.
func TestValueGolden(t *testing.T) {
	want := []byte{
		0x01, 0x0c, 0xc1, 0xde, 43, 0, 0, 0,
		0xef, 0xcd, 0xab, 0x90, 0x78, 0x56, 0x34, 0x12,
		7, 0, 0, 0, 0, 2, 0, 1,
	}
	got := block(43, kindBase, testKey, newStamp(newWriter(1, 2), 7))
	if !bytes.Equal(got[:offSeal], want) {
		t.Errorf("header % x", got[:offSeal])
	}
	if tail := got[offSeal:]; !bytes.Equal(tail, goldenTail) {
		t.Errorf("seal, pattern and end %#v", tail)
	}
}

// TestPiecesAroundValue: whatever is appended and prepended by whom, the value checks; without any
// one block of this client it does not agree with what the client knows.
func TestPiecesAroundValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		me, other := newWriter(0, 1), newWriter(0, 2)
		tr := newTracker(16, me)
		count := uint64(1)
		base := newStamp(me, count)
		blocks := [][]byte{block(rapid.IntRange(MinBlock, 200).Draw(t, "n"), kindBase, testKey, base)}
		tr.wrote(testKey, base)
		isMine := []bool{true}
		for range rapid.IntRange(0, 8).Draw(t, "pieces") {
			count++
			w := me
			if rapid.Bool().Draw(t, "other") {
				w = other
			}
			p := block(rapid.IntRange(MinBlock, 100).Draw(t, "size"), kindPiece, testKey, newStamp(w, count))
			if w == me {
				tr.added(testKey)
			}
			if rapid.Bool().Draw(t, "append") {
				blocks, isMine = append(blocks, p), append(isMine, w == me)
			} else {
				blocks, isMine = append([][]byte{p}, blocks...), append([]bool{w == me}, isMine...)
			}
		}
		info, at, what := checkValue(bytes.Join(blocks, nil), testKey, me)
		if what == "" {
			what = tr.read(testKey, info)
		}
		if what != "" {
			t.Fatalf("at %d: %s", at, what)
		}
		for i := range blocks {
			if !isMine[i] {
				continue
			}
			less := append(append([][]byte(nil), blocks[:i]...), blocks[i+1:]...)
			again := *tr
			again.slots = append([]knowledge(nil), tr.slots...)
			info, _, what := checkValue(bytes.Join(less, nil), testKey, me)
			if what == "" {
				what = again.read(testKey, info)
			}
			if what == "" {
				t.Fatalf("block %d of %d is missing: not found", i, len(blocks))
			}
		}
	})
}

// TestTrackerRules: what a client has seen replaced or removed must not come back.
func TestTrackerRules(t *testing.T) {
	me, x, y := newWriter(0, 1), newWriter(0, 2), newWriter(0, 3)
	seen := func(w writer, n uint64) valueInfo { return valueInfo{base: newStamp(w, n)} }
	for _, c := range []struct {
		name  string
		steps func(tr *tracker) string
		found bool
	}{
		{"the same twice", func(tr *tracker) string { tr.read(1, seen(x, 1)); return tr.read(1, seen(x, 1)) }, false},
		{"a writer goes on", func(tr *tracker) string { tr.read(1, seen(x, 1)); return tr.read(1, seen(x, 2)) }, false},
		{"a writer goes back", func(tr *tracker) string {
			tr.read(1, seen(x, 2))
			tr.read(1, seen(y, 1))
			return tr.read(1, seen(x, 1))
		}, true},
		{"a replaced value returns", func(tr *tracker) string {
			tr.read(1, seen(x, 1))
			tr.read(1, seen(y, 1))
			return tr.read(1, seen(x, 1))
		}, true},
		{"two writers in turn", func(tr *tracker) string {
			tr.read(1, seen(x, 1))
			tr.read(1, seen(y, 1))
			return tr.read(1, seen(x, 2))
		}, false},
		{"read your write", func(tr *tracker) string { tr.wrote(1, newStamp(me, 4)); return tr.read(1, seen(me, 4)) }, false},
		{"an own older write", func(tr *tracker) string {
			tr.wrote(1, newStamp(me, 3))
			tr.wrote(1, newStamp(me, 4))
			return tr.read(1, seen(me, 3))
		}, true},
		{"what my write replaced", func(tr *tracker) string {
			tr.read(1, seen(x, 3))
			tr.wrote(1, newStamp(me, 4))
			return tr.read(1, seen(x, 3))
		}, true},
		{"another's write over mine", func(tr *tracker) string { tr.wrote(1, newStamp(me, 4)); return tr.read(1, seen(x, 3)) }, false},
		{"mine again after another's", func(tr *tracker) string {
			tr.wrote(1, newStamp(me, 4))
			tr.read(1, seen(x, 3))
			return tr.read(1, seen(me, 4))
		}, true},
		{"back after a miss", func(tr *tracker) string { tr.read(1, seen(x, 1)); tr.missed(1); return tr.read(1, seen(x, 1)) }, true},
		{"mine back after a miss", func(tr *tracker) string { tr.wrote(1, newStamp(me, 1)); tr.missed(1); return tr.read(1, seen(me, 1)) }, true},
		{"new after a miss", func(tr *tracker) string { tr.read(1, seen(x, 1)); tr.missed(1); return tr.read(1, seen(x, 2)) }, false},
		{"outcome unknown", func(tr *tracker) string { tr.wrote(1, newStamp(me, 4)); tr.forget(1); return tr.read(1, seen(me, 3)) }, false},
		{"an earlier run's", func(tr *tracker) string {
			tr.wrote(1, newStamp(me, 4))
			return tr.read(1, valueInfo{base: newStamp(newWriter(9, 1), 1)})
		}, false},
		{"pushed out by another key", func(tr *tracker) string {
			tr.wrote(1, newStamp(me, 4))
			tr.wrote(17, newStamp(me, 5))
			return tr.read(1, seen(me, 3))
		}, false},
	} {
		if what := c.steps(newTracker(16, me)); (what != "") != c.found {
			t.Errorf("%s: %q", c.name, what)
		}
	}
}

// FuzzCheckValue: no bytes crash the check.
func FuzzCheckValue(f *testing.F) {
	f.Add(block(64, kindBase, testKey, 1))
	f.Add(append(block(40, kindPiece, testKey, 1), block(41, kindBase, testKey, 2)...))
	f.Add([]byte{0x01, 0x0c, 0xc1, 0xde, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, v []byte) {
		_, at, what := checkValue(v, testKey, 1)
		if at > len(v) || (len(v) == 0 && what == "") {
			t.Fatal(at, what)
		}
	})
}

var goldenTail = []byte{0xbd, 0xf8, 0xc5, 0x62, 0xdc, 0xc6, 0x15, 0x33, 0xd2, 0x74, 0x10,
	0x42, 0x7, 0x3a, 0x9d, 0x23, 0x39, 0xea, 0xcc}
