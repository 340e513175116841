package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric/shm"
	"github.com/urfave/cli/v2"
)

// An embedded cluster lives as long as the command that started it.
type embedded struct {
	fabric                            string // shm or tcp
	name, dir, runDir                 string
	huge, policy, profile             string
	mns, cns, procs, maxCN, lockQueue int
	size                              uint64
}

// fabricChoice is what an embedded cluster can be over.
func fabricChoice() choice { return choice{"shm", []string{"shm", "tcp"}} }

// onlySHM refuses flags that mean nothing for an embedded cluster over another fabric.
func onlySHM(c *cli.Context, over string) error {
	if over == "shm" {
		return nil
	}
	for _, name := range []string{"dir", "huge"} {
		if c.IsSet(name) {
			return usage(c, "--%s means nothing with --fabric %s", name, over)
		}
	}
	return nil
}

// launch starts it.
func (e *embedded) launch(ctx context.Context, messages io.Writer) (*fleet.Fleet, error) {
	cfg := fleet.Config{CNs: e.cns, Policy: e.policy, Procs: e.procs, Messages: messages, Profile: e.profile}
	for range e.mns {
		cfg.Memory = append(cfg.Memory, []string{"--size", strconv.FormatUint(e.size, 10), "--max-cn", strconv.Itoa(e.maxCN),
			"--lock-queue", strconv.Itoa(e.lockQueue), "--huge", e.huge})
	}
	if e.fabric == "tcp" {
		return e.launchTCP(ctx, cfg)
	}
	cfg.Cluster = scheme.SHM(e.name, e.dir)
	cfg.Remove = func() error { return fleet.Remove(e.dir, e.name) }
	if e.dir != "" {
		cfg.Network = []string{"--dir", e.dir}
	}
	return fleet.Launch(ctx, cfg)
}

// patience is how long nodes of an embedded cluster wait for its etcd, which is there, but may be slow on a busy machine.
const patience = time.Minute

// launchTCP starts an etcd first, in this process. Each memory node looks whether its own memory fits, which it takes when it is touched; all of
// them together must fit, too.
func (e *embedded) launchTCP(ctx context.Context, cfg fleet.Config) (*fleet.Fleet, error) {
	if err := machine.Look().Ever.Fits(min(uint64(e.mns)*(e.size>>10), math.MaxUint64>>10) << 10); err != nil {
		return nil, err
	}
	etcd, err := fleet.StartEtcd(ctx, filepath.Join(etcdBase(e.runDir), e.name))
	if exit.Of(err) == exit.InUse {
		return nil, exit.Errorf(exit.InUse, "a cluster %s over tcp is running already (%w): take another --name, or stop it", e.name, err)
	}
	if err != nil {
		return nil, err
	}
	cfg.Cluster, err = scheme.Parse("tcp://"+etcd.Socket()+"/"+e.name, scheme.Options{RunDir: e.runDir, Insecure: true})
	if err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	cfg.Remove = etcd.Close
	cfg.Network = []string{"--insecure", "--listen", "127.0.0.1:0", "--wait", patience.String()}
	if e.runDir != "" {
		cfg.Network = append(cfg.Network, "--run-dir", e.runDir)
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

// refuseAlive refuses to become a part of somebody else's cluster.
func (e *embedded) refuseAlive() error {
	if e.fabric != "shm" {
		return nil // its etcd refuses
	}
	info, err := shm.Inspect(e.dir, e.name)
	if err == nil && info.Alive() {
		return exit.Errorf(exit.InUse, "cluster shm:%s is running already: take another --name, or stop it; \"declock status\" shows who it is", e.name)
	}
	return nil
}

// removeDead removes what is left of embedded clusters that died, by the prefix of their names.
func removeDead(dir, runDir, prefix string) (removed []string) {
	for _, name := range fleet.RemoveDead(dir, prefix) {
		removed = append(removed, "shm:"+name)
	}
	return append(removed, fleet.RemoveDeadEtcds(etcdBase(runDir), prefix)...)
}
