package memory

import (
	"errors"
	"slices"
	"sync"

	"github.com/declock/declock/fabric"
)

// A Creating knows which root entries the clients of one compute node are creating now. All calls of Create by that compute node share one.
// The claim of a name by this compute node that no client here is creating was left behind: by a call that failed and could not
// free it, or by a crashed process that had the number before. Any goroutine may use it. The zero value is ready.
type Creating struct {
	mu     sync.Mutex
	claims map[creation]int  // callers
	left   map[creation]bool // claims of calls that have failed, and could not undo them
	undo   []undoing         // what else they could not undo
}

// An undoing is what is to be undone in a region.
type undoing struct {
	r    *Region
	undo func(port fabric.Port) error
}

// Undo undoes something in a region that a call of this compute node has done which has failed, or may have done. If that fails, FreeLeft tries again: undo does nothing then, if there is nothing to undo.
func (c *Creating) Undo(port fabric.Port, r *Region, undo func(port fabric.Port) error) error {
	err := undo(port)
	if err != nil && c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.undo = append(c.undo, undoing{r, undo})
	}
	return err
}

// undoneLater returns what is to be undone on a memory node, and forgets it.
func (c *Creating) undoneLater(mn fabric.MemID) (list []undoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undo = slices.DeleteFunc(c.undo, func(x undoing) bool {
		if x.r.mn == mn {
			list = append(list, x)
		}
		return x.r.mn == mn
	})
	return list
}

// undoLeft undoes what calls that have failed could not. What is left of a memory that was lost is gone with it.
func (r *Region) undoLeft(port fabric.Port, c *Creating) (err error) {
	for _, x := range c.undoneLater(r.mn) {
		if x.r.uuid == r.uuid {
			err = errors.Join(err, c.Undo(port, x.r, x.undo))
		}
	}
	return err
}

type creation struct {
	mn   fabric.MemID
	hash uint32 // of the name
}

// begin notes that a client is about to claim a name, until end. A nil Creating knows nothing.
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

// idle reports whether no client here is creating an entry whose name has a hash.
func (c *Creating) idle(mn fabric.MemID, hash uint32) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[creation{mn, hash}] == 0
}

// abandoned reports whether no client goes on with a claim that was read before. It asks which nodes are alive after that: a process that has got the
// number of a crashed one meanwhile has claimed nothing then. What a failed call of this compute node has under way is executed before what frees
// the claim, if at all (fabric.ErrUnknownOutcome).
func (d *directory) abandoned(st claimWord) bool {
	s := d.spec
	if s == nil {
		return false
	}
	owner := st.owner()
	switch {
	case s.DeadNow != nil && s.DeadNow().Has(owner):
		return true
	case owner == d.port.ID().CN():
		return s.Creating.idle(d.r.mn, st.hash())
	}
	return false
}

// giveUp undoes the claim of slot i, of an entry that could not be made because of err: others wait for the name, and one of them can make it then. If the
// memory node has restarted meanwhile, that is done in its present epoch, where Spec.Retry can. Else the claim stays, and FreeLeft or the next search
// of this compute node frees it. It returns err, with what failed besides.
//
// The outcome of what failed may be unknown: it is executed before what comes here, or never (fabric.ErrUnknownOutcome). An entry that was published is left as it is.
func (d *directory) giveUp(i int, mine claimWord, err error) error {
	s := d.spec
	cerr := d.unclaim(i, mine)
	if cerr != nil && s.Retry != nil {
		again := *d
		again.port = s.Retry
		cerr = again.unclaim(i, mine)
	}
	if cerr != nil {
		s.Creating.leave(creation{d.r.mn, mine.hash()})
	}
	if err == nil {
		return cerr
	}
	if cerr == nil {
		return err
	}
	return errors.Join(err, cerr)
}

// unclaim undoes a claim of slot i, if that is its state: retired memory is retired again, a slot that was free is free, with what it has got since.
func (d *directory) unclaim(i int, mine claimWord) error {
	if mine.state() == claimReused {
		if err := d.read(); err != nil {
			return err
		}
		_, err := d.cas(i, mine, d.withdrawn(i, mine))
		return err
	}
	return d.clear(i, mine)
}

// leave notes claims that could not be undone.
func (c *Creating) leave(left ...creation) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = map[creation]bool{}
	}
	for _, k := range left {
		c.left[k] = true
	}
}

// Left reports whether calls that have failed may have left claims, or something else to undo, on a memory node.
func (c *Creating) Left(mn fabric.MemID) bool {
	if len(c.leftOn(mn)) > 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.undo, func(x undoing) bool { return x.r.mn == mn })
}

// leftOn returns the claims left on a memory node, of names that no client here is creating.
func (c *Creating) leftOn(mn fabric.MemID) (left []creation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.left {
		if k.mn == mn && c.claims[k] == 0 {
			left = append(left, k)
		}
	}
	return left
}

// FreeLeft frees what failed calls of Create by this compute node left half made in the region, and could not free, and undoes what else they left (Creating.Undo): c is their Creating. A
// compute node calls it now and then, so that others need not wait for its next Create. If nothing was left, nothing is done.
func (r *Region) FreeLeft(port fabric.Port, c *Creating) error {
	undone := r.undoLeft(port, c)
	left := c.leftOn(r.mn)
	if len(left) == 0 {
		return undone
	}
	c.forget(left)
	err := r.FreeAbandoned(port, nil, c)
	if err != nil {
		c.leave(left...)
	}
	return errors.Join(undone, err)
}

// FreeAbandoned frees all names that nobody goes on to make: dead and creating are as in a Spec. A compute node calls it when it has just joined the cluster, for what was left by the one that had its
// number before: others cannot tell that from what it makes.
func (r *Region) FreeAbandoned(port fabric.Port, dead func() fabric.CNSet, creating *Creating) error {
	d := r.directory(port)
	defer d.free()
	d.spec = &Spec{DeadNow: dead, Creating: creating}
	return d.vacateAbandoned()
}

func (d *directory) vacateAbandoned() error {
	_, _, _, _, err := d.search("", none) // no entry has that name
	return err
}

func (c *Creating) forget(left []creation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range left {
		delete(c.left, k)
	}
}
