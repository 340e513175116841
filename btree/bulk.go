package btree

import (
	"bytes"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
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
// ErrNotEmpty: the tree has keys; ErrOrder: a key is not greater than the one before. After another error the tree is empty, or, if that is
// fabric.ErrUnknownOutcome, perhaps has all of the load. If it is empty, what was written is lost to the tree until this compute node closes it or
// crashes. On replicated memory it waits at its beginning
// for a memory node that is being replaced; one that is replaced later ends it, and the error says to load again. If a compute node crashes
// between the two last operations, the tree is right, and slow until it is repaired.
func (c *Client) BulkLoad(pairs iter.Seq2[[]byte, []byte], o BulkOptions) error {
	return c.BulkLoadParts(1, o, func(b *Bulk) error { return b.Part(0, c, pairs) })
}

// BulkLoadParts is BulkLoad of several parts, each of them a sequence of its own, which clients write beside each other: load calls
// [Bulk.Part] for each part that has keys, and returns when all these calls have returned, with an error if the tree is to stay empty.
// The tree is empty until load has returned, and has all parts afterwards. If one of the calls has failed, or has not returned, the load
// fails, whatever load returns.
func (c *Client) BulkLoadParts(parts int, o BulkOptions, load func(*Bulk) error) error {
	if err := c.start(nil, nil); err != nil {
		return err
	}
	defer c.session.End()
	if o.FillPercent == 0 {
		o.FillPercent = 90
	}
	if o.FillPercent < 10 || o.FillPercent > 100 || parts < 1 {
		return fmt.Errorf("%w: %d parts, leaves filled to %d %%: want 1 or more, and 10 to 100", ErrConfig, parts, o.FillPercent)
	}
	defer func() {
		if c.session.Closed() { // by a sequence
			c.discard()
		}
	}()
	c.user.Enter()
	defer c.user.Exit()
	b := &Bulk{c: c, most: c.t.geo.nodeSize * o.FillPercent / 100, parts: make([]*loader, parts)}
	if err := c.outlast(b.begin); err != nil {
		return err
	}
	if err := b.load(load); err != nil {
		b.lose()
		return b.replaced(c.unlock(err))
	}
	l, err := b.join()
	if err != nil {
		b.lose()
		return b.replaced(c.unlock(err))
	}
	if l.root == 0 {
		return c.unlock(nil)
	}
	return b.replaced(b.publish(l))
}

// A Bulk is a bulk load of several parts. No other client can reach what clients of the compute node write of it, until the one that has
// the lock of the first leaf publishes all of it together. So a crash leaves nothing of it, and what the others write needs no lock. That
// client is in an operation from before they take any memory until it has published what they took: a round of reclamation waits for
// that (package memory/reclaim). And the lock is held from before they write anything: a copier to a new backup, which goes through the
// first leaf, was there before, and then they write to that backup, too, or it copies what is there afterwards.
type Bulk struct {
	c     *Client // that has the lock
	most  int     // bytes of a node
	parts []*loader
	cut   atomic.Int32          // calls of Part that have not written all pairs: they are under way, have failed, or their goroutines have ended
	first atomic.Pointer[error] // of such calls
}

// Part writes the pairs of a part, the i-th from 0 on: they are sorted, and their keys are greater than those of all parts before. c is a
// client of the same tree of this compute node, or the one that loads; a client writes one part at a time, and is refused other
// operations meanwhile. The sequence is as that of BulkLoad. After an error the load fails.
func (b *Bulk) Part(i int, c *Client, pairs iter.Seq2[[]byte, []byte]) error {
	b.cut.Add(1)
	if err := b.part(i, c, pairs); err != nil {
		b.first.CompareAndSwap(nil, &err)
		return err
	}
	b.cut.Add(-1)
	return nil
}

// whole returns an error unless all calls of Part have written all pairs.
func (b *Bulk) whole() error {
	if b.cut.Load() == 0 {
		return nil
	}
	if err := b.first.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("btree: bulk load of tree %q: %w: a part has not been written to its end, or the goroutine that wrote it has ended", b.c.t.cfg.Name, lock.ErrMisuse)
}

func (b *Bulk) part(i int, c *Client, pairs iter.Seq2[[]byte, []byte]) error {
	if c != b.c {
		if err := c.start(nil, nil); err != nil {
			return err
		}
		defer c.session.End()
		c.session.Within = "BulkLoad"
		defer func() {
			if c.session.Within = ""; c.session.Closed() {
				c.discard()
			}
		}()
		c.user.Enter()
		defer c.user.Exit()
		c.session.Use.End()
		defer c.session.Occupy()
	}
	switch {
	case c.t != b.c.t && b.c.t.h.Lost(): // the client is of the tree as it has been opened since
		return b.c.gone(&b.c.t.h)
	case c.t != b.c.t || i < 0 || i >= len(b.parts) || b.parts[i] != nil:
		return fmt.Errorf("btree: part %d of %d of a bulk load: %w: there is no such part, it has been loaded, or the client is of another tree",
			i, len(b.parts), lock.ErrMisuse)
	}
	// What the sequence yields may lie where the last operation put its result: in c.leaf, or in c.value.
	if result := c.value; result != nil {
		c.value = nil
		defer c.port.Free(result)
	}
	l := &loader{c: c, most: b.most, behind: i > 0, parts: len(b.parts)}
	b.parts[i] = l
	return c.unlessClosed(l.writePairs(pairs))
}

// unlessClosed returns err, or, if that is nil, an error if code of the user has closed the client.
func (c *Client) unlessClosed(err error) error {
	if err == nil && c.session.Closed() {
		err = fmt.Errorf("%w: client of tree %q, by the sequence of its bulk load", ErrClosed, c.t.cfg.Name)
	}
	return err
}

// begin locks the first leaf of a tree that is empty, and may be changed.
func (b *Bulk) begin() error {
	c := b.c
	err := c.lock(&c.n, c.left, c.t.first)
	c.found()
	if err != nil {
		return err
	}
	err = b.empty()
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

// replaced says what to do if a load has failed because a memory node was replaced. It is not done here: the first leaf may have been another
// client's meanwhile, and a new backup may lack what was written before.
func (b *Bulk) replaced(err error) error {
	switch {
	case err == nil || !b.c.t.h.Replicated() || !handle.Replaced(err):
		return err
	case b.c.uncertain:
		return fmt.Errorf("btree: bulk load: a memory node was replaced at its end: the tree has all of it, or is empty, and then load again: %w", err)
	}
	return fmt.Errorf("btree: bulk load: a memory node was replaced meanwhile, and the tree is empty: load again: %w", err)
}

// load has the parts written. The client's session is free meanwhile: sequences may use it. If load does not come back (it panics, or ends
// its goroutine), the lock is released and what has been written is given up.
func (b *Bulk) load(load func(*Bulk) error) error {
	c := b.c
	back := false
	c.session.Within = "BulkLoad"
	c.session.Use.End()
	defer func() {
		c.session.Within = ""
		c.session.Occupy()
		if !back {
			b.lose()
			_ = c.unlock(nil) // the panic goes on
		}
	}()
	err := load(b)
	back = true
	if err == nil {
		err = b.whole()
	}
	return c.unlessClosed(err)
}

// lose gives all slots up.
func (b *Bulk) lose() {
	for _, l := range b.parts {
		if l == nil {
			continue
		}
		for _, p := range l.slots {
			b.c.lose(p)
		}
	}
}

// A loader builds a part of a tree from left to right: one node of each level is being filled. What is behind the first part has leaves
// only, and the separators of these.
type loader struct {
	c      *Client
	most   int
	parts  int  // of the tree
	behind bool // it is not the first part
	levels []*filling
	last   []byte // key
	rec    []byte // scratch
	some   bool
	slots  []ptr // of nodes and large values
	root   ptr
	first  image // what the first leaf is to be

	// Of what is behind the first part: its first leaf, the key with which that begins, and the records of the separators of all leaves but the last.
	begin  ptr
	low    []byte
	leaves []byte
}

// A filling is the node of a level that is being filled.
type filling struct {
	self ptr
	low  []byte
	buf  []byte // records
	ends []int  // of the records
}

func (b *Bulk) empty() error {
	n := &b.c.n
	items, err := b.c.sorted(n)
	switch {
	case err != nil:
		return err
	case len(items) > 0 || n.high.some || n.level != 0:
		return fmt.Errorf("%w: %d keys in the first leaf, more behind it: %v", ErrNotEmpty, len(items), n.high.some)
	}
	root, err := b.c.loadRoot()
	if err != nil {
		return err
	}
	if root != n.self {
		return fmt.Errorf("%w: root %v is no leaf", ErrNotEmpty, root)
	}
	return nil
}

// join puts the parts together, and writes all nodes but the first leaf.
func (b *Bulk) join() (*loader, error) {
	l := b.parts[0]
	if l == nil {
		l = &loader{most: b.most, parts: len(b.parts)}
		b.parts[0] = l
	}
	l.c = b.c
	for _, p := range b.parts[1:] {
		if p == nil || !p.some {
			continue
		}
		if err := l.join(p); err != nil {
			return nil, err
		}
	}
	// The last node of each level has no high fence; its level's root is the only one.
	for i := 0; i < len(l.levels); i++ {
		f := l.levels[i]
		alone := i == len(l.levels)-1
		if err := l.flush(i, nil, false, 0); err != nil {
			return nil, err
		}
		if alone {
			l.root = f.self
		}
	}
	return l, nil
}

// join puts a part, which has keys, behind what there is.
func (l *loader) join(p *loader) error {
	if l.some && bytes.Compare(p.low, l.last) <= 0 {
		return fmt.Errorf("%w: %.40q, the first of a part, behind %.40q", ErrOrder, p.low, l.last)
	}
	if len(l.levels) == 0 { // the first part has no keys: its leaf has none
		l.levels = append(l.levels, &filling{self: l.c.t.first})
	}
	if err := l.flush(0, p.low, true, p.begin); err != nil {
		return err
	}
	for rec := p.leaves; len(rec) > 0; {
		size := recordSize(int(get32(rec, 0)&recKeyMask), childSize)
		if err := l.add(1, rec[recordHeader:size-childSize], nil, rec[:size]); err != nil {
			return err
		}
		rec = rec[size:]
	}
	l.levels[0], l.last, l.some = p.levels[0], p.last, true
	return nil
}

// writePairs writes the pairs. Between two of them the session is free: the sequence may use it.
func (l *loader) writePairs(pairs iter.Seq2[[]byte, []byte]) (err error) {
	use := l.c.session.Use
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
		if level > 0 || l.behind {
			slot, err := l.node()
			if err != nil {
				return err
			}
			f.self = slot.next()
		}
		if l.behind {
			f.low = bytes.Clone(key)
			l.begin, l.low = f.self, f.low
		}
		l.levels = append(l.levels, f)
	}
	f := l.levels[level]
	if size := headerSize + len(f.low) + len(f.buf) + len(rec); len(f.ends) > 1 && size+len(key) > l.most || size+l.highest(level, key) > l.c.t.geo.nodeSize {
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

// highest returns the size of the largest high fence that a node may get whose last key is key: in a leaf the shortest key that is above it
// and not above the next one, unless that is the first of a part; else any key.
func (l *loader) highest(level int, key []byte) int {
	if level > 0 || l.parts > 1 {
		return l.c.t.geo.maxKey
	}
	return min(len(key)+1, l.c.t.geo.maxKey)
}

// node takes a slot for a node.
func (l *loader) node() (ptr, error) {
	slot, err := l.c.alloc(l.c.t.nextNode(0), classNode)
	if err == nil {
		l.slots = append(l.slots, slot)
	}
	return slot, err
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
	if l.behind {
		l.leaves = append(l.leaves, rec...)
		return nil
	}
	return l.add(level+1, f.low, nil, rec)
}

// publish writes the first leaf, sets the root and releases the lock, in one chain.
func (b *Bulk) publish(l *loader) error {
	c := b.c
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
		b.lose()
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
		b.lose()
		return err
	}
	c.t.root.Store(uint64(l.root))
	return nil
}
