//go:build !shmonly

package etcd

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/declock/declock/fabric/member"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// work does what Ack and Report ask for, and the chores of the cluster, until
// the membership ends.
func (m *membership) work() {
	var acked uint64
	var wait time.Duration
	var stale time.Time // since when transactions find that the view is not what etcd has
	for {
		var v *view
		var x chore
		var due bool
		news := m.read(func(now *view) {
			x, due = now.chore()
			v = &view{lost: now.lost, history: now.history, unlinked: now.unlinked, format: now.format}
			if due && x.group != nil { // what it is put by
				v.groups, v.epochs, v.live = maps.Clone(now.groups), maps.Clone(now.epochs), maps.Clone(now.live)
			}
		})
		err := m.send(v, &acked)
		if err == nil && due {
			err = m.lease.c.do(m.lease.ctx, v, x)
		}
		if errors.Is(err, errStale) {
			if err = m.catchUp(news, &stale); err == nil {
				continue
			}
		} else if err == nil {
			stale = time.Time{}
		}
		if err != nil {
			m.lease.c.report(m.lease.ctx, err)
			if !pause(m.lease.ctx, &wait) {
				return
			}
			continue
		}
		wait = 0
		select {
		case <-m.done:
			return
		case <-news:
		case <-m.wake:
		}
	}
}

// catchUp waits for news: a view that others have made stale is soon brought up to date by its watch. One that is not is listed anew:
// if a backup of etcd was restored, its watch may show nothing for long.
func (m *membership) catchUp(news <-chan struct{}, stale *time.Time) error {
	if stale.IsZero() {
		*stale = time.Now()
	}
	if left := maxRetry - time.Since(*stale); left > 0 {
		wait := time.NewTimer(left)
		defer wait.Stop()
		select {
		case <-m.done:
		case <-news:
		case <-wait.C:
		}
		return nil
	}
	*stale = time.Time{}
	return m.refresh(m.lease.ctx)
}

// send writes to etcd what Ack and Report have asked for, while the history is that of the view. errStale: it is not.
func (m *membership) send(v *view, acked *uint64) error {
	m.mu.Lock()
	ack, reports := m.ack, m.reports
	m.mu.Unlock()
	ctx := m.lease.ctx
	c := m.lease.c
	// What counts is the last step: what is later is known to no step yet, and may be lost when a backup of etcd is restored.
	// And a state of before a listing may be one of another history.
	linked := ack >= uint64(v.unlinked)
	if ack = min(ack, uint64(v.history.modified)); ack > *acked && linked {
		when := []clientv3.Cmp{c.in(v.history), c.since(ackKey(m.incarnation), m.acked.Load())}
		revision, err := c.commit(ctx, when, c.put(ackKey(m.incarnation), count(ack), m.id()))
		if isLeaseGone(err) {
			m.lose()
			return nil
		}
		if err != nil {
			return err
		}
		m.acked.Store(revision)
		*acked = ack
	}
	for _, dead := range reports {
		if err := c.revoke(ctx, dead); err != nil {
			return err
		}
		m.reported(dead)
	}
	return nil
}

// reported forgets a report that etcd has got.
func (m *membership) reported(dead member.Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.reports, dead); i >= 0 {
		m.reports = slices.Concat(m.reports[:i], m.reports[i+1:]) // send may be reading the old ones
	}
}
