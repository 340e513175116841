package btree

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// Errors of opening, for errors.Is.
var (
	// ErrConfig: a Config that makes no sense.
	ErrConfig = errors.New("btree: bad configuration")
	// ErrGeometry: the tree that is there was made for other locks, nodes or sizes.
	ErrGeometry = errors.New("btree: tree was made with another configuration")
)

// Errors of operations, for errors.Is. Errors of locks and of the fabric come wrapped.
var (
	// ErrNotFound: the tree does not have the key.
	ErrNotFound = errors.New("btree: key not found")
	// ErrExists: Insert found the key.
	ErrExists = errors.New("btree: key exists")
	// ErrChanged: CompareAndPut found another value.
	ErrChanged = errors.New("btree: value is not the expected one")
	// ErrKeySize: the key is longer than the tree was made for (Config.MaxKey).
	ErrKeySize = errors.New("btree: key too long")
	// ErrValueSize: the value is larger than MaxValueSize.
	ErrValueSize = errors.New("btree: value too large")
	// ErrNoSpace: the memory nodes have no room for what is to be written. The tree is as it was.
	ErrNoSpace = errors.New("btree: out of memory")
	// ErrNotEmpty: a bulk load into a tree that has keys.
	ErrNotEmpty = errors.New("btree: tree is not empty")
	// ErrOrder: the input of a bulk load is not in strictly ascending order.
	ErrOrder = errors.New("btree: keys are not in ascending order")
	// ErrLevel: Inspect of a level that the tree is not high enough to have.
	ErrLevel = errors.New("btree: tree has no such level")
	// ErrClosed: the client, its session or its compute node has been closed.
	ErrClosed = fabric.ErrClosed
	// ErrDropped: the tree has been dropped.
	ErrDropped = errors.New("btree: tree has been dropped")
	// ErrCorrupt: remote memory does not hold what the tree's layout says.
	ErrCorrupt = errors.New("btree: corrupt remote memory")
)

// Config says which tree to open, and how to make it if there is none. Sizes that are 0 are
// as in the tree that is there.
type Config struct {
	Name string
	// Nodes are the memory nodes of the tree. All compute nodes must name the
	// same, in the same order.
	Nodes []fabric.MemID
	// Lock is the layout of the locks of the Lockers that clients will use.
	Lock lock.Layout

	// MaxKey is the largest key in bytes, up to MaxKeySize; 0 is 128.
	MaxKey int
	// NodeSize is the size of a node in bytes, without its lock: a multiple of 8. 0 is 1024, or more if
	// a node would have no room for MinRecords records of the largest key.
	NodeSize int
	// MaxInline is the largest value in bytes that lies in its leaf; 0 is a sixteenth of a node.
	MaxInline int
	// MemoryLimit bounds the bytes of nodes and large values on each memory node, as taken of it: in runs of pages; 0 is all of its region but the reserve
	// that all stores and trees keep free for what is made later. Each memory node has room
	// for the first leaf or a header besides. A tree that is there keeps its own (Tree.MemoryLimit).
	MemoryLimit uint64

	// Existing opens only what is there: memory.ErrNotFound if it is not. What is being made is memory.ErrHalfCreated.
	Existing bool

	// What follows is this compute node's own choice.

	// CacheBytes bounds the index cache; 0 is 64 MiB, negative is none.
	CacheBytes int
	// LockTimeoutNs bounds the wait for a lock; 0 is for ever.
	LockTimeoutNs fabric.Time

	// DeadNow and Creating: see memory.Spec.
	DeadNow  func() fabric.CNSet
	Creating *memory.Creating
}

const (
	defaultMaxKey     = 128
	defaultNodeSize   = 1024
	defaultCacheBytes = 64 << 20
	maxNodeSize       = 32 << 10
	maxLockSize       = 8 + 8*256

	// MinRecords is how many of the largest records a node has room for.
	MinRecords = 3
)

// minNodeSize returns the bytes of a node that has room for MinRecords records of the largest
// key, with a value of so many bytes.
func minNodeSize(maxKey, value int) int {
	return (headerSize + 2*maxKey + MinRecords*recordSize(maxKey, max(value, childSize)) + 7) &^ 7
}

func (cfg *Config) fill() error {
	if cfg.MaxKey == 0 {
		cfg.MaxKey = defaultMaxKey
	}
	if cfg.NodeSize == 0 {
		for cfg.NodeSize = defaultNodeSize; cfg.NodeSize < minNodeSize(cfg.MaxKey, max(cfg.MaxInline, cfg.NodeSize/16)); {
			cfg.NodeSize *= 2
		}
	}
	if cfg.MaxInline == 0 {
		cfg.MaxInline = max(outOfLineSize, cfg.NodeSize/16)
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = defaultCacheBytes
	}
	switch {
	case len(cfg.Nodes) == 0 || len(cfg.Nodes) > maxNodes:
		return fmt.Errorf("%w: %d memory nodes", ErrConfig, len(cfg.Nodes))
	case cfg.Lock.Size == 0 || cfg.Lock.Size > maxLockSize || cfg.Lock.Align > slotUnit:
		return fmt.Errorf("%w: lock of %d bytes aligned to %d", ErrConfig, cfg.Lock.Size, cfg.Lock.Align)
	case cfg.MaxKey < 1 || cfg.MaxKey > MaxKeySize:
		return fmt.Errorf("%w: keys of %d bytes: want 1 to %d", ErrConfig, cfg.MaxKey, MaxKeySize)
	case cfg.MaxInline < 1 || cfg.MaxInline > cfg.NodeSize:
		return fmt.Errorf("%w: values of %d bytes in a node of %d", ErrConfig, cfg.MaxInline, cfg.NodeSize)
	case cfg.NodeSize%8 != 0 || cfg.NodeSize > maxNodeSize:
		return fmt.Errorf("%w: nodes of %d bytes: want a multiple of 8, at most %d", ErrConfig, cfg.NodeSize, maxNodeSize)
	}
	// A record of a leaf is that of an out-of-line value at least, if values may be larger than inline ones.
	if least := minNodeSize(cfg.MaxKey, max(cfg.MaxInline, outOfLineSize)); cfg.NodeSize < least {
		return fmt.Errorf("%w: nodes of %d bytes: keys of %d and values of %d bytes need %d",
			ErrConfig, cfg.NodeSize, cfg.MaxKey, cfg.MaxInline, least)
	}
	return nil
}

// geometry is what all clients of a tree must agree on: in its root entries.
// Info word 0 of a root entry:
//
//	 63  56 55   48 47   40 39          24 23      12 11      0
//	+------+-------+-------+--------------+----------+---------+
//	| form | nodes | which |  node bytes  | max. key | lock B  |
//	+------+-------+-------+--------------+----------+---------+
//
// Words 1 to 4: MaxInline, the tree's ID, how many memories its memory nodes had lost when it was made: if that is less than they have
// now, it is the rest of a tree that is gone; the memory limit.
type geometry struct {
	lockSize    uint64
	maxKey      int
	nodeSize    int
	nodes       int
	maxInline   int
	id          uint64
	generations uint64
	limit       uint64
}

func (g *geometry) stride() uint64 {
	return (g.lockSize + uint64(g.nodeSize) + slotUnit - 1) &^ (slotUnit - 1)
}

func (g *geometry) headerSize(node int) uint64 {
	if node > 0 {
		return firstLeafOffset
	}
	return firstLeafOffset + g.stride()
}

func (g *geometry) info(node int) memory.Info {
	return memory.Info{
		Trees.Head(g.nodes, node, uint64(g.nodeSize)<<24|uint64(g.maxKey)<<12|g.lockSize),
		uint64(g.maxInline), g.id, g.generations, g.limit,
	}
}

// limitWord is the word of a root entry that has the memory limit.
const limitWord = 4

// decodeGeometry validates the root entry of the node-th node.
func decodeGeometry(e *memory.Entry, node int) (geometry, error) {
	w := e.Info[0]
	_, of := e.Part()
	g := geometry{
		lockSize: w & 0xfff, maxKey: int(w >> 12 & 0xfff), nodeSize: int(w >> 24 & 0xffff), nodes: of,
		maxInline: int(e.Info[1]), id: e.Info[2], generations: e.Info[3], limit: e.Info[limitWord],
	}
	if err := Trees.CheckPart(e, node); err != nil {
		return g, err
	}
	if g.nodeSize > maxNodeSize || g.nodeSize%8 != 0 || g.lockSize%8 != 0 || g.maxKey < 1 || g.maxKey > MaxKeySize ||
		g.maxInline < 1 || g.maxInline > g.nodeSize || g.nodeSize < minNodeSize(g.maxKey, g.maxInline) ||
		e.Length != g.headerSize(node) || e.Addr%slotUnit != 0 {
		return g, fmt.Errorf("%w: geometry %+v with %d bytes at %v", ErrCorrupt, g, e.Length, e.Addr)
	}
	return g, nil
}

// Trees is what all trees have in common: how one is found by its name, and dropped.
var Trees = &handle.Kind{
	Package: "btree", Noun: "tree", Entry: memory.KindTree, Format: formatVersion, Classes: numClasses, Limit: limitWord,
	ErrGeometry: ErrGeometry, ErrCorrupt: ErrCorrupt, ErrDropped: ErrDropped,
}

// A Tree is a tree as a compute node has it open. All its clients share it,
// and any goroutine may use it.
type Tree struct {
	*handle.Collection
	h      handle.Handle
	newest *atomic.Pointer[Tree] // of the Collection, that this compute node has opened

	cfg    Config
	geo    geometry
	stride uint64
	first  ptr // the leftmost leaf

	root atomic.Uint64 // ptr of a node that was the root lately
	leaf atomic.Uint64 // the same ptr, if that root is a leaf
	turn atomic.Uint64 // where the next node goes

	unsettled unsettled
	cache     cache
}

// Open opens the tree, and makes it if there is none. While a memory node of a tree that is there is down, operations that meet a node of the tree, or a large value, on it
// are ErrNodeDown; while the first memory node is down, which knows the root, all are. Nothing is made while one is down.
func Open(port fabric.Port, cfg Config) (*Tree, error) {
	before := &Tree{Collection: Trees.Of(cfg.Name, cfg.Nodes, cfg.Creating), newest: new(atomic.Pointer[Tree])}
	before.h.Seen = handle.Unseen
	t, err := before.open(port, nil, cfg, cfg)
	if err != nil && (t == nil || !t.h.Waits()) {
		return nil, err
	}
	t.newest.Store(t)
	return t, nil
}

// open returns the tree that follows t. It opens it, if it is as given, and makes it, if there is none, as cfg says. If t waits, it need not be whole; a tree that still waits
// comes with the error that says why. retry: see memory.Spec.
func (t *Tree) open(port, retry fabric.Port, given, cfg Config) (*Tree, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	partly, was := t.h.Waits(), t.geo
	t = t.next(cfg)
	t.geo = geometry{
		lockSize: (cfg.Lock.Size + 7) &^ 7, maxKey: cfg.MaxKey, nodeSize: cfg.NodeSize,
		nodes: len(cfg.Nodes), maxInline: cfg.MaxInline, id: port.Rand(), limit: cfg.MemoryLimit,
	}
	found, err := t.h.Survey(port)
	if err == nil && partly && was.nodes > 0 {
		err = was.thereStill(found)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		switch {
		case f.Down == nil:
			t.geo.generations += uint64(f.Region.Generation())
		case partly:
			return t.openWithout(port, &given, found, f.Down)
		default:
			return nil, f.Down
		}
	}
	for i, f := range found {
		if err := t.mine(f.Entry, i); err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", cfg.Name, cfg.Nodes[i], err) // before anything is made, or removed
		}
	}
	for i, f := range found {
		e, err := t.openNode(port, retry, i, f.Region)
		if err == nil {
			err = t.adopt(port, i, f.Region, e)
		}
		if err != nil {
			return nil, fmt.Errorf("btree: open %q on %v: %w", cfg.Name, cfg.Nodes[i], err)
		}
		if err := t.compare(&given); err != nil {
			return nil, err // before anything is made on another node
		}
	}
	return t, t.register(port)
}

// next returns a tree that follows t, and of which all parts are missing.
func (t *Tree) next(cfg Config) *Tree {
	x := &Tree{Collection: t.Collection, newest: t.newest, cfg: cfg}
	x.h.Init(t.Collection)
	x.cache.init(cfg.CacheBytes)
	return x
}

// register registers the compute node with a tree of which the parts have been opened.
func (t *Tree) register(port fabric.Port) error {
	if _, err := t.loadRoot(port.Do); err != nil {
		if gone := t.h.Published(port); errors.Is(gone, memory.ErrRemoved) { // it has been dropped, and the memory may be something else
			err = fmt.Errorf("btree: open %q: %w", t.cfg.Name, gone)
		}
		return err
	}
	return t.h.Register(port, nil)
}

// compare compares the geometry of the tree that is there with the wanted one.
func (t *Tree) compare(given *Config) error {
	want := geometry{
		lockSize: (given.Lock.Size + 7) &^ 7, maxKey: cmp.Or(given.MaxKey, t.geo.maxKey), nodeSize: cmp.Or(given.NodeSize, t.geo.nodeSize),
		nodes: len(given.Nodes), maxInline: cmp.Or(given.MaxInline, t.geo.maxInline), id: t.geo.id, generations: t.geo.generations, limit: t.geo.limit,
	}
	if err := Trees.CheckNodes(given.Name, t.geo.nodes, want.nodes); err != nil {
		return err
	}
	if t.geo != want {
		return fmt.Errorf("%w: %q has %d B locks, %d B nodes, keys to %d B, values to %d B inline; want %d, %d, %d, %d",
			ErrGeometry, given.Name, t.geo.lockSize, t.geo.nodeSize, t.geo.maxKey, t.geo.maxInline,
			want.lockSize, want.nodeSize, want.maxKey, want.maxInline)
	}
	return nil
}

// openNode returns the root entry of the tree's part on a node, which it makes if there is none. The first node's root entry
// decides the geometry; the others follow it.
func (t *Tree) openNode(port, retry fabric.Port, i int, r *memory.Region) (memory.Entry, error) {
	if err := r.RemoveIf(port, t.cfg.Name, memory.KindTree, t.outlived); err != nil && !handle.Absent(err) {
		return memory.Entry{}, err
	}
	if t.cfg.Existing {
		return r.Lookup(port, t.cfg.Name, memory.KindTree)
	}
	spec := memory.Spec{
		Name: t.cfg.Name, Kind: memory.KindTree, Size: t.geo.headerSize(i), Align: 4096,
		Info: t.geo.info(i), DeadNow: t.cfg.DeadNow,
		Creating: t.cfg.Creating, Retry: retry,
	}
	if i == 0 {
		spec.Init = func(e *memory.Entry) error { return t.plant(port, r, e.Addr) }
	}
	e, _, err := r.Create(port, spec)
	if err == nil {
		err = r.Settle(port, &e) // a backup may have been added meanwhile, of which the creator did not know
	}
	return e, err
}

// adopt makes an entry of the root directory that of the tree's part on a node: the part is there from then on.
func (t *Tree) adopt(port fabric.Port, i int, r *memory.Region, e memory.Entry) error {
	g, err := decodeGeometry(&e, i)
	if err != nil {
		return err
	}
	if i == 0 {
		t.geo, t.stride = g, g.stride()
		t.first = makePtr(0, e.Addr.Add(firstLeafOffset).Offset()/slotUnit, 1)
	}
	if g != t.geo {
		return fmt.Errorf("%w: %+v, and %+v on %v", ErrGeometry, g, t.geo, t.cfg.Nodes[0])
	}
	return t.h.Adopt(port, i, r, e, handle.End(r, ptrOffsetBits), t.division(i))
}

// plant makes the empty tree: a leaf without fences, which is the root.
func (t *Tree) plant(port fabric.Port, r *memory.Region, base fabric.Addr) error {
	b := port.Alloc(headerSize)
	defer port.Free(b)
	leaf := base.Add(firstLeafOffset)
	m := image{self: makePtr(0, leaf.Offset()/slotUnit, 1), version: 1}
	finish(b, stateAlive, m.build(b))
	ops := [2]fabric.Op{
		fabric.Write(leaf.Add(t.geo.lockSize), b),
		fabric.Store(base.Add(rootOffset), uint64(m.self)),
	}
	backups, err := r.Backups(port)
	if err == nil {
		err = backups.Write(ops[:], 0)
	}
	if err == nil {
		err = port.Do(ops[:])
	}
	if err == nil {
		err = reclaim.Init(port, base)
	}
	if first, words := reclaim.Records(base); err == nil && r.Replicated() {
		err = r.Level(port, first, words)
	}
	return err
}

// loadRoot reads the root's ptr. do executes a chain. Others of the compute node may note another ptr at once: who goes on from the root goes by what is returned.
func (t *Tree) loadRoot(do func([]fabric.Op) error) (ptr, error) {
	a := t.h.Parts[0].Base.Add(rootOffset)
	ops := [1]fabric.Op{fabric.Load(a)}
	if err := do(ops[:]); err != nil {
		return 0, fmt.Errorf("btree: root at %v: %w", a, err)
	}
	p := ptr(ops[0].Old)
	if p == 0 || !t.onMissing(p) && !t.sane(p, t.stride) {
		return 0, fmt.Errorf("%w: root at %v is %v", ErrCorrupt, a, p)
	}
	t.root.Store(uint64(p))
	return p, nil
}

// Name returns the tree's name.
func (t *Tree) Name() string { return t.cfg.Name }

// MaxKey returns the largest key in bytes.
func (t *Tree) MaxKey() int { return t.geo.maxKey }

// MemoryLimit returns what bounds the bytes of nodes and large values on each memory node; 0: nothing but its region.
func (t *Tree) MemoryLimit() uint64 { return t.geo.limit }

// CacheStats returns the counters of the index cache.
func (t *Tree) CacheStats() CacheStats { return t.cache.stats() }
