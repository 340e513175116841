package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// An atLocker calls a function once, before it acquires one lock.
type atLocker struct {
	lock.Locker
	at fabric.Addr
	do func()
}

func (l *atLocker) Acquire(h *lock.Hold, r *lock.Request) error {
	if r.Lock == l.at && l.do != nil {
		do := l.do
		l.do = nil
		do()
	}
	return l.Locker.Acquire(h, r)
}

// keysOf returns the keys of a leaf.
func keysOf(t *testing.T, c *Client, p ptr) (keys [][]byte) {
	t.Helper()
	var n node
	wantErr(t, "leaf", c.read(&n, c.leaf, p), nil)
	items, err := n.sorted(nil)
	wantErr(t, "leaf", err, nil)
	for i := range items {
		keys = append(keys, bytes.Clone(items[i].key))
	}
	return keys
}

// The first leaf of an inner node is emptied, and before the separator leads to its left neighbour, which has its keys now, that is emptied,
// too, or passes them on in a split: the separator leads to the node that has the keys in the end.
func TestTheAbsorbingSiblingGoesBeforeTheSeparatorLeadsToIt(t *testing.T) {
	for _, splits := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 16<<20, 2)
		tree := w.open(0, w.tiny())
		c, d := w.client(0, tree), w.client(1, w.open(1, w.tiny()))
		key := func(i int) []byte { return []byte{byte('a' + i/26), byte('a' + i%26)} }
		value := bytes.Repeat([]byte{'v'}, 16)
		for i := range 120 {
			wantErr(t, "put", c.Put(key(2*i), value), nil)
		}
		_, err := c.loadRoot()
		wantErr(t, "root", err, nil)
		// The second inner node of level 1, its first leaf, and the leaf to the left of that.
		var s search
		s.begin(1, nil, false, false)
		var first node
		wantErr(t, "inner node", c.seek(&s, &first, c.inner), nil)
		low, inner := bytes.Clone(first.high.key), first.link
		s.begin(0, low, false, false)
		wantErr(t, "leaf", c.seek(&s, &c.n, c.leaf), nil)
		dying := c.n.self
		s.begin(0, low, true, false)
		wantErr(t, "leaf", c.seek(&s, &c.n, c.leaf), nil)
		sibling := c.n.self
		keys, theirs := keysOf(t, c, dying), keysOf(t, c, sibling)
		for _, k := range keys[1:] {
			wantErr(t, "delete", c.Delete(k), nil)
		}
		hook := &atLocker{Locker: c.l, at: tree.lockAddr(inner)}
		reached := false
		hook.do = func() {
			reached = true
			if !splits {
				for _, k := range theirs {
					wantErr(t, "delete", d.Delete(k), nil)
				}
				return
			}
			for i := range 6 { // keys of the leaf that has died
				wantErr(t, "put", d.Put(append(low[:1:1], low[1]+byte(i)), value), nil)
			}
		}
		c.l = hook
		wantErr(t, "delete", c.Delete(keys[0]), nil)
		if !reached {
			t.Fatal("the inner node is not locked")
		}
		if r := mustBeSound(t, c); !r.Clean() {
			t.Errorf("splits %v: %v", splits, r)
		}
	}
}

// A casPort calls a function once, before the CAS of one word.
type casPort struct {
	fabric.Port
	at fabric.Addr
	do func()
}

func (l *casPort) Do(ops []fabric.Op) error {
	if ops[0].Kind == fabric.OpCAS && ops[0].Addr == l.at && l.do != nil {
		do := l.do
		l.do = nil
		do()
	}
	return l.Port.Do(ops)
}

// A portLocker has its operations executed by another Port.
type portLocker struct {
	lock.Locker
	port fabric.Port
}

func (l *portLocker) Port() fabric.Port { return l.port }

// The new node of a split is emptied and unlinked before the tree gets the root that has its separator: there was none to repair, and the client that makes the root removes it.
func TestTheNodeOnTheRightIsUnlinkedBeforeThereIsARoot(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 16<<20, 2)
	tree := w.open(0, w.tiny())
	c, d := w.client(0, tree), w.client(1, w.open(1, w.tiny()))
	keys := 0
	key := func(i int) []byte { return []byte{byte('a' + i/26), byte('a' + i%26)} }
	hook := &casPort{Port: c.l.Port(), at: tree.h.Parts[0].Base.Add(rootOffset)}
	reached := false
	hook.do = func() {
		reached = true
		var left, right node
		wantErr(t, "left", d.read(&left, d.leaf, ptr(tree.root.Load())), nil)
		wantErr(t, "right", d.read(&right, d.leaf, left.link), nil)
		for _, k := range keysOf(t, d, right.self) {
			wantErr(t, "delete", d.Delete(k), nil)
		}
	}
	c.l = &portLocker{c.l, hook}
	for ; !reached && keys < 100; keys++ {
		wantErr(t, "put", c.Put(key(keys), bytes.Repeat([]byte{'v'}, 16)), nil)
	}
	if !reached {
		t.Fatal("the tree does not grow")
	}
	if r := mustBeSound(t, c); !r.Clean() || len(r.Levels) < 2 {
		t.Errorf("%v", r)
	}
}
