package check

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// homesCrash draws a lock with servers on compute nodes, and which of these crash. The witness has none.
func (s *Scenario) homesCrash(d *drawer) {
	s.Lock = pick(d, namesOf(func(f *baselineLock) bool { return f.homes })...)
	s.crashAllBut(d, s.kill)
	s.DetectNs = pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond)
}

// homeOf returns the compute node that has the table a lock is in.
func (s *Scenario) homeOf(l fabric.Addr) (cn int) { return 1 + server.HomeOf(l, s.CNs) }

// homeGone reports whether the table that a lock is in is lost: its server's node has crashed.
func (w *world) homeGone(l fabric.Addr) bool {
	return w.s.Class == HomesCrash && w.dead(w.s.homeOf(l))
}

// servedUntil has a request end some time, if its server crashes at some time: then that answers no more.
func (c *client) servedUntil(r *lock.Request, l fabric.Addr) {
	if c.w.s.Class == HomesCrash && r.Deadline == 0 && c.w.s.deadly(c.w.s.homeOf(l)) {
		r.Deadline = c.port.Now() + max(2*c.w.s.WaitNs, fabric.Microsecond) + c.d.time(10*c.w.s.WaitNs)
	}
}

// unserved reports whether an error says that the server of a lock has gone.
func (c *client) unserved(l fabric.Addr, err error) bool {
	return errors.Is(err, fabric.ErrNodeDown) && c.w.homeGone(l)
}
