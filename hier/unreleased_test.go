package hier_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A memory node restarts with its memory while a lock is held that no other wants: when it is back, the agent of the compute node has the lock
// reset that its client could not release, within some milliseconds.
func TestUnreleasedLockIsResetAfterARestart(t *testing.T) {
	for _, policy := range []string{"declock", "paper-tf", "cql"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			for _, releaseAt := range []fabric.Time{6, 12} { // while the memory node is away, and after
				t.Run(fmt.Sprintf("%s/%v/%d", policy, mode, releaseAt), func(t *testing.T) {
					r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, unsynced, silent)
					r.client(0, "holder", func(k *hier.Locker) {
						var h lock.Hold
						acquire(t, k, &h, r.lock(0), mode)
						at(k, releaseAt*fabric.Millisecond)
						if err := k.Release(&h, nil); err == nil {
							t.Error("a lock of before the restart is released without an error")
						}
					})
					if mode == lock.Shared { // a reader of the other node comes and goes: the head passes the first one's index
						r.client(1, "passer", func(k *hier.Locker) {
							var h lock.Hold
							at(k, fabric.Millisecond)
							acquire(t, k, &h, r.lock(0), mode)
							must(t, k.Release(&h, nil))
						})
					}
					r.c.At(5*fabric.Millisecond, func() { r.c.KillMN(r.mn) })
					r.restartAt(8*fabric.Millisecond, true)
					if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
						t.Fatal(err)
					}
					r.wantFree(0)
				})
			}
		}
	}
}

// The fabric refuses a release because its client was interrupted while the memory node did not answer, or because the machine lacks something:
// the ticket is still counted, and the agent has the lock reset. No client waits for the lock; those who only try it would find it taken for ever.
func TestInterruptedReleaseIsReset(t *testing.T) {
	for _, policy := range []string{"declock", "paper-tf", "cql"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			for _, why := range []error{fabric.ErrInterrupted, fabric.ErrResources} {
				t.Run(fmt.Sprintf("%s/%v/%v", policy, mode, why), func(t *testing.T) {
					r := newRig(t, 1, 1, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, unsynced)
					r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
						hook := &hookPort{}
						k := r.hooked(0, p, hook)
						var h lock.Hold
						acquire(t, k, &h, r.lock(0), mode)
						hook.do = func(_ fabric.Port, ops []fabric.Op) error {
							return &fabric.ChainError{Op: ops[0], Err: fmt.Errorf("%w: mn0 does not answer", why)}
						}
						if err := k.Release(&h, nil); !errors.Is(err, why) {
							t.Errorf("a release that was refused: %v", err)
						}
					})
					if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
						t.Fatal(err)
					}
					r.wantFree(0)
				})
			}
		}
	}
}

// The outcome of an acquisition is unknown, and the header counts it: the agent has the lock reset, though no client acquires it again.
func TestUnknownAcquisitionIsReset(t *testing.T) {
	for _, policy := range []string{"declock", "paper-tf", "cql"} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			t.Run(fmt.Sprintf("%s/%v", policy, mode), func(t *testing.T) {
				r := newRig(t, 1, 1, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, unsynced)
				r.c.Go(r.nodes[0], "client", func(p fabric.Port) {
					k := r.hooked(0, p, &hookPort{do: func(p fabric.Port, ops []fabric.Op) error {
						return cmp.Or(p.Do(ops), error(&fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}))
					}})
					var h lock.Hold
					if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode}); !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("an acquisition of unknown outcome: %v", err)
					}
				})
				if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
					t.Fatal(err)
				}
				r.wantFree(0)
			})
		}
	}
}

// The outcome of an acquisition is unknown, and its operation takes effect late: just before the next chain of the node that the memory
// node executes. What the client asks its agent for at once leads to no reset: the memory node crashes when that has begun, and comes back with its memory,
// or the client is closed before it can ask. The agent has the lock reset all the same, though no client acquires it.
func TestLateAcquisitionIsReset(t *testing.T) {
	for _, closed := range []bool{false, true} {
		for _, mode := range []lock.Mode{lock.Shared, lock.Exclusive} {
			t.Run(fmt.Sprintf("closed %v/%v", closed, mode), func(t *testing.T) {
				var r *rig
				var late []fabric.Op
				begun := false
				r = newRig(t, 1, 1, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, silent, wrapped(func(p fabric.Port) fabric.Port {
					if !p.ID().IsAgent() {
						return p
					}
					return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
						if late != nil {
							must(t, p.Do(late))
							late = nil
						}
						err := p.Do(ops)
						if ops[0].Addr == r.lock(0) && ops[0].Kind == fabric.OpCAS && !begun {
							if begun = true; closed {
								return err
							}
							r.c.KillMN(r.mn)
							r.restartAt(p.Now()+3*fabric.Millisecond, true)
						}
						return err
					}}
				}))
				r.c.Go(r.nodes[0], "client", func(p fabric.Port) {
					hook := &hookPort{}
					k := r.hooked(0, p, hook)
					hook.do = func(_ fabric.Port, ops []fabric.Op) error {
						late = ops[:1]
						if closed {
							hook.send = func(fabric.Port, fabric.ClientID, *fabric.Message) error { return fabric.ErrClosed }
						}
						return &fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}
					}
					var h lock.Hold
					if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode}); !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("an acquisition of unknown outcome: %v", err)
					}
				})
				if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
					t.Fatal(err)
				}
				if !begun || late != nil {
					t.Errorf("a reset has begun: %v; the operation has had its effect: %v", begun, late == nil)
				}
				r.wantFree(0)
			})
		}
	}
}

// The reset of a lock that could not be released fails, too, where it begins or where it ends: it is asked for until it is done.
func TestResetOfAnUnreleasedLockIsAskedForAgain(t *testing.T) {
	for fails := range 6 { // the agent's chain on the lock that fails
		for _, why := range []error{fabric.ErrNodeDown, fabric.ErrUnknownOutcome} {
			t.Run(fmt.Sprintf("%d/%v", fails, why), func(t *testing.T) {
				var r *rig
				n := 0
				r = newRig(t, 1, 1, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, unsynced, silent, wrapped(func(p fabric.Port) fabric.Port {
					if !p.ID().IsAgent() {
						return p
					}
					return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
						if ops[0].Addr.Offset() < locksAt {
							return p.Do(ops)
						}
						if n++; n-1 == fails {
							return &fabric.ChainError{Op: ops[0], Err: why}
						}
						return p.Do(ops)
					}}
				}))
				r.c.Go(r.nodes[0], "holder", func(p fabric.Port) {
					hook := &hookPort{}
					k := r.hooked(0, p, hook)
					var h lock.Hold
					acquire(t, k, &h, r.lock(0), lock.Exclusive)
					hook.do = func(_ fabric.Port, ops []fabric.Op) error {
						return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
					}
					if err := k.Release(&h, nil); !errors.Is(err, fabric.ErrNodeDown) {
						t.Errorf("a release that was refused: %v", err)
					}
				})
				if err := r.c.RunUntil(60 * fabric.Millisecond); err != nil {
					t.Fatal(err)
				}
				r.wantFree(0)
			})
		}
	}
}

// A memory node restarts with its memory while a reset waits for the answer of a node that is slow. The reset is void, and its leader
// begins it again: a client that only tries the lock would find it taken for ever.
func TestVoidResetIsBegunAgain(t *testing.T) {
	const kindResetAck = fabric.MsgCQL + 3
	slow := false
	r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, silent, wrapped(func(p fabric.Port) fabric.Port {
		return &hookPort{Port: p, send: func(p fabric.Port, to fabric.ClientID, m *fabric.Message) error {
			if m.Kind == kindResetAck && p.ID().CN() == 2 && !slow {
				slow = true
				_ = p.Pause(12 * fabric.Millisecond)
			}
			return p.Send(to, m)
		}}
	}))
	r.c.Go(r.nodes[0], "client", func(p fabric.Port) { r.askReset(0, p, 0, cql.UnknownOutcome) })
	r.c.At(2*fabric.Millisecond, func() { r.c.KillMN(r.mn) })
	r.restartAt(5*fabric.Millisecond, true)
	if err := r.c.RunUntil(30 * fabric.Millisecond); err != nil {
		t.Fatal(err)
	}
	if !slow {
		t.Error("the other node has not been asked")
	}
	r.wantFree(0)
}
