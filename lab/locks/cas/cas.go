package cas

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Readers is how readers acquire.
type Readers uint8

// Ways for readers to acquire.
const (
	ReadersFAA Readers = iota
	ReadersCAS
)

// Config chooses a variant. The zero value is a lock with tokens, readers by
// FAA and no backoff.
type Config struct {
	// Plain leaves the fencing token out: the lock is one word.
	Plain   bool
	Readers Readers
	// BackoffMinNs and BackoffMaxNs bound the pause between tries: a random
	// time up to a bound that begins at the minimum and doubles with each try
	// up to the maximum. With 0 a try follows the other.
	BackoffMinNs, BackoffMaxNs fabric.Time
}

const (
	wordSize    = 8
	tokenOffset = 8
)

// Layout returns the layout of the variant's locks.
func (c Config) Layout() lock.Layout {
	if c.Plain {
		return lock.Layout{Size: wordSize, Align: 8}
	}
	return lock.Layout{Size: tokenOffset + 8, Align: 8}
}

// A Locker is one client's handle on CAS locks.
type Locker struct {
	port  fabric.Port
	cfg   Config
	stats lock.Stats
	ops   [fabric.MaxChain]fabric.Op
}

var _ lock.Locker = (*Locker)(nil)

// New returns a client's Locker.
func New(port fabric.Port, cfg Config) *Locker {
	return &Locker{port: port, cfg: cfg}
}

// Port implements lock.Locker.
func (l *Locker) Port() fabric.Port { return l.port }

// Stats implements lock.Locker.
func (l *Locker) Stats() *lock.Stats { return &l.stats }

// Layout returns the layout of the locks.
func (l *Locker) Layout() lock.Layout { return l.cfg.Layout() }

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if h.Held {
		return fmt.Errorf("%w: Hold of %v is in use", lock.ErrMisuse, h.Lock)
	}
	if len(r.Reads) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %d Reads, at most %d", lock.ErrMisuse, len(r.Reads), lock.MaxPiggyback)
	}
	var err error
	if r.Mode == lock.Exclusive {
		err = l.acquireWriter(h, r)
	} else if l.cfg.Readers == ReadersFAA {
		err = l.acquireReaderFAA(h, r)
	} else {
		err = l.acquireReaderCAS(h, r)
	}
	if err != nil {
		return fmt.Errorf("cas: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Lock, h.Mode, h.Aux, h.Held = r.Lock, r.Mode, l, true
	l.stats.Acquires++
	return nil
}

// acquireWriter: CAS the word from 0 until it was 0.
func (l *Locker) acquireWriter(h *lock.Hold, r *lock.Request) error {
	mine := writerWord(l.port.ID())
	w, err := l.try(h, r, fabric.CAS(r.Lock, 0, uint64(mine)))
	if err != nil {
		if w == 0 && executed(err) {
			l.undo(r.Lock, mine)
		}
		return err
	}
	if w == 0 {
		h.Word = uint64(mine)
		l.stats.Immediate++
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

// acquireReaderFAA: count oneself; with a writer there, poll until it has gone.
func (l *Locker) acquireReaderFAA(h *lock.Hold, r *lock.Request) error {
	h.Word = uint64(oneReader)
	w, err := l.try(h, r, fabric.FAA(r.Lock, uint64(oneReader)))
	if err != nil {
		if executed(err) {
			l.undo(r.Lock, oneReader)
		}
		return err
	}
	if w.writer() == 0 {
		l.stats.Immediate++
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

// acquireReaderCAS: CAS the word to one reader more until it was as expected.
func (l *Locker) acquireReaderCAS(h *lock.Hold, r *lock.Request) error {
	h.Word = uint64(oneReader)
	var guess word
	w, err := l.try(h, r, fabric.CAS(r.Lock, uint64(guess), uint64(guess+oneReader)))
	if err != nil {
		if w == guess && executed(err) {
			l.undo(r.Lock, oneReader)
		}
		return err
	}
	if w == guess {
		l.stats.Immediate++
		return nil
	}
	for k := 0; w != guess; k++ {
		guess = word(w.readers())
		if w.writer() != 0 || k > 0 && !r.Try {
			// A changed count is tried again at once the first time: that is
			// learning it, not waiting. A Try does not wait for readers at all: no
			// number of them makes the lock busy.
			if err := l.pause(r, w, k); err != nil {
				return err
			}
		}
		if w, err = l.retry(fabric.CAS(r.Lock, uint64(guess), uint64(guess+oneReader))); err != nil {
			return err
		}
	}
	return l.granted(h, r, oneReader)
}

// try posts the first chain: the atomic, the token, the caller's READs. It
// returns the word that the atomic found.
func (l *Locker) try(h *lock.Hold, r *lock.Request, atomic fabric.Op) (word, error) {
	l.ops[0] = atomic
	n := 1 + l.tokenOp(1, r)
	first := n
	n += copy(l.ops[n:], r.Reads)
	err := l.port.Do(l.ops[:n])
	l.stats.AcquireOps += uint64(first)
	w := word(l.ops[0].Old)
	if err == nil && w.corrupt() {
		err = corrupt(r.Lock, w)
	}
	if err == nil {
		l.take(h, r, first)
	}
	return w, err
}

// tokenOp puts the operation that fetches the token into ops[i], and returns
// the number of operations put.
func (l *Locker) tokenOp(i int, r *lock.Request) int {
	if l.cfg.Plain {
		return 0
	}
	if r.Mode == lock.Exclusive {
		l.ops[i] = fabric.FAA(r.Lock.Add(tokenOffset), 1)
	} else {
		l.ops[i] = fabric.Load(r.Lock.Add(tokenOffset))
	}
	return 1
}

// take takes token and READs from a chain in which the READs begin at first.
func (l *Locker) take(h *lock.Hold, r *lock.Request, first int) {
	h.Token = 0
	if !l.cfg.Plain {
		h.Token = lock.Token(l.ops[first-1].Old)
		if r.Mode == lock.Exclusive {
			h.Token++
		}
	}
	copy(r.Reads, l.ops[first:first+len(r.Reads)])
}

func (l *Locker) retry(op fabric.Op) (word, error) {
	lockWord := op.Addr
	l.ops[0] = op
	l.stats.AcquireOps++
	l.stats.Retries++
	if err := l.port.Do(l.ops[:1]); err != nil {
		return 0, err
	}
	w := word(l.ops[0].Old)
	if w.corrupt() {
		return 0, corrupt(lockWord, w)
	}
	return w, nil
}

// granted fetches token and READs after a grant that took retries.
func (l *Locker) granted(h *lock.Hold, r *lock.Request, mine word) error {
	l.stats.Waits++
	n := l.tokenOp(0, r)
	first := n
	n += copy(l.ops[n:], r.Reads)
	if n == 0 {
		h.Token = 0
		return nil
	}
	if err := l.port.Do(l.ops[:n]); err != nil {
		l.undo(r.Lock, mine)
		return err
	}
	l.stats.AcquireOps += uint64(first)
	l.take(h, r, first)
	return nil
}

// Only a Pause that waits notices an interrupt, and one of a nanosecond may be
// over before it begins. So every lookEvery-th pause is one of lookNs.
const (
	lookEvery = 16
	lookNs    = fabric.Microsecond
)

// pause waits before the next try, or says why there is none. k counts tries.
func (l *Locker) pause(r *lock.Request, w word, k int) error {
	if r.Try {
		l.stats.Busy++
		return fmt.Errorf("%w: %v", lock.ErrBusy, w)
	}
	now := l.port.Now()
	if r.Deadline != 0 && now >= r.Deadline {
		l.stats.Cancels++
		return fmt.Errorf("%w: %v", lock.ErrTimeout, w)
	}
	until := now + 1
	if k%lookEvery == lookEvery-1 {
		until = now + lookNs
	}
	if l.cfg.BackoffMinNs > 0 {
		bound := l.cfg.BackoffMinNs << min(k, 20)
		if l.cfg.BackoffMaxNs > 0 {
			bound = min(bound, l.cfg.BackoffMaxNs)
		}
		until += fabric.Time(l.port.Rand() % uint64(bound))
	}
	if r.Deadline != 0 {
		until = min(until, r.Deadline)
	}
	err := l.port.Pause(until)
	if errors.Is(err, fabric.ErrInterrupted) {
		l.stats.Cancels++
		return fmt.Errorf("%w: %v", lock.ErrCanceled, w)
	}
	return err
}

// undo takes back what an acquisition that failed has put into the word. If
// the memory node does not answer, nothing can be done: see the package's comment.
func (l *Locker) undo(a fabric.Addr, mine word) {
	l.ops[0] = fabric.FAA(a, -uint64(mine))
	_ = l.port.Do(l.ops[:1])
}

// executed reports whether the first operation of a chain that failed with err was
// executed for certain.
func executed(err error) bool {
	var ce *fabric.ChainError
	return errors.Is(err, lock.ErrCorrupt) || errors.As(err, &ce) && ce.Index > 0
}

func corrupt(a fabric.Addr, w word) error {
	return fmt.Errorf("%w: word at %v is %#x", lock.ErrCorrupt, a, uint64(w))
}

// Release implements lock.Locker. The Hold may be another client's: the lock is then released in its name.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	if by, ok := h.Aux.(*Locker); !h.Held || !ok || by.cfg != l.cfg || len(before) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %v, %d operations before release", lock.ErrMisuse, h.Lock, len(before))
	}
	mine := word(h.Word)
	h.Held = false
	h.Word = 0
	n := copy(l.ops[:], before)
	l.ops[n] = fabric.FAA(h.Lock, -uint64(mine))
	err := l.port.Do(l.ops[:n+1])
	copy(before, l.ops[:n])
	if err != nil {
		l.releaseAlone(h.Lock, mine, n, err)
		return fmt.Errorf("cas: release %v %v: %w", h.Mode, h.Lock, err)
	}
	if old := word(l.ops[n].Old); old.writer() != mine.writer() || old.readers() < mine.readers() {
		// Somebody cleared the lock: put back what the FAA took.
		l.undo(h.Lock, -mine)
		return fmt.Errorf("%w: word at %v was %v", lock.ErrLost, h.Lock, old)
	}
	return nil
}

// releaseAlone releases after an operation of before has failed, if the release at
// index n of the chain was not executed for certain.
func (l *Locker) releaseAlone(a fabric.Addr, mine word, n int, err error) {
	var ce *fabric.ChainError
	if !errors.As(err, &ce) || ce.Index == n || errors.Is(err, fabric.ErrUnknownOutcome) {
		return
	}
	l.undo(a, mine)
}
