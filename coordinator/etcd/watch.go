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
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A watcher keeps a view up to date.
type watcher struct {
	c   *Coordinator
	ctx context.Context
	own *lease // of the member that watches, or nil

	// few: it follows acknowledgements only while it must. See seesAcks.
	few atomic.Bool

	mu     sync.Mutex
	view   *view
	state  *member.State
	change chan struct{} // closed when state is not the newest
	news   chan struct{} // closed when view has changed, also in what states do not show
}

// startWatch lists the keys, and follows them until ctx ends. first bounds the listing.
func (c *Coordinator) startWatch(first, ctx context.Context, own *lease) (*watcher, error) {
	v, err := c.list(first)
	if err != nil {
		return nil, err
	}
	if own != nil {
		own.seen.Store(v.revision)
	}
	w := &watcher{c: c, ctx: ctx, own: own, view: v, state: v.state(), change: make(chan struct{}), news: make(chan struct{})}
	go w.run()
	return w, nil
}

// State is member.Watcher.State.
func (w *watcher) State() (*member.State, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.change
}

// read calls f with the view, and returns a channel that is closed when the view has changed.
func (w *watcher) read(f func(*view)) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.view)
	return w.news
}

// await waits until the view shows something.
func (w *watcher) await(ctx context.Context, ok func(*view) bool) error {
	for {
		var yes bool
		news := w.read(func(v *view) { yes = ok(v) })
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ctx.Done():
			return w.ctx.Err()
		case <-news:
		}
	}
}

// run follows the keys until the context ends.
func (w *watcher) run() {
	var wait time.Duration
	for w.ctx.Err() == nil {
		some, listed := w.follow()
		if some {
			wait = 0
		}
		if listed {
			continue
		}
		// The watch was cut off, or what comes next has been compacted away: list again.
		for pause(w.ctx, &wait) {
			err := w.refresh(w.ctx)
			if err == nil {
				break
			}
			w.c.report(w.ctx, err)
		}
	}
}

// seesAcks reports whether the watch is to show acknowledgements. Each member writes one for each change: if all saw them, a change would cost the square of the members. A node
// that joins waits for those of others. Later, steps that wait for acknowledgements are made by memory nodes, which see all; a compute node makes them if none is a member. (One
// that is must acknowledge, too: so while it sees nothing, there is no such step to make.)
func (w *watcher) seesAcks(v *view) bool { return !w.few.Load() || !v.hasMemory() }

// follow applies changes until the watch breaks, or shows what does not continue the view, or is to show other keys. It reports whether there were any, and whether the view has all
// that the next watch is to continue.
func (w *watcher) follow() (some, listed bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(w.ctx))
	defer cancel()
	var from int64
	var acks bool
	w.read(func(v *view) { from, acks = v.revision+1, w.seesAcks(v) })
	first := w.c.prefix
	if !acks {
		first += behindAcks
	}
	for r := range w.c.client.Watch(ctx, first, clientv3.WithRange(clientv3.GetPrefixRangeEnd(w.c.prefix)), clientv3.WithRev(from), clientv3.WithPrevKV()) {
		if err := r.Err(); err != nil {
			w.c.report(w.ctx, err)
			return some, false
		}
		if !w.apply(r.Events) {
			return some, false
		}
		some = true
		was := acks
		if w.read(func(v *view) { acks = w.seesAcks(v) }); acks != was {
			return some, was
		}
	}
	return some, false
}

// apply takes changes into the view. It reports whether they continue it: if not, none of them is taken.
func (w *watcher) apply(events []*clientv3.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.view.continuedBy(events, w.c.prefix) {
		return false
	}
	changed := false
	from := w.view.revision
	for _, e := range events {
		if e.Kv.ModRevision <= from {
			continue // of before a listing
		}
		key := string(e.Kv.Key[len(w.c.prefix):])
		w.view.revision = e.Kv.ModRevision
		if e.Type == clientv3.EventTypeDelete {
			changed = w.view.remove(key) || changed
			continue
		}
		c, err := w.view.put(key, e.Kv)
		if err != nil {
			w.c.opt.Report(fmt.Errorf("etcd: %s is ignored: %w", w.c.prefix, err))
		}
		changed = changed || c
	}
	w.publish(changed)
	return true
}

// refresh lists the keys anew. A member whose past etcd does not know any more is fenced.
func (w *watcher) refresh(ctx context.Context) error {
	for stepped := false; ; stepped = true {
		var p past
		if w.own != nil {
			p = w.own.past()
		}
		v, err := w.c.list(ctx)
		if err != nil {
			return err
		}
		if w.own != nil && !w.own.compare(p, v.revision, v.acks[w.own.incarnation].modified) {
			return nil
		}
		if w.own == nil || stepped || !w.ties(v) {
			w.relist(v)
			return nil
		}
		// A step that changes nothing moves etcd on. If another node is faster it has done that.
		if _, err := w.c.commit(ctx, []clientv3.Cmp{w.c.holds(keyFormat, v.format), w.c.in(v.history)}, w.c.step()...); err != nil && !errors.Is(err, errStale) {
			return err
		}
	}
}

// ties reports whether a listing has the revision of the view and is of another history, as when a backup of etcd was restored and others have written as
// much since: its State is no news to the node, and the node's acknowledgement of the one before would count for it.
func (w *watcher) ties(v *view) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return v.revision == w.view.revision && v.history != w.view.history
}

// relist replaces the view by a newer one.
func (w *watcher) relist(v *view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := v.history == w.view.history
	if !same && v.revision == w.view.revision && w.own != nil {
		// See ties. The view has come to this revision since refresh looked.
		w.own.end(fmt.Errorf("%w: etcd's revision %d has another history than node %x has seen: was a backup restored?", fabric.ErrFenced, v.revision, uint64(w.own.incarnation)))
	}
	switch {
	case v.revision < w.view.revision:
		return // a watch was faster
	case same:
		v.unlinked = w.view.unlinked
	default:
		v.unlinked = v.revision
	}
	changed := v.revision != w.view.revision || !same
	w.view = v
	w.publish(changed)
}

// publish makes a changed view known; mu is held.
func (w *watcher) publish(changed bool) {
	close(w.news)
	w.news = make(chan struct{})
	if changed {
		w.state = w.view.state()
		close(w.change)
		w.change = make(chan struct{})
	}
	if w.own != nil {
		w.own.seen.Store(w.view.revision)
	}
	if w.own != nil && w.own.number != (number{}) && w.view.live[w.own.number] != w.own.incarnation {
		w.own.lose()
	}
}

// report reports an error, unless it is the end of what was under way.
func (c *Coordinator) report(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.opt.Report(err)
	}
}
