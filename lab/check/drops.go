package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/objstore"
)

// besides draws a store or tree, and how many names there are of others beside it, which are made, filled and dropped all the time.
func (s *Scenario) besides(d *drawer) {
	s.Side, s.Locks, s.Reads = d.between(1, 3), 0, 0
	s.Keys, s.Values = d.between(1, 4), pick(d, 0, 20, 200, 3000)
	if d.percent(50) {
		s.Tree, s.Keys = 1, d.between(3, 8)
	}
	s.Clients, s.Rounds = d.between(1, 3), d.between(8, 30)
	if d.percent(30) { // so long that what is dropped is let go while all goes on
		s.ThinkNs = pick(d, 50*fabric.Millisecond, 150*fabric.Millisecond)
		s.Rounds, s.SyncNs = min(s.Rounds, 12), 0
	}
	s.layoutFor(d)
}

// dropFaults draws faults as the classes of replicated stores and trees have them, those that copy to new backups among them; or, without replication, those of another class, or none.
func (s *Scenario) dropFaults(d *drawer) {
	switch d.between(0, 9) {
	case 0:
		s.layoutFor(d)
	case 1:
		s.crashAllBut(d, pick(d, s.kill, s.kill, s.zombie))
	case 2:
		s.few(d)
		s.reboots(d)
	case 3:
		s.few(d)
		s.drawPlan(d, sim.FaultCut, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate, sim.FaultPause)
		s.impatient()
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	default:
		s.storePromotes(d)
		s.storeRepairs(d)
		return
	}
	if d.percent(30) {
		s.impatient()
		s.Cancel, s.WaitNs = pick(d, 20, 60), pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
		s.GraceNs = pick(d, 1, fabric.Microsecond, 5*fabric.Microsecond, 50*fabric.Microsecond)
	}
}

// A sideName is a name under which stores, or trees, are made one after the other.
type sideName struct {
	name   string
	tree   bool
	now    *incarnation // nil: there is none
	serial int          // of the last
	busy   []*node      // that are opening or dropping what has the name
}

// An incarnation is what is made under a name once.
type incarnation struct {
	of      *sideName
	tag     string // begins its values, and no others
	nodes   []fabric.MemID
	made    bool
	history *oracle.StoreHistory // until it is dropped
	filled  int                  // keys that closeFill has written

	ending   bool  // a drop has begun
	dropper  *node // whose that is
	dropping bool  // it is under way
	tried    bool  // it has failed, and may have done some of it
}

// A side is an incarnation as a compute node has it open.
type side struct {
	of      *incarnation
	col     sideCollection
	users   int  // clients, but for that of the keeper
	leaving bool // the keeper is to close it
	over    bool // it has been closed, or let go
}

// A sideCollection is a store or tree.
type sideCollection interface {
	handle.Copied
	LeaveUnused(l lock.Locker) error
	Dropped() bool
	MarkDropped()
	LetGo(l lock.Locker, view func() fabric.View) (done bool, err error)
}

// A sideClient is a client of a store or tree.
type sideClient interface {
	reclaimer
	Leave() error
}

// client returns a client of a store or tree.
func (x *side) client(l lock.Locker) (sideClient, error) {
	if t, ok := x.col.(*btree.Tree); ok {
		k, err := t.Client(l)
		if err != nil {
			return nil, err
		}
		return k, nil
	}
	k, err := x.col.(*objstore.Store).Client(l)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// startSides has clients of all compute nodes, that of the witness too, use what is beside the main store or tree, and keepers look after it.
func (w *world) startSides() {
	for i := range w.s.Side {
		w.names = append(w.names, &sideName{name: fmt.Sprintf("d%d", i), tree: (uint64(i)+w.s.Seed)%2 == 0})
	}
	for cn := 1; cn <= w.s.CNs+1; cn++ {
		for i := range min(w.s.Clients, 2) {
			w.working++
			w.c.Go(w.nodes[cn-1].sim, fmt.Sprintf("beside %d.%d", cn, i+1), func(p fabric.Port) {
				defer func() { w.working-- }()
				w.newClient(cn, "beside", p).sideRounds()
			})
		}
	}
	w.startSideKeepers()
}

// begin makes the next incarnation of a name, of which nothing is there yet: on all memory nodes, or some of them, in one order or another.
func (m *sideName) begin(w *world) *incarnation {
	m.serial++
	nodes := slices.Clone(w.mns)
	switch m.serial % 3 {
	case 1:
		slices.Reverse(nodes)
	case 2:
		nodes = nodes[len(nodes)-1:]
	}
	m.now = &incarnation{of: m, tag: fmt.Sprintf("%s.%d/", m.name, m.serial), nodes: nodes, history: new(oracle.StoreHistory)}
	w.made = append(w.made, m.now)
	return m.now
}

// idle reports whether nothing is under way to what had the name last. What a crashed compute node was at may be under way until it is fenced.
func (m *sideName) idle() bool {
	return !slices.ContainsFunc(m.busy, func(n *node) bool { return !n.fenced })
}

func (m *sideName) enter(n *node) { m.busy = append(m.busy, n) }

func (m *sideName) leave(n *node) {
	if i := slices.Index(m.busy, n); i >= 0 {
		m.busy = slices.Delete(m.busy, i, i+1)
	}
}

// kind returns what all stores, or all trees, have in common.
func (m *sideName) kind() *handle.Kind {
	if m.tree {
		return btree.Trees
	}
	return objstore.Stores
}

// sideOf returns an incarnation as a node has it open, or nil.
func (n *node) sideOf(inc *incarnation) *side {
	for _, x := range n.sides {
		if x.of == inc {
			return x
		}
	}
	return nil
}

// forget notes that a node has closed a side, or has let it go.
func (n *node) forget(x *side) {
	x.over = true
	n.sides = slices.DeleteFunc(n.sides, func(y *side) bool { return y == x })
}

// openSide opens what has a name on a node. existing: it does not make it.
func (w *world) openSide(n *node, p fabric.Port, name string, tree bool, nodes []fabric.MemID, existing bool) (sideCollection, error) {
	dead := func() fabric.CNSet { return n.sim.View().Dead() }
	if tree {
		return btree.Open(p, btree.Config{
			Name: name, Nodes: nodes, Lock: w.cfg.Layout.Lock(), MaxKey: treeKey, MaxInline: treeInline, NodeSize: treeNode,
			Existing: existing, DeadNow: dead, Creating: &n.creating,
		})
	}
	return objstore.Open(p, objstore.Config{
		Name: name, Nodes: nodes, Lock: w.cfg.Layout.Lock(), Objects: 8, MaxValue: maxValue, NoEvict: true,
		Existing: existing, DeadNow: dead, Creating: &n.creating,
	})
}

// useFor calls f with what a node has open under a root entry, or opens it for the time of the call, as declock.copier does.
func (w *world) useFor(n *node, k lock.Locker, e *memory.Entry, f func(handle.Copied) error) error {
	if e.Name == "check" {
		return f(n.copied())
	}
	known := func() *side {
		for _, x := range n.sides {
			if x.of.of.name == e.Name && !x.col.Dropped() {
				return x
			}
		}
		return nil
	}
	use := func(x *side) error {
		x.users++
		defer func() { x.users-- }()
		return f(x.col)
	}
	if x := known(); x != nil {
		return use(x)
	}
	if err := n.turn(k.Port()); err != nil {
		return err
	}
	defer func() { n.opening = false }()
	if x := known(); x != nil {
		return use(x)
	}
	if err := w.attach(k); err != nil {
		return err
	}
	find := objstore.Stores.Find
	if e.Kind == memory.KindTree {
		find = btree.Trees.Find
	}
	nodes, err := find(k.Port(), e.Name, w.mns)
	if err == nil && nodes == nil {
		err = fmt.Errorf("%w: %q", memory.ErrNotFound, e.Name)
	}
	if err != nil {
		return err
	}
	x, err := w.openSide(n, k.Port(), e.Name, e.Kind == memory.KindTree, nodes, true)
	if err == nil {
		err = f(x)
		left := x.LeaveUnused(k)
		n.failed[e.Name] = n.failed[e.Name] || left != nil
		return errors.Join(err, left)
	}
	n.failed[e.Name] = true
	return err
}

// droppedMeanwhile reports whether an error says that something has been dropped while it was copied: the copy begins anew.
func (w *world) droppedMeanwhile(err error) bool {
	return w.s.Side > 0 && isAny(err, memory.ErrRemoved, memory.ErrNotFound, memory.ErrHalfCreated, memory.ErrParts, handle.ErrAnother, objstore.ErrDropped, btree.ErrDropped)
}

// turn waits until no other client of the node opens or drops something.
func (n *node) turn(p fabric.Port) error {
	for n.opening {
		if err := p.Pause(p.Now() + 2*fabric.Microsecond); err != nil {
			return err
		}
	}
	n.opening = true
	return nil
}

// attach attaches a client to all memory nodes that are up.
func (w *world) attach(k lock.Locker) error {
	for _, mn := range w.mns {
		if err := lock.Renew(k, mn); err != nil && !isAny(err, fabric.ErrNodeDown) {
			return err
		}
	}
	return nil
}

// value returns a value of a key that says of which incarnation it is, to its last byte.
func (inc *incarnation) value(key string, client, round, size int) string {
	return fmt.Sprintf("%s%s:%d%04d|%s", inc.tag, key, client&0xffff, round, inc.rest(size))
}

func (inc *incarnation) rest(size int) string {
	return strings.Repeat(inc.tag, size/len(inc.tag)+1)[:size]
}

// has reports whether a value may be one of a key.
func (inc *incarnation) has(key, value string) bool {
	head, rest, ok := strings.Cut(value, "|")
	return ok && strings.HasPrefix(head, inc.tag+key+":") && rest == inc.rest(len(rest))
}
