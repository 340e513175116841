package qplock_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/qplock"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

// join returns how a node gets locks of a variant.
func join(cfg qplock.Config) locktest.Join[*qplock.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *qplock.Locker, locktest.Agent) {
		return func(p fabric.Port) *qplock.Locker { return qplock.New(p, cfg) }, qplock.NewAgent(n, cfg)
	}
}

// odd has clients of every other node use the NIC on shared memory, where all are near.
func odd(id fabric.ClientID) bool { return id.CN()%2 != 0 }

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]qplock.Config{"qplock": {Loopback: odd}, "qplock, plain": {Plain: true, Loopback: odd}, "alock": {ALock: true, Loopback: odd}} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, ExclusiveOnly: true, Start: join(cfg).Start, StaleHolds: true, Corrupt: []byte{7: 0xff}}
		near := cfg
		near.Loopback, near.Local, near.Remote = nil, 2, 3
		n := m
		n.Start = join(near).Start
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("near, seed %d", seed), func(t *testing.T) { locktest.Run(t, locktest.SimNear(seed), n) })
			}
			locktest.All(t, 2, m)
		})
	}
}

// An asymmetric is a cluster with clients near the lock and far from it, each of a compute node of its own.
type asymmetric struct {
	*sim.Cluster
	t    *testing.T
	lock fabric.Addr
	cfg  qplock.Config
}

func play(t *testing.T, cfg qplock.Config, body func(s *asymmetric)) *asymmetric {
	t.Helper()
	s := &asymmetric{sim.New(sim.Config{SplitAtomics: true}), t, 0, cfg}
	t.Cleanup(func() { s.Close() })
	s.lock = fabric.At(s.AddMN(1<<20), 4096)
	body(s)
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	for i := range cfg.Layout().Size / 8 {
		if w := s.PeekWord(s.lock.Add(8 * i)); i < 2 && w != 0 {
			t.Errorf("word %d is %#x at the end", i, w)
		}
	}
	return s
}

// client adds a client.
func (s *asymmetric) client(near bool, body func(p fabric.Port, l *qplock.Locker)) {
	n := s.AddCN()
	if near {
		s.Place(n, 0)
	}
	a := qplock.NewAgent(n, s.cfg)
	s.GoAgent(n, func(fabric.Port) { _ = a.Run(func(err error) { s.t.Error(err) }) })
	s.Go(n, fmt.Sprintf("near %t", near), func(p fabric.Port) { body(p, qplock.New(p, s.cfg)) })
}

// hold acquires the lock at a time, holds it for some, and releases it.
func (s *asymmetric) hold(p fabric.Port, l *qplock.Locker, at, d fabric.Time) (h lock.Hold) {
	_ = p.Pause(at)
	if err := l.Acquire(&h, &lock.Request{Lock: s.lock, Mode: lock.Exclusive}); err != nil {
		s.t.Error(err)
		return h
	}
	_ = p.Pause(p.Now() + d)
	held := h
	if err := l.Release(&h, nil); err != nil {
		s.t.Error(err)
	}
	return held
}

const us = fabric.Microsecond

var variants = map[string]qplock.Config{"qplock": {}, "alock": {ALock: true}}

// Local clients never use the NIC, whatever the others do.
func TestLocalClientsUseNoNIC(t *testing.T) {
	for name, cfg := range variants {
		t.Run(name, func(t *testing.T) {
			play(t, cfg, func(s *asymmetric) {
				for i := range fabric.Time(3) {
					s.client(true, func(p fabric.Port, l *qplock.Locker) {
						for k := range fabric.Time(20) {
							s.hold(p, l, (i+10*k)*us, us)
						}
						if st := p.Stats(); st.Chains != 0 || st.Local == 0 {
							t.Errorf("near: %+v", *st)
						}
					})
					s.client(false, func(p fabric.Port, l *qplock.Locker) {
						for k := range fabric.Time(20) {
							s.hold(p, l, (i+10*k)*us, us)
						}
						if st := p.Stats(); st.Local != 0 {
							t.Errorf("far: %+v", *st)
						}
					})
				}
			})
		})
	}
}

// Of the remote clients, those in the queue do not touch the memory node while they wait: only the leader does, which waits for the other cohort.
func TestQueuedRemoteClientsDoNotSpin(t *testing.T) {
	for name, cfg := range variants {
		play(t, cfg, func(s *asymmetric) {
			s.client(true, func(p fabric.Port, l *qplock.Locker) { s.hold(p, l, 0, 200*us) })
			for i := range 3 {
				s.client(false, func(p fabric.Port, l *qplock.Locker) {
					_ = p.Pause(fabric.Time(i) * 10 * us)
					var h lock.Hold
					if err := l.Acquire(&h, &lock.Request{Lock: s.lock, Mode: lock.Exclusive}); err != nil {
						t.Error(err)
					}
					chains := p.Stats().Chains
					if i == 0 && chains < 20 || i > 0 && chains > 2 { // an attempt from null, and one from the tail that it found
						t.Errorf("%s: remote client %d: %d chains until it was granted", name, i, chains)
					}
					_ = l.Release(&h, nil)
				})
			}
		})
	}
}

// What a free lock costs a lone client, by its kind. ALock's remote clients swap the victim in by a CAS, and read the whole lock by one READ.
func TestLoneCosts(t *testing.T) {
	for _, x := range []struct {
		cfg      qplock.Config
		ops, cas uint64 // by NIC
	}{{qplock.Config{Plain: true}, 5, 2}, {qplock.Config{Plain: true, ALock: true}, 4, 3}} {
		for _, near := range []bool{true, false} {
			play(t, x.cfg, func(s *asymmetric) {
				s.client(near, func(p fabric.Port, l *qplock.Locker) {
					began := p.Now()
					s.hold(p, l, 0, 0)
					took, st := p.Now()-began, p.Stats()
					if near && (st.Local != 5 || took != 5*sim.CX4().CPUAccess) || !near && (st.Total() != x.ops || st.Ops[fabric.OpCAS] != x.cas) {
						t.Errorf("ALock %t, near %t: %d ns, %+v", x.cfg.ALock, near, took, *st)
					}
				})
			})
		}
	}
}

// A leader that gives up at the gate, with a waiter behind it: the waiter becomes the leader, and tokens go on.
func TestLeaderGivesUp(t *testing.T) {
	for name, cfg := range variants {
		for _, near := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, near %t", name, near), func(t *testing.T) {
				var token lock.Token
				play(t, cfg, func(s *asymmetric) {
					s.client(!near, func(p fabric.Port, l *qplock.Locker) { s.hold(p, l, 0, 100*us) })
					s.client(near, func(p fabric.Port, l *qplock.Locker) {
						_ = p.Pause(10 * us)
						var h lock.Hold
						err := l.Acquire(&h, &lock.Request{Lock: s.lock, Mode: lock.Exclusive, Deadline: 50 * us})
						if !errors.Is(err, lock.ErrTimeout) {
							t.Errorf("leader: %v", err)
						}
						_ = p.Pause(300 * us)
					})
					s.client(near, func(p fabric.Port, l *qplock.Locker) { token = s.hold(p, l, 20*us, us).Token })
				})
				if token != 2 {
					t.Errorf("token %d, want 2", token)
				}
			})
		}
	}
}

// While one of a cohort waits, the other is granted at most as often as its budget says; and as often, if it has as many waiters.
func TestBudgetBoundsOvertaking(t *testing.T) {
	for k := range 4 {
		near := k&1 != 0
		cfg := qplock.Config{Local: 3, Remote: 3, ALock: k > 1}
		var order []string
		play(t, cfg, func(s *asymmetric) {
			for i := range 12 { // of the cohort that comes first
				s.client(near, func(p fabric.Port, l *qplock.Locker) {
					_ = p.Pause(fabric.Time(i) * us)
					var h lock.Hold
					if err := l.Acquire(&h, &lock.Request{Lock: s.lock, Mode: lock.Exclusive}); err != nil {
						t.Error(err)
					}
					order = append(order, "a")
					_ = p.Pause(p.Now() + 30*us)
					_ = l.Release(&h, nil)
				})
			}
			for range 2 {
				s.client(!near, func(p fabric.Port, l *qplock.Locker) {
					_ = p.Pause(20 * us)
					var h lock.Hold
					if err := l.Acquire(&h, &lock.Request{Lock: s.lock, Mode: lock.Exclusive}); err != nil {
						t.Error(err)
					}
					order = append(order, "b")
					_ = l.Release(&h, nil)
				})
			}
		})
		if got := fmt.Sprint(order); got != "[a a a b b a a a a a a a a a]" {
			t.Errorf("ALock %t, near %t: granted in the order %v", cfg.ALock, near, got)
		}
	}
}

// Clients of one cohort are granted in the order in which they queue, and each goes on in turn, whatever the other cohort does.
func TestFairWithinCohorts(t *testing.T) {
	for name, cfg := range variants {
		var order [2][]int
		play(t, cfg, func(s *asymmetric) {
			for i := range 16 {
				near := i % 2
				s.client(near == 1, func(p fabric.Port, l *qplock.Locker) {
					_ = p.Pause(fabric.Time(i) * 5 * us)
					var h lock.Hold
					if err := l.Acquire(&h, &lock.Request{Lock: s.lock, Mode: lock.Exclusive}); err != nil {
						t.Error(err)
					}
					order[near] = append(order[near], i/2)
					_ = p.Pause(p.Now() + 30*us)
					_ = l.Release(&h, nil)
				})
			}
		})
		if got := fmt.Sprint(order); got != "[[0 1 2 3 4 5 6 7] [0 1 2 3 4 5 6 7]]" {
			t.Errorf("%s: granted in the order %v", name, got)
		}
	}
}
