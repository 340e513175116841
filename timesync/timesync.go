package timesync

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// A Stamp is a point in time in microseconds since the clocks were last
// synchronised, modulo 2^16.
type Stamp uint16

// Before reports whether s is earlier than t. Stamps wrap every 65.5 ms: of two
// that are more than half the range (32.7 ms) apart, the greater one counts as
// the earlier (paper section 5.3).
func (s Stamp) Before(t Stamp) bool { return int16(s-t) < 0 }

// A Clock turns a compute node's time into Stamps. The zero value works: it
// is a clock that was never synchronised. Any goroutine may use it.
type Clock struct {
	origin atomic.Int64 // the node's time at the last synchronisation
	rounds atomic.Uint64
}

// Stamp returns the Stamp of the node's time now.
func (c *Clock) Stamp(now fabric.Time) Stamp {
	return Stamp((int64(now) - c.origin.Load()) / int64(fabric.Microsecond))
}

// Rounds returns how often the clock has been synchronised.
func (c *Clock) Rounds() uint64 { return c.rounds.Load() }

// AppendState appends what tells two states of the clock apart.
func (c *Clock) AppendState(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.origin.Load()))
	return binary.LittleEndian.AppendUint64(dst, c.rounds.Load())
}

// ErrNoRound: the other compute nodes did not all come in time. The clock
// goes on as it was; it drifts by microseconds in a second.
var ErrNoRound = errors.New("timesync: not all compute nodes took part in time")

// The counter word, on a memory node; zero is its start.
//
//	 63                 32 31                  0
//	+---------------------+---------------------+
//	|        round        |    nodes arrived    |
//	+---------------------+---------------------+
const arrivedBits = 32

// Sync synchronises the clock with those of all other nodes that call it with
// the same counter at about the same time, n of them with the caller: each
// adds itself to the counter by an FAA; the last one begins the next round,
// and all see that within one READ of each other and take it for time zero
// (paper section 5.3). The counter carries a round so that a node
// that gave up does not disturb later rounds.
//
// It waits until deadline at the latest and returns ErrNoRound then.
func (c *Clock) Sync(p fabric.Port, counter fabric.Addr, n int, deadline fabric.Time) error {
	ops := [1]fabric.Op{fabric.FAA(counter, 1)}
	if err := p.Do(ops[:]); err != nil {
		return err
	}
	round, arrived := ops[0].Old>>arrivedBits, int(ops[0].Old&(1<<arrivedBits-1))+1
	if arrived >= n {
		return c.begin(p, &ops, counter, round)
	}
	for {
		ops[0] = fabric.Load(counter)
		if err := p.Do(ops[:]); err != nil {
			return err
		}
		now := p.Now()
		if ops[0].Old>>arrivedBits != round {
			c.set(now)
			return nil
		}
		if now >= deadline {
			return c.leave(p, &ops, counter, round)
		}
	}
}

// begin starts the next round. More than n may have arrived, and one of them
// may be about to leave, so it retries until the round has changed.
func (c *Clock) begin(p fabric.Port, ops *[1]fabric.Op, counter fabric.Addr, round uint64) error {
	next := (round + 1) & (1<<(64-arrivedBits) - 1) << arrivedBits
	seen := ops[0].Old + 1
	for {
		ops[0] = fabric.CAS(counter, seen, next)
		if err := p.Do(ops[:]); err != nil {
			return err
		}
		if ops[0].Swapped() || ops[0].Old>>arrivedBits != round {
			c.set(p.Now())
			return nil
		}
		seen = ops[0].Old
	}
}

// leave takes the caller off the counter, unless the round has just begun.
func (c *Clock) leave(p fabric.Port, ops *[1]fabric.Op, counter fabric.Addr, round uint64) error {
	for {
		old := ops[0].Old
		if old>>arrivedBits != round {
			c.set(p.Now())
			return nil
		}
		ops[0] = fabric.CAS(counter, old, old-1)
		if err := p.Do(ops[:]); err != nil {
			return err
		}
		if ops[0].Swapped() {
			return ErrNoRound
		}
	}
}

func (c *Clock) set(now fabric.Time) {
	c.origin.Store(int64(now))
	c.rounds.Add(1)
}
