package shift

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Kinds of messages. Body: the lock's address, the client whose place the message is about, the
// era, and what else the kind needs.
const (
	msgSuccessor   = fabric.MsgLock + 0x20 + iota // From is the next in the queue
	msgHandover                                   // the lock is yours: RelCnt, RelCnt in memory, consecutive writers and epoch
	msgModeChanged                                // the readers have it until RelCnt is this; epoch
	msgOrphan                                     // to the own agent: do the rest for From
	msgRecover                                    // to the lock server: RelCnt is this for too long
)

// A place is what a client knows of a lock that it holds or wants: the variables of
// Algorithms 2 and 3.
type place struct {
	lock fabric.Addr
	id   fabric.ClientID // of a writer: under which it is in the queue
	mode lock.Mode
	mine *Locker // who holds by it

	era      uint16
	epoch    uint64 // of the entry, as known to the place: 0 or epochBit
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

// note takes note of a message about the place.
func (p *place) note(m *fabric.Message, now fabric.Time) {
	if uint64(p.era) != m.Body[2] {
		return // from before a recovery
	}
	switch m.Kind {
	case msgSuccessor:
		p.next = m.From
	case msgHandover:
		p.granted, p.at = true, now
		p.rel, p.base = m.Body[3], m.Body[4]
		p.cons, p.epoch = uint32(m.Body[5]), m.Body[5]&epochBit
	case msgModeChanged:
		p.polls, p.expected, p.epoch = true, m.Body[3], m.Body[4]&epochBit
	}
}

// reached makes a place that waits for readers the holder, if they have left.
func (p *place) reached(rel uint64, now fabric.Time) bool {
	if !p.polls || rel != p.expected {
		return false
	}
	p.granted, p.polls, p.at = true, false, now
	p.rel, p.base, p.cons = rel, rel, 0
	return true
}

// look takes note of RelCnt. leapt: the lock was recovered; stuck: a client
// has failed, for RelCnt has not changed for three leases.
func (p *place) look(rel uint64, now, leaseNs fabric.Time) (leapt, stuck bool) {
	if rel != p.seen {
		p.seen, p.changed = rel, now
	}
	return eraOf(rel) != p.era, now-p.changed > 3*leaseNs
}

// message returns a message about the place of a client in the queue of the same lock.
func (p *place) message(kind fabric.MsgKind, to fabric.ClientID, body ...uint64) fabric.Message {
	m := fabric.Message{Kind: kind, Body: [7]uint64{uint64(p.lock), uint64(to), uint64(p.era)}}
	copy(m.Body[3:], body)
	return m
}

func (p *place) recover() fabric.Message { return p.message(msgRecover, p.id, p.seen) }

// free is the ExtCAS of lines 6 to 10 of Algorithm 3, with RelCnt compared.
func (p *place) free(w *fabric.Wide) fabric.Op {
	return extCAS(p.lock, w,
		entry{uint64(p.id), p.base}, entry{tailMask, ^uint64(0)},
		entry{epochBit &^ p.epoch, p.rel + 1}, entry{tailMask | epochBit, ^uint64(0)})
}

// freed judges what free found: lost if the lock was recovered, and else whether there was no successor.
func (p *place) freed(old entry) (freed, lost bool) {
	return old.tail() == p.id, old.rel != p.base
}

// gives is the atomic before the message to the successor: lines 16 and 20 of Algorithm 3,
// by CAS. ok is false if there is none.
func (p *place) gives(w *fabric.Wide, cfg *Config) (op fabric.Op, ok bool) {
	next := entry{p.epoch, p.rel + 1}
	if p.toReaders(cfg) {
		next.head = epochBit &^ p.epoch
	} else if cfg.Artifact {
		return fabric.Op{}, false
	}
	return extCAS(p.lock, w, entry{0, p.base}, entry{0, ^uint64(0)}, next, entry{epochBit, ^uint64(0)}), true
}

// toReaders reports whether the readers come next (line 15 of Algorithm 3).
func (p *place) toReaders(cfg *Config) bool { return p.cons+1 >= cfg.Threshold }

// gift is the message to the successor (lines 17, 18 and 21 to 23), after gives has found old.
func (p *place) gift(old entry, cfg *Config) fabric.Message {
	if p.toReaders(cfg) {
		return p.message(msgModeChanged, p.next, p.rel+1+old.readers(), epochBit&^p.epoch)
	}
	base := p.rel + 1
	if cfg.Artifact {
		base = p.base
	}
	return p.message(msgHandover, p.next, p.rel+1, base, p.epoch|uint64(p.cons+1))
}

func failedAt(err error) (int, bool) {
	var ce *fabric.ChainError
	if errors.As(err, &ce) {
		return ce.Index, true
	}
	return 0, false
}
