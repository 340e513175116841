package objstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A Client is one client's view of a store. One goroutine uses it at a time.
type Client struct {
	s    *Store
	l    lock.Locker
	port fabric.Port

	hold lock.Hold
	req  lock.Request
	ops  [fabric.MaxChain]fabric.Op // of chains outside Acquire and Release

	reads  [3]fabric.Op // of Acquire
	before [4]fabric.Op // of Release

	slots []byte       // the bucket in work: slots and link
	block []byte       // an overflow block that is made
	obj   []byte       // the object in work: what Get returns lies here
	out   []byte       // the object that is stored
	small int          // operations since one that needed more than keepBuffer of obj or out
	key   [MaxKey]byte // of the operation in work, so that it may lie in what Get returned
	table []byte       // buckets sampled by evict

	copies   bool           // it is a Copy's
	mirrored *mirrored      // of a client that has changed replicated memory
	backups  memory.Backups // of the change under way
	walk     walk           // of a client that reclaims

	object Object // of Update: here, since it is given away
	large  large  // of a client that has met values in segments
	batch  batch  // of GetMulti

	inherited, passed []byte // the handoff that comes with a lock, and the one for the next holder; nil: there are none
	waited            bool   // for the lock that is held, for another client of this node

	nowS    uint32    // set by SetNow, 0 is none
	uniques []uniques // of each memory node of the store

	hv      lock.Hold // of the bucket of a victim
	user    reclaim.User
	work    slab.Worker
	stats   Stats
	session handle.Session // what there is besides operations
}

var _ Clocked = (*Client)(nil)

// Stats counts what a Client did.
type Stats struct {
	Gets         uint64 `json:"gets"`
	Hits         uint64 `json:"hits"`
	Stores       uint64 `json:"stores"`        // objects stored by any operation
	Open         uint64 `json:"open"`          // of these, without the lock
	Overtaken    uint64 `json:"overtaken"`     // of these, by another set that came right behind: nothing of them was to be seen
	Absorbed     uint64 `json:"absorbed"`      // sets and deletes deferred to one right behind them, of the key, by another client of the compute node: they were never written
	Deletes      uint64 `json:"deletes"`       // objects deleted by Delete
	CacheHits    uint64 `json:"cache_hits"`    // objects that were where the location cache said: no second READ
	CacheMisses  uint64 `json:"cache_misses"`  // objects that had to be read again
	Evictions    uint64 `json:"evictions"`     // objects evicted by this client
	Expired      uint64 `json:"expired"`       // expired objects dropped by this client
	Extents      uint64 `json:"extents"`       // runs of pages taken from the region
	Collected    uint64 `json:"collected"`     // times that this client took runs from other classes
	Moved        uint64 `json:"moved"`         // objects that this client copied, so that another class gets the memory
	Overflows    uint64 `json:"overflows"`     // overflow blocks made
	Walks        uint64 `json:"walks"`         // through the buckets, to compare backups with primaries
	Repaired     uint64 `json:"repaired"`      // buckets whose backups were made what the primary is
	Sweeps       uint64 `json:"sweeps"`        // through the buckets, for segments that no value has
	Swept        uint64 `json:"swept"`         // such segments
	Leaked       uint64 `json:"leaked"`        // chunks lost to the store by failed operations, until this compute node closes the store or crashes
	BytesRead    uint64 `json:"bytes_read"`    // of values returned
	BytesWritten uint64 `json:"bytes_written"` // of values stored
}

// Add adds the counters of t, such as those of another Client, to s.
func (s *Stats) Add(t *Stats) { stats.Add(s, t) }

const (
	firstBuffer = 4096
	// A client that has handled a large object keeps buffers of more than keepBuffer for its next operations, until
	// keepFor of them in a row have not needed them.
	keepBuffer = 64 << 10
	keepFor    = 64
	// A client has its incarnation in the high bits of its uniques and counts in
	// the low ones: no version of any object on a memory node has the unique of another.
	uniqueBits = 36
	// generationShift: a memory generation has 2^generationShift incarnations of clients.
	generationShift = 20
)

// Client returns a new client that locks with l: a Locker of the mechanism
// whose layout the store was opened with. It works over l's Port.
func (s *Store) Client(l lock.Locker) (*Client, error) { return s.newClient(l, false) }

// newClient is Client. copies: it changes no object, so it needs no uniques, of which there are not many.
func (s *Store) newClient(l lock.Locker, copies bool) (*Client, error) {
	c := &Client{s: s.newest.Load(), l: l, port: l.Port(), copies: copies}
	c.session = handle.NewSession(l, &c.user, &c.work, handle.Hooks{
		Handle: func() *handle.Handle { return &c.s.h }, Reopen: c.reopen, Gone: c.gone, Discard: c.discard, Open: c.openPart, Mark: c.mark,
		Walk: c.walkOn, Settled: c.settled,
	})
	if err := c.session.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

// open makes the client one of a store, with nothing that it had of another. If it fails, it is what it was, without buffers.
func (c *Client) open(s *Store) error {
	c.discard()
	p, before := c.port, c.s
	c.s, c.uniques = s, make([]uniques, len(s.h.Parts))
	c.slots = p.Alloc(max(s.slotsLen(), overflowSize))
	c.block = p.Alloc(overflowSize)
	c.obj = p.Alloc(firstBuffer)
	c.out = p.Alloc(firstBuffer)
	c.batch.gatherer, _ = p.(fabric.Gatherer)
	if !s.cfg.Paper {
		c.inherited, c.passed = make([]byte, s.handoffSize()), make([]byte, s.handoffSize())
	}
	err := c.session.Join(&s.h)
	if err == nil && s.h.Registered() && !c.copies { // else nothing is changed, and there are no uniques
		err = c.incarnate(0)
	}
	if err != nil {
		c.discard()
		c.s = before
	}
	return err
}

// A uniques is a client's uniques for one memory node.
type uniques struct{ next, end uint64 }

// incarnate gets the client uniques of its own for a memory node. Those of a memory that has come in the place of another begin
// elsewhere, so that no client that has kept one takes an object for that which was lost.
func (c *Client) incarnate(node int) error {
	n := c.s.h.Parts[node]
	a := n.Base.Add(incarnationOffset)
	err := c.outlast(&work{look: look{n: n}}, func() error {
		c.ops[0] = fabric.FAA(a, 1)
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return err
		}
		return n.Region.Level(lock.Path(c.l), a, 1) // no client gets the same, whatever memory node serves
	})
	if err != nil {
		return fmt.Errorf("objstore: incarnation at %v: %w", a, err)
	}
	old := c.ops[0].Old
	u := &c.uniques[node]
	u.next = (old + 1 + uint64(n.Region.Generation())<<generationShift) << uniqueBits
	u.end = u.next + 1<<uniqueBits
	return nil
}

// Close frees the client's buffers. The Locker and its Port stay open. What the client is asked for later is ErrClosed.
func (c *Client) Close() { c.session.Close() }

// discard frees what the client has of its store.
func (c *Client) discard() {
	c.s.h.Member.Remove(&c.user)
	for _, b := range [][]byte{c.slots, c.block, c.obj, c.out, c.table, c.batch.slots, c.large.buf} {
		if b != nil {
			c.port.Free(b)
		}
	}
	c.slots, c.block, c.obj, c.out, c.table, c.batch.slots = nil, nil, nil, nil, nil, nil
	c.large = large{}
	if c.mirrored != nil {
		c.port.Free(c.mirrored.image)
		c.mirrored = nil
	}
	c.work.Close()
}

// Stats returns the client's counters, updated by its goroutine.
func (c *Client) Stats() *Stats { return &c.stats }

// Store returns the store.
func (c *Client) Store() *Store { return c.s }

// SetNow implements Clocked.
func (c *Client) SetNow(seconds uint32) { c.nowS = seconds }

func (c *Client) now() uint32 { return uint32(c.Clock() / fabric.Second) }

func (c *Client) nextUnique(node int) (uint64, error) {
	u := &c.uniques[node]
	if u.next == u.end {
		if err := c.incarnate(node); err != nil {
			return 0, err
		}
	}
	u.next++
	return u.next - 1, nil
}

// grow returns a buffer of at least n bytes with the contents of b, which it frees.
func (c *Client) grow(b []byte, n uint64) []byte {
	if n > keepBuffer {
		c.small = 0
	}
	if n <= uint64(len(b)) {
		return b
	}
	bigger := c.port.Alloc(int(max(n, 2*uint64(len(b)))))
	copy(bigger, b)
	if b != nil {
		c.port.Free(b)
	}
	return bigger
}

// trim returns a buffer in place of b if b is large and has not been needed for a while. Nothing in b may be.
func (c *Client) trim(b []byte) []byte {
	if len(b) <= keepBuffer || c.small <= keepFor {
		return b
	}
	c.port.Free(b)
	return c.port.Alloc(firstBuffer)
}

// Trim frees buffers that a large object has needed, and of which nothing is needed any more: for a client that may not be used for a while. What Get returned is not valid any more.
func (c *Client) Trim() {
	if len(c.obj) <= keepBuffer && len(c.out) <= keepBuffer && cap(c.large.whole) <= keepBuffer || c.session.Begin() != nil {
		return
	}
	c.small, c.large.whole = keepFor+1, nil
	c.obj, c.out = c.trim(c.obj), c.trim(c.out)
	clear(c.ops[:])
	clear(c.reads[:])
	clear(c.before[:])
	clear(c.batch.ops[:cap(c.batch.ops)])
	c.req, c.object = lock.Request{}, Object{}
	lock.Trim(c.l)
	c.session.End()
}

// trimBoth trims both buffers of objects, for an operation that is given nothing but a key.
func (c *Client) trimBoth() {
	if len(c.obj) > keepBuffer || len(c.out) > keepBuffer {
		c.obj, c.out = c.trim(c.obj), c.trim(c.out)
	}
}

// A work is one operation on one key: where the key lives, what to read
// of its object, and what was found under the lock.
type work struct {
	look
	need need // of the operation: toRead or toChange
	// unregistered: the first part is missing. Nothing may be changed, not even a lock.
	unregistered bool
	list         bool   // what is stored is a list of segments
	tail         []byte // of what is stored, behind the bytes that are in a buffer of the client: lent to the Port
	hole         int    // bytes behind those, which are to be filled in later
	unknown      bool   // whether it was stored
	set          bool   // whatever was there
	openSlot     bool   // of such, whose slot may be k.slot, which is open
	insist       bool   // of such: under the lock
	noted        uint64 // epoch of a Grace before it is published, if slots open

	hint      slotWord    // where the object may be, if the location cache does not know
	handedOff bool        // what was found came with a handoff
	absorbs   bool        // it does what sets and deletes of the key before it have deferred, and may be deferred itself (handoff.go)
	alone     bool        // of such: it is not deferred
	deferral  int         // not 0: so it does now, for this slot less one
	kept      slotWord    // of such: what memory has in the slot
	begun     bool        // the change may be at the primary or a backup
	term      uint32      // of a replicated number, when the change was begun; and the epoch
	mirrored  fabric.Time // when all backups had it
	epoch     uint32
	trace     *memory.Trace // where what has failed may show

	vacant fabric.Addr // the first empty slot
	link   fabric.Addr // one that is empty
	depth  int         // overflow blocks seen
}

// A look is the part of a work that finds an object and reads it: all that a read without the lock needs, of which a batch has many.
type look struct {
	place
	n       *handle.Part
	key     []byte
	value   uint64
	head    bool // header and key of the object suffice, and so many bytes of its value
	segment bool // the key is that of a segment

	found  bool
	at     uint64      // where in c.obj the object goes
	loaded slotWord    // the object of this word is there
	word   slotWord    // of the object
	slot   fabric.Addr // of word
	h      header
}

// afresh returns the look as it was before anything was found.
func (k *look) afresh() look {
	return look{place: k.place, n: k.n, key: k.key, head: k.head, value: k.value, segment: k.segment}
}

// want returns how many bytes of w's object to read.
func (k *look) want(w slotWord) uint64 {
	if k.head {
		return min(w.readLen(), headerSize+uint64(len(k.key))+k.value)
	}
	return w.readLen()
}

// lockKey acquires the lock of the key's bucket, and reads in the same chain the
// bucket and the object, if the location cache knows where that may be.
func (c *Client) lockKey(k *work, mode lock.Mode) error {
	c.reads[0].SetRead(c.s.slotsAddr(k.bucket), c.slots[:c.s.slotsLen()])
	reads := c.reads[:1]
	w, _ := c.s.places.get(k.hash)
	if w == 0 {
		w = k.hint
	}
	if w != 0 && holds(k.n, w) {
		c.readObject(&k.look, w, &c.reads[1])
		reads = c.reads[:2]
	}
	c.req = lock.Request{Lock: k.bucket, Mode: mode, Reads: reads, Since: c.session.Since}
	if k.absorbs = k.absorbs && c.absorbing(k); k.absorbs {
		c.req.Same = k.key
	}
	if t := c.s.cfg.LockTimeoutNs; t != 0 {
		c.req.Deadline = c.port.Now() + t
	}
	return c.acquire(k)
}

// readObject makes op the READ of w's object.
func (c *Client) readObject(k *look, w slotWord, op *fabric.Op) {
	n := k.want(w)
	c.obj = c.grow(c.obj, k.at+n)
	op.SetRead(k.n.At(w.chunk().off64), c.obj[k.at:k.at+n])
	k.loaded = w
}

// find looks for the key in its bucket, which has been read under the lock.
func (c *Client) find(k *work) error {
	guess := k.loaded
	b := c.slots[:c.s.slotsLen()]
	for a := c.s.slotsAddr(k.bucket); ; k.depth++ {
		last := len(b)/slotSize - 1
		for i := range last {
			w := slotWord(wordAt(b, i))
			if w == 0 {
				if k.vacant == 0 {
					k.vacant = a.Add(uint64(i) * slotSize)
				}
				continue
			}
			if w.fp() != k.fp {
				continue
			}
			if c.s.geo.opens && w.open() {
				if k.set && k.depth == 0 && !k.insist && c.opens(k.n) {
					k.slot, k.word, k.openSlot = a.Add(uint64(i)*slotSize), w, true
					return nil
				}
				var err error
				if w, err = c.holdKey(k, a.Add(uint64(i)*slotSize), w); err != nil {
					return err
				}
				putWord(b, i, uint64(w))
			}
			if k.depth == 0 && k.deferral == i+1 && w != k.loaded { // memory does not have it, and another was READ into its place
				c.takeObject(k, w, c.inherited[handoffHead+c.s.slotsLen():c.req.HandoffLen])
			}
			if err := c.match(&k.look, w); err != nil {
				return fmt.Errorf("%w: slot at %v", err, a.Add(uint64(i)*slotSize))
			}
			if k.found {
				k.slot = a.Add(uint64(i) * slotSize)
				if w == guess {
					c.stats.CacheHits++
				} else {
					c.stats.CacheMisses++
				}
				if k.deferral == 0 {
					c.s.places.put(k.hash, w, c.s.saw(k.bucket, k.slot, k.h.unique))
				}
				return nil
			}
		}
		link := a.Add(uint64(last) * slotSize)
		if wordAt(b, last) == 0 {
			k.link = link
			c.s.places.forget(k.hash, guess)
			return nil
		}
		block, err := c.follow(k, linkWord(wordAt(b, last)), link)
		if err != nil {
			return err
		}
		a, b = k.n.At(block.off64), c.slots[:overflowSize]
	}
}

// follow reads the overflow block of a link into c.slots.
func (c *Client) follow(k *work, w linkWord, link fabric.Addr) (chunk, error) {
	block, ok := w.chunk()
	if !ok || !sane(k.n, block) || k.depth >= maxOverflow {
		return chunk{}, fmt.Errorf("%w: link at %v is %#x, depth %d", ErrCorrupt, link, uint64(w), k.depth)
	}
	c.ops[0] = fabric.Read(k.n.At(block.off64), c.slots[:overflowSize])
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return chunk{}, fmt.Errorf("objstore: overflow block of %v: %w", link, err)
	}
	return block, nil
}

// match sets k.found if w's object has the key; the object is read unless it
// came with the lock.
func (c *Client) match(k *look, w slotWord) error {
	if w != k.loaded {
		if !holds(k.n, w) {
			return fmt.Errorf("%w: %v", ErrCorrupt, w)
		}
		c.readObject(k, w, &c.ops[0])
		if err := lock.Do(c.l, c.ops[:1]); err != nil {
			return fmt.Errorf("objstore: object: %w", err)
		}
	}
	n := k.want(w)
	b := c.obj[k.at : k.at+n]
	if n < headerSize+1 {
		return fmt.Errorf("%w: %v", ErrCorrupt, w)
	}
	if err := k.h.decode(b, w); err != nil {
		return err
	}
	end := headerSize + uint64(k.h.keyLen)
	if int(k.h.keyLen) != len(k.key) || (k.h.kind == kindSegment) != k.segment || !bytes.Equal(b[headerSize:end], k.key) {
		return nil
	}
	if k.h.check != k.h.checkOf(k.hash) {
		return fmt.Errorf("%w: check of %v is %#x, want %#x", ErrCorrupt, w, k.h.check, k.h.checkOf(k.hash))
	}
	k.found, k.word = true, w
	return nil
}

// start begins an operation on a key, of which it makes a copy: the caller's may lie in what Get returned.
func (c *Client) start(k *work, key []byte) error {
	if len(key) == 0 || len(key) > MaxKey {
		return fmt.Errorf("%w: %d bytes", ErrKeySize, len(key))
	}
	key = c.key[:copy(c.key[:], key)]
	k.key = key
	if !c.s.h.UpToDate() {
		node, _ := c.s.spread(hashKey(key, c.s.geo.seed))
		if err := c.catchUp(k.need, node); err != nil {
			return err
		}
		k.unregistered = !c.s.h.Registered()
	}
	k.place = c.s.locate(key)
	c.small++
	k.n = c.s.h.Parts[k.node]
	return nil
}

// lookup locks the bucket and finds the key. If it fails, the lock is not held.
func (c *Client) lookup(k *work, mode lock.Mode) error {
	if err := c.lockKey(k, mode); err != nil {
		return fmt.Errorf("objstore: %w", err)
	}
	if err := c.find(k); err != nil {
		return c.unlock(err)
	}
	if k.deferral != 0 && !k.found {
		k.vacant = c.s.slotsAddr(k.bucket).Add(uint64(k.deferral-1) * slotSize) // and no other: memory has an object of the key there
	}
	return nil
}

// unlock releases the lock without doing anything, because of err or nil.
func (c *Client) unlock(err error) error {
	if rerr := c.l.Release(&c.hold, nil); rerr != nil {
		rerr = fmt.Errorf("objstore: %w", rerr)
		if err == nil {
			return rerr
		}
		return errors.Join(err, rerr)
	}
	return err
}

// value returns the value of the object that was found, as much of it as was read.
func (c *Client) value(k *look) []byte {
	begin := k.at + headerSize + uint64(k.h.keyLen)
	end := min(begin+uint64(k.h.valueLen), k.at+k.want(k.word))
	return c.obj[begin:end:end]
}

// publish is the commit of every change: the operations of before[:n], then a CAS of the
// slot or link at a from old to new, then the release of the lock, in one chain.
// Before the CAS the old state stands, after it the new one: no crash
// makes another. The CAS fails only if the lock was taken from this client.
//
// known is false if the outcome is not known: then no chunk may be reused.
func (c *Client) publish(k *work, n int, a fabric.Addr, old, new uint64) (known bool, err error) {
	mirrored := false
	if k.n.Region.Replicated() {
		if mirrored, err = c.mirrorChange(k, c.before[:n], slotChange{a, new}); err != nil {
			return !mirrored, err
		}
		k.begun = true
	}
	c.before[n] = fabric.CAS(a, old, new)
	cas := &c.before[n]
	if err := c.l.Release(&c.hold, c.before[:n+1]); err != nil {
		c.unsettle(k.n, k.bucket)
		if mirrored && c.succeeded(k, err, a, new, ^uint64(0)) {
			return true, nil
		}
		return false, fmt.Errorf("objstore: %w", err)
	}
	if !c.hold.Left && !cas.Swapped() {
		c.unsettle(k.n, k.bucket)
		// A backup may lead to what the primary does not.
		return !mirrored, fmt.Errorf("objstore: %w: word at %v is %#x, was %#x", lock.ErrLost, a, cas.Old, old)
	}
	return true, nil
}
