package hier_test

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// Recovered is true for the first exclusive holder after a crash, and for none behind it. Until then it is for all shared ones.
func TestRecoveredIsReportedOnce(t *testing.T) {
	for _, policy := range []string{"cql", "declock"} {
		r := newRig(t, 1, 2, policy, cql.Layout{CapacityBits: 2, VersionBits: 16})
		r.client(0, "crashes", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			if k.Recovered(&h) {
				t.Errorf("%s: recovered before any crash", policy)
			}
			sleep(k, fabric.Second)
		})
		r.c.At(fabric.Millisecond, func() { r.c.Kill(r.nodes[0]) })
		r.client(1, "next", func(k *hier.Locker) {
			at(k, 50*fabric.Millisecond)
			for i, x := range []struct {
				lock int
				mode lock.Mode
				want bool
			}{{0, lock.Shared, true}, {0, lock.Shared, true}, {0, lock.Exclusive, true}, {0, lock.Exclusive, false}, {0, lock.Shared, false}, {1, lock.Exclusive, false}} {
				var h lock.Hold
				acquire(t, k, &h, r.lock(x.lock), x.mode)
				if got := k.Recovered(&h); got != x.want {
					t.Errorf("%s: grant %d: %v", policy, i, got)
				}
				must(t, k.Release(&h, nil))
			}
		})
		if err := r.c.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// Nodes crash at any moment. Whatever held the lock when its node crashed, Recovered is true for the first grant after that, and for none as long as no node has crashed.
func TestRecoveredIsReported(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	found, needless := 0, 0
	for _, policy := range []string{"cql", "declock", "declock-tf", "local-prefer"} {
		for seed := range seeds {
			a, b := recoveredRun(t, seed, policy)
			found, needless = found+a, needless+b
			if t.Failed() {
				t.Fatalf("%s, seed %d", policy, seed)
			}
		}
	}
	t.Logf("%d recovered grants, %d without need", found, needless)
	if found == needless {
		t.Error("no node has crashed with the lock")
	}
}

// recoveredRun returns for how many grants Recovered was true, and for how many of them though nothing was half done.
func recoveredRun(t *testing.T, seed uint64, policy string) (found, needless int) {
	r := newRig(t, seed, 4, policy, cql.Layout{CapacityBits: 3, VersionBits: 8}, waits(fabric.Millisecond, fabric.Second), silent)
	half, crashed := false, false // what the lock protects is half done; a node has crashed
	for cn := range 4 {
		for range 2 {
			r.client(cn, "client", func(k *hier.Locker) {
				for range 30 {
					var h lock.Hold
					mode := lock.Exclusive
					if k.Port().Rand()%4 == 0 {
						mode = lock.Shared
					}
					acquire(t, k, &h, r.lock(0), mode)
					asked := k.Recovered(&h)
					switch {
					case asked && !crashed:
						t.Error("recovered before any crash")
					case asked && !half:
						found, needless = found+1, needless+1
					case asked:
						found++
						half = false // it repairs, or has another do that
					case half:
						t.Errorf("not recovered: %v, token %d", mode, h.Token)
					}
					if mode == lock.Exclusive {
						half = true
						sleep(k, fabric.Time(k.Port().Rand()%uint64(20*us)))
						half = false
					}
					must(t, k.Release(&h, nil))
					sleep(k, fabric.Time(k.Port().Rand()%uint64(40*us)))
				}
			})
		}
	}
	for i := range 2 {
		r.c.At(fabric.Time(100+(seed*37+uint64(i)*211)%500)*us, func() {
			crashed = true
			r.c.Kill(r.nodes[i])
		})
	}
	if err := r.c.Run(); err != nil {
		t.Fatal(err)
	}
	return found, needless
}
