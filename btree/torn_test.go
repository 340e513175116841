package btree

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// leftBehind returns a client whose index cache still leads to a leaf that is gone by now, the ptr of that, and a key that it had.
func leftBehind(t *testing.T) (w *world, late *Client, old ptr, key string) {
	w = newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	c := w.client(0, w.open(0, w.config()))
	late = w.client(1, w.open(1, w.config()))
	for i := range 60 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	late.search.begin(0, keyOf(30), false, false)
	wantErr(t, "seek", late.seek(&late.search, &late.n, late.leaf), nil)
	old, low, high := late.n.self, string(late.n.low), string(late.n.high.key)
	for i := range 60 {
		if k := string(keyOf(i)); k >= low && k < high {
			key = k
			wantErr(t, "delete", c.Delete(keyOf(i)), nil)
		}
	}
	return w, late, old, key
}

// The WRITE of a new node into the slot of one that is gone was cut short, by a crash of the writer or a restart of the memory node. A client that comes
// with a ptr of the slot's earlier life finds that the node is gone, whichever blocks of the WRITE have arrived.
func TestHalfWrittenNodeInTheSlotOfAnother(t *testing.T) {
	ops := map[string]func(c *Client, key string) error{
		"get": func(c *Client, key string) error { _, err := c.Get([]byte(key)); return ignore(err, ErrNotFound) },
		"put": func(c *Client, key string) error { return c.Put([]byte(key), []byte("x")) },
		"scan": func(c *Client, key string) error {
			return c.Each(Range{From: []byte(key), Descending: true}, func(_, _ []byte) bool { return true })
		},
	}
	for blocks := 1; blocks < 1<<4-1; blocks++ { // the word, self, the rest of the header, the records
		for name, op := range ops {
			t.Run(fmt.Sprintf("%04b/%s", blocks, name), func(t *testing.T) {
				w, late, old, key := leftBehind(t)
				m := image{self: old.next(), version: 1, low: []byte("a"), items: []item{{raw: make([]byte, 40)}}}
				b := make([]byte, late.t.geo.nodeSize)
				used := m.build(b)
				finish(b, stateAlive, used)
				for i, block := range [][2]int{{0, 8}, {8, 16}, {16, headerSize}, {headerSize, used}} {
					if blocks>>i&1 != 0 {
						w.c.Poke(late.t.slotAddr(old, classNode).Add(uint64(block[0])), b[block[0]:block[1]])
					}
				}
				wantErr(t, name, op(late, key), nil)
				if torn := late.stats.Torn; blocks&2 != 0 && torn > 0 {
					t.Errorf("%d READs of a slot that says whose it is", torn)
				}
				wantErr(t, "put", late.Put([]byte(key), []byte("y")), nil)
				wantValue(t, late, key, "y")
				mustBeSound(t, late)
			})
		}
	}
}

// While a scan is at one leaf, the next one is emptied, and a new node in its slot is half written. The scan goes on behind it.
func TestScanMeetsAHalfWrittenNode(t *testing.T) {
	w, c := one(t, 1, nil)
	for i := range 60 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	other := w.client(0, c.t)
	var first, gone, rest int
	seen := 0
	err := c.Each(Range{}, func(_, _ []byte) bool {
		if seen++; seen > 1 {
			return true
		}
		s := &other.search
		s.begin(0, keyOf(0), false, false)
		wantErr(t, "seek", other.seek(s, &other.n, other.leaf), nil)
		next, low := other.n.link, string(other.n.high.key)
		s.begin(0, []byte(low), false, false)
		wantErr(t, "seek", other.seek(s, &other.n, other.leaf), nil)
		high := string(other.n.high.key)
		for i := range 60 {
			switch k := string(keyOf(i)); {
			case k < low:
				first++
			case k < high:
				gone++
				wantErr(t, "delete", other.Delete(keyOf(i)), nil)
			default:
				rest++
			}
		}
		m := image{self: next.next(), version: 1, low: []byte("a"), items: []item{{raw: make([]byte, 40)}}}
		b := make([]byte, c.t.geo.nodeSize)
		finish(b, stateAlive, m.build(b))
		w.c.Poke(c.t.slotAddr(next, classNode), b[:8]) // only the word has arrived
		return true
	})
	wantErr(t, "scan", err, nil)
	if gone == 0 || rest == 0 || seen != first+rest {
		t.Errorf("%d keys were seen: %d of the first leaf, %d of those behind the second, which had %d", seen, first, rest, gone)
	}
	if c.stats.Torn == 0 {
		t.Error("the slot is not torn")
	}
}

// However many torn slots a client meets in its life, each search has all its tries.
func TestTornSlotsOfEarlierSearches(t *testing.T) {
	var s search
	for range 2 * maxTorn {
		s.begin(0, nil, false, false)
		if !s.gone(&tornError{}) {
			t.Fatal("a torn slot is taken for damage because earlier searches have met others")
		}
	}
}

// A node of the tree that is damaged is an error for each client that comes to it, on any way, after a bounded number of READs.
func TestDamagedNode(t *testing.T) {
	w, c := one(t, 1, nil)
	for i := range 60 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	for _, i := range []int{0, 30, 59} { // the leftmost leaf, one in the middle, the last
		c.search.begin(0, keyOf(i), false, false)
		wantErr(t, "seek", c.seek(&c.search, &c.n, c.leaf), nil)
		at := c.t.slotAddr(c.n.self, classNode).Add(headerSize + 8)
		before := w.c.PeekWord(at)
		w.c.Poke(at, []byte{^byte(before)})
		reads := c.port.Stats().Total()
		_, err := c.Get(keyOf(i))
		wantErr(t, "get", err, ErrCorrupt)
		wantErr(t, "put", c.Put(keyOf(i), nil), ErrCorrupt)
		wantErr(t, "delete", c.Delete(keyOf(i)), ErrCorrupt)
		wantErr(t, "scan", c.Each(Range{}, func(_, _ []byte) bool { return true }), ErrCorrupt)
		if n := c.port.Stats().Total() - reads; n > 8*maxTorn*maxTries {
			t.Errorf("%d operations", n)
		}
		if r, err := c.Check(CheckOptions{}); err != nil && !errors.Is(err, ErrCorrupt) || err == nil && r.Sound() {
			t.Errorf("check: %v, %v", r, err)
		}
		w.c.Poke(at, []byte{byte(before)})
		wantValue(t, c, string(keyOf(i)), string(valueOf(i, 0)))
	}
	mustBeSound(t, c)
}
