//go:build cgo && !shmonly

package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// maxInline is how much of a WRITE a queue pair is asked to take along with its
// request, without a DMA of its own.
const maxInline = 220

// A remote is a memory node in one of its epochs, as this compute node is attached to it: it ends when
// the connection of the control protocol does. Then another takes its place.
type remote struct {
	peer.Remote
	n        *node
	base     uint64 // the address of offset 0
	keys     []memoryKey
	shift    uint8 // see mapped
	session  *session
	lanes    []*lane
	inline   int
	rdAtomic int
}

func newRemote(n *node, m member.MN) *remote {
	r := &remote{n: n, Remote: peer.Remote{Node: &n.Node, Served: peer.Served{MN: m, Host: m.ID}, Verdict: make(chan struct{})}, inline: maxInline, rdAtomic: int(n.dev.initRDAtomic())}
	r.Lanes = r
	return r
}

// lanesOf returns verbs' part of a memory node.
func lanesOf(r *peer.Remote) *remote { return r.Lanes.(*remote) }

// key returns the key of the region in which an operation is.
func (r *remote) key(offset uint64) uint32 { return uint32(r.keys[offset>>r.shift]) }

// maxOperation returns how many bytes one operation may move.
func (r *remote) maxOperation() uint64 { return min(r.n.maxOperation(), 1<<r.shift) }

// An attachment keeps this node attached to a memory node.
type attachment struct {
	tried chan struct{} // closed after the first try
	err   error         // of it
}

// Attach starts the attachment to a memory node if there is none; Mu is held.
func (n *node) Attach(s peer.Served) {
	m := s.MN
	if n.attachments[m.ID] == nil {
		a := &attachment{tried: make(chan struct{})}
		n.attachments[m.ID] = a
		n.Go(func() { a.run(n, m.ID) })
	}
}

// Reach is peer.Network.Reach: no number is replicated.
func (n *node) Reach(peer.Served) *peer.Remote { return nil }

// awaitMemory waits until it has been tried to reach all memory nodes.
func (n *node) awaitMemory(ctx context.Context) error {
	n.Mu.Lock()
	all := n.attachments
	n.Mu.Unlock()
	for i, a := range all {
		if a == nil {
			continue
		}
		if err := n.AwaitTry(ctx, fabric.MemID(i), a.tried, func() error { return a.err }); err != nil {
			return err
		}
	}
	return nil
}

// run attaches to a memory node, in each of its incarnations, and again when a connection is lost, until the
// node works no more.
func (a *attachment) run(n *node, id fabric.MemID) {
	var last *remote // that was attached; nil once its verdict is known
	decide := func() {
		if last != nil {
			close(last.Verdict)
			last = nil
		}
	}
	defer decide()
	for first := true; n.Work.Err() == nil; first = false {
		st, newer := n.State()
		wait := newer
		var lost <-chan struct{}
		var again <-chan time.Time
		if m, up := st.MN(id); up {
			r, err := n.reach(n.Work, m)
			if errors.Is(err, fabric.ErrFenced) {
				n.Fence(err)
			}
			decide()
			if err != nil {
				if first {
					n.Report(err)
				}
				again = time.After(2 * peer.RedialEvery)
			} else {
				last, lost, wait = r, r.session.done, nil
			}
			if first {
				a.err = err
				close(a.tried)
			}
		} else {
			decide()
			if first {
				close(a.tried) // it has gone: there is nothing to wait for
			}
		}
		select {
		case <-lost:
			last.lost()
		case <-wait:
		case <-again:
		case <-n.Work.Done():
		}
	}
	select {
	case <-a.tried:
	default:
		close(a.tried)
	}
}

// reach connects to a memory node and puts it into its place.
func (n *node) reach(ctx context.Context, m member.MN) (*remote, error) {
	r := newRemote(n, m)
	if err := r.open(ctx); err != nil {
		for _, l := range r.lanes {
			l.discard()
		}
		if r.session != nil {
			r.session.close()
		}
		return nil, fmt.Errorf("attach %v: %w", m.ID, err)
	}
	r.Up.Store(true)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.Place(&r.Remote)
	if st, _ := n.State(); !st.Has(m.Incarnation) || n.Work.Err() != nil {
		r.End() // Act, with that state, ran before it was in its place
	}
	return r, nil
}

func (r *remote) open(ctx context.Context) error {
	n := r.n
	st, _ := n.State()
	req := attachRequest{Caller: peer.Caller{ID: n.Own.ID, From: n.Own.Incarnation, To: r.MN.Incarnation, Revision: st.Revision}}
	for i := range n.o.QueuePairs {
		l, err := newLane(r, i)
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
		r.inline = min(r.inline, l.q.inline)
		req.Lanes = append(req.Lanes, l.q.end())
	}
	s, err := dial(ctx, peer.MemoryNode(r.MN.ID, r.MN.Addr), &n.o)
	if err != nil {
		return err
	}
	r.session = s
	n.Go(s.run)
	stop := context.AfterFunc(n.Ctx, s.close)
	n.Go(func() { <-s.done; stop() })
	var reply attachReply
	ctx, cancel := context.WithTimeout(ctx, n.o.DeadAfter)
	defer cancel()
	if err := s.call(ctx, askAttach, req, &reply); err != nil {
		return err
	}
	if len(reply.Lanes) != len(r.lanes) || reply.Size != r.MN.Size {
		return fmt.Errorf("%w: %d bytes and %d queue pairs; the coordinator says %d bytes", ErrProtocol, reply.Size, len(reply.Lanes), r.MN.Size)
	}
	r.base, r.keys, r.shift = reply.Base, reply.Keys, min(reply.Shift, 63)
	if uint64(len(r.keys)) != (r.MN.Size-1)>>r.shift+1 {
		return fmt.Errorf("%w: %d keys for %d bytes", ErrProtocol, len(r.keys), r.MN.Size)
	}
	for i, l := range r.lanes {
		if err := l.q.connect(reply.Lanes[i]); err != nil {
			return err
		}
		l.state = laneUp
		r.rdAtomic = min(r.rdAtomic, int(reply.Lanes[i].RDAtomic))
	}
	return nil
}

// End lets nothing go to a memory node any more: when it returns, nothing of what was posted is sent.
func (r *remote) End() {
	r.lost() // again, if another goroutine is still at it
	r.session.close()
}

// lost runs when the session has ended: no lane posts any more when it returns.
func (r *remote) lost() {
	r.Up.Store(false)
	for _, l := range r.lanes {
		l.fail()
	}
}
