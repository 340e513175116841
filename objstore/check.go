package objstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A Report is what Check found. Problems is empty if the store is sound.
type Report struct {
	Nodes    []NodeReport `json:"nodes"`
	Problems []Problem    `json:"problems"`
	Omitted  int          `json:"omitted"`  // problems beyond MaxProblems
	Segments uint64       `json:"segments"` // of values that are in segments
	Unnamed  uint64       `json:"unnamed"`  // of Segments: those of no value; it is being stored, or a crash left them (Client.ReclaimStep deletes them)
	Missing  uint64       `json:"missing"`  // segments that values name and that are gone: such a value is gone as a whole, as its next reader finds
}

// MaxProblems bounds Report.Problems.
const MaxProblems = 100

// A Problem is something that must not be in a store.
type Problem struct {
	Addr fabric.Addr
	What string
}

func (p Problem) String() string { return fmt.Sprintf("%v: %s", p.Addr, p.What) }

// MarshalText implements encoding.TextMarshaler.
func (p Problem) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// A NodeReport counts what is on one memory node. All sizes are in bytes.
type NodeReport struct {
	Node        fabric.MemID `json:"node"`
	Buckets     uint64       `json:"buckets"`
	Objects     uint64       `json:"objects"`
	Expired     uint64       `json:"expired"` // of Objects
	KeyBytes    uint64       `json:"key_bytes"`
	ValueBytes  uint64       `json:"value_bytes"`
	ChunkBytes  uint64       `json:"chunk_bytes"`  // chunks of objects
	Overflows   uint64       `json:"overflows"`    // overflow blocks
	LongestLoad int          `json:"longest_load"` // most objects in one bucket
	Extents     uint64       `json:"extents"`      // runs of pages
	ExtentBytes uint64       `json:"extent_bytes"` // of runs
	Rest        uint64       `json:"rest"`         // bytes of runs that are no chunks
	FreeCentral uint64       `json:"free_central"` // bytes that are free on the memory node
	FreeLocal   uint64       `json:"free_local"`   // bytes in this compute node's free lists
	// Elsewhere is in no object and in no list that can be seen: in the lists of
	// other compute nodes, or leaked.
	Elsewhere uint64 `json:"elsewhere"`
	// Reclaimed was leaked, and has been made free by this compute node since it opened the store.
	Reclaimed uint64 `json:"reclaimed"`
}

// Sound reports whether there are no problems.
func (r *Report) Sound() bool { return len(r.Problems) == 0 }

func (r *Report) String() string {
	var b strings.Builder
	for i := range r.Nodes {
		n := &r.Nodes[i]
		fmt.Fprintf(&b, "%v: %d objects (%d expired) in %d buckets, at most %d in one, %d overflow blocks\n",
			n.Node, n.Objects, n.Expired, n.Buckets, n.LongestLoad, n.Overflows)
		fmt.Fprintf(&b, "  keys %d B, values %d B, chunks %d B\n", n.KeyBytes, n.ValueBytes, n.ChunkBytes)
		fmt.Fprintf(&b, "  %d runs of %d B: free %d B, %d B here, %d B elsewhere (%d B reclaimed), %d B too small for a chunk\n",
			n.Extents, n.ExtentBytes, n.FreeCentral, n.FreeLocal, n.Elsewhere, n.Reclaimed, n.Rest)
	}
	if r.Segments > 0 {
		fmt.Fprintf(&b, "%d segments, %d of them in no value\n", r.Segments, r.Unnamed)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "PROBLEM %v\n", p)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "and %d problems more\n", r.Omitted)
	}
	if r.Sound() {
		b.WriteString("sound\n")
	}
	return b.String()
}

// CheckOptions says what Check does.
type CheckOptions struct {
	// Reclaim, if it is set, tells which compute nodes live; then a store that is sound gets back what no compute node has any more
	// (Client.Reclaim), and is checked again.
	Reclaim func() fabric.View
	// Backups compares the backups of replicated memory with the primary, too. What differs is a problem: but after the crash of a compute node, or an operation of
	// unknown outcome, a backup may have more of an operation than the primary.
	Backups bool
}

// A checker is a Check at work on one node.
type checker struct {
	c      *Client
	r      *Report
	n      *handle.Part
	nr     *NodeReport
	chunks reclaim.Map
	keys   map[string]fabric.Addr
	buf    []byte
	large  *segmentCheck // of all nodes
}

// A segmentCheck compares the segments that there are with those that lists name.
type segmentCheck struct{ there, named map[segmentRef]bool }

// Check reads the whole store and returns what is in it and what is wrong with
// it. No client may use the store meanwhile: it takes no locks, and sees changes that are half done as problems. See OpenOn.
func (c *Client) Check(o CheckOptions) (*Report, error) {
	if err := c.session.Begin(); err != nil {
		return nil, err
	}
	defer c.session.End()
	if err := c.catchUp(whole, 0); err != nil {
		return nil, err
	}
	r, err := c.check()
	if err == nil && o.Backups {
		err = c.checkBackups(r)
	}
	if err != nil || o.Reclaim == nil || !r.Sound() {
		return r, err
	}
	if err := c.session.ReclaimNow(o.Reclaim); err != nil {
		return r, err
	}
	return c.check()
}

func (c *Client) check() (*Report, error) {
	r := &Report{Nodes: make([]NodeReport, len(c.s.h.Parts)), Problems: []Problem{}}
	buf := c.port.Alloc(fabric.MaxChain * maxObjectSize)
	defer c.port.Free(buf)
	large := &segmentCheck{map[segmentRef]bool{}, map[segmentRef]bool{}}
	for i := range c.s.h.Parts {
		k := &checker{c: c, r: r, n: c.s.h.Parts[i], nr: &r.Nodes[i], keys: map[string]fabric.Addr{}, buf: buf, large: large}
		if err := k.run(); err != nil {
			return r, fmt.Errorf("objstore: check %v: %w", k.n.MN, err)
		}
	}
	for x := range large.named {
		if !large.there[x] {
			r.Missing++
		}
	}
	for x := range large.there {
		if r.Segments++; !large.named[x] {
			r.Unnamed++
		}
	}
	return r, nil
}

func (k *checker) run() error {
	k.nr.Node, k.nr.Buckets, k.nr.Reclaimed = k.n.MN, k.c.s.geo.buckets, k.n.Heap.Reclaimed.Bytes.Load()
	if err := k.n.Heap.AddRuns(&k.c.work, &k.chunks); errors.Is(err, slab.ErrCorrupt) {
		k.problem(k.n.Base, "%v", err)
	} else if err != nil {
		return err
	}
	for b := range k.c.s.geo.buckets {
		if err := k.walkBucket(k.c.s.bucket(k.n.Index, b)); err != nil {
			return err
		}
	}
	counter := func(bytes *uint64, what string) func(cl uint8, off uint64) {
		return func(cl uint8, off uint64) {
			if k.use(chunk{off, class(cl)}, k.n.At(off), what) {
				*bytes += class(cl).size()
			}
		}
	}
	if err := k.n.Heap.EachFree(&k.c.work, &k.chunks, counter(&k.nr.FreeCentral, "free chunk")); err != nil {
		return err
	}
	k.n.Heap.EachLocal(counter(&k.nr.FreeLocal, "locally free chunk"))
	t := k.chunks.Tally(k.n.Index)
	k.nr.Extents, k.nr.ExtentBytes, k.nr.Rest, k.nr.Elsewhere = t.Runs, t.Bytes, t.Rest, t.UnmarkedIn
	return nil
}

func (k *checker) problem(a fabric.Addr, format string, args ...any) {
	if len(k.r.Problems) == MaxProblems {
		k.r.Omitted++
		return
	}
	k.r.Problems = append(k.r.Problems, Problem{Addr: a, What: fmt.Sprintf(format, args...)})
}

// use notes that a chunk is used for something, and reports whether it is a chunk, and is not used for anything else.
func (k *checker) use(ch chunk, owner fabric.Addr, what string) bool {
	if err := k.chunks.Take(k.n.Index, ch.off64, uint8(ch.class)); err != nil {
		k.problem(owner, "%s at %#x, class %d (%d B): %v", what, ch.offset(), ch.class, ch.class.size(), err)
		return false
	}
	return true
}

// walkBucket checks a bucket and its overflow blocks.
func (k *checker) walkBucket(bucket fabric.Addr) error {
	a, n := k.c.s.slotsAddr(bucket), k.c.s.slotsLen()
	load := 0
	for depth := 0; ; depth++ {
		b := k.c.slots[:n]
		ops := [1]fabric.Op{fabric.Read(a, b)}
		if err := lock.Do(k.c.l, ops[:]); err != nil {
			return err
		}
		last := n/slotSize - 1
		for i := 0; i < last; i += fabric.MaxChain {
			m, err := k.checkObjects(bucket, a.Add(uint64(i)*slotSize), b[i*slotSize:min(i+fabric.MaxChain, last)*slotSize])
			if err != nil {
				return err
			}
			load += m
		}
		k.nr.LongestLoad = max(k.nr.LongestLoad, load)
		link := a.Add(uint64(last) * slotSize)
		w := linkWord(wordAt(b, last))
		if w == 0 {
			return nil
		}
		block, ok := w.chunk()
		if !ok || depth == maxOverflow {
			k.problem(link, "link %#x, depth %d", uint64(w), depth)
			return nil
		}
		if !k.use(block, link, "overflow block") {
			return nil
		}
		k.nr.Overflows++
		a, n = k.n.At(block.off64), overflowSize
	}
}

// checkObjects reads the objects of at most MaxChain slots and checks them.
func (k *checker) checkObjects(bucket, first fabric.Addr, slots []byte) (objects int, err error) {
	var ops [fabric.MaxChain]fabric.Op
	var words [fabric.MaxChain]slotWord
	var owner [fabric.MaxChain]fabric.Addr
	m := 0
	for i := range len(slots) / slotSize {
		w := slotWord(wordAt(slots, i))
		if w == 0 {
			continue
		}
		a := first.Add(uint64(i) * slotSize)
		objects++
		if !k.use(w.chunk(), a, "object") {
			continue
		}
		n := min(w.readLen(), maxObjectSize)
		if n <= headerSize {
			k.problem(a, "%v: too small for an object", w)
			continue
		}
		ops[m] = fabric.Read(k.n.At(w.chunk().off64), k.buf[m*maxObjectSize:][:n])
		words[m], owner[m] = w, a
		m++
	}
	if err := lock.Do(k.c.l, ops[:m]); err != nil {
		return objects, err
	}
	for i := range m {
		k.checkObject(bucket, owner[i], words[i], ops[i].Buf)
	}
	return objects, nil
}

// checkLarge notes a segment, or those that a list names.
func (k *checker) checkLarge(slot fabric.Addr, w slotWord, what kind, key []byte) {
	if what == kindSegment {
		if len(key) != segmentKeySize {
			k.problem(slot, "segment with a key of %d bytes", len(key))
			return
		}
		k.large.there[refOf(key)] = true
		return
	}
	h, b, err := k.c.readHead(k.n, w, w.readLen())
	if err == nil {
		var l *Large
		from := headerSize + uint64(h.keyLen)
		if l, err = decodeList(key, b[from:from+uint64(h.valueLen)], h.unique); err == nil {
			for i := range l.ids {
				k.large.named[l.ref(i)] = true
			}
		}
	}
	if err != nil {
		k.problem(slot, "%v", err)
	}
}

func (k *checker) checkObject(bucket, slot fabric.Addr, w slotWord, b []byte) {
	var h header
	if err := h.decode(b, w); err != nil {
		k.problem(slot, "%v", err)
		return
	}
	key := b[headerSize : headerSize+int(h.keyLen)]
	p := k.c.s.locate(key)
	if h.kind != kindPlain {
		k.checkLarge(slot, w, h.kind, key)
	}
	if h.kind == kindSegment {
		key = append([]byte{0}, key...) // it may look like a user's
	}
	switch {
	case h.check != h.checkOf(p.hash):
		k.problem(slot, "object of key %q: check %#x, want %#x", key, h.check, h.checkOf(p.hash))
	case p.bucket != bucket || p.fp != w.fp():
		k.problem(slot, "key %q belongs to bucket %v with fingerprint %#x, not %v", key, p.bucket, uint16(p.fp), w)
	case k.keys[string(key)] != 0:
		k.problem(slot, "key %q is at %v too", key, k.keys[string(key)])
	}
	k.keys[string(key)] = slot
	k.nr.Objects++
	k.nr.KeyBytes += uint64(h.keyLen)
	k.nr.ValueBytes += uint64(h.valueLen)
	k.nr.ChunkBytes += w.class().size()
	if h.expired(k.c.Clock()) {
		k.nr.Expired++
	}
}
