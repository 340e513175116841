package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

const (
	// MaxQueue is how many messages a sender keeps for a node, sent or not. More are refused.
	MaxQueue = 1 << 20
	// minQueue is the length of a queue that is kept when it has become empty, or nearly.
	minQueue = 256
	// RedialEvery is how often a node tries to reach another again.
	RedialEvery = 50 * time.Millisecond
)

// A Link has the messages to one incarnation of a compute node. A number counts them. The receiver acknowledges now and then how many it has
// delivered, and the sender keeps the rest: when a connection breaks, the rest is sent again over the next one. So no message is
// lost, duplicated or reordered. A [Wire] moves them over a connection.
type Link struct {
	Node *Node
	Peer member.CN
	Ctx  context.Context // ends when the link is stopped

	cancel context.CancelFunc
	Wire   Wire          // moves bytes
	Broken chan struct{} // gets a token when the connection fails: see Break

	Mu      sync.Mutex
	Stopped bool
	// Numbers of messages: those before Acked have been delivered, those before Written
	// were given to the connection, those before Filled are in the queue, by number.
	Acked, Written, Filled uint64
	queue                  []WireMessage // its length is a power of two
}

// A Wire is the part of a Link that moves bytes.
type Wire interface {
	// Connect connects to the receiver, calls Resume, and returns when the connection is broken or the link is stopped. An error says
	// why there was no connection.
	Connect() error
	// Flush writes what was not written, as far as it can. Mu is held.
	Flush()
	// Cut ends the connection, if there is one: nothing more is written. Mu is held.
	Cut()
	// Ask asks the receiver to acknowledge all messages. Unsent reports whether a receiver that is a member has not done so yet.
	Ask()
	Unsent() bool
	// Release is called when the link has ended.
	Release()
}

// link returns the link to a compute node that may still receive.
func (n *Node) link(cn fabric.CNID) (*Link, error) {
	if n.fenced.Load() {
		return nil, n.Dead(cn)
	}
	if l := n.links[cn].Load(); l != nil {
		return l, nil
	}
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if l := n.links[cn].Load(); l != nil {
		return l, nil
	}
	st, _ := n.State()
	to, ok := Find(st, cn)
	if !ok || n.Work.Err() != nil {
		return nil, n.Dead(cn)
	}
	l := &Link{Node: n, Peer: to, Broken: make(chan struct{}, 1), queue: make([]WireMessage, minQueue)}
	l.Ctx, l.cancel = context.WithCancel(n.Ctx)
	var err error
	if l.Wire, err = n.net.NewWire(l); err != nil {
		l.cancel()
		return nil, err
	}
	n.links[cn].Store(l)
	n.Go(l.run)
	return l, nil
}

// send queues a message, and writes what may be written.
func (l *Link) send(from, to int, m *fabric.Message) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch n := l.Filled - l.Acked; {
	case l.Stopped:
		return l.Node.Dead(l.Peer.ID)
	case n >= MaxQueue:
		return fmt.Errorf("%w: %d messages wait for %v", fabric.ErrResources, n, l.Peer.ID)
	}
	l.Add().Encode(from, to, m)
	l.Wire.Flush()
	return nil
}

// Add returns the place of the next message; Mu is held.
func (l *Link) Add() *WireMessage {
	if n := l.Filled - l.Acked; n == uint64(len(l.queue)) {
		l.resize(2 * n)
	}
	l.Filled++
	return l.At(l.Filled - 1)
}

// At returns a message that was not delivered yet, by its number; Mu is held.
func (l *Link) At(number uint64) *WireMessage { return &l.queue[number&uint64(len(l.queue)-1)] }

// resize changes the length of the queue; Mu is held.
func (l *Link) resize(size uint64) {
	q := make([]WireMessage, size)
	for i := l.Acked; i != l.Filled; i++ {
		q[i&(size-1)] = *l.At(i)
	}
	l.queue = q
}

// Ack notes how many messages have been delivered; Mu is held.
func (l *Link) Ack(number uint64) {
	l.Acked = number
	if len(l.queue) > minQueue && l.Filled-l.Acked <= minQueue/8 {
		l.resize(minQueue) // a burst must not hold its memory for ever
	}
}

// Resume notes how many messages the receiver says that it has got, from which a new connection goes on; Mu is held.
func (l *Link) Resume(delivered uint64) error {
	switch {
	case delivered < l.Acked || delivered > l.Written:
		return fmt.Errorf("%w: %v has got %d messages of %d to %d", ErrProtocol, l.Peer.ID, delivered, l.Acked, l.Written)
	case l.Stopped:
		return l.Node.Dead(l.Peer.ID)
	}
	select {
	case <-l.Broken: // the connection of before
	default:
	}
	l.Acked, l.Written = delivered, delivered
	return nil
}

// Break reports that the connection has failed.
func (l *Link) Break() {
	select {
	case l.Broken <- struct{}{}:
	default:
	}
}

// stop ends the link: the receiver has gone, or this node is closed or fenced.
func (l *Link) stop() {
	l.cancel() // first: a new connection in the place of the broken one would throw away what has arrived over that
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Stopped = true
	l.Wire.Cut()
}

// run keeps the link connected until it is stopped.
func (l *Link) run() {
	defer l.Wire.Release()
	reported := ""
	for l.Ctx.Err() == nil {
		err := l.Wire.Connect()
		if err == nil || l.Ctx.Err() != nil {
			reported = ""
			continue
		}
		if err.Error() != reported {
			reported = err.Error()
			l.Node.Report(fmt.Errorf("connect to %v: %w", l.Peer.ID, err))
		}
		Pause(l.Ctx, RedialEvery)
	}
}
