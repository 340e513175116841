package btree

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// A losing is a Locker that attaches its client as package hier does, and says like it that a lock was lost when its epoch had ended.
type losing struct{ attaching }

func (l *losing) Release(h *lock.Hold, before []fabric.Op) error {
	err := l.attaching.Release(h, before)
	if errors.Is(err, fabric.ErrStaleEpoch) {
		err = errors.Join(lock.ErrLost, err)
	}
	return err
}

// A number goes over to its backup at any moment of a change: the change is made, once, and its caller hears of nothing.
func TestChangeWhileItsNumberGoesOver(t *testing.T) {
	type step struct {
		name string
		do   func(c *Client) error
		key  string
		want string
	}
	large := string(bytes.Repeat([]byte("large"), 3000))
	steps := []step{
		{"put", func(c *Client) error { return c.Put([]byte("05"), []byte("2")) }, "05", "2"},
		{"put of a large value", func(c *Client) error { return c.Put([]byte("05"), []byte(large)) }, "05", large},
		{"insert", func(c *Client) error { return c.Insert([]byte("nn"), []byte("2")) }, "nn", "2"},
		{"compare and put", func(c *Client) error { return c.CompareAndPut([]byte("05"), []byte("1"), []byte("2")) }, "05", "2"},
		{"delete", func(c *Client) error { return c.Delete([]byte("05")) }, "05", ""},
		{"flush", func(c *Client) error { _, err := c.Flush(); return err }, "05", ""},
		{"inserts that split", func(c *Client) error {
			for i := range 30 {
				if err := c.Insert([]byte{byte('A' + i)}, []byte("2")); err != nil {
					return err
				}
			}
			return nil
		}, "C", "2"},
		{"deletes that empty leaves", func(c *Client) error {
			for i := range 20 {
				if err := c.Delete(fmt.Appendf(nil, "%02d", i)); err != nil {
					return err
				}
			}
			return nil
		}, "05", ""},
	}
	for _, s := range steps {
		for when := range fabrictest.OverMoments {
			for copies := 2; copies <= 3; copies++ {
				chains := 0
				for over := true; over && !t.Failed(); chains++ {
					over = changeOver(t, when, chains+1, copies, s.do, fmt.Sprintf("%s, over to the first of %d copies at chain %d, at moment %d", s.name, copies, chains+1, when), s.key, s.want)
				}
				if chains == 1 {
					t.Errorf("%s: no chain goes to a backup", s.name)
				}
			}
		}
	}
}

// changeOver does something to a tree while the number of its memory goes over to the first backup, at a chain to a backup, and reports whether there was such a chain. A key is to be there with a value then, or not.
func changeOver(t *testing.T, when fabrictest.OverMoment, chain, copies int, do func(c *Client) error, what, key, want string) (over bool) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, copies)
	defer w.c.Close()
	p := fabrictest.NewGoingOver(w.port(0))
	p.When, p.Over = when, func() { wantErr(t, "promote", w.c.Promote(w.mns[0]), nil); over = true }
	c, err := w.open(0, w.tiny()).Client(&losing{attaching{cas.New(p, cas.Config{Plain: true}), w.cns[0]}})
	wantErr(t, "client", err, nil)
	for i := range 20 {
		wantErr(t, "put", c.Put(fmt.Appendf(nil, "%02d", i), []byte("1")), nil)
	}
	p.Chain = chain
	if err := do(c); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	d := w.client(1, w.open(1, w.tiny()))
	if got, err := d.Get([]byte(key)); (err == nil) != (want != "") || string(got) != want {
		t.Errorf("%s: %.20q, %v, want %.20q", what, got, err, want)
	}
	mustBeSound(t, d)
	return over
}

// A relocking is a Locker before whose next acquisition something happens.
type relocking struct {
	losing
	before func()
}

func (l *relocking) Acquire(h *lock.Hold, r *lock.Request) error {
	if f := l.before; f != nil {
		l.before = nil
		f()
	}
	return l.losing.Acquire(h, r)
}

// A put has reached one of two backups when the other serves, and it is to be begun again. Before that the one that it has reached serves: others may have seen it there, so it is not made once more, whatever it would find.
func TestChangeThatShowsAtALaterPrimary(t *testing.T) {
	changes := map[string]func(c *Client) error{
		"put":    func(c *Client) error { return c.Put([]byte("05"), []byte("2")) },
		"insert": func(c *Client) error { return c.Insert([]byte("nn"), []byte("2")) },
		"delete": func(c *Client) error { return c.Delete([]byte("05")) },
	}
	for name, do := range changes {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
		p := fabrictest.NewGoingOver(w.port(0))
		l := &relocking{losing: losing{attaching{cas.New(p, cas.Config{Plain: true}), w.cns[0]}}}
		c, err := w.open(0, w.tiny()).Client(l)
		wantErr(t, "client", err, nil)
		for i := range 20 {
			wantErr(t, "put", c.Put(fmt.Appendf(nil, "%02d", i), []byte("1")), nil)
		}
		wantErr(t, "put", c.Put([]byte("05"), []byte("1")), nil) // the first chain to a backup of the next is that of its leaf
		wantErr(t, "put", c.Put([]byte("nn"), []byte("1")), nil)
		wantErr(t, "delete", c.Delete([]byte("nn")), nil)
		p.Chain, p.When = 1, fabrictest.Executed
		p.Over = func() {
			wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
			l.before = func() { w.c.KillMN(1) }
		}
		began := c.port.Now()
		wantErr(t, name, do(c), fabric.ErrUnknownOutcome)
		if l.before != nil {
			t.Errorf("%s: it was not begun again", name)
		}
		if waited := c.port.Now() - began; waited > 5*fabric.Second { // as for a memory node that is to be replaced
			t.Errorf("%s: it has waited for %v, and nothing more was to become of it", name, waited)
		}
	}
}

// A silent is a Locker of which nobody knows what has come of its next release that changes something.
type silent struct {
	relocking
	lost bool
}

func (l *silent) Release(h *lock.Hold, before []fabric.Op) error {
	err := l.relocking.Release(h, before)
	if l.lost && len(before) > 0 {
		l.lost = false
		err = errors.Join(fabric.ErrUnknownOutcome, err)
	}
	return err
}

// A put has been made, and its client does not know that: it is not made once more. So it is when it was begun again after a first attempt that has reached a backup which does not serve, and when there are no backups left.
func TestPutOfUnknownOutcomeIsNotBegunAgain(t *testing.T) {
	for _, copies := range []int{2, 3} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, copies)
		p := fabrictest.NewGoingOver(w.port(0))
		l := &silent{relocking: relocking{losing: losing{attaching{cas.New(p, cas.Config{Plain: true}), w.cns[0]}}}}
		c, err := w.open(0, w.tiny()).Client(l)
		wantErr(t, "client", err, nil)
		for range 2 {
			wantErr(t, "put", c.Put([]byte("k"), []byte("1")), nil)
		}
		if copies == 2 {
			w.c.KillMN(w.c.Group(w.mns[0]).Replicas[1].ID)
			wantErr(t, "put", c.Put([]byte("k"), []byte("1")), nil)
			l.lost = true
		} else {
			p.Chain, p.When = 1, fabrictest.Executed
			p.Over = func() {
				wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
				l.before = func() { l.lost = true }
			}
		}
		wantErr(t, fmt.Sprintf("%d copies: put", copies), c.Put([]byte("k"), []byte("2")), fabric.ErrUnknownOutcome)
		if l.lost || l.before != nil {
			t.Errorf("%d copies: nothing was lost", copies)
		}
		w.c.Close()
	}
}

// A put has reached one of two backups of a leaf, and is to be begun again. The one that it has reached serves meanwhile, others have seen the put there and changed it, and a split has taken the key to another memory node:
// the put is not made once more there.
func TestChangeThatShowsAtALaterPrimaryOfAnotherPart(t *testing.T) {
	moved := 0
	for i := range 20 {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 2, 1<<20, 2, 3)
		p := fabrictest.NewGoingOver(w.port(0))
		l := &relocking{losing: losing{attaching{cas.New(p, cas.Config{Plain: true}), w.cns[0]}}}
		c, err := w.open(0, w.tiny()).Client(l)
		wantErr(t, "client", err, nil)
		for i := range 20 {
			wantErr(t, "put", c.Put(fmt.Appendf(nil, "%c0", 'A'+i), []byte("1")), nil)
		}
		d := w.client(1, w.open(1, w.tiny()))
		key := fmt.Appendf(nil, "%c0", 'A'+i)
		at := func() int {
			d.search.begin(0, key, false, true)
			wantErr(t, "seek", d.seek(&d.search, &d.n, d.leaf), nil)
			wantErr(t, "unlock", d.unlock(nil), nil)
			return d.n.self.node()
		}
		wantErr(t, "put", c.Put(key, []byte("1")), nil)
		if at() != 0 {
			continue
		}
		goesOn := false
		p.Chain, p.When = 1, fabrictest.Executed
		p.Over = func() {
			wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
			l.before = func() {
				w.c.KillMN(1)
				wantErr(t, "attach", d.l.Port().Reattach(w.mns[0], w.cns[1].MemoryEpoch(w.mns[0])), nil)
				if v, err := d.Get(key); string(v) != "2" {
					t.Errorf("%s: it does not show: %q, %v", key, v, err)
				}
				wantErr(t, "put", d.Put(key, []byte("3")), nil)
				for j := '9'; j > '0' && at() == 0; j-- {
					_ = d.Put(fmt.Appendf(nil, "%c%c", 'A'+i-1, j), []byte("1"))
				}
				goesOn = at() == 1
			}
		}
		err = c.Put(key, []byte("2"))
		if goesOn {
			moved++
			v, gerr := d.Get(key)
			if !errors.Is(err, fabric.ErrUnknownOutcome) || string(v) != "3" {
				t.Errorf("%s: put: %v; %q, %v", key, err, v, gerr)
			}
		}
	}
	if moved == 0 {
		t.Error("no key has moved")
	}
}
