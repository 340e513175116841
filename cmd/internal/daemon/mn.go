package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/region"
)

// ClusterName returns the name of an shm cluster's address.
func ClusterName(address string) (string, error) {
	scheme, name, ok := strings.Cut(address, ":")
	switch {
	case !ok:
		return "", fmt.Errorf("%w: %q: want shm:NAME", declock.ErrAddress, address)
	case scheme != "shm":
		return "", fmt.Errorf("%w: %q: no fabric %q: want shm:NAME", declock.ErrAddress, address, scheme)
	case name == "":
		return "", fmt.Errorf("%w: %q has no name: want shm:NAME", declock.ErrAddress, address)
	}
	return name, nil
}

// ClusterDir returns the directory of an shm cluster.
func ClusterDir(dir, name string) string {
	if dir == "" {
		dir = shm.DefaultDir
	}
	return filepath.Join(dir, "declock-"+name)
}

// MNConfig says how to run a memory node.
type MNConfig struct {
	Address string
	Dir     string
	Mem     fabric.MemID
	Size    uint64
	// MaxCN is how many compute nodes there may be; 0 is what the cluster has, or shm's default.
	MaxCN int
	// LockQueue is how many entries the queue of a lock has: at least MaxCN; where locks have no
	// hierarchy, at least the clients. 0 is what other memory nodes have, or MaxCN.
	LockQueue int
	Huge      shm.HugePolicy
	Path      string
	Keep      bool
	// Sparse takes memory when it is touched only.
	Sparse bool
}

// RunMN runs a memory node until ctx ends. It writes one line to out when it
// serves. Meanwhile it sleeps: stopping the process slows nobody.
func RunMN(ctx context.Context, cfg MNConfig, out io.Writer) error {
	name, err := ClusterName(cfg.Address)
	if err != nil {
		return err
	}
	control.Sweep(ClusterDir(cfg.Dir, name)) // of a cluster that died
	o := shm.Options{
		Name: name, Dir: cfg.Dir, Mem: cfg.Mem, Size: cfg.Size, MaxCN: cfg.MaxCN,
		Huge: cfg.Huge, Path: cfg.Path, Keep: cfg.Keep, Sparse: cfg.Sparse,
	}
	srv, err := shm.Serve(o)
	if err != nil {
		return err
	}
	join := func(ctx context.Context) (fabric.Node, error) {
		return shm.Join(ctx, shm.Options{Name: name, Dir: cfg.Dir})
	}
	queue, err := lockQueue(ctx, cfg, name, join)
	if err != nil {
		return errors.Join(err, srv.Close())
	}
	node, err := mn.Start(ctx, srv, mn.Config{Participants: queue, Join: join})
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while it started
		}
		return err
	}
	err = announceMN(out, cfg.Address, srv)
	if err == nil {
		<-ctx.Done()
	}
	err = errors.Join(err, node.Close())
	control.Sweep(ClusterDir(cfg.Dir, name))
	return err
}

// lockQueue returns the length of lock queues to format with. All memory nodes
// of a cluster must have the same.
func lockQueue(ctx context.Context, cfg MNConfig, name string, join func(context.Context) (fabric.Node, error)) (int, error) {
	info, err := shm.Inspect(cfg.Dir, name)
	switch {
	case err != nil:
		return 0, err
	case cfg.LockQueue != 0 && cfg.LockQueue < info.MaxCN:
		return 0, exit.Errorf(exit.Usage, "lock queues of %d entries for %d compute nodes: give at least as many", cfg.LockQueue, info.MaxCN)
	case cfg.LockQueue != 0:
		return cfg.LockQueue, nil
	}
	node, err := join(ctx)
	if err != nil {
		return 0, err
	}
	defer node.Close()
	p, err := node.Open()
	if err != nil {
		return 0, err
	}
	defer p.Close()
	for _, m := range node.Memory() {
		// What cannot be opened is our own, or is about to be formatted, or gone: it decides nothing.
		if r, err := region.Open(p, m.ID); err == nil {
			return 1 << r.CapacityLog2(), nil
		}
	}
	return info.MaxCN, nil
}

func announceMN(out io.Writer, address string, srv *shm.MemoryServer) error {
	huge, why := srv.Huge()
	switch {
	case huge == "" && why == "":
		huge = "off"
	case huge == "":
		huge = "none (" + why + ")"
	}
	_, err := fmt.Fprintf(out, "ready node=%v cluster=%s pid=%d size=%q epoch=%d memory=%s huge=%q\n",
		srv.ID(), address, os.Getpid(), units.Bytes(srv.Size()), srv.Epoch(), srv.Path(), huge)
	return err
}
