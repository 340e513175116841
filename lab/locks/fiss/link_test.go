package fiss

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// sends has a machine's agent send another's a message.
func (r *rig) sends(from, to int, kind fabric.MsgKind, o opID) {
	r.pools[from].send(r.port(from, 0), r.pools[to].self, kind, uint64(theLock), uint64(o))
}

// A message between machines that comes again is not handled again, and one of a recovery that has overtaken others waits for them.
func TestLink(t *testing.T) {
	r := newRig(t, 2, Config{Acks: true, ResendNs: 1})
	from, to := r.pools[0], r.pools[1]
	k := r.ask(1, 1, lock.Exclusive)
	r.under = nil
	r.sends(0, 1, msgLeave, k.op)
	late := r.take(msgLeave)
	r.sends(0, 1, msgPause, 0)
	pause := r.take(msgPause)
	pause.Body[2], pause.Body[3] = 1, uint64(from.key) // the round, the incarnation
	r.sends(0, 1, msgGrant, k.op)
	grant := r.take(msgGrant)
	if r.deliver(grant); k.phase != holds {
		t.Fatalf("phase %d, want holds", k.phase)
	}
	if r.deliver(pause); to.stopped {
		t.Fatal("a message of a recovery has overtaken another")
	}
	if r.deliver(late); !to.stopped {
		t.Fatal("a message of a recovery waits for one that has come")
	}
	from.send(r.port(0, 0), to.self, msgRebuild, uint64(theLock), uint64(newOp(to.cn, 1, 1)), 1)
	holder := r.take(msgRebuild)
	r.deliver(holder)
	for _, again := range []sent{late, pause, grant, holder} {
		r.under = nil
		if r.deliver(again); len(r.under) != 1 || r.under[0].Kind != msgAck {
			t.Errorf("a copy is answered by %+v, want one acknowledgement", r.under)
		}
	}
	if n := len(to.agents[theLock].holders); n != 1 {
		t.Errorf("%d holders of a lock, one of which was reported twice", n)
	}
	if r.settle(); len(from.links[to.cn].unacked) > 0 {
		t.Errorf("%d messages are not acknowledged", len(from.links[to.cn].unacked))
	}
}

// What a machine that has gone has not acknowledged does not go to the next one in its number, whose messages are not taken for copies.
func TestLinkBreaks(t *testing.T) {
	r := newRig(t, 2, Config{Acks: true, ResendNs: 1})
	from := r.pools[0]
	for range 3 {
		r.sends(0, 1, msgWaiters, 0)
		r.sends(1, 0, msgWaiters, 0)
		r.settle()
	}
	r.sends(0, 1, msgGrant, 0)
	r.take(msgGrant) // it is lost
	r.settle()
	r.replace(1)
	if from.relink(r.port(0, 0)) || len(r.under) > 0 {
		t.Errorf("a machine is sent what another in its number has not acknowledged: %+v", r.under)
	}
	r.sends(0, 1, msgWaiters, 0)
	r.sends(1, 0, msgWaiters, 0)
	r.settle()
	to := r.pools[1]
	if a, b := from.links[to.cn], to.links[from.cn]; len(a.unacked)+len(b.unacked) > 0 || a.from != to.shortKey() || b.next != a.last+1 {
		t.Errorf("to and from a new machine: %+v, %+v", a, b)
	}
}
