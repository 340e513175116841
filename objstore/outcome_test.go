package objstore

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// Whatever the release says that fails when all backups have the change, the outcome is unknown: a backup may serve next, with the change.
func TestOutcomeOfWhatBackupsHave(t *testing.T) {
	for _, why := range []error{fabric.ErrFenced, fabric.ErrInterrupted, fabric.ErrClosed, fabric.ErrNodeDown, fabric.ErrStaleEpoch, lock.ErrLost, lock.ErrMemoryLost} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
		l := &refused{Locker: cas.New(w.port(0), cas.Config{})}
		c, err := w.open(0, w.config()).Client(l)
		wantErr(t, "client", err, nil)
		wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil)
		l.why = why
		if err := c.Set(b("k"), b("2"), Options{}); !errors.Is(err, fabric.ErrUnknownOutcome) || !errors.Is(err, why) {
			t.Errorf("the release says %q, the set: %v", why, err)
		}
		wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
		wantValue(t, w.client(1, w.open(1, w.config())), "k", "2")
		w.c.Close()
	}
}

// A refused is a Locker of which a release that is to change something fails once, and changes nothing.
type refused struct {
	*cas.Locker
	why error
}

func (l *refused) Release(h *lock.Hold, before []fabric.Op) error {
	why := l.why
	if len(before) == 0 || why == nil {
		return l.Locker.Release(h, before)
	}
	l.why = nil
	if err := l.Locker.Release(h, nil); err != nil {
		return err
	}
	return why
}

// A change fails on its way to the backups, and so does the release of its lock: its caller hears of both.
func TestReleaseOfAFailedChange(t *testing.T) {
	w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 2)
	p := &interrupted{Port: w.port(0).(*sim.Port)}
	l := &unreleased{Locker: cas.New(p, cas.Config{})}
	c, err := w.open(0, w.config()).Client(l)
	wantErr(t, "client", err, nil)
	for _, why := range []error{lock.ErrLost, fabric.ErrFenced, lock.ErrMemoryLost} {
		wantErr(t, "set", c.Set(b("k"), b("1"), Options{}), nil) // the first chain to a backup of the next is that of its bucket
		p.left, l.why = 1, why
		if err := c.Set(b("k"), b("2"), Options{}); !errors.Is(err, fabric.ErrInterrupted) || !errors.Is(err, why) {
			t.Errorf("the release says %q, the set: %v", why, err)
		}
	}
}

// An unreleased is a Locker of which a release that is to change nothing says once that it has failed.
type unreleased struct {
	*cas.Locker
	why error
}

func (l *unreleased) Release(h *lock.Hold, before []fabric.Op) error {
	err := l.Locker.Release(h, before)
	if len(before) == 0 && l.why != nil {
		err, l.why = errors.Join(l.why, err), nil
	}
	return err
}
