package etcd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A view is what the keys of a cluster say, at a revision of etcd. It is plain data.
type view struct {
	revision int64 // of etcd, up to which all changes are here
	format   string
	nodes    map[number]node
	strange  map[number]struct{} // node keys that cannot be understood: their numbers are taken
	live     map[number]member.Life
	acks     map[member.Life]uint64
	epochs   map[fabric.MemID]versioned
	lost     versioned
}

// A node is a node key.
type node struct {
	record
	modified int64 // revision
}

// A versioned is a counter, and the revision of its last change; 0: it is not there.
type versioned struct {
	n        uint64
	modified int64
}

func newView() *view {
	return &view{nodes: map[number]node{}, strange: map[number]struct{}{}, live: map[number]member.Life{}, acks: map[member.Life]uint64{}, epochs: map[fabric.MemID]versioned{}}
}

// put takes a key, relative to the prefix, into the view. It tells whether what
// a member.State says may be different now. What cannot be understood is not taken.
func (v *view) put(key string, kv *mvccpb.KeyValue) (changed bool, err error) {
	if err = v.decode(key, kv); err != nil {
		return false, fmt.Errorf("key %s: %w", key, err)
	}
	return changesState(key), nil
}

func changesState(key string) bool {
	return strings.HasPrefix(key, dirNode) || strings.HasPrefix(key, dirLive) || key == keyLost
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
			v.nodes[n] = node{r, kv.ModRevision}
			delete(v.strange, n)
		} else {
			v.strange[n] = struct{}{}
		}
		return err
	case dirLive:
		n, err := parseNumber(rest)
		l, err2 := parseCount(kv.Value)
		if err == nil && err2 == nil {
			v.live[n] = member.Life(l)
		}
		return cmp.Or(err, err2)
	case dirAck:
		l, err := parseAckKey(rest)
		revision, err2 := parseCount(kv.Value)
		if err == nil && err2 == nil {
			v.acks[l] = revision
		}
		return cmp.Or(err, err2)
	case dirEpoch:
		n, err := parseNumber("mn/" + rest)
		epoch, err2 := parseCount(kv.Value)
		if err == nil && err2 == nil {
			v.epochs[fabric.MemID(n.id)] = versioned{epoch, kv.ModRevision}
		}
		return cmp.Or(err, err2)
	}
	switch key {
	case keyFormat:
		v.format = string(bytes.Clone(kv.Value[:min(len(kv.Value), maxRecord)]))
		return nil
	case keyLost:
		lost, err := parseCount(kv.Value)
		if err == nil {
			v.lost = versioned{lost, kv.ModRevision}
		}
		return err
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
		v.lost = versioned{}
	}
	return changesState(key)
}

// isMember tells whether a node is a member: it keeps its lease.
func (v *view) isMember(n number) bool {
	r, ok := v.nodes[n]
	return ok && r.Gone == "" && v.live[n] == r.Life
}

// known tells whether all members have acknowledged a revision.
func (v *view) known(revision int64) bool {
	for n, r := range v.nodes {
		if v.isMember(n) && v.acks[r.Life] < uint64(revision) {
			return false
		}
	}
	return true
}

// state returns the member.State with a revision.
func (v *view) state(revision int64) *member.State {
	s := &member.State{Revision: uint64(revision), Lost: v.lost.n}
	for _, n := range v.numbers() {
		r := v.nodes[n]
		cn := member.CN{ID: fabric.CNID(n.id), Life: r.Life, Addr: r.Addr}
		switch {
		case n.cn && v.isMember(n):
			s.CNs = append(s.CNs, cn)
		case n.cn:
			s.Fencing = append(s.Fencing, cn)
		case v.isMember(n):
			s.MNs = append(s.MNs, member.MN{ID: fabric.MemID(n.id), Life: r.Life, Addr: r.Addr, Size: r.Size, Epoch: r.Epoch})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.epochs)) {
		if !slices.ContainsFunc(s.MNs, func(m member.MN) bool { return m.ID == id }) {
			s.Down = append(s.Down, member.MN{ID: id, Epoch: uint32(v.epochs[id].n)})
		}
	}
	return s
}

// numbers returns those who have a node key, in order.
func (v *view) numbers() []number {
	return slices.SortedFunc(maps.Keys(v.nodes), func(a, b number) int { return int(a.id) - int(b.id) })
}

// freeCN returns the lowest number of a compute node that is free, or 0.
func (v *view) freeCN(maxCN fabric.CNID) fabric.CNID {
	for id := fabric.CNID(1); id <= maxCN && id != 0; id++ {
		_, node := v.nodes[cnNumber(id)]
		_, live := v.live[cnNumber(id)]
		_, strange := v.strange[cnNumber(id)]
		if !node && !live && !strange {
			return id
		}
	}
	return 0
}

// A chore is a transaction that is due, for whoever is first.
type chore struct {
	n      number
	was    node
	forget bool // else: note the death
}

// chore returns a transaction that is due, if there is one.
func (v *view) chore() (chore, bool) {
	memoryGone := false
	for _, n := range v.numbers() {
		r := v.nodes[n]
		switch {
		case v.isMember(n):
			continue
		case r.Gone == "":
			return chore{n: n, was: r}, true
		case !n.cn && v.known(r.modified):
			return chore{n: n, was: r, forget: true}, true
		}
		memoryGone = memoryGone || !n.cn
	}
	if memoryGone {
		return chore{}, false // somebody may be using it, and so may who has gone
	}
	for _, n := range v.numbers() {
		if r := v.nodes[n]; r.Gone != "" && v.known(r.modified) {
			return chore{n: n, was: r, forget: true}, true
		}
	}
	return chore{}, false
}

// checkFormat refuses keys of another version of the layout.
func (v *view) checkFormat() error {
	if v.format != "" && v.format != format {
		return fmt.Errorf("%w: it has format %q, this program knows %q", ErrFormat, v.format, format)
	}
	return nil
}

var errStale = errors.New("etcd: another transaction was faster")
