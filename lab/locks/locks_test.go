package locks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// counterAt is the word of clock synchronisation: below the locks of locktest.
const counterAt = 64

// agent is a locktest.Agent.
type agent func(func(error)) error

func (a agent) Run(report func(error)) error { return a(report) }

// mechanism makes a registered lock testable.
func mechanism(t testing.TB, name string, cfg locks.Config) locktest.Mechanism {
	t.Helper()
	m, err := locks.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CNs, cfg.Clients, cfg.Counter = 3, 8, fabric.At(0, counterAt)
	sys, err := m.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	join := locktest.Join[lock.Locker](func(n fabric.Node) (func(fabric.Port) lock.Locker, locktest.Agent) {
		joined, err := sys.Join(n)
		if err != nil {
			t.Fatal(err)
		}
		if joined.Run == nil {
			return joined.Locker, nil
		}
		return joined.Locker, agent(joined.Run)
	})
	return locktest.Mechanism{Layout: sys.Layout(), ExclusiveOnly: m.Exclusive, Lasts: strings.HasPrefix(name, "drtm"), Start: join.Start}
}

// locksOfThePapers reads, in docs/locks.md, which locks each paper measures, by their names here.
func locksOfThePapers(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "locks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| paper | its locks")
	papers := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.TrimSpace(line) == "" {
			break
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1) {
			papers[strings.TrimSpace(cells[0])] = append(papers[strings.TrimSpace(cells[0])], name[1])
		}
	}
	return papers
}

// Every lock that the papers measure is here, by the names in docs/locks.md, and every lock that is registered and none of DecLock's policies is of some paper or a variant
// of one that is.
func TestLocksOfThePapers(t *testing.T) {
	papers, all := locksOfThePapers(t), map[string]bool{}
	for paper, least := range map[string]int{"DecLock": 8, "ShiftLock": 8, "DSLR": 8, "FissLock": 4, "the asymmetric lock's, ALock's": 2} {
		if n := len(papers[paper]); n < least {
			t.Errorf("docs/locks.md has %d locks of %s, which measures %d", n, paper, least)
		}
		for _, name := range papers[paper] {
			if _, err := locks.Lookup(name); err != nil {
				t.Errorf("%s: %v", paper, err)
			}
			kind, _, _ := strings.Cut(name, ":")
			all[kind] = true
		}
	}
	all["server"] = all["srvlock"]
	for _, name := range locks.Names() {
		kind, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(name, "-ro"), "-cas"), "+")
		if _, err := hier.ParsePolicy(name); err != nil && !all[name] && !all[kind] && !all[name+"-artifact"] {
			t.Errorf("docs/locks.md does not say which paper measures %s", name)
		}
	}
}

// All locks of the papers pass the conformance suite on shared memory and over TCP: those that their packages set up themselves there, and by their names here those
// that are variants of the registry's.
func TestConformanceOfThePapers(t *testing.T) {
	packages := []string{"cas", "retry-on-fail", "dslr", "dslr+", "mcs", "ncosed", "rmarw", "rpc", "shift-artifact", "sherman", "qplock", "alock", "fiss", "netlock", "cql", "declock-tf", "declock-pf", "drtm:half"}
	seen := map[string]bool{}
	names := locksOfThePapers(t)
	names["none"] = []string{"sherman+notes", "cas-cas", "dslr+-overflow"} // variants that no paper measures
	for _, names := range names {
		for _, name := range names {
			if seen[name] || slices.Contains(packages, name) {
				continue
			}
			seen[name] = true
			// A loaded machine may stop a holder for longer than the usual lease.
			m := mechanism(t, name, locks.Config{Tokens: true, LeaseNs: 10 * fabric.Second})
			if strings.HasPrefix(name, "drtm") {
				m = mechanism(t, name, locks.Config{Tokens: true, LeaseNs: 100 * fabric.Millisecond})
			}
			if name == "dslr:busy" { // its clients, more than there are processors, keep the one from running that it is the turn of
				t.Run(name, func(t *testing.T) { locktest.Run(t, locktest.Sim(1), m) })
				continue
			}
			t.Run(name+", shm", func(t *testing.T) { locktest.Run(t, locktest.Shm(t.TempDir()), m) })
			t.Run(name+", tcp", func(t *testing.T) { locktest.Run(t, locktest.TCP(), m) })
		}
	}
	for _, name := range []string{"cas-backoff", "parlock", "parlock:ro", "dslr:slots", "dslr:busy", "drtm", "srvlock", "shift-artifact:pause"} {
		if !seen[name] {
			t.Errorf("%s is not tested", name)
		}
	}
}

// Every registered mechanism passes the conformance suite, set up as the registry sets it up.
func TestConformance(t *testing.T) {
	for _, name := range append(locks.Names(), "local-bound:2", "dslr:busy", "dslr:10", "dslr:wait:5", "dslr:wait:0.5", "dslr:withdraw:10", "dslr:slots", "shift-artifact:2", "shift-artifact:pause", "shift-artifact:pause:2", "shift-artifact:cas2:pause", "dslr:shiftlock", "rpc:shiftlock", "server:1", "retry-on-fail", "drtm:half", "srvlock", "parlock:1", "parlock:ro", "parlock:local", "fiss:2", "fiss:local") {
		m := mechanism(t, name, locks.Config{Tokens: true})
		t.Run(name, func(t *testing.T) { locktest.Run(t, locktest.Sim(1), m) })
		t.Run(name+", READs exchanged", func(t *testing.T) { locktest.Run(t, locktest.SimUnordered(1), m) })
	}
}

func TestLookup(t *testing.T) {
	for _, name := range []string{"spin", "dslr:", "dslr:0", "dslr:-1", "dslr:soon", "dslr:withdraw:", "dslr:withdraw:0", "dslr:wait:", "dslr:wait:0", "dslr:wait:NaN", "shift-artifact:cas0", "shift-artifact:cas2:", "shift-artifact:0", "shift-artifact:", "shift-artifact:2:2", "shift-artifact:pause:pause", "dslr:shiftlock:2", "rpc:0", "server:many", "fiss:0"} {
		if _, err := locks.Lookup(name); !errors.Is(err, locks.ErrUnknown) {
			t.Errorf("unknown name %q: %v", name, err)
		}
	}
	seen := map[string]bool{}
	for _, m := range locks.All() {
		if seen[m.Name] || m.About == "" {
			t.Errorf("%q is there twice, or says nothing about itself", m.Name)
		}
		seen[m.Name] = true
		for _, bad := range []locks.Config{{}, {CNs: 300, Clients: 1}, {CNs: 1, Clients: 1 << 20}} {
			if _, err := m.New(bad); err == nil {
				t.Errorf("%s: %+v is accepted", m.Name, bad)
			}
		}
	}
}

// A fabric that lacks what a lock needs is refused by name.
func TestNeeds(t *testing.T) {
	c := sim.New(sim.Config{})
	defer c.Close()
	if err := (locks.Needs{Masked: true, Atomic16: true}).Check(c.AddCN().Caps()); err != nil {
		t.Errorf("sim: %v", err)
	}
	for _, n := range []locks.Needs{{Masked: true}, {Atomic16: true}} {
		if err := n.Check(fabric.Caps{Fabric: "poor"}); !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("%+v on a fabric without: %v", n, err)
		}
	}
}

// docs/locks.md has each lock once in each of its tables, with what a free lock costs.
func TestLocksPage(t *testing.T) {
	rows := pageRows(t)
	for _, m := range ofThePage(t) {
		own := rows[pageName(m.Name)]
		if len(own) != 2 || len(own[0]) != 5 || len(own[1]) != 4 {
			t.Errorf("%s has %d rows: %q", m.Name, len(own), own)
			continue
		}
		for mode, cell := range map[lock.Mode]string{lock.Exclusive: own[0][2], lock.Shared: own[0][3]} {
			if cost := freeCost(t, m, mode); cost != strings.TrimSpace(cell) {
				t.Errorf("%s %v: %q, measured %q", m.Name, mode, strings.TrimSpace(cell), cost)
			}
		}
	}
}

// ofThePage returns the locks that docs/locks.md has by name: all that are registered, and some of their forms.
func ofThePage(t *testing.T) []locks.Mechanism {
	t.Helper()
	list := locks.All()
	for _, name := range []string{"rpc:shiftlock", "parlock:ro"} {
		m, err := locks.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// pageRows returns the rows of docs/locks.md in which each lock is named, by cells.
func pageRows(t *testing.T) map[string][][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "locks.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][][]string{}
	table, _, _ := strings.Cut(string(page), "## What checks them")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(cells[0], "(")[0], -1) {
			if len(cells) > 1 {
				rows[name[1]] = append(rows[name[1]], cells)
			}
		}
	}
	return rows
}

// pageName returns the name under which docs/locks.md has a lock: DecLock's policies without trains are with cql.
func pageName(name string) string {
	if p, err := hier.ParsePolicy(name); err == nil && !p.Train {
		return "cql"
	}
	return name
}

// freeCost measures what it takes to acquire a new lock, and to release it.
func freeCost(t *testing.T, m locks.Mechanism, mode lock.Mode) string {
	t.Helper()
	sys, err := m.New(locks.Config{CNs: 1, Clients: 1, Counter: fabric.At(0, counterAt), SyncIntervalNs: -1})
	if err != nil {
		t.Fatal(err)
	}
	c := sim.New(sim.Config{})
	defer c.Close()
	a, n := fabric.At(c.AddMN(1<<20), 4096), c.AddCN()
	joined, err := sys.Join(n)
	if err != nil {
		t.Fatal(err)
	}
	if joined.Run != nil {
		c.GoAgent(n, func(fabric.Port) { _ = joined.Run(nil) })
	}
	cost := ""
	c.Go(n, m.Name, func(p fabric.Port) {
		l, h, s := joined.Locker(p), lock.Hold{}, p.Stats()
		err := l.Acquire(&h, &lock.Request{Lock: a, Mode: mode})
		ops, sent := s.Total(), s.Sent+s.SentLocal
		err = errors.Join(err, l.Release(&h, nil))
		cost = fmt.Sprintf("%d + %d", ops, s.Total()-ops)
		if all := s.Sent + s.SentLocal; all > 0 {
			cost += fmt.Sprintf(" (%d + %d)", sent, all-sent)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return cost
}

// On a fabric that lacks what a lock needs, the lock itself refuses, too, and holds nothing.
func TestLockersOnPoorFabrics(t *testing.T) {
	for name, locker := range map[string]func(fabric.Node, fabric.Port) lock.Locker{
		"mcs":   func(_ fabric.Node, p fabric.Port) lock.Locker { return mcs.New(p, mcs.Config{}) },
		"shift": func(n fabric.Node, p fabric.Port) lock.Locker { return shift.New(p, n, shift.Config{}) },
	} {
		c := sim.New(sim.Config{NIC: sim.CXL()})
		defer c.Close()
		a, n := fabric.At(c.AddMN(1<<20), 4096), c.AddCN()
		c.Go(n, name, func(p fabric.Port) {
			for mode := lock.Shared; mode <= lock.Exclusive; mode++ {
				var h lock.Hold
				if err := locker(n, p).Acquire(&h, &lock.Request{Lock: a, Mode: mode}); !errors.Is(err, fabric.ErrUnsupported) || h.Held {
					t.Errorf("%s %v: %v", name, mode, err)
				}
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}
