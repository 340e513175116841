package btree

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A Client is one client's view of a tree. One goroutine uses it at a time.
type Client struct {
	t    *Tree
	l    lock.Locker
	port fabric.Port

	hold     lock.Hold
	req      lock.Request
	deferred int // offset from which on the locked node, as a holder before has handed it on, is not in memory yet; 0 is all is
	reads    [1]fabric.Op
	ops      [fabric.MaxChain]fabric.Op // of chains outside Acquire and Release
	before   [lock.MaxPiggyback]fabric.Op

	leaf  []byte // the node in work
	inner []byte // an inner node on the way
	left  []byte // the node that is written whole, or its left half
	right []byte // its right half
	aux   []byte // headers, free slots
	work  slab.Worker
	value []byte // a large value

	n      node   // what leaf holds
	own    []byte // the record of the operation in work, so that it may lie in what Get returned
	old    []byte // what CompareAndPut expects
	rec    []byte // a record that did not fit
	items  []item
	finder finder
	search search
	jobs   []job
	shadow []atomic.Uint64 // of each memory node: the ptr of a slot for the shadow of a node that is written whole. Its compute node reads it in rounds (kept)

	childBuf  [childSize]byte
	outBuf    [outOfLineSize]byte
	uncertain bool // the operation has been sent to a memory node
	mirrored  mirrored
	walking   walking
	patience  fabric.Time // with a lock; 0: see Config.LockTimeoutNs

	user    reclaim.User
	stats   Stats
	session handle.Session // what there is besides operations
}

// Stats counts what a Client did.
type Stats struct {
	Gets, Puts, Deletes uint64 // operations, successful or not
	Scanned             uint64 // entries that iterators returned

	CacheHits   uint64 // searches for a leaf that the index cache led to, or the root was
	CacheMisses uint64 // inner nodes that had to be READ
	CacheStale  uint64 // what the index cache led to was not the node any more

	Torn      uint64 // READs of a node that had to be repeated
	Rights    uint64 // steps to a right neighbour
	Shadows   uint64 // READs of the shadow of a node that was being written
	Redone    uint64 // nodes that were finished for a writer that had crashed
	Rewrites  uint64 // nodes written whole to make room
	Splits    uint64
	Emptied   uint64 // nodes that became empty and were marked dead
	Unlinked  uint64 // dead nodes unlinked
	Completed uint64 // separators of half-split nodes added
	Repaired  uint64 // separators repaired that led to nodes which were gone
	Deferred  uint64 // repairs deferred to the next visitor, because of an error
	Walks     uint64 // through the tree, to compare backups with primaries
	Settled   uint64 // nodes whose backups were made what the primary is
	Leaked    uint64 // slots lost to the tree by failed operations, until this compute node closes it or crashes
}

// Add adds the counters of t, such as those of another Client, to s.
func (s *Stats) Add(t *Stats) { stats.Add(s, t) }

// Client returns a new client that locks with l: a Locker of the mechanism
// whose layout the tree was opened with. It works over l's Port.
func (t *Tree) Client(l lock.Locker) (*Client, error) {
	c := &Client{t: t.newest.Load(), l: l, port: l.Port()}
	c.session = handle.NewSession(l, &c.user, &c.work, handle.Hooks{
		Handle: func() *handle.Handle { return &c.t.h }, Reopen: c.reopen, Gone: c.gone, Discard: c.discard,
		Open: c.openPart, GiveSpare: c.freeShadows, Mark: c.mark, Walk: c.walkOn, Settled: c.settled,
	})
	if err := c.session.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

// open makes the client one of a tree, with nothing that it had of another. If it fails, it is what it was, without buffers.
func (c *Client) open(t *Tree) error {
	before, p := c.t, c.port
	if t != before {
		c.discard()
	}
	c.t, c.shadow, c.jobs, c.deferred = t, make([]atomic.Uint64, len(t.h.Parts)), c.jobs[:0], 0
	for _, b := range []*[]byte{&c.leaf, &c.inner, &c.left, &c.right} {
		*b = p.Alloc(t.geo.nodeSize)
	}
	c.aux = p.Alloc(auxSize)
	c.finder.init()
	c.own = make([]byte, recordSize(t.geo.maxKey, max(t.geo.maxInline, outOfLineSize)))
	c.user.Kept = c.kept
	err := c.session.Join(&t.h)
	if err == nil {
		err = c.takeShadows()
	}
	if err != nil {
		c.discard()
		c.t = before
		return err
	}
	return nil
}

// takeShadows takes a slot for shadows on each memory node that is up, so that keys can be deleted when memory is full. If it is full already, the client
// can read, and change what needs no more room than there is by then.
func (c *Client) takeShadows() error {
	c.user.Enter()
	defer c.user.Exit()
	for i := range c.t.h.Parts {
		_, err := c.shadowOn(i)
		if errors.Is(err, fabric.ErrUnknownOutcome) && !errors.Is(err, fabric.ErrInterrupted) {
			_, err = c.shadowOn(i) // this client was the first to find it out
		}
		if err != nil && !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, ErrNoSpace) && !(c.t.h.Parts[i].Replicated() && handle.Replaced(err)) {
			return err
		}
	}
	return nil
}

// start begins an operation of the user that has a key and a value, or nil.
func (c *Client) start(key, value []byte) error {
	if err := c.session.Begin(); err != nil {
		return err
	}
	err := c.check(key, value)
	if err != nil {
		c.session.End()
	}
	return err
}

// sorted returns the records of a node that count, in the order of keys, until the next call.
func (c *Client) sorted(n *node) ([]item, error) {
	items, err := n.sorted(c.items[:0])
	c.items = items[:0]
	return items, err
}

// Close frees the client's buffers. The Locker and its Port stay open. What the client is asked for later is ErrClosed.
func (c *Client) Close() { c.session.Close() }

// discard frees what the client has of its tree.
func (c *Client) discard() {
	if !c.t.Dropped() { // else they are not this compute node's any more
		c.user.Enter()
		c.freeShadows()
		c.user.Exit()
	}
	c.t.h.Member.Remove(&c.user)
	for _, b := range [][]byte{c.leaf, c.inner, c.left, c.right, c.aux, c.value, c.mirrored.image, c.walking.there} {
		if b != nil {
			c.port.Free(b)
		}
	}
	c.leaf, c.inner, c.left, c.right, c.aux, c.value, c.mirrored.image, c.walking.there = nil, nil, nil, nil, nil, nil, nil, nil
	c.work.Close()
}

// Stats returns the client's counters, updated by its goroutine.
func (c *Client) Stats() *Stats { return &c.stats }

// maxTries bounds the repetitions of whatever others can make fail, so that damaged memory
// ends in an error.
const maxTries = 1000

// read reads the node that p names into b, and makes n it. A node that is being written
// anew is read from its shadow. errGone: there is another node now, or none; a tornError: so it is, or memory is damaged.
func (c *Client) read(n *node, b []byte, p ptr) error {
	if !c.t.sane(p, c.t.stride) {
		if err := c.reach(p, c.t.stride); err != nil {
			return err
		}
	}
	var before word // whose shadow was another node's
	for range maxTries {
		c.ops[0] = fabric.Read(c.t.slotAddr(p, classNode), b)
		if err := c.do(p.node(), c.ops[:1]); err != nil {
			return fmt.Errorf("btree: node %v: %w", p, err)
		}
		err := n.decode(b, p)
		if err == errMoving {
			moving := n.word
			err = c.readShadow(n, b, p)
			if err == errGone && moving != before {
				// Perhaps the node has arrived meanwhile, and its writer's shadow serves the next one.
				before, err = moving, errTorn
			}
		}
		if err != errTorn {
			return err
		}
		c.stats.Torn++
	}
	return &tornError{p}
}

// readShadow reads into b what the moving node n, named p, is to be.
func (c *Client) readShadow(n *node, b []byte, p ptr) error {
	moving := n.word
	s := makePtr(p.node(), moving.shadow(), 0)
	if !c.t.sane(s, c.t.stride) {
		return fmt.Errorf("%w: node %v: shadow at %v", ErrCorrupt, p, s)
	}
	c.stats.Shadows++
	c.ops[0] = fabric.Read(c.t.slotAddr(s, classNode), b)
	if err := c.do(s.node(), c.ops[:1]); err != nil {
		return fmt.Errorf("btree: shadow of node %v: %w", p, err)
	}
	return n.decodeShadow(b, p, moving)
}

// A search is the way to a node.
type search struct {
	level  uint8
	key    []byte
	strict bool // low < key <= high is asked for, instead of low <= key < high
	write  bool // the node is locked, and what is found broken on the way is repaired

	// goal is what inner nodes are asked for: key, unless what they had there was gone: then
	// the rest of that.
	goal       []byte
	goalStrict bool
	goalBuf    []byte

	parent  *inner               // that led here; nil if the root is asked for
	index   int                  // of the separator there
	seen    [maxLevel + 1]*inner // inner nodes READ in this search
	fetched bool                 // there are any
	moved   bool                 // it went right on the level asked for
	rooted  bool                 // the root's ptr was READ in this search
	edge    []byte               // where the node begins that it went right from
	torn    int                  // how often a slot that stayed torn was taken for one that is gone
	top     ptr                  // ErrLevel: the root, which is on the level below
}

// begin resets the search.
func (s *search) begin(level uint8, key []byte, strict, write bool) {
	if s.fetched {
		clear(s.seen[:])
	}
	s.level, s.key, s.strict, s.write = level, key, strict, write
	s.goal, s.goalStrict = key, strict
	s.parent, s.index, s.fetched, s.moved, s.rooted = nil, 0, false, false, false
	s.torn = 0
}

// maxTorn bounds how often a search takes a slot that stays torn for one that is gone. A node that
// is damaged is met on every way.
const maxTorn = 16

// gone reports whether err says that the search has to go another way, for what it was led to is gone.
func (s *search) gone(err error) bool {
	if err != errGone && isGone(err) {
		s.torn++
		return s.torn <= maxTorn
	}
	return err == errGone
}

// fresh reports whether the parent was READ in this search.
func (s *search) fresh() bool { return s.parent == nil || s.seen[s.parent.level] == s.parent }

// goLeft notes that what separator i of in leads to is gone. If in is new, what is wanted
// can only be reached from further left.
func (c *Client) goLeft(s *search, in *inner, i int) error {
	c.t.cache.drop(in)
	if s.seen[in.level] != in {
		c.stats.CacheStale++
		return nil
	}
	sep := in.sep(i)
	if s.write {
		c.later(job{kind: jobRepair, level: in.level, low: sep, self: in.children[i]})
	}
	if len(sep) == 0 {
		return fmt.Errorf("%w: leftmost child of %v is gone", ErrCorrupt, in.self)
	}
	s.goalBuf = append(s.goalBuf[:0], sep...)
	s.goal, s.goalStrict = s.goalBuf, true
	return nil
}

// descend returns the ptr of the node where the search should begin on its level.
func (c *Client) descend(s *search) (ptr, error) {
	for range maxTries {
		in := c.t.cache.find(&c.finder, s.level+1, s.goal, s.goalStrict)
		if in == nil {
			var err error
			var p ptr
			if p, in, err = c.fromRoot(s); err != nil {
				return 0, err
			}
			if in == nil {
				if p != 0 {
					s.parent = nil
					return p, nil
				}
				continue
			}
		} else if in.level == s.level+1 {
			c.stats.CacheHits++
		}
		for in != nil && in.level > s.level+1 {
			next, err := c.stepDown(s, in)
			if err != nil {
				return 0, err
			}
			in = next
		}
		if in == nil {
			continue
		}
		i := in.pick(s.goal, s.goalStrict)
		if i < 0 {
			c.t.cache.drop(in)
			return 0, fmt.Errorf("%w: inner node %v has no child for its low fence", ErrCorrupt, in.self)
		}
		s.parent, s.index = in, i
		return in.children[i], nil
	}
	return 0, fmt.Errorf("%w: no way to level %d in %d tries", ErrCorrupt, s.level, maxTries)
}

// fromRoot reads the root. It returns its copy, or its ptr if it is on the level that is
// asked for, or neither if the search must begin again.
func (c *Client) fromRoot(s *search) (ptr, *inner, error) {
	p := ptr(c.t.root.Load())
	if s.level == 0 && ptr(c.t.leaf.Load()) == p {
		c.stats.CacheHits++
		return p, nil, nil
	}
	var n node
	err := c.read(&n, c.inner, p)
	if err == errGone || err == nil && n.link != 0 && !s.rooted {
		// It is not the root any more, or it has been split and will not be.
		s.rooted = true
		_, err = c.loadRoot()
		return 0, nil, err
	}
	switch {
	case err != nil:
		return 0, nil, err
	case n.level < s.level:
		if now, err := c.loadRoot(); err != nil || now != p {
			return 0, nil, err
		}
		s.top = p
		return 0, nil, ErrLevel
	case n.level == s.level:
		if s.level == 0 && n.link == 0 {
			c.t.leaf.Store(uint64(p))
		}
		return p, nil, nil
	}
	in, err := c.keep(s, &n)
	if err != nil {
		return 0, nil, err
	}
	if in.high.above(s.goal, s.goalStrict) {
		in, err = c.walkRight(s, n.link, in.level, 1)
	}
	return 0, in, err
}

// loadRoot reads the root's ptr.
func (c *Client) loadRoot() (ptr, error) {
	return c.t.loadRoot(func(ops []fabric.Op) error { return c.do(0, ops) })
}

// keep puts a copy of an inner node that was READ into the cache.
func (c *Client) keep(s *search, n *node) (*inner, error) {
	items, err := c.sorted(n)
	if err != nil {
		return nil, err
	}
	in := newInner(n, items)
	if s != nil {
		s.seen[in.level], s.fetched = in, true
	}
	c.stats.CacheMisses++
	if !n.dead {
		c.t.cache.add(in)
	}
	return in, nil
}

// stepDown reads the child of in that the search goes by, and its right neighbours until one covers the goal.
// It returns nil if the search must begin again.
func (c *Client) stepDown(s *search, in *inner) (*inner, error) {
	i := in.pick(s.goal, s.goalStrict)
	if i < 0 {
		return nil, fmt.Errorf("%w: inner node %v has no child for its low fence", ErrCorrupt, in.self)
	}
	next, err := c.walkRight(s, in.children[i], in.level-1, 0)
	if next == nil && err == nil {
		err = c.goLeft(s, in, i)
	}
	return next, err
}

// walkRight reads inner nodes of a level from p to the right until one covers the goal. It returns nil
// if p is gone, or dead: a dead node is good only for a search that comes from its left.
func (c *Client) walkRight(s *search, p ptr, level uint8, steps int) (*inner, error) {
	for ; steps < maxTries; steps++ {
		var n node
		err := c.read(&n, c.inner, p)
		if err == nil && (n.level != level || n.dead && steps == 0) || s.gone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		ok, right := n.covers(s.goal, s.goalStrict)
		if ok {
			return c.keep(s, &n)
		}
		if !right || n.link == 0 {
			return nil, nil
		}
		c.stats.Rights++
		p = n.link
	}
	return nil, fmt.Errorf("%w: level %d has no end at %v", ErrCorrupt, level, p)
}

// seek finds the node of a search and reads it into b. With write it is locked, and alive;
// otherwise it may be dead: then it is empty, and no node has its keys.
func (c *Client) seek(s *search, n *node, b []byte) error {
	for range maxTries {
		p, err := c.descend(s)
		if err != nil {
			return err
		}
		found, err := c.walk(s, n, b, p)
		if found || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: no way to key %.40q on level %d in %d tries", ErrCorrupt, s.key, s.level, maxTries)
}

// maxBeside is how far a search goes beside a root that has been split, before it looks for another.
const maxBeside = 4

// walk goes from p to the right until the node that is asked for. It returns false if the
// search must begin again.
func (c *Client) walk(s *search, n *node, b []byte, p ptr) (found bool, err error) {
	s.moved = false
	for step := 0; ; {
		if s.write {
			err = c.lock(n, b, p)
		} else {
			err = c.read(n, b, p)
		}
		gone := err != nil && s.gone(err)
		if err != nil && !gone {
			return false, err
		}
		ok, right := false, false
		if !gone && n.level == s.level {
			ok, right = n.covers(s.key, s.strict)
		}
		if n.dead && step == 0 {
			ok, right = false, false // good only for a search that comes from its left
		}
		if ok && !(n.dead && s.write) {
			if n.dead {
				n.used = n.first // it is empty, whatever lies there
			}
			c.arrived(s, n)
			return true, nil
		}
		if s.write && !gone {
			c.setHandoff(n)
			if err := c.unlock(nil); err != nil {
				return false, err
			}
		}
		switch {
		case ok, right && n.dead && s.write:
			return false, c.unlinkFound(n)
		case right && n.link != 0:
			if s.parent == nil {
				c.t.leaf.Store(0) // the root has been split
				if step == maxBeside && !s.rooted {
					s.rooted = true
					_, err := c.loadRoot()
					return false, err
				}
			}
			if step > 0 && bytes.Compare(n.low, s.edge) <= 0 {
				return false, fmt.Errorf("%w: level %d leads back from %.40q to %.40q at %v", ErrCorrupt, s.level, s.edge, n.low, p)
			}
			c.stats.Rights++
			s.moved = true
			s.edge = append(s.edge[:0], n.low...)
			p, step = n.link, step+1
			continue
		case step > 0:
			return false, nil // the left neighbour has changed meanwhile
		case s.parent == nil:
			_, err := c.loadRoot()
			return false, err
		}
		if n.dead && s.write && !gone && n.level == s.level {
			if err := c.unlinkFound(n); err != nil {
				return false, err
			}
		}
		return false, c.goLeft(s, s.parent, s.index)
	}
}

// arrived notes what the way to the node has shown.
func (c *Client) arrived(s *search, n *node) {
	if !s.moved || s.parent == nil {
		if s.moved && s.write && len(n.low) > 0 {
			c.later(job{kind: jobComplete, level: n.level + 1, low: n.low, high: n.high, self: n.self})
		}
		return
	}
	c.t.cache.drop(s.parent)
	if !s.fresh() {
		c.stats.CacheStale++
	} else if s.write {
		c.later(job{kind: jobComplete, level: n.level + 1, low: n.low, high: n.high, self: n.self})
	}
}

// lock locks the node that p names and reads it in the same chain. If the node is being written
// anew, the client that did so has crashed, and it is finished. After an error it is not locked.
func (c *Client) lock(n *node, b []byte, p ptr) error {
	if !c.t.sane(p, c.t.stride) {
		if err := c.reach(p, c.t.stride); err != nil {
			return err
		}
	}
	c.reads[0] = fabric.Read(c.t.slotAddr(p, classNode), b)
	c.req = lock.Request{Lock: c.t.lockAddr(p), Mode: lock.Exclusive, Reads: c.reads[:], Handoff: b, Since: c.session.Since}
	if t := cmp.Or(c.patience, c.t.cfg.LockTimeoutNs); t != 0 {
		c.req.Deadline = c.port.Now() + t
	}
	if err := c.l.Acquire(&c.hold, &c.req); err != nil {
		return fmt.Errorf("btree: %w", err)
	}
	c.deferred = int(c.req.Deferred)
	n.dead = false
	err := n.decode(b, p)
	for try := 0; err == errTorn && c.deferred == 0 && try < maxTries; try++ {
		// A client makes another node of the slot without its lock.
		c.stats.Torn++
		if err = lock.Do(c.l, c.reads[:]); err == nil {
			err = n.decode(b, p)
		}
	}
	switch err {
	case errMoving:
		err = c.redo(n, b, p)
	case errTorn:
		err = &tornError{p}
	}
	if err == nil && c.hold.Token != 0 && c.hold.Token < n.token {
		err = fmt.Errorf("btree: %w: token %d, node %v was written with %d", lock.ErrLost, c.hold.Token, p, n.token)
	}
	if err != nil {
		return c.unlock(err)
	}
	return nil
}

// redo finishes the locked node n, named p, that a crashed client was writing anew.
func (c *Client) redo(n *node, b []byte, p ptr) error {
	if err := c.readShadow(n, b, p); err != nil {
		if err == errTorn {
			err = fmt.Errorf("%w: node %v: it is moving, and its shadow is not there", ErrCorrupt, p)
		}
		return err
	}
	w := finish(b, stateAlive, n.used)
	n.word = w
	if err := c.mirror(p, b[:n.used], w); err != nil {
		return err
	}
	a := c.t.slotAddr(p, classNode)
	c.ops[0] = fabric.Write(a.Add(8), b[8:n.used])
	c.ops[1] = fabric.Store(a, uint64(w))
	if err := lock.Do(c.l, c.ops[:2]); err != nil {
		return fmt.Errorf("btree: node %v: %w", p, err)
	}
	c.stats.Redone++
	return nil
}

// setHandoff lets the next holder of this compute node have the locked node n as it is in its buffer: it need not READ the node.
// A slot becomes another node only after the one before has been marked dead, under this lock; so what is handed on is right
// for as long as the lock stays here.
func (c *Client) setHandoff(n *node) {
	if n.word.state() == stateAlive {
		c.hold.Handoff = n.b[:n.used]
	}
}

// unlock releases the lock without doing anything, because of err or nil.
func (c *Client) unlock(err error) error { return c.release(0, err) }

// answer releases the locked leaf n, which err says is not to be changed. If all that is known of it is what a holder before
// has handed on, memory is asked for a word: this compute node may have been stopped and fenced meanwhile, and others have
// had the lock. A fenced client gets no answer.
func (c *Client) answer(n *node, err error) error {
	if c.req.HandoffLen == 0 || c.deferred != 0 {
		return c.unlock(err)
	}
	c.before[0] = fabric.Load(c.t.slotAddr(n.self, classNode))
	return c.release(1, err)
}

// release executes the first n operations of before and releases the lock. If they are none, and a holder before has deferred
// the WRITE of what it had changed to this one, that is done.
func (c *Client) release(n int, err error) error {
	if n == 0 && c.deferred != 0 {
		c.hold.Handoff = c.req.Handoff[:c.req.HandoffLen]
		n = c.appendOps(c.hold.Handoff, 0)
	}
	rerr := c.l.Release(&c.hold, c.before[:n])
	c.hold.Handoff, c.hold.Deferred, c.deferred = nil, 0, 0
	if rerr == nil {
		return err
	}
	rerr = fmt.Errorf("btree: %w", rerr)
	if err == nil || isGone(err) || c.req.HandoffLen > 0 {
		return rerr // what was found in a handoff may not be in memory, and never come there: it is no answer
	}
	return errors.Join(err, rerr)
}
