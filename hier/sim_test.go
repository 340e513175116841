package hier_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

func testContention(t *testing.T, seed uint64, policy string, cns, clients, locks, rounds, readPct int, y cql.Layout) *rig {
	r := newRig(t, seed, cns, policy, y)
	ws := make([]witness, locks)
	for cn := range cns {
		for i := range clients {
			r.client(cn, fmt.Sprintf("%d.%d", cn, i), func(k *hier.Locker) {
				p := k.Port()
				buf := p.Alloc(64)
				var h lock.Hold
				for range rounds {
					l := int(p.Rand() % uint64(locks))
					m := lock.Exclusive
					if int(p.Rand()%100) < readPct {
						m = lock.Shared
					}
					req := lock.Request{Lock: r.lock(l), Mode: m, Reads: []fabric.Op{fabric.Read(r.data(l), buf)}}
					if err := k.Acquire(&h, &req); err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					ws[l].enter(t, &h)
					for b := 1; b < 64; b++ {
						if buf[b] != buf[0] {
							t.Errorf("torn data: % x", buf)
						}
					}
					var before []fabric.Op
					if m == lock.Exclusive {
						buf[0]++
						for b := range buf {
							buf[b] = buf[0]
						}
						before = []fabric.Op{fabric.Write(r.data(l), buf)}
					}
					if p.Rand()%4 == 0 {
						p.Pause(p.Now() + fabric.Time(p.Rand()%3000))
					}
					ws[l].exit(&h)
					if err := k.Release(&h, before); err != nil {
						t.Errorf("release: %v", err)
						return
					}
				}
			})
		}
	}
	r.run()
	return r
}

func TestContention(t *testing.T) {
	for _, policy := range hier.PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			y := cql.Layout{CapacityBits: 3, VersionBits: cql.MaxVersionBits}
			if policy == "cql" {
				y.CapacityBits = 6
			}
			for seed := range uint64(6) {
				for _, readPct := range []int{0, 50, 90} {
					r := testContention(t, seed, policy, 4, 8, 1+int(seed)%3, 60, readPct, y)
					for _, a := range r.agents {
						if s := a.Resets(); s.Led != 0 {
							t.Errorf("%d resets", s.Led)
						}
					}
				}
			}
		})
	}
}

// The lock is reset again and again because its versions run out, and no client notices.
func TestVersionOverflow(t *testing.T) {
	for _, policy := range []string{"cql", "declock-tf", "declock-pf", "paper-tf"} {
		t.Run(policy, func(t *testing.T) {
			for seed := range uint64(10) {
				y := cql.Layout{CapacityBits: 2, VersionBits: 2}
				clients := 4
				if policy == "cql" {
					clients = 1
				}
				r := testContention(t, seed, policy, 4, clients, 1, 80, int(seed%3)*40, y)
				led := uint64(0)
				for _, a := range r.agents {
					led += a.Resets().Led
				}
				if led == 0 {
					t.Errorf("seed %d: no reset", seed)
				}
			}
		})
	}
}

// More participants than queue entries: the overflow is mended by resets.
func TestQueueOverflow(t *testing.T) {
	for seed := range uint64(10) {
		r := testContention(t, seed, "cql", 3, 4, 1, 60, int(seed%3)*40, cql.Layout{CapacityBits: 3, VersionBits: 16})
		led := uint64(0)
		for _, a := range r.agents {
			led += a.Resets().Led
		}
		if led == 0 {
			t.Errorf("seed %d: no reset", seed)
		}
	}
}

// Waiters give up at every moment; they never hold, and no other is stuck.
func TestDeadlines(t *testing.T) {
	for _, policy := range hier.PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			for seed := range uint64(8) {
				r := newRig(t, seed, 3, policy, cql.Layout{CapacityBits: 4, VersionBits: 3})
				var w witness
				given := 0
				for cn := range 3 {
					for i := range 4 {
						r.client(cn, fmt.Sprintf("%d.%d", cn, i), func(k *hier.Locker) {
							p := k.Port()
							var h lock.Hold
							for range 60 {
								m := lock.Mode(p.Rand() % 2)
								req := lock.Request{Lock: r.lock(0), Mode: m, Deadline: p.Now() + fabric.Time(p.Rand()%40000)}
								switch p.Rand() % 8 {
								case 0:
									req.Try = true
								case 1:
									req.Deadline = 0
								}
								err := k.Acquire(&h, &req)
								if err != nil {
									given++
									continue
								}
								w.enter(t, &h)
								p.Pause(p.Now() + fabric.Time(p.Rand()%5000))
								w.exit(&h)
								if err := k.Release(&h, nil); err != nil {
									t.Errorf("release: %v", err)
								}
							}
						})
					}
				}
				// Orphans may outlive the clients: a last one waits for them.
				r.client(0, "last", func(k *hier.Locker) {
					k.Port().Pause(20 * fabric.Millisecond)
					var h lock.Hold
					if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}); err != nil {
						t.Error(err)
					}
					k.Release(&h, nil)
				})
				r.run()
				if given == 0 {
					t.Error("nobody gave up")
				}
			}
		})
	}
}
