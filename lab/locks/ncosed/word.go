package ncosed

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A word is the state of a lock. Zero is free. Format: do not change.
//
//	 63      52 51                  32 31                            0
//	+----------+----------------------+-------------------------------+
//	|    0     |   tail's ClientID    |   readers since, or in all    |
//	+----------+----------------------+-------------------------------+
//
// With tokens, a second word counts exclusive grants.
type word uint64

const (
	tailShift = 32
	oneReader = word(1)
)

func makeWord(tail fabric.ClientID, readers uint32) word {
	return word(tail)<<tailShift | word(readers)
}

func (w word) tail() fabric.ClientID { return fabric.ClientID(w >> tailShift) }
func (w word) readers() uint32       { return uint32(w) }
func (w word) corrupt() bool         { return w.tail() >= 1<<fabric.ClientIDBits }

func (w word) String() string { return fmt.Sprintf("{tail %v, %d readers}", w.tail(), w.readers()) }

// Decode takes the first word of a lock apart: the last writer that wants it, 0 if there is none, and how many readers have come since.
func Decode(lockWord uint64) (tail fabric.ClientID, readers uint32) {
	return word(lockWord).tail(), word(lockWord).readers()
}

// Config chooses a variant.
type Config struct {
	// Plain leaves the fencing token out: the lock is one word.
	Plain bool
	// Homes, if not 0, has the agents of so many compute nodes, from the first one on, be homes: each of the locks of a part of the memory nodes, in turn. Else the first is
	// the home of all.
	Homes int
}

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }

// Kinds of messages. Body: the lock's address; and of those to a client, the client whose ticket the message is about.
const (
	msgReader    = baseline.MsgNCoSED + iota // and the reader, which waits behind you
	msgWriter                                // and the writer, which waits behind you, and how many readers come before it
	msgGranted                               // the lock is yours
	msgReleases                              // and how many readers have released: the home's answer to a Try
	msgAbandoned                             // to the own agent: do the rest for this ticket

	msgReleased // to the home: a reader has released
	msgAwait    // to the home, and a writer, and of how many readers the releases are to be awaited before it is granted the lock
	msgAsk      // to the home, and who asks
)

// HomeOf returns the first of the agents that are homes of locks: that of the lowest node that is live when a node joins. They must stay.
func HomeOf(n fabric.Node) fabric.ClientID {
	first, _ := n.View().Live.Next(0)
	return fabric.AgentOf(first)
}
