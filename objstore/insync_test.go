package objstore

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// With fewer copies in sync than a number is to have, nothing is changed: a change waits, and is made when there are enough again, or fails. Gets go on.
func TestMinInSync(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 3)
	mn, spare := w.mns[0], w.c.AddMN(4096)
	w.c.Require(mn, 3)
	c := w.client(0, w.open(0, w.config()))
	set := func(value string) error { return c.Set(b("k"), b(value), Options{TTL: 5000}) }
	never := func(*Object) Change {
		t.Error("Apply is called before enough copies are in sync")
		return Change{Action: Put, Value: b("8")}
	}
	changes := map[string]func() error{
		"set":     func() error { return set("5") },
		"touch":   func() error { return c.Touch(b("k"), 6000) },
		"delete":  func() error { return c.Delete(b("k")) },
		"another": func() error { return c.Set(b("another"), b("1"), Options{}) },
		"flush":   func() error { _, err := c.Flush(); return err },
		"update":  func() error { return c.Update(b("k"), Update{Read: -1, Apply: never}) },
		"new":     func() error { return c.Update(b("another"), Update{Apply: never}) },
	}
	for i := range 300 { // so that some have overflow blocks
		wantErr(t, "set", c.Set(keyOf(i), b("v"), Options{}), nil)
	}
	wantErr(t, "set", set("1"), nil)
	wantErr(t, "set", c.Set(b("short"), b("v"), Options{TTL: 5}), nil)
	host := w.c.Group(mn).Replicas[2].ID
	w.c.KillMN(host)
	err := set("2")
	if wantErr(t, "a set that a backup has missed", err, fabric.ErrTooFewCopies); !errors.Is(err, fabric.ErrUnknownOutcome) || fabric.Refused(err) {
		t.Errorf("the other backup has it: %v", err)
	}
	wantValue(t, c, "k", "1")
	used := func() uint64 {
		r, err := c.Check(CheckOptions{})
		if wantErr(t, "check", err, nil); !r.Sound() {
			t.Error(r)
		}
		return r.Nodes[0].Elsewhere
	}
	before := used()
	c.SetNow(10)
	for what, change := range changes {
		began := c.port.Now()
		if err := change(); !errors.Is(err, fabric.ErrTooFewCopies) || errors.Is(err, fabric.ErrUnknownOutcome) || c.port.Now()-began < 10*fabric.Second {
			t.Errorf("%s with two copies in sync after %v: %v", what, c.port.Now()-began, err)
		}
		wantValue(t, c, "k", "1")
	}
	wantMiss(t, c, "short") // it has expired, and is there
	if now := used(); now > before {
		t.Errorf("changes that were refused have leaked %d bytes", now-before)
	}
	// A copy that is not in sync is none.
	w.c.At(c.port.Now()+fabric.Second, func() { w.c.AddBackup(mn, spare) })
	began := c.port.Now()
	wantErr(t, "set", set("6"), nil)
	if waited := c.port.Now() - began; waited < fabric.Second || waited > 2*fabric.Second {
		t.Errorf("the set has waited for %v", waited)
	}
	wantErr(t, "promote", w.c.Promote(mn), nil)
	wantValue(t, w.client(0, w.open(0, w.config())), "k", "6")
	w.c.Require(mn, 0)
	c = w.client(0, w.open(0, w.config()))
	wantErr(t, "set without a minimum", set("7"), nil)
}

// A change that all backups have, and the primary has not answered, is made when enough copies are in sync again: the one that is promoted is one of too few.
func TestMinInSyncOverAPromotion(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	mn, spare := w.mns[0], w.c.AddMN(4096)
	w.c.Require(mn, 2)
	l := &unsure{Locker: cas.New(w.port(0), cas.Config{}), n: w.cns[0], lost: true}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
	l.then = func() {
		wantErr(t, "promote", w.c.Promote(mn), nil)
		w.c.At(w.c.Now()+fabric.Second, func() { w.c.AddBackup(mn, spare) })
	}
	began := c.port.Now()
	wantErr(t, "set", c.Set(b("k"), b("2"), Options{}), nil)
	if waited := c.port.Now() - began; waited < fabric.Second {
		t.Errorf("it was acknowledged after %v, by one copy", waited)
	}
	wantValue(t, c, "k", "2")
}

// A backup is dropped, or the primary replaced, after the function of an Update has decided, and before anything of that is written: the Update waits as a set does, and its function is called
// again, with what is there then.
func TestUpdateOverADrop(t *testing.T) {
	for _, promoted := range []bool{false, true} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 3)
		mn := w.mns[0]
		w.c.Require(mn, 3)
		c, err := w.open(0, w.config()).Client(&unsure{Locker: cas.New(w.port(0), cas.Config{}), n: w.cns[0]})
		wantErr(t, "client", err, nil)
		wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
		began, seen := c.port.Now(), ""
		wantErr(t, "update", c.Update(b("k"), Update{Read: -1, Apply: func(o *Object) Change {
			if seen += string(o.Value); seen == "1" {
				host := w.c.Group(mn).Replicas[2].ID
				if promoted {
					host = w.c.Group(mn).Replicas[0].ID
					wantErr(t, "promote", w.c.Promote(mn), nil)
				} else {
					change := member.Change{ID: mn, Kind: member.Drop, Host: w.c.Incarnation(host), Seen: w.c.Group(mn).Changed}
					wantErr(t, "drop", w.c.Change(change), nil)
				}
				w.c.At(w.c.Now()+2*fabric.Second, func() { w.c.AddBackup(mn, host) })
			}
			return Change{Action: Put, Value: append(o.Value, '2')}
		}}), nil)
		if waited := c.port.Now() - began; seen != "11" || waited < 2*fabric.Second || waited > 3*fabric.Second {
			t.Errorf("promoted %v: seen %q, after %v", promoted, seen, waited)
		}
		wantValue(t, c, "k", "12")
		mustBeSound(t, c)
	}
}

// A flush and an Update wait as a set does, until a copy is in sync, and go on; or until they are interrupted, with nothing changed. The function of an Update is called once.
func TestMinInSyncIsWaitedFor(t *testing.T) {
	called := 0
	for what, change := range map[string]func(c *Client) error{
		"flush": func(c *Client) error {
			n, err := c.Flush()
			if err == nil && n != 100 {
				t.Errorf("%d objects are removed", n)
			}
			return err
		},
		"update": func(c *Client) error {
			return c.Update(keyOf(1), Update{Read: -1, IfFound: true, Apply: func(o *Object) Change {
				called++
				return Change{Action: Remove}
			}})
		},
		"large": func(c *Client) error {
			called++
			return c.Update(keyOf(1), Update{Read: -1, Apply: func(o *Object) Change { return Change{Action: Put, Value: make([]byte, 5000)} }})
		},
	} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1, 2)
		mn, spare := w.mns[0], w.c.AddMN(4096)
		w.c.Require(mn, 2)
		cfg := w.config()
		cfg.MaxValue, cfg.Segment = 20000, 4096
		c := w.client(0, w.open(0, cfg))
		for i := range 100 {
			wantErr(t, "set", c.Set(keyOf(i), b("v"), Options{}), nil)
		}
		w.c.KillMN(w.c.Group(mn).Replicas[1].ID)
		wantErr(t, "a set that the backup has missed", c.Set(keyOf(0), b("v"), Options{}), fabric.ErrTooFewCopies)
		called = 0
		w.c.At(c.port.Now()+fabric.Second, c.port.Interrupt)
		if err := change(c); !errors.Is(err, fabric.ErrTooFewCopies) || !errors.Is(err, fabric.ErrInterrupted) || what == "update" && called > 0 {
			t.Errorf("%s, interrupted: %v, %d calls", what, err, called)
		}
		c.port.ClearInterrupt()
		for i := range 100 {
			wantValue(t, c, string(keyOf(i)), "v")
		}
		called = 0
		began := c.port.Now()
		w.c.At(began+2*fabric.Second, func() { w.c.AddBackup(mn, spare) })
		wantErr(t, what, change(c), nil)
		if waited := c.port.Now() - began; waited < 2*fabric.Second || waited > 3*fabric.Second || what != "flush" && called != 1 {
			t.Errorf("%s has waited for %v, %d calls", what, waited, called)
		}
		if it, err := c.Get(keyOf(1)); len(it.Value) == 1 || err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("after the %s: %q, %v", what, it.Value, err)
		}
	}
}
