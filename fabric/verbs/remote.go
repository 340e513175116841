//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// maxInline is how much of a WRITE a queue pair is asked to take along with its
// request, without a DMA of its own.
const maxInline = 220

// A remote is a memory node in one of its lives, as this compute node is attached to it: it ends when
// the connection of the control protocol does. Then another takes its place.
type remote struct {
	n        *node
	mn       member.MN
	base     uint64 // the address of offset 0
	keys     []memoryKey
	shift    uint8 // see mapped
	session  *session
	lanes    []*lane
	inline   int
	rdAtomic int
	alive    atomic.Bool
	// verdict is closed when it is not alive and it is known why: whether
	// this node is fenced, or the memory node has restarted, or is down.
	verdict chan struct{}
}

// key returns the key of the region in which an operation is.
func (r *remote) key(offset uint64) uint32 { return uint32(r.keys[offset>>r.shift]) }

// maxOperation returns how many bytes one operation may move.
func (r *remote) maxOperation() uint64 { return min(r.n.maxOperation(), 1<<r.shift) }

// A keeper keeps this node attached to a memory node.
type keeper struct {
	tried chan struct{} // closed after the first try
	err   error         // of it
}

// keep starts a keeper for each memory node that has none; mu is held.
func (n *node) keep(st *member.State) {
	if !n.joined || n.at.Err() != nil {
		return
	}
	for _, m := range st.MNs {
		if m.ID < MaxMN && n.keepers[m.ID] == nil {
			k := &keeper{tried: make(chan struct{})}
			n.keepers[m.ID] = k
			n.tasks.Go(func() { k.run(n, m.ID) })
		}
	}
}

// awaitMemory waits until it has been tried to reach all memory nodes. That they refuse us, or are
// not what they should be, is an error.
func (n *node) awaitMemory(ctx context.Context) error {
	n.mu.Lock()
	keepers := n.keepers
	n.mu.Unlock()
	for i, k := range keepers {
		if k == nil {
			continue
		}
		select {
		case <-k.tried:
		case <-ctx.Done():
			return fmt.Errorf("%w: memory node %d: %w", ErrLost, i, ctx.Err())
		}
		if k.err != nil && fatal(k.err) {
			return fmt.Errorf("memory node %d: %w", i, k.err)
		}
	}
	return nil
}

// run attaches to a memory node, in each of its lives, and again when a connection is lost, until the
// node works no more.
func (k *keeper) run(n *node, id fabric.MemID) {
	var last *remote // that was attached; nil once its verdict is known
	decide := func() {
		if last != nil {
			close(last.verdict)
			last = nil
		}
	}
	defer decide()
	for first := true; n.at.Err() == nil; first = false {
		st, newer := n.State()
		wait := newer
		var lost <-chan struct{}
		var again <-chan time.Time
		if m, up := st.MN(id); up {
			r, err := n.attach(n.at, m)
			if errors.Is(err, fabric.ErrFenced) {
				n.fence(err)
			}
			decide()
			if err != nil {
				if first {
					n.o.Report(err)
				}
				again = time.After(redialEvery)
			} else {
				last, lost, wait = r, r.session.done, nil
			}
			if first {
				k.err = err
				close(k.tried)
			}
		} else {
			decide()
			if first {
				close(k.tried) // it has gone: there is nothing to wait for
			}
		}
		select {
		case <-lost:
			last.lost()
		case <-wait:
		case <-again:
		case <-n.at.Done():
		}
	}
	select {
	case <-k.tried:
	default:
		close(k.tried)
	}
}

// attach connects to a memory node and puts it into its place.
func (n *node) attach(ctx context.Context, m member.MN) (*remote, error) {
	r := &remote{n: n, mn: m, verdict: make(chan struct{}), inline: maxInline, rdAtomic: int(n.dev.initRDAtomic())}
	if err := r.open(ctx); err != nil {
		for _, l := range r.lanes {
			l.discard()
		}
		if r.session != nil {
			r.session.close()
		}
		return nil, fmt.Errorf("attach %v: %w", m.ID, err)
	}
	r.alive.Store(true)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remotes[m.ID].Store(r)
	if st, _ := n.State(); !st.Has(m.Life) || n.at.Err() != nil {
		r.cut() // who has taken that state has looked before it was in its place
	}
	return r, nil
}

func (r *remote) open(ctx context.Context) error {
	n := r.n
	st, _ := n.State()
	req := attachRequest{caller: caller{n.own.ID, n.own.Life, r.mn.Life, st.Revision}}
	for i := range n.o.QueuePairs {
		l, err := newLane(r, i)
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
		r.inline = min(r.inline, l.q.inline)
		req.Lanes = append(req.Lanes, l.q.end())
	}
	s, err := dial(ctx, memoryNode(r.mn), &n.o)
	if err != nil {
		return err
	}
	r.session = s
	n.tasks.Go(s.run)
	stop := context.AfterFunc(n.ctx, s.close)
	n.tasks.Go(func() { <-s.done; stop() })
	var reply attachReply
	ctx, cancel := context.WithTimeout(ctx, n.o.DeadAfter)
	defer cancel()
	if err := s.call(ctx, askAttach, req, &reply); err != nil {
		return err
	}
	if len(reply.Lanes) != len(r.lanes) || reply.Size != r.mn.Size {
		return fmt.Errorf("%w: %d bytes and %d queue pairs; the coordinator says %d bytes", ErrProtocol, reply.Size, len(reply.Lanes), r.mn.Size)
	}
	r.base, r.keys, r.shift = reply.Base, reply.Keys, min(reply.Shift, 63)
	if uint64(len(r.keys)) != (r.mn.Size-1)>>r.shift+1 {
		return fmt.Errorf("%w: %d keys for %d bytes", ErrProtocol, len(r.keys), r.mn.Size)
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

// cut lets nothing go to a memory node any more: when it returns, nothing of what was posted is sent.
func (r *remote) cut() {
	r.lost() // again, if who found it lost is still at it
	r.session.close()
}

// lost runs when the session has ended: no lane posts any more when it returns.
func (r *remote) lost() {
	r.alive.Store(false)
	for _, l := range r.lanes {
		l.fail()
	}
}

// refusal says why a remote that is not alive takes no operations.
func (r *remote) refusal() error {
	n := r.n
	select {
	case <-r.verdict:
	case <-n.ctx.Done():
	}
	now := n.remotes[r.mn.ID].Load()
	switch {
	case n.closed.Load():
		return fabric.ErrClosed
	case n.fenced.Load():
		return n.dead(n.own.ID)
	case now != r && now.alive.Load() && now.mn.Life != r.mn.Life:
		return fmt.Errorf("%w: %v is in epoch %d, this port attached in %d", fabric.ErrStaleEpoch, r.mn.ID, now.mn.Epoch, r.mn.Epoch)
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, r.mn.ID)
}
