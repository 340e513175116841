package check

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// hierLocker is what a hier.Locker has for users of stores and trees whose memory is not replicated.
type hierLocker interface {
	lock.Keeper
	lock.Attacher
	lock.Leaver
}

// A hurried Locker has a Port on whose clock a second passes in secondNs, from the second 1 on, so that objects
// expire while a scenario lasts. Only the store reads that clock; the Locker itself has its own Port. A pause takes as long as on
// any other Port.
type hurried struct {
	hierLocker
	port hurriedPort
}

type hurriedPort struct {
	fabric.Port
	secondNs fabric.Time
}

// Port implements lock.Locker.
func (h *hurried) Port() fabric.Port { return h.port }

// Under implements fabric.Under.
func (p hurriedPort) Under() fabric.Port { return p.Port }

// Now implements fabric.Port.
func (p hurriedPort) Now() fabric.Time {
	now := p.Port.Now()
	return fabric.Second + now/p.secondNs*fabric.Second + now%p.secondNs*fabric.Second/p.secondNs
}

// Pause implements fabric.Port.
func (p hurriedPort) Pause(until fabric.Time) error {
	return p.Port.Pause(p.Port.Now() + max(0, until-p.Now()))
}

func (p hurriedPort) seconds() uint32 { return uint32(p.Now() / fabric.Second) }

// roundedUp returns the second from which a TTL counts now; 0 if nothing expires.
func (w *world) roundedUp(p fabric.Port) uint32 {
	if w.s.SecondNs == 0 {
		return 0
	}
	return uint32((hurriedPort{p, w.s.SecondNs}.Now() + fabric.Second - 1) / fabric.Second)
}

var _ lock.Attacher = (*hurried)(nil)

// storeLocker returns a Locker for a client of the object store.
func (w *world) storeLocker(n *node, p fabric.Port) lock.Locker {
	k := w.locker(n, p)
	if w.s.SecondNs == 0 {
		return k
	}
	return &hurried{hierLocker: k.(hierLocker), port: hurriedPort{p, w.s.SecondNs}}
}

// seconds returns what a Port's clock shows, and the fastest of all nodes'; 0 if nothing expires.
func (w *world) seconds(p fabric.Port) (own, fastest uint32) {
	if w.s.SecondNs == 0 {
		return 0, 0
	}
	for _, n := range w.nodes {
		fastest = max(fastest, hurriedPort{n.sim.Agent(), w.s.SecondNs}.seconds())
	}
	return hurriedPort{p, w.s.SecondNs}.seconds(), fastest
}

// storeOp does an operation on the store and writes it down.
func (w *world) storeOp(st *objstore.Client, p fabric.Port, op oracle.StoreOp) (*oracle.StoreOp, error) {
	before := *st.Stats()
	op.Began, _ = w.seconds(p)
	op.First = w.roundedUp(p)
	op.Evicted = w.s.Room > 0 && w.s.NoEvict == 0 // not known if its client crashes
	o := w.store.Begin(op)
	w.tap.drawBegin(p, o)
	err := doStore(st, o, w.s.Room > 0)
	o.Ended, o.Fastest = w.seconds(p)
	o.Last = w.roundedUp(p)
	evicted := st.Stats().Evictions - before.Evictions
	if o.Result != oracle.Unknown { // an eviction of unknown outcome leaks a chunk
		o.Evicted = o.Evicted && evicted+st.Stats().Leaked-before.Leaked > 0
	}
	w.counts.Evicted += evicted
	w.counts.Moved += st.Stats().Moved - before.Moved
	w.counts.Absorbed += st.Stats().Absorbed - before.Absorbed
	w.counts.Open += st.Stats().Open - before.Open
	w.counts.Expired += st.Stats().Expired - before.Expired
	w.store.End(o)
	w.tap.drawEnd(p, o.String())
	return o, err
}

// lifetime draws what memory there is and when objects expire, of classes StoreExpiry and StoreEvict.
func (s *Scenario) lifetime(d *drawer) {
	s.SecondNs = pick(d, 5*fabric.Microsecond, 20*fabric.Microsecond, 100*fabric.Microsecond)
	s.Expiring = pick(d, 50, 100)
	s.EpochNs, s.SkewNs = 0, pick(d, 0, s.SecondNs/2, 4*s.SecondNs)
	s.Keys, s.Values = d.between(1, 6), pick(d, 0, 20, 200, 3000)
	s.ThinkNs = pick(d, 0, s.SecondNs/2, 2*s.SecondNs)
	if s.Class == StoreEvict {
		s.Expiring = pick(d, 0, 0, 50)
		s.Keys = d.between(4, 24)
		all := uint64(s.Keys*(128+s.Values)) * uint64(d.between(30, 120)) / 100
		s.Room = int(all/uint64(s.MNs)) + 512
		if d.percent(10) { // more than the buckets have slots for
			s.CNs, s.Clients, s.MNs, s.Keys, s.Values, s.Rounds = 4, 4, 1, 200, 20, 60
			s.Room = 64 << 10
		}
	}
	s.layoutFor(d)
}
