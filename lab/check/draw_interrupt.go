package check

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// interrupts has interrupted clients leave operations behind that are under way, and take back those that were not sent. (From g11 on.)
func (s *Scenario) interrupts(seed uint64) {
	d := &drawer{sim.NewRand(seed, streamGrace)}
	switch s.Class {
	case Cancel, Wraps, Chaos:
		if s.Cancel == 0 || !d.percent(60) {
			return
		}
	case Break, StoreBreak, TreeBreak, Crash, Zombie, Restart, Lost, StoreRestart, TreeRestart, StoreLost, StoreCrash, TreeCrash:
		if !d.percent(30) {
			return
		}
		s.Cancel, s.WaitNs = pick(d, 20, 60), pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	default:
		return
	}
	s.GraceNs = pick(d, 1, fabric.Microsecond, 5*fabric.Microsecond, 50*fabric.Microsecond)
	if s.RecheckNs == 0 {
		s.impatient()
	}
}

// leavesBehind reports whether interrupted clients leave operations behind.
func (s *Scenario) leavesBehind() bool { return s.GraceNs > 0 }

// interruptAfter has the client's Port interrupted a time after now, if what it is about to do is still under way then.
func (c *client) interruptAfter(d fabric.Time) {
	round := c.round
	c.w.c.At(c.w.c.Now()+d, func() {
		if c.asking && c.round == round {
			c.port.Interrupt()
		}
	})
}

// mayBeInterrupted does an operation of the store or tree that is interrupted, perhaps.
func (c *client) mayBeInterrupted(operate func() error) error {
	if c.w.s.leavesBehind() && c.d.percent(c.w.s.Cancel) {
		c.asking = true
		c.interruptAfter(c.d.time(c.w.s.WaitNs))
		defer func() {
			c.asking = false
			c.port.ClearInterrupt()
		}()
	}
	return operate()
}
