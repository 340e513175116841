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
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
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
	MaxCN   int
	Huge    shm.HugePolicy
	Path    string
	Keep    bool
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
	node, err := mn.Start(ctx, srv, mn.Config{
		MaxCN: maxCN(cfg.MaxCN),
		Join: func(ctx context.Context) (fabric.Node, error) {
			return shm.Join(ctx, shm.Options{Name: name, Dir: cfg.Dir})
		},
	})
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

func maxCN(n int) int {
	if n == 0 {
		return shm.DefaultMaxCN
	}
	return n
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
