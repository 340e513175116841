package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// A process that is stopped still has the memory mapped, and nothing keeps its stores out: while it exists it
// may go on at any time. So a lease can only be enforced by ending the process. A memory node with
// Options.Lease looks at a counter of each compute node's, its beat, and kills the process of one whose
// beat has stood still. Its end is then noticed as any other.

// beatEvery is how often a compute node beats, and a memory node looks, whatever the lease: memory nodes may have
// different ones. A node that did not beat between as many looks as fit into the lease and one more is killed: counted in looks, so
// that a memory node that was stopped itself does not kill all others.
const beatEvery = 20 * time.Millisecond

// lease returns the lease of the cluster: 0 if there is none.
func (c *cluster) lease() *atomic.Uint64 { return c.m.word(leaseOffset) }

// beat shows that the process of the node runs, until the node is closed.
func (n *node) beat() {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
			n.slot.beat.Add(1)
		}
	}
}

// A sighting is of a compute node's beat.
type sighting struct {
	incarnation, beat uint64
	still             int // looks since it changed
}

// enforce kills compute nodes that do not beat, until the server is closed.
func (s *MemoryServer) enforce(o *Options) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	seen := make([]sighting, s.c.maxCN+1)
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		if err := s.Err(); err != nil {
			if o.Report != nil {
				o.Report(err)
			}
			return // those that cannot beat any more do run
		}
		for id := range s.c.cns() {
			if !s.stands(id, &seen[id], int(o.Lease/beatEvery)) {
				continue
			}
			killed, err := s.c.killCN(id, seen[id].incarnation)
			if killed {
				err = fmt.Errorf("%w: %v did not run for its lease of %v, and was killed", fabric.ErrFenced, id, o.Lease)
			} else if err != nil {
				err = fmt.Errorf("%v did not run for its lease: %w", id, err)
			}
			if err != nil && o.Report != nil {
				o.Report(err)
			}
		}
	}
}

var _ fabric.Members = (*node)(nil)

// Incarnation implements fabric.Members.
func (n *node) Incarnation(id fabric.CNID) uint64 {
	if id == 0 || uint32(id) > n.c.maxCN {
		return 0
	}
	if now := n.c.cn(id).counter.Load(); isLive(now) {
		return now
	}
	return 0
}

// Expel implements fabric.Members: it kills the process.
func (n *node) Expel(id fabric.CNID, incarnation uint64) error {
	if incarnation == 0 || n.Incarnation(id) != incarnation {
		return nil
	}
	if n.c.cn(id).pid.Load() == uint64(os.Getpid()) {
		return fmt.Errorf("%w: %v is of this process", ErrBusy, id)
	}
	_, err := n.c.killCN(id, incarnation)
	return err
}

// stands looks at a compute node, and reports whether its beat has stood still for a lease, in looks.
// A node that has not begun to beat has joined before there was a lease. One that still stands, because it could not be killed, or is not swept
// yet, is reported again after one more lease.
func (s *MemoryServer) stands(id fabric.CNID, last *sighting, looks int) bool {
	slot := s.c.cn(id)
	now := sighting{incarnation: slot.counter.Load(), beat: slot.beat.Load()}
	if !isLive(now.incarnation) || now.beat == 0 || now.incarnation != last.incarnation || now.beat != last.beat {
		*last = now
		return false
	}
	if last.still++; last.still <= looks {
		return false
	}
	last.still = 0
	return true
}

// killCN ends the process of a compute node, and reports whether it did. It does so only if it is certain which process that is: the one that
// holds the lock of the node's file after its pidfd was opened.
func (c *cluster) killCN(id fabric.CNID, incarnation uint64) (killed bool, err error) {
	slot := c.cn(id)
	pid := slot.pid.Load()
	if slot.pidNS.Load() != pidNamespace() {
		return false, fmt.Errorf("%w: the process of %v is in another PID namespace: end it by hand", ErrBusy, id)
	}
	if pid == uint64(os.Getpid()) {
		return false, nil // it is only slow: this process runs
	}
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return false, fmt.Errorf("open process %[2]d of %[1]v: %[3]w", id, pid, err)
	}
	defer unix.Close(fd)
	if slot.counter.Load() != incarnation || slot.pid.Load() != pid || !pathLocked(c.cnPath(id)) {
		return false, nil // it has ended meanwhile
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return false, fmt.Errorf("kill process %[2]d of %[1]v: %[3]w", id, pid, err)
	}
	return true, nil
}
