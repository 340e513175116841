package declock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/mn"
)

// Errors of Open.
var (
	// ErrAddress: an address that names no fabric, or is not well-formed.
	ErrAddress = errors.New("declock: bad cluster address")
	// ErrPolicy: an unknown lock policy.
	ErrPolicy = hier.ErrPolicy
)

// ErrClosed: what was called, or its session or cluster, has been closed.
var ErrClosed = fabric.ErrClosed

// ErrMemoryLost: a memory node has come back without the memory that it had. An operation of each session, and of each client of a store or
// tree, fails with it at least once. What was there is gone then: locks are free, stores and trees are empty. Later operations succeed.
var ErrMemoryLost = cn.ErrMemoryLost

// A Cluster is this process's membership of a cluster: it is one compute node
// of it until Close. Any goroutine may use it.
type Cluster struct {
	node    *cn.Node
	private *mn.Node // the memory node of a cluster of this process alone

	report   func(error)     // is called with errors in the background; nil: none
	creating memory.Creating // root entries
	opening  chan struct{}   // full while a store or tree is opened or dropped
	naming   chan struct{}   // full while locks are opened or dropped by name

	stopCopier func() // of startCopier
	copying    atomic.Pointer[Copying]

	reclaimer *reclaimer // from the first store or tree on; guarded by opening

	mu       sync.Mutex
	open     map[collectionKey]collection
	dropped  []collection // until they are let go
	locks    map[string]*Locks
	sessions map[*Session]struct{} // open ones
	closing  bool                  // Close has begun: nothing is opened any more
	lost     []fabric.MemID        // memory nodes that lost their memory, in the order of the losses

	watches watches // of lost locks, for guards that have asked
	held    heldNames
	named   atomic.Pointer[Names] // of Named

	work, guards pool          // sessions of operations on stores and trees, and of locks, for goroutines that have none
	changes      atomic.Uint64 // losses of memory, and stores and trees that were dropped and let go, so far
	loadHelpers  atomic.Int32  // of bulk loads
}

// A Joiner makes this process a compute node of the cluster that the part of
// an address behind its scheme names.
type Joiner func(ctx context.Context, rest string) (fabric.Node, error)

var joiners = struct {
	sync.Mutex
	m map[string]Joiner
}{m: map[string]Joiner{}}

// Register adds a fabric by the scheme of its addresses. Registering a scheme twice panics.
func Register(scheme string, j Joiner) {
	joiners.Lock()
	defer joiners.Unlock()
	if joiners.m[scheme] != nil || scheme == "shm" {
		panic("declock: fabric " + scheme + " registered twice")
	}
	joiners.m[scheme] = j
}

// schemes lists the schemes of addresses.
func schemes() []string {
	joiners.Lock()
	defer joiners.Unlock()
	names := []string{"shm"}
	for n := range joiners.m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Open makes this process a compute node of the cluster at an address: see
// the package's documentation. ctx bounds the joining only, with the wait for memory nodes that are just being replaced.
func Open(ctx context.Context, address string, opts ...Option) (*Cluster, error) {
	o, err := applied(opts)
	if err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return nil, fmt.Errorf("%w: %q has no scheme: want one of %s, as in shm:NAME", ErrAddress, address, strings.Join(schemes(), ", "))
	}
	c := newCluster(o)
	f, err := c.join(ctx, scheme, rest, o)
	if err != nil {
		return nil, err
	}
	return c.start(ctx, f, o)
}

// OpenNode is Open for a process that has joined a fabric by itself: f is its membership, which Close ends.
// f is closed if OpenNode fails.
func OpenNode(f fabric.Node, opts ...Option) (*Cluster, error) {
	o, err := applied(opts)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newCluster(o).start(context.Background(), f, o)
}

func newCluster(o *options) *Cluster {
	c := &Cluster{opening: make(chan struct{}, 1), naming: make(chan struct{}, 1), open: map[collectionKey]collection{}, locks: map[string]*Locks{}, sessions: map[*Session]struct{}{}}
	c.watches.every, c.watches.ended = cutOffLook, make(chan struct{})
	c.work.c, c.work.most = c, o.sessions
	c.guards.c, c.guards.most, c.guards.guarded = c, o.lockSessions, true
	return c
}

// start starts the compute node's agent. If all memory nodes are just being replaced, it waits for that until ctx ends.
func (c *Cluster) start(ctx context.Context, f fabric.Node, o *options) (*Cluster, error) {
	c.report = o.cfg.Report
	program := o.cfg.OnLoss
	o.cfg.OnLoss = func(l lock.Loss) {
		c.watches.report(l)
		if program != nil {
			program(l)
		}
	}
	err := outlast(ctx, func() []fabric.Memory { return cn.MemoryOf(f) }, nil, func() (err error) {
		c.node, err = cn.Start(f, o.cfg)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, f.Close(), c.closePrivate())
	}
	c.node.OnMemoryLost(c.memoryLost)
	if o.memoryLost != nil {
		c.node.OnMemoryLost(o.memoryLost)
	}
	if err := c.markCrashed(); err != nil && c.report != nil {
		c.report(err)
	}
	c.held.start(c)
	c.startCopier(f, o.copyRate)
	return c, nil
}

func (c *Cluster) join(ctx context.Context, scheme, rest string, o *options) (fabric.Node, error) {
	if scheme == "shm" {
		so := shm.Options{Name: rest, Dir: o.dir}
		if rest == "" {
			return c.joinPrivate(ctx, so, o)
		}
		f, err := shm.Join(ctx, so)
		if errors.Is(err, shm.ErrName) {
			err = fmt.Errorf("%w: %w", ErrAddress, err)
		}
		return f, err
	}
	joiners.Lock()
	j := joiners.m[scheme]
	joiners.Unlock()
	if j == nil {
		return nil, fmt.Errorf("%w: %q: unknown fabric %q: one of %s%s", ErrAddress, scheme+":"+rest, scheme, strings.Join(schemes(), ", "), missing(scheme))
	}
	return j(ctx, rest)
}

// missing says which package a program has to import for a fabric.
func missing(scheme string) string {
	switch scheme {
	case "tcp", "verbs":
		return fmt.Sprintf("; for %s: import _ \"github.com/declock/declock/over%s\"", scheme, scheme)
	}
	return ""
}

// flatParticipants is how many sessions the lock queues of a private cluster have room for
// with the policy "cql", where each session is a participant.
const flatParticipants = 256

// joinPrivate starts a memory node in this process and joins its cluster. Its files have no names then: nothing is left of it however the
// process ends.
func (c *Cluster) joinPrivate(ctx context.Context, so shm.Options, o *options) (fabric.Node, error) {
	srv, err := c.startPrivate(&so, o)
	if err != nil {
		return nil, err
	}
	f, err := shm.Join(ctx, so)
	if err != nil {
		return nil, errors.Join(err, c.closePrivate())
	}
	if err := srv.Unlink(); err != nil {
		return nil, errors.Join(err, f.Close(), c.closePrivate())
	}
	return f, nil
}

// startPrivate starts a memory node in this process.
func (c *Cluster) startPrivate(so *shm.Options, o *options) (*shm.MemoryServer, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	so.Name = fmt.Sprintf("private-%d-%s", os.Getpid(), hex.EncodeToString(b[:]))
	serve := *so
	serve.Size, serve.Sparse = o.size, true
	srv, err := shm.Serve(serve)
	if err != nil {
		return nil, err
	}
	queue := shm.DefaultMaxCN // no other compute node joins: there are no trains to have room for
	if o.cfg.Flat {
		queue = flatParticipants
	}
	c.private, err = mn.Start(srv, mn.Config{Queue: queue})
	return srv, err
}

func (c *Cluster) closePrivate() error {
	if c.private == nil {
		return nil
	}
	return c.private.Close()
}

// Node returns the compute node underneath, for tools.
func (c *Cluster) Node() *cn.Node { return c.node }

// Done returns a channel that is closed when this process is no member of the cluster any more: after Close, and when the cluster has declared
// this compute node dead. Its locks are lost then; every later operation is ErrClosed or fabric.ErrFenced. To go on, Open the cluster anew.
func (c *Cluster) Done() <-chan struct{} { return c.node.Gone() }

// Close gives back memory that this compute node keeps free, and leaves the
// cluster. No session may be in use: an operation that waits ends with ErrClosed, and the error says so (ErrInUse); others get the locks of
// such a session as if this process had crashed. Locks that idle sessions hold are released, and the error names them (ErrHeld).
// Once Close has begun, calls that would open something fail with ErrClosed. Where all copies of memory are gone it waits for two seconds, and gives nothing back there.
func (c *Cluster) Close() error {
	c.stopCopier()
	c.watches.endLooking()
	c.held.close()
	c.work.close()
	c.guards.close()
	ctx, stop := c.whileServed()
	defer stop()
	held := c.releaseSessions(ctx)
	err := errors.Join(c.stopReclaimer(ctx), c.drain(ctx))
	if c.private != nil || errors.Is(err, fabric.ErrNodeDown) || errors.Is(err, cn.ErrMemoryLost) {
		err = nil // nothing takes the memory back
	}
	return errors.Join(held, err, c.node.Close(), c.closePrivate())
}
