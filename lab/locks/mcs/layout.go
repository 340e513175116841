package mcs

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A word is the tail of a lock's queue. Zero is free. Format: do not change.
//
//	 63                                 20 19                     0
//	+-------------------------------------+------------------------+
//	|                  0                  |     tail's ClientID    |
//	+-------------------------------------+------------------------+
//
// With tokens, a second word is the token of the holder that left the queue empty last.
type word uint64

const (
	tailMask = 1<<fabric.ClientIDBits - 1
)

func (w word) tail() fabric.ClientID { return fabric.ClientID(w & tailMask) }
func (w word) corrupt() bool         { return w&^tailMask != 0 }

// Tail decodes the first word of a lock: the last client in its queue, 0 if it is free.
func Tail(lockWord uint64) fabric.ClientID { return word(lockWord).tail() }

// Config chooses a variant.
type Config struct {
	// Plain leaves the fencing token out: the lock is one word.
	Plain bool
}

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }

// Kinds of messages. Body: the lock's address, the client whose ticket
// the message is about, the token.
const (
	msgSuccessor = baseline.MsgMCS + iota // From is the next in the queue
	msgHandover                           // the lock is yours
	msgAbandoned                          // to the own agent: do the rest for this ticket
)
