package etcd

import (
	"time"

	"github.com/declock/declock/fabric/member"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// work does what Ack and Report ask for, and the chores of the cluster, until
// the membership ends.
func (m *membership) work() {
	var acked uint64
	var wait time.Duration
	for {
		var v *view
		var x chore
		var due bool
		news := m.read(func(now *view) {
			x, due = now.chore()
			v = &view{lost: now.lost}
		})
		err := m.tell(&acked)
		if err == nil && due {
			err = m.lease.c.do(m.lease.ctx, v, x)
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

// tell tells etcd what Ack and Report have been told.
func (m *membership) tell(acked *uint64) error {
	m.mu.Lock()
	ack, reports := m.ack, m.reports
	m.mu.Unlock()
	ctx := m.lease.ctx
	c := m.lease.c
	if ack > *acked {
		r, cancel := c.request(ctx)
		defer cancel()
		_, err := c.client.Put(r, c.prefix+ackKey(m.life), count(ack), clientv3.WithLease(m.id()))
		if isLeaseGone(err) {
			m.lose()
			return nil
		}
		if err != nil {
			return c.explain(ctx, err)
		}
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
func (m *membership) reported(dead member.Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, l := range m.reports {
		if l == dead {
			m.reports = append(m.reports[:i:i], m.reports[i+1:]...)
			return
		}
	}
}
