package hier

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
)

// The AppendState methods append what distinguishes two states of a value: all that the clients and the agent of a node go by
// when they go on. Counters and scratch memory are omitted. Exploration of schedules compares states by them; an audit
// there checks that nothing is missing (lab/check, TestStatesLeaveNothingOut).

func appendWord[T ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](dst []byte, v T) []byte {
	return binary.AppendUvarint(dst, uint64(v))
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendText(dst []byte, s string) []byte { return append(appendWord(dst, len(s)), s...) }

func appendError(dst []byte, err error) []byte {
	if err == nil {
		return appendText(dst, "")
	}
	return appendText(dst, err.Error())
}

// appendMap appends a map in the order of its keys.
func appendMap[K cmp.Ordered, V any](dst []byte, m map[K]V, one func(dst []byte, k K, v V) []byte) []byte {
	dst = appendWord(dst, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = one(dst, k, m[k])
	}
	return dst
}

// AppendState appends what distinguishes two states of the table.
func (t *Table) AppendState(dst []byte) []byte {
	dst = appendWord(dst, t.handoverNs.Load())
	for i := range t.hot {
		if l := t.hot[i].Load(); l != 0 {
			dst = appendWord(appendWord(dst, i+1), l)
		}
	}
	dst = append(dst, 0)
	dst = t.recovery.appendState(dst)
	dst = appendMap(dst, t.seen, func(dst []byte, l fabric.Addr, s sighting) []byte {
		dst = appendWord(appendWord(appendWord(dst, l), s.at), s.token)
		return appendBool(appendWord(dst, s.streak), s.reported)
	})
	for i := range t.shards {
		dst = t.shards[i].appendState(dst, i)
	}
	return dst
}

func (l *incarnation) appendState(dst []byte) []byte {
	if l == nil {
		return append(dst, 0)
	}
	dst = appendWord(append(dst, 1), l.epoch)
	dst = appendBool(appendBool(dst, l.over.Load()), l.notified.Load())
	if why := l.why.Load(); why != nil {
		dst = appendError(dst, *why)
	}
	dst = appendBool(appendBool(dst, l.verified.Load()), l.known)
	if l.term != 0 {
		dst = appendWord(dst, l.term)
	}
	return appendWord(appendWord(appendWord(dst, l.generation), l.first), l.lost)
}

// appendState appends shard i. Of a local lock that is kept for reuse only the number of its last tenure counts.
func (s *shard) appendState(dst []byte, i int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 && s.spare == 0 {
		return dst
	}
	dst = appendWord(dst, i)
	for b, x := range s.buckets {
		for ; x != nil; x = x.next {
			dst = x.appendState(appendWord(dst, b))
		}
	}
	dst = appendWord(dst, s.spare)
	for x := s.free; x != nil; x = x.next {
		dst = appendWord(dst, x.gen)
	}
	return dst
}

func (x *local) appendState(dst []byte) []byte {
	dst = appendWord(dst, x.gen)
	dst = x.handoff.appendState(dst)
	dst = appendWord(x.ticket.AppendState(dst), x.state)
	for _, b := range [...]bool{x.frozen, x.expired, x.hot, x.unsettled} {
		dst = appendBool(dst, b)
	}
	dst = appendWord(appendWord(appendWord(dst, x.patience), x.mode), x.seq)
	dst = appendWord(appendWord(appendWord(dst, x.owner), x.streak), x.holders)
	dst = appendWord(x.incarnation.appendState(dst), x.used)
	dst = appendWord(appendWord(dst, x.grantFrom), x.grantTo)
	for w := x.queue.head; w != nil; w = w.next {
		dst = w.appendState(append(dst, 1))
	}
	dst = appendWord(appendWord(append(dst, 0), x.arrived), x.gate)
	dst = appendWord(appendWord(appendWord(dst, x.stamp), x.sharing), x.bound)
	return dst
}

func (f *handoff) appendState(dst []byte) []byte {
	dst = appendWord(appendText(dst, string(f.data)), f.addr)
	dst = appendWord(appendBool(dst, f.dirty), f.deferred)
	for c := f.waits; c != nil; c = c.next {
		dst = c.appendState(append(dst, 1))
	}
	if dst = append(dst, 0); f.waits != nil {
		dst = appendWord(dst, f.since)
	}
	return dst
}

func (w *waiter) appendState(dst []byte) []byte {
	dst = appendWord(appendWord(appendWord(dst, w.client), w.mode), w.arrival)
	dst = appendWord(appendWord(appendWord(dst, w.stamp), w.room), w.verdict)
	return appendText(appendWord(w.incarnation.appendState(dst), w.token), string(w.same))
}

func (c *pendingRelease) appendState(dst []byte) []byte {
	return appendError(appendBool(appendWord(dst, c.client), c.done), c.err)
}

// AppendState appends what others have written into the Locker, and what it knows from one acquisition to the next. What it knows
// of the acquisition or release under way is not in it.
func (k *Locker) AppendState(dst []byte) []byte {
	dst = k.remote.AppendState(k.own.appendState(k.self.appendState(dst)))
	dst = appendWord(dst, len(k.holding))
	for _, l := range k.holding {
		dst = appendWord(dst, l)
	}
	for i := range k.mems {
		a := &k.mems[i]
		dst = appendWord(appendWord(a.incarnation.appendState(dst), a.holds), a.notified)
	}
	return appendBool(appendWord(dst, k.since), k.port.Stats().Unknown != k.unknown)
}

// AppendState appends what the agent remembers between two messages, apart from the node's table.
func (a *Agent) AppendState(dst []byte) []byte {
	dst = a.locker.AppendState(a.resets.AppendState(dst))
	dst = appendWord(appendWord(dst, a.lost), a.synced)
	dst = appendWord(dst, len(a.unreachable))
	for _, mn := range a.unreachable {
		dst = appendWord(dst, mn)
	}
	return appendWord(dst, a.lookAt)
}
