// Package machine finds how much memory this process can have: of the machine, and of the control group that it is in.
package machine

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/units"
)

// A Limit is a bound of memory, with whose it is.
type Limit struct {
	Bytes uint64
	Whose string
}

// Memory is what this process can have.
type Memory struct {
	Now  Limit // without ending other processes, or this one
	Ever Limit // when all else has been given back
	// HugeFree is how much is in free huge pages that were set aside, and is in neither.
	HugeFree uint64
}

// Look looks at the machine, and at the control groups that this process is in.
func Look() Memory { return look("/") }

// look finds /proc and /sys below a root.
func look(root string) Memory {
	m := Memory{Now: Limit{math.MaxUint64, ""}, Ever: Limit{math.MaxUint64, ""}}
	info := fields(filepath.Join(root, "proc/meminfo"))
	if total, ok := info["MemTotal:"]; ok {
		m.Ever = Limit{(total + info["SwapTotal:"]) << 10, "this machine has in all"}
		m.Now = m.Ever
		if free, ok := info["MemAvailable:"]; ok {
			m.Now = Limit{(free + info["SwapFree:"]) << 10, "available on this machine"}
		}
	}
	m.HugeFree = info["HugePages_Free:"] * info["Hugepagesize:"] << 10
	for _, g := range groups(root) {
		limit, ok := number(filepath.Join(g.dir, g.limit))
		if !ok {
			continue
		}
		if limit < m.Ever.Bytes {
			m.Ever = Limit{limit, fmt.Sprintf("allowed by the control group %s", g.dir)}
		}
		used, _ := number(filepath.Join(g.dir, g.usage))
		stat := fields(filepath.Join(g.dir, "memory.stat"))
		// Pages of files are given back; memory of shared memory file systems is not among these.
		used -= min(used, stat[g.prefix+"inactive_file"]+stat[g.prefix+"active_file"])
		if left := limit - min(limit, used); left < m.Now.Bytes {
			m.Now = Limit{left, fmt.Sprintf("left in the control group %s", g.dir)}
		}
	}
	return m
}

// A group is a directory of a control group's memory controller, and the names of its files.
type group struct{ dir, limit, usage, prefix string }

// groups returns those of this process, and all above them: each has a limit.
func groups(root string) (list []group) {
	f, err := os.Open(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		parts := strings.SplitN(s.Text(), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}
		g, base := group{limit: "memory.max", usage: "memory.current"}, "sys/fs/cgroup"
		switch {
		case parts[1] == "": // version 2
		case strings.Contains(","+parts[1]+",", ",memory,"):
			g, base = group{limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", prefix: "total_"}, "sys/fs/cgroup/memory"
		default:
			continue
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			g.dir = filepath.Join(root, base, path)
			list = append(list, g)
			if path == "/" {
				break
			}
		}
	}
	return list
}

// number reads a file with a number; "max" is none.
func number(path string) (uint64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// fields reads lines of a name and a number.
func fields(path string) map[string]uint64 {
	list := map[string]uint64{}
	f, err := os.Open(path)
	if err != nil {
		return list
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if words := strings.Fields(s.Text()); len(words) >= 2 {
			if n, err := strconv.ParseUint(words[1], 10, 64); err == nil {
				list[words[0]] = n
			}
		}
	}
	return list
}

// Fits refuses memory that is more than a limit: the kernel would end this process, or another.
func (l Limit) Fits(size uint64) error {
	if size <= l.Bytes {
		return nil
	}
	return exit.Errorf(exit.NoSpace, "not enough memory for %s; %s: %s; ask for less with --size, or \"declock-mn --overcommit\" tries all the same",
		units.Bytes(size), l.Whose, units.Bytes(l.Bytes))
}
