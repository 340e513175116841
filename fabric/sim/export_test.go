package sim

import "github.com/declock/declock/fabric"

// MemoryUsed returns the bytes of this process's memory behind a memory node.
func (c *Cluster) MemoryUsed(id fabric.MemID) uint64 { return c.mn(id).mem.used() }

// used returns the bytes of real memory behind the pages and their tables.
func (m *memory) used() uint64 {
	n := uint64(len(m.slabs))*m.slabSize() + uint64(len(m.root))*8
	for _, l := range m.root {
		if l != nil {
			n += 4 << leafBits
		}
	}
	return n
}

// len returns the number of events to come.
func (q *queue) len() int { return q.near + len(q.far) }
