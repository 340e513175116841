package peer

import (
	"encoding/binary"

	"github.com/declock/declock/fabric"
)

// A WireMessage is a message as it goes over the wire: do not change.
//
//	 63          32 31   30      24 23        12 11         0
//	+--------------+------+--------+------------+------------+
//	|     kind     | mark |    0   |    from    |     to     |
//	+--------------+------+--------+------------+------------+
//	|                    body, 7 words                       |
//	+--------------------------------------------------------+
//
// from and to are the indexes of clients on their compute nodes. mark is for the network to use.
type WireMessage [fabric.MaxMessage]byte

const (
	fromShift = 12
	markBit   = 1 << 31
)

var _ = [1]struct{}{}[fabric.MaxClientIndex+1-1<<fromShift]

// Encode makes w the message.
func (w *WireMessage) Encode(from, to int, m *fabric.Message) {
	binary.LittleEndian.PutUint64(w[:], uint64(to)|uint64(from)<<fromShift|uint64(m.Kind)<<32)
	for i, b := range m.Body {
		binary.LittleEndian.PutUint64(w[8+8*i:], b)
	}
}

// Mark makes w a mark: an empty message.
func (w *WireMessage) Mark() {
	*w = WireMessage{}
	binary.LittleEndian.PutUint64(w[:], markBit)
}

// IsMark reports whether w is a mark.
func (w *WireMessage) IsMark() bool { return binary.LittleEndian.Uint64(w[:])&markBit != 0 }

// Decode takes the kind and the body of a message. It returns the indexes of the clients.
func (w *WireMessage) Decode(m *fabric.Message) (from, to int) {
	head := binary.LittleEndian.Uint64(w[:])
	m.Kind = fabric.MsgKind(head >> 32)
	for i := range m.Body {
		m.Body[i] = binary.LittleEndian.Uint64(w[8+8*i:])
	}
	return int(head >> fromShift & fabric.MaxClientIndex), int(head & fabric.MaxClientIndex)
}
