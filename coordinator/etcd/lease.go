//go:build !shmonly

package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/boottime"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lease is the incarnation of a node, which ends when it cannot be kept alive.
type lease struct {
	c           *Coordinator
	incarnation member.Incarnation
	ctx         context.Context // ends with the incarnation
	cancel      context.CancelFunc

	keeping context.Context // ends when the lease is not kept alive any more
	stop    context.CancelFunc

	number number       // once it is reserved
	seen   atomic.Int64 // the latest revision of etcd that the node has seen
	acked  atomic.Int64 // revision of its latest acknowledgement

	reach   sync.Mutex
	reached time.Time    // when etcd last renewed it
	silence error        // why it has not since
	until   atomic.Int64 // on the clock of package boottime: it lasts as long, at least; changed with reach, and read for each chain

	once sync.Once
	done chan struct{}
	err  error // once done
}

// grant begins an incarnation.
func (c *Coordinator) grant(ctx context.Context) (*lease, error) {
	r, cancel := c.request(ctx)
	defer cancel()
	sent := boottime.Now()
	got, err := c.client.Grant(r, int64(c.opt.TTL/time.Second))
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	l := &lease{c: c, incarnation: member.Incarnation(got.ID), done: make(chan struct{}), reached: time.Now()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.keeping, l.stop = context.WithCancel(l.ctx)
	l.lasts(sent, got.TTL)
	go l.keep()
	return l, nil
}

func (l *lease) id() clientv3.LeaseID { return clientv3.LeaseID(l.incarnation) }

// A lease is renewed renewals times in its time, and an attempt takes patience-th of it at most: so there is time for
// a second and a third one, which ask other members of etcd, when the first member that was asked hangs.
const (
	renewals = 5
	patience = 4
)

// keep keeps the lease alive. As long as etcd has not said that it is gone, etcd may be
// away for all: then it goes on trying.
func (l *lease) keep() {
	var wait time.Duration
	for l.keeping.Err() == nil {
		err := l.renew()
		l.attempted(err)
		switch {
		case isLeaseGone(err):
			l.lose()
			return
		case err == nil:
			wait = 0
			next := time.Now().Add(l.c.opt.TTL / renewals)
			l.guard()
			if !sleep(l.keeping, time.Until(next)) {
				return
			}
			continue
		default:
			l.c.report(l.keeping, l.c.explain(l.keeping, err))
		}
		if !pause(l.keeping, &wait) {
			return
		}
	}
}

// attempted records how an attempt to renew the lease came out.
func (l *lease) attempted(err error) {
	l.reach.Lock()
	defer l.reach.Unlock()
	if l.silence = nil; err != nil {
		l.silence = l.c.explain(l.keeping, err)
		return
	}
	l.reached = time.Now()
}

// Contact is member.Contact.
func (l *lease) Contact() (silent time.Duration, why error) {
	l.reach.Lock()
	defer l.reach.Unlock()
	return time.Since(l.reached), l.silence
}

// renew renews the lease once. (The client's KeepAlive has one stream, to one member of etcd, and waits for a
// whole lease until it asks another.)
func (l *lease) renew() error {
	ctx, cancel := context.WithTimeout(l.keeping, l.c.opt.TTL/patience)
	defer cancel()
	sent := boottime.Now()
	got, err := l.c.client.KeepAliveOnce(ctx, l.id())
	if err == nil {
		l.lasts(sent, got.TTL)
	}
	return err
}

// drift is which part of a lease is taken off: etcd's clock may go faster than ours by as much.
const drift = 10

// lasts notes that etcd has given the lease some seconds, in answer to a request that was sent at a time: it has not begun to count before that.
func (l *lease) lasts(sent time.Duration, seconds int64) {
	l.reach.Lock()
	defer l.reach.Unlock()
	ttl := min(time.Duration(seconds)*time.Second, l.c.opt.TTL)
	l.until.Store(max(l.until.Load(), int64(sent+ttl-ttl/drift)))
}

// LeasedUntil is member.Leased.
func (l *lease) LeasedUntil() time.Duration { return time.Duration(l.until.Load()) }

// guard looks whether etcd still knows the node's past. If the member of etcd that is asked hangs it asks another one, once: the next renewal must not
// be late.
func (l *lease) guard() {
	for range 2 {
		ctx, cancel := context.WithTimeout(l.keeping, l.c.opt.TTL/renewals)
		err := l.checkPast(ctx)
		cancel()
		if err == nil {
			return
		}
	}
}

// checkPast ends the incarnation if etcd does not know any more what the node has seen or acknowledged, as when a backup was restored: others may go by
// something else since. Each change of the cluster is acknowledged by each node, so an etcd that has lost one has lost an acknowledgement of every node,
// whatever others have written since.
func (l *lease) checkPast(ctx context.Context) error {
	p := l.past()
	got, err := l.c.client.Get(ctx, l.c.prefix+ackKey(l.incarnation))
	if err != nil {
		return err
	}
	var acked int64
	if len(got.Kvs) > 0 {
		acked = got.Kvs[0].ModRevision
	}
	l.compare(p, got.Header.Revision, acked)
	return nil
}

// A past is revisions of etcd: one that the node has seen, and that of an acknowledgement of the node.
type past struct{ seen, acked int64 }

// past returns what each later answer of etcd contains.
func (l *lease) past() past { return past{l.seen.Load(), l.acked.Load()} }

// compare compares an answer of etcd with the node's past before the question: etcd's revision, and that of the node's acknowledgement. It reports
// whether the answer contains the past; if not, it ends the incarnation.
func (l *lease) compare(p past, revision, acked int64) bool {
	switch {
	case revision < p.seen:
		l.end(fmt.Errorf("%w: etcd has gone back from revision %d to %d: was a backup restored?", fabric.ErrFenced, p.seen, revision))
	case acked == 0 && p.acked != 0:
		l.lose() // the key goes with the lease
	case acked < p.acked:
		l.end(fmt.Errorf("%w: etcd does not know any more that node %x acknowledged a change at revision %d (it is at %d): was a backup restored?", fabric.ErrFenced, uint64(l.incarnation), p.acked, revision))
	default:
		return true
	}
	return false
}

// timeLeft asks how much time is left to an incarnation, in whole seconds, rounded towards 0; it is negative when it has ended.
func (c *Coordinator) timeLeft(ctx context.Context, incarnation member.Incarnation) (time.Duration, error) {
	r, cancel := c.request(ctx)
	defer cancel()
	got, err := c.client.TimeToLive(r, clientv3.LeaseID(incarnation))
	if err != nil {
		return 0, err
	}
	return time.Duration(got.TTL) * time.Second, nil
}

// lose ends the lease by others' decision.
func (l *lease) lose() {
	l.end(fmt.Errorf("%w: etcd has ended incarnation %x", fabric.ErrFenced, uint64(l.incarnation)))
}

// end ends the incarnation here.
func (l *lease) end(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.done)
		l.cancel()
	})
}

// revoke ends a lease in etcd. One that is gone already is no error.
func (c *Coordinator) revoke(ctx context.Context, incarnation member.Incarnation) error {
	r, cancel := c.request(ctx)
	defer cancel()
	_, err := c.client.Revoke(r, clientv3.LeaseID(incarnation))
	if isLeaseGone(err) {
		return nil
	}
	return c.explain(ctx, err)
}

// Err returns why the incarnation has ended, or nil.
func (l *lease) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// ended returns why the lease has ended, or that the node has left.
func (l *lease) ended() error {
	if err := l.Err(); err != nil {
		return err
	}
	return errors.New("etcd: the node has left")
}
