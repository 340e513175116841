package hier_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// replicated gives the rig's memory node a backup.
func replicated(r *rig) { r.backup = true }

// A failover is how the primary ends.
type failover struct {
	name string
	end  func(r *rig)
}

var failovers = []failover{
	{name: "killed", end: func(r *rig) { r.c.KillMN(r.mn) }},
	// Its process stands still, and its NIC serves those that have not heard of that.
	{name: "stopped", end: func(r *rig) { r.c.FenceMN(r.mn) }},
	{name: "moved", end: func(r *rig) {
		g := r.c.Group(r.mn)
		must(r.t, r.c.Change(member.Change{ID: r.mn, Kind: member.Promote, Host: g.Replicas[1].Host, Seen: g.Changed}))
	}},
}

// TestPromotion: the memory node of a lock ends, and its backup is promoted. A client that waits is granted the lock there; one that holds it gets lock.ErrLost, and
// nothing that it does reaches the new primary; tokens grow; nothing that the primary of before does is believed once another may hold the lock.
func TestPromotion(t *testing.T) {
	for _, f := range failovers {
		for _, policy := range []string{"declock", "paper-tf", "cql", "declock-tf+train"} {
			for _, news := range []fabric.Time{0, 300 * us} {
				t.Run(fmt.Sprint(f.name, "/", policy, "/", news), func(t *testing.T) {
					for seed := range uint64(10) {
						promote(t, f, policy, seed, simulated(sim.Config{NewsDelay: news, DetectDelay: 200 * us}))
					}
				})
			}
		}
	}
}

// promote runs clients that write to a word under a lock, and read it back, over a failover.
func promote(t *testing.T, f failover, policy string, seed uint64, opts ...option) {
	const clients, rounds = 9, 12
	r := newRig(t, seed, 3, policy, cql.Layout{CapacityBits: 4, VersionBits: 16},
		append(opts, replicated, unsynced, silent, waits(2*ms, fabric.Second))...)
	var last lock.Token // what a resource outside of the cluster would compare
	grants, writes := map[uint64]int{}, map[uint64]int{}
	data := r.data(0)
	for i := range clients {
		r.client(i%3, name(i%3, i), func(k *hier.Locker) {
			buf := k.Port().Alloc(8)
			for round := 0; round < rounds; {
				var h lock.Hold
				if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive}); err != nil {
					t.Fatalf("seed %d: Acquire: %v", seed, err)
				}
				if h.Token <= last {
					t.Fatalf("seed %d: token %#x after %#x", seed, uint64(h.Token), uint64(last))
				}
				last = h.Token
				term := uint64(h.Token) >> 48
				grants[term]++
				err := k.Port().Do([]fabric.Op{fabric.Read(data, buf)})
				sleep(k, 20*us)
				if err == nil {
					err = k.Port().Do([]fabric.Op{fabric.Store(data, binary.LittleEndian.Uint64(buf)+1)})
				}
				if err == nil {
					writes[term]++
				}
				switch rel := k.Release(&h, nil); {
				case rel == nil && err == nil:
					round++
				case term > 1:
					t.Fatalf("seed %d: in term %d: %v; Release: %v", seed, term, err, rel)
				case rel != nil && !errors.Is(rel, lock.ErrLost) && !errors.Is(rel, fabric.ErrNodeDown) && !errors.Is(rel, fabric.ErrUnknownOutcome):
					t.Fatalf("seed %d: Release: %v; %v", seed, rel, err)
				}
			}
		})
	}
	r.c.At(200*us+fabric.Time(seed)*37*us, func() { f.end(r) })
	r.run()
	if grants[1] == 0 || grants[2] == 0 || len(grants) != 2 {
		t.Errorf("seed %d: grants by term: %v", seed, grants)
	}
	if got := r.c.PeekWord(data); got != uint64(writes[2]) { // it begins with 0: no data is replicated yet
		t.Errorf("seed %d: the word is %d, after %d writes in term 2", seed, got, writes[2])
	}
	r.wantFree(0)
	if now := r.c.Now(); now > 50*ms { // no client waits until it asks for a reset
		t.Errorf("seed %d: it took %d us", seed, now/us)
	}
}

// TestWaitersBeginAgain: clients that wait in the queues of the primary of before begin again when another serves, and do not wait until they look at their locks: those of
// other nodes, those of the holder's node, and behind a client that has given up. No lock is reset for what the term before has left behind.
func TestWaitersBeginAgain(t *testing.T) {
	for _, policy := range []string{"declock", "cql"} {
		r := newRig(t, 1, 4, policy, cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent,
			waits(100*ms, fabric.Second), simulated(sim.Config{NewsDelay: 20 * us}))
		var last fabric.Time
		for cn := range 4 {
			for i := range 3 {
				r.client(cn, name(cn, i), func(k *hier.Locker) {
					at(k, fabric.Time(1+10*i+cn)*us)
					var h lock.Hold
					if i == 1 && cn > 1 {
						if err := k.Acquire(&h, &lock.Request{Lock: r.lock(0), Mode: lock.Exclusive, Deadline: 100 * us}); !errors.Is(err, lock.ErrTimeout) {
							t.Errorf("cn%d: %v", cn+1, err)
						}
						return
					}
					acquire(t, k, &h, r.lock(0), lock.Exclusive)
					if cn == 0 && i == 0 {
						at(k, 400*us)
						if err := k.Release(&h, nil); !errors.Is(err, lock.ErrLost) {
							t.Errorf("the holder's release: %v", err)
						}
						return
					}
					must(t, k.Release(&h, nil))
					last = max(last, k.Port().Now())
				})
			}
		}
		r.c.At(200*us, func() { r.c.FenceMN(r.mn) })
		r.run()
		if last > 500*us {
			t.Errorf("%s: the last was granted after %d us, the primary was replaced after 200", policy, last/us)
		}
		for i, a := range r.agents {
			if s := a.Resets(); s.Led > 0 {
				t.Errorf("%s: cn%d has led %d resets", policy, i+1, s.Led)
			}
		}
		r.wantFree(0)
	}
}

// TestGrantOfATermBefore: a grant that was sent in the term before, and comes when another node has the lock of the present term, makes no client a holder: neither one that
// waits since the term before, nor one that has a ticket with the same index in the present one.
func TestGrantOfATermBefore(t *testing.T) {
	for _, recheck := range []fabric.Time{20 * ms, 100 * us} {
		r := newRig(t, 1, 3, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent, waits(recheck, fabric.Second))
		var w witness
		r.client(0, "holder", func(k *hier.Locker) {
			h := hookPort{}
			var kept fabric.Message
			var to fabric.ClientID
			h.send = func(p fabric.Port, c fabric.ClientID, m *fabric.Message) error {
				if cql.MessageKind(m) == kindGrant {
					kept, to = *m, c
					return nil
				}
				return p.Send(c, m)
			}
			port := k.Port()
			k = r.hooked(0, port, &h)
			var hold lock.Hold
			acquire(t, k, &hold, r.lock(0), lock.Exclusive)
			at(k, 200*us)
			must(t, k.Release(&hold, nil))
			if to == 0 {
				t.Error("there was no grant")
			}
			r.c.KillMN(r.mn)
			at(k, 600*us)
			must(t, port.Send(to, &kept))
		})
		r.client(1, name(1, 0), func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 100*us, 100*us) })
		r.client(2, name(2, 0), func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 215*us, 900*us) })
		r.run()
		if w.grants != 2 || uint64(w.token)>>48 != 2 {
			t.Errorf("%d grants, the last with %v", w.grants, w.token)
		}
	}
}

// TestReadersGrantedInATermBefore: a grant of all waiting readers up to an index, which comes while a client of the node acquires in the term before, makes no reader of the node a holder that has
// one of these indices in the present one.
func TestReadersGrantedInATermBefore(t *testing.T) {
	r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent)
	var w witness
	r.client(0, "writer", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 400*us, 700*us) })
	r.client(1, "reader of before", func(k *hier.Locker) {
		h, first := hookPort{}, true
		port := k.Port()
		k = r.hooked(1, port, &h)
		var hold lock.Hold
		acquire(t, k, &hold, r.lock(1), lock.Shared) // attached in term 1
		must(t, k.Release(&hold, nil))
		at(k, 50*us)
		h.do = func(p fabric.Port, ops []fabric.Op) error {
			if first {
				first = false
				m := fabric.Message{Kind: kindGrant + 1 | 1<<16, Body: [7]uint64{uint64(r.lock(0)), 0, 10}}
				must(t, p.Send(fabric.AgentOf(r.nodes[1].ID()), &m))
				at(k, 150*us)
				r.c.KillMN(r.mn)
				at(k, 500*us)
			}
			return p.Do(ops)
		}
		acquire(t, k, &hold, r.lock(0), lock.Shared)
		must(t, k.Release(&hold, nil))
	})
	r.client(1, "reader", func(k *hier.Locker) { r.hold(k, &w, 0, lock.Shared, 450*us, 900*us) })
	r.run()
	if w.grants != 2 {
		t.Errorf("%d grants", w.grants)
	}
}

// TestAnswerOfADeposedPrimary: the answer to an acquisition that the primary of before has executed makes no client a holder if it comes when its node has acknowledged
// another: others may hold the lock there.
func TestAnswerOfADeposedPrimary(t *testing.T) {
	r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent)
	var w witness
	r.client(0, name(0, 0), func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 100*us, 100*us) })
	r.client(1, name(1, 0), func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 300*us, 900*us) })
	r.c.At(90*us, func() { r.c.Cut(sim.OfMN(r.mn), sim.OfCN(r.nodes[0].ID()), 600*us) }) // answers are held up
	r.c.At(200*us, func() { r.c.FenceMN(r.mn) })
	r.run()
	if w.grants != 2 || uint64(w.token)>>48 != 2 {
		t.Errorf("%d grants, the last with %v", w.grants, w.token)
	}
}

// TestSignalOfATermBefore: the signal of a reset that comes when another primary serves aborts no client that waits there.
func TestSignalOfATermBefore(t *testing.T) {
	r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent)
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(1), lock.Exclusive) // attached in term 1
		must(t, k.Release(&h, nil))
		r.c.KillMN(r.mn)
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		at(k, 500*us)
		m := fabric.Message{Kind: kindGrant + 2 | 1<<16, Body: [7]uint64{uint64(r.lock(0)), uint64(r.cfg.Layout.Header(0, 1, 1, 1)), 1000}}
		must(t, k.Port().Send(fabric.AgentOf(r.nodes[1].ID()), &m))
		at(k, 600*us)
		must(t, k.Release(&h, nil))
	})
	r.client(1, "waiter", func(k *hier.Locker) {
		at(k, 300*us)
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		must(t, k.Release(&h, nil))
		if n := k.Stats().Aborts; n != 0 {
			t.Errorf("aborted %d times", n)
		}
	})
	r.run()
}

// TestReleaseOverAPromotion: the primary ends while it executes a release, and is replaced later. The release waits for that, also before it hands the lock to a client of its node, and says
// that the lock is lost. If the primary serves on, its outcome is unknown.
func TestReleaseOverAPromotion(t *testing.T) {
	for _, waiter := range []bool{false, true} {
		for _, ends := range []bool{true, false} {
			r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent, simulated(sim.Config{NewsDelay: 300 * us}))
			r.client(0, "holder", func(k *hier.Locker) {
				port := k.Port()
				h := hookPort{}
				k = r.hooked(0, port, &h)
				var hold lock.Hold
				acquire(t, k, &hold, r.lock(0), lock.Exclusive)
				at(k, 200*us)
				first := true
				h.do = func(p fabric.Port, ops []fabric.Op) error {
					if !first {
						return p.Do(ops)
					}
					if first = false; ends {
						r.c.KillMN(r.mn)
					}
					return &fabric.ChainError{Op: ops[0], Err: fabric.ErrUnknownOutcome}
				}
				err := k.Release(&hold, []fabric.Op{fabric.Store(r.data(0), 1)})
				if !errors.Is(err, fabric.ErrUnknownOutcome) || ends != (errors.Is(err, lock.ErrLost) && errors.Is(err, fabric.ErrStaleEpoch)) {
					t.Errorf("waiter %v, the primary ends %v: %v", waiter, ends, err)
				}
				if took := port.Now() - 200*us; ends && took < 300*us || !ends && took > 200*us {
					t.Errorf("waiter %v, the primary ends %v: the release takes %d us", waiter, ends, took/us)
				}
			})
			if waiter {
				r.client(0, "waiter", func(k *hier.Locker) {
					at(k, 100*us)
					var hold lock.Hold
					acquire(t, k, &hold, r.lock(0), lock.Exclusive)
					if term := uint64(hold.Token) >> 48; ends && term != 2 {
						t.Errorf("granted in term %d", term)
					}
					must(t, k.Release(&hold, nil))
				})
			}
			r.run()
		}
	}
}

// TestManyPromotions: a memory node is moved more often than a token has generations, and tokens go on growing.
func TestManyPromotions(t *testing.T) {
	const moves = 1100
	r := newRig(t, 1, 2, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent)
	var w witness
	hosts := []fabric.MemID{r.mn, r.mn + 1}
	for i := range moves {
		r.client(i%2, "client", func(k *hier.Locker) {
			var h lock.Hold
			acquire(t, k, &h, r.lock(0), lock.Exclusive)
			w.enter(t, &h)
			w.exit(&h)
			must(t, k.Release(&h, nil))
		})
		if err := r.c.Run(); err != nil {
			t.Fatal(err)
		}
		g := r.c.Group(r.mn)
		must(t, r.c.Change(member.Change{ID: r.mn, Kind: member.Promote, Host: g.Replicas[1].Host, Seen: g.Changed}))
		r.c.AddBackup(r.mn, hosts[i%2])
	}
	if term := uint64(w.token) >> 48; term != moves || w.grants != moves {
		t.Errorf("%d grants, the last in term %d", w.grants, term)
	}
}

// TestCutOffNode: a compute node hears of nothing, is given up, and so is the primary, whose NIC serves on and which does not hear that the node is given up. When its lease has
// run out, the node acquires nothing there, hands nothing on to its own clients, and its holder gets lock.ErrLost.
func TestCutOffNode(t *testing.T) {
	r := newRig(t, 1, 3, "declock", cql.Layout{CapacityBits: 4, VersionBits: 16}, replicated, unsynced, silent, simulated(sim.Config{NewsDelay: 20 * us}))
	var w witness
	lapsed := func(what string, err error) {
		if !errors.Is(err, fabric.ErrFenced) && !errors.Is(err, lock.ErrLost) && !errors.Is(err, fabric.ErrUnknownOutcome) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.client(0, "holder", func(k *hier.Locker) {
		var h lock.Hold
		acquire(t, k, &h, r.lock(0), lock.Exclusive)
		w.enter(t, &h)
		at(k, 200*us)
		w.exit(&h) // it may know by now
		at(k, 500*us)
		lapsed("release", k.Release(&h, nil))
	})
	for i, from := range []fabric.Time{50 * us, 600 * us} {
		r.client(0, name(0, i+1), func(k *hier.Locker) {
			at(k, from)
			var h lock.Hold
			lapsed("acquire", k.Acquire(&h, &lock.Request{Lock: r.lock(i), Mode: lock.Exclusive}))
		})
	}
	r.client(1, name(1, 0), func(k *hier.Locker) { r.hold(k, &w, 0, lock.Exclusive, 250*us, 900*us) })
	r.c.At(100*us, func() {
		r.c.Detach(sim.OfCN(r.nodes[0].ID()), 2*ms)
		r.c.FenceMN(r.mn)
		r.c.Fence(r.nodes[0])
	})
	r.run()
	if w.grants != 2 || uint64(w.token)>>48 != 2 {
		t.Errorf("%d grants, the last with %v", w.grants, w.token)
	}
}
