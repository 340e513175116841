//go:build cgo && !shmonly

package verbs

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
)

// Where a chain is.
const (
	chainUnderWay uint32 = iota
	chainParked          // under way, and its client is parked
	chainDone
)

// A chain is a posted chain of operations. It belongs to its port before submit
// and after finish, and to its lane in between.
type chain struct {
	id      uint32 // in the table of the node
	port    *port
	lane    *lane
	ops     []fabric.Op
	n       int   // operations to execute: those before a refused one
	refusal error // of operation n, if n is not all
	atomic  bool  // has a READ or an atomic
	fence   bool  // behind a READ or an atomic of this port that may be under way
	wrs     int   // operations that are posted: those of 0 bytes are not
	last    int   // the operation whose completion ends the chain
	posts   [fabric.MaxChain]uint8
	keys    [fabric.MaxChain]uint32 // of the posted operations' memory
	// results is registered memory for the old values of atomics and Loads.
	results  *[fabric.MaxChain]uint64
	lkey     uint32
	poisoned bool // a completion may come yet: never to be used again

	next  *chain
	state atomic.Uint32
	wake  chan struct{}
	timer *time.Timer // of park

	// The first failed operation; -1 if there is none.
	bad    int
	status uint32 // of its completion
	vendor uint32
	err    error
}

// A chainList is a queue of chains. A chain is in one at a time.
type chainList struct{ first, last *chain }

func (l *chainList) push(c *chain) {
	c.next = nil
	if l.first == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

func (l *chainList) pop() *chain {
	c := l.first
	if c != nil {
		l.first, c.next = c.next, nil
	}
	return c
}

// plan notes which operations are posted.
func (c *chain) plan() {
	c.wrs, c.atomic = 0, false
	for i := range c.ops[:c.n] {
		o := &c.ops[i]
		if o.Buf != nil && len(o.Buf) == 0 && !o.Kind.IsAtomic() {
			continue // moves nothing
		}
		c.atomic = c.atomic || o.Kind != fabric.OpWrite
		c.posts[c.wrs] = uint8(i)
		if o.Buf != nil {
			c.keys[c.wrs] = c.port.Arena.Key(o.Buf) // here, for fill may run while the owner uses its arena
		}
		c.wrs++
		c.last = i
	}
}

// fill describes the chain's operations to the device.
func (c *chain) fill(out []wrOp, r *remote) int {
	// A READ or an atomic may still be on its way back when the next operation
	// of the queue pair begins. What must not overtake it waits: that is the fence.
	behind := c.fence
	for k, i := range c.posts[:c.wrs] {
		o, w := &c.ops[i], &out[k]
		kind := uint8(wrWrite)
		switch o.Kind {
		case fabric.OpRead:
			kind = wrRead
		case fabric.OpCAS:
			kind = wrCAS
		case fabric.OpFAA:
			kind = wrFAA
		}
		*w = wrOp{id: kindOperation<<kindShift | uint64(c.id)<<8 | uint64(i), kind: kind, remote: r.base + o.Addr.Offset(), rkey: r.key(o.Addr.Offset())}
		if o.Buf == nil {
			w.arg, w.cmp = o.Arg, o.Cmp
			w.setLocal(unsafe.Pointer(&c.results[i]), 8, c.lkey)
			if kind == wrWrite {
				c.results[i] = o.Arg
			}
		} else {
			w.setLocal(unsafe.Pointer(unsafe.SliceData(o.Buf)), len(o.Buf), c.keys[k])
		}
		if kind == wrWrite && o.Size() <= r.inline {
			w.flags |= flagInline
		}
		if behind && o.Kind != fabric.OpRead {
			w.flags |= flagFence
			behind = false
		}
		behind = behind || o.Kind != fabric.OpWrite
	}
	out[c.wrs-1].flags |= flagSignaled
	return c.wrs
}

// fail notes the first failed operation. err is nil if judge is to set it.
func (c *chain) fail(op int, err error) {
	if c.bad < 0 {
		c.bad, c.err = op, err
	}
}

// refuse fails a chain that was not posted.
func (c *chain) refuse(err error) { c.fail(int(c.posts[0]), err) }

// finish gives the chain back to its port.
func (c *chain) finish() {
	if c.state.Swap(chainDone) == chainParked {
		c.wake <- struct{}{}
	}
}

// park waits for the end of the chain, and returns false if that does not come in time.
func (c *chain) park(limit time.Duration) bool {
	c.timer.Reset(limit)
	select {
	case <-c.wake:
		c.timer.Stop()
		return true
	case <-c.timer.C:
		return false
	}
}

// Statuses of completions (enum ibv_wc_status).
const (
	statusLocalLength   = 1
	statusLocalAccess   = 4
	statusFlushed       = 5
	statusInvalid       = 9
	statusRemoteAccess  = 10
	statusRemoteFault   = 11
	statusRetries       = 12
	statusRNR           = 13
	statusLocalAccess2  = 8
	statusBadResponse   = 7
	statusRemoteAborted = 14
)

// statusNames are their names.
var statusNames = map[uint32]string{
	statusLocalLength: "local length error", 2: "local queue pair error", statusLocalAccess: "local protection error",
	statusFlushed: "flushed", 6: "memory window error", statusBadResponse: "bad response", statusLocalAccess2: "local access error",
	statusInvalid: "invalid request", statusRemoteAccess: "remote access error", statusRemoteFault: "remote operation error",
	statusRetries: "no acknowledgement", statusRNR: "receiver not ready", statusRemoteAborted: "remote abort", 21: "general error",
}

// judge sets the error of a chain that was posted and has failed. lane is why its lane takes no more,
// nil if it does.
func (c *chain) judge(r *remote, lane error) {
	if c.err != nil {
		return
	}
	name := statusNames[c.status]
	if name == "" {
		name = fmt.Sprintf("status %d", c.status)
	}
	switch c.status {
	case statusRemoteAccess:
		// Its bounds were checked: it is the key that the memory node refuses.
		c.err = fmt.Errorf("%w: %v", fabric.ErrBadKey, r.MN.ID)
	case statusInvalid:
		c.err = fmt.Errorf("%w: %v: %s", fabric.ErrBadChain, r.MN.ID, name)
	case statusLocalLength, statusLocalAccess, statusLocalAccess2:
		c.err = fmt.Errorf("%w: %s", fabric.ErrBadBuffer, name)
	default:
		if lane == nil {
			c.err = fmt.Errorf("%w: connection to %v: %s (vendor's code %#x)", fabric.ErrUnknownOutcome, r.MN.ID, name, c.vendor)
		} else if r.n.IsClosed() {
			c.err = fmt.Errorf("%w; %w", fabric.ErrClosed, fabric.ErrUnknownOutcome)
		} else if r.n.IsFenced() {
			c.err = fmt.Errorf("%w; %w", fabric.ErrFenced, fabric.ErrUnknownOutcome)
		} else {
			c.err = fmt.Errorf("%w: %s; %v", fabric.ErrUnknownOutcome, name, lane)
		}
	}
}
