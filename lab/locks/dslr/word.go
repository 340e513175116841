package dslr

import (
	"fmt"
	"math"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A word is the state of a lock. Zero is free. Format: do not change.
//
//	 63          48 47          32 31          16 15           0
//	+--------------+--------------+--------------+--------------+
//	|      nX      |      nS      |     maxX     |     maxS     |
//	+--------------+--------------+--------------+--------------+
//
// maxX and maxS are the next tickets, nX and nS count clients that have left. All stay far
// from 2^16, because no ticket is given from CountMax on, and each client draws in vain at most once, and no more tickets than Config.Check lets it: no carry
// and no borrow leaves its field.
type word uint64

const (
	oneMaxS = word(1)
	oneMaxX = word(1) << 16
	oneNS   = word(1) << 32
	oneNX   = word(1) << 48
)

func makeWord(nX, nS, maxX, maxS uint16) word {
	return word(nX)<<48 | word(nS)<<32 | word(maxX)<<16 | word(maxS)
}

func (w word) nX() uint16   { return uint16(w >> 48) }
func (w word) nS() uint16   { return uint16(w >> 32) }
func (w word) maxX() uint16 { return uint16(w >> 16) }
func (w word) maxS() uint16 { return uint16(w) }

// full reports whether no ticket is given until the counters have been reset.
func (w word) full(countMax uint16) bool { return w.maxX() >= countMax || w.maxS() >= countMax }

// served reports whether there are no tickets whose owners hold or wait.
func (w word) served() bool { return w.nX() >= w.maxX() && w.nS() >= w.maxS() }

// sameCounts reports whether no client has left between two looks.
func (w word) sameCounts(v word) bool { return w>>32 == v>>32 }

func (w word) String() string {
	return fmt.Sprintf("{nX %d, nS %d, maxX %d, maxS %d}", w.nX(), w.nS(), w.maxX(), w.maxS())
}

// Counters decodes the first word of a lock.
func Counters(lockWord uint64) (nX, nS, maxX, maxS uint16) {
	w := word(lockWord)
	return w.nX(), w.nS(), w.maxX(), w.maxS()
}

// drawn returns what a ticket of a mode with some slots adds to the word, and returned what giving it back adds. A ticket for update is one of a writer.
func drawn(m lock.Mode, slots uint16) word {
	if m == lock.Shared {
		return oneMaxS * word(slots)
	}
	return oneMaxX * word(slots)
}

func returned(m lock.Mode, slots uint16) word {
	if m == lock.Shared {
		return oneNS * word(slots)
	}
	return oneNX * word(slots)
}

// Wait is how a waiter pauses between polls.
type Wait uint8

// See the package's comment.
const (
	Dynamic Wait = iota
	Truncated
	Overflowing
	Busy
)

// Config chooses a variant. The zero value is the paper's lock with tokens.
type Config struct {
	// Plain leaves the fencing token out: the lock is one word.
	Plain bool
	Wait  Wait
	// LeaseNs is how long a holder may hold; default the paper's 10 ms. All clients must have the same.
	LeaseNs fabric.Time
	// WaitNs is for how long a waiter pauses for each ticket before its own (Dynamic): tuned to the latency of the network, section 4.6. Default the paper's 5 us.
	WaitNs fabric.Time
	// ForWriters has a reader pause for the writers' tickets before its own alone, as in ShiftLock's published code (Dynamic). The paper counts all (line 20 of Algorithm 2).
	ForWriters bool
	// MultiSlot has a client that asks for a longer lease (lock.Request.LeaseNs) draw several tickets, and others wait for as many leases. All clients
	// must have the same.
	MultiSlot bool
	// Clients is how many clients there are at most, of all compute nodes, which bounds the tickets that one may draw: see Check. 0: as many as may draw the
	// most that there are, 100.
	Clients int
	// CountMax is where counters are reset; default the paper's 32768, which is also the most. All clients
	// must have the same, and no cycle of so many tickets may end within half a lease.
	CountMax uint16
	// Withdraw has a client that draws a ticket of counters at their limit take it back at once, as the paper's Algorithm 1 does, and the client
	// that resets them repeat its CAS until no such ticket is there. For measurements only: a reset for crashed clients would not be safe beside tickets that
	// are being taken back (docs/findings.md), so there is none while counters are at their limit.
	Withdraw bool
	// ResetMaxNs is the longest backoff of clients that wait for a reset of the counters, or do it; default the paper's 10 ms.
	ResetMaxNs fabric.Time
}

// Constants of the papers.
const (
	// DefaultLeaseNs is DSLR's lease.
	DefaultLeaseNs = 10 * fabric.Millisecond

	defaultCountMax = 1 << 15
	// MaxSlots bounds the tickets of one acquisition: of more than 326 clients, Config.mostSlots does.
	MaxSlots = 100

	// DefaultWaitNs is what the paper took for its cluster in dynamic interval polling (section 4.6): per ticket before the waiter.
	DefaultWaitNs = 5 * fabric.Microsecond

	// DefaultResetMinNs and DefaultResetMaxNs are the backoff of clients that find the counters at their limit (appendix A.3).
	DefaultResetMinNs = 10 * fabric.Microsecond
	DefaultResetMaxNs = 10 * fabric.Millisecond
	// DSLR+ as DecLock's authors set it: from 100 ns to 32 times that, and up to 2 us by chance.
	backoffMinNs = 100
	backoffMaxNs = 32 * backoffMinNs
	jitterNs     = 2000
)

func (c Config) withDefaults() Config {
	if c.LeaseNs <= 0 {
		c.LeaseNs = DefaultLeaseNs
	}
	if c.CountMax == 0 || c.CountMax > defaultCountMax {
		c.CountMax = defaultCountMax
	}
	if c.WaitNs <= 0 {
		c.WaitNs = DefaultWaitNs
	}
	if c.ResetMaxNs <= 0 {
		c.ResetMaxNs = DefaultResetMaxNs
	}
	return c
}

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }

// Check returns the error of clients that ask for leases of some length (0: of one slot): lock.ErrMisuse if there are too many. When counters are at their limit, each
// may draw its tickets in vain, and a counter of 16 bits must not run over.
func (c Config) Check(leaseNs fabric.Time) error {
	c = c.withDefaults()
	_, err := c.slots(leaseNs)
	return err
}

// mostSlots is how many tickets each client may draw: the last that is given, and those of all clients that are drawn in vain, fit in a counter.
func (c *Config) mostSlots() int {
	return min((1+math.MaxUint16-int(c.CountMax))/(c.Clients+1), MaxSlots)
}

// slots returns how many tickets a lease of some length takes.
func (c *Config) slots(leaseNs fabric.Time) (uint16, error) {
	n := 1
	if c.MultiSlot && leaseNs > c.LeaseNs {
		n = int(min((leaseNs+c.LeaseNs-1)/c.LeaseNs, MaxSlots))
	}
	if most := c.mostSlots(); n > most {
		return 0, fmt.Errorf("%w: %d clients whose leases take %d slots of %s each: counters of 16 bits allow so many clients %d", lock.ErrMisuse, c.Clients, n, ms(c.LeaseNs), most)
	}
	return uint16(n), nil
}

// ms writes a time.
func ms(t fabric.Time) string { return fmt.Sprintf("%g ms", float64(t)/float64(fabric.Millisecond)) }

// patience is for how long a client that waits for the owners of some tickets sees no progress before it takes them for crashed: two leases. With several
// slots, two for each ticket, for one of them may have them all (section 5.1).
func (c *Config) patience(tickets int) fabric.Time {
	if !c.MultiSlot {
		tickets = 1
	}
	return 2 * c.LeaseNs * fabric.Time(max(tickets, 1))
}

// under returns how many tickets are with clients that hold or wait.
func (w word) under() int { return int(w.maxX()) - int(w.nX()) + int(w.maxS()) - int(w.nS()) }
