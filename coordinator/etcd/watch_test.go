//go:build !shmonly

package etcd

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const watched = "/declock/test/"

// newWatcher returns a watcher of a node at a revision, that follows nothing by itself.
func newWatcher(t *testing.T, v *view) *watcher {
	c := &Coordinator{prefix: watched, opt: Options{Report: func(err error) { t.Log(err) }}}
	return &watcher{c: c, ctx: t.Context(), view: v, state: v.state(), change: make(chan struct{}), news: make(chan struct{})}
}

func viewAt(revision int64, history string, cns ...uint16) *view {
	v := newView()
	v.revision, v.history = revision, stamp{history, revision}
	for _, id := range cns {
		n := number{cn: true, id: id}
		v.nodes[n], v.live[n] = node{record: record{Incarnation: member.Incarnation(id)}, created: 1, modified: 1}, member.Incarnation(id)
	}
	return v
}

// A listing that is older than what the watch has shown changes nothing.
func TestOlderListing(t *testing.T) {
	w := newWatcher(t, viewAt(10, "x", 1, 2))
	w.relist(viewAt(9, "w", 1))
	if s, _ := w.State(); s.Revision != 10 || len(s.CNs) != 2 {
		t.Errorf("%+v", *s)
	}
	w.relist(viewAt(11, "y", 3))
	if s, _ := w.State(); s.Revision != 11 || len(s.CNs) != 1 || w.view.unlinked != 11 {
		t.Errorf("%+v, unlinked up to %d", *s, w.view.unlinked)
	}
	w.relist(viewAt(12, "y", 3)) // "y" at another revision is none that was seen
	if w.view.unlinked != 12 {
		t.Errorf("unlinked up to %d", w.view.unlinked)
	}
}

// A listing has the revision of the view, and is of another history, as when a backup was restored and others have written as much since. A node that has
// acted on the view would act on nothing of the listing, for its revision is not newer: its incarnation ends. A program that only watches sees the listing.
func TestListingOfAnotherHistory(t *testing.T) {
	for _, x := range []struct {
		history string
		fenced  bool
	}{{"x", false}, {"y", true}} {
		w := newWatcher(t, viewAt(10, "x", 1, 2))
		w.own = &lease{c: w.c, incarnation: 1, done: make(chan struct{})}
		w.own.ctx, w.own.cancel = context.WithCancel(t.Context())
		w.relist(viewAt(10, x.history, 1))
		if err := w.own.Err(); errors.Is(err, fabric.ErrFenced) != x.fenced || (w.own.ctx.Err() != nil) != x.fenced {
			t.Errorf("history %q after x: the incarnation has ended with %v", x.history, err)
		}
	}
	w := newWatcher(t, viewAt(10, "x", 1, 2))
	_, changed := w.State()
	w.relist(viewAt(10, "y", 1))
	select {
	case <-changed:
	default:
		t.Error("a watcher is not notified")
	}
	if s, _ := w.State(); len(s.CNs) != 1 {
		t.Errorf("%+v", *s)
	}
}

func change(revision int64, created bool, key, value, before string) *clientv3.Event {
	e := &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(watched + key), Value: []byte(value), ModRevision: revision, CreateRevision: 1}}
	if created {
		e.Kv.CreateRevision = revision
	}
	if before != "" {
		e.PrevKv = &mvccpb.KeyValue{Value: []byte(before)}
	}
	return e
}

// Changes are taken if they continue the view, and else none of them.
func TestChangesThatDoNotContinue(t *testing.T) {
	for name, x := range map[string]struct {
		events []*clientv3.Event
		ok     bool
	}{
		"the next":                {[]*clientv3.Event{change(11, false, keyHistory, "y", "x"), change(12, false, keyHistory, "z", "y")}, true},
		"of before the listing":   {[]*clientv3.Event{change(10, false, keyHistory, "x", "w")}, true},
		"of other keys":           {[]*clientv3.Event{change(11, false, keyLost, "3", "2")}, true},
		"of another history":      {[]*clientv3.Event{change(11, false, keyHistory, "y", "v")}, false},
		"one is missing":          {[]*clientv3.Event{change(11, false, keyHistory, "y", "x"), change(13, false, keyHistory, "b", "a")}, false},
		"the first of a history":  {[]*clientv3.Event{change(11, true, keyHistory, "y", "")}, false},
		"one before is compacted": {[]*clientv3.Event{change(11, false, keyHistory, "y", "")}, false},
	} {
		w := newWatcher(t, viewAt(10, "x", 1))
		x.events = append(x.events, change(14, true, dirNode+"cn/002", `{"life":2}`, ""), change(14, true, dirLive+"cn/002", "2", ""))
		ok := w.apply(x.events)
		if s, _ := w.State(); ok != x.ok || (len(s.CNs) == 2) != x.ok {
			t.Errorf("%s: taken %v, %+v", name, ok, *s)
		}
	}
}
