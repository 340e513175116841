package shm

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/declock/declock/fabric"
)

const (
	// DefaultDir is where clusters are.
	DefaultDir = "/dev/shm"
	// DefaultMaxCN is how many compute nodes a cluster may have at a time.
	DefaultMaxCN = 16
	// MaxMN is how many memory nodes a cluster may have.
	MaxMN = 64

	minLease = 100 * time.Millisecond

	dirPrefix     = "declock-"
	maxNameLength = 64
)

// HugePolicy says whether a memory node uses huge pages.
type HugePolicy uint8

const (
	HugeOff     HugePolicy = iota // 4 KiB pages
	HugeTry                       // huge pages if there are any: see MemoryServer.Huge
	HugeRequire                   // ErrNoHuge if there are none
)

// Options of Serve and Join.
type Options struct {
	// Name is the cluster: 1 to 64 letters, digits, '-', '_' and '.'.
	Name string
	// Dir is where the cluster's directory is; DefaultDir if empty. It should
	// be on a memory file system.
	Dir string
	// Key is the access key of the cluster's memory. 0 means the key in the
	// cluster's own file, which only the user that created it can read. Serve
	// of a new cluster with key 0 draws one.
	Key uint64

	// What follows is for Serve.

	// MaxCN is how many compute nodes the cluster may have at a time;
	// DefaultMaxCN if 0. The first memory node sets it.
	MaxCN int
	// Mem is the number of the memory node, less than MaxMN.
	Mem fabric.MemID
	// Size of the memory in bytes. It is rounded up to whole pages. 0 is right
	// where Keep finds memory or Path is a device.
	Size uint64
	// Path is the file or device that holds the memory, for example on
	// hugetlbfs or a DAX device. It implies Keep, and nothing ever removes it: to
	// start anew, remove the file. Empty: a file in the cluster's directory.
	Path string
	// Huge is the policy for huge pages.
	Huge HugePolicy
	// Sparse takes memory only when it is touched. When its file system is
	// full then, the memory node is down (ErrTruncated). For tests and experiments.
	Sparse bool
	// Lease is how long the process of a compute node may not run (it is stopped, or starved)
	// before this memory node kills it: only then can others have its locks. Compute nodes that join
	// after the first memory node with a Lease take part. 0: they live as long as their processes exist. At least 100 ms.
	Lease time.Duration
	// Report is called with processes that were killed, and with why one could not be. It may be nil.
	Report func(error) `json:"-"`
	// Keep lets the memory outlive its server: what an earlier server left is
	// served again, with a new epoch, and Close leaves it there. Without
	// Keep and Path memory starts zeroed and is removed at Close.
	Keep bool
}

// check validates what Serve and Join have in common and fills in defaults.
func (o *Options) check() error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	return nil
}

func (o *Options) checkServe() error {
	if err := o.check(); err != nil {
		return err
	}
	switch {
	case o.MaxCN < 0 || o.MaxCN > int(fabric.MaxCN):
		return fmt.Errorf("%w: MaxCN is %d, must be 1 to %d", ErrOptions, o.MaxCN, fabric.MaxCN)
	case o.Mem >= MaxMN:
		return fmt.Errorf("%w: memory node %d, must be less than %d", ErrOptions, o.Mem, MaxMN)
	case o.Size > fabric.MaxOffset:
		return fmt.Errorf("%w: size %d is more than an address can name", ErrOptions, o.Size)
	case o.Huge > HugeRequire:
		return fmt.Errorf("%w: Huge is %d", ErrOptions, o.Huge)
	case o.Lease < 0 || o.Lease > 0 && o.Lease < minLease:
		return fmt.Errorf("%w: a lease of %v, must be at least %v", ErrOptions, o.Lease, minLease)
	case o.Path != "" && !filepath.IsAbs(o.Path):
		return fmt.Errorf("%w: path %q must be absolute, other processes use it too", ErrOptions, o.Path)
	case strings.ContainsAny(o.Path, "\n"):
		return fmt.Errorf("%w: path %q contains a newline", ErrOptions, o.Path)
	}
	o.Keep = o.Keep || o.Path != ""
	return nil
}

func checkName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || len(name) > maxNameLength || name[0] == '.' || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("%w: %q (1 to %d letters, digits, '-', '_' and '.', not starting with '.')",
			ErrName, name, maxNameLength)
	}
	return nil
}

// clusterDir returns the directory of a cluster.
func clusterDir(dir, name string) string { return filepath.Join(dir, dirPrefix+name) }
