package objstore

import (
	"cmp"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory/handle"
)

// outlast executes an operation on a key, and again if it has failed because the memory node is being replaced and it has published nothing.
func (c *Client) outlast(k *work, try func() error) error {
	if !k.n.Replicated() {
		return try()
	}
	err := c.session.Outlast(try, func(err error) error {
		err = handle.Outlast(c.l, []*handle.Part{k.n}, c.session.Since, err, func() bool { return k.begun }, func() error {
			*k = k.anew()
			return try()
		})
		switch {
		case k.begun:
			err = handle.Begun(err)
		case !k.trace.None(): // nothing was changed after an attempt that shows at a backup, which may serve before that is put right
			k.unknown = true
			err = fmt.Errorf("objstore: %w: a backup may have the change: %w", fabric.ErrUnknownOutcome, cmp.Or(err, fabric.ErrStaleEpoch))
		}
		return err
	})
	return c.s.h.Damaged(&c.work, err)
}

// anew returns the work as it was before anything was found.
func (k *work) anew() work {
	before := work{look: k.afresh(), absorbs: k.absorbs, need: k.need, unregistered: k.unregistered, list: k.list, tail: k.tail, hole: k.hole}
	before.at, before.trace = k.at, k.trace
	return before
}

// succeeded waits for what becomes of a change that all backups have, when the release with it has failed: see handle.Part.Succeeded.
func (c *Client) succeeded(k *work, err error, a fabric.Addr, word, mask uint64) bool {
	return k.n.Succeeded(c.l, err, &handle.Change{Term: k.term, Epoch: k.epoch, At: a, Word: word, Mask: mask, Since: k.mirrored})
}
