package hier_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A memory node restarts with its memory. Who held a lock there has lost it, and keeps the hold for a second: others get the lock meanwhile, on its node
// and on others, whether they waited already or come later. What the loser writes arrives nowhere, and its release says that it has lost the lock.
func TestLostLockIsFree(t *testing.T) {
	for _, policy := range []string{"cql", "declock", "declock-tf", "remote-prefer"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			for _, waited := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v, others wait before %v", policy, mode, waited), func(t *testing.T) { lostLockIsFree(t, policy, mode, waited) })
			}
		}
	}
}

func lostLockIsFree(t *testing.T, policy string, mode lock.Mode, waited bool) {
	const down, up = 5 * ms, 6 * ms
	r := newRig(t, 1, 3, policy, small, unsynced, silent, waits(ms, fabric.Forever/4))
	told := 0
	r.tables[0].OnLoss = func(l lock.Loss) {
		told++
		if l.Lock != r.lock(0) || !errors.Is(l.Err, lock.ErrLost) {
			t.Errorf("lost %+v", l)
		}
	}
	r.c.At(down, func() { r.c.KillMN(r.mn) })
	r.c.At(up, func() { r.c.RestartServer(r.mn) })
	r.client(0, "loses it", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), mode)
		at(k, fabric.Second)
		if err := k.Port().Do([]fabric.Op{fabric.Store(r.data(0), 666)}); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("a WRITE under the lost lock: %v", err)
		}
		if err := k.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v", err)
		}
		acquire(t, k, &h, r.lock(0), mode)
		must(t, k.Release(&h, nil))
	})
	granted := 0
	for cn := range 3 {
		for i := range 2 {
			r.client(cn, name(cn, i), func(k *hier.Locker) {
				if at(k, 20*us); !waited {
					at(k, up+20*us)
				}
				var h lock.Hold
				for {
					err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive})
					if err == nil {
						break
					}
					if !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrStaleEpoch) && !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("acquire: %v", err)
					}
					sleep(k, 100*us)
				}
				if now := k.Port().Now(); now < up || now > up+100*ms {
					t.Errorf("granted at %d us", now/us)
				}
				granted++
				sleep(k, 10*us)
				must(t, k.Release(&h, nil))
			})
		}
	}
	r.run()
	r.wantFree(0)
	if granted != 6 || told != 1 || r.c.PeekWord(r.data(0)) != 0 {
		t.Errorf("%d granted, %d notified, data %d", granted, told, r.c.PeekWord(r.data(0)))
	}
}
