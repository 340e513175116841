package tcp

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A tally counts the operations that clients of a compute node have executed by their CPU: by fabric.OpKind, then the bytes that they read and wrote. It is in memory that the
// memory node sees, behind the page of control: it, too, says what is executed there.
//
// The first ownTallies belong to one Port each, which adds to words that nobody else writes: an atomic addition for each would cost as much as a short operation. Ports
// beyond these share the others, by atomic additions. Readers sum all of them.
type tally [16]uint64

const (
	tallyRead    = len(tally{}) - 2
	tallyWritten = len(tally{}) - 1

	ownTallies    = 64
	sharedTallies = 64
	talliesSize   = (ownTallies + sharedTallies) * uint64(unsafe.Sizeof(tally{}))
)

// add adds operations.
func (t *tally) add(ops []fabric.Op) {
	for i := range ops {
		o := &ops[i]
		t[o.Kind]++
		switch n := uint64(o.Size()); o.Kind {
		case fabric.OpRead:
			t[tallyRead] += n
		case fabric.OpWrite:
			t[tallyWritten] += n
		}
	}
}

// sum adds another tally, which Ports may be adding to.
func (t *tally) sum(o *tally) {
	for i := range o {
		t[i] += atomic.LoadUint64(&o[i])
	}
}

// tallyAt returns a tally of the page; nil: the memory node is of a release that has none.
func (c *control) tallyAt(i int) *tally {
	if !c.tallies {
		return nil
	}
	return (*tally)(unsafe.Add(c.at, controlSize+i*int(unsafe.Sizeof(tally{}))))
}

// count counts operations that were executed, in the tally that a Port has.
func (c *control) count(i int, ops []fabric.Op) {
	t := c.tallyAt(i)
	switch {
	case t == nil:
	case i < ownTallies:
		t.add(ops)
	default:
		var some tally
		some.add(ops)
		for k, n := range some {
			if n > 0 {
				atomic.AddUint64(&t[k], n)
			}
		}
	}
}

// counted returns what was counted.
func (c *control) counted() (t tally) {
	for i := 0; i < ownTallies+sharedTallies && c.tallies; i++ {
		t.sum(c.tallyAt(i))
	}
	return t
}

// executed is what was executed by CPU: chains, with those that were refused, and operations.
type executed struct {
	chains uint64
	tally
}

func (x *executed) add(c *control) {
	x.chains += c.chains()
	t := c.counted()
	x.sum(&t)
}

func (x *executed) counters() member.LocalCounters {
	c := member.LocalCounters{Chains: x.chains, Ops: map[fabric.OpKind]uint64{}, ReadBytes: x.tally[tallyRead], WriteBytes: x.tally[tallyWritten]}
	for i, n := range x.tally[:tallyRead] {
		if n > 0 {
			c.Ops[fabric.OpKind(i)] = n
		}
	}
	return c
}

// locals are the locals of a compute node, and which tallies its Ports have.
type locals struct {
	mu   sync.Mutex
	open []*local
	past executed // of those that are no more
	used uint64   // tallies that are Ports' own
}

// take returns the tally of a new Port.
func (x *locals) take(lane int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := bits.TrailingZeros64(^x.used)
	if i == ownTallies {
		return ownTallies + lane%sharedTallies
	}
	x.used |= 1 << i
	return i
}

// give takes the tally of a Port back that executes nothing any more.
func (x *locals) give(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i < ownTallies {
		x.used &^= 1 << i
	}
}

// begin notes a local.
func (x *locals) begin(l *local) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, l)
}

// end notes that nothing is executed any more in a local.
func (x *locals) end(l *local) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.open, l); i >= 0 {
		x.open = slices.Delete(x.open, i, i+1)
		x.past.add(l.control)
	}
}

// LocalCounters is member.Local.
func (n *node) LocalCounters() member.LocalCounters {
	x := &n.locals
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.past
	for _, l := range x.open {
		all.add(l.control)
	}
	return all.counters()
}

// Ways is member.Local.
func (n *node) Ways() (list []member.Way) {
	for m := range n.Remotes {
		if !m.Up.Load() {
			continue
		}
		r := lanesOf(m)
		w := member.Way{Memory: r.MN.ID, Copy: r.Backup}
		if l := r.short.local.Load(); l != nil {
			w.Local, w.Chains = true, l.control.chains()
		} else {
			w.Why = r.short.whyNot(n.o.Local)
		}
		list = append(list, w)
	}
	return list
}

// whyNot says why there is no local.
func (s *shortcut) whyNot(wanted bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.failure
	switch {
	case !wanted:
		return "the compute node was started without --local"
	case err == nil:
		return "it has not been asked for its memory yet"
	case errors.Is(err, errNotLent):
		return "it does not lend its memory, or is on another machine"
	case errors.Is(err, errLeaveEnded):
		return errLeaveEnded.Error()
	}
	return fmt.Sprint(err)
}

var (
	errNotLent    = errors.New("not lent")
	errLeaveEnded = errors.New("it has taken its memory back, or the connection broke: the compute node asks anew in the next epoch")
)
