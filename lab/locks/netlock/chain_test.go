package netlock

import (
	"slices"
	"testing"

	"github.com/declock/declock/lock"
)

// Passes that grant readers do not end while readers keep coming: they count what releases meanwhile modulo 2^12, and no count carries into another.
func TestPassesThatDoNotEnd(t *testing.T) {
	r := newRig(t, Config{Locks: 1, Queue: 100})
	first, others := r.ask(1, lock.Exclusive), []*ticket{r.ask(2, lock.Shared), r.ask(3, lock.Shared)}
	r.settle()
	r.release(first)
	r.deliver(r.take(msgRelease))
	// step takes a pass. Then another reader asks, and the one that the pass has granted releases.
	step := func(i int) {
		t.Helper()
		r.deliver(r.take(msgNext))
		r.deliver(r.take(msgGranted))
		reader := others[0]
		others = append(others[1:], r.ask(4, lock.Shared))
		r.deliver(r.take(msgAcquire))
		slot := reader.op.slot()
		r.release(reader)
		r.deliver(r.take(msgRelease))
		r.deliver(r.take(msgReleased))
		r.pool.idle = append(r.pool.idle, slot)
		for slices.ContainsFunc(r.under, func(s sent) bool { return s.Kind == msgLast }) {
			r.deliver(r.take(msgLast))
		}
		if now := unpack(r.program.counts.Load(0)); now.x != 0 || now.s != 2 || now.away != 0 || !now.chain {
			t.Fatalf("after %d releases the queue is %+v", i+1, now)
		}
	}
	for i := range 3 << countBits {
		step(i)
	}
	last := r.ask(5, lock.Exclusive)
	r.settle()
	for _, x := range others {
		if last.phase == holds {
			t.Error("a writer holds the lock beside readers")
		}
		r.release(x)
		r.settle()
	}
	if last.phase != holds {
		t.Errorf("the writer behind the readers is in phase %d, want holds", last.phase)
	}
}
