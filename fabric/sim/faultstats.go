package sim

import (
	"fmt"
	"strings"
)

// FaultEffect is something that faults did to a run.
type FaultEffect uint8

// What faults do. A fault that is planned and hits nothing shows in none.
const (
	Kills           FaultEffect = iota // of compute nodes
	Pauses                             // of compute nodes
	Fences                             // of compute nodes
	TornReads                          // READs that took effect in parts
	TornWrites                         // WRITEs that did
	HalfDone                           // ... and that the crash of their node, its fence or a restart ended between two parts
	LateEffects                        // WRITEs and atomics of killed nodes that took effect before the fence
	LateDropped                        // operations of killed nodes that took none
	Refused                            // operations that a memory node refused: their node was declared dead
	Broken                             // connections that broke: an outcome is unknown
	CutRequests                        // from compute to memory node: held up until the end of a cut
	CutAnswers                         // from memory to compute node
	CutMessages                        // between compute nodes
	DelayedRequests                    // the same, by a delay
	DelayedAnswers
	DelayedMessages
	Duplicated // messages that came twice
	Restarts   // of memory nodes
	Stale      // operations that a memory node refused: their client attached before it restarted
	HeldNews   // news of the membership that a detached node heard later
	BrokenLate // WRITEs and atomics that took effect after their client had heard that their outcome is unknown
	LeftBehind // chains under way that an interrupted client has left behind
	Unsent     // chains, or the rest of some, that one has taken back before they were sent
	Promotions // of backups that serve
	NumFaultEffects
)

var effectNames = [NumFaultEffects]string{"kills", "pauses", "fences", "torn reads", "torn writes", "half done writes", "late effects", "late dropped",
	"refused operations", "broken connections", "cut requests", "cut answers", "cut messages",
	"delayed requests", "delayed answers", "delayed messages", "duplicated messages", "restarts", "stale operations", "held news", "late unknown outcomes",
	"chains left behind", "chains not sent", "promotions"}

func (e FaultEffect) String() string { return nameOf(effectNames[:], e) }

// FaultStats counts what faults did, by FaultEffect.
type FaultStats [NumFaultEffects]uint64

func (s *FaultStats) String() string {
	list := make([]string, NumFaultEffects)
	for i, n := range s {
		list[i] = fmt.Sprintf("%v %d", FaultEffect(i), n)
	}
	return strings.Join(list, ", ")
}

// FaultStats returns the counters of the run so far.
func (c *Cluster) FaultStats() FaultStats { return c.faultStats }

// passes counts what a faulty link does to something that passes.
func (s *FaultStats) passes(from, to Endpoint, cut, delayed bool) {
	direction := CutMessages
	switch {
	case to.CN == 0:
		direction = CutRequests
	case from.CN == 0:
		direction = CutAnswers
	}
	if cut {
		s[direction]++
	}
	if delayed {
		s[direction+DelayedRequests-CutRequests]++
	}
}

// node counts a step of a compute node.
func (s *FaultStats) node(what Step) {
	switch what {
	case StepKill:
		s[Kills]++
	case StepPause:
		s[Pauses]++
	case StepFence:
		s[Fences]++
	}
}
