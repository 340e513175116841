package cn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/timesync"
)

// Config of a compute node. The zero value has the defaults.
type Config struct {
	// Policy is the ownership-transfer policy; the zero value is hier.DefaultPolicy.
	Policy hier.Policy
	// Flat must be true to get hier.Flat, the zero Kind, as the policy.
	Flat bool
	// CQL are the waiting times of the lock protocol.
	CQL cql.Config
	// SyncIntervalNs is the time between clock synchronisations; 0 is the
	// paper's second, negative is never.
	SyncIntervalNs fabric.Time
	// Report is called with errors of the agent, by any goroutine; nil: none.
	Report func(error)
	// HoldWarningNs is how long a lock may be held before Report is called (lock.ErrOverdue): the
	// agent looks when it synchronises the clock. 0: for ever.
	HoldWarningNs fabric.Time
	// OnLoss is called with each hold that becomes invalid: its memory node has restarted, or the
	// cluster has declared this compute node dead. It is called by the goroutine that finds that out,
	// and must neither wait nor use the node. nil: none. Release of the hold fails, too. A panic in it is reported (ErrPanic).
	OnLoss func(lock.Loss)
}

// Errors of Start, for errors.Is.
var (
	// ErrNoMemory: the cluster has no memory node.
	ErrNoMemory = errors.New("cn: the cluster has no memory node")
	// ErrMemoryLost: a memory node has restarted without the memory that it had. An operation of each session fails with it once.
	ErrMemoryLost = lock.ErrMemoryLost
	// ErrTooManyNodes: lock queues have no room for another compute node.
	ErrTooManyNodes = errors.New("cn: lock queues have no room for another compute node")
)

// A Node is a compute node of a cluster.
type Node struct {
	fab     fabric.Node
	cfg     Config
	hcfg    hier.Config
	table   *hier.Table
	clock   timesync.Clock
	agent   *hier.Agent
	seen    seen
	running sync.WaitGroup
	ended   chan struct{} // closed by Close
	gone    chan struct{} // see Gone
	going   sync.Once     // closes gone
	owes    bool          // the agent could not give back all that the node has in queues of locks; valid when running is over
	differs atomic.Bool   // see Unsettled

	mu       sync.Mutex
	regions  []*memory.Region
	onLost   []func(fabric.MemID)
	sessions map[*Session]struct{}
	done     lock.Stats // of closed sessions
	doneNIC  fabric.Stats
	closed   bool
}

// New makes a compute node of a fabric.Node. All memory nodes must be formatted
// regions with the same lock layout. p is any Port of the node. The caller runs Agent.
func New(p fabric.Port, f fabric.Node, cfg Config) (*Node, error) {
	n := &Node{fab: f, cfg: cfg, sessions: make(map[*Session]struct{}), ended: make(chan struct{}), gone: make(chan struct{})}
	if len(f.Memory()) == 0 {
		return nil, ErrNoMemory
	}
	policy := cfg.Policy
	if policy == (hier.Policy{}) && !cfg.Flat {
		policy, _ = hier.ParsePolicy(hier.DefaultPolicy)
	}
	n.table = hier.NewTable(policy)
	if cfg.OnLoss != nil {
		n.table.OnLoss = func(l lock.Loss) { n.call("OnLoss", func() { cfg.OnLoss(l) }) }
	}
	if err := n.Refresh(p); err != nil {
		return nil, err
	}
	first := n.regions[0]
	n.hcfg = hier.Config{
		Layout: cql.Layout{CapacityBits: first.CapacityLog2(), VersionBits: first.VersionBits()},
		CQL:    cfg.CQL, Verify: n.verify, Lowest: memory.Lowest, LeaseNs: cfg.HoldWarningNs,
	}
	n.hcfg.CQL.Plain = n.plain
	if err := n.hcfg.Layout.Validate(); err != nil {
		return nil, err
	}
	// All nodes count in the same memory node, also those that find it down.
	sync := hier.SyncConfig{Counter: fabric.At(MemoryOf(f)[0].ID, memory.TimesyncOffset), IntervalNs: cfg.SyncIntervalNs}
	if sync.IntervalNs == 0 {
		sync.IntervalNs = fabric.Second
	}
	n.agent = hier.NewAgent(n.table, f, &n.clock, n.hcfg, sync)
	return n, nil
}

// Start is New, and runs the agent in a goroutine until Close.
func Start(f fabric.Node, cfg Config) (*Node, error) {
	p, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	n, err := New(p, f, cfg)
	if err != nil {
		return nil, err
	}
	// Numbers are given from 1: a larger one than queues have entries means more nodes than entries.
	if max := n.Layout().Capacity(); uint64(f.ID()) > max {
		return nil, fmt.Errorf("%w: this one is %v, and the memory nodes are formatted for %d", ErrTooManyNodes, f.ID(), max)
	}
	n.running.Add(1)
	go func() {
		defer n.running.Done()
		if err := n.agent.Run(cfg.Report); err != nil && cfg.Report != nil {
			cfg.Report(err)
		}
		// What the agent does in a memory node that does not answer ends then, too.
		defer time.AfterFunc(time.Duration(hier.LeaveNs), f.Agent().Interrupt).Stop()
		n.owes = !n.agent.Leave(cfg.Report)
	}()
	if w, ok := f.(interface{ Fenced() <-chan struct{} }); ok {
		n.running.Add(1)
		go func() { // a lock that stays on the node would not show it
			defer n.running.Done()
			select {
			case <-w.Fenced():
				n.table.Fenced()
				n.going.Do(func() { close(n.gone) })
				if e, ok := f.(interface{ Err() error }); ok && cfg.Report != nil {
					cfg.Report(e.Err())
				}
			case <-n.ended:
			}
		}()
	}
	return n, nil
}

// ErrTooManySessions: without hierarchy each session is a participant of lock
// queues, and these have not room for so many.
var ErrTooManySessions = errors.New("cn: lock queues have no room for another session")

// Gone returns a channel that is closed when the node is no member of the cluster any more: it has been closed, or fenced.
func (n *Node) Gone() <-chan struct{} { return n.gone }

// Fabric returns the node's membership of the fabric.
func (n *Node) Fabric() fabric.Node { return n.fab }

// Agent returns the node's agent. Start runs it.
func (n *Node) Agent() *hier.Agent { return n.agent }

// Table returns the node's table of local locks.
func (n *Node) Table() *hier.Table { return n.table }

// Regions returns the regions of the memory nodes that the node knows, by memory node. See Refresh.
func (n *Node) Regions() []*memory.Region {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.regions)
}

// Layout returns the lock layout of the cluster.
func (n *Node) Layout() cql.Layout { return n.hcfg.Layout }

// idleBytes is how much of locks Idle reads at once.
const idleBytes = 64 << 10

// Idle reports whether no client holds, or waits for, any of some locks that lie side by side from an address on.
func (n *Node) Idle(p fabric.Port, first fabric.Addr, locks uint64) (bool, error) {
	y := n.Layout()
	stride := y.Lock().Size
	most := max(1, idleBytes/stride)
	b := p.Alloc(int(min(most, locks) * stride))
	defer p.Free(b)
	for locks > 0 {
		k := min(most, locks)
		ops := [1]fabric.Op{fabric.Read(first, b[:k*stride])}
		if err := p.Do(ops[:]); err != nil {
			return false, fmt.Errorf("cn: locks at %v: %w", first, err)
		}
		for i := range k {
			h := cql.Header(binary.LittleEndian.Uint64(b[i*stride:]))
			if y.Size(h) != 0 || h.ResetID() != 0 {
				return false, nil
			}
		}
		first, locks = first.Add(k*stride), locks-k
	}
	return true, nil
}

// Close closes all sessions, stops the agent and leaves the cluster. No
// session may be in use: an operation that waits ends with ErrClosed, and what the
// session counted after its last sample (Observe) is not in the node's counters.
//
// Before that the agent has those locks reset in whose queues the node has tickets, of clients that have given up: no client would take
// their grants. If that does not succeed within hier.LeaveNs, or if sessions hold locks, the node leaves as one that has crashed does,
// so that the others look at once for what it had.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	n.going.Do(func() { close(n.gone) })
	open := make([]*Session, 0, len(n.sessions))
	for s := range n.sessions {
		open = append(open, s)
	}
	n.mu.Unlock()
	var errs []error
	for _, s := range open {
		errs = append(errs, s.closeIdle())
	}
	// The agent ends before its Port does: what it has in the Port's memory is good until then.
	n.fab.Agent().Interrupt()
	close(n.ended)
	n.running.Wait()
	return errors.Join(append(errs, n.leave())...)
}

// Unsettled notes that the node has left something different at a backup and its primary: others look for it when the node leaves as one that has crashed does.
func (n *Node) Unsettled() { n.differs.Store(true) }

// leave leaves the cluster.
func (n *Node) leave() error {
	if n.owes || n.differs.Load() {
		return n.fab.Fail()
	}
	return n.fab.Close()
}
