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
//   - What all backups have, and the primary has not answered, is made if one of them serves in a later term: no other replica can be the primary then. Clients that have changed the
//     object since have done that after it.
//   - Of what some backups may have the outcome is unknown. It is never begun again: others may have seen it, and changed it since.

const (
	// outlastNs is how long an operation waits for a memory node to be replaced: as long as an acquisition does.
	outlastNs = 15 * fabric.Second
	// outlastPauseNs is how often it looks.
	outlastPauseNs = 200 * fabric.Microsecond
)

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

// succeeded waits for what becomes of a change that all backups have, when the release with it has failed: it reports whether one of them serves in a later term.
func (c *Client) succeeded(k *work, err error) bool {
	if !replaced(err) {
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
		if err == nil && b.Term() > k.term {
			return true
		}
		if err == nil && c.answers(k) == nil {
			return false // the same serves, with or without the change
		}
	}
	return false
}
