package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
)

// Starvation is what became of the writers when one compute node writes and
// the others read the same lock, for a while of virtual time, under one policy.
type Starvation struct {
	Load       string // of the readers: see loads
	Policy     string
	NIC        string
	SharingNs  fabric.Time // the bound of shared tenure, 0: none
	Writes     int
	Reads      int
	WriteP50   fabric.Time // latency of an acquisition, of those that were granted
	WriteP99   fabric.Time
	ReadP99    fabric.Time
	ShutOut    int     // clients that read, and had no lock in the second half of the time
	Mops       float64 // acquisitions in a microsecond
	Violations int
}

// StarveOptions of Starve.
type StarveOptions struct {
	NIC            string
	Nodes, Clients int // one of the nodes writes; clients of each
	SpanNs         fabric.Time
	Seed           uint64
	// SharingNs lists bounds of shared tenure to compare; none: the policies' own.
	SharingNs []fabric.Time
}

// A load is what the readers do.
type load struct {
	name    string
	busy    int // nodes whose readers do not think; 0: all
	thinkNs fabric.Time
}

// loads are: all readers ask again at once; and those of one node do, while the others do something else between, 12 us
// on average, so that a node now and then lets go of the lock.
var loads = []load{{"all busy", 0, 0}, {"one node busy", 1, 100 * fabric.Microsecond}}

// starvePolicies are the policies that Starve compares.
var starvePolicies = []string{"paper-tf", "declock-tf", "paper-pf", "declock-pf", "declock"}

// Starve runs the demonstration: nodes with so many clients each, which acquire
// and release one lock without a break for a time. The model of the NIC is fitted, not measured.
func Starve(o StarveOptions) ([]Starvation, error) {
	var out []Starvation
	for _, l := range loads {
		for _, p := range starvePolicies {
			bounds := o.SharingNs
			if policy, err := hier.ParsePolicy(p); err != nil || policy.SharingNs == 0 || len(bounds) == 0 {
				bounds = []fabric.Time{0}
			}
			for _, b := range bounds {
				s := Scenario{
					Gen: generator, Class: Locks, Seed: o.Seed, CNs: o.Nodes, Clients: o.Clients, MNs: 1, Writers: 1, Busy: l.busy,
					Policy: p, SharingNs: b, Version: 27, NIC: o.NIC, Grain: 64, Locks: 1, Rounds: maxRounds, ThinkNs: l.thinkNs,
					Late: "draw", SpanNs: o.SpanNs,
				}
				s.room()
				x, err := s.starve()
				if err != nil {
					return out, err
				}
				x.Load = l.name
				out = append(out, x)
			}
		}
	}
	return out, nil
}

func (s Scenario) starve() (Starvation, error) {
	w, err := newWorld(s, false)
	if err != nil {
		return Starvation{}, err
	}
	defer w.c.Close()
	w.startAgents()
	w.startClients()
	if err := w.c.RunUntil(w.began + s.SpanNs); err != nil {
		return Starvation{}, err
	}
	policy, err := s.policy()
	x := w.starvation()
	x.SharingNs = max(policy.SharingNs, policy.SharingMaxNs)
	return x, err
}

func (w *world) starvation() Starvation {
	writes, reads := w.latency[1], w.latency[0]
	x := Starvation{
		Policy: w.s.Policy, NIC: w.s.NIC, Writes: len(writes), Reads: len(reads),
		WriteP50: percentile(writes, 50), WriteP99: percentile(writes, 99), ReadP99: percentile(reads, 99),
		ShutOut:    (w.s.CNs - w.s.Writers) * w.s.Clients,
		Mops:       float64(len(writes)+len(reads)) * 1000 / float64(w.s.SpanNs),
		Violations: len(w.court.Violations()),
	}
	for c, at := range w.lastGrant {
		if int(c.CN()) > w.s.Writers && at > w.began+w.s.SpanNs/2 {
			x.ShutOut--
		}
	}
	return x
}

func percentile(list []fabric.Time, p int) fabric.Time {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)*p/100]
}

// StarvationTable returns the table of Starve.
func StarvationTable(list []Starvation) string {
	var b strings.Builder
	b.WriteString("| readers | policy | NIC model | shared tenure us | writes | write p50 us | write p99 us | reads | read p99 us | readers shut out | total Mops |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	us := func(t fabric.Time) float64 { return float64(t) / 1e3 }
	for _, s := range list {
		bound, p50, p99 := "no bound", "never", "never"
		if s.SharingNs > 0 {
			bound = fmt.Sprintf("%.0f", us(s.SharingNs))
		}
		if s.Writes > 0 {
			p50, p99 = fmt.Sprintf("%.1f", us(s.WriteP50)), fmt.Sprintf("%.1f", us(s.WriteP99))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %s | %s | %d | %.1f | %d | %.2f |\n", s.Load, s.Policy, s.NIC, bound, s.Writes,
			p50, p99, s.Reads, us(s.ReadP99), s.ShutOut, s.Mops)
	}
	return b.String()
}
