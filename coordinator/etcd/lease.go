package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lease is a life, which ends when it cannot be kept alive.
type lease struct {
	c      *Coordinator
	life   member.Life
	ctx    context.Context // ends with the life
	cancel context.CancelFunc

	keeping context.Context // ends when the lease is not kept alive any more
	stop    context.CancelFunc

	number number // once it is reserved

	once sync.Once
	done chan struct{}
	err  error // once done
}

// grant begins a life.
func (c *Coordinator) grant(ctx context.Context) (*lease, error) {
	r, cancel := c.request(ctx)
	defer cancel()
	got, err := c.client.Grant(r, int64(c.opt.TTL/time.Second))
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	l := &lease{c: c, life: member.Life(got.ID), done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.keeping, l.stop = context.WithCancel(l.ctx)
	go l.keep()
	return l, nil
}

func (l *lease) id() clientv3.LeaseID { return clientv3.LeaseID(l.life) }

// keep keeps the lease alive. The client's KeepAlive gives up when it has not
// reached etcd for the time of the lease. We do not: as long as etcd has not said
// that it is gone, it may be that nobody has reached etcd.
func (l *lease) keep() {
	var wait time.Duration
	for l.keeping.Err() == nil {
		some, err := l.keepAlive()
		if isLeaseGone(err) {
			l.lose()
			return
		}
		if err != nil {
			l.c.report(l.keeping, l.c.explain(l.keeping, err))
		}
		if some {
			wait = 0
		}
		if !pause(l.keeping, &wait) {
			return
		}
	}
}

// keepAlive keeps the lease alive until something is wrong, and tells whether it was right before.
func (l *lease) keepAlive() (some bool, err error) {
	// The client halts all keepalives of a Lease for good after some errors: so each attempt has its own.
	lessor := clientv3.NewLease(l.c.client)
	defer lessor.Close()
	alive, err := lessor.KeepAlive(l.keeping, l.id())
	if err != nil {
		return false, err
	}
	for range alive {
		some = true
	}
	return some, l.check()
}

// check asks whether the lease is still there.
func (l *lease) check() error {
	left, err := l.c.timeLeft(l.keeping, l.life)
	if err == nil && left < 0 {
		err = errLeaseGone
	}
	return err
}

// timeLeft asks how much time is left to a life, in whole seconds, rounded towards 0; it is negative when it has ended.
func (c *Coordinator) timeLeft(ctx context.Context, life member.Life) (time.Duration, error) {
	r, cancel := c.request(ctx)
	defer cancel()
	got, err := c.client.TimeToLive(r, clientv3.LeaseID(life))
	if err != nil {
		return 0, err
	}
	return time.Duration(got.TTL) * time.Second, nil
}

// lose ends the life by others' decision.
func (l *lease) lose() {
	l.end(fmt.Errorf("%w: etcd has ended life %x", fabric.ErrFenced, uint64(l.life)))
}

// end ends the life here.
func (l *lease) end(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.done)
		l.cancel()
	})
}

// revoke ends a lease in etcd. One that is gone already is no error.
func (c *Coordinator) revoke(ctx context.Context, life member.Life) error {
	r, cancel := c.request(ctx)
	defer cancel()
	_, err := c.client.Revoke(r, clientv3.LeaseID(life))
	if isLeaseGone(err) {
		return nil
	}
	return c.explain(ctx, err)
}

// Err returns why the life has ended, or nil.
func (l *lease) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// ended returns an error for whoever needs the life to go on.
func (l *lease) ended() error {
	if err := l.Err(); err != nil {
		return err
	}
	return errors.New("etcd: the node has left")
}
