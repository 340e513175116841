package shift

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Kinds of messages. Body: the lock's address, the client whose ticket the message is about, the
// era, and what else the kind needs.
const (
	msgSuccessor   = baseline.MsgShift + iota // From is the next in the queue
	msgHandover                               // the lock is yours: RelCnt, RelCnt in memory, consecutive writers and epoch
	msgModeChanged                            // the readers have it until RelCnt is this; epoch
	msgAbandoned                              // to the own agent: do the rest for this ticket
	msgRecover                                // to the lock server: RelCnt is this for too long
)

// A ticket is what a client knows of a lock that it holds or wants: the variables of
// Algorithms 2 and 3.
type ticket struct {
	lock fabric.Addr
	id   fabric.ClientID // of a writer: under which it is in the queue
	mode lock.Mode
	mine *Locker // that holds by it

	era      uint16
	epoch    uint64 // of the entry, as far as is known: 0 or epochBit
	rel      uint64 // curRelCnt
	base     uint64 // RelCnt in memory: rel, but for handovers that the published code does not count there
	cons     uint32 // consWrt
	expected uint64 // RelCnt that a writer waits for, when polls is true
	polls    bool   // it is the head, and waits for readers
	granted  bool
	next     fabric.ClientID // succ, 0 is none
	at       fabric.Time     // since when it holds, at the latest

	seen    uint64      // RelCnt at the last look
	changed fabric.Time // when it was seen to change last
	looked  fabric.Time // when a poller of Epoch looked at RelCnt last
}

// hear handles a message about the ticket.
func (t *ticket) hear(m *fabric.Message, now fabric.Time) {
	if uint64(t.era) != m.Body[2] {
		return // from before a recovery
	}
	switch m.Kind {
	case msgSuccessor:
		t.next = m.From
	case msgHandover:
		t.granted, t.at = true, now
		t.rel, t.base = m.Body[3], m.Body[4]
		t.cons, t.epoch = uint32(m.Body[5]), m.Body[5]&epochBit
	case msgModeChanged:
		t.polls, t.expected, t.epoch = true, m.Body[3], m.Body[4]&epochBit
	}
}

// reached makes a ticket that waits for readers the holder, if they have left.
func (t *ticket) reached(rel uint64, now fabric.Time) bool {
	if !t.polls || rel != t.expected {
		return false
	}
	t.granted, t.polls, t.at = true, false, now
	t.rel, t.base, t.cons = rel, rel, 0
	return true
}

// look compares RelCnt with what was seen of it. leapt: the lock was recovered; silent: a client
// has failed, for RelCnt has not changed for three leases.
func (t *ticket) look(rel uint64, now, leaseNs fabric.Time) (leapt, silent bool) {
	if rel != t.seen {
		t.seen, t.changed = rel, now
	}
	return eraOf(rel) != t.era, now-t.changed > 3*leaseNs
}

// message returns a message about the ticket of a client in the queue of the same lock.
func (t *ticket) message(kind fabric.MsgKind, to fabric.ClientID, body ...uint64) fabric.Message {
	m := fabric.Message{Kind: kind, Body: [7]uint64{uint64(t.lock), uint64(to), uint64(t.era)}}
	copy(m.Body[3:], body)
	return m
}

func (t *ticket) recover() fabric.Message { return t.message(msgRecover, t.id, t.seen) }

// free is the ExtCAS of lines 6 to 10 of Algorithm 3, with RelCnt compared.
func (t *ticket) free(w *fabric.Wide) fabric.Op {
	return extCAS(t.lock, w,
		entry{uint64(t.id), t.base}, entry{tailMask, ^uint64(0)},
		entry{epochBit &^ t.epoch, t.rel + 1}, entry{tailMask | epochBit, ^uint64(0)})
}

// freed judges what free found: lost if the lock was recovered, and else whether there was no successor.
func (t *ticket) freed(old entry) (freed, lost bool) {
	return old.tail() == t.id, old.rel != t.base
}

// gives is the atomic before the message to the successor: lines 16 and 20 of Algorithm 3,
// by CAS. ok is false if there is none.
func (t *ticket) gives(w *fabric.Wide, cfg *Config) (op fabric.Op, ok bool) {
	next := entry{t.epoch, t.rel + 1}
	if t.toReaders(cfg) {
		next.head = epochBit &^ t.epoch
	} else if cfg.Artifact {
		return fabric.Op{}, false
	}
	return extCAS(t.lock, w, entry{0, t.base}, entry{0, ^uint64(0)}, next, entry{epochBit, ^uint64(0)}), true
}

// toReaders reports whether the readers come next (line 15 of Algorithm 3).
func (t *ticket) toReaders(cfg *Config) bool { return t.cons+1 >= cfg.Threshold }

// gift is the message to the successor (lines 17, 18 and 21 to 23), after gives has found old.
func (t *ticket) gift(old entry, cfg *Config) fabric.Message {
	if t.toReaders(cfg) {
		return t.message(msgModeChanged, t.next, t.rel+1+old.readers(), epochBit&^t.epoch)
	}
	base := t.rel + 1
	if cfg.Artifact {
		base = t.base
	}
	return t.message(msgHandover, t.next, t.rel+1, base, t.epoch|uint64(t.cons+1))
}
