package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/page"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/cmd/internal/web"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/metrics"
	"github.com/declock/declock/mn"
)

// MNConfig says how to run a memory node.
type MNConfig struct {
	Cluster scheme.Cluster
	Memory  scheme.Memory
	// LockQueue is how many entries the queue of a lock has: at least MaxCN; where locks have no
	// hierarchy, at least the clients. 0 is what other memory nodes have, or room for MaxCN and their trains.
	LockQueue int
	// Leave says that a stop takes the memory node out of the cluster for good.
	Leave bool
	// Wait is how long to wait for etcd.
	Wait time.Duration
	// Overcommit takes memory that the machine does not have.
	Overcommit bool
	Options
}

// RunMN runs a memory node until ctx ends. It writes one line to out when it
// serves. Meanwhile it sleeps, where the fabric's NICs do the work.
func RunMN(ctx context.Context, cfg MNConfig, out io.Writer) error {
	control.Sweep(cfg.Cluster.RunDir()) // of a cluster whose processes were killed
	ready := newReadiness()
	w, err := cfg.serveHTTP(ready)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := cfg.fits(ctx, machine.Look()); err != nil {
		return err
	}
	srv, node, err := startMN(ctx, &cfg)
	if node == nil {
		return err
	}
	err = serveMN(ctx, cfg, srv, ready, w, out)
	w.Hide()
	err = errors.Join(err, node.Close())
	if err == nil && cfg.Leave {
		err = forgotten(cfg, srv.ID())
	}
	control.Sweep(cfg.Cluster.RunDir())
	cfg.Log.Info("stopped")
	return err
}

// startMN has the memory served, and formats it. It returns no node if that failed, or if it was asked to stop meanwhile.
func startMN(ctx context.Context, cfg *MNConfig) (srv scheme.Server, node *mn.Node, err error) {
	err = cfg.await(ctx, cfg.Wait, func() (err error) {
		// Before it joins: joining may take the place of a member that has a copy, on a host that is cut off.
		if err = cfg.alone(ctx, cfg.Memory.ID); err == nil {
			srv, err = cfg.Cluster.Serve(ctx, cfg.Memory)
		}
		return err
	})
	if err != nil {
		return nil, nil, unlessStopped(ctx, err)
	}
	queue, err := 0, cfg.alone(ctx, srv.ID()) // there may be copies since
	if err == nil {
		queue, err = lockQueue(ctx, cfg, srv)
	}
	if err != nil {
		return nil, nil, errors.Join(unlessStopped(ctx, err), srv.Close())
	}
	node, err = mn.Start(srv, mn.Config{Participants: srv.MaxCN(), Queue: queue})
	return srv, node, err
}

// alone returns an error if a memory node without replicas is to have a number that has copies: it would serve nothing.
func (cfg *MNConfig) alone(ctx context.Context, id fabric.MemID) error {
	if cfg.Memory.Replicas > 1 {
		return nil
	}
	info, err := cfg.Cluster.Describe(ctx)
	if err != nil {
		return nil // whoever asks next says so
	}
	for _, g := range info.Groups {
		if g.Number == id.String() {
			return exit.Errorf(exit.Mismatch, "%v has copies on other memory nodes, so this one would not serve it: start it with --replicas %d. To go back to one copy, stop those memory nodes and "+
				"give up what they have, with \"declock mn abandon --force %v\"", id, g.Replicas, id)
		}
	}
	return nil
}

// unlessStopped returns err; nil if ctx has ended: to be asked to stop is no error.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// forgetTimeout bounds how long a memory node that leaves for good waits for the acknowledgement of all others.
const forgetTimeout = 30 * time.Second

// forgotten takes a memory node that has left out of the cluster for good.
func forgotten(cfg MNConfig, id fabric.MemID) error {
	f, ok := cfg.Cluster.(scheme.Forgetter)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	if err := f.Forget(ctx, id); err != nil {
		return fmt.Errorf("%v has stopped, and the cluster still expects it back (\"declock forget %v\" says that it does not come): %w", id, id, err)
	}
	cfg.Log.Info("left for good", "node", id.String())
	return nil
}

// executed returns what was executed in the memory of a memory node, as its page has it: by itself, and by compute nodes of its machine.
func executed(c member.Counters) (s control.Seen) {
	s.NIC.ReadBytes, s.NIC.WriteBytes = c.ReadBytes+c.ByCPU.ReadBytes, c.WriteBytes+c.ByCPU.WriteBytes
	for _, ops := range []map[fabric.OpKind]uint64{c.Ops, c.ByCPU.Ops} {
		for kind, n := range ops {
			s.NIC.Ops[kind] += n
		}
	}
	return s
}

// serveMN says that the memory node serves, and waits for its end.
func serveMN(ctx context.Context, cfg MNConfig, srv scheme.Server, ready *readiness, w *web.Server, out io.Writer) error {
	log := cfg.Log.With("node", srv.ID().String(), "cluster", cfg.Cluster.Address())
	var counters func() member.Counters
	if s, ok := srv.(interface{ Stats() member.Counters }); ok {
		counters = s.Stats
	}
	m := func() fabric.Memory { return fabric.Memory{ID: srv.ID(), Size: srv.Size(), Epoch: srv.Epoch()} }
	var history page.History
	if counters != nil && w != nil {
		defer record(&history, func() control.Seen { return executed(counters()) })()
	}
	w.Show(func() any { return m() }, history.Memory(m, cfg.Cluster.Address(), counters != nil), metrics.MemoryNode(srv, cfg.Cluster.Scheme(), counters), metrics.Certificates(cfg.certificates))
	if err := announceMN(out, cfg.Cluster, srv, w); err != nil {
		return err
	}
	if s, ok := srv.(interface{ Away() error }); ok {
		ready.mu.Lock()
		ready.check = s.Away
		ready.mu.Unlock()
	}
	ready.ready()
	log.Info("serving", "size", srv.Size(), "epoch", srv.Epoch(), "http", w.Addr())
	var given <-chan struct{}
	ends, can := srv.(interface {
		Done() <-chan struct{}
		Err() error
	})
	if can {
		given = ends.Done()
	}
	select {
	case <-ctx.Done():
		ready.drain()
		log.Info("stopping")
		return nil
	case <-given:
		return fmt.Errorf("%v does not serve any more: %w", srv.ID(), cmp.Or(ends.Err(), fabric.ErrClosed))
	}
}

// lockQueue returns the length of lock queues to format with; 0: the memory node decides. All memory nodes
// of a cluster must have the same.
func lockQueue(ctx context.Context, cfg *MNConfig, srv scheme.Server) (int, error) {
	switch maxCN := srv.MaxCN(); {
	case cfg.LockQueue != 0 && cfg.LockQueue < maxCN:
		return 0, exit.Errorf(exit.Usage, "lock queues of %d entries for %d compute nodes: give at least as many", cfg.LockQueue, maxCN)
	case cfg.LockQueue != 0:
		return cfg.LockQueue, nil
	}
	// To ask others takes a number of a compute node for a moment: not if there are none.
	if info, err := cfg.Cluster.Describe(ctx); err == nil && !slices.ContainsFunc(info.Memory, func(m scheme.MemoryInfo) bool { return m.Alive && m.Node != srv.ID().String() }) {
		return 0, nil
	}
	node, err := cfg.Cluster.Visit(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking other memory nodes for the length of lock queues (--lock-queue says it here): %w", err)
	}
	defer node.Close()
	p, err := node.Open()
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var unread []error
	for _, m := range node.Memory() {
		r, err := memory.Reach(p, m.ID)
		if err == nil {
			return sameQueue(cfg.Memory.MaxCN, m.ID, 1<<r.CapacityLog2())
		}
		if m.ID != srv.ID() && !decidesNothing(err) {
			unread = append(unread, err)
		}
	}
	if len(unread) > 0 {
		return 0, fmt.Errorf("no other memory node says how long lock queues are (--lock-queue says it here): %w", errors.Join(unread...))
	}
	return 0, nil
}

// decidesNothing reports whether a memory node that cannot be opened leaves the length of lock queues to others: it is about to be formatted, or gone.
func decidesNothing(err error) bool {
	return errors.Is(err, memory.ErrNotFormatted) || errors.Is(err, memory.ErrHalfFormatted) || errors.Is(err, fabric.ErrNodeDown)
}

// sameQueue returns the length of another memory node's lock queues, and refuses a number of compute nodes that was asked for and has no room there.
func sameQueue(maxCN int, other fabric.MemID, entries int) (int, error) {
	if maxCN > entries {
		return 0, exit.Errorf(exit.Mismatch, "--max-cn %d needs lock queues of as many entries, and those of %v have %d: all memory nodes of a cluster have the same; "+
			"leave --max-cn out to have what the others have, or stop all memory nodes and start them with --max-cn %d", maxCN, other, entries, maxCN)
	}
	return entries, nil
}

func announceMN(out io.Writer, c scheme.Cluster, srv scheme.Server, w *web.Server) error {
	line := fmt.Sprintf("ready node=%v cluster=%s pid=%d size=%q epoch=%d", srv.ID(), c.Address(), os.Getpid(), units.Bytes(srv.Size()), srv.Epoch())
	for _, d := range srv.Details() {
		line += fmt.Sprintf(" %s=%q", d.Name, d.Value)
	}
	if w != nil {
		line += " http=" + w.Addr()
	}
	_, err := fmt.Fprintln(out, line)
	return err
}
