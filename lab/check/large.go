package check

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/objstore"
)

// segments draws values of which most have segments.
func (s *Scenario) segments(d *drawer) {
	s.Keys, s.Values = d.between(1, 4), pick(d, 1000, 2000, 3500)
	s.Segment = pick(d, 192, 256, 512)
	s.Clients = min(s.Clients, 3)
	s.Rounds = d.between(5, 15)
	s.layoutFor(d)
}

// largeFaults draws faults as another class of stores has them; or too little memory, or none.
func (s *Scenario) largeFaults(d *drawer) {
	switch d.between(0, 5) {
	case 1, 2:
		s.crashAllBut(d, pick(d, s.kill, s.kill, s.zombie))
	case 3:
		s.few(d)
		s.reboots(d)
	case 4:
		s.few(d)
		s.drawPlan(d, sim.FaultCut, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.impatient()
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	case 5:
		s.storePromotes(d)
		s.Room, s.NoEvict = 0, 0 // the judge knows what is evicted by the slot of its key
	}
}

// largeObjects is for how many objects the index is made where values have segments, which are objects, too.
const largeObjects = 300

// sweptNs is within which time live nodes have deleted the segments that no value has.
const sweptNs = 400 * fabric.Millisecond

// judgeSegments objects to segments that are left when all is over, and that no value has. What an operation of unknown outcome has written stays until its node has gone.
func (w *world) judgeSegments(n *node, st *objstore.Client, p fabric.Port) {
	if w.s.Segment == 0 || w.s.Room > 0 {
		return
	}
	w.reclaimOn()
	defer func() { w.looking = false }()
	for began := p.Now(); ; _ = p.Pause(p.Now() + walkLookNs) {
		_, err := st.ReclaimStep(n.sim.View)
		r, checked := st.Check(objstore.CheckOptions{})
		switch {
		case err == nil && checked == nil && r.Unnamed == 0:
			return
		case p.Now() > began+sweptNs:
			w.object("segments", fmt.Sprint("of no value: ", err, checked, r))
			return
		}
	}
}
