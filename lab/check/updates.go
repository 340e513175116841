package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// updates draws locks with update mode, leases of several slots, and clients that crash.
func (s *Scenario) updates(d *drawer) {
	s.Lock = pick(d, namesOf(func(f *baselineLock) bool { return f.updates })...)
	s.Update, s.Upgrade = pick(d, 20, 50, 80), pick(d, 0, 50, 90, 100)
	s.Try, s.Deadline, s.Cancel = pick(d, 0, 10), pick(d, 0, 20, 60), pick(d, 0, 20, 60)
	s.WaitNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	crashes := d.percent(40)
	if baselineOf(s.Lock).slots {
		s.Slots = pick(d, 2, 3)
		if !crashes {
			s.Slots = pick(d, 2, 5, 20)
		}
	}
	if !crashes {
		return
	}
	s.crashAllBut(d, s.kill)
	s.DetectNs = pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond)
	// A crashed node is fenced before its leases end, and one that is upgraded waits for readers that look for their turn as seldom as it does.
	s.LeaseNs, s.CountMax = s.DetectNs+fabric.Millisecond, 0
}

// asksFor draws whether a request is for update, and for how long a lease. It returns for which lock: one of which an upgrade was lost is acquired anew, as a writer
// that passes a crashed reader over.
func (c *client) asksFor(r *lock.Request, which int) int {
	s := &c.w.s
	if s.Update > 0 && c.d.percent(s.Update) {
		r.Mode = lock.Update
	}
	if s.Slots > 0 {
		r.LeaseNs = cmp.Or(s.LeaseNs, dslr.DefaultLeaseNs) * fabric.Time(c.d.between(1, s.Slots))
	}
	if c.unupgraded > 0 {
		r.Mode, which = lock.Exclusive, c.unupgraded-1
	}
	return which
}

// upgrades has some holders for update be upgraded. It reports whether the client holds then, and whether it goes on. canceled: an interrupt of the acquisition may
// come yet.
func (c *client) upgrades(which int, canceled bool) (held, ok bool) {
	if which == c.unupgraded-1 && c.hold.Mode == lock.Exclusive {
		c.unupgraded = 0
	}
	if c.hold.Mode != lock.Update || !c.d.percent(c.w.s.Upgrade) {
		return true, true
	}
	var r lock.Request
	cancelAfter := c.givesUp(&r)
	e := oracle.Event{Kind: oracle.Upgrading, Client: c.named, Lock: c.hold.Lock.In(0), Mode: lock.Update, Token: c.hold.Token}
	c.report(e)
	c.asking = true
	if cancelAfter >= 0 {
		c.interruptAfter(cancelAfter)
	}
	err := c.k.(lock.Upgrader).Upgrade(&c.hold, &r)
	c.asking = false
	c.port.ClearInterrupt()
	e.Err = err
	switch {
	case err == nil:
		e.Kind, e.Mode = oracle.Upgraded, lock.Exclusive
		c.w.counts.Upgraded++
	case c.hold.Held:
		e.Kind = oracle.Kept
	default:
		e.Kind = oracle.Releasing
		c.report(e)
		e.Kind = oracle.Released
	}
	c.report(e)
	if wrong := c.hold.Held != (err == nil || !errors.Is(err, lock.ErrLost)) || c.hold.Held && c.hold.Mode != e.Mode; wrong {
		c.w.object("errors", fmt.Sprintf("[%v]: the Hold is %+v", &e, c.hold))
	}
	switch {
	case err == nil:
		return true, true
	case errors.Is(err, lock.ErrLost) && slices.ContainsFunc(c.w.s.Plan, func(f sim.Fault) bool { return f.Kind == sim.FaultKill }):
		c.unupgraded = which + 1 // a reader before it has crashed
		return false, true
	}
	return c.hold.Held, c.tolerates(&r, err, canceled || cancelAfter >= 0)
}

// takesForCrashed says whether a client has passed over others by their leases, or was, though none has crashed: then a ticket has been lost.
func (f *baselineLock) takesForCrashed(k lock.Locker) string {
	if f == nil || !f.updates {
		return ""
	}
	n := k.Stats()
	if n.Resets+n.Aborts == 0 {
		return ""
	}
	return fmt.Sprintf("%v: though no client has crashed, it has taken others for crashed %d times, and was passed over %d times", k.Port().ID(), n.Resets, n.Aborts)
}

// updateExplorations adds the programs of locks with update mode: u holds for update, g is upgraded then. The k-th client asks for a lease of k slots, where there
// are several.
func updateExplorations(small bool, add func(x Exploration, clients ...string)) {
	for _, name := range []string{"dslr", "dslr+", "dslr:slots"} { // the others differ in how they pause
		x := Exploration{Policy: name, Rounds: 1, Capacity: 2, Version: 27}
		two := []string{"1s 2u", "1s 2g", "1u 2u", "1u 2g", "1g 2g", "1x 2u", "1x 2g"}
		add(x, two...)
		if small {
			continue
		}
		three := []string{"1s 2s 3u", "1s 2s 3g", "1s 2u 3u", "1s 2u 3g", "1s 2g 3g", "1s 2u 3x", "1s 2g 3x", "1u 2u 3g", "1g 2g 3g", "1x 2u 3g"}
		add(x, three...)
		again, cancel, counts := x, x, x
		again.Rounds, cancel.Cancel, counts.CountMax = 2, true, 2
		add(again, "1s 2u", "1s 2g", "1u 2g", "1g 2g")
		add(cancel, "1s 2u", "1s 2g", "1u 2s", "1g 2s", "1u 2x", "1g 2x", "1x 2g", "1u 2g", "1g 2g")
		add(cancel, "1s 2g 3x", "1s 2s 3g", "1u 2s 3x", "1g 2s 3s", "1g 2s 3x", "1g 2s 3g", "1x 2s 3g")
		add(counts, "1s 2s 3s", "1s 2s 3g", "1s 2g 3x", "1g 2g 3g")
		counts.Rounds = 2
		add(counts, "1s 2s", "1s 2x", "1x 2x", "1s 2g", "1u 2g")
	}
	for _, name := range []string{"cas", "declock"} { // an update lock is an exclusive one: lock.ForUpdate
		x := Exploration{Policy: name, Rounds: 1, Capacity: 2, Version: 27}
		add(x, "1s 2u", "1s 2g", "1g 2g")
		if name == "declock" {
			add(x, "1s 1u", "1s 1g", "1g 1g")
		}
		if !small {
			x.Cancel = true
			add(x, "1s 2g", "1g 2s", "1g 2g")
		}
	}
}
