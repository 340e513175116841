package drtm

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A word is the state of a lock. Zero is free. Format: do not change.
//
//	 63                                  9 8          1     0
//	+-------------------------------------+------------+-------+
//	|   end of the lease, microseconds    |          0 |     0 |  readers
//	+-------------------------------------+------------+-------+
//	|   incarnation of the writer's CN    | writer's CN|     1 |  a writer
//	+-------------------------------------+------------+-------+
//
// The incarnation is the low 55 bits of fabric.Members' one; 0: it is not known.
type word uint64

const (
	write      = word(1)
	ownerShift = 1
	ownerMask  = word(0xff)
	restShift  = 9
	restMask   = uint64(1)<<(64-restShift) - 1
)

// writerWord returns the word of a lock that a client of an incarnation of a node has exclusively.
func writerWord(cn fabric.CNID, incarnation uint64) word {
	return word(incarnation)<<restShift | word(cn)<<ownerShift | write
}

// leased returns the word of a lock that is leased until a time.
func leased(end fabric.Time) word { return word(end/fabric.Microsecond) << restShift }

func (w word) written() bool      { return w&write != 0 }
func (w word) owner() fabric.CNID { return fabric.CNID(w >> ownerShift & ownerMask) }
func (w word) corrupt() bool      { return w.written() != (w.owner() != 0) }

// end returns until when the lock is leased, if no writer has it.
func (w word) end() fabric.Time { return fabric.Time(w>>restShift) * fabric.Microsecond }

// ofAnother reports whether the writer's node is not the incarnation that has its number now. Either may be unknown.
func (w word) ofAnother(now uint64) bool {
	had := uint64(w >> restShift)
	return had != 0 && now != 0 && had != now&restMask
}

func (w word) String() string {
	if w.written() {
		return fmt.Sprintf("writer of %v", w.owner())
	}
	return fmt.Sprintf("leased until %d us", w.end()/fabric.Microsecond)
}

// Decode takes the first word of a lock apart: the compute node of its writer, 0 if there is none, and until when it is leased.
func Decode(lockWord uint64) (writer fabric.CNID, end fabric.Time) {
	w := word(lockWord)
	if w.written() {
		return w.owner(), 0
	}
	return 0, w.end()
}

// Used is the word of a lock that readers had last, long ago: their lease ended when the clocks began. The next client needs a second CAS.
func Used() uint64 { return uint64(leased(fabric.Microsecond)) }

// Config chooses a variant. The zero value is the lock of DrTM's paper, with the constants of ShiftLock's comparison, and with tokens.
type Config struct {
	// Plain leaves the fencing token out: the lock is one word.
	Plain bool
	// LeaseNs is how long readers may hold; 0 is 1 ms.
	LeaseNs fabric.Time
	// Half has readers join a lease only if more than half of it is left, as ShiftLock's comparison does, and not any that is valid.
	Half bool
	// UncertaintyNs is by how much a clock may differ from the true time; 0 is 50 us. It must be less than half of LeaseNs, with Half
	// less than a quarter. All clients must have the same.
	UncertaintyNs fabric.Time
	// RetryNs is the pause between tries; 0: one follows the other.
	RetryNs fabric.Time
}

// Constants of ShiftLock's comparison (its section 4.1, and its code).
const (
	// DefaultLeaseNs is the lease of readers.
	DefaultLeaseNs = fabric.Millisecond
	// DefaultUncertaintyNs is by how much clocks may be off.
	DefaultUncertaintyNs = 50 * fabric.Microsecond
)

func (c Config) withDefaults() Config {
	if c.LeaseNs <= 0 {
		c.LeaseNs = DefaultLeaseNs
	}
	if c.UncertaintyNs <= 0 {
		c.UncertaintyNs = DefaultUncertaintyNs
	}
	return c
}

// left is how much of a lease there must be for a reader to join it.
func (c *Config) left() fabric.Time {
	if c.Half {
		return c.LeaseNs / 2
	}
	return 0
}

// Check returns the error of a lease that is not long enough for clocks that are so far off: lock.ErrMisuse. Such a lease ends when it begins or, with Half, before
// a second reader can join it.
func (c Config) Check() error {
	c = c.withDefaults()
	least := 2 * c.UncertaintyNs
	if c.Half {
		least = 4 * c.UncertaintyNs
	}
	if c.LeaseNs <= least {
		return fmt.Errorf("%w: a lease of %d us, by clocks that may be off by %d us: it must be more than %d", lock.ErrMisuse, c.LeaseNs/fabric.Microsecond, c.UncertaintyNs/fabric.Microsecond, least/fabric.Microsecond)
	}
	return nil
}

// valid reports whether a lease that ends at a time is valid for some time more, and expired whether it has ended on all nodes.
func (c *Config) valid(end, now, left fabric.Time) bool { return now < end-c.UncertaintyNs-left }
func (c *Config) expired(end, now fabric.Time) bool     { return now > end+c.UncertaintyNs }

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }
