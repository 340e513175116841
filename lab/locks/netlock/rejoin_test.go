package netlock

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// beside adds a machine to a rig.
func (r *rig) beside() *Pool {
	p := newPool(machineAt+1, switchAt, serverAt, 2, r.pool.cfg)
	r.others = map[fabric.CNID]*Pool{p.cn: p}
	return p
}

// replace has another machine come in the number of the rig's.
func (r *rig) replace(epoch uint64) {
	r.pool = newPool(machineAt, switchAt, serverAt, epoch, r.pool.cfg)
}

// want checks in which phases tickets are.
func (r *rig) want(when string, phases map[*ticket]phase) {
	r.t.Helper()
	for x, want := range phases {
		if x.phase != want {
			r.t.Errorf("%s %v is in phase %d with %v, want %d", when, x.client, x.phase, x.lock, want)
		}
	}
}

// A machine that comes in the number of one that has left with nothing held is another: its first request is not answered by what has become of the other's, and is executed whatever the other has asked for.
func TestJoinsInTheNumberOfAnother(t *testing.T) {
	for uses := range 4 {
		r := newRig(t, Config{Slots: 4})
		const far = theLock + 64
		holder := r.request(r.beside(), 1, lock.Request{Lock: far, Mode: lock.Exclusive})
		for range uses {
			gone := r.ask(1, lock.Exclusive)
			r.settle()
			port := wire{r: r, id: gone.client}
			r.pool.end(port, gone)
			r.pool.release(port, theLock, lock.Exclusive)
			r.settle()
		}
		r.replace(4)
		joins, free := r.request(r.pool, 1, lock.Request{Lock: far, Mode: lock.Exclusive}), r.ask(2, lock.Exclusive)
		r.settle()
		r.want("after it has joined", map[*ticket]phase{holder: holds, joins: asked, free: holds})
		r.release(holder)
		r.settle()
		r.want("after a release", map[*ticket]phase{joins: holds})
	}
}

// What a machine that has gone waits for is nothing that another in its number has asked for: also when that is granted, and when the other's request comes again.
func TestWaiterOfAMachineThatHasGone(t *testing.T) {
	r := newRig(t, Config{Slots: 4})
	const far = theLock + 64
	other := r.beside()
	holder, kept := r.request(other, 1, lock.Request{Lock: theLock, Mode: lock.Exclusive}), r.request(other, 2, lock.Request{Lock: far, Mode: lock.Exclusive})
	r.settle()
	r.ask(1, lock.Exclusive) // waits in the slot that the other machine uses first, too
	r.settle()
	r.replace(4)
	joins := r.request(r.pool, 1, lock.Request{Lock: far, Mode: lock.Exclusive})
	r.settle()
	r.release(holder)
	r.settle()
	r.pool.ask(wire{r: r, id: joins.client}, joins)
	r.settle()
	r.want("when a waiter that has gone is granted its lock,", map[*ticket]phase{kept: holds, joins: asked})
	r.release(kept)
	r.settle()
	r.want("after a release", map[*ticket]phase{joins: holds})
}

// A packet of a machine that has gone is old once another has used its slot.
func TestLatePacketOfAMachineThatHasGone(t *testing.T) {
	r := newRig(t, Config{Slots: 4})
	r.ask(1, lock.Exclusive)
	late := r.take(msgAcquire)
	r.replace(4)
	joins := r.request(r.pool, 1, lock.Request{Lock: theLock + 64, Mode: lock.Exclusive})
	r.settle()
	r.deliver(late)
	next := r.ask(2, lock.Exclusive)
	r.settle()
	r.want("after a late packet", map[*ticket]phase{joins: holds, next: holds})
}

// The server keeps the requests of a machine that has come in the number of another.
func TestServerKnowsMachinesApart(t *testing.T) {
	r := newRig(t, Config{Slots: 4, Queue: 1})
	other := r.beside()
	holder := r.request(other, 1, lock.Request{Lock: theLock, Mode: lock.Exclusive})
	r.settle()
	gone := r.ask(1, lock.Exclusive) // at the server
	r.settle()
	r.release(holder)
	r.settle()
	r.release(gone)
	r.settle()
	holder = r.request(other, 2, lock.Request{Lock: theLock, Mode: lock.Exclusive})
	r.settle()
	r.replace(4)
	joins := r.ask(1, lock.Exclusive)
	r.settle()
	r.want("before", map[*ticket]phase{holder: holds, joins: asked})
	r.release(holder)
	r.settle()
	r.want("after a release", map[*ticket]phase{joins: holds})
}

// Numbers go on when their values are over, and those of a later machine come after all of an earlier one; the first is never 0.
func TestNumbers(t *testing.T) {
	for _, epoch := range []uint64{0, 1, 3, 1<<incarnationBits - 1, 1 << incarnationBits, 1<<40 + 5} {
		first, later := newOp(machineAt, 7, epoch), newOp(machineAt, 7, epoch+2)
		o := first
		for range 3 << (valueBits - 2) {
			last := o
			o = o.next(opTry | opMode)
			if !newer(o.number(), last.number()) || !newer(o.number(), 0) || newer(last.number(), o.number()) {
				t.Fatalf("%x does not come after %x", o, last)
			}
		}
		for _, x := range []opID{first.next(0), o, o.next(opMode)} {
			if y := later.next(0); !newer(y.number(), x.number()) || newer(x.number(), y.number()) {
				t.Errorf("%x, of a later machine, does not come after %x", y, x)
			}
		}
		if o.cn() != machineAt || o.slot() != 7 || !o.try() || o.mode() != lock.Mode(opMode) || o>>opIncarnation != first>>opIncarnation {
			t.Errorf("%x follows %x", o, first)
		}
	}
}
