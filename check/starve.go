package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// Starvation is what became of the writers when one compute node writes and
// seven read the same lock, for a while of virtual time, under one policy.
type Starvation struct {
	Policy     string
	NIC        string
	Writes     int
	Reads      int
	WriteP50   fabric.Time // latency of an acquisition, of those that were granted
	WriteP99   fabric.Time
	ReadP99    fabric.Time
	Mops       float64 // acquisitions in a microsecond
	Violations int
}

// starvePolicies are the policies that Starve compares.
var starvePolicies = []string{"paper-tf", "declock-tf", "paper-pf", "declock-pf", "declock"}

// Starve runs the demonstration: nodes with so many clients each, which acquire
// and release one lock without a break for a time. The model of the NIC is fitted, not measured.
func Starve(nic string, nodes, clients int, span fabric.Time, seed uint64) ([]Starvation, error) {
	var out []Starvation
	for _, p := range starvePolicies {
		s := Scenario{
			Gen: generator, Class: Locks, Seed: seed, CNs: nodes, Clients: clients, MNs: 1, Writers: 1,
			Policy: p, Version: 27, NIC: nic, Grain: 64, Locks: 1, Rounds: maxRounds, Late: "draw", SpanNs: span,
		}
		s.room()
		w, err := newWorld(s, false)
		if err != nil {
			return nil, err
		}
		w.startAgents()
		w.startClients()
		err = w.c.RunUntil(w.began + span)
		out = append(out, w.starvation())
		w.c.Close()
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (w *world) starvation() Starvation {
	writes, reads := w.latency[1], w.latency[0]
	return Starvation{
		Policy: w.s.Policy, NIC: w.s.NIC, Writes: len(writes), Reads: len(reads),
		WriteP50: percentile(writes, 50), WriteP99: percentile(writes, 99), ReadP99: percentile(reads, 99),
		Mops:       float64(len(writes)+len(reads)) * 1000 / float64(w.s.SpanNs),
		Violations: len(w.court.Violations()),
	}
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
	b.WriteString("| policy | NIC model | writes | write p50 us | write p99 us | reads | read p99 us | total Mops |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range list {
		fmt.Fprintf(&b, "| %s | %s | %d | %.1f | %.1f | %d | %.1f | %.2f |\n", s.Policy, s.NIC, s.Writes,
			float64(s.WriteP50)/1e3, float64(s.WriteP99)/1e3, s.Reads, float64(s.ReadP99)/1e3, s.Mops)
	}
	return b.String()
}
