package declock

import (
	"fmt"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// Option changes how Open joins a cluster.
type Option func(*options)

type options struct {
	policy string
	size   uint64
	dir    string
	cfg    cn.Config

	sessions, lockSessions int

	memoryLost func(fabric.MemID)
	copyRate   uint64
}

// WithPolicy chooses how locks pass between the clients of a compute node and
// those of others: one of hier.PolicyNames. All compute nodes of a cluster
// should have the same.
func WithPolicy(name string) Option { return func(o *options) { o.policy = name } }

// WithMemory sets the bytes of memory of a private cluster ("shm:"). Default 256 MiB;
// only what is used takes memory of the machine.
func WithMemory(bytes uint64) Option { return func(o *options) { o.size = bytes } }

// WithDir sets where the files of shm clusters are; default /dev/shm.
func WithDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithReport sets a function that is called with errors in the background. Default: none.
func WithReport(f func(error)) Option { return func(o *options) { o.cfg.Report = f } }

// WithOnLoss sets a function that is called with each lock that a session of this process holds, and that has been lost:
// its memory node has restarted, or the cluster has declared this compute node dead.
// Others may hold the lock before this process calls Unlock: after a restart of the memory node as soon as f has returned (with shm: when this
// process has unlocked it). Nothing that the session still writes to the lock's memory node arrives, but what it writes to other memory nodes after
// a restart does. So stop changing there, and outside of the cluster, what the lock protects when f is called, or let the
// resource refuse older fencing tokens (lock.Loss.Token). f is called by any goroutine, and must neither wait nor use the cluster;
// Unlock also fails with lock.ErrLost. f is called as soon as this process finds out, at a
// failed operation or within a second. A panic in f ends f only: it is reported (WithReport), or else logged.
func WithOnLoss(f func(lock.Loss)) Option { return func(o *options) { o.cfg.OnLoss = f } }

// WithOnMemoryLost sets a function that is called once for each memory node that has come back without its memory (ErrMemoryLost), before
// anything of this process reaches the new memory. f is called by any goroutine, and must neither wait nor use the cluster.
func WithOnMemoryLost(f func(fabric.MemID)) Option { return func(o *options) { o.memoryLost = f } }

// WithHoldWarning sets how long a lock should be held at most. A session that holds one for longer is reported
// to the function of WithReport, within a second or so (lock.ErrOverdue); the lock stays held. 0, the default: for ever.
func WithHoldWarning(d time.Duration) Option {
	return func(o *options) { o.cfg.HoldWarningNs = fabric.Time(d.Nanoseconds()) }
}

// WithSessions sets how many sessions the operations of a [Store] and a [Tree] use at a time, at most: as many are under way at
// once, and others wait for their turn. Each takes some 30 KB once it is used. Default 128.
func WithSessions(n int) Option { return func(o *options) { o.sessions = n } }

// WithLockSessions sets how many sessions [Cluster.Lock] and its like use at a time, at most: one for each lock that is held, each
// goroutine that waits for one, and each [Cluster.Use]. Each takes some 9 KB once it is used. Default 1024; fabrics admit some 4000 in a process.
func WithLockSessions(n int) Option { return func(o *options) { o.lockSessions = n } }

// WithCopyRate sets how many bytes a second this process copies at most to new backups of replicated memory nodes, when it is the compute node that does so: the one with the
// lowest number. Default 0: as fast as it goes.
func WithCopyRate(bytesPerSecond uint64) Option {
	return func(o *options) { o.copyRate = bytesPerSecond }
}

// applied returns the defaults with options.
func applied(opts []Option) (*options, error) {
	o := &options{policy: hier.DefaultPolicy, size: 256 << 20, sessions: defaultSessions, lockSessions: defaultLockSessions}
	for _, f := range opts {
		f(o)
	}
	policy, err := hier.ParsePolicy(o.policy)
	if err != nil {
		return nil, fmt.Errorf("declock: %w", err)
	}
	if o.sessions < 1 || o.lockSessions < 1 {
		return nil, fmt.Errorf("declock: WithSessions(%d), WithLockSessions(%d): want at least 1", o.sessions, o.lockSessions)
	}
	o.cfg.Policy, o.cfg.Flat = policy, policy.Kind == hier.Flat
	return o, nil
}
