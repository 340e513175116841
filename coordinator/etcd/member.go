//go:build !shmonly

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

// outlivePeriod is how often the time that is left to a lease is looked at.
const outlivePeriod = 500 * time.Millisecond

// A membership is a node of the cluster: member.Member.
type membership struct {
	*lease
	*watcher
	record  record
	served  uint32 // the last epoch before ours in which a memory node with our number served
	brought uint32 // the last epoch that a memory node knows of itself

	mu      sync.Mutex
	wake    chan struct{} // has something when there is work
	ack     uint64        // revision to be acknowledged
	reports []member.Incarnation
	publish chan struct{} // closed when it is known whether our node key is there; nil: it has not been written yet
	node    int64         // its revision, once it is published
}

// JoinCN is member.Service.JoinCN.
func (c *Coordinator) JoinCN(ctx context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	return c.join(ctx, record{Addr: addr}, ready, func(m *membership) error { return m.reserveCN(ctx) })
}

// JoinMN is member.Service.JoinMN.
func (c *Coordinator) JoinMN(ctx context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	return c.join(ctx, record{Addr: mn.Addr, Size: mn.Size, Replicas: mn.Replicas, MinInSync: mn.MinInSync, Label: mn.Label, Room: mn.Room, Was: mn.Was, Known: mn.Known}, ready, func(m *membership) error {
		m.brought = mn.Epoch
		return m.reserveMN(ctx, mn.ID)
	})
}

func (c *Coordinator) join(ctx context.Context, r record, ready func(member.Member), reserve func(*membership) error) (member.Member, error) {
	if len(r.Addr) > maxAddr || len(r.Label) > maxAddr || r.Size > fabric.MaxOffset {
		return nil, fmt.Errorf("%w: address of %d bytes, label of %d (at most %d), memory of %d (at most %d)", ErrOptions, len(r.Addr), len(r.Label), maxAddr, r.Size, uint64(fabric.MaxOffset))
	}
	if n := len(r.encode()); n > maxRecord {
		return nil, fmt.Errorf("%w: what the memory node knows of groups has %d bytes, at most %d", ErrOptions, n, maxRecord)
	}
	l, err := c.grant(ctx)
	if err != nil {
		return nil, err
	}
	m := &membership{lease: l, record: r, wake: make(chan struct{}, 1)}
	m.record.Incarnation = l.incarnation
	if m.watcher, err = c.startWatch(ctx, l.ctx, l); err == nil {
		go m.work()
		err = m.enter(ctx, ready, reserve)
	}
	if err == nil {
		return m, nil
	}
	switch {
	case l.ctx.Err() != nil:
		err = fmt.Errorf("etcd: joining %q: %w", c.opt.Cluster, l.ended())
	case ctx.Err() != nil:
		err = fmt.Errorf("etcd: joining %q: %w", c.opt.Cluster, ctx.Err())
	}
	if left := m.leave(ctx, goneLeft, err); left != nil && ctx.Err() == nil {
		c.opt.Report(left)
	}
	return nil, err
}

// enter makes the node a member: see the package's documentation.
func (m *membership) enter(ctx context.Context, ready func(member.Member), reserve func(*membership) error) error {
	if err := m.makeFormat(ctx); err != nil {
		return err
	}
	if err := reserve(m); err != nil {
		return err
	}
	if ready != nil {
		ready(m)
	}
	if err := ctx.Err(); err != nil { // ready may have ended it
		return fmt.Errorf("etcd: join: %w", err)
	}
	n := m.number
	ours := m.lease.c.holds(dirLive+n.String(), count(uint64(m.incarnation)))
	revision, err := m.put(ctx, []clientv3.Cmp{ours, m.lease.c.absent(dirNode + n.String())},
		[]clientv3.Op{m.lease.c.put(dirNode+n.String(), m.record.encode(), clientv3.NoLease)})
	if err == nil {
		err = m.await(ctx, func(v *view) bool { return v.revision >= revision && v.ledger().Admits(uint64(revision)) })
	}
	if err == nil {
		var then []clientv3.Op
		if !n.cn { // a memory node lets no node in before, so that a join that has failed supersedes no memory
			then = append(then, m.lease.c.put(servedKey(n), count(uint64(m.record.Epoch)), clientv3.NoLease))
		}
		// The acknowledgements were of this history: else others need not know of us.
		_, err = m.lease.c.commit(ctx, []clientv3.Cmp{ours, m.lease.c.unchanged(dirNode+n.String(), revision)}, then...)
	}
	if errors.Is(err, errStale) {
		m.lose()
	}
	m.few.Store(err == nil && n.cn)
	return err
}

// put publishes the node. A node that gives up meanwhile still finds out whether its key is there: it then has to leave, not to be taken for dead.
func (m *membership) put(ctx context.Context, when []clientv3.Cmp, then []clientv3.Op) (int64, error) {
	publish := make(chan struct{})
	m.mu.Lock()
	m.publish = publish
	m.mu.Unlock()
	var revision int64
	var err error
	go func() {
		defer close(publish)
		if revision, err = m.lease.c.commit(context.WithoutCancel(ctx), when, m.lease.c.step(then...)...); err == nil {
			m.mu.Lock()
			m.node = revision
			m.mu.Unlock()
		}
	}()
	select {
	case <-publish:
		return revision, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// makeFormat writes which layout the keys have, if that is not written yet, or if no node of the layout before is there any more. A memory node whose number is
// replicated needs the layout with groups.
func (m *membership) makeFormat(ctx context.Context) error {
	c := m.lease.c
	var wait time.Duration
	for {
		var known string
		var err error
		m.read(func(v *view) { known, err = v.format, v.checkFormat() })
		if known == formatGroups || known == format && !m.replicates() || err != nil {
			return err
		}
		want := format
		if m.replicates() {
			want = formatGroups
		}
		when := []clientv3.Cmp{c.absent(keyFormat)}
		if known != "" {
			empty := clientv3.Compare(clientv3.CreateRevision(c.prefix+dirLive), "=", 0).WithPrefix()
			when = []clientv3.Cmp{c.holds(keyFormat, known), empty}
		}
		_, err = c.commit(ctx, when, c.put(keyFormat, want, clientv3.NoLease))
		switch {
		case err == nil:
			return m.await(ctx, func(v *view) bool { return v.format == want })
		case errors.Is(err, errStale) && known == format && m.knows(ctx, known):
			return fmt.Errorf("%w: its keys have format %q, and a memory node with replicas needs %q: stop all nodes of the cluster, then start this memory node first", ErrFormat, known, want)
		case !errors.Is(err, errStale):
			return err
		case !pause(ctx, &wait): // the view soon shows the faster one
			return ctx.Err()
		}
	}
}

// replicates reports whether the node needs the layout with groups.
func (m *membership) replicates() bool { return m.record.Replicas > 1 || len(m.record.Known) > 0 }

// knows reports whether the keys still have a format: another memory node with replicas may have been faster.
func (m *membership) knows(ctx context.Context, format string) bool {
	if err := m.refresh(ctx); err != nil {
		return false // the next attempt shows why
	}
	var now string
	m.read(func(v *view) { now = v.format })
	return now == format
}

// reserveCN reserves the lowest free number. The number of a node that has gone
// becomes free when all members have acknowledged that: at once if there is none.
func (m *membership) reserveCN(ctx context.Context) error {
	for {
		var id fabric.CNID
		var settled bool
		var err error
		news := m.read(func(v *view) {
			id, err = v.freeCN(m.lease.c.opt.MaxCN), v.checkFormat()
			_, due := v.chore()
			settled = !due
		})
		switch {
		case err != nil:
			return err
		case id != 0:
			err := m.reserve(ctx, cnNumber(id))
			if !errors.Is(err, errStale) {
				return err
			}
		case settled:
			return fmt.Errorf("%w: there are %d", member.ErrFull, m.lease.c.opt.MaxCN)
		default:
			select {
			case <-news:
			case <-ctx.Done():
				return ctx.Err()
			case <-m.done:
				return m.lease.ctx.Err()
			}
		}
	}
}

// reserveMN reserves the number of a memory node. A node that has it may have crashed:
// etcd knows at the end of its lease.
func (m *membership) reserveMN(ctx context.Context, id fabric.MemID) error {
	n := mnNumber(id)
	for {
		var old member.Incarnation
		var addr string
		var strange bool
		var err error
		m.read(func(v *view) {
			old, addr, err = v.live[n], v.nodes[n].Addr, v.checkFormat()
			_, strange = v.strange[n]
		})
		if err != nil {
			return err
		}
		if strange {
			return fmt.Errorf("%w: the key %s%v, of this memory node, cannot be understood", ErrFormat, dirNode, n)
		}
		if old != 0 {
			if err := m.outlive(ctx, n, old); err != nil {
				return fmt.Errorf("%w: %v at %s", err, id, addr)
			}
		}
		free := func(v *view) bool {
			_, known := v.nodes[n]
			return !known || v.live[n] != 0
		}
		if err := m.await(ctx, free); err != nil {
			return err
		}
		err = m.reserve(ctx, n)
		if !errors.Is(err, errStale) {
			return err
		}
	}
}

// outlive waits for the end of an incarnation, unless it is renewed: it still has time
// when what it had has passed.
func (m *membership) outlive(ctx context.Context, n number, old member.Incarnation) error {
	gone := func(v *view) bool { return v.live[n] != old }
	var limit time.Time
	for {
		asked := time.Now()
		left, err := m.lease.c.timeLeft(ctx, old)
		if err != nil {
			return m.lease.c.explain(ctx, err)
		}
		if limit.IsZero() {
			limit = asked.Add(left + 2*time.Second) // times are rounded to seconds, towards 0
		}
		if left >= 0 && asked.After(limit) {
			return member.ErrInUse
		}
		wait, cancel := context.WithTimeout(ctx, outlivePeriod)
		err = m.await(wait, gone)
		cancel()
		if err == nil || ctx.Err() != nil || m.lease.ctx.Err() != nil {
			return err
		}
	}
}

// reserve reserves a number: errStale if another node was faster. The view shows it then.
func (m *membership) reserve(ctx context.Context, n number) error {
	c := m.lease.c
	live, key := dirLive+n.String(), dirNode+n.String()
	var known string
	m.read(func(v *view) { known = v.format })
	when := []clientv3.Cmp{c.absent(live), c.absent(key), c.holds(keyFormat, known)}
	then := []clientv3.Op{c.put(live, count(uint64(m.incarnation)), m.id())}
	if !n.cn {
		var epoch versioned
		m.read(func(v *view) { epoch = v.epochs[fabric.MemID(n.id)] })
		// Keys may be newer than the node: when etcd has lost its data, its epochs begin behind those of memory that is still there.
		m.record.Epoch = max(uint32(epoch.n), m.brought) + 1
		key := epochKey(n)
		when = append(when, c.unchanged(key, epoch.modified))
		then = append(then, c.put(key, count(uint64(m.record.Epoch)), clientv3.NoLease))
	}
	revision, err := c.commit(ctx, when, then...)
	if err != nil {
		if again := m.refresh(ctx); again != nil {
			return again
		}
		if over := m.Err(); over != nil {
			return over
		}
		m.read(func(v *view) {
			if v.live[n] == m.incarnation { // what said so was lost on the way
				revision, err = v.revision, nil
			}
		})
	}
	if err != nil {
		return err
	}
	if err := m.await(ctx, func(v *view) bool { return v.revision >= revision }); err != nil {
		return err
	}
	m.watcher.mu.Lock()
	defer m.watcher.mu.Unlock()
	if !n.cn {
		m.served = uint32(m.view.served[fabric.MemID(n.id)]) // it stays so: no other node can join while our live key is there
	}
	m.number = n // only now: the watcher takes a view without our live key for our end
	return nil
}

// CN is member.Member.CN.
func (m *membership) CN() member.CN {
	if !m.number.cn {
		return member.CN{}
	}
	return member.CN{ID: fabric.CNID(m.number.id), Incarnation: m.incarnation, Addr: m.record.Addr}
}

// MN is member.Member.MN.
func (m *membership) MN() member.MN {
	if m.number.cn {
		return member.MN{}
	}
	r := &m.record
	mn := r.mn(m.number)
	mn.Served = m.served
	return mn
}

// Done is member.Member.Done.
func (m *membership) Done() <-chan struct{} { return m.done }

// Ack is member.Member.Ack.
func (m *membership) Ack(revision uint64) {
	m.mu.Lock()
	m.ack = max(m.ack, revision)
	m.mu.Unlock()
	m.poke()
}

// Report is member.Member.Report.
func (m *membership) Report(dead member.Incarnation) {
	// An incarnation is the number of a lease, and etcd may have those of others.
	if s, _ := m.State(); !s.Has(dead) {
		return
	}
	m.mu.Lock()
	m.reports = append(m.reports, dead)
	m.mu.Unlock()
	m.poke()
}

func (m *membership) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Leave is member.Member.Leave. When ctx ends first, the node has left here; etcd is told in the background.
func (m *membership) Leave(ctx context.Context) error { return m.leave(ctx, goneLeft, nil) }

// Fail is member.Member.Fail.
func (m *membership) Fail(ctx context.Context) error { return m.leave(ctx, goneDied, nil) }

// leave ends the membership, with what Err is to say. how is goneLeft or goneDied.
func (m *membership) leave(ctx context.Context, how string, why error) error {
	if m.Err() != nil {
		return m.Err()
	}
	m.end(why)
	return m.lease.c.cleanUp(ctx, func(ctx context.Context) error { return m.depart(ctx, how) })
}

// depart writes to etcd how the node has gone.
func (m *membership) depart(ctx context.Context, how string) error {
	c := m.lease.c
	m.mu.Lock()
	publish := m.publish
	m.mu.Unlock()
	if publish != nil {
		<-publish // it is bounded
	}
	m.mu.Lock()
	node := m.node
	m.mu.Unlock()
	if node != 0 {
		gone, n := m.record, m.number.String()
		gone.Gone = how
		_, err := c.commit(ctx, []clientv3.Cmp{c.unchanged(dirNode+n, node)},
			c.step(c.put(dirNode+n, gone.encode(), clientv3.NoLease), c.delete(dirLive+n))...)
		if err != nil && !errors.Is(err, errStale) {
			return err // the lease runs out
		}
	}
	return c.revoke(ctx, m.incarnation)
}
