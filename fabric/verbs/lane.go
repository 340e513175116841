//go:build cgo && !shmonly

package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/declock/declock/fabric"
)

const (
	// laneDepth is how many operations of a queue pair may be under way. What
	// comes beyond that waits in a queue.
	laneDepth = 256
	// laneBatch is how many operations go with one doorbell, at most.
	laneBatch = 2 * fabric.MaxChain
	// stallTime is how long an operation may be under way before it is suspected that the device
	// has forgotten it, and again after each stallTime. After stallLimit of them, which is longer than
	// a device tries to reach a crashed peer, it has.
	stallTime  = 50 * time.Millisecond
	stallLimit = 400
	// nudgeSlots are places of a queue pair for nudges.
	nudgeSlots = 8
	// drainLimit is how long a failed queue pair may take to flush.
	drainLimit = 3 * time.Second
)

type laneState uint8

const (
	laneNew    laneState = iota
	laneUp               // takes operations
	laneBroken           // the queue pair has failed and is being replaced; operations wait
	laneDead             // takes no more
)

// A lane is one queue pair to a memory node, which some of the ports share. Chains
// go in the order of submit.
type lane struct {
	r     *remote
	index int
	cq    *completionQueue

	mu       sync.Mutex
	q        *qp
	state    laneState
	room     int       // operations that the queue pair still takes
	queue    chainList // not posted yet
	inflight chainList // posted, and the last operation has not completed
	failed   chainList // completed with an error; their ports still wait
	cause    error     // of laneDead
	buf      [laneBatch]wrOp

	doorbells uint64                   // calls that posted something
	posted    [fabric.OpFAA + 1]uint64 // work requests by kind
	nudged    fabric.Time
}

func newLane(r *remote, index int) (*lane, error) {
	l := &lane{r: r, index: index, room: laneDepth}
	p := r.n.pump
	var err error
	if l.cq, err = p.operations.reserve(r.n.dev, laneDepth+1); err != nil {
		return nil, err
	}
	if l.q, err = l.newQP(); err != nil {
		l.cq.give(laneDepth + 1)
		return nil, err
	}
	return l, nil
}

func (l *lane) newQP() (*qp, error) {
	return l.r.n.dev.newQP(l.cq.q, l.cq.q, laneDepth+nudgeSlots, 1, maxInline, false)
}

// discard destroys a lane that never was in use.
func (l *lane) discard() {
	l.q.close()
	l.cq.give(laneDepth + 1)
}

// submit posts a chain, or queues it behind others.
func (l *lane) submit(c *chain) {
	l.mu.Lock()
	if l.state == laneDead {
		cause := l.cause
		l.mu.Unlock()
		c.refuse(cause)
		c.finish()
		return
	}
	c.state.Store(chainUnderWay)
	l.queue.push(c)
	l.post()
	l.mu.Unlock()
}

// post posts what is queued, as far as there is room; mu is held.
func (l *lane) post() {
	for l.state == laneUp && l.queue.first != nil {
		n := 0
		for c := l.queue.first; c != nil && n+c.wrs <= min(laneBatch, l.room); c = c.next {
			n += c.fill(l.buf[n:], l.r)
		}
		if n == 0 {
			return
		}
		posted, err := l.q.post(l.buf[:n])
		l.room -= posted
		l.doorbells++
		for c := l.queue.first; c != nil && posted >= c.wrs; c = l.queue.first {
			posted -= c.wrs
			l.count(c)
			l.inflight.push(l.queue.pop())
		}
		if err == nil {
			continue
		}
		if posted == 0 && l.inflight.first != nil && errors.Is(err, syscall.ENOMEM) {
			return // the device's queue is shorter than it said: completions make room
		}
		l.refused(posted, err)
	}
}

// count counts the work requests of a chain; mu is held.
func (l *lane) count(c *chain) {
	for _, i := range c.posts[:c.wrs] {
		l.posted[c.ops[i].Kind]++
	}
}

// refused handles a chain that the device would not take, or of which it took
// the first few; mu is held.
func (l *lane) refused(posted int, err error) {
	c := l.queue.pop()
	ops := c.posts[:c.wrs]
	c.fail(int(ops[posted]), postError(err))
	if posted == 0 {
		c.finish()
		return
	}
	// Those few have no completion of their own: the queue pair has to go.
	c.wrs, c.last = posted, int(ops[posted-1])
	l.inflight.push(c)
	l.breaks()
}

func postError(err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: the device refuses it", fabric.ErrBadChain)
	}
	return fmt.Errorf("%w: the device refuses it: %w", fabric.ErrNodeDown, err)
}

// completed handles the last completion of a chain.
func (l *lane) completed(c *chain) {
	l.mu.Lock()
	if l.inflight.first != c {
		l.mu.Unlock()
		return // given up: see drain
	}
	l.inflight.pop()
	l.room += c.wrs
	if c.bad < 0 {
		l.post()
		l.mu.Unlock()
		c.finish()
		return
	}
	l.failed.push(c)
	if l.state == laneUp {
		l.breaks()
	}
	l.mu.Unlock()
}

// nudge posts something that does nothing: Soft-RoCE of Linux before 6.10 can forget an operation that waits
// behind a fence (its requester and its completer signal each other without a lock), until
// something else is posted. If a device has forgotten it for good, the queue pair is replaced.
func (l *lane) nudge(forgotten bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.r.n.Now()
	switch {
	case l.state != laneUp || l.inflight.first == nil:
	case forgotten:
		l.breaks()
	case now-l.nudged >= fabric.Time(stallTime)/2:
		l.nudged = now
		// No bytes, no completion. If there is no place for it, enough has been posted.
		_, _ = l.q.post([]wrOp{{kind: wrWrite, remote: l.r.base, rkey: l.r.key(0)}})
	}
}

// breaks begins the replacement of the queue pair, which sends nothing more when it returns; mu is held.
func (l *lane) breaks() {
	l.q.fail()
	l.state = laneBroken
	l.r.n.Go(l.repair)
}

// fail breaks the lane, if it is not broken already.
func (l *lane) fail() {
	l.mu.Lock()
	if l.state == laneUp {
		l.breaks()
	}
	l.mu.Unlock()
}

// repair replaces a queue pair that has failed.
func (l *lane) repair() {
	l.drain()
	l.q.close()
	l.q = nil
	l.resume(l.replace())
}

// resume goes on with a new queue pair; err says why there is none. Chains that were posted end with
// what is known of their outcome; those that were not go on, if there is a way.
func (l *lane) resume(err error) {
	if err != nil {
		// Without a queue pair there is nothing left to share: let all lanes go.
		l.r.Up.Store(false)
		l.r.session.close()
		err = l.r.Refusal()
	}
	l.mu.Lock()
	if err == nil && !l.r.Up.Load() {
		// Cut meanwhile: the new queue pair has sent nothing.
		l.mu.Unlock()
		l.q.close()
		err = l.r.Refusal()
		l.mu.Lock()
	}
	failed := l.failed
	l.failed = chainList{}
	var queued chainList
	if err == nil {
		l.room, l.state = laneDepth, laneUp
		l.post()
	} else {
		l.state, l.cause = laneDead, err
		queued, l.queue = l.queue, chainList{}
		l.cq.give(laneDepth + 1)
	}
	l.mu.Unlock()
	for c := failed.pop(); c != nil; c = failed.pop() {
		c.judge(l.r, err)
		c.finish()
	}
	for c := queued.pop(); c != nil; c = queued.pop() {
		c.refuse(err)
		c.finish()
	}
}

// drain waits until all that was posted has completed or was flushed.
func (l *lane) drain() {
	limit := time.Now().Add(drainLimit)
	for {
		l.r.n.pump.operations.drain()
		l.mu.Lock()
		if l.inflight.first == nil {
			l.mu.Unlock()
			return
		}
		if time.Now().After(limit) {
			// The device has lost completions. Should they come yet, they find
			// chains that are not used again.
			for c := l.inflight.pop(); c != nil; c = l.inflight.pop() {
				c.poisoned = true
				c.fail(0, nil)
				l.failed.push(c)
			}
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
	}
}

// replace connects a new queue pair in the place of the failed one.
func (l *lane) replace() error {
	r := l.r
	if !r.Up.Load() {
		return ErrLost
	}
	q, err := l.newQP()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.n.Ctx, r.n.DeadAfter)
	defer cancel()
	var peer end
	err = r.session.call(ctx, askLane, laneRequest{Index: l.index, End: q.end()}, &peer)
	if err == nil {
		err = q.connect(peer)
	}
	if err != nil {
		q.close()
		return err
	}
	l.mu.Lock()
	l.q = q
	l.mu.Unlock()
	return nil
}
