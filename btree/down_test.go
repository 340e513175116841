package btree

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// While one of two memory nodes is down, large values go to the other, also those whose turn it is to go to the one
// that is down, and whether or not this compute node has free slots there.
func TestPutWhileAnotherMemoryNodeIsDown(t *testing.T) {
	w, c := one(t, 2, nil)
	value := bytes.Repeat([]byte{'x'}, 1000)
	for i := range 2 { // on each memory node an extent is taken
		wantErr(t, "put", c.Put(keyOf(i), value), nil)
	}
	w.c.KillMN(w.mns[1])
	wantErr(t, "who first notices", c.port.Do([]fabric.Op{fabric.Load(fabric.At(w.mns[1], 0))}), fabric.ErrUnknownOutcome)
	for i := 2; i < 8; i++ {
		wantErr(t, "put of a size with free slots on both", c.Put(keyOf(i), value), nil)
		wantValue(t, c, string(keyOf(i)), string(value))
	}
	larger := bytes.Repeat([]byte{'y'}, 5000)
	for i := 2; i < 8; i++ {
		wantErr(t, "put of a size without", c.Put(keyOf(i), larger), nil)
	}
}

// Whose turn it is does not matter, nor that others take turns too: who looks for a memory node that is up asks each.
func TestPutWhileOthersTakeTurns(t *testing.T) {
	w, c := one(t, 2, nil)
	value := bytes.Repeat([]byte{'x'}, 1000)
	for i := range 2 {
		wantErr(t, "put", c.Put(keyOf(i), value), nil)
	}
	w.c.KillMN(w.mns[1])
	wantErr(t, "who first notices", c.port.Do([]fabric.Op{fabric.Load(fabric.At(w.mns[1], 0))}), fabric.ErrUnknownOutcome)
	c.l = &turnLocker{c.l, c.t}
	for i := 2; i < 8; i++ {
		wantErr(t, "put", c.Put(keyOf(i), value), nil)
	}
}

// A turnLocker's clients are never alone: another takes a turn before each chain.
type turnLocker struct {
	lock.Locker
	t *Tree
}

func (l *turnLocker) Port() fabric.Port {
	return &hookPort{l.Locker.Port(), func([]fabric.Op) { l.t.turn.Add(1) }}
}
