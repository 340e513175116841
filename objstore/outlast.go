package objstore

import (
	"errors"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// The primary of a replicated number may end in the middle of an operation, and a backup take its place (docs/replication.md). The operation outlasts that: its caller sees a wait.
//
//   - What has published nothing is begun again.
//   - What all backups have, and the primary has not answered, is made if one of them serves in a later term, and the lock was held until the term ended, or the change is there
//     still. Else the outcome is unknown: another client may have got the lock before, which was reset, and given the backups what the primary had.
//   - Of what some backups may have the outcome is unknown. It is never begun again: others may have seen it, and changed it since.

const (
	// outlastNs is how long an operation waits for a memory node to be replaced: as long as an acquisition does.
	outlastNs = 15 * fabric.Second
	// outlastPauseNs is how often it looks.
	outlastPauseNs = 200 * fabric.Microsecond
)

// expiryMask are the bits of an object's second word that a touch changes at the backups, too.
const expiryMask = uint64(0xffffffff_00000000)

// replaced reports whether an error may be that of a memory node whose place another takes.
func replaced(err error) bool {
	is := func(list ...error) bool {
		return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
	}
	return is(fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome, lock.ErrLost) &&
		!is(fabric.ErrFenced, fabric.ErrInterrupted, fabric.ErrClosed, lock.ErrMemoryLost, lock.ErrTimeout, lock.ErrCanceled)
}

// outlast executes an operation on a key, and again if it has failed because the memory node is being replaced and it has published nothing.
func (c *Client) outlast(k *work, try func() error) error {
	fresh := *k
	err := try()
	if err == nil || k.n.Missing() || !k.n.Region.Replicated() {
		return err
	}
	for until := c.port.Now() + outlastNs; err != nil && !k.begun && replaced(err) && c.port.Now() < until; {
		again, stop := c.attachAgain(k, until)
		switch {
		case stop != nil:
			return errors.Join(err, stop)
		case again:
			*k = fresh
			err = try()
		}
	}
	return err
}

// attachAgain waits for a moment, and attaches the client to what serves a part's number now. It reports whether there is something; or why not to wait any longer.
func (c *Client) attachAgain(k *work, until fabric.Time) (ok bool, stop error) {
	if stop = c.port.Pause(min(until, c.port.Now()+outlastPauseNs)); stop != nil {
		return false, stop
	}
	err := lock.Renew(c.l, k.n.MN)
	if err == nil {
		return true, nil
	}
	if replaced(err) && !errors.Is(err, lock.ErrLost) { // lost: the client has other locks there, which its user has to release
		if err = c.answers(k); err == nil || replaced(err) {
			return false, nil
		}
	}
	return false, err
}

// answers returns what comes of a READ: a node that has been fenced waits no longer.
func (c *Client) answers(k *work) error {
	ops := [1]fabric.Op{fabric.Load(k.n.Region.Stamp())}
	return c.port.Do(ops[:])
}

// succeeded waits for what becomes of a change that all backups have, when the release with it has failed: it reports whether one of them serves in a later term, and has the change.
// It has it if this client had the lock until the term ended, as the error may say, or if a word is what the change makes it, in the bits of a mask: nothing else makes it that.
func (c *Client) succeeded(k *work, err error, a fabric.Addr, word, mask uint64) bool {
	held := errors.Is(err, lock.ErrLost) && errors.Is(err, fabric.ErrStaleEpoch)
	if !replaced(err) || !held && word&mask == 0 { // so it may be for other reasons
		return false
	}
	for until := c.port.Now() + outlastNs; c.port.Now() < until; {
		ok, stop := c.attachAgain(k, until)
		if stop != nil {
			return false
		}
		if !ok {
			continue
		}
		b, err := k.n.Region.Backups(c.port)
		if err != nil {
			continue
		}
		c.ops[0] = fabric.Load(a)
		err = c.port.Do(c.ops[:1])
		switch {
		case err == nil:
			// The same primary serves with or without the change. In another epoch of the term, others may have undone it.
			return b.Term() > k.term && (held && b.Before() == k.epoch || word&mask != 0 && c.ops[0].Old&mask == word&mask)
		case !replaced(err):
			return false
		}
	}
	return false
}
