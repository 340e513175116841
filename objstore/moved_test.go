package objstore

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
type losing struct {
	*cas.Locker
	n *sim.Node
}

func (l *losing) Ready(fabric.Addr) error { return nil }

func (l *losing) Attach(mn fabric.MemID) error { return l.Port().Reattach(mn, l.n.MemoryEpoch(mn)) }

func (l *losing) Release(h *lock.Hold, before []fabric.Op) error {
	err := l.Locker.Release(h, before)
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
		want string
	}
	steps := []step{
		{"set", func(c *Client) error { return c.Set(b("k"), b("2"), Options{}) }, "2"},
		{"a set of a new key", func(c *Client) error { return c.Set(b("new"), b("2"), Options{}) }, "1"},
		{"add", func(c *Client) error { return c.Add(b("new"), b("2"), Options{}) }, "1"},
		{"replace", func(c *Client) error { return c.Replace(b("k"), b("2"), Options{}) }, "2"},
		{"append", func(c *Client) error { return c.Append(b("k"), b("x")) }, "1x"},
		{"incr", func(c *Client) error { _, err := c.Incr(b("k"), 5); return err }, "6"},
		{"touch", func(c *Client) error { return c.Touch(b("k"), 50) }, "1"},
		{"delete", func(c *Client) error { return c.Delete(b("k")) }, ""},
		{"flush", func(c *Client) error { _, err := c.Flush(); return err }, ""},
	}
	for _, s := range steps {
		for when := range fabrictest.OverMoments {
			for _, to := range []goal{{2, 1}, {3, 1}, {3, 2}} {
				chains := 0
				for over := true; over; chains++ {
					over = changeOver(t, when, chains+1, to, s.do, fmt.Sprintf("%s, over to %v of %d copies at chain %d, at moment %d", s.name, to.host, to.copies, chains+1, when), s.want)
				}
				if chains == 1 {
					t.Errorf("%s: no chain goes to a backup", s.name)
				}
			}
		}
	}
}

// A goal says to which backup a number of some copies goes over.
type goal struct {
	copies int
	host   fabric.MemID
}

// changeOver does something to a store while the number of its memory goes over to the backup on a memory node, at a chain to a backup, and reports whether there was such a chain. k is to be there with a value then, or not.
func changeOver(t *testing.T, when fabrictest.OverMoment, chain int, to goal, do func(c *Client) error, what, want string) (over bool) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, to.copies)
	defer w.c.Close()
	p := fabrictest.NewGoingOver(w.port(0))
	p.When, p.Over = when, func() { wantErr(t, "promote", w.c.PromoteTo(w.mns[0], to.host), nil); over = true }
	c, err := w.open(0, w.config()).Client(&losing{cas.New(p, cas.Config{Plain: true}), w.cns[0]})
	wantErr(t, "client", err, nil)
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	p.Chain = chain
	if err := do(c); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	d := w.client(1, w.open(1, w.config()))
	if got, err := d.Get(b("k")); (err == nil) != (want != "") || string(got.Value) != want {
		t.Errorf("%s: %q, %v, want %q", what, got.Value, err, want)
	}
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

// A set has reached one of two backups when the other serves, and it is to be begun again. Before that the one that it has reached serves: others may have seen it there, so it is not made once more, whatever it would find.
func TestChangeThatShowsAtALaterPrimary(t *testing.T) {
	changes := map[string]func(c *Client) error{
		"set":    func(c *Client) error { return c.Set(b("k"), b("2"), Options{}) },
		"add":    func(c *Client) error { return c.Add(b("new"), b("2"), Options{}) },
		"delete": func(c *Client) error { return c.Delete(b("k")) },
		"touch":  func(c *Client) error { return c.Touch(b("k"), 50) },
	}
	for name, do := range changes {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
		p := fabrictest.NewGoingOver(w.port(0))
		l := &relocking{losing: losing{cas.New(p, cas.Config{Plain: true}), w.cns[0]}}
		c, err := w.open(0, w.config()).Client(l)
		wantErr(t, "client", err, nil)
		wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
		p.Chain, p.When = 1, fabrictest.Executed
		p.Over = func() {
			wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
			l.before = func() {
				w.c.KillMN(1)
				if g := w.c.Group(w.mns[0]); g.Replicas[0].ID != 2 {
					t.Fatalf("%+v", g)
				}
			}
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

// The primary and the first backup end, and the last, which alone has a change, serves: all that are left have it, so it is made.
func TestChangeThatTheLastBackupHas(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
	p := fabrictest.NewGoingOver(w.port(0))
	p.When, p.Over = fabrictest.Executed, func() { w.c.KillMN(1); w.c.KillMN(0) }
	c, err := w.open(0, w.config()).Client(&losing{cas.New(p, cas.Config{Plain: true}), w.cns[0]})
	wantErr(t, "client", err, nil)
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	p.Chain = 1
	wantErr(t, "set", c.Set(b("k"), b("2"), Options{}), nil)
	wantValue(t, w.client(1, w.open(1, w.config())), "k", "2")
}

// A backup has executed a change, its answer is lost, and it serves next: the outcome is unknown, and the change is not made once more.
func TestChangeOfWhichABackupSaysNothing(t *testing.T) {
	for _, copies := range []int{2, 3} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, copies)
		p := fabrictest.NewGoingOver(w.port(0))
		p.When, p.Lost, p.Over = fabrictest.Executed, true, func() { wantErr(t, "promote", w.c.PromoteTo(w.mns[0], fabric.MemID(copies-1)), nil) }
		c, err := w.open(0, w.config()).Client(&losing{cas.New(p, cas.Config{Plain: true}), w.cns[0]})
		wantErr(t, "client", err, nil)
		wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
		p.Chain = 1
		wantErr(t, "append", c.Append(b("k"), b("x")), fabric.ErrUnknownOutcome)
		wantValue(t, w.client(1, w.open(1, w.config())), "k", "1x")
	}
}

// An update that puts a value in segments has reached one of two backups when the other serves. Before it is begun again another client changes the object: what was uploaded can still be put.
func TestUpdateWithAnUploadThatIsBegunAgain(t *testing.T) {
	large := bytes.Repeat([]byte("large"), 3000)
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2, 3)
	cfg := w.config()
	cfg.MaxValue, cfg.Segment = 20000, 4096
	p := fabrictest.NewGoingOver(w.port(0))
	l := &relocking{losing: losing{cas.New(p, cas.Config{}), w.cns[0]}}
	c, err := w.open(0, cfg).Client(l)
	wantErr(t, "client", err, nil)
	d := w.client(1, w.open(1, cfg))
	update := func() error {
		up, err := c.Upload(b("k"), 10, len(large))
		wantErr(t, "upload", err, nil)
		n, _ := up.Segments()
		for i := range n {
			from, n := up.Span(i)
			wantErr(t, "write", c.Write(up, i, large[from:from+n]), nil)
		}
		p.Chain = 1
		return c.Update(b("k"), Update{Apply: func(*Object) Change { return Change{Action: Put, Value: large[:10], Upload: up} }})
	}
	p.When, p.Over = fabrictest.Executed, func() {}
	wantErr(t, "update", update(), nil) // the first chain to a backup of the next is that of its list
	wantErr(t, "set", d.Set(b("k"), b("1"), Options{}), nil)
	p.Over = func() {
		wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
		l.before = func() {
			wantErr(t, "attach", d.port.Reattach(w.mns[0], w.cns[1].MemoryEpoch(w.mns[0])), nil)
			wantErr(t, "set", d.Set(b("k"), b("d"), Options{}), nil)
		}
	}
	wantErr(t, "update that is begun again", update(), nil)
	if l.before != nil {
		t.Error("it was not begun again")
	}
	if _, v, err := d.GetTo(b("k"), nil); err != nil || !bytes.Equal(v, large) {
		t.Errorf("%d bytes, %v", len(v), err)
	}
}

// An update that puts another value has reached one of two backups when the other serves. Begun again, it decides that the object is to expire: where the first attempt is, it does not come back.
func TestUpdateThatDecidesOtherwiseWhenItIsBegunAgain(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
	p := fabrictest.NewGoingOver(w.port(0))
	p.When, p.Over = fabrictest.Executed, func() { wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil) }
	c, err := w.open(0, w.config()).Client(&losing{cas.New(p, cas.Config{Plain: true}), w.cns[0]})
	wantErr(t, "client", err, nil)
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	p.Chain = 1
	calls := 0
	wantErr(t, "update", c.Update(b("k"), Update{Apply: func(*Object) Change {
		if calls++; calls == 1 {
			return Change{Action: Put, Value: b("2")}
		}
		return Change{Action: Expire, Expiry: 1000}
	}}), nil)
	if calls != 2 {
		t.Fatalf("it has decided %d times", calls)
	}
	w.c.KillMN(1)
	if g := w.c.Group(w.mns[0]); g.Replicas[0].ID != 2 {
		t.Fatalf("%+v", g)
	}
	d := w.client(1, w.open(1, w.config()))
	if it, err := d.Get(b("k")); err != nil || string(it.Value) != "1" || it.Expiry != 1000 {
		t.Errorf("%q expires at %d, %v; want \"1\" at 1000", it.Value, it.Expiry, err)
	}
}

// touchedOver has a number go over to a backup when another has executed a chain, and d touch the key before l acquires the next lock.
func (w *world) touchedOver(t *testing.T, p *fabrictest.GoingOver, chain int, l *relocking, d *Client) {
	p.Chain, p.When = chain, fabrictest.Executed
	p.Over = func() {
		wantErr(t, "promote", w.c.PromoteTo(w.mns[0], 1), nil)
		l.before = func() {
			wantErr(t, "attach", d.port.Reattach(w.mns[0], w.cns[1].MemoryEpoch(w.mns[0])), nil)
			wantErr(t, "touch", d.Touch(b("k"), 1000), nil)
		}
	}
}

// An update that puts an upload has reached one of two backups when the other serves. Another client touches the object, and the update, begun again, leaves it as it is: its outcome is unknown, and the upload is not given up, for
// the backup has it, and serves next.
func TestUploadOfAnUpdateThatShowsIsNotGivenUp(t *testing.T) {
	large := bytes.Repeat([]byte("large"), 3000)
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2, 3)
	cfg := w.config()
	cfg.MaxValue, cfg.Segment = 20000, 4096
	p := fabrictest.NewGoingOver(w.port(0))
	l := &relocking{losing: losing{cas.New(p, cas.Config{}), w.cns[0]}}
	c, err := w.open(0, cfg).Client(l)
	wantErr(t, "client", err, nil)
	d := w.client(1, w.open(1, cfg))
	upload := func() *Upload {
		up, err := c.Upload(b("k"), 10, len(large))
		wantErr(t, "upload", err, nil)
		n, _ := up.Segments()
		for i := range n {
			from, n := up.Span(i)
			wantErr(t, "write", c.Write(up, i, large[from:from+n]), nil)
		}
		return up
	}
	put := func(up *Upload) Change { return Change{Action: Put, Value: large[:10], Upload: up} }
	up := upload()
	wantErr(t, "update", c.Update(b("k"), Update{Apply: func(*Object) Change { return put(up) }}), nil) // the first chain to a backup of the next is that of its list
	wantErr(t, "set", d.Set(b("k"), b("1"), Options{}), nil)
	up = upload()
	w.touchedOver(t, p, 1, l, d)
	calls := 0
	wantErr(t, "update", c.Update(b("k"), Update{Apply: func(*Object) Change {
		if calls++; calls == 1 {
			return put(up)
		}
		return Change{}
	}}), fabric.ErrUnknownOutcome)
	if calls != 2 {
		t.Fatalf("it has decided %d times", calls)
	}
	wantErr(t, "abort", c.Abort(up), nil)
	w.c.KillMN(1)
	if g := w.c.Group(w.mns[0]); g.Replicas[0].ID != 2 {
		t.Fatalf("%+v", g)
	}
	wantErr(t, "attach", d.port.Reattach(w.mns[0], w.cns[1].MemoryEpoch(w.mns[0])), nil)
	if _, v, err := d.GetTo(b("k"), nil); err != nil || !bytes.Equal(v, large) && string(v) != "1" {
		t.Errorf("%d bytes, %v", len(v), err)
	}
}

// The same where the update has uploaded what it puts itself.
func TestOwnUploadOfAnUpdateThatShowsIsNotGivenUp(t *testing.T) {
	large := bytes.Repeat([]byte("large"), 3000)
	shown := 0
	for chain := 1; ; chain++ { // the first are of the memory of segments
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 2, 3)
		cfg := w.config()
		cfg.MaxValue, cfg.Segment = 20000, 4096
		p := fabrictest.NewGoingOver(w.port(0))
		l := &relocking{losing: losing{cas.New(p, cas.Config{}), w.cns[0]}}
		c, err := w.open(0, cfg).Client(l)
		wantErr(t, "client", err, nil)
		d := w.client(1, w.open(1, cfg))
		wantErr(t, "set", d.Set(b("k"), b("1"), Options{}), nil)
		w.touchedOver(t, p, chain, l, d)
		calls := 0
		err = c.Update(b("k"), Update{Apply: func(*Object) Change {
			if calls++; calls == 1 {
				return Change{Action: Put, Value: large}
			}
			return Change{}
		}})
		if err != nil {
			wantErr(t, "update", err, fabric.ErrUnknownOutcome)
			shown += calls - 1
		}
		if p.Chain > 0 { // there are no more
			break
		}
		w.c.KillMN(1)
		wantErr(t, "attach", d.port.Reattach(w.mns[0], w.cns[1].MemoryEpoch(w.mns[0])), nil)
		if _, v, err := d.GetTo(b("k"), nil); err != nil || !bytes.Equal(v, large) && string(v) != "1" {
			t.Errorf("chain %d: %d bytes, %v", chain, len(v), err)
		}
	}
	if shown == 0 {
		t.Error("none of the chains has shown at a backup alone")
	}
}
