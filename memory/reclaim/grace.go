package reclaim

import (
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// A Grace counts epochs, so that a compute node can tell that something was done so long ago that no operation of that time is under way any more, on no compute node. The epoch
// is a word of a part, and each member acknowledges it in a field of its own beside:
//
//   - A member that sees a new epoch is in it from then on, and acknowledges it when all operations have ended that began before.
//   - Any member begins the next epoch when all live members have acknowledged the one there is. (Crashed nodes are fenced before any view shows them dead.)
//
// So while an operation is under way that began when its member was in epoch e, the epoch is e or e+1; and what a member that is in epoch e does, it does in epoch e or e+1.
// An operation of unknown outcome may take effect until a later chain of its compute node is executed at the same memory node (fabric.ErrUnknownOutcome): that is the
// acknowledgement, at the latest, for each part has epochs of its own.
//
//	offset  bytes
//	0x000      8    epoch
//	0x040    512    epochs that compute nodes have acknowledged, by number: the low 16 bits
type Grace struct {
	at      fabric.Addr
	epoch   atomic.Uint64 // that this compute node is in, and 1; 0: not known yet
	awaited atomic.Uint64 // as epoch: one that something here waits for

	stepping atomic.Bool // a goroutine is in Step: what follows is its own
	seen     uint64      // as epoch, the last time
	acked    bool
	waiting  []waiting   // operations that began before it was seen
	since    fabric.Time // when it was seen
}

// GraceBytes is how much memory of a part a Grace needs. Zero memory is epoch 0.
const GraceBytes = acksAt + 2*maxNodes

const (
	acksAt   = 0x40
	ackBits  = 16
	acksEach = 64 / ackBits // in a word
)

// Init says where the words are.
func (g *Grace) Init(at fabric.Addr) { g.at = at }

// Epoch returns the epoch that this compute node is in. The caller is a User that has entered, and the compute node is registered.
func (g *Grace) Epoch(do func([]fabric.Op) error) (uint64, error) {
	if e := g.epoch.Load(); e != 0 {
		return e - 1, nil
	}
	e, err := execute(do, "epoch", fabric.Load(g.at))
	if err != nil {
		return 0, err
	}
	g.epoch.CompareAndSwap(0, e+1)
	return g.epoch.Load() - 1, nil
}

// Await says that something waits for an epoch: until then epochs are shorter, if all members step as often.
func (g *Grace) Await(e uint64) {
	for was := g.awaited.Load(); was < e+1 && !g.awaited.CompareAndSwap(was, e+1); {
		was = g.awaited.Load()
	}
}

// Awaited reports whether an epoch is waited for that this compute node is not in yet.
func (g *Grace) Awaited() bool { return g.awaited.Load() > g.epoch.Load() }

// awaitedNs is how long an epoch lasts, at most, before the next one is begun that is waited for.
const awaitedNs = 100 * fabric.Millisecond

// GraceStep does this member's part for the next epoch: it acknowledges the one there is, and begins the next one if all have, at the earliest every after this one was seen,
// or sooner if that is waited for. It does not wait: it is to be called again and again.
func (m *Member) GraceStep(g *Grace, o Owner, every fabric.Time) error {
	if !g.stepping.CompareAndSwap(false, true) {
		return nil
	}
	defer g.stepping.Store(false)
	e, err := execute(o.Do, "epoch", fabric.Load(g.at))
	if err != nil {
		return err
	}
	if g.seen != e+1 {
		g.epoch.Store(e + 1)
		g.seen, g.acked, g.waiting, g.since = e+1, false, m.underWay(), o.Port().Now()
	}
	if !g.acked {
		if g.waiting = stillUnderWay(g.waiting); len(g.waiting) > 0 {
			return nil
		}
		if err := g.acknowledge(m.cn, e, o.Do); err != nil {
			return err
		}
		g.acked = true
	}
	if g.Awaited() {
		every = min(every, awaitedNs)
	}
	if o.Port().Now() < g.since+every {
		return nil
	}
	all, err := m.acknowledged(g, o, e)
	if err != nil || !all {
		return err
	}
	_, err = execute(o.Do, "epoch", fabric.CAS(g.at, e, e+1))
	return err
}

// ackOf returns the word with the acknowledgement of a compute node, and the bit at which that begins.
func (g *Grace) ackOf(cn fabric.CNID) (a fabric.Addr, shift uint) {
	return g.at.Add(acksAt + uint64(cn)/acksEach*8), uint(cn) % acksEach * ackBits
}

const ackMask = 1<<ackBits - 1

func (g *Grace) acknowledge(cn fabric.CNID, e uint64, do func([]fabric.Op) error) error {
	a, shift := g.ackOf(cn)
	old, err := execute(do, "acknowledgements", fabric.Load(a))
	for err == nil {
		was := old
		w := was&^(ackMask<<shift) | e&ackMask<<shift
		if old, err = execute(do, "acknowledgements", fabric.CAS(a, was, w)); old == was {
			break
		}
	}
	return err
}

// acknowledged reports whether all live members have acknowledged an epoch.
func (m *Member) acknowledged(g *Grace, o Owner, e uint64) (bool, error) {
	t, err := readTable(o.Port(), o.Do, m.base)
	if err != nil {
		return false, err
	}
	v := o.View() // a compute node in the table has joined the cluster before: so it is in a view that is younger, unless it is dead
	var acks [maxNodes / acksEach]fabric.Op
	for i := range acks {
		acks[i] = fabric.Load(g.at.Add(acksAt + 8*uint64(i)))
	}
	for from := 0; from < len(acks); from += fabric.MaxChain {
		if err := o.Do(acks[from:min(from+fabric.MaxChain, len(acks))]); err != nil {
			return false, err
		}
	}
	for i, w := range t {
		cn := fabric.CNID(i)
		if !w.open() || !v.Live.Has(cn) {
			continue
		}
		if acks[i/acksEach].Old>>(uint(i)%acksEach*ackBits)&ackMask != e&ackMask {
			return false, nil
		}
	}
	return true, nil
}

// underWay returns which operations are under way.
func (t *Tracker) underWay() []waiting {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []waiting
	for _, u := range t.users {
		if n := u.count.Load(); n&1 != 0 {
			list = append(list, waiting{u, n})
		}
	}
	return list
}

// stillUnderWay returns which of them still are.
func stillUnderWay(list []waiting) (left []waiting) {
	for _, w := range list {
		if w.u.count.Load() == w.count {
			left = append(left, w)
		}
	}
	return left
}
