package hier

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Recovered reports whether the client that held the lock of a Hold before may have crashed while it did, by the mark that a reset leaves
// (cql/recovered.go). It is true once for an exclusive holder, which takes the mark away, and as often as a shared one asks. Where it cannot be known, because the memory
// node does not answer or the lock has been lost, it is true.
func (k *Locker) Recovered(h *lock.Hold) bool {
	x, ok := h.Aux.(*local)
	if !ok || !h.Held || x.over() {
		return true
	}
	at, mark := k.cfg.Layout.RecoveryMark(h.Lock, h.Token, x.incarnation.term)
	ops := []fabric.Op{fabric.Load(at)}
	err := lock.Do(k, ops)
	if err == nil && ops[0].Old == mark && h.Mode == lock.Exclusive {
		ops[0] = fabric.CAS(at, mark, 0) // unless a waiter's entry is there by now

		// If it fails, it is true once more.
		_ = lock.Do(k, ops)
		return true
	}
	return err != nil || ops[0].Old == mark
}
