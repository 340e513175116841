package check

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// openSlots draws few keys that many set, for as long as slots need to open.
func (s *Scenario) openSlots(d *drawer) {
	s.Open, s.Paper = 1, 0
	s.Keys, s.Values = d.between(1, 3), pick(d, 0, 20, 200)
	if d.percent(25) {
		s.Keys = 40 // a bucket with overflow blocks
	}
	s.Rounds = d.between(20, 60)
	s.ThinkNs = pick(d, fabric.Microsecond, 20*fabric.Microsecond)
	s.layoutFor(d)
}

// runsOfSets draws clients of few compute nodes that set and delete one key most of the time, among others whose fingerprints may be the same.
func (s *Scenario) runsOfSets(d *drawer) {
	s.Policy, s.Paper, s.Hot = "declock", 0, pick(d, 60, 90)
	s.CNs, s.Clients = d.between(1, 3), d.between(3, 6)
	s.Keys, s.Values = pick(d, 1, 2, 12), pick(d, 0, 20, 200)
	s.Rounds, s.ThinkNs = d.between(15, 40), pick(d, 0, 0, fabric.Microsecond)
	s.layoutFor(d)
}

// openFaults draws faults as another class of stores has them; or too little memory, or objects that expire, or none.
func (s *Scenario) openFaults(d *drawer) {
	switch d.between(0, 6) {
	case 1:
		s.crashAllBut(d, pick(d, s.kill, s.kill, s.zombie))
	case 2:
		s.few(d)
		s.reboots(d)
	case 3:
		s.few(d)
		s.drawPlan(d, sim.FaultCut, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.impatient()
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	case 4:
		s.few(d)
		s.losses(d)
	case 5:
		keys := s.Keys
		s.lifetime(d)
		s.Keys = min(keys, 6)
	case 6:
		s.Keys, s.Values = d.between(4, 16), pick(d, 20, 200)
		all := uint64(s.Keys*(128+s.Values)) * uint64(d.between(30, 120)) / 100
		s.Room, s.NoEvict = int(all/uint64(s.MNs))+2048, d.between(0, 1)
		s.layoutFor(d)
	}
}
