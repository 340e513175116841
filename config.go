package declock

import (
	"fmt"
	"math"
	"time"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// A StoreConfig says how [Cluster.Store] opens a store, or makes it. The zero value is good for 65536 objects of up to 1 MiB on all memory nodes.
type StoreConfig struct {
	// Nodes are the memory nodes of the store, the same for all processes, in the same order; none: those that the store has, or, to make it, all that the cluster has now.
	Nodes []fabric.MemID
	// Objects is how many objects the index of a store that is made is for, segments among them, on all memory nodes together; 0 is 65536. More find room, at one more round trip.
	Objects uint64
	// MaxValue is the largest value in bytes, up to objstore.MaxValueBytes; 0 is that of the store, or, to make it, 1 MiB. Another one than the store has is objstore.ErrGeometry.
	MaxValue uint32
	// Segment is how long segments of larger values are, at most: 64 bytes to 4 MiB. 0 is that of the store, or, to make it, 2.2 MiB if MaxValue needs segments, else no value has some.
	Segment uint32
	// MemoryLimit bounds the bytes of objects and overflow blocks on each memory node of a store that is made; 0 is all of its memory but the reserve.
	MemoryLimit uint64
	// OpenSlots makes a store in which sets of keys that have been there for a while need no lock. It counts where memory is not replicated and no values have segments.
	// A program that does not know of it takes such a store for damaged. A store that is there keeps its own choice.
	OpenSlots bool
	// Existing: what is not there is memory.ErrNotFound, and is not made.
	Existing bool

	// What follows is this process's own choice.

	// NoEvict gives objstore.ErrNoSpace when memory is full, instead of evicting.
	NoEvict bool
	// CacheEntries bounds the cache of where objects are, 16 bytes each; 0 is as many as Objects, at most a million; negative is none.
	CacheEntries int
	// LockTimeout bounds the wait for the lock of a bucket, besides the context of the operation; 0 is for ever.
	LockTimeout time.Duration
	// AccessRefresh is how old an object's access time must be for a get to write a new one, in whole seconds; 0 is 10 s. Eviction takes objects with old access times.
	AccessRefresh time.Duration
}

// of returns the configuration as package objstore has it.
func (cfg *StoreConfig) of(c *Cluster, name string) (objstore.Config, error) {
	if cfg.LockTimeout < 0 || cfg.AccessRefresh < 0 || cfg.AccessRefresh > math.MaxUint32*time.Second {
		return objstore.Config{}, fmt.Errorf("%w: store %q: LockTimeout %v, AccessRefresh %v", objstore.ErrConfig, name, cfg.LockTimeout, cfg.AccessRefresh)
	}
	return objstore.Config{
		Name: name, Nodes: cfg.Nodes, Lock: c.node.Layout().Lock(), DeadNow: c.dead, Creating: &c.creating,
		Objects: cfg.Objects, MaxValue: cfg.MaxValue, Segment: cfg.Segment, MemoryLimit: cfg.MemoryLimit, OpenSlots: cfg.OpenSlots, Existing: cfg.Existing,
		NoEvict: cfg.NoEvict, CacheEntries: cfg.CacheEntries, LockTimeoutNs: fabric.Time(cfg.LockTimeout), AccessRefreshS: uint32((cfg.AccessRefresh + time.Second - 1) / time.Second),
	}, nil
}

// A TreeConfig says how [Cluster.Tree] opens a tree, or makes it. The zero value is good for keys of up to 128 bytes on all memory nodes. Sizes that are 0 are those of
// the tree that is there; one that is not 0 and not that of the tree is btree.ErrGeometry.
type TreeConfig struct {
	// Nodes are the memory nodes of the tree, as those of a store.
	Nodes []fabric.MemID
	// MaxKey is the largest key in bytes, up to btree.MaxKeySize; 0 is that of the tree, or, to make it, 128.
	MaxKey int
	// NodeSize is the size of a node in bytes, a multiple of 8; 0 is that of the tree, or, to make it, 1024, or more if the largest keys need it.
	NodeSize int
	// MaxInline is the largest value in bytes that lies in its leaf; 0 is that of the tree, or, to make it, a sixteenth of a node.
	MaxInline int
	// MemoryLimit bounds the bytes of nodes and large values on each memory node of a tree that is made; 0 is all of its memory but the reserve. A tree that is there keeps its own.
	MemoryLimit uint64
	// Existing: what is not there is memory.ErrNotFound, and is not made.
	Existing bool

	// What follows is this process's own choice.

	// CacheBytes bounds the cache of inner nodes; 0 is 64 MiB, negative is none.
	CacheBytes int
	// LockTimeout bounds the wait for the lock of a node, besides the context of the operation; 0 is for ever.
	LockTimeout time.Duration
}

// of returns the configuration as package btree has it.
func (cfg *TreeConfig) of(c *Cluster, name string) (btree.Config, error) {
	if cfg.LockTimeout < 0 {
		return btree.Config{}, fmt.Errorf("%w: tree %q: LockTimeout %v", btree.ErrConfig, name, cfg.LockTimeout)
	}
	return btree.Config{
		Name: name, Nodes: cfg.Nodes, Lock: c.node.Layout().Lock(), DeadNow: c.dead, Creating: &c.creating,
		MaxKey: cfg.MaxKey, NodeSize: cfg.NodeSize, MaxInline: cfg.MaxInline, MemoryLimit: cfg.MemoryLimit, Existing: cfg.Existing,
		CacheBytes: cfg.CacheBytes, LockTimeoutNs: fabric.Time(cfg.LockTimeout),
	}, nil
}
