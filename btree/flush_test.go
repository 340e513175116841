package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// Flush removes all keys of a tree of several levels, with their large values, and gives their slots back.
func TestFlush(t *testing.T) {
	_, c := one(t, 2, nil)
	if n, err := c.Flush(); n != 0 || err != nil {
		t.Fatalf("flush of an empty tree: %d, %v", n, err)
	}
	for range 2 {
		for i := range 300 {
			value := valueOf(i, 1)
			if i%5 == 0 {
				value = bytes.Repeat([]byte{'x'}, 300)
			}
			wantErr(t, "put", c.Put(keyOf(i), value), nil)
		}
		if n, err := c.Flush(); n != 300 || err != nil {
			t.Fatalf("flush: %d, %v", n, err)
		}
		if got := all(t, c, Range{}); len(got) > 0 {
			t.Errorf("there is %v", got)
		}
		r := mustBeSound(t, c)
		if !r.Clean() {
			t.Errorf("%v", r)
		}
		for _, m := range r.Memory {
			if m.Elsewhere > 0 {
				t.Errorf("slots are lost: %v", r)
			}
		}
	}
}

// Whatever others do between any two locks of a flush: what they have put stays if it was put behind it, and the tree is sound.
func TestFlushBesideOthers(t *testing.T) {
	for at, more := 1, true; more; at++ {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 16<<20, 2)
		tree := w.open(0, w.config())
		c, d := w.client(0, tree), w.client(1, w.open(1, w.config()))
		for i := range 60 {
			wantErr(t, "put", c.Put(keyOf(i), valueOf(i, 1)), nil)
		}
		other := func(i int) {
			wantErr(t, "put", d.Put(keyOf(i), bytes.Repeat([]byte{'y'}, 100)), nil)
			if err := d.Delete(keyOf(59 - i)); err != nil {
				wantErr(t, "delete", err, ErrNotFound)
			}
		}
		calls := 0
		more = false
		c.l = &betweenLocker{c.l, func() {
			if calls++; calls == at {
				more = true
				for i := range 8 {
					other(7 * i)
				}
			}
		}}
		if _, err := c.Flush(); err != nil {
			t.Fatalf("flush, others before lock %d: %v", at, err)
		}
		if !more {
			break
		}
		mustBeSound(t, d)
		for _, pair := range all(t, d, Range{}) {
			if !bytes.HasSuffix([]byte(pair), []byte("yyy")) {
				t.Errorf("others before lock %d: %s is left", at, pair)
			}
		}
	}
}

// A betweenLocker calls a function before each lock.
type betweenLocker struct {
	lock.Locker
	hook func()
}

func (l *betweenLocker) Acquire(h *lock.Hold, r *lock.Request) error {
	l.hook()
	return l.Locker.Acquire(h, r)
}
