package fabric

import "fmt"

// MemID numbers a memory node (MN), from 0.
type MemID uint16

func (m MemID) String() string { return fmt.Sprintf("mn%d", uint16(m)) }

// CNID numbers a compute node (CN): 1 to 255. 0 means none; the lock header
// has 8 bits for it (paper section 4.1, reset ID).
type CNID uint8

// MaxCN is the largest compute node number.
const MaxCN CNID = 255

func (c CNID) String() string { return fmt.Sprintf("cn%d", uint8(c)) }

// A ClientID names one client: its compute node and its index there. The
// agent of a compute node has index 0. It is what messages are sent to.
//
//	 31      20 19      12 11           0
//	+----------+----------+--------------+
//	|    0     |    CN    |    index     |
//	+----------+----------+--------------+
type ClientID uint32

const (
	clientIndexBits = 12
	// ClientIDBits is the width of a ClientID: what fits in a queue entry.
	ClientIDBits = clientIndexBits + 8
	// MaxClientIndex is the largest index of a client on its compute node.
	MaxClientIndex = 1<<clientIndexBits - 1
)

// Client returns the ID of the client with an index (0 to MaxClientIndex) on cn.
func Client(cn CNID, index int) ClientID {
	if index < 0 || index > MaxClientIndex {
		panic(fmt.Sprintf("fabric: client index %d out of range", index))
	}
	return ClientID(cn)<<clientIndexBits | ClientID(index)
}

// AgentOf returns the ID of the agent of cn.
func AgentOf(cn CNID) ClientID { return ClientID(cn) << clientIndexBits }

// CN returns the compute node of the client.
func (c ClientID) CN() CNID { return CNID(c >> clientIndexBits) }

// Index returns the client's index on its compute node.
func (c ClientID) Index() int { return int(c & MaxClientIndex) }

// IsAgent tells whether the client is the agent of its compute node.
func (c ClientID) IsAgent() bool { return c&MaxClientIndex == 0 }

func (c ClientID) String() string { return fmt.Sprintf("cn%d/%d", uint8(c.CN()), c.Index()) }

// An Addr is a byte in the memory of a memory node.
//
//	 63        48 47                        0
//	+------------+---------------------------+
//	|     MN     |          offset           |
//	+------------+---------------------------+
type Addr uint64

const (
	addrOffsetBits = 48
	// MaxOffset is the largest offset in a memory node's memory.
	MaxOffset = 1<<addrOffsetBits - 1
)

// At returns the address of a byte offset in the memory of mn.
func At(mn MemID, offset uint64) Addr {
	if offset > MaxOffset {
		panic(fmt.Sprintf("fabric: offset %#x out of range", offset))
	}
	return Addr(mn)<<addrOffsetBits | Addr(offset)
}

// MN returns the memory node of the address.
func (a Addr) MN() MemID { return MemID(a >> addrOffsetBits) }

// Offset returns the offset of the address in the memory of its node, in bytes.
func (a Addr) Offset() uint64 { return uint64(a & MaxOffset) }

// Add returns the address n bytes further. It must stay on the same node.
func (a Addr) Add(n uint64) Addr { return a + Addr(n) }

func (a Addr) String() string { return fmt.Sprintf("mn%d+%#x", uint16(a.MN()), a.Offset()) }
