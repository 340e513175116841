package dslr

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// An overflow is what a client has seen of a lock whose counters are at their limit.
type overflow struct {
	tries int // consecutive
	seen  word
	since fabric.Time // when the counters were seen to change last
}

// withdraw takes a ticket of a full lock back, and waits for the reset (lines 4 to 9
// and 18 to 23 of Algorithm 1). If that does not come, it resets the lock itself. It returns errFailure.
func (l *Locker) withdraw(r *lock.Request, prev word, o *overflow) error {
	val := prev + drawn(r.Mode)
	for val.full(l.cfg.CountMax) {
		old, err := l.retry(fabric.CAS(r.Lock, uint64(val), uint64(val-drawn(r.Mode))))
		if err != nil {
			return err
		}
		if old == val {
			break
		}
		val = old
	}
	now := l.Port().Now()
	if o.tries == 0 || !prev.sameCounts(o.seen) {
		o.seen, o.since = prev, now
	}
	o.tries++
	if err := l.Pause(r, randomBackoff(o.tries, &l.cfg, l.Port().Rand()), 0); err != nil {
		return err
	}
	if l.Port().Now()-o.since <= 2*l.cfg.LeaseNs {
		return errFailure
	}
	val, err := l.retry(fabric.Load(r.Lock))
	if err != nil {
		return err
	}
	if !val.sameCounts(o.seen) || !val.full(l.cfg.CountMax) {
		return errFailure
	}
	l.Counters.Resets++
	if _, err := l.retry(fabric.CAS(r.Lock, uint64(val), uint64(passAll(val)))); err != nil {
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
	bound := min(randomMinNs<<min(c-1, 20), randomMaxNs, cfg.LeaseNs/2)
	return 1 + fabric.Time(random%uint64(bound))
}

// resetCounters sets the counters to zero when all who drew tickets before this one, which was the
// last, have left (lines 6 and 7 of Algorithm 3). If the wait is interrupted, the agent goes on.
func (l *Locker) resetCounters(t *ticket) error {
	t.changed = l.Port().Now()
	for c := 1; ; c++ {
		asked := l.Port().Now()
		l.Ops[0] = fabric.CAS(t.lock, uint64(t.resetFrom), 0)
		if err := l.Port().Do(l.Ops[:1]); err != nil {
			return err
		}
		if t.resetDone(word(l.Ops[0].Old), asked, &l.cfg) {
			return nil
		}
		if err := l.Port().Pause(l.Port().Now() + randomBackoff(c, &l.cfg, l.Port().Rand())); err != nil {
			return l.bequeath(t, msgReset)
		}
	}
}

// resetDone judges what the CAS of a reset found: whether the reset is done, by it or another, or is not to
// be done by this client, because a crashed one has not left: then those who come reset the lock.
func (t *ticket) resetDone(old word, asked fabric.Time, cfg *Config) bool {
	if !old.sameCounts(t.seen) {
		t.seen, t.changed = old, asked
	}
	return old == t.resetFrom || !old.full(cfg.CountMax) || asked-t.changed > 2*cfg.LeaseNs
}
