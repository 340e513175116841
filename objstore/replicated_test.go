package objstore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// All that operations change is at the backups, whatever they are: overflow blocks, evictions, moves, flushes, expiry. What a promotion leaves is what there was.
func TestBackupsHaveAll(t *testing.T) {
	for _, copies := range []int{2, 3} {
		for _, noEvict := range []bool{false, true} {
			w := newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal()}, 1, 512<<10, 1, copies)
			cfg := w.config()
			cfg.Objects, cfg.NoEvict, cfg.MaxValue = 20, noEvict, 40000
			s := w.open(0, cfg)
			c := w.client(0, s)
			c.SetNow(10)
			same := func(what string) {
				t.Helper()
				r, err := c.Check(CheckOptions{Backups: true})
				wantErr(t, what, err, nil)
				if !r.Sound() {
					t.Fatalf("%d copies, %s: %v", copies, what, r)
				}
			}
			change := func(round, size int) {
				for i := range 250 {
					key := keyOf(i)
					_ = c.Set(key, make([]byte, size+i*7), Options{TTL: uint32(i % 3)})
					_ = c.Append(key, []byte("x"))
					if i%4 == round%4 {
						_ = c.Delete(key)
					}
					_ = c.Touch(keyOf(i/2), 50)
				}
			}
			for round, size := range []int{100, 6000, 30, 20000, 500} {
				c.SetNow(uint32(10 + 2*round))
				change(round, size)
				same(fmt.Sprint("sizes from ", size))
				if round == 1 {
					n, err := c.Flush()
					if wantErr(t, "flush", err, nil); n == 0 {
						t.Error("nothing was flushed")
					}
					same("flush")
				}
			}
			if st := c.Stats(); st.Overflows == 0 || !noEvict && st.Evictions == 0 || st.Collected == 0 || noEvict && st.Moved == 0 {
				t.Errorf("%d copies: %+v: that is too little", copies, *st)
			}
			have := map[string]string{}
			for i := range 250 {
				if it, err := c.Get(keyOf(i)); err == nil {
					have[string(keyOf(i))] = string(it.Value)
				}
			}
			for range copies - 1 {
				wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
				d := w.client(0, w.open(0, cfg))
				d.SetNow(c.nowS)
				for key, value := range have {
					wantValue(t, d, key, value)
				}
				c = d
				same("promoted")
				wantErr(t, "set", c.Set(b("new"), b("value"), Options{}), nil)
			}
			n, err := c.Flush()
			if wantErr(t, "flush", err, nil); n < uint64(len(have)) {
				t.Errorf("flush of %d, %d were there", n, len(have))
			}
			same("flush")
		}
	}
}

// A promotion leaves the free bits behind: what was free is found, without that it is asked for, and no block that an object has.
func TestReplicatedReclaim(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	c, err := w.open(0, w.config()).Client(cas.New(w.port(0), cas.Config{}))
	wantErr(t, "client", err, nil)
	for i := range 200 {
		wantErr(t, "set", c.Set(keyOf(i), make([]byte, 200), Options{}), nil)
	}
	for i := range 180 {
		wantErr(t, "delete", c.Delete(keyOf(i)), nil)
	}
	wantErr(t, "drain", c.Drain(), nil)
	elsewhere := func() (n uint64) {
		r, err := c.Check(CheckOptions{})
		if wantErr(t, "check", err, nil); !r.Sound() {
			t.Error(r)
		}
		for i := range r.Nodes {
			n += r.Nodes[i].Elsewhere
		}
		return n
	}
	walkAll(t, c, w.cns[0].View)
	if n := elsewhere(); n > 0 {
		t.Errorf("%d bytes are leaked", n)
	}
	wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
	c = w.client(0, w.open(0, w.config())) // these locks do not outlast a promotion
	if n := elsewhere(); n == 0 {
		t.Error("the promotion has left nothing behind")
	}
	walkAll(t, c, w.cns[0].View)
	wantErr(t, "drain", c.Drain(), nil)
	if n := elsewhere(); n > 0 {
		t.Errorf("%d bytes are leaked", n)
	}
	for i := 180; i < 200; i++ {
		wantValue(t, c, string(keyOf(i)), string(make([]byte, 200)))
	}
}

// Clients of before and after a promotion have uniques of their own, also if one crashed before the backups had its incarnation.
func TestUniquesAfterAPromotion(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
	seen := map[uint64]bool{}
	for term := range 3 {
		for i := range 4 {
			c := w.client(i%2, w.open(i%2, w.config()))
			if u := c.uniques[0].next; seen[u] {
				t.Errorf("term %d: unique %#x again", term+1, u)
			} else {
				seen[u] = true
			}
		}
		if term < 2 {
			wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
		}
	}
}

// The memory of a dropped store is not given back while a compute node has it open, though a backup serves by then.
func TestDropAfterAPromotion(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
	c := w.client(0, w.open(0, w.config()))
	wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
	wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
	p := w.port(1)
	r, err := memory.Open(p, w.mns[0])
	wantErr(t, "open", err, nil)
	wantErr(t, "drop", Stores.Drop(p, "test", w.mns, w.cns[1].View), nil)
	if list, err := r.Retired(p); err != nil || len(list) != 1 {
		t.Errorf("%d retired stores have memory, want one: %v", len(list), err)
	}
	w.c.Kill(w.cns[0])
	wantErr(t, "run", w.c.Run(), nil)
	wantErr(t, "free", handle.FreeDropped(p, w.mns, w.cns[1].View), nil)
	if list, err := r.Retired(p); err != nil || len(list) != 0 {
		t.Errorf("%d retired stores have memory, want none: %v", len(list), err)
	}
}

// What a client that crashed has written to a backup only is gone when another client has changed the bucket: else it would come back with a promotion, beside what that client
// wrote.
func TestWriteOfACrashedClientDoesNotComeBack(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
	cfg := w.config()
	cfg.Objects = 1
	c := w.client(0, w.open(0, cfg))
	wantErr(t, "set", c.Set(b("old"), b("1"), Options{}), nil)
	k := work{look: look{head: true}}
	wantErr(t, "begin", c.beginChange(&k, b("key")), nil)
	ch, err := c.alloc(k.n, classFor(200))
	wantErr(t, "alloc", err, nil)
	wantErr(t, "lookup", c.lookup(&k, lock.Exclusive), nil)
	begun, err := c.mirrorChange(&k, nil, slotChange{k.vacant, uint64(makeSlot(k.fp, ch, 200, 1))})
	if wantErr(t, "mirror", err, nil); !begun {
		t.Fatal("nothing is written")
	}
	w.c.Kill(w.cns[0])
	wantErr(t, "run", w.c.Run(), nil)
	s := w.open(1, cfg)
	clearLocks(w, s)
	d := w.client(1, s)
	wantErr(t, "delete", d.Delete(b("old")), nil)
	r, err := d.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() {
		t.Error(r)
	}
}

// A waiting is a Locker that says of each acquisition that it waited, and keeps what the last release handed on.
type waiting struct {
	*cas.Locker
	handedOn []byte
}

func (l *waiting) Acquire(h *lock.Hold, r *lock.Request) error {
	l.Stats().LocalWaits++
	return l.Locker.Acquire(h, r)
}

func (l *waiting) Release(h *lock.Hold, before []fabric.Op) error {
	l.handedOn = h.Handoff
	return l.Locker.Release(h, before)
}

// A failing is a Port that reaches no backups any more when it is told so.
type failing struct {
	*sim.Port
	fail bool
}

func (p *failing) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if p.fail {
		return 0, fabric.ErrFenced
	}
	return p.Port.PostBackup(g, i, ops)
}

// A release after a write that has failed at a backup hands nothing on: the slots are not what they were to be.
func TestFailedWriteHandsNothingOn(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	p := &failing{Port: w.port(0).(*sim.Port)}
	l := &waiting{Locker: cas.New(p, cas.Config{})}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	if wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil); l.handedOn == nil {
		t.Fatal("nothing is handed on")
	}
	p.fail = true
	wantErr(t, "set", c.Set(b("k"), b("2"), Options{}), fabric.ErrFenced)
	if l.handedOn != nil {
		t.Errorf("%d bytes are handed on", len(l.handedOn))
	}
	wantValue(t, c, "k", "1")
}

// A robbed is a Locker whose lock is taken from it before it releases, and what it was to change is changed.
type robbed struct {
	*cas.Locker
	rob func(change *fabric.Op)
}

func (l *robbed) Release(h *lock.Hold, before []fabric.Op) error {
	if l.rob != nil {
		l.rob(&before[len(before)-1])
	}
	return l.Locker.Release(h, before)
}

// A change that fails at the primary, since the lock was taken from its client, frees nothing: the backups lead to its object.
func TestFailedChangeFreesNothing(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	l := &robbed{Locker: cas.New(w.port(0), cas.Config{})}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	var named slotWord
	l.rob = func(change *fabric.Op) {
		wantErr(t, "rob", c.port.Do([]fabric.Op{fabric.Store(change.Addr, 0)}), nil)
		slot := make([]byte, slotSize)
		w.c.PeekBackup(change.Addr, 1, slot)
		named, l.rob = slotWord(wordAt(slot, 0)), nil
	}
	wantErr(t, "set", c.Set(b("k"), b("2"), Options{}), lock.ErrLost)
	if named == 0 {
		t.Fatal("the backup leads to nothing")
	}
	for range 20 {
		if ch, err := c.alloc(c.s.h.Parts[0], named.class()); err != nil || ch == named.chunk() {
			t.Fatalf("chunk %v is free, and the backup leads to it: %v", ch, err)
		}
	}
}
