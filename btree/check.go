package btree

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
)

// CheckOptions of Check.
type CheckOptions struct {
	// Repair does what others have not finished, as any writer does that comes by.
	Repair bool
	// Reclaim, if it is set, tells which compute nodes live; then a tree that is sound gets back the slots that no compute node has any more
	// (Client.Reclaim), and is checked again.
	Reclaim func() fabric.View
	// Backups compares what backups in sync have with the primaries. They may differ where a compute node has crashed, or an operation has failed, until that has been repaired
	// (Client.ReclaimStep).
	Backups bool
}

// A LevelReport is what a level of a tree holds.
type LevelReport struct {
	Level   int    `json:"level"`
	Nodes   uint64 `json:"nodes"`
	Entries uint64 `json:"entries"` // keys of leaves, children of inner nodes
	Bytes   uint64 `json:"bytes"`   // of nodes and what they hold that count
}

// A MemoryReport is where the slots of a tree on a memory node are.
type MemoryReport struct {
	Node      fabric.MemID `json:"node"`
	Bytes     uint64       `json:"bytes"`     // in extents
	Slots     uint64       `json:"slots"`     // for nodes and large values
	Used      uint64       `json:"used"`      // by nodes and values
	Free      uint64       `json:"free"`      // in the memory node's lists
	Local     uint64       `json:"local"`     // in this compute node's lists
	Elsewhere uint64       `json:"elsewhere"` // in those of others, or leaked
	Reclaimed uint64       `json:"reclaimed"` // were leaked, and have been found by this compute node since it opened the tree
}

// A Report is what Check found.
type Report struct {
	Height int            `json:"height"` // levels
	Keys   uint64         `json:"keys"`
	Levels []LevelReport  `json:"levels"` // from the leaves up
	Memory []MemoryReport `json:"memory"`

	// What others have not finished and the next visitor will do. The tree is right all the same.
	Moving    uint64 `json:"moving"`     // nodes whose shadow is the node
	Dead      uint64 `json:"dead"`       // dead nodes still linked
	HalfSplit uint64 `json:"half_split"` // nodes without separator
	Dangling  uint64 `json:"dangling"`   // separators of nodes that are gone or dead

	Problems []string `json:"problems"` // what must not be
	Omitted  int      `json:"omitted"`  // problems beyond maxProblems
}

const maxProblems = 100

// Sound reports whether nothing is wrong.
func (r *Report) Sound() bool { return len(r.Problems) == 0 }

// Clean reports whether nothing is wrong and nothing is unfinished.
func (r *Report) Clean() bool {
	return r.Sound() && r.Moving == 0 && r.Dead == 0 && r.HalfSplit == 0 && r.Dangling == 0
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d keys, %d levels\n", r.Keys, r.Height)
	for i := len(r.Levels) - 1; i >= 0; i-- {
		l := &r.Levels[i]
		fmt.Fprintf(&b, "  level %d: %d nodes, %d entries, %d bytes\n", l.Level, l.Nodes, l.Entries, l.Bytes)
	}
	for _, m := range r.Memory {
		fmt.Fprintf(&b, "  %v: %d bytes, %d slots: %d used, %d free, %d free here, %d elsewhere", m.Node, m.Bytes, m.Slots, m.Used, m.Free, m.Local, m.Elsewhere)
		if m.Reclaimed > 0 {
			fmt.Fprintf(&b, ", %d reclaimed", m.Reclaimed)
		}
		b.WriteByte('\n')
	}
	if r.Moving+r.Dead+r.HalfSplit+r.Dangling > 0 {
		fmt.Fprintf(&b, "  unfinished: %d nodes moving, %d dead, %d without separator, %d separators of nodes that are gone\n",
			r.Moving, r.Dead, r.HalfSplit, r.Dangling)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "  PROBLEM: %s\n", p)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "  and %d problems more\n", r.Omitted)
	}
	return b.String()
}

// A checker walks a tree.
type checker struct {
	c     *Client
	r     *Report
	jobs  []job // what is unfinished
	slots slotMap
	n     node
	items []item

	backups bool // are compared
}

func (k *checker) problem(format string, args ...any) {
	if len(k.r.Problems) == maxProblems {
		k.r.Omitted++
		return
	}
	k.r.Problems = append(k.r.Problems, fmt.Sprintf(format, args...))
}

// maxRepairs bounds the rounds of Repair: the repair of a level can make something to do above it.
const maxRepairs = 100

// Check reads the whole tree and returns what is in it, and what is wrong. No client may change
// the tree meanwhile, or Check sees changes half done as faults. See OpenOn.
func (c *Client) Check(o CheckOptions) (*Report, error) {
	if err := c.start(nil, nil); err != nil {
		return nil, err
	}
	defer c.session.End()
	if err := c.session.ReadyAll(); err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		k := &checker{c: c, r: &Report{}, backups: o.Backups}
		if err := k.run(); err != nil {
			return nil, err
		}
		if o.Repair && k.r.Sound() && !k.r.Clean() && round < maxRepairs {
			if err := k.repair(); err != nil {
				return nil, err
			}
			continue
		}
		if o.Reclaim != nil && k.r.Sound() {
			if err := c.session.ReclaimNow(o.Reclaim); err != nil {
				return nil, err
			}
			o.Reclaim = nil
			continue
		}
		k.slots.report(k)
		return k.r, nil
	}
}

func (k *checker) run() error {
	c := k.c
	if err := k.slots.load(k); err != nil {
		return err
	}
	root, err := c.loadRoot()
	if err != nil {
		return err
	}
	if err := k.words(); err != nil {
		return err
	}
	var n node
	if err := c.read(&n, c.inner, root); err != nil {
		if errors.Is(err, ErrCorrupt) || err == errGone {
			k.problem("root %v: %v", root, err)
			return nil
		}
		return err
	}
	k.r.Height = int(n.level) + 1
	k.r.Levels = make([]LevelReport, k.r.Height)
	var above []separatorOf
	first := root
	for level := int(n.level); level >= 0; level-- {
		seps, err := k.level(uint8(level), first, above)
		if err != nil || level > 0 && len(seps) == 0 {
			return err
		}
		if level > 0 {
			first = seps[0].child
		}
		above = seps
	}
	return nil
}

// A separatorOf is a separator, as the level above the nodes that are walked has it.
type separatorOf struct {
	low   []byte
	child ptr
}

// A placed node is a node of a level, where it was found.
type placed struct {
	self ptr
	low  []byte
	led  bool // a separator leads to it
}

// level walks the nodes of a level from the first on. above are the separators that lead
// to them; it returns those of this level.
func (k *checker) level(level uint8, first ptr, above []separatorOf) ([]separatorOf, error) {
	l := &k.r.Levels[level]
	l.Level = int(level)
	var seps []separatorOf
	var list []placed
	where := map[ptr]int{}
	edge, open := []byte(nil), true
	for p := first; p != 0; p = k.n.link {
		if !open {
			k.problem("node %v, level %d: its left neighbour has no high fence", p, level)
			return seps, nil
		}
		ok, err := k.node(p, level, edge)
		if err != nil || !ok {
			return seps, err
		}
		n := &k.n
		if n.dead {
			k.r.Dead++
			k.jobs = append(k.jobs, n.unlinkJob())
		} else {
			l.Nodes++
			l.Bytes += uint64(n.used)
			where[p] = len(list)
			list = append(list, placed{self: p, low: bytes.Clone(n.low)})
			if seps, err = k.entries(seps, l); err != nil {
				return seps, err
			}
		}
		edge, open = append(edge[:0], n.high.key...), n.high.some
	}
	if open {
		k.problem("level %d ends at node %v, which has a high fence", level, k.n.self)
	}
	k.links(level, above, list, where)
	return seps, nil
}

// links compares a level's nodes with the separators above.
func (k *checker) links(level uint8, above []separatorOf, list []placed, where map[ptr]int) {
	for _, s := range above {
		i, ok := where[s.child]
		switch {
		case !ok:
			k.r.Dangling++
			k.jobs = append(k.jobs, job{kind: jobRepair, level: level + 1, low: s.low, self: s.child})
		case bytes.Compare(list[i].low, s.low) > 0:
			k.problem("separator %.40q leads to node %v, which begins at %.40q", s.low, s.child, list[i].low)
		case bytes.Equal(list[i].low, s.low):
			list[i].led = true
		}
	}
	for i := range list {
		if x := &list[i]; !x.led && len(x.low) > 0 {
			k.r.HalfSplit++
			k.jobs = append(k.jobs, job{kind: jobComplete, level: level + 1, low: x.low, high: fence{x.low, true}, self: x.self})
		}
	}
}

// node reads a node of a level, which must begin at edge. It returns false if it is not one to go on from.
func (k *checker) node(p ptr, level uint8, edge []byte) (bool, error) {
	c, n := k.c, &k.n
	if !c.t.sane(p, c.t.stride) {
		k.problem("level %d: ptr %v leads out of memory", level, p)
		return false, nil
	}
	c.ops[0] = fabric.Load(c.t.slotAddr(p, classNode))
	if err := c.do(p.node(), c.ops[:1]); err != nil {
		return false, fmt.Errorf("btree: node %v: %w", p, err)
	}
	if w := word(c.ops[0].Old); w.state() == stateMoving {
		k.r.Moving++
		k.slots.use(k, makePtr(p.node(), w.shadow(), 0), classNode)
		k.jobs = append(k.jobs, job{kind: jobRedo, level: level, self: p})
	}
	err := c.read(n, c.leaf, p)
	switch {
	case err == errGone || errors.Is(err, ErrCorrupt):
		k.problem("node %v, level %d: %v", p, level, err)
		return false, nil
	case err != nil:
		return false, err
	case n.level != level:
		k.problem("node %v is of level %d, not %d", p, n.level, level)
		return false, nil
	case !bytes.Equal(n.low, edge):
		k.problem("node %v, level %d: begins at %.40q, its left neighbour ends at %.40q", p, level, n.low, edge)
		return bytes.Compare(n.low, edge) > 0, nil // not back to where we were
	case n.high.some && bytes.Compare(n.high.key, n.low) <= 0:
		k.problem("node %v, level %d: begins at %.40q and ends at %.40q", p, level, n.low, n.high.key)
		return false, nil
	}
	k.slots.use(k, p.slot(), classNode)
	return true, k.compare(p, classNode, n.b[:n.used])
}

// entries checks the records of the node and appends its separators, if it is an inner node.
func (k *checker) entries(seps []separatorOf, l *LevelReport) ([]separatorOf, error) {
	n := &k.n
	items, err := n.sorted(k.items[:0])
	k.items = items
	if err != nil {
		k.problem("%v", err)
		return seps, nil
	}
	l.Entries += uint64(len(items))
	if n.level > 0 && (len(items) == 0 || !bytes.Equal(items[0].key, n.low)) {
		k.problem("inner node %v has no child for its low fence %.40q", n.self, n.low)
	}
	for i := range items {
		x := &items[i]
		if bytes.Compare(x.key, n.low) < 0 || n.high.above(x.key, false) {
			k.problem("node %v [%.40q, %.40q): key %.40q is outside", n.self, n.low, n.high.key, x.key)
		}
		switch {
		case n.level > 0:
			seps = append(seps, separatorOf{low: bytes.Clone(x.key), child: x.child()})
			continue
		case x.kind == kindOutOfLine:
			if err := k.value(x); err != nil {
				return seps, err
			}
		}
		k.r.Keys++
	}
	return seps, nil
}

// value checks a large value.
func (k *checker) value(x *item) error {
	_, err := k.c.load(&x.record)
	switch {
	case err == errTorn:
		k.problem("value of %.40q: checksum is wrong", x.key)
	case errors.Is(err, ErrCorrupt):
		k.problem("value of %.40q: %v", x.key, err)
	case err != nil:
		return err
	}
	if o := decodeOutOfLine(x.value); err == nil {
		k.slots.use(k, o.at, classFor(o.size))
		return k.compare(o.at, classFor(o.size), k.c.value[:o.size])
	}
	return nil
}

// repair does what is unfinished.
func (k *checker) repair() error {
	c := k.c
	c.user.Enter()
	defer c.user.Exit()
	for i := range k.jobs {
		j := &k.jobs[i]
		var err error
		switch j.kind {
		case jobRedo:
			if err = c.lock(&c.n, c.leaf, j.self); err == nil {
				err = c.unlock(nil)
			}
		case jobUnlink:
			err = c.unlink(j)
		case jobComplete:
			err = c.complete(j)
		case jobRepair:
			_, err = c.repairSeparator(j)
		}
		if err != nil && err != errGone {
			return err
		}
	}
	c.doJobs()
	return nil
}
