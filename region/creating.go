package region

import (
	"sync"

	"github.com/declock/declock/fabric"
)

// A Creating knows which root entries the clients of one compute node are creating now. All calls of Create by that compute node share one.
// The claim of a name by this compute node that nobody here is creating was left behind: by a call that failed and could not
// free it, or by a crashed process that had the number before. Any goroutine may use it. The zero value is ready.
type Creating struct {
	mu     sync.Mutex
	claims map[creation]int // callers
}

type creation struct {
	mn   fabric.MemID
	hash uint32 // of the name
}

// begin notes that somebody is about to claim a name, until end. A nil Creating knows nothing.
func (c *Creating) begin(mn fabric.MemID, hash uint32) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims == nil {
		c.claims = map[creation]int{}
	}
	c.claims[creation{mn, hash}]++
}

func (c *Creating) end(mn fabric.MemID, hash uint32) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := creation{mn, hash}
	if c.claims[k]--; c.claims[k] == 0 {
		delete(c.claims, k)
	}
}

// idle reports whether nobody here is creating an entry whose name has a hash.
func (c *Creating) idle(mn fabric.MemID, hash uint32) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[creation{mn, hash}] == 0
}

// abandoned reports whether nobody goes on with a claim that was read before. It asks who is alive after that: a process that has got the
// number of a crashed one meanwhile has claimed nothing then. What a failed call of this compute node has under way is executed before what frees
// the claim, if at all (fabric.ErrUnknownOutcome).
func (d *directory) abandoned(st claimWord) bool {
	s := d.spec
	if s == nil {
		return false
	}
	owner := st.owner()
	switch {
	case s.DeadNow != nil && s.DeadNow().Has(owner), s.Dead.Has(owner) && st.hash() == nameHash(s.Name):
		return true
	case owner == d.port.ID().CN():
		return s.Creating.idle(d.r.mn, st.hash())
	}
	return false
}

// giveUp frees the slot that was claimed for an entry that could not be made: if the memory node has restarted meanwhile, in its
// present epoch, where Spec.Retry can. Else the claim stays, and the next search finds it abandoned.
func (d *directory) giveUp(i int, mine claimWord, s *Spec) error {
	err := d.clear(i, mine)
	if err == nil || s.Retry == nil {
		return err
	}
	again := *d
	again.port = s.Retry
	return again.clear(i, mine)
}
