package hier

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A kept is a lock's value as the node keeps it in a tenure. The shard's mutex guards it.
type kept struct {
	addr  fabric.Addr
	size  int  // bytes; 0: not known here
	dirty bool // newer than what the memory node has
	data  [lock.MaxValue]byte
}

// set takes over a holder's value.
func (v *kept) set(from *lock.Value) {
	v.addr, v.size = from.Addr, copy(v.data[:], from.Buf)
}

// get gives a holder the value, if it is known.
func (v *kept) get(to *lock.Value) bool {
	if v.size == 0 || v.size != len(to.Buf) || v.addr != to.Addr {
		return false
	}
	copy(to.Buf, v.data[:v.size])
	return true
}

// arrive takes over the value that came with the grant of a place.
func (v *kept) arrive(p *cql.Place) {
	n := int(p.Carried.Words)
	v.addr, v.size = fabric.Addr(int64(p.Lock)+int64(p.Carried.Offset)), 8*n
	for i, w := range p.Carried.Word[:n] {
		binary.LittleEndian.PutUint64(v.data[8*i:], w)
	}
}

// carry gives the value to the grants that the release of a place sends, if it is small enough.
// The place must have none.
func (v *kept) carry(p *cql.Place) {
	off := int64(v.addr) - int64(p.Lock)
	if v.size == 0 || v.size > 8*cql.MaxCarried || int64(int32(off)) != off {
		return
	}
	p.Carried.Offset, p.Carried.Words = int32(off), uint8(v.size/8)
	for i := range p.Carried.Words {
		p.Carried.Word[i] = binary.LittleEndian.Uint64(v.data[8*i:])
	}
}

// keepable tells whether a value is one that can be kept with a lock.
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
	if r.Noted > 0 {
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
	if x.val.size == 0 {
		x.val.set(k.value)
	}
	s.mu.Unlock()
}

// read executes what is left of a request's READs. The caller holds x.
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

// take gets the value from the node, if it is wanted and there. The shard is locked.
func (k *Locker) take(x *local) {
	k.valued = k.value != nil && x.val.get(k.value)
}

// ReleaseValue implements lock.Keeper.
func (k *Locker) ReleaseValue(h *lock.Hold, v *lock.Value, before []fabric.Op) error {
	if v != nil && v.Dirty && h.Held && (h.Mode != lock.Exclusive || !keepable(v, h.Lock)) {
		return fmt.Errorf("%w: a new value of %d bytes at %v, by a client that holds %v %v", lock.ErrMisuse, len(v.Buf), v.Addr, h.Lock, h.Mode)
	}
	return k.release(h, v, before)
}

// A commit is a release that waits until the value is on the memory node.
type commit struct {
	next   *commit
	client fabric.ClientID
	done   bool
	err    error
}

// writeBack makes the operation that writes the value of a lock back. The shard is locked.
func (k *Locker) writeBack(x *local) fabric.Op {
	if k.image == nil {
		k.image = k.port.Alloc(lock.MaxValue)
	}
	n := copy(k.image, x.val.data[:x.val.size])
	return fabric.Write(x.val.addr, k.image[:n])
}

// commit writes the value of a lock back that the caller holds, for itself and for all
// who have released it before and wait for that. The shard is locked, and unlocked meanwhile.
func (k *Locker) commit(s *shard, x *local) error {
	list := x.commits
	x.commits = nil
	k.one[0] = k.writeBack(x)
	s.mu.Unlock()
	err := k.do(k.one[:])
	s.mu.Lock()
	if err == nil {
		x.val.dirty = false
		// Readers that left meanwhile saw the same value: it cannot have changed while the caller holds the lock.
		k.settleAll(x, nil)
	}
	k.settle(list, err)
	return err
}

// settle tells those whose release waits how their value's way to the memory node has
// ended. The shard is locked; wakeAll must follow.
func (k *Locker) settle(list *commit, err error) {
	err = forOthers(err)
	for w := list; w != nil; {
		next := w.next
		w.done, w.err, w.next = true, err, nil
		k.wake = append(k.wake, w.client)
		w = next
	}
}

// settleAll tells all of a local lock's releases that wait. The shard is locked; wakeAll must follow.
func (k *Locker) settleAll(x *local, err error) {
	if x.commits != nil {
		k.settle(x.commits, err)
		x.commits = nil
	}
}

// forOthers returns the error of an operation for those who have left it to this client: an interrupt is this client's, and they
// are not told that they were.
func forOthers(err error) error {
	if !errors.Is(err, fabric.ErrInterrupted) {
		return err
	}
	why := fabric.ErrNodeDown
	if errors.Is(err, fabric.ErrUnknownOutcome) {
		why = fabric.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: left to another client of this compute node, which was interrupted while the memory node did not answer: %s", why, err.Error())
}

// join makes the caller, who gives up a lock that has an unwritten value, one
// of those who wait for that. The shard is locked.
func (k *Locker) join(x *local) *commit {
	k.own = commit{next: x.commits, client: k.port.ID()}
	x.commits = &k.own
	return &k.own
}

// awaitCommit waits until the value is on the memory node. An interrupt ends waiting for a lock, not
// giving one up: it is put off until then.
func (k *Locker) awaitCommit(s *shard, w *commit) error {
	interrupted := false
	defer func() {
		if interrupted {
			k.port.Interrupt()
		}
	}()
	for {
		s.mu.Lock()
		done, err := w.done, w.err
		s.mu.Unlock()
		if done {
			return err
		}
		_, err = k.port.Recv(fabric.Forever)
		switch {
		case errors.Is(err, fabric.ErrInterrupted):
			interrupted = true
			k.port.ClearInterrupt()
		case err != nil:
			return err // closed: nobody uses this Locker any more
		}
	}
}
