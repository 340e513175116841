//go:build !shmonly

package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ForgetMN is member.Service.ForgetMN.
func (c *Coordinator) ForgetMN(ctx context.Context, id fabric.MemID) error {
	n := mnNumber(id)
	var wait time.Duration
	for {
		v, err := c.list(ctx)
		if err != nil {
			return err
		}
		if v.format == formatBefore {
			return fmt.Errorf("%w: its keys have format %q: start a node of this version first", ErrFormat, v.format)
		}
		l := v.ledger()
		if l.Leaving(id) {
			// Members note and forget it. If there is none left, it is for us.
			if x, due := v.chore(); due {
				if err = c.do(ctx, v, x); errors.Is(err, errStale) {
					err = nil // the next listing shows more
				}
			} else if !pause(ctx, &wait) {
				err = fmt.Errorf("etcd: forget %v: not all members have acknowledged its end: %w", id, ctx.Err())
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := l.Forget(id); err != nil {
			return err
		}
		epoch := v.epochs[id]
		_, err = c.commit(ctx, []clientv3.Cmp{
			c.absent(dirLive + n.String()), c.absent(dirNode + n.String()), c.unchanged(epochKey(n), epoch.modified), c.holds(keyFormat, v.format),
		}, c.step(c.put(forgotKey(n), count(epoch.n), clientv3.NoLease))...)
		if !errors.Is(err, errStale) {
			return err
		}
	}
}

var _ member.Service = (*Coordinator)(nil)
