package tcp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A region is the memory of one memory-node number, on one memory node: its own number's, or, of a number that is replicated, the primary or a backup
// (docs/replication.md). Which of them a memory node has the ledger says.
type region struct {
	id  fabric.MemID
	mem *memory
	nic *nic

	// Of a number that is replicated:

	replica   uint32 // member.Replica.Number; 0: it is no replica
	epoch     uint32 // in which lanes are let in; 0: none are
	backup    bool   // lanes are those to a backup
	formatted bool
}

func newRegion(id fabric.MemID, m *memory) *region { return &region{id: id, mem: m, nic: newNIC(m)} }

// replicated reports whether the memory node's own number is replicated.
func (s *MemoryServer) replicated() bool { return s.o.Replicas > 1 }

// copyOf returns the memory of a replicated number, or nil.
func (s *MemoryServer) copyOf(id fabric.MemID) *region {
	if i := slices.IndexFunc(s.copies, func(r *region) bool { return r.id == id }); i >= 0 {
		return s.copies[i]
	}
	return nil
}

// regroup acts on the groups of a state: when it returns, nothing is executed that was sent in an epoch before, or to another replica than the one that is here. So a frame that
// waits in a socket while a backup is promoted comes to nothing, and so does one that was sent to a replica which this process had before. Mu of peer is held.
func (s *MemoryServer) regroup(st *member.State) {
	for _, g := range st.Groups {
		if err := s.host(g); err != nil {
			s.peer.ReportSoon(fmt.Errorf("replica of %v: %w", g.ID, err))
		}
	}
	s.takeBack(func(l *leave) bool { return l.target != (target{}) && !s.isOpen(s.copyOf(l.target.id), l.target) })
	for k, l := range s.lanes {
		if k.target != (target{}) && !s.isOpen(s.copyOf(k.target.id), k.target) {
			s.retire(l)
		}
	}
}

// host acts on a group: it takes memory for a replica that is to be here, gives back that of one which is to be here no more, and opens or shuts it. A replica begins with zeroed
// memory: this process may have had another one of the number, and never have heard of the time between.
func (s *MemoryServer) host(g *member.Group) error {
	i, current := s.peer.Replica(g)
	r := s.copyOf(g.ID)
	if r != nil {
		r.epoch = 0
	}
	if s.peer.KnowsLater(g) {
		return nil // the coordinator has lost its data, and this copy may be what is served then
	}
	if r != nil && (i < 0 || current && r.replica != g.Replicas[i].Number) {
		s.dropCopy(r) // it never comes back: its number is no other replica's
		r = nil
	}
	if i < 0 || r == nil && !current || r != nil && r.replica != g.Replicas[i].Number {
		return nil
	}
	if r == nil {
		var err error
		if r, err = s.newCopy(g, g.Replicas[i].Number); err != nil {
			return err
		}
	}
	if err := s.formatCopy(r, g); err != nil {
		return err
	}
	if r.backup = i > 0; current && (r.backup || g.Serving) {
		r.epoch = g.Epoch
	}
	return nil
}

// newCopy returns zeroed memory for a new replica. Its own number's is that which the memory node has from the start.
func (s *MemoryServer) newCopy(g *member.Group, number uint32) (*region, error) {
	r := s.home
	if g.ID != s.o.Mem || !s.replicated() || g.Size != s.home.mem.size {
		mem, err := openMemory(&Options{Size: g.Size, Huge: s.o.Huge, Local: s.o.Local})
		if err != nil {
			return nil, err
		}
		r = newRegion(g.ID, mem)
	}
	r.nic.key.Store(rand.Uint32())
	r.replica, r.formatted = number, false
	s.copies = append(s.copies, r)
	return r, nil
}

// dropCopy gives back the memory of what is a replica no more, when nothing of before can be executed there.
func (s *MemoryServer) dropCopy(r *region) {
	s.takeBack(func(l *leave) bool { return l.region == r && l.target != (target{}) })
	for k, l := range s.lanes {
		if k.target != (target{}) && k.target.id == r.id {
			s.forget(l)
		}
	}
	s.copies = slices.DeleteFunc(s.copies, func(x *region) bool { return x == r })
	if r != s.home {
		r.mem.close()
		return
	}
	if err := r.mem.discard(); err != nil { // the address range stays: others may have its words
		s.peer.ReportSoon(fmt.Errorf("memory of %v: %w", r.id, err))
	}
}

// isOpen reports whether lanes to some memory are let in.
func (s *MemoryServer) isOpen(r *region, t target) bool {
	if r == nil || r.id != t.id || t.epoch == 0 || r.epoch != t.epoch { // epochs of several numbers may be the same
		return false
	}
	if t.replica == 0 {
		return !r.backup
	}
	return r.backup && r.replica == t.replica
}

// refusal returns why a lane is not let in to the memory that it is to; nil: it is. Mu of peer is held.
func (s *MemoryServer) refusal(r *region, g *guest) error {
	if g.target == (target{}) && !s.replicated() || s.isOpen(r, g.target) {
		switch err := s.peer.Lapsed(); {
		case g.target == (target{}):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", peer.ErrBehind, err)
		case r.backup && !r.formatted: // what is written there before is lost, or keeps it from being formatted
			return fmt.Errorf("%w: %v has not formatted its copy of %v yet", peer.ErrBehind, s.ID(), g.target.id)
		}
		return nil
	}
	if st, _ := s.peer.State(); st.Revision < g.revision {
		return fmt.Errorf("%w: %v of %v in epoch %d", peer.ErrBehind, s.ID(), g.target.id, g.target.epoch)
	}
	return fmt.Errorf("%w: %v does not serve %v in epoch %d", fabric.ErrStaleEpoch, s.ID(), g.target.id, g.target.epoch)
}

// FormatCopies has the memory of each replica formatted that is here, or that will be. Until then a backup is not lent.
func (s *MemoryServer) FormatCopies(format func(fabric.Copy) error) error {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	s.format = format
	if st, _ := s.peer.State(); st != nil {
		for _, g := range st.Groups {
			if err := s.host(g); err != nil {
				return err
			}
		}
	}
	return nil
}

// formatCopy formats the memory of a new replica.
func (s *MemoryServer) formatCopy(r *region, g *member.Group) error {
	if r.formatted || s.format == nil {
		return nil
	}
	word := func(offset uint64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(r.mem.base, offset)) }
	err := s.format(fabric.Copy{ID: g.ID, Size: g.Size, Factor: g.Factor, Origin: uint64(g.Origin), Began: g.Began, Word: word})
	r.formatted = err == nil
	return err
}

// Replicated reports whether the number of the memory node is replicated: then what it serves the ledger says.
func (s *MemoryServer) Replicated() bool { return s.replicated() }
