package objstore

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
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
	ErrConfig = errors.New("objstore: bad configuration")
	// ErrGeometry: the store that is there was made for other locks, nodes or values.
	ErrGeometry = errors.New("objstore: store was made with another configuration")
)

// Config says which store to open, and how to make it if there is none. Sizes that are 0 are as in the store that is there.
type Config struct {
	Name string
	// Nodes are the memory nodes of the store. All compute nodes must name the
	// same, in the same order. Stores.Find returns those of a store that is there.
	Nodes []fabric.MemID
	// Lock is the layout of the locks of the Lockers that clients will use.
	Lock lock.Layout

	// Objects is how many objects the index is made for, segments among them, on all nodes together;
	// more find room in overflow blocks, at one more round trip. 0 is 65536. It counts when the store is made: one that
	// is there keeps its index, of whatever size (Store.Objects).
	Objects uint64
	// MaxValue is the largest value in bytes, up to MaxValueBytes; 0 is that of the store that is there, or, to make it, 1 MiB. Another one than that of the store is ErrGeometry.
	MaxValue uint32
	// Segment is how long segments are, at most, of larger values (segments.go): 64 bytes to 4 MiB. 0 is 2.2 MiB if MaxValue needs it, else no value has segments; in a store that
	// is there, what that has.
	Segment uint32
	// MemoryLimit bounds the bytes of objects and overflow blocks on each memory node, as taken of it: in runs of pages, besides the index; 0 is all of its region but
	// the reserve that all stores and trees keep free for what is made later. A store that is there keeps its own (Store.MemoryLimit).
	MemoryLimit uint64
	// OpenSlots makes a store in which sets of keys that have been there for a while need no lock (open.go). A store that is there keeps its own choice. It
	// counts where memory is not replicated and no values have segments. A program that does not know of it takes such a store for damaged.
	OpenSlots bool

	// What follows is this compute node's own choice.

	// EpochNs is how long an epoch lasts, at least, but for those that sets wait for, which are shorter: slots open when a key has been there for three. 0 is a second.
	EpochNs fabric.Time

	// NoEvict gives ErrNoSpace when memory is full, instead of evicting.
	NoEvict bool
	// Paper makes operations what they are in the paper's store: gets take the lock of their bucket, where they could read
	// without (unlocked.go), and holders hand nothing on to the next of their node (handoff.go).
	Paper bool
	// CacheEntries bounds the location cache, 16 bytes each; 0 is as many as
	// Objects, at most a million. It is rounded up to a power of two. Negative is none.
	CacheEntries int
	// LockTimeoutNs bounds the wait for a lock; 0 is for ever.
	LockTimeoutNs fabric.Time
	// AccessRefreshS is how old an object's access time must be, in seconds, for a get
	// to write a new one; 0 is 10. Eviction takes objects with old access times.
	AccessRefreshS uint32

	// Existing: what is not there is memory.ErrNotFound, and is not made.
	Existing bool

	// DeadNow and Creating: see memory.Spec.
	DeadNow  func() fabric.CNSet
	Creating *memory.Creating
}

const (
	defaultObjects        = 1 << 16
	defaultMaxValue       = 1 << 20
	defaultCacheEntries   = 1 << 20
	defaultAccessRefreshS = 10
	defaultEpochNs        = fabric.Second

	maxNodes      = 255
	maxLockSize   = 8 + 8*256
	loadPercent   = 45 // of the slots, when there are as many objects as expected
	maxObjectSize = headerSize + MaxKey
)

// geometry is what all clients of a store must agree on: in its root entries.
// Info word 0 of a root entry:
//
//	 63  56 55   48 47   40 39       24 23    16 15      0
//	+------+-------+-------+-----------+--------+---------+
//	| form | nodes | which |  bucket B | slots  | lock B  |
//	+------+-------+-------+-----------+--------+---------+
//
// Words 1 to 5: buckets of each node, and above them (bit 40) whether slots open, and (bit 41) the length of segments in units of 64 bytes; hash seed, memory limit, MaxValue,
// store's ID. A program that knows no segments, or no open slots, takes a store that has some for damaged.
type geometry struct {
	lockSize   uint64
	slots      int
	bucketSize uint64
	nodes      int
	buckets    uint64 // of each node
	seed       uint64
	limit      uint64
	maxValue   uint32
	segment    uint32 // length of segments, of values that are larger; 0: none has segments
	opens      bool   // slots open
	id         uint64
}

// newGeometry derives the geometry of a new store: buckets are as many 64-byte
// lines as lock, minBucketSlots and a link need, and have as many slots as fit.
func newGeometry(cfg *Config, rand func() uint64) geometry {
	g := geometry{
		lockSize: (cfg.Lock.Size + 7) &^ 7,
		nodes:    len(cfg.Nodes),
		seed:     rand(),
		limit:    cfg.MemoryLimit,
		maxValue: cfg.MaxValue,
		segment:  cfg.Segment,
		opens:    cfg.OpenSlots && cfg.Segment == 0,
		id:       rand(),
	}
	g.bucketSize = (g.lockSize + slotSize*(minBucketSlots+1) + 63) &^ 63
	g.slots = int((g.bucketSize-g.lockSize)/slotSize) - 1
	perBucket := g.perBucket()
	perNode := (cfg.Objects + uint64(g.nodes) - 1) / uint64(g.nodes)
	g.buckets = max(1, (perNode+perBucket-1)/perBucket)
	return g
}

// perBucket returns how many objects a bucket is made for.
func (g *geometry) perBucket() uint64 { return max(1, uint64(g.slots)*loadPercent/100) }

func (g *geometry) tableSize() uint64 { return tableOffset + g.buckets*g.bucketSize }

func (g *geometry) info(node int, survivors bool) memory.Info {
	index := g.buckets | uint64(g.segment/segmentUnit)<<segmentShift
	if g.opens {
		index |= opensBit
	}
	x := memory.Info{
		Stores.Head(g.nodes, node, g.bucketSize<<24|uint64(g.slots)<<16|g.lockSize),
		index, g.seed, g.limit, uint64(g.maxValue), g.id,
	}
	if node == 0 && survivors {
		x[survivorsWord] = 1
	}
	return x
}

// survivorsWord is the word of a root entry that says, if not 0, that the first part was made anew beside others.
const survivorsWord = 6

// opensBit says in word 1 of a root entry that slots open. There are not so many buckets.
const opensBit = 1 << 40

// limitWord is the word of a root entry that has the memory limit.
const limitWord = 3

// decodeGeometry validates the root entry of the node-th node.
func decodeGeometry(e *memory.Entry, node int) (geometry, error) {
	w := e.Info[0]
	_, of := e.Part()
	g := geometry{
		lockSize: w & 0xffff, slots: int(w >> 16 & 0xff), bucketSize: w >> 24 & 0xffff, nodes: of,
		buckets: e.Info[1] & (opensBit - 1), opens: e.Info[1]&opensBit != 0, segment: uint32(e.Info[1]>>segmentShift) * segmentUnit, seed: e.Info[2], limit: e.Info[limitWord], maxValue: uint32(e.Info[4]), id: e.Info[5],
	}
	if err := Stores.CheckPart(e, node); err != nil {
		return g, err
	}
	if g.slots == 0 || g.lockSize+uint64(g.slots+1)*slotSize > g.bucketSize || g.bucketSize%64 != 0 ||
		g.buckets == 0 || e.Length != g.tableSize() || e.Addr%chunkUnit != 0 {
		return g, fmt.Errorf("%w: geometry %+v with %d bytes at %v", ErrCorrupt, g, e.Length, e.Addr)
	}
	return g, nil
}

// Stores is what all stores have in common: how one is found by its name, and dropped.
var Stores = &handle.Kind{
	Package: "objstore", Noun: "store", Entry: memory.KindStore, Format: formatVersion, Classes: numClasses, Limit: limitWord,
	ErrGeometry: ErrGeometry, ErrCorrupt: ErrCorrupt, ErrDropped: ErrDropped,
}

// sane reports whether a chunk can lie on a part: of a class that there is, in memory that is given out, and not in the store's own.
func sane(n *handle.Part, ch chunk) bool {
	from, size := ch.offset(), ch.class.size()
	return n.Has(from, size) && ch.class < numClasses && !n.Own(from, size)
}

// holds reports whether a slot can lead to an object on a part.
func holds(n *handle.Part, w slotWord) bool {
	return w.class() < objectClasses && sane(n, w.chunk())
}

// A Store is a store as a compute node has it open. All its clients share it,
// and any goroutine may use it.
type Store struct {
	*handle.Collection
	h      handle.Handle
	newest *atomic.Pointer[Store] // of the Collection, that this compute node has opened

	cfg    Config
	geo    geometry
	places locations
	locked bool             // gets of one key take the lock
	order  bool             // fabric.Caps.ReadsInOrder
	graces []*reclaim.Grace // of each part
	spots  *openSlots       // if slots open: those that are known

	unsettled unsettled
	uploads   *uploads // of this compute node, through all losses
}

// Open opens the store, and makes it if there is none. While a memory node of a store that is there is down, operations on its keys are ErrNodeDown; while the
// first one is, nothing can be changed. No store is made while one is down.
func Open(port fabric.Port, cfg Config) (*Store, error) {
	given := cfg
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	before := &Store{Collection: Stores.Of(cfg.Name, cfg.Nodes, cfg.Creating), newest: new(atomic.Pointer[Store]), uploads: new(uploads)}
	s, err := before.open(port, nil, given, cfg, nil)
	if err == nil {
		s.newest.Store(s)
	}
	return s, err
}

// open returns the store that follows s. It opens it, if it is as given, and makes it, if there is none, as cfg says. What old, s or nil, has of parts that are there still is
// taken over. retry: see memory.Spec.
func (s *Store) open(port, retry fabric.Port, given, cfg Config, old *Store) (_ *Store, err error) {
	s = &Store{Collection: s.Collection, newest: s.newest, uploads: s.uploads, cfg: cfg, geo: newGeometry(&cfg, port.Rand)}
	s.h.Init(s.Collection)
	s.graces = make([]*reclaim.Grace, len(s.h.Parts))
	var before *handle.Handle
	if old != nil {
		s.geo, before = old.geo, &old.h
	}
	fresh := s.geo.buckets
	found, err := s.survey(port, &given, before)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		if f.Down != nil {
			continue
		}
		e, err := s.openNode(port, retry, i, f.Region)
		if err == nil && i == 0 {
			s.geo, err = decodeGeometry(&e, 0) // that which was drawn here, or another's
		}
		if err == nil {
			err = s.adopt(port, i, f.Region, e)
		}
		if err != nil {
			return nil, fmt.Errorf("objstore: open %q on %v: %w", cfg.Name, cfg.Nodes[i], err)
		}
		s.h.Inherit(before, i)
		if before != nil && s.h.Parts[i] == before.Parts[i] {
			s.graces[i] = old.graces[i]
		}
		if err := s.compare(&given); err != nil {
			return nil, err // before anything is made on another node
		}
	}
	if err := s.h.Register(port, before); err != nil {
		return nil, err
	}
	s.cfg.MaxValue, s.cfg.Segment, s.cfg.MemoryLimit = s.geo.maxValue, s.geo.segment, s.geo.limit
	if s.geo.buckets != fresh {
		s.cfg.Objects = s.Objects()
	}
	if s.cfg.CacheEntries == 0 {
		s.cfg.CacheEntries = int(min(s.cfg.Objects, defaultCacheEntries))
	}
	s.places.init(s.cfg.CacheEntries)
	if s.geo.opens {
		s.spots = new(openSlots)
	}
	s.order = port.Caps().ReadsInOrder
	s.locked = cfg.Paper || !s.order
	return s, nil
}

// survey looks for the parts of the store that are there already: the geometry of one is that of all. Without one, that of the first part that is made is, and all memory nodes
// must be up; else those that are down have missing parts, but none that before has had. (A part may not be there because its memory was lost.)
func (s *Store) survey(port fabric.Port, given *Config, before *handle.Handle) ([]handle.Found, error) {
	found, err := s.h.Survey(port)
	first := slices.IndexFunc(found, func(f handle.Found) bool { return f.Entry != nil })
	if first >= 0 {
		if s.geo, err = decodeGeometry(found[first].Entry, first); err != nil {
			return nil, fmt.Errorf("objstore: open %q on %v: %w", s.cfg.Name, s.cfg.Nodes[first], err)
		}
		err = s.compare(given)
	}
	for i, f := range found {
		if f.Down != nil && (first < 0 || before != nil && !before.Parts[i].Missing()) {
			return nil, f.Down
		}
	}
	s.h.Survivors = first > 0
	return found, err
}

// compare compares the geometry of the store that is there with the wanted one.
func (s *Store) compare(given *Config) error {
	g, maxValue, segment := &s.geo, cmp.Or(given.MaxValue, s.geo.maxValue), cmp.Or(given.Segment, s.geo.segment)
	if g.maxValue != maxValue || g.segment != segment || g.lockSize != (given.Lock.Size+7)&^7 {
		return fmt.Errorf("%w: %q has %d B locks, values to %d B, segments of %d B; want %d, %d, %d", ErrGeometry, given.Name,
			g.lockSize, g.maxValue, g.segment, given.Lock.Size, maxValue, segment)
	}
	return Stores.CheckNodes(given.Name, g.nodes, len(given.Nodes))
}

// openNode returns the root entry of the store's part on a node, which it makes if there is none.
func (s *Store) openNode(port, retry fabric.Port, i int, r *memory.Region) (memory.Entry, error) {
	if s.cfg.Existing {
		return r.Lookup(port, s.cfg.Name, memory.KindStore)
	}
	spec := memory.Spec{
		Name: s.cfg.Name, Kind: memory.KindStore,
		Size: s.geo.tableSize(), Align: 4096, Info: s.geo.info(i, s.h.Survivors),
		DeadNow: s.cfg.DeadNow, Creating: s.cfg.Creating, Retry: retry,
	}
	if i == 0 {
		spec.Init = func(e *memory.Entry) error {
			err := reclaim.Init(port, e.Addr)
			if first, words := reclaim.Records(e.Addr); err == nil && r.Replicated() {
				err = r.Level(port, first, words)
			}
			return err
		}
	}
	e, _, err := r.Create(port, spec)
	if err == nil {
		err = r.Settle(port, &e) // a backup may have been added meanwhile, of which the creator did not know
	}
	return e, err
}

// adopt makes an entry of the root directory that of the store's part on a node: the part is there from then on. Its geometry is that of all.
func (s *Store) adopt(port fabric.Port, i int, r *memory.Region, e memory.Entry) error {
	g, err := decodeGeometry(&e, i)
	if err != nil {
		return err
	}
	if g != s.geo {
		return fmt.Errorf("%w: %+v, and %+v on %v", ErrGeometry, g, s.geo, s.cfg.Nodes[0])
	}
	if i == 0 {
		s.h.Survivors = e.Info[survivorsWord] != 0
	}
	s.graces[i] = new(reclaim.Grace)
	s.graces[i].Init(e.Addr.Add(graceOffset))
	end := handle.End(r, offsetBits)
	return s.h.Adopt(port, i, r, e, end, s.division(end))
}

func (cfg *Config) fill() error {
	if cfg.Objects == 0 {
		cfg.Objects = defaultObjects
	}
	if cfg.MaxValue == 0 {
		cfg.MaxValue = defaultMaxValue
	}
	if cfg.Segment == 0 && cfg.MaxValue > maxPlain {
		cfg.Segment = defaultSegment
	}
	if cfg.AccessRefreshS == 0 {
		cfg.AccessRefreshS = defaultAccessRefreshS
	}
	if cfg.EpochNs == 0 {
		cfg.EpochNs = defaultEpochNs
	}
	switch {
	case len(cfg.Nodes) == 0 || len(cfg.Nodes) > maxNodes:
		return fmt.Errorf("%w: %d memory nodes", ErrConfig, len(cfg.Nodes))
	case cfg.Lock.Size == 0 || cfg.Lock.Size > maxLockSize || cfg.Lock.Align > 64:
		return fmt.Errorf("%w: lock of %d bytes aligned to %d", ErrConfig, cfg.Lock.Size, cfg.Lock.Align)
	case cfg.MaxValue > MaxValueBytes:
		return fmt.Errorf("%w: values of %d bytes, at most %d", ErrConfig, cfg.MaxValue, MaxValueBytes)
	case cfg.Segment != 0 && !validSegment(cfg.Segment, cfg.MaxValue):
		return fmt.Errorf("%w: segments of %d bytes for values of %d", ErrConfig, cfg.Segment, cfg.MaxValue)
	case cfg.Objects > 1<<40:
		return fmt.Errorf("%w: %d objects", ErrConfig, cfg.Objects)
	}
	return nil
}

// A place is where a key lives: the same for all clients of a store.
type place struct {
	hash   uint64
	node   int
	bucket fabric.Addr
	fp     fingerprint
}

// spread returns on which node, and in which bucket there, a key lives, by its hash. The hash, as a fraction of 2^64, picks the node;
// the rest of it picks the bucket there.
func (s *Store) spread(h uint64) (node int, bucket uint64) {
	var n uint64
	rest := h
	if len(s.h.Parts) > 1 {
		n, rest = bits.Mul64(h, uint64(len(s.h.Parts)))
	}
	b, _ := bits.Mul64(rest, s.geo.buckets)
	return int(n), b
}

// locate returns where key lives. The part is there.
func (s *Store) locate(key []byte) place {
	h := hashKey(key, s.geo.seed)
	n, b := s.spread(h)
	return place{hash: h, node: n, bucket: s.bucket(n, b), fp: fingerprintOf(h)}
}

func (s *Store) bucket(node int, i uint64) fabric.Addr {
	return s.h.Parts[node].Base.Add(tableOffset + i*s.geo.bucketSize)
}

// slotsAddr returns the address of a bucket's first slot.
func (s *Store) slotsAddr(bucket fabric.Addr) fabric.Addr { return bucket.Add(s.geo.lockSize) }

// saw returns the sighting of an object in the slot at a, which may be one of an overflow block.
func (s *Store) saw(bucket, a fabric.Addr, unique uint64) sighting {
	slot := -1
	if d := uint64(a - s.slotsAddr(bucket)); d < uint64(s.geo.slots)*slotSize {
		slot = int(d / slotSize)
	}
	return sightingOf(unique, slot)
}

// slotsLen returns the bytes of a bucket's slots and its link.
func (s *Store) slotsLen() int { return (s.geo.slots + 1) * slotSize }

// locations is the location cache of a compute node: the last slot word seen
// of many keys, and the unique of its object, direct-mapped by hash. It may be stale, it may be of another key, and
// the two words of a location may be of two objects: the word is used only after the bucket has been
// seen to hold it, and the unique only if the object has it, which no other ever has. That is why it needs no lock.
type locations struct {
	list []location
	mask uint64
}

type location struct{ word, seen atomic.Uint64 }

// A sighting is the unique of an object without its top bits, and above it the number of the object's slot in its bucket, plus one; or 0. All uniques of a
// memory node have the same top bits, those of its generation.
type sighting uint64

const (
	sightingBits = 4
	sightingSlot = 64 - sightingBits
)

func sightingOf(unique uint64, slot int) sighting {
	x := sighting(unique << sightingBits >> sightingBits)
	if uint(slot) < 1<<sightingBits-1 {
		x |= sighting(slot+1) << sightingSlot
	}
	return x
}

// of reports whether it may be that of an object with a unique.
func (x sighting) of(unique uint64) bool { return (uint64(x)^unique)<<sightingBits == 0 }

// slot returns the number of the slot; negative: it is not known.
func (x sighting) slot() int { return int(x>>sightingSlot) - 1 }

func (c *locations) init(n int) {
	if n > 0 {
		c.list = make([]location, 1<<bits.Len64(uint64(n-1)))
		c.mask = uint64(len(c.list) - 1)
	}
}

func (c *locations) at(hash uint64) *location { return &c.list[hash>>locationShift&c.mask] }

// get returns a word with the hash's fingerprint, or 0.
func (c *locations) get(hash uint64) (w slotWord, seen sighting) {
	if c.list == nil {
		return 0, 0
	}
	l := c.at(hash)
	if w = slotWord(l.word.Load()); w.fp() != fingerprintOf(hash) {
		return 0, 0
	}
	return w, sighting(l.seen.Load())
}

// touch loads what is known of a key: the processor fetches it from its memory beside what is known of others, not when it is needed.
func (c *locations) touch(hash uint64) {
	if c.list != nil {
		c.at(hash).word.Load()
	}
}

// put notes a published object.
func (c *locations) put(hash uint64, w slotWord, seen sighting) {
	if c.list == nil {
		return
	}
	if l := c.at(hash); l.word.Load() != uint64(w) || l.seen.Load() != uint64(seen) {
		l.word.Store(uint64(w))
		l.seen.Store(uint64(seen))
	}
}

// forget removes w, if it is what is there.
func (c *locations) forget(hash uint64, w slotWord) {
	if c.list != nil && w != 0 {
		c.at(hash).word.CompareAndSwap(uint64(w), 0)
	}
}

// Buckets returns the number of buckets on each node, and the slots of each.
func (s *Store) Buckets() (perNode uint64, slots int) { return s.geo.buckets, s.geo.slots }

// AllBuckets returns how many buckets there are on all memory nodes.
func (s *Store) AllBuckets() uint64 { return s.geo.buckets * uint64(len(s.h.Parts)) }

// IndexBytes returns how many bytes all buckets take, with their locks.
func (s *Store) IndexBytes() uint64 { return s.AllBuckets() * s.geo.bucketSize }

// Nodes returns the memory nodes of the store.
func (s *Store) Nodes() []fabric.MemID { return s.cfg.Nodes }

// MaxValue returns the largest value in bytes.
func (s *Store) MaxValue() int { return int(s.geo.maxValue) }

// Objects returns how many objects the index of the store is made for, about: see Config.Objects.
func (s *Store) Objects() uint64 { return s.geo.buckets * s.geo.perBucket() * uint64(s.geo.nodes) }

// OpenSlots reports whether sets of keys that have been there for a while need no lock where memory is not replicated.
func (s *Store) OpenSlots() bool { return s.geo.opens }

// MemoryLimit returns what bounds the bytes of objects on each node; 0: nothing but its region.
func (s *Store) MemoryLimit() uint64 { return s.geo.limit }
