package sim

import (
	"encoding/binary"
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// The AppendState methods append what tells two states of an untimed cluster apart, part by part. What a client goes by is not in them:
// that follows from what it has learned (Listener), and from its code.

func appendWord[T ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](dst []byte, v T) []byte {
	return binary.AppendUvarint(dst, uint64(v))
}

func appendBools(dst []byte, list ...bool) []byte {
	v := uint64(1)
	for _, b := range list {
		v <<= 1
		if b {
			v |= 1
		}
	}
	return appendWord(dst, v)
}

// AppendState appends what all clients may go by: time, membership, and what is to happen that is no client's.
func (u *Untimed) AppendState(dst []byte) []byte {
	dst = appendWord(appendWord(dst, u.now), u.live)
	for _, mn := range u.mns {
		dst = appendBools(appendWord(dst, mn.epoch), mn.dead, mn.revoked)
	}
	if u.OneByOne {
		dst = appendWord(dst, u.ledger.Revision)
		for _, m := range u.members {
			dst = appendWord(appendWord(appendWord(dst, m.acts), m.entry.Phase), m.entry.Acked)
			dst = appendBools(dst, m.forgotten != member.Unnoted)
		}
	}
	if len(u.mns) > 0 && len(u.ledger.Groups) > 0 {
		dst = u.appendGroups(dst)
	}
	starts, doomed := uint64(0), uint64(0)
	for _, t := range u.Starts {
		starts += Mix(uint64(t.index) + 1)
	}
	for _, n := range u.Doomed {
		doomed += Mix(uint64(n.id))
	}
	return appendWord(appendWord(dst, starts), doomed)
}

// appendGroups appends the groups of the coordinator, and which regions memory nodes let compute nodes use.
func (u *Untimed) appendGroups(dst []byte) []byte {
	for _, g := range u.groups() {
		dst = appendGroup(dst, g)
		if was := u.served[g.ID]; was != nil {
			dst = appendWord(dst, was.Epoch)
		}
	}
	for _, mn := range u.mns {
		dst = mn.region.appendState(dst)
		for _, b := range mn.backups {
			dst = b.appendState(appendWord(dst, b.id))
		}
	}
	return dst
}

func appendGroup(dst []byte, g *member.Group) []byte {
	dst = appendBools(appendWord(appendWord(appendWord(appendWord(appendWord(dst, g.ID), g.Term), g.Epoch), g.Before), g.Made), g.Serving)
	for _, r := range g.Replicas {
		dst = appendWord(appendWord(appendWord(dst, uint64(r.Host)), r.Number), r.Phase)
	}
	return dst
}

func (r *region) appendState(dst []byte) []byte {
	return appendWord(appendWord(appendWord(dst, r.epoch), r.lane), r.replica)
}

// MemoryState returns the sum of hashes of the words of all memory nodes.
func (u *Untimed) MemoryState() (sum uint64) {
	for i, mn := range u.mns {
		sum += mn.sum * uint64(2*i+1)
		for _, b := range mn.backups {
			sum += b.sum * Mix(uint64(i)<<8|uint64(b.id)) // of another number, so no other region has its multiple
		}
	}
	return sum
}

// AppendState appends what all clients may go by of a compute node.
func (n *Node) AppendState(dst []byte) []byte {
	dst = appendBools(dst, n.dead, n.Fenced(), n.paused, n.closed)
	dst = appendWord(appendWord(dst, uint64(n.clock.Offset)), n.view.Epoch)
	dst = appendWord(dst, len(n.freed))
	for i := range n.clients {
		c := &n.clients[i]
		if dst = appendWord(dst, c.state); c.port != nil {
			dst = appendWord(dst, c.port.index)
		}
	}
	for i, down := range n.downMN {
		if down {
			dst = appendWord(dst, i)
		}
	}
	if n.acts != nil {
		dst = appendBools(dst, n.lapsed)
		for _, g := range n.acts.Groups {
			dst = appendGroup(dst, g)
		}
	}
	return dst
}

// AppendState appends what a Port waits for and has received.
func (p *Port) AppendState(dst []byte) []byte {
	dst = appendBools(appendWord(appendWord(dst, p.id), p.wait), p.ready, p.interrupted)
	if p.wait >= WaitRecv {
		dst = appendWord(dst, uint64(p.until))
	}
	for _, e := range p.epochs {
		dst = appendWord(dst, e)
	}
	for i := range p.in.len {
		dst = appendMessage(dst, &p.in.ring[(p.in.head+i)&(len(p.in.ring)-1)])
	}
	return dst
}

func appendMessage(dst []byte, m *fabric.Message) []byte {
	dst = appendWord(appendWord(dst, m.From), m.Kind)
	for _, v := range m.Body {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// AppendPair appends the messages of a pair.
func (u *Untimed) AppendPair(dst []byte, p *Pair) []byte {
	dst = appendWord(appendWord(dst, p.From), p.To)
	for _, f := range p.queue {
		dst = appendMessage(dst, &u.flights[f].msg)
	}
	return dst
}

// AppendState appends how far a chain has got, and what it will return. What it
// is follows from what its client has learned, unless that was killed.
func (ch *Chain) AppendState(dst []byte) []byte {
	dst = appendBools(appendWord(dst, ch.port.index), ch.orphan)
	dst = append(dst, byte(ch.state), ch.cur, ch.part)
	if len(ch.ops) > 0 && ch.port.c.mns[ch.ops[0].Addr.MN()].replicas > 1 { // its client does not know where it went
		dst = appendBools(appendWord(appendWord(dst, ch.qp.mn.id), ch.epoch), ch.answered)
	}
	done := int(ch.cur)
	if ch.part > 0 {
		done++ // the buffer of a READ holds what has come
	}
	for i := range ch.ops[:min(done, len(ch.ops))] {
		op := &ch.ops[i]
		switch {
		case op.Kind == fabric.OpRead && op.Buf != nil:
			dst = append(dst, op.Buf...)
		case op.Wide != nil:
			dst = appendWord(appendWord(dst, op.Wide.Old[0]), op.Wide.Old[1])
		case op.Kind != fabric.OpWrite:
			dst = appendWord(dst, op.Old)
		}
	}
	dst = AppendError(dst, ch.err)
	for i := int(ch.cur); i < len(ch.ops) && ch.orphan; i++ {
		dst = appendOp(dst, &ch.ops[i])
	}
	return dst
}

// AppendError appends what a client can tell of an error: which of fabric's it is, and of which operation.
func AppendError(dst []byte, err error) []byte {
	var ce *fabric.ChainError
	if errors.As(err, &ce) {
		dst = appendWord(dst, ce.Index)
	}
	for err != nil {
		next := errors.Unwrap(err)
		if next == nil {
			dst = append(dst, err.Error()...)
		}
		err = next
	}
	return dst
}

// appendOp appends what an operation is to do.
func appendOp(dst []byte, op *fabric.Op) []byte {
	dst = appendWord(appendWord(appendWord(appendWord(dst, op.Kind), op.Addr), op.Arg), op.Cmp)
	if op.Kind == fabric.OpWrite && op.Buf != nil {
		dst = append(appendWord(dst, len(op.Buf)), op.Buf...)
	}
	if w := op.Wide; w != nil {
		for _, list := range [...][2]uint64{w.Cmp, w.CmpMask, w.Swap, w.SwapMask, w.Boundary} {
			dst = appendWord(appendWord(dst, list[0]), list[1])
		}
	}
	return dst
}

// AppendWords appends what the words hold that the next operation of a chain is about.
func (ch *Chain) AppendWords(dst []byte) []byte {
	if ch.answered {
		return appendWord(dst, ch.qp.mn.id)
	}
	op := &ch.ops[ch.cur]
	dst = appendWord(appendWord(dst, ch.qp.mn.id), op.Addr)
	if r := ch.region(); r != nil && r.mem.inBounds(op.Addr.Offset(), op.Size()) {
		dst = appendWord(dst, r.mem.hash(op.Addr.Offset(), op.Size()))
	}
	return dst
}
