package hier

import "github.com/declock/declock/fabric"

// setAside takes local locks out of the table that clients hold since a life of a memory node that is over, and has the locks
// reset: others get them, on this node and elsewhere, before those who have lost them release them. That is safe where nothing that was posted in
// an epoch that is over changes memory (fabric.Caps.CutsEpochs): the Port of a client that holds such a lock stays in that epoch
// (Locker.attach). Those who hold them have been notified (OnLoss); else setAside returns false, and is called again.
func (a *Agent) setAside(mn fabric.MemID) (all bool) {
	if !a.node.Caps().CutsEpochs {
		return true
	}
	all = true
	for i := range a.table.shards {
		s := &a.table.shards[i]
		for {
			s.mu.Lock()
			x := s.lost(mn)
			if x == nil {
				s.mu.Unlock()
				break
			}
			if !x.life.told.Load() {
				s.mu.Unlock()
				all = false
				break
			}
			place, thawed := x.place, a.locker.unhand(s, x)
			s.mu.Unlock()
			if thawed {
				a.locker.remote.Quiesced(place.Lock)
			}
			a.locker.wakeAll(place.Lock)
			a.locker.askReset(&place)
		}
	}
	return all
}

// lost returns a local lock on a memory node that is held since a life that is over, or nil. The shard is locked.
func (s *shard) lost(mn fabric.MemID) *local {
	for _, x := range s.buckets {
		for ; x != nil; x = x.next {
			if x.place.Lock.MN() == mn && x.state == held && x.over() {
				return x
			}
		}
	}
	return nil
}

// unhand takes a lost local lock out of the table. Clients that wait for it begin again, and releases that have left something to its holder learn
// that it is lost. It reports whether a reset has waited for that. The shard is locked; wakeAll must follow.
func (k *Locker) unhand(s *shard, x *local) (thawed bool) {
	s.unlink(x)
	for w := x.queue.head; w != nil; w = x.queue.head {
		x.queue.remove(w)
		w.verdict = outlived
		k.wake = append(k.wake, w.client)
	}
	k.settleAll(x, *x.life.why.Load())
	return k.table.step(x, evSetAside)
}
