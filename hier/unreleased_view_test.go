package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// The last node that a reset waits for crashes, and the last step of the reset fails: no client asks for the lock, and it is reset all the same.
func TestResetWhoseLastStepFailsAfterACrash(t *testing.T) {
	for _, why := range []error{fabric.ErrNodeDown, fabric.ErrUnknownOutcome} {
		failed := 0
		r := newRig(t, 1, 2, "declock", small, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
			if p.ID() != fabric.AgentOf(1) {
				return p
			}
			return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
				if len(ops) == 2 && ops[1].Kind == fabric.OpCAS && failed == 0 {
					failed++
					return &fabric.ChainError{Op: ops[0], Err: why}
				}
				return p.Do(ops)
			}}
		}))
		r.client(1, "holds, and dies", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			at(k, fabric.Second)
		})
		r.c.Go(r.nodes[0], "asks", func(p fabric.Port) {
			_ = p.Pause(100 * us)
			r.askReset(0, p, 0, cql.Corruption)
		})
		r.c.At(ms, func() { r.c.Kill(r.nodes[1]) })
		if err := r.c.RunUntil(100 * ms); err != nil {
			t.Fatal(err)
		}
		if r.wantFree(0); failed != 1 {
			t.Errorf("%v: failed %d times", why, failed)
		}
	}
}
