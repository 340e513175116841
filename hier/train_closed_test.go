package hier_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A client is closed while it holds a lock in a train, and then releases it: it can pass nothing on. Those behind it get the lock in some
// milliseconds, by a reset.
func TestClosedMemberOfTrain(t *testing.T) {
	for _, policy := range []string{"declock+no-train", "declock+no-train+train", "declock"} {
		for closed := 1; closed < 4; closed++ {
			for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
				t.Run(fmt.Sprintf("%s/%v/%d", policy, mode, closed), func(t *testing.T) {
					r := newRig(t, 1, 5, policy, roomy)
					granted := 0
					for cn := range 5 {
						r.client(cn, name(cn, 0), func(k *hier.Locker) {
							at(k, fabric.Time(cn)*5*us)
							var h lock.Hold
							m := lock.Exclusive
							if cn == closed {
								m = mode
							}
							acquire(t, k, &h, r.lock(0), m)
							granted++
							if cn == 0 {
								at(k, 100*us)
							}
							if cn == closed {
								must(t, k.Port().Close())
								if err := k.Release(&h, nil); err == nil {
									t.Error("a closed client releases without an error")
								}
								return
							}
							must(t, k.Release(&h, nil))
						})
					}
					must(t, r.c.RunUntil(30*fabric.Millisecond))
					if granted != 5 {
						t.Errorf("%d grants", granted)
					}
					r.wantFree(0)
				})
			}
		}
	}
}

// A client gives up as its grant comes, and is closed before it can hand that to its agent: the lock is free again in some milliseconds.
func TestClosedWithTheGrant(t *testing.T) {
	for _, policy := range []string{"declock+no-train", "declock+no-train+train"} {
		r := newRig(t, 1, 4, policy, roomy)
		late := 0
		for cn := range 4 {
			r.c.Go(r.nodes[cn], name(cn, 0), func(p fabric.Port) {
				hook := &hookPort{}
				k := r.hooked(cn, p, hook)
				at(k, fabric.Time(cn)*5*us)
				q := lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}
				if cn == 1 {
					q.Deadline = 80 * us
					hook.abandon = func(p fabric.Port) error {
						err := p.Abandon()
						_ = p.Pause(200 * us)
						hook.send = func(_ fabric.Port, _ fabric.ClientID, m *fabric.Message) error {
							if m.Kind == kindGrant {
								late++
							}
							return fabric.ErrClosed
						}
						return err
					}
				}
				var h lock.Hold
				if err := k.Acquire(&h, &q); err != nil {
					return
				}
				if cn == 0 {
					at(k, 100*us)
				}
				must(t, k.Release(&h, nil))
			})
		}
		must(t, r.c.RunUntil(30*fabric.Millisecond))
		if late != 1 {
			t.Errorf("%s: the grant has not come in between", policy)
		}
		r.wantFree(0)
	}
}

// A client is closed while its release writes: the WRITE takes effect late. The node answers no reset of the lock before.
func TestClosedReleaseOfUnknownOutcome(t *testing.T) {
	var r *rig
	var late []byte
	execute := func() {
		if late != nil {
			r.c.Poke(r.data(0), late)
			late = nil
		}
	}
	r = newRig(t, 1, 2, "declock", roomy, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
		if p.ID() != fabric.AgentOf(1) {
			return p
		}
		return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
			execute() // it was posted before
			return p.Do(ops)
		}}
	}))
	r.c.Go(r.nodes[0], "closed", func(p fabric.Port) {
		hook := &hookPort{}
		k := r.hooked(0, p, hook)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 20*us)
		hook.do = func(_ fabric.Port, ops []fabric.Op) error {
			late = append([]byte{}, ops[0].Buf...)
			hook.send = func(fabric.Port, fabric.ClientID, *fabric.Message) error { return fabric.ErrClosed }
			return &fabric.ChainError{Op: ops[0], Err: fmt.Errorf("%w; %w", fabric.ErrClosed, fabric.ErrUnknownOutcome)}
		}
		buf := p.Alloc(8)
		buf[0] = 7
		if err := k.Release(&h, []fabric.Op{fabric.Write(r.data(0), buf)}); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("a release of a closed client: %v", err)
		}
	})
	r.c.Go(r.nodes[1], "asks", func(p fabric.Port) {
		_ = p.Pause(30 * us)
		r.askReset(1, p, 0, cql.UnknownOutcome)
	})
	granted := false
	r.client(1, "next", func(k *hier.Locker) {
		at(k, 10*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		granted = true
		was := r.c.PeekWord(r.data(0))
		at(k, fabric.Millisecond)
		execute()
		if now := r.c.PeekWord(r.data(0)); now != was {
			t.Errorf("the data change from %d to %d under the lock", was, now)
		}
		must(t, k.Release(&h, nil))
	})
	must(t, r.c.RunUntil(30*fabric.Millisecond))
	if !granted {
		t.Error("the next client is not granted the lock")
	}
}
