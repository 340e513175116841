package inbox

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
)

const (
	// waitSpin is the rest of a wait that is not worth parking for.
	waitSpin = 20 * fabric.Microsecond
	// waitShort is a wait that must end on time; see alarm. A longer one may
	// end a millisecond late.
	waitShort = 10 * fabric.Millisecond
	// keepQueue is the length of a queue that is kept when it has become
	// empty: a burst must not hold its memory for ever.
	keepQueue = 256
)

// waiting says what a parked client waits for.
type waiting uint8

const (
	waitNone    waiting = iota
	waitMessage         // Recv: messages, time, interrupts
	waitTime            // Pause: time and interrupts
)

// A Box is the inbox of one client. Recv and Pause are for the goroutine that
// owns the Port; everything else may be called by any.
type Box struct {
	table       *Table
	count       atomic.Int32 // messages here: for a look without the mutex
	id          atomic.Uint32
	closed      atomic.Bool
	interrupted atomic.Bool
	onWait      func() // see SetOnWait

	mu    sync.Mutex
	queue []fabric.Message // a ring; its length is a power of two
	head  int              // index of the oldest message

	parked waiting     // what the owner is parked for
	until  fabric.Time // when its wait ends
	// wake gets one token for each time the owner parked: parked becomes
	// waitNone and the token is sent, by the same goroutine.
	wake chan struct{}
	// timer fires at timerAt, at the latest, if timerAt is not 0. It may fire
	// earlier than the present wait needs: then it is armed again.
	timer   *time.Timer
	timerAt fabric.Time
}

func newBox(t *Table) *Box {
	return &Box{table: t, wake: make(chan struct{}, 1)}
}

// ID returns the client's present ID.
func (b *Box) ID() fabric.ClientID { return fabric.ClientID(b.id.Load()) }

// Len returns the number of messages in the box.
func (b *Box) Len() int { return int(b.count.Load()) }

// put appends a message that was sent to the ID with an index, and reports
// whether it woke the owner. ok is false if the box no longer has that ID.
func (b *Box) put(index int, m *fabric.Message) (woke, ok bool) {
	b.mu.Lock()
	if own := b.ID().Index(); own != index && own != agentIndex || b.closed.Load() {
		b.mu.Unlock()
		return false, b.closed.Load()
	}
	woke = b.push(m)
	b.mu.Unlock()
	if woke {
		b.wake <- struct{}{}
	}
	return woke, true
}

// push appends a message; mu is held. If it returns true the caller has to send the
// owner a token.
func (b *Box) push(m *fabric.Message) bool {
	n := int(b.count.Load())
	if n == len(b.queue) {
		b.grow()
	}
	b.queue[(b.head+n)&(len(b.queue)-1)] = *m
	b.count.Store(int32(n + 1))
	if b.parked != waitMessage {
		return false
	}
	b.parked = waitNone
	return true
}

func (b *Box) grow() {
	n := len(b.queue)
	q := make([]fabric.Message, max(8, 2*n))
	copied := copy(q, b.queue[b.head:])
	copy(q[copied:], b.queue[:b.head])
	b.queue, b.head = q, 0
}

// Take moves the oldest message to m, if there is one.
func (b *Box) Take(m *fabric.Message) bool {
	if b.count.Load() == 0 {
		return false
	}
	b.mu.Lock()
	n := b.count.Load()
	if n == 0 {
		b.mu.Unlock()
		return false
	}
	*m = b.queue[b.head]
	b.head = (b.head + 1) & (len(b.queue) - 1)
	b.count.Store(n - 1)
	if n == 1 && len(b.queue) > keepQueue {
		b.queue, b.head = nil, 0
	}
	b.mu.Unlock()
	return true
}

// Recv is fabric.Port.Recv.
func (b *Box) Recv(deadline fabric.Time) (m fabric.Message, err error) {
	for {
		if b.closed.Load() {
			return m, fabric.ErrClosed
		}
		if b.Take(&m) {
			return m, nil
		}
		if b.table.host.Poll(); b.count.Load() > 0 {
			continue
		}
		// A deadline in the past is a poll: it does not wait, so that there
		// is nothing to interrupt.
		left := fabric.Forever
		if deadline != fabric.Forever {
			if deadline <= 0 {
				return m, fabric.ErrDeadline
			}
			if left = deadline - b.table.host.Now(); left <= 0 {
				return m, fabric.ErrDeadline
			}
		}
		if b.interrupted.Load() {
			return m, fabric.ErrInterrupted
		}
		if left < waitSpin {
			runtime.Gosched()
			continue
		}
		b.Waits()
		b.park(waitMessage, deadline)
	}
}

// SetOnWait sets a function that the owner calls in Recv and Pause before it waits, but for the shortest waits. The owner sets it.
func (b *Box) SetOnWait(f func()) { b.onWait = f }

// Waits calls the function of SetOnWait: the owner is about to wait, here or for something of its fabric's.
func (b *Box) Waits() {
	if b.onWait != nil {
		b.onWait()
	}
}

// Pause is fabric.Port.Pause.
func (b *Box) Pause(until fabric.Time) error {
	for round := 0; ; round++ {
		if b.closed.Load() {
			return fabric.ErrClosed
		}
		left := fabric.Forever
		if until != fabric.Forever {
			if left = until - b.table.host.Now(); left <= 0 {
				return nil
			}
		}
		if b.interrupted.Load() {
			return fabric.ErrInterrupted
		}
		if round == 0 {
			b.Waits()
		}
		if left < waitSpin {
			b.table.host.Poll()
			runtime.Gosched()
			continue
		}
		b.park(waitTime, until)
	}
}

// park waits for a token. It returns at once if there is no reason to wait.
func (b *Box) park(what waiting, until fabric.Time) {
	b.mu.Lock()
	if b.closed.Load() || b.interrupted.Load() || what == waitMessage && b.count.Load() > 0 {
		b.mu.Unlock()
		return
	}
	b.parked, b.until = what, until
	if until != fabric.Forever && (b.timerAt == 0 || b.timerAt > until) {
		b.arm(until)
	}
	b.mu.Unlock()
	<-b.wake
}

// arm makes the timer fire at a time; mu is held. (Lock order: box, alarm.)
func (b *Box) arm(at fabric.Time) {
	b.timerAt = at
	left := max(at-b.table.host.Now(), 1)
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Duration(left), b.expire)
	} else {
		b.timer.Reset(time.Duration(left))
	}
	if left < waitShort {
		b.table.alarm.set(at, b)
	}
}

// expire runs when the timer fires: for the present wait, or for one that is
// long over.
func (b *Box) expire() {
	b.mu.Lock()
	b.timerAt = 0
	if b.parked == waitNone || b.until == fabric.Forever {
		b.mu.Unlock()
		return
	}
	if b.table.host.Now() < b.until {
		b.arm(b.until)
		b.mu.Unlock()
		return
	}
	b.unpark()
}

// unpark ends the owner's wait, if it waits, and releases mu, which is held.
func (b *Box) unpark() {
	woke := b.parked != waitNone
	b.parked = waitNone
	b.mu.Unlock()
	if woke {
		b.wake <- struct{}{}
	}
}

// Interrupt is fabric.Port.Interrupt.
func (b *Box) Interrupt() {
	b.interrupted.Store(true)
	b.mu.Lock()
	b.unpark()
}

// ClearInterrupt is fabric.Port.ClearInterrupt.
func (b *Box) ClearInterrupt() { b.interrupted.Store(false) }

// Interrupted reports whether waits are interrupted.
func (b *Box) Interrupted() bool { return b.interrupted.Load() }

// close makes the box refuse everything. What is in it is lost.
func (b *Box) close() {
	b.mu.Lock()
	b.closed.Store(true)
	b.queue, b.head = nil, 0
	b.count.Store(0)
	if b.timer != nil {
		b.timer.Stop()
	}
	b.unpark()
}

// Closed reports whether the box was closed.
func (b *Box) Closed() bool { return b.closed.Load() }
