package qplock

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// The words of a lock, and where they are. Zero is free. Format: do not change.
//
//	word           qplock  ALock
//	tail, remote        0      0   ClientID of the cohort's last, 20 bits; 0: none
//	tail, local         8     16   the same
//	victim             16     32   1: the remote cohort waits, 2: the local one
//	token              24     40   of the last holder that left its cohort; not with Config.Plain
type words struct {
	tail          [2]uint64 // by cohort
	victim, token uint64
}

var (
	compact = words{tail: [2]uint64{0, 8}, victim: 16, token: 24}
	padded  = words{tail: [2]uint64{0, 16}, victim: 32, token: 40}
)

// lineSize is the size of a lock of ALock.
const lineSize = 64

// A cohort is one of the two kinds of clients.
type cohort uint8

const (
	remote cohort = iota
	local
)

func (c cohort) other() cohort  { return local - c }
func (c cohort) victim() uint64 { return uint64(c) + 1 }

const tailMask = 1<<fabric.ClientIDBits - 1

// corrupt reports whether a tail is none that a client has written.
func corrupt(tail uint64) bool { return tail&^tailMask != 0 }

// Budget is that of ALock's published configuration, for both cohorts. The paper of the asymmetric lock names none.
const Budget = 5

// Config chooses a variant.
type Config struct {
	// Plain leaves the fencing token out.
	Plain bool
	// ALock makes it ALock.
	ALock bool
	// Local and Remote are how often a cohort is granted in a row while the other waits; 0: Budget.
	Local, Remote uint32
	// Loopback reports whether a client uses the NIC, as one of the remote cohort, though the memory is near. nil: none does.
	Loopback func(fabric.ClientID) bool
}

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout {
	switch {
	case c.ALock:
		return lock.Layout{Size: lineSize, Align: lineSize}
	case c.Plain:
		return lock.Layout{Size: 24, Align: 8}
	}
	return lock.Layout{Size: 32, Align: 8}
}

func (c *Config) words() words {
	if c.ALock {
		return padded
	}
	return compact
}

// Words returns where a lock has its tails, of the remote and of the local cohort, and the victim.
func (c Config) Words() (remoteTail, localTail, victim uint64) {
	at := c.words()
	return at.tail[remote], at.tail[local], at.victim
}

// budget returns that with which a leader of a cohort begins.
func (c *Config) budget(of cohort) uint32 {
	b := c.Remote
	if of == local {
		b = c.Local
	}
	if b == 0 {
		b = Budget
	}
	return b
}

// Kinds of messages. Body: the lock's address, the client whose ticket the message is about, the token of the last holder, the budget.
const (
	msgSuccessor = baseline.MsgQPLock + iota // From is the next in the queue
	msgHandover                              // the cohort's lock is yours; unless the budget is empty, the whole lock
	msgAbandoned                             // to the own agent: do the rest for this ticket
)
