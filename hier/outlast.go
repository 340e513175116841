package hier

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A memory node that is replicated may end, and another take its place: an acquisition outlasts that, and a release waits for it.

// outlastNs is how long an acquisition without a deadline waits for a memory node to be replaced: for longer than a lease and the fencing of a
// compute node that does not answer.
const outlastNs = 15 * fabric.Second

// outlast begins an acquisition again that has failed because the primary of a replicated memory node has ended, or is just being replaced. What it may have left
// in a lock of the term before is void in the next.
func (k *Locker) outlast(h *lock.Hold, r *lock.Request, err error) error {
	mn, first := r.Lock.MN(), k.port.Now()
	until := min(r.Until(), cmp.Or(r.Since, k.port.Now())+outlastNs)
	for err != nil && !h.Held && !r.Try && k.outlasts(mn, err) {
		if k.port.Now() >= until {
			if r.Until() == until {
				return errors.Join(lock.ErrTimeout, err)
			}
			return err
		}
		if k.table.isEnded() {
			return errors.Join(fabric.ErrFenced, err)
		}
		if stop := lock.PauseAgain(k.port, first, until); stop != nil {
			return errors.Join(k.waitError(stop), err)
		}
		if again := k.Attach(mn); again != nil {
			err = again
			continue
		}
		err = k.acquire(h, r)
	}
	return err
}

// outlasts reports whether an acquisition that has failed may succeed when another memory node serves. If the outcome of an operation is unknown, the lock may count a
// ticket too many: the next acquisition looks before it adds itself (recovery.addLeak).
func (k *Locker) outlasts(mn fabric.MemID, err error) bool {
	for _, stop := range [...]error{fabric.ErrInterrupted, fabric.ErrFenced, fabric.ErrClosed, lock.ErrMemoryLost, lock.ErrTimeout, lock.ErrCanceled} {
		if errors.Is(err, stop) {
			return false
		}
	}
	if k.attached(mn).holds > 0 && errors.Is(err, lock.ErrLost) { // other locks there: the caller has to release them
		return false
	}
	if !errors.Is(err, fabric.ErrStaleEpoch) && !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrUnknownOutcome) {
		return false
	}
	return k.Replicated(mn)
}

// awaitVerdict waits, when an operation of a release at a replicated memory node has failed, until that answers, or another takes its place. Meanwhile no other client of the node gets
// the lock, and a reset waits for this one. So if the term ends, no other has had the lock in it but by this release: the error says that it is lost, by a stale epoch.
func (k *Locker) awaitVerdict(x *local, l fabric.Addr, err error) error {
	if err == nil || x.incarnation.term == 0 {
		return err
	}
	first := k.port.Now()
	for until := first + outlastNs; k.outlasts(l.MN(), err) && k.port.Now() < until && !k.table.isEnded(); {
		if k.notice(l.MN()); x.over() {
			return fmt.Errorf("%w: %w", *x.incarnation.why.Load(), err)
		}
		k.one[0] = fabric.Load(l)
		if now := k.port.Do(k.one[:]); now == nil || !k.outlasts(l.MN(), now) {
			break
		}
		if lock.PauseAgain(k.port, first, until) != nil {
			break
		}
	}
	return err
}
