package hier_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// The WRITE of a value fails in the release of a train's first member. The next one finds what the memory node has.
func TestTrainAfterWriteOfValueFailed(t *testing.T) {
	o := &trains{layout: roomy}
	r := newRig(t, 1, 4, "declock", roomy, unsynced, simulated(sim.Config{Observer: o}))
	failed := 0
	for cn := range 4 {
		r.c.Go(r.nodes[cn], name(cn, 0), func(p fabric.Port) {
			hook := &hookPort{}
			k := r.hooked(cn, p, hook)
			c := r.counter(k, 0, lock.Exclusive)
			c.v.Buf = c.v.Buf[:8] // leaves room for a train
			at(k, fabric.Time(cn)*5*us)
			must(t, k.AcquireValue(&c.h, &c.r, &c.v))
			if got := r.word(0); c.get() != got {
				t.Errorf("%s sees %d, and memory has %d", name(cn, 0), c.get(), got)
			}
			if cn == 0 {
				at(k, 60*us)
			}
			c.set(c.get() + 1)
			if cn == 1 {
				hook.do = func(p fabric.Port, ops []fabric.Op) error {
					if ops[0].Kind != fabric.OpWrite || failed > 0 {
						return p.Do(ops)
					}
					failed++
					return &fabric.ChainError{Op: ops[0], Err: fabric.ErrOutOfBounds}
				}
			}
			if err := k.ReleaseValue(&c.h, &c.v, nil); errors.Is(err, fabric.ErrOutOfBounds) != (cn == 1) {
				t.Errorf("%s releases: %v", name(cn, 0), err)
			}
		})
	}
	r.run()
	r.wantFree(0)
	if got := r.word(0); failed != 1 || got != 3 || o.all != 3 {
		t.Errorf("%d WRITEs failed, memory has %d, trains of up to %d", failed, got, o.all)
	}
}

// A collector gives up when it has its grant, and the report that it waits for comes before it is out of the queue. Its agent passes the lock on
// within the train.
func TestCollectorLeavesAsItIsGranted(t *testing.T) {
	r := newRig(t, 1, 5, "declock-pf+train", roomy, unsynced)
	modes := []lock.Mode{lock.Exclusive, lock.Exclusive, lock.Shared, lock.Exclusive, lock.Exclusive}
	left, granted := 0, 0
	for cn, mode := range modes {
		r.c.Go(r.nodes[cn], name(cn, 0), func(p fabric.Port) {
			hook := &hookPort{}
			k := r.hooked(cn, p, hook)
			at(k, fabric.Time(cn)*5*us)
			q := lock.Request{Lock: r.lock(0), Mode: mode}
			if cn == 3 {
				q.Deadline = 120 * us
				hook.abandon = func(p fabric.Port) error {
					left++
					err := p.Abandon()
					_ = p.Pause(300 * us)
					return err
				}
			}
			var h lock.Hold
			if err := k.Acquire(&h, &q); cn == 3 && errors.Is(err, lock.ErrTimeout) {
				return
			} else if err != nil {
				t.Errorf("%s: %v", name(cn, 0), err)
			}
			granted++
			switch cn {
			case 0:
				at(k, 60*us)
			case 2:
				at(k, 200*us)
			}
			must(t, k.Release(&h, nil))
		})
	}
	r.run()
	r.wantFree(0)
	if n := r.led(); left != 1 || granted != 4 || n > 0 {
		t.Errorf("%d have left, %d were granted, %d resets", left, granted, n)
	}
}
