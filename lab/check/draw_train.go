package check

import (
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
)

// trains draws that releases pass a lock to several compute nodes (docs/trains.md): with more nodes in the classes of locks, and room in the
// queue. (From g12 on; from g13 on declock forms trains by itself.)
func (s *Scenario) trains(seed uint64) {
	d := &drawer{newRand(seed, streamTrains)}
	p, err := hier.ParsePolicy(s.Policy)
	if s.Lock != "" || s.Sit == 1 || err != nil || p.Kind == hier.Flat || !d.percent(30) && !p.Train {
		return
	}
	if features := pick(d, "+train", "+train+phased", "+train+phased"); !p.Train {
		s.Policy += features
	} else if s.Policy += pick(d, "", "", "+no-train"); s.Policy != hier.DefaultPolicy {
		return
	}
	if slices.Contains([]Class{Locks, Fair, Cancel, Pause, Net, Break, Crash, Zombie, Restart, Chaos, Resets, Lease, Promote}, s.Class) && d.percent(70) {
		s.CNs, s.Clients, s.Locks = d.between(s.CNs, 6), d.between(1, 3), 1
		s.Reads = pick(d, 0, 20, 50, 80)
	}
	if s.Plain = pick(d, 0, 0, 0, 2, 3); s.Kept == 0 && s.Keys == 0 {
		s.Own = pick(d, 0, 0, 30, 100)
	}
	if s.Class == Net && s.CNs > 2 && d.percent(50) {
		s.sever(d)
	}
	for s.Class != Wraps && 1<<s.Capacity < s.participants()+d.between(1, 9) {
		s.Capacity++
	}
}

// sever draws that a link between two compute nodes is cut for good: each lock that is to go over it takes three looks of a waiter, and a reset
// through the other nodes.
func (s *Scenario) sever(d *drawer) {
	s.Severed = d.between(1, 2)
	s.Rounds = min(s.Rounds, 10)
	s.Sit, s.Leaves, s.Joins, s.SyncNs, s.Plain = 0, 0, 0, 0, 0
	s.RecheckNs = pick(d, 100*fabric.Microsecond, fabric.Millisecond)
	s.ResetNs = 100 * fabric.Millisecond // for what clients have given up
	if s.Cancel == 0 && s.Deadline == 0 {
		s.ResetNs = 20 * fabric.Second
	}
	s.PatienceNs = 10 * fabric.Second
}
