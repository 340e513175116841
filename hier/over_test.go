package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A client takes the ticket over that another had given up before the memory node restarted: the ID that was left with the ticket is free again.
func TestTakenOverTicketFreesItsID(t *testing.T) {
	r := newRig(t, 1, 2, "declock", small, unsynced, silent, waits(ms, fabric.Forever/4))
	r.client(1, "holds", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 2*ms)
		_ = k.Release(&h, nil) // it is lost
	})
	r.client(0, "gives up", func(k *hier.Locker) {
		at(k, 20*us)
		var h lock.Hold
		if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 50 * us}); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("with a deadline: %v", err)
		}
		if n := r.nodes[0].Abandoned(); n != 1 {
			t.Errorf("%d IDs are abandoned", n)
		}
		r.c.KillMN(r.mn)
		r.c.RestartServer(r.mn)
	})
	r.client(0, "takes over", func(k *hier.Locker) {
		for r.nodes[0].Abandoned() == 0 {
			sleep(k, 100)
		}
		for {
			var h lock.Hold
			if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}); err == nil {
				must(t, k.Release(&h, nil))
				return
			}
			sleep(k, us)
		}
	})
	r.run()
	r.wantFree(0)
	if n := r.nodes[0].Abandoned(); n != 0 {
		t.Errorf("%d IDs are abandoned still", n)
	}
}

// The WRITE of a value fails before the lock goes to another client of the node. What that one sees is written by its own release.
func TestValueWhoseWriteFailedIsWrittenLater(t *testing.T) {
	r := newRig(t, 1, 1, "declock-tf", valueLayout, unsynced)
	r.c.Go(r.nodes[0], "writes", func(p fabric.Port) {
		hook := &hookPort{}
		k := r.hooked(0, p, hook)
		c := r.counter(k, 0, lock.Exclusive)
		must(t, k.AcquireValue(&c.h, &c.r, &c.v))
		at(k, 50*us) // the other waits
		c.set(7)
		failed := false
		hook.do = func(p fabric.Port, ops []fabric.Op) error {
			if ops[0].Kind == fabric.OpWrite && !failed {
				failed = true
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrResources}
			}
			return p.Do(ops)
		}
		if err := k.ReleaseValue(&c.h, &c.v, nil); !errors.Is(err, fabric.ErrResources) {
			t.Errorf("release: %v", err)
		}
	})
	r.client(0, "reads", func(k *hier.Locker) {
		at(k, 20*us)
		c := r.counter(k, 0, lock.Exclusive)
		must(t, k.AcquireValue(&c.h, &c.r, &c.v))
		saw := c.get()
		must(t, k.ReleaseValue(&c.h, &c.v, nil))
		if got := r.word(0); got != saw {
			t.Errorf("it saw %d, and memory has %d", saw, got)
		}
	})
	r.run()
	r.wantFree(0)
}
