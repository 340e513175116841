//go:build linux

package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A MemoryServer is a memory node: memory, and the software NIC that executes what
// compute nodes ask for.
type MemoryServer struct {
	o        Options
	standing peer.Standing // what it acts on
	mem      *memory
	nic      *nic
	own      member.MN
	acceptor *acceptor
	workers  []*worker
	next     atomic.Uint32 // worker of the next connection
	begun    time.Time
	tasks    sync.WaitGroup
	ctx      context.Context // ends with the server
	cancel   context.CancelFunc
	closing  sync.Once
	done     chan struct{} // closed when it does not serve any more

	mu     sync.Mutex
	member member.Member // the present one, or the last
	away   error         // why it is none now, and joins again
	lanes  map[laneKey]*served
	gone   []laneKey // of those in lanes whose node has gone, the oldest first
	err    error     // why it does not serve any more
	ended  bool
}

// A laneKey names a lane: of a compute node in one of its lives.
type laneKey struct {
	life  member.Life
	index uint16
}

// A served is a lane as the memory node knows it: it outlives its connections.
type served struct {
	laneKey
	executed uint32 // frames before it have been executed; changed under the exec mutex of conn
	conn     *laneConn
	gone     bool // its node has gone
}

// maxGone is how many lanes of nodes that have gone are remembered: who comes back hears
// exactly what was executed of his.
const maxGone = 1024

// Serve starts a memory node: it serves when Serve returns, and until Close.
func Serve(ctx context.Context, o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	s := &MemoryServer{o: o, begun: time.Now(), lanes: map[laneKey]*served{},
		done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

func (s *MemoryServer) open(ctx context.Context) (err error) {
	if s.mem, err = openMemory(&s.o); err != nil {
		return err
	}
	s.nic = newNIC(s.mem)
	s.nic.key.Store(rand.Uint32())
	if s.acceptor, err = newAcceptor(&s.o, s.admit); err != nil {
		return err
	}
	addr, err := s.acceptor.door.Contact(nil)
	if err != nil {
		return err
	}
	for range s.o.Workers {
		w, err := newWorker(s)
		if err != nil {
			return err
		}
		s.workers = append(s.workers, w)
	}
	s.own = member.MN{ID: s.o.Mem, Size: s.mem.size, Addr: addr, Epoch: s.mem.epoch}
	m, err := s.o.Members.JoinMN(ctx, s.own, func(m member.Member) {
		s.ready(m)
		for _, w := range s.workers {
			s.tasks.Go(w.run)
		}
		s.tasks.Go(s.watch)
		s.acceptor.start()
	})
	if err != nil {
		return err
	}
	s.standing.Admit()
	k := peer.Keeper{Members: s.o.Members, Own: s.Member, Suspend: s.suspend, Ready: s.ready, Admit: s.standing.Admit, Report: s.o.Report}
	s.tasks.Go(func() {
		if err := k.Stay(s.ctx, m); err != nil {
			s.o.Report(err)
			s.stop(err)
		}
	})
	return nil
}

// ready begins to serve in a new epoch: nobody knows of it yet. Nobody is let in before it is admitted.
func (s *MemoryServer) ready(m member.Member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.member, s.own, s.away = m, m.MN(), nil
	s.mem.keepEpoch(s.own.Epoch)
	// Nothing of the epoch before is valid any more: neither what its lanes have executed, nor the key, nor the state, whose
	// revision may be that of a coordinator that has lost its storage since.
	clear(s.lanes)
	s.gone = nil
	s.nic.key.Store(rand.Uint32())
	s.standing.Reset()
	st, _ := m.State()
	s.standing.Take(st)
	s.tasks.Go(func() {
		_ = peer.Follow(s.ctx, m, func(st *member.State) { s.take(m, st) }) // its end is the Keeper's business
	})
	return true
}

// suspend shuts everybody out: when it returns, nothing more is executed until the memory node is ready in a new epoch.
func (s *MemoryServer) suspend(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = why
	s.cutAll()
}

// cutAll cuts all connections; mu is held.
func (s *MemoryServer) cutAll() {
	for _, l := range s.lanes {
		if l.conn != nil {
			l.conn.cut()
		}
	}
}

// take acts on a state of a membership: who is not in it is shut out. When it returns, nothing of those reaches memory any more.
func (s *MemoryServer) take(m member.Member, st *member.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m != s.member {
		return // of a membership that has ended
	}
	s.standing.Take(st)
	for k, l := range s.lanes {
		if l.gone || st.Has(k.life) {
			continue
		}
		l.gone = true
		s.gone = append(s.gone, k)
		if l.conn != nil {
			l.conn.cut()
		}
	}
	for ; len(s.gone) > maxGone; s.gone = s.gone[1:] {
		delete(s.lanes, s.gone[0])
	}
}

// admit answers a hello.
func (s *MemoryServer) admit(g guest) (reply, func(*stream), error) {
	if g.role != roleLane {
		return reply{}, nil, fmt.Errorf("%w: this is %v, which takes no %v", ErrProtocol, s.o.Mem, g.role)
	}
	var r reply
	var take func(*stream)
	err := s.standing.Await(s.ctx, func(*member.State) (err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r, take, err = s.enter(&g)
		return err
	})
	return r, take, err
}

// enter lets a member in, or says why not; mu is held.
func (s *MemoryServer) enter(g *guest) (r reply, take func(*stream), err error) {
	st, _ := s.standing.State()
	key := laneKey{member.Life(g.from), g.index}
	r = reply{caps: capMasked | capAtomic16, size: s.mem.size, epoch: s.own.Epoch, key: s.nic.key.Load()}
	l := s.lanes[key]
	if l != nil && (l.gone || s.ended || s.away != nil) {
		r.known, r.number = true, uint64(l.executed) // it has been cut
	}
	switch {
	case s.ended:
		return r, nil, fmt.Errorf("%w: %v ends", fabric.ErrNodeDown, s.o.Mem)
	case s.away != nil:
		return r, nil, fmt.Errorf("%w: %v joins the cluster again: %v", fabric.ErrNodeDown, s.o.Mem, s.away)
	case g.to != uint64(s.own.Life):
		return r, nil, fmt.Errorf("%w: this is another life of %v, or another memory node", fabric.ErrStaleEpoch, s.o.Mem)
	case st == nil || !st.Has(s.own.Life) || !st.Has(key.life) && st.Revision < g.revision:
		// By a state from before its own publication it would let in who was given up before that, and whom nobody asked it to shut out.
		return r, nil, fmt.Errorf("%w: %v", peer.ErrBehind, s.o.Mem)
	}
	c, ok := st.CN(fabric.CNID(g.cn))
	if !ok || c.Life != key.life || l != nil && l.gone {
		return r, nil, fmt.Errorf("%w: cn%d is no member in that life", fabric.ErrFenced, g.cn)
	}
	if g.cert != nil {
		if err := peer.ParseContact(c.Addr).Owns(g.cert); err != nil {
			return r, nil, peer.Denied(err)
		}
	}
	r.revision = st.Revision
	if l == nil {
		l = &served{laneKey: key, executed: uint32(g.number)} // nothing was
		s.lanes[key] = l
	}
	if l.conn != nil {
		// One connection at a time, and nothing of an old one behind a new one's.
		l.conn.cut()
	}
	r.known, r.number = true, uint64(l.executed)
	conn := newLaneConn(s, l, uint32(g.number))
	l.conn = conn
	return r, func(st *stream) { s.begin(conn, st) }, nil
}

// begin serves a connection that was let in.
func (s *MemoryServer) begin(c *laneConn, st *stream) {
	if st == nil {
		s.left(c)
		return
	}
	s.workers[int(s.next.Add(1))%len(s.workers)].take(c, st)
}

// left notes that a connection is over.
func (s *MemoryServer) left(c *laneConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.lane.conn == c {
		c.lane.conn = nil
	}
}

// watch cuts connections that do not take their answers, and looks whether the file of the memory is as long as it was.
func (s *MemoryServer) watch() {
	t := time.NewTicker(s.o.Heartbeat)
	defer t.Stop()
	limit := int(s.o.DeadAfter / s.o.Heartbeat)
	for {
		select {
		case <-t.C:
		case <-s.ctx.Done():
			return
		}
		if err := s.mem.damage(); err != nil {
			s.stop(err)
		}
		s.mu.Lock()
		for _, l := range s.lanes {
			if l.conn != nil {
				l.conn.stalls(limit)
			}
		}
		s.mu.Unlock()
	}
}

// ID returns the number of the memory node.
func (s *MemoryServer) ID() fabric.MemID { return s.o.Mem }

// Size returns the length of its memory in bytes.
func (s *MemoryServer) Size() uint64 { return s.mem.size }

// Word returns a word of its memory, for its own use; it is good until Close. The offset is a multiple of 8.
func (s *MemoryServer) Word(offset uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(s.mem.base, offset))
}

// Epoch returns the present epoch, or the last while it is not a member: it began with Serve, or when the memory node joined again.
func (s *MemoryServer) Epoch() uint32 { return s.Member().Epoch }

// Member returns what the coordinator knows of the memory node, or did while it was a member.
func (s *MemoryServer) Member() member.MN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

// Contact is member.Contact.
func (s *MemoryServer) Contact() (silent time.Duration, why error) {
	s.mu.Lock()
	m := s.member
	s.mu.Unlock()
	return peer.Reach(m)
}

// Away says why the memory node does not serve at present: the cluster has given it up, and it joins again. nil: it serves.
func (s *MemoryServer) Away() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// Addr returns the address on which it listens.
func (s *MemoryServer) Addr() net.Addr { return s.acceptor.door.Addr() }

// Done is closed when the memory node does not serve any more, and Err says why: nil after Close, ErrInUse of package member or
// ErrSuperseded when the cluster has given it up and another process has its number, ErrTruncated when the file of its memory was truncated. Then it has to be closed. (One that the cluster
// has given up, and whose number is free, joins again with its memory: see Away.)
func (s *MemoryServer) Done() <-chan struct{} { return s.done }

// Err says why the memory node does not serve any more.
func (s *MemoryServer) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// stop shuts everybody out.
func (s *MemoryServer) stop(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended, s.err = true, why
	s.cutAll()
	close(s.done)
}

// end stops and gives everything back, but leaves the membership to whom it belongs.
func (s *MemoryServer) end(why error) {
	s.closing.Do(func() {
		s.stop(why)
		s.cancel()
		if s.acceptor != nil {
			s.acceptor.door.Close()
		}
		for _, w := range s.workers {
			w.stop()
		}
		s.tasks.Wait()
		for _, w := range s.workers {
			w.close()
		}
		if s.mem != nil {
			s.mem.close()
		}
	})
}

// Close stops serving: compute nodes get fabric.ErrNodeDown. Memory without a File is gone.
func (s *MemoryServer) Close() error {
	s.stop(nil) // it joins no more
	s.mu.Lock()
	m, away := s.member, s.away
	s.mu.Unlock()
	var err error
	if away == nil {
		err = peer.Leave(context.Background(), m)
	}
	if errors.Is(err, fabric.ErrFenced) {
		err = nil // it was given up before
	}
	s.end(nil)
	return err
}
