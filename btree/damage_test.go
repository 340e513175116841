package btree

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A client with a pointer to the node that a slot had before finds that this node is gone, and no damage, when the slot's present node is
// being moved and its writer has crashed.
func TestMovingNodeInTheSlotOfAnother(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2)
	tr := w.open(0, w.config())
	c, other := w.client(0, tr), w.client(1, w.open(1, w.config()))
	for i := range 60 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	other.search.begin(0, keyOf(30), false, false)
	wantErr(t, "seek", other.seek(&other.search, &other.n, other.leaf), nil)
	old, low, high := other.n.self, string(other.n.low), string(other.n.high.key)
	for i := range 60 {
		if k := string(keyOf(i)); k >= low && k < high {
			wantErr(t, "delete", c.Delete(keyOf(i)), nil)
		}
	}
	for i := 1000; c.n.self.slot() != old.slot(); i++ {
		if i == 3000 {
			t.Fatal("the slot was not used again")
		}
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
		c.search.begin(0, keyOf(i), false, false)
		wantErr(t, "seek", c.seek(&c.search, &c.n, c.leaf), nil)
	}
	n := c.n
	items, err := n.sorted(nil)
	wantErr(t, "sorted", err, nil)
	m := c.renew(&n, items)
	shadow, err := c.shadowOn(0)
	wantErr(t, "shadow", err, nil)
	used := m.build(c.left)
	finish(c.left, stateShadow, used)
	wantErr(t, "half a rewrite", c.port.Do([]fabric.Op{fabric.Write(tr.slotAddr(shadow, classNode), c.left[:used]),
		fabric.Store(tr.slotAddr(n.self, classNode), uint64(movingWord(m.version, shadow)))}), nil)
	wantMiss(t, other, low)
	wantErr(t, "put", other.Put([]byte(low), []byte("x")), nil)
	wantValue(t, other, low, "x")
}

// Check ends, and says what is wrong, when links lead back; a search ends, too.
func TestLinkThatLeadsBack(t *testing.T) {
	w, c := one(t, 1, nil)
	for i := range 60 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	at := func(i int) node {
		c.search.begin(0, keyOf(i), false, false)
		var n node
		wantErr(t, "seek", c.seek(&c.search, &n, c.leaf), nil)
		return n
	}
	first := at(0).self
	far := at(40)
	put64(far.b, linkAt, uint64(first))
	finish(far.b, stateAlive, far.used)
	w.c.Poke(c.t.slotAddr(far.self, classNode), far.b[:far.used])
	if r, err := c.Check(CheckOptions{}); err != nil || r.Sound() {
		t.Fatal(r, err)
	}
	var s search
	s.begin(0, keyOf(59), false, false)
	s.parent = &inner{}
	_, err := c.walk(&s, &c.n, c.leaf, first)
	wantErr(t, "search", err, ErrCorrupt)
}

// In full memory, what has room is done: values are replaced by others of their size, keys are deleted.
func TestFullMemoryOverwrites(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<10, 1)
	c := w.client(0, w.open(0, w.config()))
	n := 0
	for c.Put(keyOf(n*7919%100000), fmt.Appendf(nil, "%08d", n)) == nil {
		n++
	}
	for i := range n {
		wantErr(t, "overwrite", c.Put(keyOf(i*7919%100000), fmt.Appendf(nil, "%08d", i+1)), nil)
	}
	for i := range n {
		wantErr(t, "delete", c.Delete(keyOf(i*7919%100000)), nil)
	}
	mustBeSound(t, c)
}

// A compute node that knew the empty tree finds the keys of another's bulk load, however many leaves there are, in few steps.
func TestBulkLoadOfAnother(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<20, 2)
	a, b := w.client(0, w.open(0, w.config())), w.client(1, w.open(1, w.config()))
	const n = 12000
	wantMiss(t, a, string(keyOf(n-1)))
	wantErr(t, "load", b.BulkLoad(pairsOf(n), BulkOptions{}), nil)
	wantValue(t, a, string(keyOf(n-1)), string(valueOf(n-1, 0)))
	if a.stats.Rights > 2*maxBeside {
		t.Errorf("%d steps to the right", a.stats.Rights)
	}
}

// A hookPort lets a test come between.
type hookPort struct {
	fabric.Port
	do func(ops []fabric.Op) // called before each chain
}

func (h *hookPort) Do(ops []fabric.Op) error {
	h.do(ops)
	return h.Port.Do(ops)
}

// A reader that comes so late to the shadow of a moving node that this is the next one's already READs the node again.
func TestShadowServesTheNextNode(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	tr := w.open(0, w.config())
	c := w.client(0, tr)
	for i := range 60 {
		wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 0)), nil)
	}
	shadow, err := c.shadowOn(0)
	wantErr(t, "shadow", err, nil)
	wantErr(t, "leaf", c.read(&c.n, c.leaf, tr.first), nil)
	at, alive, version := tr.slotAddr(tr.first, classNode), c.n.word, c.n.version+1
	// Another leaf, that is being written anew to the same version.
	c.search.begin(0, keyOf(59), false, false)
	wantErr(t, "seek", c.seek(&c.search, &c.n, c.leaf), nil)
	items, err := c.n.sorted(nil)
	wantErr(t, "sorted", err, nil)
	m := c.renew(&c.n, items)
	m.version = version
	used := m.build(c.left)
	finish(c.left, stateShadow, used)
	wantErr(t, "half a rewrite", c.port.Do([]fabric.Op{fabric.Write(tr.slotAddr(shadow, classNode), c.left[:used]),
		fabric.Store(at, uint64(movingWord(version, shadow)))}), nil)

	p := w.port(0)
	arrived := false
	reader := clientOn(t, w.open(0, w.config()), &hookPort{p, func(ops []fabric.Op) {
		if !arrived && ops[0].Addr == tr.slotAddr(shadow, classNode) {
			arrived = true
			wantErr(t, "the node arrives", p.Do([]fabric.Op{fabric.Store(at, uint64(alive))}), nil)
		}
	}})
	wantValue(t, reader, string(keyOf(0)), string(valueOf(0, 0)))
	if !arrived {
		t.Error("nobody has READ the shadow")
	}
}
