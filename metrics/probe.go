package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/background"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// probeWait is how long a scrape waits for memory nodes.
const probeWait = 2 * time.Second

// ErrSilent: a memory node does not answer.
var ErrSilent = errors.New("metrics: the memory node does not answer")

// A MemoryState is a memory node as a compute node sees it.
type MemoryState struct {
	fabric.Memory
	Used uint64 // bytes that locks, indexes and extents have taken
	// Stores are the object stores on it, if the probe asks for them.
	Stores []StoreState
	Err    error // why it cannot be used
}

// A StoreState is about what is in an object store on one memory node.
type StoreState struct {
	Name string
	objstore.Usage
}

// sampledBuckets is how many buckets of a store are read to estimate how many objects it has.
const sampledBuckets = 64

// stores returns what is in the object stores of a memory node. One that is being made, or removed, is not among them.
func stores(s *declock.Session, mn fabric.MemID) (list []StoreState) {
	r, err := memory.Open(s.Port(), mn)
	if err != nil {
		return nil
	}
	entries, err := r.List(s.Port())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Kind != memory.KindStore {
			continue
		}
		if u, err := objstore.Estimate(s.Port(), r, &e, sampledBuckets); err == nil {
			list = append(list, StoreState{Name: e.Name, Usage: u})
		}
	}
	return list
}

// A Probe looks whether memory nodes answer. Any goroutine may use it.
type Probe struct {
	c      *declock.Cluster
	stores bool // what is in object stores, too
	look   background.Look[seen]
}

// seen is the result of a look.
type seen struct {
	list   []MemoryState
	fenced bool
	err    error
}

// NewProbe returns a probe of the memory nodes of a cluster.
func NewProbe(c *declock.Cluster) *Probe { return &Probe{c: c} }

// Look looks at all memory nodes, and waits so long for them at most. fenced reports whether the cluster has
// declared this compute node dead; err is why it could not look. A look that takes longer goes on, and the next call waits for it.
func (p *Probe) Look(wait time.Duration) (list []MemoryState, fenced bool, err error) {
	last, ended := p.look.Get(wait, p.see)
	if !ended {
		return p.silent(), last.fenced, nil
	}
	return last.list, last.fenced, last.err
}

// Wait waits for the look that is under way. The cluster must not be closed before.
func (p *Probe) Wait() { p.look.Wait() }

// silent is what is known while a look does not come to its end.
func (p *Probe) silent() (list []MemoryState) {
	for _, m := range p.c.Node().Fabric().Memory() {
		list = append(list, MemoryState{Memory: m, Err: ErrSilent})
	}
	for _, m := range down(p.c.Node().Fabric()) {
		list = append(list, MemoryState{Memory: m, Err: errDown})
	}
	return list
}

var errDown = fmt.Errorf("%w: it is no member of the cluster", fabric.ErrNodeDown)

// down returns the memory nodes that are expected back, if the fabric knows them.
func down(f fabric.Node) []fabric.Memory {
	if f, ok := f.(member.Follower); ok {
		return f.Down()
	}
	return nil
}

// Expected returns the memory nodes that should be up: those that are, as far as the compute node has taken them in, and
// those that the cluster expects back, also if they were down when it joined. One that the cluster has forgotten is not among them.
func Expected(n *cn.Node) (list []fabric.Memory) {
	f := n.Fabric()
	_, follows := f.(member.Follower)
	there := map[fabric.MemID]fabric.Memory{}
	for _, m := range f.Memory() {
		there[m.ID] = m
	}
	list = down(f)
	for _, r := range n.Regions() {
		id := r.Memory()
		m, up := there[id]
		i := slices.IndexFunc(list, func(m fabric.Memory) bool { return m.ID == id })
		switch {
		case up && i < 0:
			list = append(list, m)
		case up: // it has come back while we looked
			list[i] = m
		case i >= 0:
			list[i].Size = r.Size()
		case !follows:
			list = append(list, fabric.Memory{ID: id, Size: r.Size()})
		}
	}
	slices.SortFunc(list, func(a, b fabric.Memory) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// used returns how much of a memory node's memory is used. If it has restarted, the compute node looks first which memory it has now; that
// the one before is lost is no error, unless the compute node cannot go on with this one (cn.ErrMemoryLost).
func used(s *declock.Session, mn fabric.MemID) (bytes uint64, err error) {
	if err := lock.Renew(s.Locker(), mn); err != nil {
		return 0, err
	}
	r, err := memory.Open(s.Port(), mn)
	if err != nil {
		return 0, err
	}
	return r.Used(s.Port())
}

// see looks at all memory nodes.
func (p *Probe) see() (now seen) {
	s, err := p.c.Session()
	if err == nil {
		for _, m := range Expected(p.c.Node()) {
			st := MemoryState{Memory: m}
			st.Used, st.Err = used(s, m.ID)
			now.fenced = now.fenced || errors.Is(st.Err, fabric.ErrFenced)
			now.list = append(now.list, st)
		}
		for i := range now.list {
			if p.stores && now.list[i].Err == nil {
				now.list[i].Stores = stores(s, now.list[i].ID)
			}
		}
		err = s.Close()
	}
	now.fenced, now.err = now.fenced || errors.Is(err, fabric.ErrFenced), err
	return now
}
