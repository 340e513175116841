package fabric

import "fmt"

// MemID numbers a memory node (MN): 0 to MaxMem.
type MemID uint16

// MaxMem is the largest memory node number.
const MaxMem MemID = 255

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

// IsAgent reports whether the client is the agent of its compute node.
func (c ClientID) IsAgent() bool { return c&MaxClientIndex == 0 }

func (c ClientID) String() string { return fmt.Sprintf("cn%d/%d", uint8(c.CN()), c.Index()) }

// An Addr is a byte in a memory of a memory node.
//
//	 63     56 55     48 47                     0
//	+---------+---------+------------------------+
//	| memory  |   MN    |         offset         |
//	+---------+---------+------------------------+
//
// memory tells the memories apart that a memory node has had: it is 0 until the node comes back without what it had
// (a loss: docs/restarts.md). Fabrics have no use for it; what is above them refuses an address of a memory that is gone
// (lock.Attacher), so that no client takes another memory for the one that it knew.
type Addr uint64

const (
	addrOffsetBits = 48
	addrMNBits     = 8
	addrGenShift   = addrOffsetBits + addrMNBits
	// MaxOffset is the largest offset in a memory node's memory.
	MaxOffset = 1<<addrOffsetBits - 1
)

// At returns the address of a byte offset in the first memory of mn.
func At(mn MemID, offset uint64) Addr {
	if offset > MaxOffset || mn > MaxMem {
		panic(fmt.Sprintf("fabric: offset %#x of %v out of range", offset, mn))
	}
	return Addr(mn)<<addrOffsetBits | Addr(offset)
}

// A Generation tells the memories of a memory node apart: which it is, modulo 256. The first is 0. No compute node goes on with a memory that is
// 256 after the first that it has known (hier), so that an address that has been kept is never taken for one in another memory.
type Generation uint8

// In returns the address of the same byte in another memory of the node.
func (a Addr) In(g Generation) Addr { return a&(1<<addrGenShift-1) | Addr(g)<<addrGenShift }

// Generation returns which memory of its node the address is in.
func (a Addr) Generation() Generation { return Generation(a >> addrGenShift) }

// MN returns the memory node of the address.
func (a Addr) MN() MemID { return MemID(a >> addrOffsetBits & Addr(MaxMem)) }

// Offset returns the offset of the address in the memory of its node, in bytes.
func (a Addr) Offset() uint64 { return uint64(a & MaxOffset) }

// Add returns the address n bytes further. It must stay on the same node.
func (a Addr) Add(n uint64) Addr { return a + Addr(n) }

func (a Addr) String() string {
	if g := a.Generation(); g != 0 {
		return fmt.Sprintf("mn%d.%d+%#x", uint16(a.MN()), g, a.Offset())
	}
	return fmt.Sprintf("mn%d+%#x", uint16(a.MN()), a.Offset())
}
