package btree

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory/handle"
)

// BulkOptions of BulkLoad.
type BulkOptions struct {
	// FillPercent is how full leaves are made; 0 is 90. Inner nodes are too.
	FillPercent int
}

// BulkLoad puts sorted pairs into an empty tree, much faster than puts: each node is written once. No client sees any
// of them before all are there. The first leaf stays locked meanwhile, so others' puts wait.
//
// The sequence may use other clients, also those of the same session, but not the first leaf of this tree: it would wait for that
// (lock.ErrDeadlock). If it panics, the tree is as it was, and the panic goes on.
//
// ErrNotEmpty: the tree has keys; ErrOrder: a key is not greater than the one before. After an error the tree is as it was,
// and what was written is lost to the tree until this compute node closes it or crashes. On replicated memory it waits at its beginning
// for a memory node that is being replaced; one that is replaced later ends it, and the error says to load again. If a compute node crashes
// between the two last operations, the tree is right, and slow until it is repaired.
func (c *Client) BulkLoad(pairs iter.Seq2[[]byte, []byte], o BulkOptions) error {
	if err := c.start(nil, nil); err != nil {
		return err
	}
	defer c.session.End()
	if o.FillPercent == 0 {
		o.FillPercent = 90
	}
	if o.FillPercent < 10 || o.FillPercent > 100 {
		return fmt.Errorf("%w: leaves filled to %d %%: want 10 to 100", ErrConfig, o.FillPercent)
	}
	defer func() {
		if c.session.Closed() { // by the sequence
			c.discard()
		}
	}()
	c.user.Enter()
	defer c.user.Exit()
	// What the sequence yields may lie where the last operation put its result: in c.leaf, or in c.value.
	if result := c.value; result != nil {
		c.value = nil
		defer c.port.Free(result)
	}
	l := &loader{c: c, most: c.t.geo.nodeSize * o.FillPercent / 100}
	if err := c.outlast(l.begin); err != nil {
		return err
	}
	err := l.load(pairs)
	if err != nil {
		l.lose()
		return l.replaced(c.unlock(err))
	}
	if len(l.levels) == 0 {
		return c.unlock(nil)
	}
	return l.replaced(l.publish())
}

// begin locks the first leaf of a tree that is empty, and may be changed.
func (l *loader) begin() error {
	c := l.c
	if err := c.lock(&c.n, c.left, c.t.first); err != nil {
		return err
	}
	err := l.empty()
	for i := range c.t.h.Parts {
		if err == nil {
			_, err = c.writable(i)
		}
	}
	if err != nil {
		return c.unlock(err)
	}
	return nil
}

// replaced says what to do if a load has failed because a memory node was replaced. It is not done here: the first leaf may have been another client's meanwhile, and a new backup may lack what was
// written before.
func (l *loader) replaced(err error) error {
	switch {
	case err == nil || !l.c.t.h.Replicated() || !handle.Replaced(err):
		return err
	case l.c.uncertain:
		return fmt.Errorf("btree: bulk load: a memory node was replaced at its end: the tree has all of it, or is empty, and then load again: %w", err)
	}
	return fmt.Errorf("btree: bulk load: a memory node was replaced meanwhile, and the tree is empty: load again: %w", err)
}

// load writes all nodes but the first leaf. If the sequence does not come back (it panics, or ends its goroutine), the lock is released
// and what has been written is given up.
func (l *loader) load(pairs iter.Seq2[[]byte, []byte]) error {
	c := l.c
	back := false
	c.session.Within = "BulkLoad"
	defer func() {
		c.session.Within = ""
		if !back {
			l.lose()
			_ = c.unlock(nil) // the panic goes on
		}
	}()
	err := l.run(pairs)
	back = true
	if err == nil && c.session.Closed() {
		err = fmt.Errorf("%w: client of tree %q, by the sequence of its bulk load", ErrClosed, c.t.cfg.Name)
	}
	return err
}

// A loader builds a tree from left to right: one node of each level is being filled.
type loader struct {
	c      *Client
	most   int
	levels []*filling
	last   []byte // key
	rec    []byte // scratch
	some   bool
	slots  []ptr // of nodes and large values
	root   ptr
	first  image // what the first leaf is to be
}

// A filling is the node of a level that is being filled.
type filling struct {
	self ptr
	low  []byte
	buf  []byte // records
	ends []int  // of the records
}

func (l *loader) empty() error {
	n := &l.c.n
	items, err := l.c.sorted(n)
	switch {
	case err != nil:
		return err
	case len(items) > 0 || n.high.some || n.level != 0:
		return fmt.Errorf("%w: %d keys in the first leaf, more behind it: %v", ErrNotEmpty, len(items), n.high.some)
	}
	if err := l.c.loadRoot(); err != nil {
		return err
	}
	if root := ptr(l.c.t.root.Load()); root != n.self {
		return fmt.Errorf("%w: root %v is no leaf", ErrNotEmpty, root)
	}
	return nil
}

// run writes all nodes but the first leaf.
func (l *loader) run(pairs iter.Seq2[[]byte, []byte]) error {
	if err := l.writePairs(pairs); err != nil {
		return err
	}
	// The last node of each level has no high fence; its level's root is the only one.
	for i := 0; i < len(l.levels); i++ {
		f := l.levels[i]
		alone := i == len(l.levels)-1
		if err := l.flush(i, nil, false, 0); err != nil {
			return err
		}
		if alone {
			l.root = f.self
		}
	}
	return nil
}

// writePairs writes the pairs. Between two of them the session is free: the sequence may use it.
func (l *loader) writePairs(pairs iter.Seq2[[]byte, []byte]) (err error) {
	use := l.c.session.Use
	use.End()
	defer func() {
		if !use.Busy() {
			use.Begin()
		}
	}()
	for key, value := range pairs {
		use.Begin()
		err = l.pair(key, value)
		use.End()
		if err != nil {
			return err
		}
	}
	return nil
}

// pair writes one pair.
func (l *loader) pair(key, value []byte) error {
	c := l.c
	if c.t.h.Lost() {
		return c.gone(&c.t.h) // the client's next operation goes on with the tree as it is then
	}
	if err := c.sized(key, value); err != nil {
		return err
	}
	if l.some && bytes.Compare(key, l.last) <= 0 {
		return fmt.Errorf("%w: %.40q behind %.40q", ErrOrder, key, l.last)
	}
	k, payload := kindInline, value
	if len(value) > c.t.geo.maxInline {
		out, err := c.store(value)
		if err != nil {
			return err
		}
		l.slots = append(l.slots, out.at)
		k, payload = kindOutOfLine, c.outBuf[:]
		out.encode(payload)
	}
	if need := recordSize(len(key), len(payload)); need > len(l.rec) {
		l.rec = make([]byte, need)
	}
	n := putRecord(l.rec, k, key, payload)
	if err := l.add(0, key, l.last, l.rec[:n]); err != nil {
		return err
	}
	l.last, l.some = append(l.last[:0], key...), true
	return nil
}

// add puts a record at the end of a level. before is the key in front of it.
func (l *loader) add(level int, key, before, rec []byte) error {
	if level > maxLevel {
		return fmt.Errorf("%w: a tree of %d levels", ErrConfig, level)
	}
	if level == len(l.levels) {
		f := &filling{self: l.c.t.first}
		if level > 0 {
			slot, err := l.node()
			if err != nil {
				return err
			}
			f.self = slot.next()
		}
		l.levels = append(l.levels, f)
	}
	f := l.levels[level]
	// The high fence is the next node's first key at most.
	if size := headerSize + len(f.low) + len(key) + len(f.buf) + len(rec); len(f.ends) > 1 && size > l.most || size > l.c.t.geo.nodeSize {
		slot, err := l.node()
		if err != nil {
			return err
		}
		sep := bytes.Clone(separator(before, key, uint8(level)))
		if err := l.flush(level, sep, true, slot.next()); err != nil {
			return err
		}
		f.self, f.low, f.buf, f.ends = slot.next(), sep, f.buf[:0], f.ends[:0]
	}
	f.buf = append(f.buf, rec...)
	f.ends = append(f.ends, len(f.buf))
	return nil
}

// node takes a slot for a node.
func (l *loader) node() (ptr, error) {
	slot, err := l.c.alloc(l.c.t.nextNode(0), classNode)
	if err == nil {
		l.slots = append(l.slots, slot)
	}
	return slot, err
}

// lose gives all slots up.
func (l *loader) lose() {
	for _, p := range l.slots {
		l.c.lose(p)
	}
}

// flush writes the node of a level that is being filled, and adds its separator above unless
// it is the only one of its level.
func (l *loader) flush(level int, high []byte, some bool, link ptr) error {
	c, f := l.c, l.levels[level]
	m := image{self: f.self, link: link, version: 1, level: uint8(level), low: f.low, high: fence{key: high, some: some}}
	buf, begin := f.buf, 0
	if f.self == c.t.first {
		buf = bytes.Clone(buf)
	}
	for _, end := range f.ends {
		m.items = append(m.items, item{raw: buf[begin:end]})
		begin = end
	}
	if f.self == c.t.first {
		l.first = m // it publishes all the others, so it comes last
	} else {
		used := m.build(c.right)
		finish(c.right, stateAlive, used)
		if err := c.writeUnlinked(f.self, classNode, c.right[:used]); err != nil {
			return fmt.Errorf("btree: node %v: %w", f.self, err)
		}
	}
	if !some && len(f.low) == 0 {
		return nil // the only node of its level
	}
	rec := make([]byte, recordSize(len(f.low), childSize))
	putRecord(rec, kindInline, f.low, c.child(f.self))
	return l.add(level+1, f.low, nil, rec)
}

// publish writes the first leaf, sets the root and releases the lock, in one chain.
func (l *loader) publish() error {
	c := l.c
	shadow, err := c.shadowOn(0)
	if err != nil {
		return c.unlock(err)
	}
	m := &l.first
	m.version, m.token = c.n.version+1, max(c.n.token, c.hold.Token)
	used := m.build(c.left)
	w := finish(c.left, stateShadow, used)
	a, root, alive := c.t.slotAddr(m.self, classNode), c.t.h.Parts[0].Base.Add(rootOffset), makeWord(stateAlive, used, w.crc())
	if err := c.mirror(m.self, c.left[:used], alive, fabric.Store(root, uint64(l.root))); err != nil {
		l.lose()
		return c.unlock(err)
	}
	c.before[0] = fabric.Write(c.t.slotAddr(shadow, classNode), c.left[:used])
	c.before[1] = fabric.Store(a, uint64(movingWord(m.version, shadow)))
	c.before[2] = fabric.Store(root, uint64(l.root))
	c.before[3] = fabric.Write(a.Add(8), c.left[8:used])
	c.before[4] = fabric.Store(a, uint64(alive))
	if err := c.publish(m.self, 5); err != nil {
		c.lose(shadow)
		c.shadow[0].Store(0)
		l.lose()
		return err
	}
	c.t.root.Store(uint64(l.root))
	return nil
}
