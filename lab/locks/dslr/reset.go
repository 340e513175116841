package dslr

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// awaitReset waits until the counters of a full lock have been reset (lines 4 to 9 and 18 to 23 of Algorithm 1). If that does not
// come, it resets the lock itself. It returns errFailure when a ticket can be drawn again.
//
// The ticket that was drawn in vain stays in the word, for nobody waits for it, and the reset takes it along. The
// client draws no other before that, also not if it gives up and comes again, so there is at most one for each client.
func (l *Locker) awaitReset(t *ticket, r *lock.Request, seen word) error {
	if l.cfg.Withdraw {
		return l.withdraw(t, r)
	}
	since := l.Port().Now()
	for tries := 1; ; tries++ {
		if err := l.Pause(r, randomBackoff(tries, &l.cfg, l.Port().Rand()), 0); err != nil {
			l.vain = append(l.vain, r.Lock)
			return err
		}
		asked := l.Port().Now()
		val, err := l.retry(fabric.Load(r.Lock))
		switch {
		case err != nil:
			l.vain = append(l.vain, r.Lock)
			return err
		case !val.full(l.cfg.CountMax):
			return errFailure
		case !val.sameCounts(seen):
			seen, since = val, asked
		case asked-since > l.cfg.patience(val.under()):
			l.Counters.Resets++
			if _, err := l.retry(fabric.CAS(r.Lock, uint64(val), uint64(passAll(val)))); err != nil {
				return err
			}
		}
	}
}

// withdraw takes a ticket back that was drawn in vain, and pauses (lines 5, 6, 19 and 20 of Algorithm 1). It returns errFailure when a ticket can be drawn again.
func (l *Locker) withdraw(t *ticket, r *lock.Request) error {
	if _, err := l.retry(fabric.FAA(t.lock, -uint64(drawn(t.mode, t.slots)))); err != nil {
		return err
	}
	t.inVain++
	if err := l.Pause(r, randomBackoff(t.inVain, &l.cfg, l.Port().Rand()), 0); err != nil {
		return err
	}
	return errFailure
}

// passAll returns what a full lock becomes whose clients are taken for crashed: first all tickets are passed
// over, so that waiters notice; when that is done, the counters begin anew.
func passAll(val word) word {
	if val.served() {
		return 0
	}
	return makeWord(max(val.nX(), val.maxX()), max(val.nS(), val.maxS()), val.maxX(), val.maxS())
}

// randomBackoff draws the pause of the c-th consecutive failure (appendix A.3).
func randomBackoff(c int, cfg *Config, random uint64) fabric.Time {
	bound := min(DefaultResetMinNs<<min(c-1, 20), cfg.ResetMaxNs, cfg.LeaseNs/2)
	return 1 + fabric.Time(random%uint64(bound))
}

// resetCounters sets the counters to zero when all clients that drew tickets before this one, which was the
// last, have left (lines 6 and 7 of Algorithm 3). If the wait is interrupted, the agent goes on.
func (l *Locker) resetCounters(t *ticket) error {
	t.changed = l.Port().Now()
	for c := 1; ; c++ {
		asked := l.Port().Now()
		l.Ops[0] = fabric.CAS(t.lock, uint64(t.atReset), 0)
		if err := l.Port().Do(l.Ops[:1]); err != nil {
			return err
		}
		done, again := t.resetDone(word(l.Ops[0].Old), asked, &l.cfg)
		switch {
		case done:
			return nil
		case again:
			continue
		}
		if err := l.Port().Pause(l.Port().Now() + randomBackoff(c, &l.cfg, l.Port().Rand())); err != nil {
			return l.delegate(t, msgReset)
		}
	}
}

// resetDone judges what the CAS of a reset found: whether the reset is done, by it or another, or is not to
// be done by this client, because a crashed one has not left: then those that come reset the lock. again: all have left, and only
// tickets that were drawn in vain have come to the word since.
func (t *ticket) resetDone(old word, asked fabric.Time, cfg *Config) (done, again bool) {
	if cfg.Withdraw {
		done = old == t.atReset || !old.full(cfg.CountMax)
		return done, !done // line 7 of Algorithm 3: no pause
	}
	if !old.sameCounts(t.seen) {
		t.seen, t.changed = old, asked
	}
	done = old == t.atReset || !old.full(cfg.CountMax) || asked-t.changed > cfg.patience(old.under())
	if again = !done && old.sameCounts(t.resetFrom); again {
		t.atReset = old
	}
	return done, again
}
