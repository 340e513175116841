package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/overtcp"
	"github.com/urfave/cli/v2"
)

// An Embedded cluster lasts as long as the command that started it.
type Embedded struct {
	Fabric                            string // shm or tcp
	Name, dir, RunDir                 string
	Huge, policy, profile             string
	pages                             bool   // all nodes serve them
	memcached, redis                  string // of the first compute node; the others have the ports behind it
	redisMaxValue                     uint64 // of a store that is made
	Mns, cns, procs, MaxCN, lockQueue int
	Replicas                          int // of each memory node; 0: 1
	minInSync                         int // of them; 0: 1
	silentAfter                       time.Duration
	Local                             bool // over tcp, compute nodes reach the memory by their own CPUs (docs/local.md)
	Size                              uint64
}

// fabricFlag returns --fabric: what an embedded cluster is over.
func (e *Embedded) fabricFlag(usage string) cli.Flag {
	return command.ChoiceFlag(&e.Fabric, "fabric", "shm", usage, "shm", "tcp")
}

// onlySHM refuses flags that mean nothing for an embedded cluster over another fabric.
func (e *Embedded) onlySHM(c *cli.Context) error {
	if e.Fabric == "shm" {
		return nil
	}
	for _, name := range []string{"dir", "huge"} {
		if c.IsSet(name) {
			return command.Usage(c, "--%s means nothing with --fabric %s", name, e.Fabric)
		}
	}
	return nil
}

// Launch starts it.
func (e *Embedded) Launch(ctx context.Context, messages io.Writer) (*fleet.Fleet, error) {
	cfg := fleet.Config{CNs: e.cns, Policy: e.policy, Procs: e.procs, Messages: messages, Profile: e.profile, Memcached: e.memcached, Redis: e.redis, RedisMaxValue: e.redisMaxValue, HTTP: e.pages}
	for range e.Mns {
		flags := []string{"--size", strconv.FormatUint(e.Size, 10), "--max-cn", strconv.Itoa(e.MaxCN),
			"--lock-queue", strconv.Itoa(e.lockQueue), "--huge", e.Huge}
		if e.Replicas > 1 {
			flags = append(flags, "--replicas", strconv.Itoa(e.Replicas), "--min-in-sync", strconv.Itoa(max(1, e.minInSync)))
		}
		cfg.Memory = append(cfg.Memory, flags)
	}
	cfg.Replicated = e.Replicas > 1
	if e.Fabric == "tcp" {
		return e.launchTCP(ctx, cfg)
	}
	cfg.Cluster = scheme.SHM(e.Name, e.dir)
	cfg.Remove = func() error { return fleet.Remove(e.dir, e.Name) }
	if e.dir != "" {
		cfg.Network = []string{"--dir", e.dir}
	}
	return fleet.Launch(ctx, cfg)
}

// patience is how long nodes of an embedded cluster wait for its etcd, which is there, but may be slow on a busy machine.
const patience = time.Minute

// launchTCP starts an etcd first, in this process. Each memory node looks whether its own memory fits, which it takes when it is touched; all of
// them together must fit, too.
func (e *Embedded) launchTCP(ctx context.Context, cfg fleet.Config) (*fleet.Fleet, error) {
	if err := machine.Look().Ever.Fits(min(uint64(e.Mns)*(e.Size>>10), math.MaxUint64>>10) << 10); err != nil {
		return nil, err
	}
	etcd, err := fleet.StartEtcd(ctx, filepath.Join(etcdBase(e.RunDir), e.Name))
	if exit.Of(err) == exit.InUse {
		return nil, exit.Errorf(exit.InUse, "a cluster %s over tcp is running already (%w): take another --name, or stop it", e.Name, err)
	}
	if err != nil {
		return nil, err
	}
	cfg.Cluster, err = scheme.Parse("tcp://"+etcd.Socket()+"/"+e.Name, scheme.Options{RunDir: e.RunDir, Options: overtcp.Options{Insecure: true}})
	if err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	cfg.Remove = etcd.Close
	cfg.Network = []string{"--insecure", "--listen", "127.0.0.1:0", "--wait", patience.String()}
	if e.Local {
		cfg.Network = append(cfg.Network, "--local")
	}
	if e.silentAfter != 0 {
		cfg.Network = append(cfg.Network, "--silent-after", e.silentAfter.String())
	}
	if e.RunDir != "" {
		cfg.Network = append(cfg.Network, "--run-dir", e.RunDir)
	}
	return fleet.Launch(ctx, cfg)
}

// etcdBase is where the etcds of embedded clusters are: not where control sockets are, which may be in memory.
func etcdBase(runDir string) string {
	if runDir != "" {
		return filepath.Join(runDir, "up")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("declock-up-%d", os.Getuid()))
}

// refuseAlive refuses to join a cluster that another process has started.
func (e *Embedded) refuseAlive() error {
	if e.Fabric != "shm" {
		return nil // its etcd refuses
	}
	info, err := shm.Inspect(e.dir, e.Name)
	if err == nil && info.Alive() {
		return exit.Errorf(exit.InUse, "cluster shm:%s is running already: take another --name, or stop it; \"declock status\" shows it", e.Name)
	}
	return nil
}

// RemoveKilled removes what is left of clusters that replay had started for itself when it was killed.
func RemoveKilled(dir, runDir string) []string {
	removed, _ := removeDead(dir, embeddedPrefix, func(string) {}) // the next one tries again
	return append(removed, fleet.RemoveDeadEtcds(etcdBase(runDir), embeddedPrefix)...)
}

// removeDead removes what is left of dead clusters over shared memory, by the prefix of their names, but for those whose memory is to be kept: kept is
// called with these.
func removeDead(dir, prefix string, kept func(name string)) (removed []string, err error) {
	names, err := clusterNames(dir)
	errs := []error{err}
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		// One that is just being started may look dead: the process that starts it tries again when it is removed.
		info, err := shm.Inspect(dir, name)
		switch {
		case err != nil || info.Alive():
			continue
		case slices.ContainsFunc(info.Memory, func(m shm.MemoryInfo) bool { return m.Keep }):
			kept(name)
			continue
		}
		switch err := fleet.Remove(dir, name); {
		case err == nil:
			removed = append(removed, "shm:"+name)
		case exit.Of(err) != exit.InUse: // else it has come to life
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}
