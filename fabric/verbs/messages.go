//go:build linux && cgo

package verbs

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/declock/declock/fabric"
)

// What is asked over the control protocol.
const (
	askJoin    = "join"    // compute node -> lead: joinRequest, joinReply
	askView    = "view"    // lead -> compute node: viewMessage
	askLeave   = "leave"   // compute node -> lead: nothing
	askServe   = "serve"   // memory node -> lead: memoryInfo
	askMembers = "members" // lead -> memory node: viewMessage
	askAttach  = "attach"  // compute node -> memory node: attachRequest, attachReply
	askLane    = "lane"    // compute node -> memory node: laneRequest, end
	askLink    = "link"    // compute node -> compute node: linkRequest, linkReply
)

// A life is one membership of a compute node: numbers are used again,
// tickets never.
type life struct {
	ID     fabric.CNID `json:"id"`
	Ticket uint64      `json:"ticket"`
}

// A cnInfo is a live compute node.
type cnInfo struct {
	life
	Addr string `json:"addr"` // of its control service
}

// A memoryInfo is a memory node.
type memoryInfo struct {
	ID    fabric.MemID `json:"id"`
	Size  uint64       `json:"size"`
	Epoch uint32       `json:"epoch"`
	Addr  string       `json:"addr"`
	Up    bool         `json:"up"`
	// Again: it was known to a lead before.
	Again bool `json:"again,omitempty"`
}

// A viewMessage is who is there.
type viewMessage struct {
	Epoch uint64       `json:"epoch"`
	Live  []cnInfo     `json:"live"`
	Mem   []memoryInfo `json:"mem"`
	Lost  uint64       `json:"lost"` // see fabric.View
}

func (v *viewMessage) find(id fabric.CNID) (cnInfo, bool) {
	i, ok := slices.BinarySearchFunc(v.Live, id, func(c cnInfo, id fabric.CNID) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return cnInfo{}, false
	}
	return v.Live[i], true
}

func (v *viewMessage) has(l life) bool {
	c, ok := v.find(l.ID)
	return ok && c.life == l
}

func (v *viewMessage) view() fabric.View {
	view := fabric.View{Epoch: v.Epoch, Lost: v.Lost}
	for _, c := range v.Live {
		view.Live.Add(c.ID)
	}
	return view
}

// memory returns a memory node that is up.
func (v *viewMessage) memory(id fabric.MemID) (memoryInfo, bool) {
	for _, m := range v.Mem {
		if m.ID == id && m.Up {
			return m, true
		}
	}
	return memoryInfo{}, false
}

// A joinRequest with a ticket asks to stay who one was, of a lead that has
// restarted.
type joinRequest struct {
	life
	Addr string `json:"addr"`
}

type joinReply struct {
	life
	View viewMessage `json:"view"`
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
	life
	Lanes []end `json:"lanes"`
}

type attachReply struct {
	memoryInfo
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
	life
	End end `json:"end"`
}

type linkReply struct {
	End end `json:"end"`
	// Delivered is how many messages of this life of the sender have arrived.
	Delivered uint64 `json:"delivered"`
}
