package rmarw

import (
	"cmp"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Words of a lock. Zero is free. Format: do not change.
//
//	 63                                 20 19                     0
//	+-------------------------------------+------------------------+
//	|                  0                  |     tail's ClientID    |  word 0
//	+--+--------------------------+-------+--+---------------------+
//	|re|         depart           |  write   |       arrive        |  word 1: counts; re: a reader resets them
//	+--+--------------------------+----------+---------------------+
//	 63 62                      32     31     30                  0
//
// With tokens, a third word is the token of the writer that reset the counts last.
//
// Arrive is never less than depart: a reset takes the same from both, and backing out takes back one's own. Both are far from their widths, as
// readers back out from Config.Readers on, and there is one more at most for each client. So nothing carries or borrows.
const (
	countsOffset = 8
	tokenOffset  = 16
	tailMask     = 1<<fabric.ClientIDBits - 1
)

// counts is the second word.
type counts uint64

const (
	oneArrive = counts(1)
	oneDepart = counts(1) << 32
	writeBit  = counts(1) << 31
	lowMask   = writeBit - 1
	resetBit  = counts(1) << 63
	noWrite   = ^uint64(writeBit) + 1 // what clears the write bit by FAA
)

func (c counts) arrive() uint32 { return uint32(c & lowMask) }
func (c counts) depart() uint32 { return uint32(c &^ resetBit >> 32) }
func (c counts) write() bool    { return c&writeBit != 0 }
func (c counts) corrupt() bool  { return c.depart() > c.arrive() }

// readers reports whether there are readers, or such as have not backed out yet.
func (c counts) readers() bool { return c.arrive() != c.depart() }

// reset returns what a reset adds: all that have departed are forgotten, and the bits of writers and of the reset are cleared.
func (c counts) reset() uint64 {
	d := counts(c.depart())
	return -uint64(d*(oneArrive+oneDepart) + c&(writeBit|resetBit))
}

func (c counts) String() string {
	return fmt.Sprintf("{write %v, arrive %d, depart %d}", c.write(), c.arrive(), c.depart())
}

// Decode takes the two words of a lock apart.
func Decode(word0, word1 uint64) (tail fabric.ClientID, write bool, arrive, depart uint32) {
	c := counts(word1)
	return fabric.ClientID(word0 & tailMask), c.write(), c.arrive(), c.depart()
}

// Config chooses a variant. The zero value is the lock of the published comparison, with tokens.
type Config struct {
	// Plain leaves the fencing token out.
	Plain bool
	// Writers is after how many writers in a row readers come; 0 is 16.
	Writers uint64
	// Readers is how many readers arrive until writers come; 0 is 4000. All clients must have the same.
	Readers uint32
}

// DefaultWriters and DefaultReaders are the thresholds of ShiftLock's comparison.
const (
	DefaultWriters = 16
	DefaultReaders = 4000
)

func (c Config) withDefaults() Config {
	c.Writers, c.Readers = cmp.Or(c.Writers, DefaultWriters), cmp.Or(c.Readers, DefaultReaders)
	return c
}

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout {
	if c.Plain {
		return lock.Layout{Size: 16, Align: 8}
	}
	return lock.Layout{Size: 24, Align: 8}
}

// Kinds of messages. Body: the lock's address, the client whose ticket the message is about, the token, and of a handover how many writers there
// have been in a row.
const (
	msgSuccessor   = baseline.MsgRMARW + iota // From is the next in the queue
	msgHandover                               // the lock is yours: the write bit is set
	msgModeChanged                            // you are the first of the queue: the readers have been let in
	msgAbandoned                              // to the own agent: do the rest for this ticket
)

// A ticket is a writer's in the queue of a lock.
type ticket struct {
	lock  fabric.Addr
	id    fabric.ClientID // under which it is in the queue
	first bool            // of the queue
	mark  bool            // the write bit is set, for this writer or for one before it, and there are no readers
	row   uint64          // writers before it since the bit was set
	next  fabric.ClientID // 0: not known
	token lock.Token
}

// Named implements baseline.Ticket.
func (t *ticket) Named() (fabric.Addr, fabric.ClientID) { return t.lock, t.id }

// Next implements baseline.Successor.
func (t *ticket) Next() fabric.ClientID { return t.next }

// Hear handles a message about the ticket.
func (t *ticket) Hear(m *fabric.Message) {
	switch m.Kind {
	case msgSuccessor:
		t.next = m.From
	case msgHandover:
		t.first, t.mark, t.token, t.row = true, true, lock.Token(m.Body[2]), m.Body[3]
	case msgModeChanged:
		t.first, t.token = true, lock.Token(m.Body[2])
	}
}

// resets reports whether the release of the ticket lets readers in.
func (t *ticket) resets(cfg *Config) bool { return t.mark && (t.next == 0 || t.row+1 >= cfg.Writers) }

// resetOps puts the operations of a reset into ops, and returns how many they are.
func (t *ticket) resetOps(ops []fabric.Op, found counts, plain bool) int {
	n := 0
	if !plain {
		ops[0] = fabric.Store(t.lock.Add(tokenOffset), uint64(t.token))
		n++
	}
	ops[n] = fabric.FAA(t.lock.Add(countsOffset), found.reset())
	return n + 1
}

// handover returns the message that makes the next writer the first of the queue.
func (t *ticket) handover() fabric.Message {
	m := fabric.Message{Kind: msgModeChanged, Body: [7]uint64{uint64(t.lock), uint64(t.next), uint64(t.token) + 1}}
	if t.mark {
		m.Kind, m.Body[3] = msgHandover, t.row+1
	}
	return m
}
