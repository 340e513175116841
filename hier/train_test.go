package hier_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// trains counts the FAAs that take several tickets off a header, and the most tickets that a header has counted.
type trains struct {
	layout    cql.Layout
	formed    int
	most, all uint64
}

func (o *trains) Observe(e *sim.Event) {
	if e.Step != sim.StepEffect || e.Op.Kind != fabric.OpFAA || e.Op.Addr.Offset() < locksAt {
		return
	}
	y := o.layout
	if n := y.Head(cql.Header(e.New)) - y.Head(cql.Header(e.Old)); n > 1 {
		o.formed++
		o.all = max(o.all, n)
	}
	o.most = max(o.most, y.Size(cql.Header(e.New)))
}

// However few entries there are more than compute nodes, no queue gets full, and so no lock is reset.
func TestTrainsFillNoQueue(t *testing.T) {
	y := cql.Layout{CapacityBits: 3, VersionBits: 27}
	for nodes := 4; nodes <= 8; nodes++ {
		for _, policy := range []string{"declock+no-train+train", "declock"} {
			t.Run(fmt.Sprintf("%s, %d nodes", policy, nodes), func(t *testing.T) {
				o := &trains{layout: y}
				r := newRig(t, 1, nodes, policy, y, unsynced, simulated(sim.Config{Observer: o}))
				for i := range nodes {
					r.client(i, name(i, 0), func(k *hier.Locker) {
						for round := range 60 {
							var h lock.Hold
							mode := lock.Exclusive
							if (round+i)%3 == 0 {
								mode = lock.Shared
							}
							acquire(t, k, &h, r.lock(0), mode)
							sleep(k, fabric.Microsecond)
							must(t, k.Release(&h, nil))
						}
					})
				}
				r.run()
				r.wantFree(0)
				room := 1<<y.CapacityBits - nodes + 1
				if n := r.led(); n > 0 || o.most > 1<<y.CapacityBits || o.all > uint64(room) {
					t.Errorf("%d resets, up to %d tickets, trains of up to %d, room for %d", n, o.most, o.all, room)
				}
				if formed := o.formed > 0; formed != (room > 1) {
					t.Errorf("%d trains", o.formed)
				}
			})
		}
	}
}

// Nodes that form trains, with readers first or without, and nodes that form none share a lock: each takes part in the others' trains.
func TestTrainsOfSomeNodes(t *testing.T) {
	y := cql.Layout{CapacityBits: 4, VersionBits: 27}
	for seed := range uint64(10) {
		o := &trains{layout: y}
		r := newRig(t, seed, 0, "declock", y, unsynced, simulated(sim.Config{Observer: o}))
		for i := range 6 {
			p, _ := hier.ParsePolicy([]string{"declock+no-train", "declock+no-train+train", "declock"}[i%3])
			r.addNode(p)
		}
		var w witness
		for i := range 6 {
			r.client(i, name(i, 0), func(k *hier.Locker) {
				var h lock.Hold
				for range 60 {
					acquire(t, k, &h, r.lock(0), lock.Mode(k.Port().Rand()%2))
					w.enter(t, &h)
					sleep(k, fabric.Microsecond)
					w.exit(&h)
					must(t, k.Release(&h, nil))
				}
			})
		}
		r.run()
		r.wantFree(0)
		if n := r.led(); n > 0 || o.formed == 0 || w.grants != 6*60 {
			t.Errorf("seed %d: %d resets, %d trains, %d grants", seed, n, o.formed, w.grants)
		}
	}
}

// Locks in memory that programs without trains may use are passed on to one node at a time.
func TestPlainMemory(t *testing.T) {
	for _, plain := range []bool{false, true} {
		o := &trains{layout: roomy}
		r := newRig(t, 1, 4, "declock", roomy, unsynced, simulated(sim.Config{Observer: o}), func(r *rig) {
			r.cfg.CQL.Plain = func(l fabric.Addr) bool { return plain && l == r.lock(0) }
		})
		for i := range 4 {
			r.client(i, name(i, 0), func(k *hier.Locker) {
				for range 20 {
					var h lock.Hold
					acquire(t, k, &h, r.lock(0), lock.Exclusive)
					sleep(k, fabric.Microsecond)
					must(t, k.Release(&h, nil))
				}
			})
		}
		r.run()
		if formed := o.formed > 0; formed == plain {
			t.Errorf("plain %v: %d trains", plain, o.formed)
		}
	}
}
