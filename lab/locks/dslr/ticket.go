package dslr

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A ticket is a client's, from the FAA to the release: prev and ResetFrom[tid, L] of the algorithms,
// and what the client has seen of the counters since.
type ticket struct {
	lock      fabric.Addr
	mode      lock.Mode
	slots     uint16 // tickets with consecutive numbers
	prev      word   // the word before the FAA: its max fields are the ticket's numbers
	resetFrom word   // what the word is when it is this client's to reset, 0 if it is not
	atReset   word   // the same, with tickets that were drawn in vain since

	seen    word        // at the last look
	changed fabric.Time // when the counters were seen to change last
	looked  fabric.Time // before the last look was posted
	backoff uint64      // of Truncated and Overflowing, in ns
	mine    *Locker     // that holds by it
	inVain  int         // tickets drawn one after another at full counters, and taken back: Config.Withdraw
}

// state is what a ticket is worth.
type state uint8

const (
	waiting state = iota
	granted
	passed // over, by a reset: the ticket is void
	silent // those before it have not moved for two leases
)

// draw takes note of the FAA that found prev (lines 10 to 11 and 24 to 25 of Algorithm 1).
func (t *ticket) draw(prev word, countMax uint16, asked fabric.Time) {
	t.prev, t.seen, t.changed, t.looked = prev, prev, asked, asked
	t.resetFrom, t.backoff = 0, backoffMinNs
	switch {
	case t.mode == lock.Shared && prev.maxS()+t.slots >= countMax:
		last := prev.maxS() + t.slots
		t.resetFrom = makeWord(prev.maxX(), last, prev.maxX(), last)
	case t.mode != lock.Shared && prev.maxX()+t.slots >= countMax:
		last := prev.maxX() + t.slots
		t.resetFrom = makeWord(last, prev.maxS(), last, prev.maxS())
	}
	t.atReset = t.resetFrom
}

// grants reports whether it is the ticket's turn in a state of the lock (lines 12 and 26 of Algorithm 1,
// lines 5 to 10 of Algorithm 2).
func (t *ticket) grants(val word) bool {
	return t.prev.maxX() == val.nX() && (t.mode != lock.Exclusive || t.prev.maxS() == val.nS())
}

// alone reports whether the readers before a ticket whose turn it is have left.
func (t *ticket) alone(val word) bool { return t.prev.maxX() == val.nX() && t.prev.maxS() == val.nS() }

// before returns how many tickets before this one are with clients that hold or wait.
func (t *ticket) before(val word) int {
	return int(t.prev.maxX()) - int(val.nX()) + int(t.prev.maxS()) - int(val.nS())
}

// look judges what was read of the lock; asked is from before (lines 3 to 11 of Algorithm 2).
func (t *ticket) look(val word, asked fabric.Time, cfg *Config) state {
	old := t.seen
	if !val.sameCounts(old) {
		t.changed = asked
	}
	t.seen, t.looked = val, asked
	switch {
	case val.nX() < old.nX() || val.nS() < old.nS(): // the lock was reset to zero
		return passed
	case t.prev.maxX() < val.nX() || t.mode == lock.Exclusive && t.prev.maxS() < val.nS():
		return passed
	case t.grants(val):
		return granted
	case asked-t.changed > cfg.patience(t.before(val)):
		return silent
	}
	return waiting
}

// reset returns what the lock becomes when those before the ticket are taken for crashed (lines 12 to
// 15 of Algorithm 2). A writer's own ticket is passed over with them; a reader is granted, and so is a client that asks for update.
func (t *ticket) reset(val word) word {
	if t.mode != lock.Exclusive {
		return makeWord(t.prev.maxX(), val.nS(), val.maxX(), val.maxS())
	}
	return makeWord(t.prev.maxX()+t.slots, t.prev.maxS(), val.maxX(), val.maxS())
}

// recall returns what the lock becomes when the ticket is taken back, if no client has drawn one since
// that waits for it.
func (t *ticket) recall(val word, countMax uint16) (word, bool) {
	next := val - drawn(t.mode, t.slots)
	if t.mode != lock.Shared {
		return next, val.maxX() == t.prev.maxX()+t.slots && val.maxS() == t.prev.maxS()
	}
	last := val.maxS() == t.prev.maxS()+t.slots
	return next, val.maxX() == t.prev.maxX() && (last || val.maxS() < countMax)
}

// pause returns how long to wait before the next look (line 20 of Algorithm 2).
func (t *ticket) pause(cfg *Config, random uint64) fabric.Time {
	ns := fabric.Time(0)
	switch cfg.Wait {
	case Dynamic:
		n := t.before(t.seen)
		if cfg.ForWriters && t.mode == lock.Shared {
			n = int(t.prev.maxX()) - int(t.seen.nX())
		}
		ns = fabric.Time(max(n, 1)) * cfg.WaitNs
	case Truncated:
		ns = fabric.Time(t.backoff) + fabric.Time(random%jitterNs)
		t.backoff = min(2*t.backoff, backoffMaxNs)
	case Overflowing:
		ns = fabric.Time(min(t.backoff, backoffMaxNs)) + fabric.Time(random%jitterNs)
		t.backoff *= 2
	case Busy:
		ns = 1 // a pause of nothing would not be interrupted
	}
	return min(ns, cfg.LeaseNs/2)
}
