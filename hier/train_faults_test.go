package hier_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// A trainFault is what happens to one node of a train, at a moment.
type trainFault struct {
	name string
	// strike makes it happen to a node (from 0).
	strike func(x *trainRun, node int)
	resets bool // locks may be reset
}

const trainNodes = 7

// modesOfTrain: the first node holds the lock, the others wait behind it, in this order.
var modesOfTrain = [trainNodes]lock.Mode{lock.Exclusive, lock.Exclusive, lock.Shared, lock.Exclusive, lock.Shared, lock.Shared, lock.Exclusive}

var trainFaults = []trainFault{
	{"nothing", func(*trainRun, int) {}, false},
	{"crash", func(x *trainRun, node int) { x.kill(node) }, true},
	{"pause", func(x *trainRun, node int) {
		x.c.Pause(x.nodes[node])
		x.c.At(x.c.Now()+300*us, func() { x.c.Resume(x.nodes[node]) })
	}, false},
	{"declared dead, goes on", func(x *trainRun, node int) {
		x.c.Pause(x.nodes[node])
		x.gone(node)
		x.out[node] = true
		x.c.Fence(x.nodes[node])
		x.c.At(x.c.Now()+300*us, func() { x.c.Resume(x.nodes[node]) })
	}, true},
	{"messages to others late", func(x *trainRun, node int) {
		for i := range trainNodes {
			x.c.Cut(sim.OfCN(fabric.CNID(node+1)), sim.OfCN(fabric.CNID(i+1)), x.c.Now()+150*us)
		}
	}, false},
	{"messages to it late", func(x *trainRun, node int) {
		for i := range trainNodes {
			x.c.Cut(sim.OfCN(fabric.CNID(i+1)), sim.OfCN(fabric.CNID(node+1)), x.c.Now()+150*us)
		}
	}, false},
	{"connection breaks", func(x *trainRun, node int) {
		x.c.Cut(sim.OfCN(fabric.CNID(node+1)), sim.OfMN(x.mn), x.c.Now()+30*us)
	}, true},
	{"gives up", func(x *trainRun, node int) { x.ports[node].Interrupt() }, false},
	{"asks for a reset", func(x *trainRun, node int) { x.resetBy(node) }, true},
	{"memory node restarts", func(x *trainRun, _ int) {
		for i := range trainNodes {
			x.gone(i)
		}
		x.epoch++
		x.c.RestartServer(x.mn)
	}, true},
}

// A trainRun is a train of six members that meets a fault, and the same nodes once more behind it.
type trainRun struct {
	*rig
	t      testing.TB
	what   string
	w      witness
	epoch  int
	ports  [trainNodes]fabric.Port
	inside [trainNodes]lock.Hold // that the witness counts
	out    [trainNodes]bool      // the node has gone
	grants int
}

// gone takes what a node holds from the witness: others may be granted it.
func (x *trainRun) gone(node int) {
	if h := &x.inside[node]; h.Held {
		x.w.exit(h)
		h.Held = false
	}
}

func (x *trainRun) kill(node int) {
	x.gone(node)
	x.out[node] = true
	x.c.Kill(x.nodes[node])
}

func (x *trainRun) resetBy(node int) {
	m := fabric.Message{Kind: fabric.MsgCQL + 4, Body: [7]uint64{uint64(x.lock(0)), 0, 4}} // cql's msgAskReset, UnknownOutcome
	x.c.GoOn(x.ports[node], "asks", func(p fabric.Port) { _ = p.Send(fabric.AgentOf(p.ID().CN()), &m) })
}

// client is one node's: two rounds, and a last one when the faults are over.
func (x *trainRun) client(cn int) {
	x.c.Go(x.nodes[cn], name(cn, 0), func(p fabric.Port) {
		x.ports[cn] = p
		k := x.locker(cn, p)
		buf := p.Alloc(8)
		for round := range 3 {
			if at(k, fabric.Time(3*cn)*us); round == 2 {
				at(k, fabric.Time(20000+300*cn)*us)
				p.ClearInterrupt()
				at(k, fabric.Time(20000+300*cn)*us)
			}
			x.round(k, cn, round, buf)
		}
	})
}

func (x *trainRun) round(k *hier.Locker, cn, round int, buf []byte) {
	var h lock.Hold
	r := lock.Request{Lock: x.lock(0), Mode: modesOfTrain[cn]}
	if err := k.Acquire(&h, &r); err != nil {
		k.Port().ClearInterrupt()
		if round == 2 && !x.out[cn] && !errors.Is(err, fabric.ErrFenced) {
			x.t.Fatalf("%s: %s: %v", x.what, name(cn, 0), err)
		}
		return
	}
	epoch := x.epoch
	if !x.out[cn] { // else it does not know that it has gone, and what it believes does not count
		x.w.enter(x.t, &h)
		x.inside[cn] = h
		x.grants++
	}
	before := []fabric.Op{fabric.Read(x.data(0), buf)}
	seen := uint64(0)
	look := func() bool {
		err := k.Port().Do(before)
		return err == nil && x.inside[cn].Held && epoch == x.epoch
	}
	if look() {
		seen = binary.LittleEndian.Uint64(buf)
	}
	if cn == 0 && round == 0 {
		at(k, 60*us)
	} else {
		sleep(k, 3*us)
	}
	if was := seen; look() && was != 0 && binary.LittleEndian.Uint64(buf) != was {
		x.t.Fatalf("%s: the data of %s change under the lock", x.what, name(cn, 0))
	}
	var ops []fabric.Op
	if h.Mode == lock.Exclusive {
		binary.LittleEndian.PutUint64(buf, uint64(100*round+cn+1))
		ops = []fabric.Op{fabric.Write(x.data(0), buf)}
		if cn%3 == 0 { // in a chain of its own
			_ = k.Port().Do(ops)
			ops = nil
		}
	}
	x.gone(cn)
	if err := k.Release(&h, ops); err != nil && round == 2 && !errors.Is(err, fabric.ErrFenced) {
		x.t.Fatalf("%s: %s releases: %v", x.what, name(cn, 0), err)
	}
}

// Whatever happens to a member of a train, at whatever moment: no writer holds beside others, no data change under a holder, the other nodes get the
// lock, and it is free in the end. What is only late costs no reset.
func TestTrainFaults(t *testing.T) {
	for _, policy := range []string{"declock+no-train+train", "declock"} {
		for _, f := range trainFaults {
			t.Run(fmt.Sprintf("%s, %s", policy, f.name), func(t *testing.T) {
				for node := range trainNodes {
					for when := 50 * us; when < 130*us; when += 3700 {
						trainMeets(t, policy, &f, node, when)
						if f.name == "nothing" || t.Failed() {
							return
						}
					}
				}
			})
		}
	}
}

func trainMeets(t *testing.T, policy string, f *trainFault, node int, when fabric.Time) {
	o := &trains{layout: roomy}
	x := &trainRun{t: t, what: fmt.Sprintf("%s, %s, node %d, at %d ns", policy, f.name, node+1, when)}
	x.rig = newRig(t, 1, trainNodes, policy, roomy, unsynced, silent, waits(500*us, 5*ms),
		simulated(sim.Config{DetectDelay: 100 * us, BreakAfter: 8 * us, BrokenLate: 200 * us, NewsDelay: 20 * us, Observer: o}))
	for cn := range trainNodes {
		x.client(cn)
	}
	x.c.At(when, func() { f.strike(x, node) })
	if err := x.c.Run(); err != nil {
		t.Fatalf("%s: %v", x.what, err)
	}
	if n := x.led(); n > 0 && !f.resets {
		t.Errorf("%s: %d resets", x.what, n)
	}
	if x.grants < 2*trainNodes-1 {
		t.Errorf("%s: %d grants", x.what, x.grants)
	}
	if f.name == "nothing" && o.formed < 2 {
		t.Errorf("%s: %d trains", x.what, o.formed)
	}
	if x.out[node] || f.resets {
		must(t, x.c.RunUntil(x.c.Now()+50*ms)) // what crashed nodes have left is reset when another wants the lock
	} else {
		x.wantFree(0)
	}
	x.c.Close()
}
