package objstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// A stepPort calls f, once, after some chains.
type stepPort struct {
	fabric.Port
	until int
	f     func()
}

func (p *stepPort) Do(ops []fabric.Op) error {
	if f := p.f; f != nil && p.until == 0 {
		p.f = nil
		f()
	}
	p.until--
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
			p := &stepPort{Port: w.port(1), until: k, f: func() { w.c.KillMN(w.mns[0]) }}
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

// A store is opened while a memory node is down, before another one loses its memory or after. The lost part is made anew, whichever they are, and only the keys on the one
// that is down have to wait; without the first part there are no changes. When that is back, all goes on.
func TestLossBesideAMissingPart(t *testing.T) {
	for _, x := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d beside %d, opened after it %v", x[1], x[0], after), func(t *testing.T) { lossBesideAMissingPart(t, x[0], x[1], x[2], after) })
		}
	}
}

func lossBesideAMissingPart(t *testing.T, missing, lost, other int, after bool) {
	w, keys, _, s := downWorld(t, missing)
	w.c.KillMN(w.mns[lost])
	w.withoutMemory(lost)
	cn := 1
	if after {
		cn, s = 2, w.open(2, w.config())
	}
	c := w.client(cn, s) // with a Port of after the restart
	if !after {
		s.MemoryLost(w.mns[lost])
		_, err := c.Get([]byte(keys[other]))
		wantErr(t, "get after the loss", err, lock.ErrMemoryLost)
	}
	wantMiss(t, c, keys[lost])
	wantValue(t, c, keys[other], "old")
	_, err := c.Get([]byte(keys[missing]))
	wantErr(t, "get of what is down", err, fabric.ErrNodeDown)
	var want error
	if missing == 0 {
		want = fabric.ErrNodeDown
	}
	for _, i := range []int{lost, other} {
		wantErr(t, "set", c.Set([]byte(keys[i]), []byte("new"), Options{}), want)
	}
	w.c.RestartServer(w.mns[missing])
	c = w.client(cn, s) // with a Port of after the restart
	wantValue(t, c, keys[missing], "old")
	for _, key := range keys {
		wantErr(t, "set", c.Set([]byte(key), []byte("newest"), Options{}), nil)
		wantValue(t, c, key, "newest")
	}
	mustBeSound(t, c)
}

// All parts of a store are lost but one that is missing. What the geometry is only that one says, so nothing is made before it is back.
func TestAllLostButAMissingPart(t *testing.T) {
	for missing := range 3 {
		w, keys, _, s := downWorld(t, missing)
		for i := range 3 {
			if i != missing {
				w.c.KillMN(w.mns[i])
				w.withoutMemory(i)
				s.MemoryLost(w.mns[i])
			}
		}
		_, err := Open(w.port(2), w.config())
		wantErr(t, "open", err, fabric.ErrNodeDown)
		_, err = s.Client(cas.New(w.port(1), cas.Config{}))
		wantErr(t, "client", err, lock.ErrMemoryLost)
		w.c.RestartServer(w.mns[missing])
		_, err = s.Client(cas.New(w.port(1), cas.Config{})) // it opens the store anew
		wantErr(t, "client", err, lock.ErrMemoryLost)
		c := w.client(1, s)
		wantValue(t, c, keys[missing], "old")
		for _, key := range keys {
			wantErr(t, "set", c.Set([]byte(key), []byte("new"), Options{}), nil)
		}
		mustBeSound(t, c)
	}
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
		p.until, p.f = k, func() {
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

// A compute node that is not registered makes a lost part of a store anew, while all else of that is dropped and given back: nothing is left of it.
func TestDropGivesBackAllWhileAPartIsMade(t *testing.T) {
	one := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 16<<20, 1)
	empty, alone := one.freeBytes(one.port(0)), 0
	for k, more := 0, true; more; k++ {
		w, keys, _, s := downWorld(t, 0, 2)
		w.withoutMemory(2)
		w.c.Kill(w.cns[0])
		p, q := &stepPort{Port: w.port(1)}, w.port(2)
		wantErr(t, "pause", q.Pause(q.Now()+fabric.Second), nil)
		l := &attacher{Locker: cas.New(p, cas.Config{})}
		l.attach = func(mn fabric.MemID) { _ = p.Reattach(mn, w.cns[1].MemoryEpoch(mn)) }
		c, err := s.Client(l)
		wantErr(t, "client", err, nil)
		p.until, p.f = k, func() {
			w.c.RestartServer(w.mns[0])
			q = w.port(2)
			if err := Stores.Drop(q, "test", w.mns, w.cns[2].View); err != nil {
				wantErr(t, "drop", err, memory.ErrHalfCreated)
				alone++
			}
			wantErr(t, "free", handle.FreeDropped(q, w.mns, w.cns[2].View), nil)
		}
		_, err = c.Get([]byte(keys[2]))
		if more = p.f == nil; !more {
			break
		}
		if got := w.freeBytes(q); got != empty {
			t.Errorf("dropped at chain %d: get: %v; %d bytes are free, want %d", k, err, got, empty)
		}
		w.c.Close()
	}
	if alone == 0 {
		t.Error("no drop has found a claim")
	}
}
