//go:build !shmonly

package etcd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A view is what the keys of a cluster say, at a revision of etcd. It is plain data.
type view struct {
	revision int64 // of etcd, up to which all changes are here
	format   string
	nodes    map[number]node
	strange  map[number]struct{} // node keys that cannot be understood: their numbers are taken
	live     map[number]member.Incarnation
	acks     map[member.Incarnation]versioned
	epochs   map[fabric.MemID]versioned
	forgot   map[fabric.MemID]uint64 // the epoch with which it was forgotten
	served   map[fabric.MemID]uint64 // the last epoch in which it served
	groups   map[fabric.MemID]*member.Group
	lost     uint64
	history  stamp
	// Up to this revision it is not known that the view continues the one before it: the listing came without the changes between them.
	unlinked int64
}

// A node is a node key.
type node struct {
	record
	created  int64 // revision with which it became a member
	modified int64 // revision
}

// A versioned is a counter, and the revision of its last change; 0: it is not there.
type versioned struct {
	n        uint64
	modified int64
}

// A stamp is the value of the history key, and the revision of its last change; "": it is not there.
type stamp struct {
	id       string
	modified int64
}

func newView() *view {
	return &view{nodes: map[number]node{}, strange: map[number]struct{}{}, live: map[number]member.Incarnation{}, acks: map[member.Incarnation]versioned{}, epochs: map[fabric.MemID]versioned{},
		forgot: map[fabric.MemID]uint64{}, served: map[fabric.MemID]uint64{}, groups: map[fabric.MemID]*member.Group{}}
}

// put takes a key, relative to the prefix, into the view. It reports whether
// the member.State may be different now. What cannot be understood is not taken.
func (v *view) put(key string, kv *mvccpb.KeyValue) (changed bool, err error) {
	if err = v.decode(key, kv); err != nil {
		return false, fmt.Errorf("key %s: %w", key, err)
	}
	return changesState(key), nil
}

func changesState(key string) bool {
	return strings.HasPrefix(key, dirNode) || strings.HasPrefix(key, dirLive) || strings.HasPrefix(key, dirForgot) || strings.HasPrefix(key, dirGroup) || key == keyLost
}

func (v *view) decode(key string, kv *mvccpb.KeyValue) error {
	dir, rest := splitKey(key)
	switch dir {
	case dirNode:
		n, err := parseNumber(rest)
		if err != nil {
			return err
		}
		r, err := decodeRecord(n, kv.Value)
		if err == nil {
			v.nodes[n] = node{r, kv.CreateRevision, kv.ModRevision}
			delete(v.strange, n)
		} else {
			v.strange[n] = struct{}{}
		}
		return err
	case dirLive:
		n, err := parseNumber(rest)
		l, err2 := parseCount(kv.Value)
		if err == nil && err2 == nil {
			v.live[n] = member.Incarnation(l)
		}
		return cmp.Or(err, err2)
	case dirAck:
		l, err := parseAckKey(rest)
		revision, err2 := parseCount(kv.Value)
		if err == nil && err2 == nil {
			v.acks[l] = versioned{revision, kv.ModRevision}
		}
		return cmp.Or(err, err2)
	case dirGroup:
		return v.decodeGroup(rest, kv)
	case dirEpoch, dirForgot, dirServed:
		n, err := parseNumber("mn/" + rest)
		epoch, err2 := parseCount(kv.Value)
		if err = cmp.Or(err, err2); err != nil {
			return err
		}
		switch id := fabric.MemID(n.id); dir {
		case dirEpoch:
			v.epochs[id] = versioned{epoch, kv.ModRevision}
		case dirForgot:
			v.forgot[id] = epoch
		case dirServed:
			v.served[id] = epoch
		}
		return nil
	}
	switch key {
	case keyFormat:
		v.format = string(bytes.Clone(kv.Value[:min(len(kv.Value), maxRecord)]))
		return nil
	case keyLost:
		lost, err := parseCount(kv.Value)
		if err == nil {
			v.lost = lost
		}
		return err
	case keyHistory:
		if len(kv.Value) > maxRecord {
			return fmt.Errorf("%w: %d bytes", errRecord, len(kv.Value))
		}
		v.history = stamp{string(kv.Value), kv.ModRevision}
		return nil
	}
	return errRecord
}

func splitKey(key string) (dir, rest string) {
	i := strings.IndexByte(key, '/') + 1
	return key[:i], key[i:]
}

// remove takes a key out of the view.
func (v *view) remove(key string) (changed bool) {
	dir, rest := splitKey(key)
	n, err := parseNumber(rest)
	switch {
	case dir == dirNode && err == nil:
		delete(v.acks, v.nodes[n].Incarnation) // its own end may not be watched
		delete(v.nodes, n)
		delete(v.strange, n)
	case dir == dirLive && err == nil:
		delete(v.live, n)
	case dir == dirAck:
		if l, err := parseAckKey(rest); err == nil {
			delete(v.acks, l)
		}
	case key == keyFormat:
		v.format = ""
	case key == keyLost:
		v.lost = 0
	case key == keyHistory:
		v.history = stamp{}
	}
	return changesState(key)
}

// isMember reports whether a node is a member: it keeps its lease.
func (v *view) isMember(n number) bool {
	r, ok := v.nodes[n]
	return ok && r.Gone == "" && v.live[n] == r.Incarnation
}

// hasMemory reports whether a memory node is a member.
func (v *view) hasMemory() bool {
	for n := range v.nodes {
		if !n.cn && v.isMember(n) {
			return true
		}
	}
	return false
}

// ledger returns what the keys mean: the rules are member.Ledger's. (It is for asking
// only: what is to change, changes by transactions, each of which is one of its steps.)
func (v *view) ledger() *member.Ledger {
	l := &member.Ledger{Revision: uint64(v.revision), Lost: v.lost, Epochs: map[fabric.MemID]uint32{}, Forgotten: map[fabric.MemID]bool{}, Groups: v.groups}
	for id, epoch := range v.epochs {
		l.Epochs[id] = uint32(epoch.n)
		l.Forgotten[id] = v.forgot[id] >= epoch.n
	}
	for n, r := range v.nodes {
		e := entryOf(n, r.record)
		e.Since, e.Entry, e.Acked = uint64(r.modified), uint64(r.created), v.acks[r.Incarnation].n
		switch {
		case v.isMember(n):
			e.Phase = member.Joined
		case r.Gone == goneLeft:
			e.Phase = member.Left
		case r.Gone == goneDied:
			e.Phase = member.Died
		default:
			e.Phase, e.Since = member.Died, member.Unnoted
		}
		l.Entries = append(l.Entries, e)
	}
	for n, incarnation := range v.live {
		if _, known := v.nodes[n]; !known {
			l.Entries = append(l.Entries, entryOf(n, record{Incarnation: incarnation})) // reserved
		}
	}
	for n := range v.strange {
		l.Entries = append(l.Entries, entryOf(n, record{})) // its number is taken
	}
	slices.SortFunc(l.Entries, func(a, b *member.Entry) int { return int(numberOf(a).id) - int(numberOf(b).id) })
	return l
}

func entryOf(n number, r record) *member.Entry {
	if n.cn {
		return &member.Entry{CN: member.CN{ID: fabric.CNID(n.id), Incarnation: r.Incarnation, Addr: r.Addr}}
	}
	return &member.Entry{MN: r.mn(n)}
}

// mn returns the memory node of a record.
func (r *record) mn(n number) member.MN {
	return member.MN{ID: fabric.MemID(n.id), Incarnation: r.Incarnation, Addr: r.Addr, Size: r.Size, Epoch: r.Epoch, Replicas: r.Replicas, MinInSync: r.MinInSync, Label: r.Label, Room: r.Room, Was: r.Was, Known: r.Known}
}

func numberOf(e *member.Entry) number {
	if e.IsCN() {
		return cnNumber(e.CN.ID)
	}
	return mnNumber(e.MN.ID)
}

// state returns the present member.State.
func (v *view) state() *member.State { return v.ledger().State() }

// freeCN returns the lowest number of a compute node that is free, or 0.
func (v *view) freeCN(maxCN fabric.CNID) fabric.CNID {
	l := v.ledger()
	l.MaxCN = maxCN
	return l.FreeCN()
}

// A chore is a transaction that is due, which any member may do.
type chore struct {
	n      number
	was    node
	forget bool          // else: record the crash
	group  *member.Group // else: what a group has become
}

// chore returns a transaction that is due, if there is one: to record a crash of which etcd knows because a lease has ended, to change a group
// because of that, or because all know it, or to forget a node that has gone.
func (v *view) chore() (chore, bool) {
	l := v.ledger()
	if i := slices.IndexFunc(l.Entries, func(e *member.Entry) bool { return e.Since == member.Unnoted }); i >= 0 {
		n := numberOf(l.Entries[i])
		return chore{n: n, was: v.nodes[n]}, true
	}
	if g := l.DueGroup(); g != nil {
		return chore{group: g}, true
	}
	if e := l.Due(); e != nil {
		return chore{n: numberOf(e), was: v.nodes[numberOf(e)], forget: true}, true
	}
	return chore{}, false
}

// checkFormat refuses keys of another version of the layout, but for those of the version before if none of its nodes is up.
func (v *view) checkFormat() error {
	switch {
	case v.format == "" || v.format == format || v.format == formatGroups || v.format == formatBefore && len(v.live) == 0:
		return nil
	case v.format == formatBefore:
		return fmt.Errorf("%w: its keys have format %q, this program writes %q: stop all nodes of the cluster, then start them with one version", ErrFormat, v.format, format)
	}
	return fmt.Errorf("%w: its keys have format %q, this program knows %q and %q: start all nodes of the cluster with one version", ErrFormat, v.format, format, formatGroups)
}

// continuedBy reports whether changes of the keys with a prefix are those that come next: each value of the history key replaces the one that the
// view knows. If they are not, a backup of etcd has been restored since, or the changes between them are compacted away.
func (v *view) continuedBy(events []*clientv3.Event, prefix string) bool {
	id := v.history.id
	for _, e := range events {
		if e.Kv.ModRevision <= v.revision || string(e.Kv.Key) != prefix+keyHistory {
			continue
		}
		before := ""
		switch {
		case e.PrevKv != nil:
			before = string(e.PrevKv.Value)
		case !e.IsCreate():
			return false
		}
		if before != id {
			return false
		}
		id = string(e.Kv.Value)
	}
	return true
}

var errStale = errors.New("etcd: another transaction was faster")
