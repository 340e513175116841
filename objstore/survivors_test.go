package objstore

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A stepPort calls f, once, after some chains.
type stepPort struct {
	fabric.Port
	left int
	f    func()
}

func (p *stepPort) Do(ops []fabric.Op) error {
	if f := p.f; f != nil && p.left == 0 {
		p.f = nil
		f()
	}
	p.left--
	return p.Port.Do(ops)
}

// withoutMemory starts a memory node again, without its memory.
func (w *world) withoutMemory(i int) {
	w.t.Helper()
	w.c.RestartMN(w.mns[i])
	wantErr(w.t, "format", memory.Format(w.port(0), w.mns[i], memory.Params{Size: 16 << 20, CapacityLog2: 3, VersionBits: 16, Generation: 1}), nil)
}

// An attacher calls a function when it attaches to a memory node.
type attacher struct {
	lock.Locker
	attach func(fabric.MemID)
}

func (a *attacher) Attach(mn fabric.MemID) error { a.attach(mn); return nil }
func (a *attacher) Ready(fabric.Addr) error      { return nil }

// The first memory node goes down at any time while a second compute node opens a store, and comes back without its memory. The first part that is made anew then says that
// others outlived it, whether the second compute node has been notified of the loss or not: the first one, which has not, has chunks of those.
func TestFirstPartLostWhileOpened(t *testing.T) {
	for _, notified := range []bool{false, true} {
		made := 0
		for k, more := 0, true; more; k++ {
			w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 16<<20, 3)
			before := w.client(0, w.open(0, w.config()))
			p := &stepPort{Port: w.port(1), left: k, f: func() { w.c.KillMN(w.mns[0]) }}
			s, err := Open(p, w.config())
			if more = p.f == nil; !more || err != nil || s.h.Registered() {
				continue
			}
			w.withoutMemory(0)
			w.wantSurvivors(k, s, keyOn(before.s, 1), notified)
			made++
		}
		if made == 0 {
			t.Error("the first part was never missing")
		}
	}
}

// wantSurvivors has a store, opened without its first part, make that by a set. If it is notified, the compute node notices the loss when it meets the memory node.
func (w *world) wantSurvivors(k int, s *Store, key string, notified bool) {
	w.t.Helper()
	c, err := s.Client(&attacher{cas.New(w.port(1), cas.Config{}), func(mn fabric.MemID) {
		if mn == w.mns[0] && notified {
			notified = false
			s.MemoryLost(mn)
		}
	}})
	wantErr(w.t, "client", err, nil)
	err = c.Set([]byte(key), []byte("new"), Options{})
	if errors.Is(err, lock.ErrMemoryLost) {
		err = c.Set([]byte(key), []byte("new"), Options{})
	}
	wantErr(w.t, "set", err, nil)
	_, e, err := Stores.Lookup(w.port(2), "test", w.mns[0])
	if err != nil || e.Info[survivorsWord] == 0 {
		w.t.Errorf("down from chain %d on, notified %v: the first part does not say that others had outlived it: %v", k, notified, err)
	}
	wantErr(w.t, "reclaim beside a compute node that has not noticed the loss", c.Reclaim(w.cns[1].View), ErrUnanswered)
}

// A store is dropped while a client of it makes a lost part anew: the client does not use what it has made.
func TestDropWhileAPartIsMade(t *testing.T) {
	for k, more := 0, true; more; k++ {
		w, keys, _, s := downWorld(t, 2)
		w.withoutMemory(2)
		p := &stepPort{Port: w.port(1)}
		c, err := s.Client(cas.New(p, cas.Config{}))
		wantErr(t, "client", err, nil)
		var dropped error
		making := false
		p.left, p.f = k, func() {
			dropped, making = Stores.Drop(w.port(0), "test", w.mns, w.cns[0].View), s.h.Parts[2].Missing()
			if !errors.Is(dropped, memory.ErrHalfCreated) {
				wantErr(t, "drop", dropped, nil)
			}
		}
		err = c.Set([]byte(keys[2]), []byte("new"), Options{})
		if more = p.f == nil; making && dropped == nil && !errors.Is(err, ErrDropped) {
			t.Errorf("dropped at chain %d: set: %v, want %v", k, err, ErrDropped)
		}
	}
}
