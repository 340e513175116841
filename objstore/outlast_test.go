package objstore

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// An unsure is a Locker that attaches its client as package hier does. The chain of a release is not executed, and something happens then.
type unsure struct {
	*cas.Locker
	n    *sim.Node
	then func()
	lost bool // it had the lock until the epoch ended
	sure bool // that is all that it says
}

func (l *unsure) Ready(fabric.Addr) error { return nil }

func (l *unsure) Attach(mn fabric.MemID) error { return l.Port().Reattach(mn, l.n.MemoryEpoch(mn)) }

func (l *unsure) Release(h *lock.Hold, before []fabric.Op) error {
	then := l.then
	if then == nil {
		return l.Locker.Release(h, before)
	}
	l.then = nil
	err := l.Locker.Release(h, nil)
	if err == nil {
		then()
		if err = fabric.ErrUnknownOutcome; l.lost {
			err = errors.Join(err, lock.ErrLost, fabric.ErrStaleEpoch)
		}
		if l.sure {
			err = errors.Join(lock.ErrLost, fabric.ErrStaleEpoch)
		}
	}
	return err
}

// The chain of a release is lost, and a backup promoted, which has the change: it is made. If the lock was reset before, another client has given the backups what the primary
// had: then it is not.
func TestChangeOverAPromotion(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for _, op := range []string{"set", "touch"} {
			w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
			cfg := w.config()
			cfg.Objects = 1
			l := &unsure{Locker: cas.New(w.port(0), cas.Config{}), n: w.cns[0]}
			c, err := w.open(0, cfg).Client(l)
			wantErr(t, "client", err, nil)
			c.SetNow(10)
			if op == "touch" {
				wantErr(t, "set", c.Set(b("k"), b("v"), Options{TTL: 5}), nil)
			}
			d := w.client(1, w.open(1, cfg))
			d.SetNow(10)
			l.then = func() {
				if reset {
					wantErr(t, "another's set", d.Set(b("other"), b("1"), Options{}), nil)
					_, err := d.repair(spot{d.s.h.Parts[0], d.s.bucket(0, 0)})
					wantErr(t, "repair", err, nil)
				}
				wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
			}
			change := func() error { return c.Set(b("k"), b("v"), Options{TTL: 7}) }
			if op == "touch" {
				change = func() error { return c.Touch(b("k"), 7) }
			}
			err = change()
			e := w.client(1, w.open(1, cfg))
			e.SetNow(16)
			_, gerr := e.Get(b("k"))
			if made := gerr == nil; made == reset {
				t.Fatalf("%s, reset %t: %v", op, reset, gerr)
			}
			if reset {
				wantErr(t, op, err, fabric.ErrUnknownOutcome)
			} else {
				wantErr(t, op, err, nil)
			}
		}
	}
}

// The same where the client had the lock until the term ended: the change is made, though another client has changed the object since. So is a delete, which nothing shows.
func TestChangeUntilAPromotion(t *testing.T) {
	for _, op := range []string{"set", "delete", "touch"} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
		l := &unsure{Locker: cas.New(w.port(0), cas.Config{}), n: w.cns[0], lost: true}
		c, err := w.open(0, w.config()).Client(l)
		wantErr(t, "client", err, nil)
		c.SetNow(10)
		if op != "set" {
			wantErr(t, "set", c.Set(b("k"), b("v"), Options{TTL: 5}), nil)
		}
		var d *Client
		l.then = func() {
			wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
			d = w.client(1, w.open(1, w.config()))
			d.SetNow(10)
			wantErr(t, "another's set", d.Set(b("k"), b("later"), Options{}), nil)
		}
		switch op {
		case "set":
			err = c.Set(b("k"), b("v"), Options{})
		case "delete":
			err = c.Delete(b("k"))
		default:
			err = c.Touch(b("k"), 7)
		}
		wantErr(t, op, err, nil)
		got, err := d.Get(b("k"))
		if wantErr(t, "get", err, nil); string(got.Value) != "later" {
			t.Errorf("after a %s, and another's set: %q", op, got.Value)
		}
	}
}

// The primary begins anew with its memory before the term ends, when no backup can take its place: the client had the lock until then, but another had it after that, and has given the
// backups what the primary had. The change is not made. Its outcome is unknown, also where the release says that the lock is lost and no more.
func TestChangeUntilARestart(t *testing.T) {
	for i, op := range []string{"set", "delete", "touch", "set", "delete", "touch"} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 3)
		cfg := w.config()
		cfg.Objects = 1
		l := &unsure{Locker: cas.New(w.port(0), cas.Config{}), n: w.cns[0], lost: true, sure: i >= 3}
		c, err := w.open(0, cfg).Client(l)
		wantErr(t, "client", err, nil)
		c.SetNow(10)
		if op != "set" {
			wantErr(t, "set", c.Set(b("k"), b("v"), Options{TTL: 9}), nil)
		}
		l.then = func() {
			for _, mn := range []fabric.MemID{2, 1, 0} {
				w.c.KillMN(mn)
			}
			for mn := range fabric.MemID(3) {
				w.c.RestartServer(mn)
			}
			d := w.client(1, w.open(1, cfg))
			d.SetNow(10)
			wantErr(t, "another's set", d.Set(b("other"), b("1"), Options{}), nil)
			_, err := d.repair(spot{d.s.h.Parts[0], d.s.bucket(0, 0)})
			wantErr(t, "repair", err, nil)
			wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
		}
		switch op {
		case "set":
			err = c.Set(b("k"), b("v"), Options{})
		case "delete":
			err = c.Delete(b("k"))
		default:
			err = c.Touch(b("k"), 7)
		}
		wantErr(t, op, err, fabric.ErrUnknownOutcome)
		d := w.client(1, w.open(1, cfg))
		d.SetNow(10)
		if _, err = d.Get(b("k")); (err == nil) == (op == "set") {
			t.Errorf("after a %s that was undone: %v", op, err)
		}
	}
}
