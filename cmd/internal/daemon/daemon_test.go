package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/overtcp"
)

// What clients have counted before is subtracted from all counters of a replay.
func TestSubtractKnowsAllCounters(t *testing.T) {
	var a, b control.Counters
	a.Locks.Acquires, b.Locks.Acquires = 7, 3
	a.NIC.Ops[1], b.NIC.Ops[1] = 5, 5
	a.Store.Gets = 1
	stats.Subtract(&a, &b)
	if a.Locks.Acquires != 4 || a.NIC.Ops[1] != 0 || a.Store.Gets != 1 {
		t.Errorf("%+v", a)
	}
}

func TestSpecsThatMakeNoSenseAreRefused(t *testing.T) {
	good := control.Replay{Preset: "cluster14", Keys: 10, Requests: 10, Clients: 1, Total: 1}
	for what, change := range map[string]func(*control.Replay){
		"no clients":       func(s *control.Replay) { s.Clients = 0 },
		"too many clients": func(s *control.Replay) { s.Clients, s.Total = 5000, 5000 },
		"outside":          func(s *control.Replay) { s.First = 1 },
		"before":           func(s *control.Replay) { s.First = -1 },
		"two traces":       func(s *control.Replay) { s.Path = "x" },
		"no trace":         func(s *control.Replay) { s.Preset = "" },
		"no such preset":   func(s *control.Replay) { s.Preset = "x" },
		"no keys":          func(s *control.Replay) { s.Keys = 0 },
		"no such file":     func(s *control.Replay) { s.Preset, s.Path, s.Deal = "", "/nonexistent", "by-key" },
		"no such dealing":  func(s *control.Replay) { s.Preset, s.Path, s.Deal = "", "/dev/null", "x" },
	} {
		spec, closed := good, 0
		change(&spec)
		w, err := newWork(t.Context(), &spec, func(context.Context, *control.Replay) (*client, error) {
			return &client{close: func() error { closed++; return nil }}, nil
		})
		if err == nil || w != nil || exit.Of(err) == exit.Other {
			t.Errorf("%s: %v, %v", what, w, err)
		}
		if closed > spec.Clients {
			t.Errorf("%s: %d clients closed", what, closed)
		}
	}
}

// A memory node that is to have more compute nodes than the lock queues that are there have entries is refused.
func TestMaxCNIsHonouredOrRefused(t *testing.T) {
	for _, c := range []struct {
		maxCN, entries int
		ok             bool
	}{{0, 16, true}, {16, 16, true}, {10, 16, true}, {40, 16, false}, {16, 64, true}, {40, 64, true}} {
		n, err := sameQueue(c.maxCN, 0, c.entries)
		if (err == nil) != c.ok || c.ok && n != c.entries || err != nil && exit.Of(err) != exit.Mismatch {
			t.Errorf("max-cn %d beside queues of %d: %d, %v", c.maxCN, c.entries, n, err)
		}
	}
}

// A warning says what happened in its message, the same whenever it happens; on what and why are attributes.
func TestWarningsSayWhatHappened(t *testing.T) {
	var out strings.Builder
	report := Report(slog.New(slog.NewTextHandler(&out, nil)))
	report(fmt.Errorf("memory node mn3: %w: %w", tcp.ErrLost, fabric.ErrNodeDown))
	report(fmt.Errorf("%w: mn1: made again", cn.ErrMemoryLost))
	report(errors.New("something else"))
	for _, want := range []string{`msg="connection lost" error="memory node mn3: fabric: connection lost: fabric: node is down" cause=`,
		`msg="memory node has restarted without its memory" error=`, `msg="something else"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	for _, h := range happened {
		if text := whatHappened(h); text == "" || strings.Contains(text, ": ") {
			t.Errorf("%q of %v", text, h)
		}
	}
}

// What the machine does not have is refused before the kernel ends somebody; what dead memory nodes have left counts as free.
func TestSizesBeyondTheMachineAreRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := shm.Serve(shm.Options{Name: "x", Dir: dir, Size: 64 << 20, Sparse: true, Keep: true})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	overTCP, err := scheme.Parse("tcp://127.0.0.1:1/x", scheme.Options{Options: overtcp.Options{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	have := machine.Memory{Now: machine.Limit{Bytes: 100 << 20}, Ever: machine.Limit{Bytes: 1 << 30}, HugeFree: 500 << 20}
	over := func(c scheme.Cluster, size uint64, change func(*MNConfig)) *MNConfig {
		cfg := &MNConfig{Cluster: c, Memory: scheme.Memory{Size: size, Huge: scheme.HugeOff}}
		if change != nil {
			change(cfg)
		}
		return cfg
	}
	disk := filepath.Join(t.TempDir(), "memory") // not on a memory file system, or there already
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		cfg *MNConfig
		ok  bool
	}{
		"shm":                         {over(scheme.SHM("y", dir), 100<<20, nil), true},
		"shm, more than available":    {over(scheme.SHM("y", dir), 101<<20, nil), false},
		"shm, the dead leave 64 MiB":  {over(scheme.SHM("x", dir), 164<<20, nil), true},
		"shm, and not more":           {over(scheme.SHM("x", dir), 165<<20, nil), false},
		"what is there decides":       {over(scheme.SHM("y", dir), 0, nil), true},
		"overcommit":                  {over(scheme.SHM("y", dir), 1<<40, func(c *MNConfig) { c.Overcommit = true }), true},
		"a file on a disk":            {over(scheme.SHM("y", dir), 1<<40, func(c *MNConfig) { c.Memory.Path = disk }), true},
		"huge pages":                  {over(scheme.SHM("y", dir), 500<<20, func(c *MNConfig) { c.Memory.Huge = scheme.HugeTry }), true},
		"more than are free":          {over(scheme.SHM("y", dir), 501<<20, func(c *MNConfig) { c.Memory.Huge = scheme.HugeTry }), false},
		"tcp, when it is touched":     {over(overTCP, 1<<30, nil), true},
		"tcp, more than there can be": {over(overTCP, 1<<30+1, nil), false},
	} {
		if err := c.cfg.fits(t.Context(), have); (err == nil) != c.ok || err != nil && exit.Of(err) != exit.NoSpace {
			t.Errorf("%s: %v", what, err)
		}
	}
}
