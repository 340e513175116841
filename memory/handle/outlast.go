package handle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// The primary of a replicated number may end in the middle of an operation, and a backup take its place (docs/replication.md). The operation outlasts that: its caller sees a wait.
//
//   - What has published nothing is begun again.
//   - What all backups have, and the primary has not answered, is made if one of them serves in a later term, and the lock was held until the term ended, or the change is there
//     still. Else the outcome is unknown: another client may have got the lock before, which was reset, and given the backups what the primary had.
//   - What some backups may have, and others have not, is begun again if one serves that has not. Else the outcome is unknown, and it is not begun again: others may have seen it, and changed it since.

const (
	// outlastNs is how long an operation waits for a memory node to be replaced: as long as an acquisition does.
	outlastNs = 15 * fabric.Second
	// copiesPauseNs is how often it tries again while too few copies are in sync.
	copiesPauseNs = 10 * fabric.Millisecond
)

// Replaced reports whether an error may be that of a memory node whose place another takes, or of one whose copies are.
func Replaced(err error) bool {
	return isOf(err, fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome, fabric.ErrTooFewCopies, lock.ErrLost) &&
		!isOf(err, fabric.ErrFenced, fabric.ErrInterrupted, fabric.ErrClosed, lock.ErrMemoryLost, lock.ErrTimeout, lock.ErrCanceled)
}

func isOf(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

// Replicated reports whether the part is there, and replicated.
func (p *Part) Replicated() bool { return !p.Missing() && p.Region.Replicated() }

// Replicated reports whether a part is there that is replicated.
func (h *Handle) Replicated() bool { return slices.ContainsFunc(h.Parts, (*Part).Replicated) }

// Outlast executes an operation again that has failed with err, because the memory node of a part is being replaced, until it has not, or has begun to publish something. The client
// is attached to what serves the number of each of the parts by then. The operation may wait from since on; 0 is now.
func Outlast(l lock.Locker, parts []*Part, since fabric.Time, err error, begun func() bool, again func() error) error {
	port := l.Port()
	first := port.Now()
	for until := cmp.Or(since, port.Now()) + outlastNs; err != nil && !begun() && Replaced(err) && port.Now() < until; {
		if errors.Is(err, fabric.ErrTooFewCopies) {
			if stop := port.Pause(min(until, port.Now()+copiesPauseNs)); stop != nil {
				return errors.Join(err, stop)
			}
		}
		ok, stop := attachAll(l, parts, first, until)
		switch {
		case stop != nil:
			return errors.Join(err, stop)
		case ok:
			err = again()
		}
	}
	return err
}

// Begun returns the error of an operation that has failed after it had begun to change something at backups: with fabric.ErrUnknownOutcome, for one of them may serve in a later epoch, with
// the change. The error of a release does not say so if the lock was lost before.
func Begun(err error) error {
	if errors.Is(err, fabric.ErrUnknownOutcome) || !isOf(err, fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrFenced, fabric.ErrClosed, fabric.ErrInterrupted, lock.ErrLost, lock.ErrMemoryLost) {
		return err // it says so, or it is an answer
	}
	return fmt.Errorf("%w: backups may have the change: %w", fabric.ErrUnknownOutcome, err)
}

func attachAll(l lock.Locker, parts []*Part, first, until fabric.Time) (ok bool, stop error) {
	if stop = lock.PauseAgain(l.Port(), first, until); stop != nil {
		return false, stop
	}
	for _, p := range parts {
		if p.Replicated() {
			if ok, stop := p.attach(l); !ok || stop != nil {
				return false, stop
			}
		}
	}
	return true, nil
}

// attachAgain waits for a moment, and attaches a client to what serves the part's number now. It reports whether there is something; or why not to wait any longer.
func (p *Part) attachAgain(l lock.Locker, first, until fabric.Time) (ok bool, stop error) {
	if stop = lock.PauseAgain(l.Port(), first, until); stop != nil {
		return false, stop
	}
	return p.attach(l)
}

func (p *Part) attach(l lock.Locker) (ok bool, stop error) {
	err := lock.Renew(l, p.MN)
	if err == nil {
		return true, nil
	}
	if Replaced(err) && !errors.Is(err, lock.ErrLost) { // lost: the client has other locks there, which its user has to release
		if err = p.answers(l); err == nil || Replaced(err) {
			return false, nil
		}
	}
	return false, err
}

// answers returns what comes of a READ: a node that has been fenced waits no longer.
func (p *Part) answers(l lock.Locker) error {
	ops := [1]fabric.Op{fabric.Load(p.Region.Stamp())}
	return l.Port().Do(ops[:])
}

// OthersAnswer reports whether the memory nodes of all parts answer that are there and not replicated.
func (h *Handle) OthersAnswer(l lock.Locker) bool {
	return !slices.ContainsFunc(h.Parts, func(p *Part) bool { return !p.Missing() && !p.Replicated() && p.answers(l) != nil })
}

// A Change says when all backups of a part had a change, and how it shows: a word is what it makes it, in the bits of a mask, and nothing else makes it that. With no mask nothing shows it.
type Change struct {
	Term, Epoch uint32
	At          fabric.Addr
	Word, Mask  uint64
	Since       fabric.Time // when all backups had it: what becomes of it is waited for from then on
}

// Succeeded waits for what becomes of a change that all backups have, when the release with it has failed: it reports whether one of them serves in a later term, and has the change.
// It has it if this client had the lock until the term ended, as the error may say, or if the change shows.
func (p *Part) Succeeded(l lock.Locker, err error, x *Change) bool {
	held := errors.Is(err, lock.ErrLost) && errors.Is(err, fabric.ErrStaleEpoch)
	if !Replaced(err) || !held && x.Word&x.Mask == 0 { // so it may be for other reasons
		return false
	}
	made := false
	p.follow(l, x.Since, func(b *memory.Backups) (over bool) {
		ops := [1]fabric.Op{fabric.Load(x.At)}
		err := l.Port().Do(ops[:])
		if err == nil {
			// The same primary serves with or without the change. In another epoch of the term, others may have undone it.
			made = b.Term() > x.Term && (held && b.Before() == x.Epoch || x.Word&x.Mask != 0 && ops[0].Old&x.Mask == x.Word&x.Mask)
		}
		return err == nil || !Replaced(err)
	})
	return made
}

// Missed waits for what becomes of a change that has failed with err on its way to the backups, and has reached some of them: it reports whether a replica serves then that has nothing of it. The change may be begun again
// there, as long as none serves that has. One that has it, and is promoted before another that has not, is the first of those that are left: so all have it, and it has not failed.
func (p *Part) Missed(l lock.Locker, err error, since fabric.Time, trace *memory.Trace) (missed bool) {
	if !Replaced(err) || errors.Is(err, fabric.ErrTooFewCopies) {
		return false
	}
	p.follow(l, since, func(b *memory.Backups) (over bool) {
		missed = !trace.Shows(b)
		return true
	})
	return missed
}

// follow attaches a client to what serves the part's number, and calls look with its backups when there are enough, until it is over or nothing is waited for any longer.
func (p *Part) follow(l lock.Locker, since fabric.Time, look func(b *memory.Backups) (over bool)) {
	port := l.Port()
	first := port.Now()
	for until := since + outlastNs; port.Now() < until; {
		ok, stop := p.attachAgain(l, first, until)
		if stop != nil {
			return
		}
		if !ok {
			continue
		}
		b, err := p.Region.Backups(port)
		if err != nil || b.Require() != nil { // a backup that comes in sync gets the change, too
			continue
		}
		if look(&b) {
			return
		}
	}
}
