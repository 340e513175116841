package machine

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
)

const meminfo = "MemTotal:       1000 kB\nMemFree:   10 kB\nMemAvailable:   600 kB\nSwapTotal:  100 kB\nSwapFree:  50 kB\n"

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		what      string
		files     map[string]string
		now, ever uint64
		whose     string // of now
	}{
		{"nothing is known", nil, math.MaxUint64, math.MaxUint64, ""},
		{"a machine", map[string]string{"proc/meminfo": meminfo}, 650 << 10, 1100 << 10, "available on this machine"},
		{"an old kernel", map[string]string{"proc/meminfo": "MemTotal: 1000 kB\n"}, 1000 << 10, 1000 << 10, "this machine has in all"},
		{"version 2, no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
			650 << 10, 1100 << 10, "available on this machine"},
		{"version 2", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.max": "300000\n", "sys/fs/cgroup/a/memory.current": "100000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\nfile 60000\ninactive_file 40000\nactive_file 10000\nshmem 10000\n"}, 250000, 300000, "sys/fs/cgroup/a"},
		{"a container, where its group is the root", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000\n",
			"sys/fs/cgroup/memory.current": "9000\n"}, 0, 5000, "sys/fs/cgroup"},
		{"version 1, mounted from its root", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "2000\n",
			"sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 500\n"}, 6000, 7000, "left in"},
		{"version 1, no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 650 << 10, 1100 << 10, "available on this machine"},
		{"other controllers, and nonsense", map[string]string{"proc/meminfo": "MemTotal: x kB\n\nz\n", "proc/self/cgroup": "x\n4:cpu:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1\n"}, math.MaxUint64, math.MaxUint64, ""},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := look(root)
		if m.Now.Bytes != c.now || m.Ever.Bytes != c.ever || !strings.Contains(m.Now.Whose, c.whose) {
			t.Errorf("%s: %+v; want %d, %d, %q", c.what, m, c.now, c.ever, c.whose)
		}
	}
	if m := Look(); m.Now.Bytes == 0 || m.Now.Bytes > m.Ever.Bytes || m.Ever.Bytes > 1<<50 {
		t.Errorf("here: %+v", m)
	}
}

func TestFits(t *testing.T) {
	l := Limit{1 << 30, "this machine has in all"}
	if err := l.Fits(1 << 30); err != nil {
		t.Error(err)
	}
	if err := l.Fits(1<<30 + 1); exit.Of(err) != exit.NoSpace || !strings.Contains(err.Error(), "this machine has in all: 1 GiB") {
		t.Error(err)
	}
}
