//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// maxInline is how much of a WRITE a queue pair is asked to take along with its
// request, without a DMA of its own.
const maxInline = 220

// A remote is a memory node as this compute node is attached to it: it ends when
// the connection of the control protocol does. Then another takes its place.
type remote struct {
	n        *node
	id       fabric.MemID
	size     uint64
	epoch    uint32
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

// attach connects to a memory node and puts it into its place.
func (n *node) attach(ctx context.Context, m memoryInfo) error {
	r := &remote{n: n, id: m.ID, verdict: make(chan struct{}), inline: maxInline, rdAtomic: int(n.dev.initRDAtomic())}
	if err := r.open(ctx, n.memoryAddr(m)); err != nil {
		for _, l := range r.lanes {
			l.discard()
		}
		if r.session != nil {
			r.session.close()
		}
		return fmt.Errorf("attach %v: %w", m.ID, err)
	}
	r.alive.Store(true)
	old := n.remotes[m.ID].Swap(r)
	if old != nil && old.alive.Load() {
		old.session.close()
	}
	n.tasks.Go(func() {
		<-r.session.done
		r.lost()
	})
	n.mu.Lock()
	_, up := n.view.memory(m.ID)
	n.mu.Unlock()
	if !up {
		r.cut() // takeView may have looked before it was in its place
	}
	return nil
}

func (r *remote) open(ctx context.Context, addr string) error {
	n := r.n
	req := attachRequest{life: n.life}
	for i := range n.o.QueuePairs {
		l, err := newLane(r, i)
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, l)
		r.inline = min(r.inline, l.q.inline)
		req.Lanes = append(req.Lanes, l.q.end())
	}
	s, err := dial(ctx, addr, &n.o, n.handle)
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
	if len(reply.Lanes) != len(r.lanes) || reply.ID != r.id {
		return fmt.Errorf("%w: %v with %d queue pairs", ErrProtocol, reply.ID, len(reply.Lanes))
	}
	r.size, r.epoch, r.base, r.keys, r.shift = reply.Size, reply.Epoch, reply.Base, reply.Keys, min(reply.Shift, 63)
	if r.size == 0 || uint64(len(r.keys)) != (r.size-1)>>r.shift+1 {
		return fmt.Errorf("%w: %v with %d keys for %d bytes", ErrProtocol, reply.ID, len(r.keys), r.size)
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

// cut lets nothing go to a memory node any more that the cluster does without: it may not know
// who has been fenced meanwhile.
func (r *remote) cut() {
	if r.alive.Swap(false) {
		for _, l := range r.lanes {
			l.fail()
		}
		r.session.close()
	}
}

// lost runs when the session has ended.
func (r *remote) lost() {
	n := r.n
	r.alive.Store(false)
	for _, l := range r.lanes {
		l.fail()
	}
	if n.remotes[r.id].Load() != r {
		close(r.verdict) // replaced
		return
	}
	n.redial(r.id, func() { close(r.verdict) })
}

// reattach attaches to a memory node that is new, in the background.
func (n *node) reattach(m memoryInfo) {
	n.mu.Lock()
	busy := n.attaches[m.ID] || n.closed.Load()
	n.attaches[m.ID] = true
	n.mu.Unlock()
	if !busy {
		n.tasks.Go(func() {
			n.redial(m.ID, func() {})
			n.mu.Lock()
			delete(n.attaches, m.ID)
			n.mu.Unlock()
		})
	}
}

// redial tries to attach to a memory node until that works, or makes no sense any
// more. tried is called after the first try.
func (n *node) redial(id fabric.MemID, tried func()) {
	for first := true; ; first = false {
		again := n.tryAttach(id)
		if first {
			tried()
		}
		if !again {
			return
		}
		sleep(n.ctx, redialEvery)
	}
}

// tryAttach tells whether to try again.
func (n *node) tryAttach(id fabric.MemID) bool {
	n.mu.Lock()
	joined := n.joined
	n.mu.Unlock()
	// Only members may attach.
	ctx, cancel := context.WithTimeout(n.ctx, n.o.DeadAfter)
	defer cancel()
	select {
	case <-joined:
	case <-ctx.Done():
	}
	if n.closed.Load() || n.fenced.Load() {
		return false
	}
	n.mu.Lock()
	m, up := n.view.memory(id)
	n.mu.Unlock()
	select {
	case <-joined:
	default:
		return true
	}
	if !up {
		return true
	}
	err := n.attach(n.ctx, m)
	if errors.Is(err, fabric.ErrFenced) {
		n.fence()
	}
	return err != nil && !n.closed.Load() && !n.fenced.Load()
}

// refusal says why a remote that is not alive takes no operations.
func (r *remote) refusal() error {
	n := r.n
	select {
	case <-r.verdict:
	case <-n.ctx.Done():
		return fabric.ErrClosed
	}
	if n.fenced.Load() {
		return fmt.Errorf("%w: %v", fabric.ErrFenced, n.life.ID)
	}
	if now := n.remotes[r.id].Load(); now != r && now.alive.Load() && now.epoch != r.epoch {
		return fmt.Errorf("%w: %v is in epoch %d, this port attached in %d", fabric.ErrStaleEpoch, r.id, now.epoch, r.epoch)
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, r.id)
}
