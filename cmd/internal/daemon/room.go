package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/scheme"
	"golang.org/x/sys/unix"
)

// fits refuses memory that the machine, or the control group, does not have: taken at once it would be this process's end or that of another, and
// taken when it is touched, later.
func (cfg *MNConfig) fits(ctx context.Context, have machine.Memory) error {
	m := &cfg.Memory
	switch {
	case cfg.Overcommit || m.Size == 0, m.Path != "" && !takesMemory(m.Path), m.Huge != scheme.HugeOff && have.HugeFree >= m.Size:
		return nil
	case cfg.Cluster.Scheme() == "tcp" && m.Path == "":
		return have.Ever.Fits(m.Size) // it is taken when it is touched
	}
	room := have.Now
	if cfg.Cluster.Scheme() == "shm" {
		room.Bytes += left(ctx, cfg.Cluster)
	}
	return room.Fits(m.Size)
}

// left returns how much memory nodes that are dead have left in shared memory: it is served again, or given back when the next one starts.
func left(ctx context.Context, c scheme.Cluster) (bytes uint64) {
	info, err := c.Describe(ctx)
	if err != nil {
		return 0
	}
	for _, m := range info.Memory {
		if !m.Alive {
			bytes += m.Size
		}
	}
	return bytes
}

// takesMemory reports whether a file that is yet to be made is on a memory file system.
func takesMemory(path string) bool {
	var st unix.Statfs_t
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) && unix.Statfs(filepath.Dir(path), &st) == nil && st.Type == unix.TMPFS_MAGIC
}
