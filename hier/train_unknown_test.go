package hier_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// roomy has room for trains of nine members of eight compute nodes.
var roomy = cql.Layout{CapacityBits: 4, VersionBits: 27}

// The holder of a train's first member writes in a chain of its own, and the connection breaks: the WRITE takes effect late, or never. Then the holder
// releases without an operation, at once or by way of another client of its node. Or it writes with its release. No later holder sees its data change
// under it.
func TestTrainAfterUnknownOutcome(t *testing.T) {
	for _, policy := range []string{"declock+no-train+train", "declock"} {
		for variant := range 4 {
			changed := 0
			for seed := range uint64(40) {
				changed += trainAfterUnknownOutcome(t, seed, policy, variant&1 != 0, variant&2 != 0)
			}
			if changed == 0 {
				t.Errorf("%s, variant %d: no WRITE took effect late", policy, variant)
			}
		}
	}
}

func trainAfterUnknownOutcome(t *testing.T, seed uint64, policy string, local, with bool) (changed int) {
	r := newRig(t, seed, 4, policy, roomy, unsynced, silent, waits(200*us, 5*ms),
		simulated(sim.Config{BreakAfter: 5 * us, BrokenLate: 500 * us}))
	read := func(k *hier.Locker, buf []byte) uint64 {
		must(t, k.Port().Do([]fabric.Op{fabric.Read(r.data(0), buf)}))
		return binary.LittleEndian.Uint64(buf)
	}
	for cn := range 4 {
		r.client(cn, name(cn, 0), func(k *hier.Locker) {
			buf := k.Port().Alloc(8)
			var h lock.Hold
			at(k, fabric.Time(cn)*5*us)
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			switch cn {
			case 0:
				at(k, 60*us)
			case 1:
				r.c.Cut(sim.OfCN(2), sim.OfMN(r.mn), r.c.Now()+20*us)
				binary.LittleEndian.PutUint64(buf, 7)
				write := []fabric.Op{fabric.Write(r.data(0), buf)}
				if !with {
					if err := k.Port().Do(write); !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Errorf("WRITE over a connection that breaks: %v", err)
					}
					write = nil
				}
				_ = k.Release(&h, write) // what it says is not what matters here
				return
			default:
				was := read(k, buf)
				sleep(k, 700*us)
				if now := read(k, buf); now != was {
					t.Errorf("%s, seed %d: the data of %s change from %d to %d under the lock", policy, seed, name(cn, 0), was, now)
				}
			}
			must(t, k.Release(&h, nil))
		})
	}
	if local { // it gets the lock from the client that has written
		r.client(1, name(1, 1), func(k *hier.Locker) {
			at(k, 20*us)
			var h lock.Hold
			if k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}) == nil {
				_ = k.Release(&h, nil)
			}
		})
	}
	must(t, r.c.Run())
	return int(r.c.PeekWord(r.data(0)))
}
