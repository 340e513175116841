package cas

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// Config chooses a variant. The zero value is a lock with tokens and no backoff.
type Config struct {
	// Plain leaves the fencing token out: the lock is one word.
	Plain bool
	// BackoffMinNs and BackoffMaxNs bound the pause between tries: a random
	// time up to a bound that begins at the minimum and doubles with each try
	// up to the maximum. With 0 a try follows the other.
	BackoffMinNs, BackoffMaxNs fabric.Time
	// Adaptive has each client adapt the maximum to its tries, as SMART does (section 4.3 of its paper): it begins at BackoffMinNs, and every millisecond is doubled, up to BackoffMaxNs,
	// if more than half of the tries were in vain, and halved if fewer than a tenth. The pause is then the bound, and up to BackoffMinNs more by chance.
	Adaptive bool
	// ReleaseByCAS has a writer release by CAS, again and again while readers come, as published locks do. By default
	// it is one FAA.
	ReleaseByCAS bool
}

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }

// A Locker is one client's handle on CAS locks.
type Locker struct {
	baseline.Client
	cfg Config
	smart
}

// smart is a client's maximum of the backoff, with what it is adapted by: tries in vain and acquisitions since a time.
type smart struct {
	maxNs          fabric.Time
	vain, acquired int
	since          fabric.Time
}

// adaptNs is how often the maximum is adapted.
const adaptNs = fabric.Millisecond

// adapt adapts the maximum, if it is time.
func (s *smart) adapt(now fabric.Time, cfg *Config) {
	tries := s.vain + s.acquired
	if now-s.since < adaptNs || tries == 0 {
		return
	}
	switch {
	case 2*s.vain > tries:
		s.maxNs = min(2*s.maxNs, cfg.BackoffMaxNs)
	case 10*s.vain < tries:
		s.maxNs = max(s.maxNs/2, cfg.BackoffMinNs)
	}
	s.vain, s.acquired, s.since = 0, 0, now
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker.
func New(port fabric.Port, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, cfg.Plain), cfg: cfg, smart: smart{maxNs: cfg.BackoffMinNs, since: port.Now()}}
}

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	err := baseline.Check(h, r)
	switch {
	case err != nil:
		return err
	case r.Mode == lock.Exclusive:
		err = l.acquireWriter(h, r)
	default:
		err = l.acquireReader(h, r)
	}
	if err != nil {
		return fmt.Errorf("cas: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, l, true
	l.Counters.Acquires++
	if l.cfg.Adaptive {
		l.acquired++
		l.adapt(l.Port().Now(), &l.cfg)
	}
	return nil
}

// acquireWriter: CAS the word from 0 until it was 0.
func (l *Locker) acquireWriter(h *lock.Hold, r *lock.Request) error {
	mine := writerWord(l.Port().ID())
	w, done, err := l.try(h, r, fabric.CAS(r.Lock, 0, uint64(mine)))
	if err != nil {
		if done && w == 0 {
			l.undo(r.Lock, mine)
		}
		return err
	}
	if w == 0 {
		h.Word = uint64(mine)
		l.Counters.Immediate++
		return nil
	}
	for k := 0; w != 0; k++ {
		if err := l.pause(r, w, k); err != nil {
			return err
		}
		if w, err = l.retry(fabric.CAS(r.Lock, 0, uint64(mine))); err != nil {
			return err
		}
	}
	h.Word = uint64(mine)
	return l.granted(h, r, mine)
}

// acquireReader: count oneself; with a writer there, poll until it has gone.
func (l *Locker) acquireReader(h *lock.Hold, r *lock.Request) error {
	h.Word = uint64(oneReader)
	w, done, err := l.try(h, r, fabric.FAA(r.Lock, uint64(oneReader)))
	if err != nil {
		if done {
			l.undo(r.Lock, oneReader)
		}
		return err
	}
	if w.writer() == 0 {
		l.Counters.Immediate++
		return nil
	}
	for k := 0; w.writer() != 0; k++ {
		if err = l.pause(r, w, k); err == nil {
			w, err = l.retry(fabric.Load(r.Lock))
		}
		if err != nil {
			l.undo(r.Lock, oneReader)
			return err
		}
	}
	return l.granted(h, r, oneReader)
}

// try posts the first chain, with the atomic, and returns the word that this has found. done reports whether it was executed for certain.
func (l *Locker) try(h *lock.Hold, r *lock.Request, atomic fabric.Op) (w word, done bool, err error) {
	old, n, err := l.First(h, r, atomic)
	if w = word(old); err == nil && w.corrupt() {
		err = baseline.Corrupt(r.Lock, old)
	}
	return w, n > 0, err
}

func (l *Locker) retry(op fabric.Op) (word, error) {
	old, err := l.Retry(op)
	if w := word(old); err == nil && w.corrupt() {
		return 0, baseline.Corrupt(op.Addr, old)
	}
	return word(old), err
}

// granted fetches token and READs after a grant that took retries.
func (l *Locker) granted(h *lock.Hold, r *lock.Request, mine word) error {
	l.Counters.Waits++
	err := l.Fetch(h, r)
	if err != nil {
		l.undo(r.Lock, mine)
	}
	return err
}

// pause waits before the next try, or says why there is none. k counts tries.
func (l *Locker) pause(r *lock.Request, w word, k int) error {
	if r.Try {
		l.Counters.Busy++
		return fmt.Errorf("%w: %v", lock.ErrBusy, w)
	}
	var backoff fabric.Time
	if l.cfg.Adaptive {
		l.vain++
		err := l.Pause(r, min(l.cfg.BackoffMinNs<<min(k, 20), l.maxNs), l.cfg.BackoffMinNs)
		if err != nil {
			return fmt.Errorf("%w: %v", err, w)
		}
		return nil
	}
	if l.cfg.BackoffMinNs > 0 {
		backoff = l.cfg.BackoffMinNs << min(k, 20)
		if l.cfg.BackoffMaxNs > 0 {
			backoff = min(backoff, l.cfg.BackoffMaxNs)
		}
	}
	if err := l.Pause(r, baseline.Soon(k+1), backoff); err != nil {
		return fmt.Errorf("%w: %v", err, w)
	}
	return nil
}

// undo takes back what an acquisition that failed has put into the word. If
// the memory node does not answer, nothing can be done: see the package's comment.
func (l *Locker) undo(a fabric.Addr, mine word) {
	l.Ops[0] = fabric.FAA(a, -uint64(mine))
	_ = l.Port().Do(l.Ops[:1])
}

// Release implements lock.Locker. The Hold may be another client's: the lock is then released in its name.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	if by, ok := h.Aux.(*Locker); !h.Held || !ok || by.cfg != l.cfg || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	mine := word(h.Word)
	h.Held = false
	h.Word = 0
	last := [1]fabric.Op{fabric.FAA(h.Lock, -uint64(mine))}
	byCAS := l.cfg.ReleaseByCAS && mine.writer() != 0
	if byCAS {
		last[0] = fabric.CAS(h.Lock, uint64(mine), 0)
	}
	done, err := l.Last(before, last[:]...)
	if done && byCAS {
		err = errors.Join(err, l.releaseByCAS(&last[0], mine))
	}
	if err != nil {
		return fmt.Errorf("cas: release %v %v: %w", h.Mode, h.Lock, err)
	}
	if old := word(last[0].Old); old.writer() != mine.writer() || old.readers() < mine.readers() {
		// A client has cleared the lock: put back what the FAA took.
		if !byCAS {
			l.undo(h.Lock, -mine)
		}
		return fmt.Errorf("%w: word at %v was %v", lock.ErrLost, h.Lock, old)
	}
	return nil
}

// releaseByCAS repeats a writer's CAS until no reader has come meanwhile, or the lock is another's.
func (l *Locker) releaseByCAS(op *fabric.Op, mine word) error {
	for !op.Swapped() && word(op.Old).writer() == mine.writer() {
		l.Ops[0] = fabric.CAS(op.Addr, op.Old, op.Old-uint64(mine))
		if err := l.Port().Do(l.Ops[:1]); err != nil {
			return err
		}
		*op = l.Ops[0]
	}
	return nil
}
