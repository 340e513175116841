//go:build !shmonly

package etcd

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Silence stops the keepalives of a member's lease, as if they did not get through.
func Silence(m member.Member) { m.(*membership).stop() }

// Expire ends a member's lease in etcd, as if its time had run out.
func Expire(c *Coordinator, m member.Member) {
	Silence(m)
	incarnation := max(m.CN().Incarnation, m.MN().Incarnation)
	if err := c.revoke(context.Background(), incarnation); err != nil {
		panic(err)
	}
}

// AwaitRevision waits until the watch of a member has shown a revision of etcd.
func AwaitRevision(ctx context.Context, m member.Member, revision int64) {
	if err := m.(*membership).await(ctx, func(v *view) bool { return v.revision >= revision }); err != nil {
		panic(err)
	}
}

// AwaitAck waits until etcd has a member's acknowledgement of the last change of history, and the member knows that: one that does not hear of it writes it
// again when etcd is back.
func AwaitAck(ctx context.Context, m member.Member) {
	own := m.(*membership)
	for {
		v, err := own.lease.c.list(ctx)
		if err != nil {
			panic(err)
		}
		if a := v.acks[own.incarnation]; a.n >= uint64(v.history.modified) && own.acked.Load() >= a.modified {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// SeesAcks reports whether a member's view has the acknowledgement of another of the last change.
func SeesAcks(m, other member.Member) (sees bool) {
	m.(*membership).read(func(v *view) { sees = v.acks[other.(*membership).incarnation].n >= uint64(v.history.modified) })
	return sees
}

// Forgetting returns what forgets a compute node that has died, by the keys as they are now: false if others were faster.
func Forgetting(c *Coordinator, ctx context.Context, id fabric.CNID) (forget func() (bool, error), err error) {
	v, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	return func() (bool, error) {
		err := c.do(ctx, v, chore{n: cnNumber(id), was: v.nodes[cnNumber(id)], forget: true})
		if errors.Is(err, errStale) {
			return false, nil
		}
		return err == nil, err
	}, nil
}

// JoinMNBehind is JoinMN by a coordinator whose view, when the number is reserved, is that of before meanwhile was called: its
// watch is behind.
func JoinMNBehind(c *Coordinator, ctx context.Context, id fabric.MemID, ready func(member.Member), meanwhile func()) (member.Member, error) {
	return c.join(ctx, record{Addr: "mn.example:2", Size: 1 << 20}, ready, func(m *membership) error {
		// A view that shows an incarnation of before would never change again.
		forgotten := func(v *view) bool { _, known := v.nodes[mnNumber(id)]; return !known }
		if err := m.await(ctx, forgotten); err != nil {
			return err
		}
		var old *view
		m.read(func(v *view) { old = v.clone() })
		meanwhile()
		v, err := c.list(ctx) // all of it has come
		if err != nil {
			return err
		}
		if err := m.await(ctx, func(now *view) bool { return now.revision >= v.revision }); err != nil {
			return err
		}
		m.watcher.mu.Lock()
		old.history = m.watcher.view.history // changes that follow continue the view, though it lacks some
		m.watcher.view = old
		m.watcher.mu.Unlock()
		return m.reserveMN(ctx, id)
	})
}

// clone returns a copy that changes by itself.
func (v *view) clone() *view {
	w := *v
	w.nodes, w.strange, w.live, w.acks, w.epochs = maps.Clone(v.nodes), maps.Clone(v.strange), maps.Clone(v.live), maps.Clone(v.acks), maps.Clone(v.epochs)
	w.forgot, w.served = maps.Clone(v.forgot), maps.Clone(v.served)
	return &w
}
