package check

import (
	"cmp"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/netlock"
)

// netlock returns the configuration of NetLock: with few slots and short queues, so that releases wait for slots, and requests for entries.
func (s *Scenario) netlock() netlock.Config {
	cfg := netlock.Config{Locks: cmp.Or(s.Registers, 64), Queue: cmp.Or(s.CountMax, 2), Slots: 8, Device: s.Switch > 0}
	if s.Dropped+s.Copied+s.Delayed > 0 {
		cfg.ResendNs = 10 * fabric.Microsecond
	}
	return cfg
}

// netLocked draws what class Switched does, with NetLock: CountMax is the length of its queues.
func (s *Scenario) netLocked(d *drawer) {
	s.switched(d)
	s.Lock, s.CountMax = "netlock", pick(d, 1, 2, 3, 5, 10)
}
