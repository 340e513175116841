package hier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A handoff is what the holders of a tenure hand on to those after them: bytes that these need not READ, and perhaps work that they take over,
// so that one WRITE does for many. There is one at a time:
//
//   - a value (lock.Keeper): the lock layer reads and writes it. It comes with the grant, or by a READ; while it is dirty, memory
//     has an older one, and the work is the WRITE: of the holder that gives the remote lock up, or of the first that does not defer it.
//   - opaque bytes (lock.Hold.Handoff): only holders know what they mean. The work (lock.Hold.Deferred) is the operations of their
//     releases: the next holder does them with its own.
//
// Releases whose work is not done wait for it, and return its error. The shard's mutex guards a handoff.
//
// Whenever the shard's mutex is free, unless a caller has mixed the two kinds in one hold (lock.ErrMisuse):
//
//   - a value has addr != 0, and deferred is 0; opaque bytes have addr == 0, and dirty is false: so dirty and deferred are never both set;
//   - if releases wait (waits), their work is yet to be done: dirty is set, or deferred, or the holder is about to write for them
//     (flushValue, giveUp).
type handoff struct {
	data []byte      // none: there is no handoff
	addr fabric.Addr // of a value; of opaque bytes 0, where no value is

	dirty    bool   // a value: newer than what the memory node has
	deferred uint64 // opaque bytes: not 0 if earlier holders wait for operations that they have deferred to the next

	waits *pendingRelease // releases that wait
	since fabric.Time     // since when there are any
}

// A pendingRelease is a release that waits until its work is done.
type pendingRelease struct {
	next   *pendingRelease
	client fabric.ClientID
	done   bool
	err    error
}

// clear takes away what was handed on. Releases that wait go on waiting.
func (f *handoff) clear() {
	if f.addr|fabric.Addr(len(f.data)) != 0 { // else there is nothing
		f.data, f.addr, f.dirty, f.deferred = f.data[:0], 0, false, 0
	}
}

// opaque reports whether a handoff can be opaque bytes: no value is in it.
func (f *handoff) opaque() bool { return f.addr == 0 }

// setValue takes over a holder's value.
func (f *handoff) setValue(from *lock.Value) {
	f.addr, f.data = from.Addr, append(f.data[:0], from.Buf...)
}

// value gives a holder the value, if it is known.
func (f *handoff) value(to *lock.Value) bool {
	if f.opaque() || f.addr != to.Addr || len(f.data) != len(to.Buf) {
		return false
	}
	copy(to.Buf, f.data)
	return true
}

// arrive takes over the value that came with the grant of a ticket.
func (f *handoff) arrive(p *cql.Ticket) {
	f.addr, f.data = fabric.Addr(int64(p.Lock)+int64(p.Carried.Offset)), f.data[:0]
	for _, w := range p.Carried.Word[:p.Carried.Words] {
		f.data = binary.LittleEndian.AppendUint64(f.data, w)
	}
}

// carry gives the value to the grants that the release of a ticket sends, if it is small enough.
// The ticket must have none.
func (f *handoff) carry(p *cql.Ticket) {
	off := int64(f.addr) - int64(p.Lock)
	if f.opaque() || len(f.data) > 8*cql.MaxCarried || int64(int32(off)) != off {
		return
	}
	p.Carried.Offset, p.Carried.Words = int32(off), uint8(len(f.data)/8)
	for i := range p.Carried.Words {
		p.Carried.Word[i] = binary.LittleEndian.Uint64(f.data[8*i:])
	}
}

// keep stores what the holder of h hands on to the next one, when the operations of its release have been executed, with err, or are
// deferred. It replaces a value that memory has, too.
func (f *handoff) keep(h *lock.Hold, data []byte, deferred bool, err error) {
	if h.Mode != lock.Exclusive { // what the last one handed on is right still
		return
	}
	if !f.opaque() && (f.dirty || len(data) == 0) { // only AcquireValue and ReleaseValue touch a value
		return
	}
	f.clear()
	if err != nil || len(data) > lock.MaxHandoff {
		return
	}
	f.data = append(f.data, data...)
	if deferred {
		f.deferred = h.Deferred
	}
}

// keepable reports whether a value is one that can be kept with a lock.
func keepable(v *lock.Value, l fabric.Addr) bool {
	n := len(v.Buf)
	return n > 0 && n%8 == 0 && n <= lock.MaxValue && v.Addr%8 == 0 && v.Addr.MN() == l.MN()
}

// AcquireValue implements lock.Keeper.
func (k *Locker) AcquireValue(h *lock.Hold, r *lock.Request, v *lock.Value) error {
	if !keepable(v, r.Lock) || len(r.Reads) == lock.MaxPiggyback {
		return fmt.Errorf("%w: a value of %d bytes at %v for %v with %d READs", lock.ErrMisuse, len(v.Buf), v.Addr, r.Lock, len(r.Reads))
	}
	v.Dirty = false
	k.value, k.valued = v, v.Overwrite
	if v.Overwrite {
		k.value = nil
	}
	err := k.Acquire(h, r)
	k.value = nil
	return err
}

// readsOf returns a request's READs, with one of the value if that is still wanted.
func (k *Locker) readsOf(r *lock.Request) []fabric.Op {
	wanted := r.Reads
	if r.HandoffLen > 0 {
		wanted = nil
	}
	if k.value == nil || k.valued {
		return wanted
	}
	n := copy(k.reads[:], wanted)
	k.reads[n] = fabric.Read(k.value.Addr, k.value.Buf)
	return k.reads[:n+1]
}

// haveRead takes over the results of readsOf. The caller holds x.
func (k *Locker) haveRead(s *shard, x *local, r *lock.Request, reads []fabric.Op) {
	if len(reads) == 0 || &reads[0] != &k.reads[0] {
		return
	}
	for i := range reads[:len(reads)-1] {
		r.Reads[i].Old = reads[i].Old
	}
	s.mu.Lock()
	if x.handoff.opaque() && x.handoff.deferred == 0 {
		x.handoff.setValue(k.value)
	}
	s.mu.Unlock()
}

// read executes the remaining READs of a request. The caller holds x.
func (k *Locker) read(s *shard, x *local, r *lock.Request) error {
	reads := k.readsOf(r)
	if len(reads) == 0 {
		return nil
	}
	err := k.port.Do(reads)
	if err == nil {
		k.haveRead(s, x, r, reads)
	}
	return err
}

// takeValue gets the value from the node, if it is wanted and there. The shard is locked.
func (k *Locker) takeValue(x *local) {
	k.valued = k.value != nil && x.handoff.value(k.value)
}

// inherit gives an exclusive holder what the last one handed on, if that fits. The shard is locked.
func (k *Locker) inherit(x *local, r *lock.Request) {
	if f := &x.handoff; k.self.room > 0 && f.opaque() && len(f.data) <= k.self.room {
		r.HandoffLen, r.Deferred = copy(r.Handoff, f.data), f.deferred
	}
}

// roomFor returns how long a handoff the caller of Acquire can take.
func (k *Locker) roomFor(r *lock.Request) int {
	if r.Mode != lock.Exclusive || k.value != nil {
		return 0
	}
	return len(r.Handoff)
}

// ReleaseValue implements lock.Keeper.
func (k *Locker) ReleaseValue(h *lock.Hold, v *lock.Value, before []fabric.Op) error {
	if v != nil && v.Dirty && h.Held && (h.Mode != lock.Exclusive || !keepable(v, h.Lock)) {
		return fmt.Errorf("%w: a new value of %d bytes at %v, by a client that holds %v %v", lock.ErrMisuse, len(v.Buf), v.Addr, h.Lock, h.Mode)
	}
	return k.release(h, v, before)
}

// work executes or defers what a release has to write: its operations, and a value that is dirty. If the lock leaves the node, it returns
// the operations: they are for the release of the remote lock. If later holders are to write, it returns the pendingRelease to wait for.
// There is at most one of the two: a release waits only if the lock stays, and only one that gives the remote lock up has operations for it.
// done says that its own operations have been executed, whatever becomes of the value. The shard is locked, and may be unlocked meanwhile.
func (k *Locker) work(s *shard, x *local, h *lock.Hold, data []byte, before []fabric.Op, slackUs int16) (wait *pendingRelease, rest []fabric.Op, done bool, err error) {
	wait, rest, err = k.perform(s, x, h, data, before, slackUs)
	done = len(before) > 0 && wait == nil && len(rest) == 0 && err == nil
	f := &x.handoff
	if f.dirty && !k.defers(x) && k.stays(x, slackUs) {
		if unwritten := k.flushValue(s, x); unwritten != nil {
			return wait, rest, done, errors.Join(err, unwritten) // a release that has failed does not wait
		}
	}
	if f.dirty && k.stays(x, slackUs) {
		wait = k.join(x)
	}
	return wait, rest, done, err
}

// perform executes the operations of a release, unless the release of the remote lock is to: then it returns them. If they are
// deferred to the next holder, it returns what to wait for. The shard is locked, and may be unlocked meanwhile.
func (k *Locker) perform(s *shard, x *local, h *lock.Hold, data []byte, before []fabric.Op, slackUs int16) (*pendingRelease, []fabric.Op, error) {
	switch {
	case len(before) == 0:
		k.completeDeferred(x, false, nil)
		return nil, nil, nil
	case !k.stays(x, slackUs):
		return nil, before, nil
	case k.deferrable(x, h, data, slackUs):
		h.Left = true
		return k.join(x), nil, nil
	}
	// The next holder must find what we wrote, and uses another queue pair.
	s.mu.Unlock()
	err := k.do(before)
	done := fabric.Executed(err, len(before)) > 0
	err = partly(done, k.awaitVerdict(x, h.Lock, err))
	s.mu.Lock()
	k.completeDeferred(x, true, swapped(before, err))
	return nil, nil, err
}

// deferrable reports whether the operations of a release that stays with this node can be deferred to the next holder. The shard is locked.
func (k *Locker) deferrable(x *local, h *lock.Hold, data []byte, slackUs int16) bool {
	if h.Deferred == 0 || h.Mode != lock.Exclusive || x.handoff.dirty || len(data) == 0 || len(data) > lock.MaxHandoff {
		return false
	}
	w := k.table.policy.successor(x, slackUs)
	return w != nil && w.mode == lock.Exclusive && len(data) <= w.room && (h.Same == nil || bytes.Equal(h.Same, w.same)) && k.defers(x)
}

// swapped returns the error of operations for releases that have deferred theirs to them: a CAS that has not swapped has changed nothing for these
// either. The lock was taken from this node.
func swapped(ops []fabric.Op, err error) error {
	for i := range ops {
		if err == nil && ops[i].Kind == fabric.OpCAS && !ops[i].Swapped() {
			err = fmt.Errorf("%w: word at %v is %#x, was %#x", lock.ErrLost, ops[i].Addr, ops[i].Old, ops[i].Cmp)
		}
	}
	return err
}

// defers reports whether a release may defer its work to those after it.
// A client that holds another lock must not wait for them: they may want that lock.
func (k *Locker) defers(x *local) bool {
	switch {
	case !k.table.policy.Defer || len(k.holding) > 0:
		return false
	case x.handoff.waits == nil:
		x.handoff.since = k.port.Now()
		return true
	}
	return k.port.Now()-x.handoff.since < maxDefer
}

// completeDeferred ends the releases whose operations were deferred to a holder, as the holder's own have ended: they are done
// with them. The shard is locked; wakeAll must follow.
func (k *Locker) completeDeferred(x *local, executed bool, err error) {
	if x.handoff.deferred == 0 {
		return
	}
	switch {
	case executed:
	case err == nil:
		err = fmt.Errorf("%w: %v was released without those of holders before", lock.ErrNotExecuted, x.ticket.Lock)
	default:
		err = fmt.Errorf("%w: %w", lock.ErrNotExecuted, err)
	}
	x.handoff.deferred = 0
	k.completeAll(x, err)
}

// writeBack makes the operation that writes the value of a lock back. The shard is locked.
func (k *Locker) writeBack(x *local) fabric.Op {
	if k.image == nil {
		k.image = k.port.Alloc(lock.MaxValue)
	}
	n := copy(k.image, x.handoff.data)
	return fabric.Write(x.handoff.addr, k.image[:n])
}

// flushValue writes the value of a lock back that the caller holds, for itself and for all
// that have released it before and wait for that. The shard is locked, and unlocked meanwhile.
func (k *Locker) flushValue(s *shard, x *local) error {
	list := x.handoff.waits
	x.handoff.waits = nil
	k.one[0] = k.writeBack(x)
	s.mu.Unlock()
	err := k.do(k.one[:])
	s.mu.Lock()
	if err == nil {
		x.handoff.dirty = false
		// Readers that released meanwhile saw the same value: it cannot have changed while the caller holds the lock.
		k.completeAll(x, nil)
	}
	k.complete(list, err)
	return err
}

// complete ends releases that wait, as their work has ended. The shard is locked; wakeAll must follow.
func (k *Locker) complete(list *pendingRelease, err error) {
	err = forOthers(err)
	for w := list; w != nil; {
		next := w.next
		w.done, w.err, w.next = true, err, nil
		k.wake = append(k.wake, w.client)
		w = next
	}
}

// completeAll ends all of a local lock's releases that wait. The shard is locked; wakeAll must follow.
func (k *Locker) completeAll(x *local, err error) {
	if x.handoff.waits != nil {
		k.complete(x.handoff.waits, err)
		x.handoff.waits = nil
	}
}

// forOthers returns the error of an operation for releases that have deferred it to this client: an interrupt is this client's, not
// theirs.
func forOthers(err error) error {
	if !errors.Is(err, fabric.ErrInterrupted) {
		return err
	}
	why := fabric.ErrNodeDown
	if errors.Is(err, fabric.ErrUnknownOutcome) {
		why = fabric.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: deferred to another client of this compute node, which was interrupted while the memory node did not answer: %s", why, err.Error())
}

// join makes the caller's release one of those that wait. The shard is locked.
func (k *Locker) join(x *local) *pendingRelease {
	*k.own = pendingRelease{next: x.handoff.waits, client: k.port.ID()}
	x.handoff.waits = k.own
	return k.own
}

// workGrace is for how long an interrupted release waits until its work is done: about as long as it would for a memory node that does not answer (fabric.Port.Interrupt).
const workGrace = 2 * fabric.Millisecond

func (w *pendingRelease) result(s *shard) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.done, w.err
}

// awaitWork waits until the work of a release is done. An interrupt ends waiting for a lock, not
// giving one up: it is put off until then, or until it shows that the other client's operations do not end. Then nobody knows whether they will take effect.
func (k *Locker) awaitWork(s *shard, w *pendingRelease) error {
	interrupted, until := false, fabric.Forever
	defer func() {
		if interrupted {
			k.port.Interrupt()
		}
	}()
	for {
		if done, err := w.result(s); done {
			return err
		}
		_, err := k.port.Recv(until)
		switch {
		case errors.Is(err, fabric.ErrInterrupted):
			k.port.ClearInterrupt()
			if !interrupted {
				interrupted, until = true, k.port.Now()+workGrace
			}
		case errors.Is(err, fabric.ErrDeadline):
			if done, err := w.result(s); done {
				return err
			}
			k.own = new(pendingRelease) // who does the work has the other in a list
			return fmt.Errorf("hier: %w: %w while another client of this compute node was doing the work of this release", fabric.ErrUnknownOutcome, fabric.ErrInterrupted)
		case err != nil:
			return err // closed: this Locker is used no more
		}
	}
}
