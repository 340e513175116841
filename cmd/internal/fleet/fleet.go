package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric/shm"
)

// DefaultProcs is GOMAXPROCS of a compute node of an embedded cluster: there are more of them than cores.
const DefaultProcs = 1

// Config says what to start.
type Config struct {
	Cluster scheme.Cluster
	// Network are the flags by which a process finds the cluster and is let in.
	Network []string
	// Memory are the flags of memory nodes, which are numbered from 0; none: they are there already.
	Memory [][]string
	// Replicated memory nodes have copies: the cluster goes on without some of them.
	Replicated bool
	CNs        int
	Policy     string
	Procs      int // GOMAXPROCS of each compute node; 0: DefaultProcs, or what one chooses that serves clients of other systems
	// Memcached is where the first compute node serves clients of memcached, HOST:PORT; the others have the ports behind it. Empty: none does.
	Memcached string
	// Redis is the same for clients of Redis.
	Redis string
	// RedisMaxValue is the largest value of its store, if that is made; 0 is the default.
	RedisMaxValue uint64
	// HTTP has all nodes serve pages for people, at any port of the loopback.
	HTTP bool
	// Messages gets what the children say.
	Messages io.Writer
	// Remove removes what is left when all have gone; may be nil.
	Remove func() error
	// Profile is a directory for CPU profiles of the compute nodes; empty: none.
	Profile string
}

// A Fleet is processes of this program that are nodes of a cluster.
type Fleet struct {
	cfg Config
	MNs []*Child // that are ours
	CNs []*Child
}

// Address returns the cluster's address.
func (f *Fleet) Address() string { return f.cfg.Cluster.Address() }

// RunDir is where the control sockets of the cluster's nodes are.
func (f *Fleet) RunDir() string { return f.cfg.Cluster.RunDir() }

// Launch starts memory nodes and compute nodes. If it fails, nothing is left, and Config.Remove has been called.
func Launch(ctx context.Context, cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg}
	serve, err := ports("memcached", cfg.Memcached, cfg.CNs)
	redis, errRedis := ports("redis", cfg.Redis, cfg.CNs)
	if err = errors.Join(err, errRedis); err != nil {
		return nil, errors.Join(err, f.removeAll())
	}
	common := append([]string{"--cluster", f.Address(), "--parent-pipe"}, cfg.Network...)
	if cfg.HTTP {
		common = append(common, "--http", "127.0.0.1:0")
	}
	for i, flags := range cfg.Memory { // one after the other: each looks at how those before are formatted
		name := "memory node"
		if len(cfg.Memory) > 1 {
			name = fmt.Sprintf("memory node %d", i)
		}
		c, err := Start(ctx, name, slices.Concat([]string{control.MNCommand, "--mem", strconv.Itoa(i)}, flags, common), cfg.Messages)
		if err != nil {
			f.Stop()
			return nil, err
		}
		f.MNs = append(f.MNs, c)
	}
	if cfg.Procs == 0 && serve == nil && redis == nil {
		cfg.Procs = DefaultProcs
	}
	f.CNs = make([]*Child, cfg.CNs)
	errs := make([]error, cfg.CNs)
	var wg sync.WaitGroup
	for i := range f.CNs {
		wg.Go(func() {
			args := append([]string{control.CNCommand, "--lock", cfg.Policy, "--procs", strconv.Itoa(cfg.Procs)}, common...)
			if serve != nil {
				args = append(args, "--memcached", serve[i])
			}
			if redis != nil {
				args = append(args, "--redis", redis[i])
				if cfg.RedisMaxValue > 0 {
					args = append(args, "--redis-max-value", strconv.FormatUint(cfg.RedisMaxValue, 10))
				}
			}
			if cfg.Profile != "" {
				args = append(args, "--cpuprofile", filepath.Join(cfg.Profile, fmt.Sprintf("cn%d.prof", i+1)))
			}
			f.CNs[i], errs[i] = Start(ctx, fmt.Sprintf("compute node %d", i+1), args, cfg.Messages)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			f.Stop()
			return nil, err
		}
	}
	return f, nil
}

// ports returns where n compute nodes serve clients of another system: from an address on, or all at any port if that has port 0; or at unix sockets, PATH, PATH.2, PATH.3, and so on.
func ports(flag, at string, n int) (list []string, err error) {
	if at == "" {
		return nil, nil
	}
	if strings.Contains(at, "/") { // the path of a unix socket
		list = append(list, at)
		for i := 2; i <= n; i++ {
			list = append(list, fmt.Sprintf("%s.%d", at, i))
		}
		return list, nil
	}
	host, port, err := net.SplitHostPort(at)
	var first int
	if err == nil {
		first, err = net.LookupPort("tcp", port)
	}
	if err == nil && first+n-1 > 1<<16-1 {
		err = fmt.Errorf("there are no %d ports from %d on", n, first)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--%s %q: want host:port, or the path of a unix socket: %w", flag, at, err)
	}
	for i := range n {
		if first == 0 {
			i = 0
		}
		list = append(list, net.JoinHostPort(host, strconv.Itoa(first+i)))
	}
	return list, nil
}

// Children returns all processes.
func (f *Fleet) Children() []*Child {
	return slices.Concat(f.MNs, f.CNs)
}

// MemoryLost returns how one of the memory nodes ended, if the cluster does not go on without it; nil: it goes on.
func (f *Fleet) MemoryLost() error {
	var ended []error
	for _, c := range f.MNs {
		if err := c.Died(); err != nil {
			ended = append(ended, err)
		}
	}
	if len(ended) == 0 || f.cfg.Replicated && len(ended) < len(f.MNs) {
		return nil
	}
	return ended[0]
}

// Stop takes all processes down and removes what they leave behind.
func (f *Fleet) Stop() {
	var wg sync.WaitGroup
	for _, c := range f.CNs {
		if c != nil {
			wg.Go(c.Stop)
		}
	}
	wg.Wait()
	for _, c := range f.MNs {
		wg.Go(c.Stop)
	}
	wg.Wait()
	control.Sweep(f.cfg.Cluster.RunDir())
	_ = f.removeAll()
}

// removeAll calls Config.Remove.
func (f *Fleet) removeAll() error {
	if f.cfg.Remove == nil {
		return nil
	}
	return f.cfg.Remove()
}

// Remove removes what is left of an shm cluster that is dead. It returns an error
// if it is alive.
func Remove(dir, name string) error {
	path := scheme.SHM(name, dir).RunDir()
	err := shm.Remove(dir, name)
	if err == nil || !errors.Is(err, shm.ErrInUse) {
		control.Sweep(path)
	}
	if _, serr := os.Stat(path); serr != nil {
		return nil
	}
	return err
}

// Sockets returns the control sockets of the compute nodes.
func (f *Fleet) Sockets() (list []string) {
	for _, c := range f.CNs {
		list = append(list, c.Ready["control"])
	}
	return list
}

// Connect connects to compute nodes by their control sockets. Dead ones are an error, or are passed over.
func Connect(ctx context.Context, sockets []string, passDead bool) (list []*Member, err error) {
	for _, path := range sockets {
		conn, err := control.Dial(ctx, path)
		switch {
		case passDead && errors.Is(err, syscall.ECONNREFUSED):
		case err != nil:
			for _, m := range list {
				_ = m.Client.Close()
			}
			return nil, err
		default:
			list = append(list, &Member{Name: strings.TrimSuffix(filepath.Base(path), ".sock"), Client: conn})
		}
	}
	// By name, with numbers by value.
	slices.SortFunc(list, func(a, b *Member) int { return cmp.Or(len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name)) })
	return list, nil
}
