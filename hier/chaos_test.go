package hier_test

import (
	"errors"
	"flag"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

var (
	chaosSeed = flag.Int64("chaos.seed", -1, "run TestChaos with this seed only")
	chaosRuns = flag.Int("chaos.runs", 25, "seeds of TestChaos")
)

// chaos is a run in which everything happens: Try, deadlines, resets, torn READs, a node
// that dies, one that is paused, faults of the fabric. Then all that ends, and
// every live waiter is granted every lock.
func chaos(t *testing.T, seed uint64) {
	rng := sim.NewRand(seed, 99)
	pick := func(n int) int { return int(rng.Uint64() % uint64(n)) }
	policies := hier.PolicyNames()
	policy := policies[pick(len(policies))]
	const cns, clients, locks, calm = 4, 3, 2, 30 * ms
	y := cql.Layout{CapacityBits: uint8(2 + pick(3)), VersionBits: uint8(2 + pick(15))}
	if policy == "cql" {
		y.CapacityBits = 4 // 12 participants: the header must be able to count them
	}
	faultEvery := 0
	if pick(2) == 0 {
		faultEvery = 30 + pick(200)
	}
	in := 0
	r := newRig(t, seed, cns, policy, y, silent, waits(300*us, 2*ms),
		simulated(sim.Config{DetectDelay: 500 * us, Late: sim.LateOps(pick(3)), Tear: sim.Tear{Prob: float64(pick(2)), Grain: 8 << pick(4)}}),
		wrapped(func(p fabric.Port) fabric.Port {
			return &hookPort{Port: p, do: func(p fabric.Port, ops []fabric.Op) error {
				if in++; faultEvery == 0 || in%faultEvery != 0 || p.Now() > calm/2 || ops[0].Addr.Offset() < locksAt {
					return p.Do(ops)
				}
				err := &fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}
				switch in / faultEvery % 3 {
				case 0:
					err.Err = fabric.ErrNodeDown
				case 1:
					_ = p.Do(ops)
				}
				return err
			}}
		}))
	defer r.c.Close()
	ws := make([]witness, locks)
	holds := make([][]lock.Hold, cns) // by node: what its clients are inside of
	victim := -1
	granted := 0
	for cn := range cns {
		for range clients {
			r.client(cn, name(cn, len(holds[cn])), func(k *hier.Locker) {
				p := k.Port()
				i := len(holds[cn])
				holds[cn] = append(holds[cn], lock.Hold{})
				var h lock.Hold
				round := func(l int, req lock.Request, last bool) bool {
					err := k.Acquire(&h, &req)
					if err != nil {
						if last || errors.Is(err, lock.ErrMisuse) {
							t.Errorf("cn%d: %v", cn+1, err)
						}
						return !errors.Is(err, fabric.ErrFenced)
					}
					ws[l].enter(t, &h)
					holds[cn][i] = h
					sleep(k, fabric.Time(p.Rand()%3000))
					holds[cn][i] = lock.Hold{}
					ws[l].exit(&h)
					if err := k.Release(&h, nil); err != nil && last {
						t.Errorf("cn%d: release: %v", cn+1, err)
					}
					return true
				}
				for p.Now() < calm/2 {
					l := int(p.Rand() % locks)
					req := lock.Request{Lock: r.lock(l), Mode: lock.Mode(p.Rand() % 2)}
					switch p.Rand() % 16 {
					case 0:
						req.Try = true
					case 1, 2, 3:
						req.Deadline = p.Now() + fabric.Time(p.Rand()%50_000)
					case 4:
						if p.Rand()%8 == 0 {
							r.askReset(cn, p.(*hookPort).Port, l, cql.Corruption)
						}
					case 5:
						sleep(k, fabric.Time(p.Rand()%200_000))
					}
					if !round(l, req, false) {
						return
					}
				}
				at(k, calm)
				for l := range locks {
					round(l, lock.Request{Lock: r.lock(l), Mode: lock.Exclusive}, true)
				}
				granted++
			})
		}
	}
	if pick(3) > 0 {
		victim = pick(cns)
		r.c.At(fabric.Time(pick(int(calm/3))), func() {
			r.c.Kill(r.nodes[victim])
			for _, h := range holds[victim] {
				for l := range ws {
					if h.Held && h.Lock == r.lock(l) {
						ws[l].exit(&h)
					}
				}
			}
		})
	}
	if pick(2) == 0 { // a pause that is no death
		n, when := r.nodes[pick(cns)], fabric.Time(pick(int(calm/3)))
		r.c.At(when, func() { r.c.Pause(n) })
		r.c.At(when+fabric.Time(pick(int(3*ms))), func() { r.c.Resume(n) })
	}
	if err := r.c.Run(); err != nil {
		t.Errorf("%v", err)
	}
	want := cns * clients
	if victim >= 0 {
		want -= clients
	}
	if granted < want {
		t.Errorf("%d of %d clients were granted everything in the end", granted, want)
	}
	if t.Failed() {
		t.Fatalf("go test ./hier -run TestChaos -chaos.seed %d   # %s, %+v, fault every %d, victim %d", seed, policy, y, faultEvery, victim)
	}
}

func TestChaos(t *testing.T) {
	if *chaosSeed >= 0 {
		chaos(t, uint64(*chaosSeed))
		return
	}
	for seed := range uint64(*chaosRuns) {
		chaos(t, seed)
	}
}
