//go:build linux && cgo

package verbs

import (
	"fmt"
	"io"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// What is asked over the control protocol.
const (
	askAttach = "attach" // compute node -> memory node: attachRequest, attachReply
	askLane   = "lane"   // compute node -> memory node: laneRequest, end
	askLink   = "link"   // compute node -> compute node: linkRequest, linkReply
)

// A caller says who asks, and whom: a life of a node, and no other that has its number or its address.
type caller struct {
	ID       fabric.CNID `json:"id"`
	From     member.Life `json:"from"`
	To       member.Life `json:"to"`
	Revision uint64      `json:"revision"` // of the state that the caller acts on
}

// in reports whether a member asks: ErrFenced if not, peer.ErrBehind if the caller knows more than this node.
func (c *caller) in(st *member.State, find func(*member.State, fabric.CNID) (member.CN, bool)) error {
	switch m, ok := find(st, c.ID); {
	case ok && m.Life == c.From:
		return nil
	case st.Revision < c.Revision:
		return fmt.Errorf("%w: %v", peer.ErrBehind, c.ID)
	}
	return fmt.Errorf("%w: %v is no member in that life", fabric.ErrFenced, c.ID)
}

// An end is one end of a connection.
type end struct {
	QPN      uint32   `json:"qpn"`
	PSN      uint32   `json:"psn"`
	LID      uint32   `json:"lid"`
	MTU      uint32   `json:"mtu"`
	GID      [16]byte `json:"gid"`
	RDAtomic uint8    `json:"rd"` // READs and atomics that it takes at a time
}

type attachRequest struct {
	caller
	Lanes []end `json:"lanes"`
}

type attachReply struct {
	Size  uint64      `json:"size"`
	Base  uint64      `json:"base"`  // the address of offset 0
	Keys  []memoryKey `json:"keys"`  // of the regions of memory, see mapped
	Shift uint8       `json:"shift"` // the i-th region begins at offset i<<Shift
	Lanes []end       `json:"lanes"`
}

// A memoryKey lets who has it at a region of memory. It prints as nothing: it belongs into no log.
type memoryKey uint32

// Format implements fmt.Formatter.
func (memoryKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(key)") }

type laneRequest struct {
	Index int `json:"index"`
	End   end `json:"end"`
}

type linkRequest struct {
	caller
	End end `json:"end"`
}

type linkReply struct {
	End end `json:"end"`
	// Delivered is how many messages of this life of the sender have arrived.
	Delivered uint64 `json:"delivered"`
}
