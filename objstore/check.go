package objstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A Report is what Check found. Problems is empty if the store is sound.
type Report struct {
	Nodes    []NodeReport
	Problems []Problem
	// Omitted counts problems beyond MaxProblems.
	Omitted int
}

// MaxProblems bounds Report.Problems.
const MaxProblems = 100

// A Problem is something that must not be in a store.
type Problem struct {
	Addr fabric.Addr
	What string
}

func (p Problem) String() string { return fmt.Sprintf("%v: %s", p.Addr, p.What) }

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
	// other compute nodes, or nobody's.
	Elsewhere uint64 `json:"elsewhere"`
	// Reclaimed was nobody's, and has been made free by this compute node since it opened the store.
	Reclaimed uint64 `json:"reclaimed"`
}

// Sound tells whether there are no problems.
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
	// Reclaim, if it is set, tells which compute nodes live; then a store that is sound gets back what nobody has any more
	// (Client.Reclaim), and is checked again.
	Reclaim func() fabric.View
}

// A use is a piece of memory, in bytes, and what it is used for.
type use struct {
	begin, end uint64
	what       string
}

// A run is chunks of one class.
type run struct {
	use
	memory.Run
}

// A checker is a Check at work on one node.
type checker struct {
	c       *Client
	r       *Report
	n       *handle.Part
	i       int
	nr      *NodeReport
	extents []run
	uses    []use
	keys    map[string]fabric.Addr
	buf     []byte
}

// Check reads the whole store and tells what is in it and what is wrong with
// it. Nobody may use the store meanwhile: it takes no locks, and sees changes that are half done as problems. See OpenOn.
func (c *Client) Check(o CheckOptions) (*Report, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if err := c.catchUp(whole, 0); err != nil {
		return nil, err
	}
	r, err := c.check()
	if err != nil || o.Reclaim == nil || !r.Sound() {
		return r, err
	}
	if err := c.reclaim(o.Reclaim); err != nil {
		return r, err
	}
	return c.check()
}

func (c *Client) check() (*Report, error) {
	r := &Report{Nodes: make([]NodeReport, len(c.s.h.Parts))}
	buf := c.port.Alloc(fabric.MaxChain * maxObjectSize)
	defer c.port.Free(buf)
	for i := range c.s.h.Parts {
		k := &checker{c: c, r: r, n: c.s.h.Parts[i], i: i, nr: &r.Nodes[i], keys: map[string]fabric.Addr{}, buf: buf}
		if err := k.run(); err != nil {
			return r, fmt.Errorf("objstore: check %v: %w", k.n.MN, err)
		}
	}
	return r, nil
}

func (k *checker) run() error {
	k.nr.Node, k.nr.Buckets, k.nr.Reclaimed = k.n.MN, k.c.s.geo.buckets, k.n.Reclaimed.Load()
	if err := k.walkExtents(); err != nil {
		return err
	}
	for b := range k.c.s.geo.buckets {
		if err := k.walkBucket(k.c.s.bucket(k.i, b)); err != nil {
			return err
		}
	}
	if err := k.walkFree(); err != nil {
		return err
	}
	for cl := range class(numClasses) {
		k.walkLocal(cl)
	}
	k.account()
	return nil
}

func (k *checker) problem(a fabric.Addr, format string, args ...any) {
	if len(k.r.Problems) == MaxProblems {
		k.r.Omitted++
		return
	}
	k.r.Problems = append(k.r.Problems, Problem{Addr: a, What: fmt.Sprintf(format, args...)})
}

// walkExtents lists the runs.
func (k *checker) walkExtents() error {
	p, err := k.n.Region.Pages(k.c.work.Path())
	if err != nil {
		return err
	}
	p.Runs(&k.n.Entry, func(x memory.Run) {
		k.nr.Extents++
		k.nr.ExtentBytes += x.Size
		switch {
		case x.Tag > numClasses:
			k.problem(k.n.Region.At(x.Off), "run has tag %d", x.Tag)
		case x.Tag == 0:
			k.nr.Elsewhere += x.Size // somebody is taking it
		default:
			size := class(x.Tag - 1).size()
			k.extents = append(k.extents, run{use{x.Off, x.Off + x.Size/size*size, "run"}, x})
			k.nr.Rest += x.Size % size
		}
	})
	return nil
}

func byBegin(a, b use) int {
	switch {
	case a.begin < b.begin:
		return -1
	case a.begin > b.begin:
		return 1
	}
	return 0
}

// use notes that a chunk is used for something, if it can be.
func (k *checker) use(ch chunk, owner fabric.Addr, what string) bool {
	u := use{begin: ch.offset(), end: ch.offset() + ch.class.size(), what: what}
	i, found := slices.BinarySearchFunc(k.extents, u, func(r run, u use) int { return byBegin(r.use, u) })
	if !found {
		i--
	}
	if i < 0 || u.end > k.extents[i].end || class(k.extents[i].Tag-1) != ch.class || (u.begin-k.extents[i].begin)%ch.class.size() != 0 {
		k.problem(owner, "%s at %#x is no chunk of class %d (%d B) of the store", what, u.begin, ch.class, ch.class.size())
		return false
	}
	k.uses = append(k.uses, u)
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

func (k *checker) checkObject(bucket, slot fabric.Addr, w slotWord, b []byte) {
	var h header
	if err := h.decode(b, w); err != nil {
		k.problem(slot, "%v", err)
		return
	}
	key := b[headerSize : headerSize+int(h.keyLen)]
	p := k.c.s.locate(key)
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
	if h.expired(k.c.now()) {
		k.nr.Expired++
	}
}

// walkFree looks at what is free on the memory node.
func (k *checker) walkFree() error {
	for _, e := range k.extents {
		cl := class(e.Tag - 1)
		err := k.n.Heap.Free(&k.c.work, &e.Run, func(off uint64) {
			if a, _ := k.n.Region.FreeBits(off); k.use(chunk{off, cl}, a, "free chunk") {
				k.nr.FreeCentral += cl.size()
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walkLocal checks the free list of a class on this compute node.
func (k *checker) walkLocal(cl class) {
	k.n.Heap.Each(uint8(cl), func(from, to uint64) {
		for ; from < to; from += cl.size() / chunkUnit {
			if k.use(chunk{from, cl}, k.n.At(from), "locally free chunk") {
				k.nr.FreeLocal += cl.size()
			}
		}
	})
}

// account looks for memory that is used twice, and for memory that is not used at all.
func (k *checker) account() {
	slices.SortFunc(k.uses, byBegin)
	for i := 1; i < len(k.uses); i++ {
		if a, b := &k.uses[i-1], &k.uses[i]; b.begin < a.end {
			k.problem(k.n.Region.At(b.begin), "%s overlaps %s at %#x", b.what, a.what, a.begin)
		}
	}
	i := 0
	for _, e := range k.extents {
		at := e.begin
		for ; i < len(k.uses) && k.uses[i].begin < e.end; i++ {
			k.nr.Elsewhere += max(k.uses[i].begin, at) - at
			at = max(at, k.uses[i].end)
		}
		k.nr.Elsewhere += max(e.end, at) - at
	}
}
