package btree

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A noteLocker leaves the leaf to each holder as one before is said to have changed it, and fails at each release.
type noteLocker struct {
	lock.Locker
	key      []byte // that was put
	deferred bool   // it is not in memory yet
	err      error  // of releases
}

func (l *noteLocker) Acquire(h *lock.Hold, r *lock.Request) error {
	err := l.Locker.Acquire(h, r)
	if err != nil || l.key == nil {
		return err
	}
	var n node
	if err := n.parse(r.Handoff, word(get64(r.Handoff, 0))); err != nil {
		return errors.Join(err, l.Release(h, nil))
	}
	at := n.used
	n.used += putRecord(n.b[at:], kindInline, l.key, []byte("x"))
	setWord(n.b, makeWord(stateAlive, n.used, extend(n.word.crc(), n.b[at:n.used])))
	r.HandoffLen = n.used
	if l.deferred {
		r.Deferred = uint64(at)
	}
	return nil
}

func (l *noteLocker) Release(h *lock.Hold, _ []fabric.Op) error {
	return errors.Join(l.err, l.Locker.Release(h, nil))
}

// An answer that rests on what is not in memory is none if the release fails: the caller gets that error alone.
func TestAnswerFromUnwrittenLeaf(t *testing.T) {
	_, c := one(t, 1, nil)
	wantErr(t, "put", c.Put([]byte("there"), []byte("x")), nil)
	real := c.l
	for _, deferred := range []bool{true, false} {
		c.l = &noteLocker{real, []byte("noted"), deferred, fabric.ErrStaleEpoch}
		for what, op := range map[string]func() error{
			"insert":  func() error { return c.Insert([]byte("noted"), nil) },
			"compare": func() error { return c.CompareAndPut([]byte("noted"), []byte("y"), nil) },
			"delete":  func() error { return c.Delete([]byte("nowhere")) },
		} {
			err := op()
			wantErr(t, what, err, fabric.ErrStaleEpoch)
			for _, answer := range []error{ErrExists, ErrChanged, ErrNotFound} {
				if errors.Is(err, answer) {
					t.Errorf("%s, deferred %v: %v", what, deferred, err)
				}
			}
		}
	}
	c.l = &noteLocker{Locker: real, err: fabric.ErrStaleEpoch}
	err := c.Insert([]byte("there"), nil)
	wantErr(t, "insert", err, ErrExists) // READ from memory
	wantErr(t, "insert", err, fabric.ErrStaleEpoch)
	c.l = real
	wantMiss(t, c, "noted")
}
