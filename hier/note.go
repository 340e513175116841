package hier

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A note is what an exclusive holder leaves to the next one of its tenure (lock.Hold.Note). The shard's mutex guards it.
type note struct {
	text []byte
	// owed is not 0 if the operations of holders before, who wait in the list of commits, are left to the
	// one that gets the note.
	owed uint64
}

// clear takes the note away.
func (n *note) clear() { n.text, n.owed = n.text[:0], 0 }

// pass keeps what the holder of h leaves to the next one, when the operations of its release have been executed, with err, or are
// owed.
func (n *note) pass(h *lock.Hold, text []byte, owing bool, err error) {
	if h.Mode != lock.Exclusive {
		return // what the last one left is right still
	}
	n.clear()
	if err != nil || len(text) > lock.MaxNote {
		return
	}
	n.text = append(n.text, text...)
	if owing {
		n.owed = h.Owing
	}
}

// inherit gives an exclusive holder what the last one left, if that fits. The shard is locked.
func (k *Locker) inherit(x *local, r *lock.Request) {
	if k.self.room > 0 && len(x.note.text) <= k.self.room {
		r.Noted, r.Owed = copy(r.Note, x.note.text), x.note.owed
	}
}

// roomFor returns how long a note the caller of Acquire can take.
func (k *Locker) roomFor(r *lock.Request) int {
	if r.Mode != lock.Exclusive || k.value != nil {
		return 0
	}
	return len(r.Note)
}

// perform executes the operations of a release, unless the release of the remote lock is to: then it returns them. If they are
// left to the next holder, it returns what to wait for. The shard is locked, and may be unlocked meanwhile.
func (k *Locker) perform(s *shard, x *local, h *lock.Hold, text []byte, before []fabric.Op, slackUs int16) (*commit, []fabric.Op, error) {
	switch {
	case len(before) == 0:
		k.repay(x, false, nil)
		return nil, nil, nil
	case !k.stays(x, slackUs):
		return nil, before, nil
	case k.owes(x, h, text, slackUs):
		return k.join(x), nil, nil
	}
	// The next holder must find what we wrote, and uses another queue pair.
	s.mu.Unlock()
	err := k.do(before)
	s.mu.Lock()
	k.repay(x, true, err)
	return nil, nil, err
}

// owes tells whether the operations of a release that stays with this node can be left to the next holder. The shard is locked.
func (k *Locker) owes(x *local, h *lock.Hold, text []byte, slackUs int16) bool {
	if h.Owing == 0 || h.Mode != lock.Exclusive || x.val.dirty || len(text) == 0 || len(text) > lock.MaxNote {
		return false
	}
	w := k.table.policy.successor(x, slackUs)
	return w != nil && w.mode == lock.Exclusive && len(text) <= w.room && k.defers(x)
}

// repay tells those whose operations were left to a holder how the holder's own have ended: they are done
// with them. The shard is locked; wakeAll must follow.
func (k *Locker) repay(x *local, executed bool, err error) {
	if x.note.owed == 0 {
		return
	}
	if !executed && err == nil {
		err = fmt.Errorf("%w: %v released without what holders before had left to do", lock.ErrMisuse, x.place.Lock)
	}
	x.note.owed = 0
	k.settleAll(x, err)
}
