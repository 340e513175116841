package hier_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// restartAt restarts the rig's memory node at a time, with the memory that it had or without.
func (r *rig) restartAt(t fabric.Time, keep bool) {
	r.c.At(t, func() {
		if keep {
			r.c.RestartServer(r.mn)
		} else {
			r.c.RestartMN(r.mn)
		}
	})
}

// TestRestartedMemoryNode: holders learn that their lock is lost, nothing that they
// do reaches the new incarnation, and all who wait, here and elsewhere, get the lock by themselves.
func TestRestartedMemoryNode(t *testing.T) {
	for _, keep := range []bool{true, false} {
		for _, policy := range []string{"declock", "paper-tf", "cql"} {
			t.Run(policy+map[bool]string{true: "/kept", false: "/empty"}[keep], func(t *testing.T) {
				r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 4, VersionBits: 16})
				var losses []lock.Loss
				r.tables[0].OnLoss = func(l lock.Loss) { losses = append(losses, l) }
				data := r.data(0)
				var token lock.Token
				granted := 0
				r.client(0, "holder", func(k *hier.Locker) {
					h := lock.Hold{}
					must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}))
					token = h.Token
					at(k, 30*fabric.Millisecond)
					op := []fabric.Op{fabric.Store(data, 13)}
					if err := k.Port().Do(op); !errors.Is(err, fabric.ErrStaleEpoch) {
						t.Errorf("a WRITE of the holder after the restart: %v", err)
					}
					var other lock.Hold
					if err := k.Acquire(&other, &lock.Request{Lock: r.lock(1), Mode: lock.Shared}); !errors.Is(err, fabric.ErrStaleEpoch) {
						t.Errorf("another lock while one is lost: %v", err)
					}
					if err := k.Release(&h, []fabric.Op{fabric.Store(data, 14)}); !errors.Is(err, lock.ErrLost) {
						t.Errorf("Release: %v", err)
					}
					must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}))
					if keep && h.Token <= token {
						t.Errorf("token %#x after %#x", h.Token, token)
					}
					must(t, k.Release(&h, nil))
				})
				for i := range 6 {
					r.client(i%2, name(i%2, i), func(k *hier.Locker) {
						sleep(k, fabric.Millisecond)
						var h lock.Hold
						mode := lock.Mode(i / 2 % 2)
						must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode}))
						if k.Port().Now() < 20*fabric.Millisecond {
							t.Errorf("granted before the restart, at %d", k.Port().Now())
						}
						granted++
						must(t, k.Release(&h, nil))
					})
				}
				r.restartAt(20*fabric.Millisecond, keep)
				r.run()
				if granted != 6 {
					t.Errorf("%d of 6 waiters were granted", granted)
				}
				if r.c.PeekWord(data) != 0 {
					t.Errorf("a late WRITE reached the memory: %d", r.c.PeekWord(data))
				}
				if len(losses) == 0 || losses[0].Token != token || losses[0].Lock != r.lock(0) || !errors.Is(losses[0].Err, lock.ErrLost) {
					t.Errorf("losses told: %+v; the token was %#x", losses, token)
				}
				r.wantFree(0)
			})
		}
	}
}

// TestOverdueHold: a lock held for longer than its lease is reported, once, and stays held.
func TestOverdueHold(t *testing.T) {
	r := newRig(t, 1, 1, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, func(r *rig) { r.cfg.LeaseNs = 5 * fabric.Millisecond })
	var reports []error
	r.report = func(err error) { reports = append(reports, err) }
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}))
		sleep(k, 4*fabric.Millisecond)
		must(t, k.Release(&h, nil))
		must(t, k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}))
		if len(reports) != 0 {
			t.Errorf("reported in time: %v", reports)
		}
		sleep(k, 20*fabric.Millisecond)
		must(t, k.Release(&h, nil))
	})
	r.run()
	if len(reports) != 1 || !errors.Is(reports[0], lock.ErrOverdue) {
		t.Errorf("reports: %v", reports)
	}
}

// TestReadersInTurnAreNotOverdue: readers that come and go have one token, and none holds for long.
func TestReadersInTurnAreNotOverdue(t *testing.T) {
	r := newRig(t, 1, 1, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, func(r *rig) { r.cfg.LeaseNs = 5 * fabric.Millisecond })
	r.report = func(err error) { t.Errorf("reported: %v", err) }
	for i := range 2 {
		r.client(0, name(0, i), func(k *hier.Locker) {
			sleep(k, fabric.Time(i)*500*us)
			for range 50 {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Shared)
				sleep(k, ms)
				must(t, k.Release(&h, nil))
			}
		})
	}
	r.run()
}

// TestFirstToNotice: the holder whose own release is what finds out that the memory node has restarted is
// told like all others.
func TestFirstToNotice(t *testing.T) {
	for _, write := range []bool{false, true} {
		r := newRig(t, 1, 1, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, unsynced)
		var losses []lock.Loss
		r.tables[0].OnLoss = func(l lock.Loss) { losses = append(losses, l) }
		r.client(0, "holder", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			at(k, 2*ms)
			var before []fabric.Op
			if write {
				before = []fabric.Op{fabric.Store(r.data(0), 1)}
			}
			token := h.Token
			err := k.Release(&h, before)
			if !errors.Is(err, lock.ErrLost) || !strings.Contains(err.Error(), fmt.Sprintf("token %v", token)) {
				t.Errorf("Release: %v", err)
			}
			if len(losses) != 1 || losses[0].Token != token || !errors.Is(losses[0].Err, lock.ErrLost) {
				t.Errorf("losses told: %+v", losses)
			}
		})
		r.restartAt(ms, true)
		r.run()
	}
}

// TestFencedHolder: a node that is given up while it runs learns that its locks are lost: from its fabric, if that calls
// Table.Fenced, from its agent, which looks now and then, or from its own release, whichever is first; once for each hold.
func TestFencedHolder(t *testing.T) {
	for _, told := range []string{"fabric", "agent", "release"} {
		opts := []option{silent}
		if told != "agent" {
			opts = append(opts, unsynced)
		}
		r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, opts...)
		if told != "fabric" {
			r.nodes[0].OnFenced = nil
		}
		var losses []lock.Loss
		r.tables[0].OnLoss = func(l lock.Loss) { losses = append(losses, l) }
		var token lock.Token
		r.client(0, "holder", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			token = h.Token
			at(k, 20*ms)
			if n := len(losses); n != 1 && told != "release" || n != 0 && told == "release" {
				t.Errorf("told by the %s: %d losses before the release", told, n)
			}
			err := k.Release(&h, []fabric.Op{fabric.Store(r.data(0), 13)})
			if !errors.Is(err, lock.ErrLost) || !errors.Is(err, fabric.ErrFenced) || !strings.Contains(err.Error(), fmt.Sprintf("token %v", token)) {
				t.Errorf("Release: %v", err)
			}
		})
		r.c.At(ms, func() { r.c.Fence(r.nodes[0]) })
		r.client(1, "next", func(k *hier.Locker) {
			at(k, 2*ms)
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if h.Token <= token {
				t.Errorf("token %v after %v", h.Token, token)
			}
			must(t, k.Release(&h, nil))
		})
		if err := r.c.Run(); err != nil {
			t.Fatal(err)
		}
		if len(losses) != 1 || losses[0].Token != token || !errors.Is(losses[0].Err, lock.ErrLost) {
			t.Errorf("told by the %s: losses: %+v; the token was %v", told, losses, token)
		}
		if r.c.PeekWord(r.data(0)) != 0 {
			t.Error("a WRITE of the fenced node reached the memory")
		}
	}
}

// TestFencedNodeHandsNothingOver: once a node knows that it is fenced, a lock that it had is not passed on to others of the node: neither to
// clients that wait nor to readers that join. No operation on the memory node would tell it.
func TestFencedNodeHandsNothingOver(t *testing.T) {
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
		for _, policy := range []string{"declock", "local-prefer"} {
			r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, silent, unsynced)
			r.client(0, "holder", func(k *hier.Locker) {
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), mode)
				at(k, 20*ms)
				if err := k.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
					t.Errorf("%s, %v: Release of a lock that another node holds: %v", policy, mode, err)
				}
			})
			r.client(0, "waiter", func(k *hier.Locker) {
				at(k, ms/2)
				if mode == lock.Shared { // it joins
					at(k, 10*ms)
				}
				var h lock.Hold
				if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: mode}); !errors.Is(err, fabric.ErrFenced) {
					t.Errorf("%s, %v: Acquire of a lock that another node holds: %v", policy, mode, err)
				}
			})
			r.c.At(ms, func() { r.c.Fence(r.nodes[0]) })
			r.client(1, "next", func(k *hier.Locker) {
				at(k, 2*ms)
				var h lock.Hold
				acquire(t, k, &h, r.lock(0), lock.Exclusive)
				at(k, 30*ms)
				must(t, k.Release(&h, nil))
			})
			if err := r.c.Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
