package hier

import (
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// suspectNs is for how long after the death of a node locks that are not released may be its:
// nothing in a lock says who holds it.
const suspectNs = 60 * fabric.Second

// maxCleared bounds how many locks are known not to be a dead node's.
const maxCleared = 1 << 12

// A suspicion is what a node thinks of locks after the death of another, or after the restart of a memory node.
type suspicion struct {
	since atomic.Int64 // when the node learnt of it; 0: never

	clearedMu sync.Mutex
	cleared   map[fabric.Addr]struct{} // have been reset since
}

// suspect begins a suspicion of all locks.
func (s *suspicion) suspect(now fabric.Time) {
	s.clearedMu.Lock()
	defer s.clearedMu.Unlock()
	s.cleared = map[fabric.Addr]struct{}{}
	s.since.Store(int64(now))
}

// suspects tells whether a lock that is not released may be that of a dead node.
func (s *suspicion) suspects(l fabric.Addr, now fabric.Time) bool {
	if !s.suspicious(now) {
		return false
	}
	s.clearedMu.Lock()
	defer s.clearedMu.Unlock()
	_, ok := s.cleared[l]
	return !ok
}

func (s *suspicion) suspicious(now fabric.Time) bool {
	at := fabric.Time(s.since.Load())
	return at != 0 && now-at < suspectNs
}

// clear notes that a lock has been reset: whoever holds it now is alive.
func (s *suspicion) clear(l fabric.Addr, now fabric.Time) {
	if !s.suspicious(now) {
		return
	}
	s.clearedMu.Lock()
	defer s.clearedMu.Unlock()
	if len(s.cleared) < maxCleared {
		s.cleared[l] = struct{}{}
	}
}
