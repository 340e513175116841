package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/page"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/web"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/internal/background"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/metrics"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces/memcached"
	"github.com/prometheus/client_golang/prometheus"
)

// CNConfig says how to run a compute node.
type CNConfig struct {
	Cluster scheme.Cluster
	Policy  string
	Procs   int // GOMAXPROCS; 0 leaves it, but for that of a server of clients of other systems
	// Wait is how long to wait for a cluster that is not there yet.
	Wait     time.Duration
	CopyRate uint64 // bytes a second to new backups, at most; 0: as fast as it goes
	// Memcached is how clients of memcached are served.
	Memcached Memcached
	// Redis is how clients of Redis are served.
	Redis Redis
	Options
}

// A CN is a compute node that serves the control protocol.
type CN struct {
	cfg       CNConfig
	cluster   *declock.Cluster
	started   time.Time
	srv       *control.Server
	readiness *readiness
	web       *web.Server
	history   page.History
	fronts    []*frontEnd // servers of clients of other systems
	metrics   *metrics.Compute
	look      background.Look[looks] // into memory nodes, for status
	fenced    int                    // how often the cluster has declared a compute node of this process dead

	job sync.Mutex // held by the replay that is under way

	mu   sync.Mutex
	done control.Counters // of replays that are over
	work *work            // of the replay that is under way
}

// RunCN runs a compute node until ctx ends. It writes one line to out when it can be reached.
func RunCN(ctx context.Context, cfg CNConfig, out io.Writer) (err error) {
	if n := cfg.procs(); n > 0 {
		runtime.GOMAXPROCS(n)
	}
	d := &CN{cfg: cfg, started: time.Now(), readiness: newReadiness()}
	if d.web, err = cfg.serveHTTP(d.readiness); err != nil {
		return err
	}
	defer d.web.Close()
	defer d.closeFronts()
	if err = errors.Join(d.serveMemcached(), d.serveRedis()); err != nil {
		return err
	}
	d.limitHeap(ctx)
	opts := []declock.Option{declock.WithReport(Report(cfg.Log)), declock.WithPolicy(cfg.Policy), declock.WithCopyRate(cfg.CopyRate)}
	if err = d.join(ctx, cfg.Wait, opts...); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for {
		err := d.serve(ctx, out)
		out = io.Discard // the line is written once
		if !errors.Is(err, errAnew) || ctx.Err() != nil {
			d.readiness.drain()
			d.closeFronts() // with the cluster, while it is there
			return errors.Join(err, d.leave())
		}
		// The process is sound: only this membership is over. What its clients had is lost, and they are notified.
		cfg.Log.Warn("joining again", "error", err.Error())
		d.readiness.set(err)
		if err := d.leave(); err != nil {
			cfg.Log.Warn("leaving", "error", err.Error())
		}
		if err := d.join(ctx, forever, opts...); err != nil {
			return nil // ctx has ended
		}
	}
}

// procs returns GOMAXPROCS; 0 leaves it. A server of clients of other systems spends half of its time in the kernel's network, and what waits for a thread that the kernel has
// taken the processor from waits long: it has twice as many threads as processors (docs/memcached.md), unless its user has said something else.
func (cfg *CNConfig) procs() int {
	if cfg.Procs == 0 && (cfg.Memcached.Listen != "" || cfg.Redis.Listen != "") && os.Getenv("GOMAXPROCS") == "" {
		return 2 * runtime.GOMAXPROCS(0)
	}
	return cfg.Procs
}

// serve serves until ctx ends, or the cluster has declared this compute node dead.
func (d *CN) serve(ctx context.Context, out io.Writer) (err error) {
	id, dir := d.cluster.Node().Fabric().ID(), d.cfg.Cluster.RunDir()
	path := filepath.Join(dir, control.SocketName(id.String()))
	d.srv = control.NewServer(d)
	if err = scheme.PrivateDir(dir); err != nil {
		return err
	}
	if err = d.srv.Listen(path); err != nil {
		return err
	}
	wait := d.cfg.Wait
	if d.fenced > 0 {
		wait = forever // it was a member
	}
	if err = d.cfg.await(ctx, wait, d.attachFronts); err != nil {
		return unlessStopped(ctx, err)
	}
	d.metrics = metrics.ComputeNode(d.cluster, d.storeStats)
	d.metrics.Fenced = d.fenced
	collectors, serves := []prometheus.Collector{d.metrics, metrics.Certificates(d.cfg.certificates)}, ""
	if len(d.fronts) > 0 {
		collectors = append(collectors, metrics.Front(d.counters))
	}
	for _, f := range d.fronts {
		serves += " " + f.name + "=" + f.addr()
	}
	if d.web != nil {
		serves += " http=" + d.web.Addr()
	}
	d.web.Show(func() any { return d.Status() }, d.history.Handler(d.Status), collectors...)
	if d.web != nil {
		defer record(&d.history, func() control.Seen {
			s, _, _ := d.seen(nil)
			return s
		})()
	}
	if _, err = fmt.Fprintf(out, "ready node=%v cluster=%s pid=%d policy=%s procs=%d control=%s%s\n",
		id, d.cfg.Cluster.Address(), os.Getpid(), d.cfg.Policy, runtime.GOMAXPROCS(0), path, serves); err != nil {
		return err
	}
	d.readiness.ready()
	d.cfg.Log.Info("joined", "node", id.String(), "cluster", d.cfg.Cluster.Address(), "policy", d.cfg.Policy, "http", d.web.Addr())
	err = d.watch(ctx)
	d.cfg.Log.Info("leaving", "node", id.String())
	return err
}

// record keeps what a page shows, until it is called off.
func record(h *page.History, see func() control.Seen) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			h.Add(see(), time.Now())
			select {
			case <-over:
				return
			case <-time.After(page.Every):
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// leave lets what is under way come to its end, gives memory back and leaves the cluster.
func (d *CN) leave() error {
	d.srv.Close()
	d.detachFronts()
	d.web.Hide()
	d.look.Wait() // no request asks for another any more
	if d.metrics != nil {
		d.metrics.Wait()
	}
	err := d.cluster.Close()
	if errors.Is(err, fabric.ErrFenced) {
		err = nil // no member any more: there is nothing to give back
	}
	control.Sweep(d.cfg.Cluster.RunDir())
	d.cfg.Log.Info("left")
	return err
}

// join joins the cluster, with as many attempts as wait allows.
func (d *CN) join(ctx context.Context, wait time.Duration, opts ...declock.Option) error {
	return d.cfg.await(ctx, wait, func() (err error) {
		d.cluster, err = Open(ctx, d.cfg.Cluster, opts...)
		return err
	})
}

// Open joins a cluster and starts a compute node.
func Open(ctx context.Context, c scheme.Cluster, opts ...declock.Option) (*declock.Cluster, error) {
	f, err := c.Join(ctx)
	if err != nil {
		return nil, err
	}
	return declock.OpenNode(f, opts...)
}

// Replay implements control.Handler.
func (d *CN) Replay(ctx context.Context, spec *control.Replay, job *control.Job) (*control.Result, error) {
	if !d.job.TryLock() {
		return nil, exit.Errorf(exit.Busy, "%v has a replay under way", d.cluster.Node().Fabric().ID())
	}
	defer d.job.Unlock()
	if n := d.cluster.Node().Layout().Capacity(); d.flat() && spec.Target == "" && uint64(spec.Total) > n {
		return nil, exit.Errorf(exit.Usage, "%d clients, and the queue of a lock has %d entries: without hierarchy (--lock %s) every client needs one; "+
			"take less clients, or start the memory node with a larger --lock-queue", spec.Total, n, d.cfg.Policy)
	}
	open := opener(d.openClient)
	if spec.Target != "" {
		open = dialer(spec.Target)
	} else if err := d.openStore(ctx, spec); err != nil {
		return nil, err
	}
	w, err := newWork(ctx, spec, open)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.work = w
	d.mu.Unlock()
	before := d.cluster.Node().Agent().Counted()
	res := w.run(job)
	res.Resets = d.cluster.Node().Agent().Counted()
	stats.Subtract(&res.Resets, &before)
	d.mu.Lock()
	total := w.total()
	stats.Add(&d.done, &total)
	d.work = nil
	d.mu.Unlock()
	return res, nil
}

// flat reports whether every client takes part in lock queues itself.
func (d *CN) flat() bool {
	p, err := hier.ParsePolicy(d.cfg.Policy)
	return err == nil && p.Kind == hier.Flat
}

// openStore opens the store before any client does, so that its errors come once.
func (d *CN) openStore(ctx context.Context, spec *control.Replay) error {
	st, err := d.cluster.Store(ctx, spec.Store, storeConfig(spec))
	if err == nil && uint64(st.MaxValue()) != spec.MaxValue {
		err = fmt.Errorf("%w: %q takes values to %d B, not %d", objstore.ErrGeometry, spec.Store, st.MaxValue(), spec.MaxValue)
	}
	if err == nil && spec.Limit != 0 && st.MemoryLimit() != spec.Limit {
		err = fmt.Errorf("%w: %q has a memory limit of %d B, not %d", objstore.ErrGeometry, spec.Store, st.MemoryLimit(), spec.Limit)
	}
	if err == nil && spec.OpenSlots && !st.OpenSlots() {
		err = fmt.Errorf("%w: %q was made without open slots, or has segments", objstore.ErrGeometry, spec.Store)
	}
	if errors.Is(err, objstore.ErrGeometry) {
		return exit.Errorf(exit.Mismatch, "%w; give another --store, or the --max-value, --limit and --open-slots that it was made with", err)
	}
	return err
}

func storeConfig(spec *control.Replay) declock.StoreConfig {
	return declock.StoreConfig{Objects: spec.Objects, MaxValue: uint32(min(spec.MaxValue, 1<<32-1)), MemoryLimit: spec.Limit, OpenSlots: spec.OpenSlots}
}

// clientOf opens a client of a store. Memory that was lost before is no error for a client that had nothing there. It waits while the store is
// made again.
func clientOf(ctx context.Context, st *declock.Store, s *declock.Session) (c *objstore.Client, err error) {
	for limit := time.Now().Add(lookFor); ; {
		c, err = st.Client(s)
		if !errors.Is(err, declock.ErrMemoryLost) || ctx.Err() != nil || !time.Now().Before(limit) {
			return c, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// drain gives free memory back. What was lost needs no giving back; what lies on other memory nodes is there still.
func drain(c *objstore.Client) error {
	err := c.Drain()
	if errors.Is(err, declock.ErrMemoryLost) {
		err = c.Drain()
	}
	if errors.Is(err, declock.ErrMemoryLost) {
		return nil // it is not there again yet
	}
	return err
}

// dialer returns a function that connects a client to a target that is not the cluster's.
func dialer(target string) opener {
	return func(context.Context, *control.Replay) (*client, error) {
		c, err := memcached.DialTarget(target, memcached.Options{})
		if err != nil {
			return nil, exit.With(exit.NoTarget, err)
		}
		return &client{cache: c, counters: func() control.Counters { return control.Counters{} }, close: c.Close}, nil
	}
}

func (d *CN) openClient(ctx context.Context, spec *control.Replay) (*client, error) {
	s, err := d.cluster.Session()
	if err != nil {
		return nil, err
	}
	st, err := d.cluster.Store(ctx, spec.Store, storeConfig(spec))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	c, err := clientOf(ctx, st, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	timed := &timedClient{Client: c}
	return &client{
		cache: timed,
		counters: func() control.Counters {
			return control.Counters{Locks: *s.Locker().Stats(), NIC: *s.Port().Stats(), Store: *c.Stats(), Gets: timed.gets.Timed(), Stores: timed.sets.Timed()}
		},
		interrupt: s.Port().Interrupt,
		resume:    s.Port().ClearInterrupt,
		drain:     func() error { return drain(c) },
		close: func() error {
			c.Close()
			return s.Close()
		},
	}, nil
}
