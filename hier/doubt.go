package hier

import "github.com/declock/declock/fabric"

// A doubt is about a lock in whose queue this node may have left a place behind: one that
// the header counts until a reset. Somebody gave up before the reset that had refused it was over, or
// the outcome of an operation is unknown. The next acquisition asks before it adds itself to the
// header (cql.Client.EnqueueCautious), so that places left behind do not add up.
type doubt struct {
	lock  fabric.Addr
	since uint64 // the number of the doubt in its shard, from 1: a later one has a greater
}

// maxDoubts bounds the doubts of a shard; then the oldest are forgotten. A lock of which that is
// so has one place more that is left behind.
const maxDoubts = 16

// doubt notes that a place may have been left behind: before another client of the node can come.
func (t *Table) doubt(l fabric.Addr) {
	s := t.shardOf(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(t, func(d doubt) bool { return d.lock == l })
	if len(s.doubts) == maxDoubts {
		oldest := s.doubts[0]
		s.forget(t, func(d doubt) bool { return d == oldest })
	}
	s.doubted++
	s.doubts = append(s.doubts, doubt{l, s.doubted})
	t.doubts.Add(1)
}

// doubted returns the number of the doubt about a lock, 0 if there is none.
func (t *Table) doubted(l fabric.Addr) uint64 {
	if t.doubts.Load() == 0 {
		return 0
	}
	s := t.shardOf(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.doubts {
		if d.lock == l {
			return d.since
		}
	}
	return 0
}

// trust ends a doubt: the lock has admitted a client since. One that has come up meanwhile stays.
func (t *Table) trust(l fabric.Addr, since uint64) {
	s := t.shardOf(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(t, func(d doubt) bool { return d == doubt{l, since} })
}

// forget takes doubts away. The shard is locked.
func (s *shard) forget(t *Table, which func(doubt) bool) {
	keep := s.doubts[:0]
	for _, d := range s.doubts {
		if !which(d) {
			keep = append(keep, d)
		}
	}
	t.doubts.Add(int32(len(keep) - len(s.doubts)))
	s.doubts = keep
}
