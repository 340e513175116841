package hier

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A memory node that is replicated may end, and another take its place: an acquisition outlasts that.

const (
	// outlastNs is how long an acquisition without a deadline waits for a memory node to be replaced: for longer than a lease and the fencing of a
	// compute node that does not answer.
	outlastNs = 15 * fabric.Second
	// outlastPauseNs is how often it looks.
	outlastPauseNs = 200 * fabric.Microsecond
)

// outlast begins an acquisition again that has failed because the primary of a replicated memory node has ended, or is just being replaced. What it may have left
// in a lock of the term before is void in the next.
func (k *Locker) outlast(h *lock.Hold, r *lock.Request, err error) error {
	mn := r.Lock.MN()
	until := min(r.Until(), k.port.Now()+outlastNs)
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
		if stop := k.port.Pause(min(until, k.port.Now()+outlastPauseNs)); stop != nil {
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
	if l := k.attached(mn).incarnation; l != nil {
		return l.term != 0
	}
	return k.memoryOf(mn).Term != 0
}
