package hier_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A reset did not ask a node whose client waits (no reset does that; if one did, this is what is left): another client holds
// the lock since. The waiter finds the head beyond its index. It is not granted beside the holder, and does not wait for ever:
// it begins again. So does a client of the same node behind a ticket whose client has given up.
func TestWaiterThatAResetDidNotAsk(t *testing.T) {
	for _, policy := range []string{"cql", "declock", "declock-tf", "remote-prefer"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			for _, givesUp := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v, first gives up %v", policy, mode, givesUp), func(t *testing.T) {
					passedWaiter(t, policy, mode, givesUp)
				})
			}
		}
	}
}

func passedWaiter(t *testing.T, policy string, mode lock.Mode, givesUp bool) {
	r := newRig(t, 1, 2, policy, small, unsynced, waits(200*us, 10*ms))
	y := r.cfg.Layout
	r.setHeader(0, y.Header(0, 1, 1, 0)) // a holder that no node has
	var w witness
	granted := 0
	if givesUp {
		r.client(0, "gives up", func(k *hier.Locker) {
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode, Deadline: 50 * us}); !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("with a deadline: %v", err)
			}
		})
	}
	r.client(0, "waits", func(k *hier.Locker) {
		at(k, 20*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), mode)
		granted++
		if now := k.Port().Now(); now > 3*ms {
			t.Errorf("granted at %d us, the lock is free since 2000", now/us)
		}
		w.enter(t, &h)
		sleep(k, us)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	})
	r.c.At(100*us, func() {
		r.c.Poke(r.lock(0).Add(8), make([]byte, 8*y.Capacity()))
		r.setHeader(0, y.Header(8, 0, 0, 0))
	})
	r.client(1, "holds since the reset", func(k *hier.Locker) {
		at(k, 110*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		w.enter(t, &h)
		at(k, 2*ms)
		w.exit(&h)
		must(t, k.Release(&h, nil))
	})
	r.run()
	r.wantFree(0)
	if granted != 1 {
		t.Errorf("%d granted", granted)
	}
}
