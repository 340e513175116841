package sim

import (
	"slices"

	"github.com/declock/declock/fabric"
)

// A Footprint is what something that happened in an untimed cluster has to do with. Two things that may happen in one state, and whose
// footprints do not meet, can happen in either order: each does what it does in the other, and both lead to the same state.
type Footprint struct {
	All       bool     // it may have to do with everything
	Witnessed bool     // an oracle took note of it
	Words     []Access // of memory nodes

	ports, nodes uint64 // by index and number; nodes: of which code ran, on memory that its clients share,
	changed      uint64 // and changed it
	sent, shut   uint64 // ports to which something was sent, and that are not there any more
}

// An Access is one to bytes of a memory node.
type Access struct {
	MN       fabric.MemID
	From, To uint64 // offsets
	Write    bool
}

// Clear makes the footprint empty.
func (f *Footprint) Clear() { *f = Footprint{Words: f.Words[:0]} }

// Clone returns a copy.
func (f *Footprint) Clone() Footprint {
	g := *f
	g.Words = slices.Clone(f.Words)
	return g
}

// Equal reports whether two things have to do with the same.
func (f *Footprint) Equal(g *Footprint) bool {
	return f.All == g.All && f.Witnessed == g.Witnessed && f.ports == g.ports && f.nodes == g.nodes && f.changed == g.changed &&
		f.sent == g.sent && f.shut == g.shut && slices.Equal(f.Words, g.Words)
}

// Meets reports whether the order of two things may make a difference.
func (f *Footprint) Meets(g *Footprint) bool {
	if f.All || g.All || f.Witnessed && g.Witnessed || f.ports&g.ports|f.nodes&g.changed|f.changed&g.nodes|f.sent&g.shut|f.shut&g.sent != 0 {
		return true
	}
	for _, a := range f.Words {
		for _, b := range g.Words {
			if (a.Write || b.Write) && a.MN == b.MN && a.From < b.To && b.From < a.To {
				return true
			}
		}
	}
	return false
}

// add adds a number to a set.
func (f *Footprint) add(set *uint64, i uint32) {
	if i > 63 {
		f.All = true
		return
	}
	*set |= 1 << i
}

// Port notes something about a Port.
func (f *Footprint) Port(p *Port) { f.add(&f.ports, p.index) }

// Ran notes that code of a node ran; whether it has changed what the node's clients share is noted by Node.
func (f *Footprint) Ran(n *Node) { f.add(&f.nodes, uint32(n.id)) }

// Node notes that what a node's clients share has changed, or may have.
func (f *Footprint) Node(n *Node) {
	f.Ran(n)
	f.add(&f.changed, uint32(n.id))
}

// Shut notes that a Port gets no more messages, or others.
func (f *Footprint) Shut(p *Port) { f.add(&f.shut, p.index) }

// shuts is Shut of what happens in the cluster.
func (p *Port) shuts() {
	if p.c.untimed != nil {
		p.c.untimed.Touched.Shut(p)
	}
}

// sends notes a message to a Port: the sender need not know what else it does.
func (f *Footprint) sends(p *Port) { f.add(&f.sent, p.index) }

// meddled notes that something has happened that may have to do with everything.
func (c *Cluster) meddled() {
	if c.untimed != nil {
		c.untimed.Touched.All = true
	}
}
