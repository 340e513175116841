package sim

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// Config says what to simulate. The zero value is a CX4 cluster without faults, of seed 0.
type Config struct {
	// Seed determines the run: the same seed, configuration and program give
	// the same history, event by event.
	Seed uint64
	// NIC is the model of the network; the zero value means CX4().
	NIC NIC

	// Cores of a compute node, and clients that share a core and its queue pair
	// to each memory node. 0 means 16 and 2 (the paper's 32 clients per node).
	Cores          int
	ClientsPerCore int

	// Clocks of the compute nodes in the order of AddCN; those beyond are exact.
	Clocks []Clock

	Tear Tear

	// ExchangeReads is the probability that of two READs which follow each other in a chain the second sees memory before
	// the first. If it is not 0, the fabric does not promise fabric.Caps.ReadsInOrder. (Not in exploration.)
	ExchangeReads float64

	// SplitAtomics: atomics of the NIC are atomic among themselves, and not with those of CPUs (fabric.Caps.GlobalAtomics): each reads, and then
	// writes what it leaves behind. In between CPUs of the machine may do anything, and NICs nothing to its words.
	SplitAtomics bool
	// ShortWay: Ports execute chains by CPU where the memory is Near, as a fabric may whose atomics are global.
	ShortWay bool

	// DetectDelay is from the crash of a compute node until the coordinator notices. 0 means 10 ms.
	DetectDelay fabric.Time
	// NewsDelay is how long it takes at most until a node hears of a change of the membership: each after a time of
	// its own, drawn. 0: all at once, and so that states between changes and their acknowledgement are skipped.
	NewsDelay fabric.Time
	// AckTime is how long the coordinator works on an acknowledgement of a member: it takes one after another. 0: no time. (With NewsDelay, and not in exploration.)
	AckTime fabric.Time
	// Late says what becomes of the operations that a killed node has under way.
	Late LateOps

	// BreakAfter is for how long a chain may be held up by a Cut before its
	// connection breaks: ErrUnknownOutcome. 0: it waits until the end of the Cut.
	BreakAfter fabric.Time

	// BrokenLate is by how much later than the end of the Cut an operation takes effect, at most, whose request was held up until the
	// connection broke: half of them do, at a time drawn from the break on. Until then, what the compute node posts to that memory
	// node waits. 0: they take none.
	BrokenLate fabric.Time

	// Stray is by how much a message between compute nodes may come later than others: then messages keep their order
	// only between two clients, which is all that package fabric promises. 0: they keep it between two compute nodes.
	Stray fabric.Time

	// Grace is for how long an interrupted Port waits for a chain, at most: ErrInterrupted, with ErrUnknownOutcome if it has been sent and changes
	// memory. 0: until it is done. (Not in exploration.)
	Grace fabric.Time

	// KeepLast spares a memory node a fault that would end it, or have it declared dead, while it has a copy in sync of a number of which no other is up, or
	// while another fault has ended it. A copy that is to be dropped does not count.
	KeepLast bool

	// FormatCopy is called with the zeroed memory of each new backup of a number, which it formats; nil: whoever uses it does.
	FormatCopy func(id fabric.MemID, write func(offset uint64, b []byte))

	// MaxEvents ends Run with ErrBudget. 0: no limit.
	MaxEvents uint64

	// Observer sees every event of the history. It may be nil.
	Observer Observer
}

// A Clock is the error of one compute node's clock.
type Clock struct {
	Offset fabric.Time // ahead of virtual time at its start
	Drift  int64       // nanoseconds gained per second, more than -1e9
}

// Tear says how READs and WRITEs of more than 8 bytes tear: into up to four
// parts that take effect at different instants. A part is a random set of
// pieces; pieces end at multiples of Grain.
type Tear struct {
	Prob   float64     // of an operation to tear
	Grain  int         // 64 as NICs do, 8 as CPUs do; 0 means 64
	Window fabric.Time // from the first part to the last; 0 means 500 ns
}

// LateOps says what becomes of operations that are under way when their
// compute node is killed.
type LateOps uint8

// The fates of late operations.
const (
	LateDraw LateOps = iota // each chain's fate is drawn
	LateDrop                // they take no effect
	LateKeep                // they take effect in their time
	numLateOps
)

func (l LateOps) String() string { return nameOf([]string{"draw", "drop", "keep"}, l) }

// withDefaults returns the configuration with its zero values filled in.
func (c Config) withDefaults() Config {
	if c.NIC == (NIC{}) {
		c.NIC = CX4()
	}
	if c.Cores == 0 {
		c.Cores = 16
	}
	if c.ClientsPerCore == 0 {
		c.ClientsPerCore = 2
	}
	if c.Tear.Grain == 0 {
		c.Tear.Grain = 64
	}
	if c.Tear.Window == 0 {
		c.Tear.Window = 500
	}
	if c.DetectDelay == 0 {
		c.DetectDelay = 10 * fabric.Millisecond
	}
	return c
}

// Validate says what is wrong with the configuration, if anything.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
	}
	if c.Cores < 1 || c.Cores > fabric.MaxClientIndex {
		bad("Cores %d is not 1 to %d", c.Cores, fabric.MaxClientIndex)
	}
	if c.ClientsPerCore < 1 {
		bad("ClientsPerCore %d is less than 1", c.ClientsPerCore)
	}
	if c.Tear.Prob < 0 || c.Tear.Prob > 1 {
		bad("Tear.Prob %v is no probability", c.Tear.Prob)
	}
	if g := c.Tear.Grain; g < 8 || g&(g-1) != 0 {
		bad("Tear.Grain %d is no power of two from 8", g)
	}
	if c.ExchangeReads < 0 || c.ExchangeReads > 1 {
		bad("ExchangeReads %v is no probability", c.ExchangeReads)
	}
	for _, t := range []struct {
		name string
		v    fabric.Time
	}{{"Tear.Window", c.Tear.Window}, {"DetectDelay", c.DetectDelay}, {"NewsDelay", c.NewsDelay}, {"AckTime", c.AckTime}, {"Grace", c.Grace}, {"Stray", c.Stray}} {
		if t.v < 0 {
			bad("%s %d is negative", t.name, t.v)
		}
	}
	if c.Late >= numLateOps {
		bad("Late is %v", c.Late)
	}
	for i, k := range c.Clocks {
		if k.Drift <= -1e9 || k.Drift > 1e9 {
			bad("Clocks[%d].Drift %d is not within 1e9", i, k.Drift)
		}
	}
	errs = append(errs, c.NIC.Validate())
	return errors.Join(errs...)
}

// local returns what the clock shows at a virtual time.
func (k Clock) local(t fabric.Time) fabric.Time {
	return t + k.Offset + t/fabric.Second*fabric.Time(k.Drift) + t%fabric.Second*fabric.Time(k.Drift)/fabric.Second
}

// virtual returns the first virtual time, from now on, at which the clock
// shows at least l.
func (k Clock) virtual(now, l fabric.Time) fabric.Time {
	if l > fabric.Forever/2 { // no clock gets there
		return fabric.Forever
	}
	if k == (Clock{}) {
		return max(now, l)
	}
	if l <= k.local(now) {
		return now
	}
	lo, hi := now, now // local(lo) < l; find hi with local(hi) >= l
	for step := l - k.local(now); k.local(hi) < l; step *= 2 {
		lo, hi = hi, hi+step
	}
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; k.local(mid) < l {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
