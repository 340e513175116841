package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/ram"
)

// effect makes the next operation of a chain happen, or the first part of it.
func (c *Cluster) effect(ch *Chain) {
	op := &ch.ops[ch.nth(int(ch.cur))]
	if ch.drop {
		c.faultStats[LateDropped]++
		c.finish(ch, c.now)
		return
	}
	if ch.qp.mn.dead {
		c.lose(ch)
		return
	}
	if err := c.admissible(ch, op); err != nil {
		c.refuse(ch, err, c.now+c.nic.OneWay)
		return
	}
	if op.Kind != fabric.OpRead {
		switch {
		case ch.late:
			c.faultStats[BrokenLate]++
		case ch.orphan:
			c.faultStats[LateEffects]++
		}
	}
	w := &ch.when[ch.cur]
	if ch.qp.mn.mend(op); w.end > w.at {
		if op.Kind.IsAtomic() {
			c.splitEffect(ch, op)
			return
		}
		if op.Kind == fabric.OpRead {
			c.faultStats[TornReads]++
		} else {
			c.faultStats[TornWrites]++
		}
		ch.part = 0
		ch.tearSeed = c.faults.Uint64()
		c.tearPart(ch)
		return
	}
	old, new := c.execute(&ch.qp.mn.at(op.Addr.MN()).mem, op)
	c.effected(ch, op, old, new)
}

// effected goes on after an operation has happened: to its answer, and to the next.
func (c *Cluster) effected(ch *Chain, op *fabric.Op, old, new uint64) {
	q := ch.qp
	c.note(StepEffect, ch.port.id, uint64(op.Kind)<<56^uint64(op.Addr), old)
	c.observeOp(StepEffect, ch, ch.nth(int(ch.cur)), op, old, new)
	left := q.mn.nic.answer(c.nic, c.now, op)
	n := ch.port.node
	bytes := c.nic.Overhead + answerBytes(op)
	there := left + c.nic.Loopback
	if q.mn != n.host {
		there = n.nic.in.carry(c.now, left+c.nic.OneWay, bytes, c.nic.BytePs)
	}
	if len(c.links) > 0 && !ch.late {
		there = c.answered(ch, there)
	}
	if op.Kind != fabric.OpWrite {
		q.pending--
		if k := len(q.answers); k > 0 {
			there = max(there, q.answers[k-1])
		}
		q.answers = append(q.answers, there)
		if q.blocked {
			c.kickAt(q, max(q.answers[0], c.now)) // the first may have come while the queue pair could not go on
		}
	}
	ch.cur++
	switch {
	case ch.broken > 0 && ch.cur == ch.sent:
		// The connection has broken: operations from the first without answer on are
		// unknown to the client, and what has not been sent will not be.
		i := int(ch.broken) - 1
		ch.err = &fabric.ChainError{Index: i, Op: ch.ops[i], Err: fabric.ErrUnknownOutcome}
		c.finish(ch, there)
	case ch.cur < ch.sent:
		c.post(max(ch.when[ch.cur].at, c.now), evEffect, ch.index, 0)
	case int(ch.cur) < len(ch.ops) && !ch.orphan:
		ch.state = chainQueued // the rest waits for the fence
		q.blocked = true
		c.kickAt(q, there)
	default:
		q.forget(c.now)
		c.post(there+c.nic.Poll, evComplete, ch.index, 0)
	}
}

// admissible is what the memory node's NIC checks.
func (c *Cluster) admissible(ch *Chain, op *fabric.Op) error {
	p, mn := ch.port, ch.qp.mn
	r := mn.at(op.Addr.MN())
	switch {
	case mn.refuses(p.node) || p.node.fenced:
		c.faultStats[Refused]++
		if p.node.closed {
			return fabric.ErrClosed // it has left by itself
		}
		return fabric.ErrFenced
	case ch.backup != 0:
		return c.admissibleBackup(ch, op, r)
	case r == nil || r.epoch == 0: // it serves this number no more, or not yet
		return fmt.Errorf("sim: %v on %v: %w", op.Addr.MN(), mn.id, fabric.ErrNodeDown)
	case ch.epoch != r.epoch:
		c.faultStats[Stale]++
		return fabric.ErrStaleEpoch
	case mn.revoked:
		return fabric.ErrBadKey
	case !r.mem.inBounds(op.Addr.Offset(), op.Size()):
		return fmt.Errorf("sim: %v has %#x bytes: %w", op.Addr.MN(), r.mem.size, fabric.ErrOutOfBounds)
	}
	return nil
}

// epoch returns the epoch in which this Port attached to a memory node.
func (p *Port) epoch(id fabric.MemID) uint32 {
	for int(id) >= len(p.epochs) {
		p.epochs = append(p.epochs, p.node.epochOf(fabric.MemID(len(p.epochs))))
	}
	return p.epochs[id]
}

// Stale reports whether a memory node has restarted since this Port attached to it, or another serves: it refuses all of the Port's
// operations. For oracles.
func (p *Port) Stale(mem fabric.MemID) bool {
	if g := p.c.served[mem]; g != nil {
		return p.epoch(mem) < g.Epoch
	}
	return p.epoch(mem) != p.c.mn(mem).epoch
}

// Reattach implements fabric.Port.
func (p *Port) Reattach(mem fabric.MemID, epoch uint32) error {
	if p.closed {
		return fabric.ErrClosed
	}
	if int(mem) >= len(p.c.mns) {
		return fmt.Errorf("sim: %w: %v", fabric.ErrNodeDown, mem)
	}
	if mn, shut := p.node.server(mem); shut || mn.dead {
		return fmt.Errorf("sim: %w: %v", fabric.ErrNodeDown, mem)
	}
	now := p.node.epochOf(mem)
	p.c.tell(uint64(now))
	if now != epoch {
		return fmt.Errorf("sim: %w: %v is in epoch %d, not %d", fabric.ErrStaleEpoch, mem, now, epoch)
	}
	p.epoch(mem) // makes the slice long enough
	p.epochs[mem] = epoch
	return nil
}

// execute does an operation. It returns the word before and after, for operations on words.
func (c *Cluster) execute(m *memory, op *fabric.Op) (old, new uint64) {
	off := op.Addr.Offset()
	switch op.Kind {
	case fabric.OpRead:
		if op.Buf != nil {
			m.read(off, op.Buf)
			if len(op.Buf) >= 8 {
				old = binary.LittleEndian.Uint64(op.Buf)
			}
			return old, old
		}
		op.Old = m.word(off)
		return op.Old, op.Old
	case fabric.OpWrite:
		if op.Buf != nil {
			m.write(off, op.Buf)
			if len(op.Buf) >= 8 {
				new = binary.LittleEndian.Uint64(op.Buf)
			}
			return 0, new
		}
		if c.cfg.Observer != nil {
			old = m.word(off)
		}
		m.setWord(off, op.Arg)
		return old, op.Arg
	case fabric.OpCAS:
		op.Old = m.word(off)
		if op.Old != op.Cmp {
			return op.Old, op.Old
		}
		m.setWord(off, op.Arg)
		return op.Old, op.Arg
	case fabric.OpFAA:
		w := m.wordBytes(off)
		op.Old = binary.LittleEndian.Uint64(w)
		new = op.Old + op.Arg
		binary.LittleEndian.PutUint64(w, new)
		return op.Old, new
	}
	fetch(m, op)
	return leave(m, op)
}

// fetch is the first half of an atomic: it reads.
func fetch(m *memory, op *fabric.Op) {
	off := op.Addr.Offset()
	op.Old = m.word(off)
	if w := op.Wide; w != nil {
		for i := range op.Size() / 8 {
			w.Old[i] = m.word(off + uint64(i)*8)
		}
	}
}

// leave is the second half: it writes what an atomic leaves behind that has found what fetch found. It returns the word before and after.
func leave(m *memory, op *fabric.Op) (old, new uint64) {
	off := op.Addr.Offset()
	now := left(op)
	for i, v := range now[:op.Size()/8] {
		m.setWord(off+uint64(i)*8, v)
	}
	return op.Old, now[0]
}

// left returns the words that an atomic leaves behind.
func left(op *fabric.Op) [2]uint64 {
	switch {
	case op.Wide != nil:
		return ram.Masked(op.Kind, op.Wide.Old, op.Wide)
	case op.Kind == fabric.OpFAA:
		return [2]uint64{op.Old + op.Arg}
	case op.Old == op.Cmp:
		return [2]uint64{op.Arg}
	}
	return [2]uint64{op.Old}
}

// changes reports whether an atomic that has found what fetch found writes.
func changes(op *fabric.Op) bool {
	now := left(op)
	return now[0] != op.Old || op.Wide != nil && now != op.Wide.Old
}

// maxParts is how many parts a torn operation has at most.
const maxParts = 4

// tearPart makes one part of a torn operation happen: those pieces that the
// seed gives to it.
func (c *Cluster) tearPart(ch *Chain) {
	if ch.ops[ch.nth(int(ch.cur))].Kind.IsAtomic() {
		c.splitEnd(ch)
		return
	}
	if ch.drop {
		c.faultStats[HalfDone]++ // crashed in the middle of a WRITE
		c.finish(ch, c.now)
		return
	}
	if ch.qp.mn.dead {
		c.lose(ch)
		return
	}
	op := &ch.ops[ch.nth(int(ch.cur))]
	if err := c.admissible(ch, op); err != nil { // no byte arrives after a fence, or in a new epoch
		c.faultStats[HalfDone]++
		if op.Kind == fabric.OpWrite {
			err = fmt.Errorf("sim: a part of it has arrived: %w: %w", fabric.ErrUnknownOutcome, err)
		}
		c.refuse(ch, err, c.now+c.nic.OneWay)
		return
	}
	parts := uint8(2 + ch.tearSeed%(maxParts-1))
	m, off, buf := &ch.qp.mn.at(op.Addr.MN()).mem, op.Addr.Offset(), op.Buf
	ch.qp.mn.mend(op)
	grain := uint64(c.cfg.Tear.Grain)
	for i, done := uint64(0), 0; done < len(buf); i++ {
		n := min(int(grain-(off+uint64(done))%grain), len(buf)-done)
		if Mix(ch.tearSeed+i)%uint64(parts) == uint64(ch.part) {
			if op.Kind == fabric.OpRead {
				m.read(off+uint64(done), buf[done:done+n])
			} else {
				m.write(off+uint64(done), buf[done:done+n])
			}
		}
		done += n
	}
	ch.part++
	if ch.part == parts {
		c.effected(ch, op, 0, 0)
		return
	}
	c.note(StepPart, ch.port.id, uint64(op.Addr), uint64(ch.part))
	c.observeOp(StepPart, ch, ch.nth(int(ch.cur)), op, 0, 0)
	w := ch.when[ch.cur]
	c.post(w.at+(w.end-w.at)*fabric.Time(ch.part)/fabric.Time(parts-1), evTear, ch.index, 0)
}
