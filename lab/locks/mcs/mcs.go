package mcs

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A place is a client's place in the queue of a lock: C of Algorithm 1.
type place struct {
	lock    fabric.Addr
	id      fabric.ClientID // under which it is in the queue
	granted bool            // C.flag
	next    fabric.ClientID // C.next, 0 is null
	token   lock.Token
}

// A Locker is one client's access to MCS locks.
type Locker struct {
	port   fabric.Port
	cfg    Config
	stats  lock.Stats
	ops    [fabric.MaxChain]fabric.Op
	wide   fabric.Wide
	places []*place // that the client has, of all locks
	spare  []*place
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker. The fabric must have masked atomics.
func New(port fabric.Port, cfg Config) (*Locker, error) {
	if c := port.Caps(); !c.Masked {
		return nil, fmt.Errorf("mcs: %w: %s has no masked CAS (capability Masked), which fetch-and-store is made of",
			fabric.ErrUnsupported, c.Fabric)
	}
	return &Locker{port: port, cfg: cfg}, nil
}

// Port implements lock.Locker.
func (l *Locker) Port() fabric.Port { return l.port }

// Stats implements lock.Locker.
func (l *Locker) Stats() *lock.Stats { return &l.stats }

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if h.Held {
		return fmt.Errorf("%w: Hold of %v is in use", lock.ErrMisuse, h.Lock)
	}
	if len(r.Reads) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %d READs, at most %d", lock.ErrMisuse, len(r.Reads), lock.MaxPiggyback)
	}
	if l.find(r.Lock) != nil {
		return fmt.Errorf("%w: %v has %v already", lock.ErrMisuse, l.port.ID(), r.Lock)
	}
	p := l.newPlace(r.Lock)
	if err := l.acquire(p, r); err != nil {
		return fmt.Errorf("mcs: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode, Token: p.token, Aux: p, Word: uint64(p.id), Held: true}
	l.stats.Acquires++
	return nil
}

// acquire is MCS-ACQUIRE. If it fails, the place is given back.
func (l *Locker) acquire(p *place, r *lock.Request) error {
	prev, err := l.enter(p, r)
	switch {
	case err != nil && p.granted:
		return errors.Join(err, l.release(p, nil))
	case err != nil:
		l.drop(p)
		return err
	case prev == 0:
		l.stats.Immediate++
		return nil
	case r.Try:
		l.drop(p)
		l.stats.Busy++
		return fmt.Errorf("%w: queue ends with %v", lock.ErrBusy, prev)
	}
	l.stats.Waits++
	m := fabric.Message{Kind: msgSuccessor, Body: [7]uint64{uint64(p.lock), uint64(prev)}}
	if err := l.port.Send(prev, &m); err != nil {
		return l.leave(p, err) // the predecessor is dead, and the lock with it
	}
	deadline := r.Deadline
	if deadline == 0 {
		deadline = fabric.Forever
	}
	for !p.granted {
		if err := l.receive(deadline); err != nil {
			return l.leave(p, err)
		}
	}
	if len(r.Reads) > 0 {
		if err := l.port.Do(r.Reads); err != nil {
			return errors.Join(err, l.release(p, nil))
		}
	}
	return nil
}

// enter is the fetch-and-store of line 2, with the token and the caller's READs
// behind it, which count if the lock was free. With Try it is a CAS from null.
func (l *Locker) enter(p *place, r *lock.Request) (prev fabric.ClientID, err error) {
	l.wide = fabric.Wide{Swap: [2]uint64{uint64(p.id)}, SwapMask: [2]uint64{^uint64(0)}}
	if r.Try {
		l.wide.CmpMask[0] = ^uint64(0)
	}
	l.ops[0] = fabric.Op{Kind: fabric.OpMaskedCAS, Addr: r.Lock, Wide: &l.wide}
	n := 1
	if !l.cfg.Plain {
		l.ops[1] = fabric.Load(r.Lock.Add(tokenOffset))
		n++
	}
	first := n
	n += copy(l.ops[n:], r.Reads)
	err = l.port.Do(l.ops[:n])
	l.stats.AcquireOps += uint64(first)
	done := executed(err, n)
	if done == 0 {
		return 0, err
	}
	w := word(l.wide.Old[0])
	switch {
	case w.corrupt():
		l.ops[0] = fabric.CAS(r.Lock, uint64(p.id), uint64(w)) // as it was
		return 0, errors.Join(corrupt(r.Lock, w), l.port.Do(l.ops[:1]))
	case w != 0:
		return w.tail(), nil // what the READs found does not matter
	}
	p.granted = true
	if !l.cfg.Plain && done > 1 {
		p.token = lock.Token(l.ops[1].Old) + 1
	}
	copy(r.Reads, l.ops[first:n])
	return 0, err
}

// executed returns how many operations of a chain of n were executed for certain.
func executed(err error, n int) int {
	if err == nil {
		return n
	}
	var ce *fabric.ChainError
	if errors.As(err, &ce) {
		return ce.Index
	}
	return 0
}

// receive takes the next message, and notes what it says about a place.
func (l *Locker) receive(deadline fabric.Time) error {
	m, err := l.port.Recv(deadline)
	if err != nil {
		return err
	}
	if p := l.find(fabric.Addr(m.Body[0])); p != nil && uint64(p.id) == m.Body[1] {
		p.note(&m)
	}
	return nil
}

// note takes note of a message about the place.
func (p *place) note(m *fabric.Message) {
	switch m.Kind {
	case msgSuccessor:
		p.next = m.From
	case msgHandover:
		p.granted, p.token = true, lock.Token(m.Body[2])
	}
}

// leave leaves the place to the node's agent, which does what is still to be done in the name
// that the client leaves behind.
func (l *Locker) leave(p *place, err error) error {
	switch {
	case errors.Is(err, fabric.ErrDeadline):
		err = lock.ErrTimeout
		l.stats.Cancels++
	case errors.Is(err, fabric.ErrInterrupted):
		err = lock.ErrCanceled
		l.stats.Cancels++
	}
	return errors.Join(err, l.abandon(p))
}

// leaveRelease is leave for a release, which an interrupt does not end: the agent goes on with it.
func (l *Locker) leaveRelease(p *place, err error) error {
	if errors.Is(err, fabric.ErrInterrupted) {
		err = nil
	}
	return errors.Join(err, l.abandon(p))
}

// abandon leaves the client's name, and the place with it, to the agent.
func (l *Locker) abandon(p *place) error {
	owed := 0
	for _, q := range l.places {
		if q.id == p.id {
			owed++
		}
	}
	if err := l.port.Abandon(); err != nil {
		l.drop(p)
		return fmt.Errorf("place in the queue is lost: %w", err)
	}
	return l.bequeath(p, owed)
}

// bequeath gives the place to the node's agent. owed is how many places it is to
// expect of the name, this one included, if it has not been told yet.
func (l *Locker) bequeath(p *place, owed int) error {
	granted := uint64(0)
	if p.granted {
		granted = 1
	}
	m := fabric.Message{Kind: msgOrphan, Body: [7]uint64{uint64(p.lock), uint64(p.id), uint64(p.token), granted, uint64(p.next), uint64(owed)}}
	l.drop(p)
	return l.port.Send(fabric.AgentOf(p.id.CN()), &m)
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	p, ok := h.Aux.(*place)
	if !h.Held || !ok || l.find(h.Lock) != p || len(before) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %v, %d operations before release", lock.ErrMisuse, h.Lock, len(before))
	}
	h.Held, h.Aux = false, nil
	if err := l.release(p, before); err != nil {
		return fmt.Errorf("mcs: release %v %v: %w", h.Mode, h.Lock, err)
	}
	return nil
}

// release is MCS-RELEASE. The place is given back in any case.
func (l *Locker) release(p *place, before []fabric.Op) error {
	for p.next == 0 { // C.next: the message may be in the inbox
		if err := l.receive(0); err != nil {
			break
		}
	}
	if p.id != l.port.ID() || p.next != 0 {
		err := l.port.Do(before)
		if p.id != l.port.ID() {
			return errors.Join(err, l.bequeath(p, 0)) // messages to the old name come to the agent
		}
		return errors.Join(err, l.handOver(p))
	}
	freed, done, err := l.free(p, before)
	if freed || !done {
		l.drop(p)
		return err
	}
	for p.next == 0 {
		if e := l.receive(fabric.Forever); e != nil {
			return errors.Join(err, l.leaveRelease(p, e))
		}
	}
	return errors.Join(err, l.handOver(p))
}

// free sets the tail to null if it is the place's (line 8), in one chain with the operations of before.
// If one of those fails, the tail is set all the same. done is false if the CAS was not executed, or nobody knows.
func (l *Locker) free(p *place, before []fabric.Op) (freed, done bool, err error) {
	n := copy(l.ops[:], before)
	m := n + p.freeOps(l.ops[n:], l.cfg)
	err = l.port.Do(l.ops[:m])
	copy(before, l.ops[:n])
	if err != nil {
		if errors.Is(err, fabric.ErrUnknownOutcome) || executed(err, m) >= n {
			return false, false, err
		}
		m = p.freeOps(l.ops[:], l.cfg)
		if e := l.port.Do(l.ops[:m]); e != nil {
			return false, false, errors.Join(err, e)
		}
	}
	return l.ops[m-1].Swapped(), true, err
}

// freeOps puts the operations that free the lock if the place is its queue's last into
// ops, and returns how many they are. The last is the CAS.
func (p *place) freeOps(ops []fabric.Op, cfg Config) int {
	n := 0
	if !cfg.Plain && p.token != 0 {
		ops[0] = fabric.Store(p.lock.Add(tokenOffset), uint64(p.token))
		n++
	}
	ops[n] = fabric.CAS(p.lock, uint64(p.id), 0)
	return n + 1
}

// handOver sets the successor's flag (line 11).
func (l *Locker) handOver(p *place) error {
	l.stats.HandoversRemote++
	m := p.handover()
	next := p.next
	l.drop(p)
	return l.port.Send(next, &m)
}

func (p *place) handover() fabric.Message {
	return fabric.Message{Kind: msgHandover, Body: [7]uint64{uint64(p.lock), uint64(p.next), uint64(p.token) + 1}}
}

// find returns the client's place for a lock, or nil.
func (l *Locker) find(a fabric.Addr) *place {
	for _, p := range l.places {
		if p.lock == a {
			return p
		}
	}
	return nil
}

func (l *Locker) newPlace(a fabric.Addr) *place {
	var p *place
	if n := len(l.spare); n > 0 {
		p, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		p = new(place)
	}
	*p = place{lock: a, id: l.port.ID()}
	l.places = append(l.places, p)
	return p
}

// drop gives a place back.
func (l *Locker) drop(p *place) {
	for i, q := range l.places {
		if q == p {
			n := len(l.places) - 1
			l.places[i] = l.places[n]
			l.places = l.places[:n]
			l.spare = append(l.spare, p)
			return
		}
	}
}
