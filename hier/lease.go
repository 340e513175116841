package hier

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A sighting is of a lock that was held when the agent looked. A holder records no
// time: that would cost each acquisition a look at the clock.
type sighting struct {
	at       fabric.Time // when this hold was seen first
	token    lock.Token
	streak   uint32 // holders of this tenure so far: readers that come and go share a token
	reported bool
}

// overdue returns the locks that have been held, by the same grant, for longer than a
// lease; each once. The agent calls it now and then.
func (t *Table) overdue(now, leaseNs fabric.Time) (list []lock.Loss) {
	seen := make(map[fabric.Addr]sighting, len(t.seen))
	t.each(func(x *local) {
		if x.state != held || x.holders == 0 {
			return
		}
		s, ok := t.seen[x.ticket.Lock]
		if token := x.token(); !ok || s.token != token || s.streak != x.streak {
			s = sighting{at: now, token: token, streak: x.streak}
		}
		if now-s.at > leaseNs && !s.reported {
			s.reported = true
			list = append(list, x.loss(fmt.Errorf("%w: %v, %v, token %v, by %d clients of this node",
				lock.ErrOverdue, x.ticket.Lock, x.mode, x.token(), x.holders)))
		}
		seen[x.ticket.Lock] = s
	})
	t.seen = seen
	return list
}
