package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Server is a memory node, but for the part that lends memory: its [Lender]. It joins the cluster, acts on states, joins again with its memory when
// the cluster has given it up, and leaves. It is a member.MemoryServer.
type Server struct {
	Standing // what it acts on
	Config
	Door *Door
	Base unsafe.Pointer  // of its memory
	Ctx  context.Context // ends with the server

	lend    Lender
	id      fabric.MemID
	size    uint64
	tasks   sync.WaitGroup
	cancel  context.CancelFunc
	closing sync.Once
	done    chan struct{} // closed when it does not serve any more
	leased  atomic.Pointer[member.Member]

	Mu     sync.Mutex
	Own    member.MN
	listed member.Incarnation            // of this process: the last in which it knows that groups have it as a host, or else its first
	known  map[fabric.MemID]member.Known // groups as this process knows them
	member member.Member                 // the present one, or the last
	away   error                         // why it is none now, and joins again
	err    error                         // why it does not serve any more
	ended  bool
}

// A Lender is the part of a memory node that lends memory: it lets compute nodes in and shuts them out. Mu is held in the first three functions.
type Lender struct {
	// Renew begins an epoch, that of Own: nothing of the epoch before is valid any more. No compute node knows of the new one yet.
	Renew func()
	// Evict shuts out compute nodes that are not in a state; nil: all. When it returns, nothing that they have sent can reach
	// memory any more.
	Evict func(st *member.State)
	// Suspended is called when the cluster has given the memory node up, and all are shut out. An error ends the server.
	Suspended func() error
	// Stop stops letting compute nodes in. Release frees everything, when all tasks have ended. Both may be called for a server that failed to
	// join half way.
	Stop, Release func()
}

// Init makes s a server that is no member yet.
func (s *Server) Init(cfg Config, lend Lender) {
	s.Config, s.lend, s.done, s.known = cfg, lend, make(chan struct{}), map[fabric.MemID]member.Known{}
	s.Ctx, s.cancel = context.WithCancel(context.Background())
}

// Join makes the server a member, until Close. start is called when it is ready to let others in, before any node knows of it.
func (s *Server) Join(ctx context.Context, own member.MN, start func()) error {
	s.Own, s.id, s.size = own, own.ID, own.Size
	m, err := s.Members.JoinMN(ctx, own, func(m member.Member) {
		s.ready(m)
		start()
	})
	if err != nil {
		return err
	}
	s.Admit()
	s.Go(func() {
		if err := s.stay(m); err != nil {
			s.Report(err)
			s.Quit(err)
		}
	})
	return nil
}

// Go runs a task of the server, which ends before the server does.
func (s *Server) Go(task func()) { s.tasks.Go(task) }

// ReportSoon reports an error for a caller that holds Mu: what reports may take long, or ask the memory node something.
func (s *Server) ReportSoon(err error) { s.Go(func() { s.Report(err) }) }

// ready begins a new epoch, of which no compute node knows yet. None is let in before the memory node is admitted.
func (s *Server) ready(m member.Member) bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.ended {
		return false
	}
	s.member, s.Own, s.away = m, m.MN(), nil
	if s.listed == 0 {
		s.listed = s.Own.Incarnation
	}
	s.leased.Store(&m)
	s.lend.Renew()
	s.Reset() // the revision may be that of a coordinator that has lost its storage since
	st, _ := m.State()
	s.Take(st)
	s.Go(func() {
		_ = Follow(s.Ctx, m, func(st *member.State) { s.act(m, st) }) // stay acts on its end
	})
	return true
}

// suspend shuts all compute nodes out: when it returns, nothing reaches memory until the memory node is ready in a new epoch.
func (s *Server) suspend(why error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	served := s.away == nil
	s.away = why
	s.lend.Evict(nil)
	if !served || s.ended {
		return
	}
	if err := s.lend.Suspended(); err != nil {
		err = fmt.Errorf("memory node %v joins again: %w", s.id, err)
		s.ReportSoon(err)
		s.quit(err)
		s.cancel() // it joins no more
	}
}

// act acts on a state of a membership: compute nodes that are not in it are shut out.
func (s *Server) act(m member.Member, st *member.State) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if m != s.member {
		return // of a membership that has ended
	}
	s.Take(st)
	if slices.ContainsFunc(st.Groups, func(g *member.Group) bool { return g.Find(s.Own.Incarnation) >= 0 }) {
		s.listed = s.Own.Incarnation
	}
	s.learn(st)
	s.lend.Evict(st)
}

// learn notes what groups are: of numbers of which this process has a copy, and of its own. A coordinator that has lost its data is told.
func (s *Server) learn(st *member.State) {
	for _, g := range st.Groups {
		i, _ := s.Replica(g)
		switch {
		case s.KnowsLater(g):
		case i >= 0:
			s.known[g.ID] = member.Know(g, g.Replicas[i].Number)
		case g.ID == s.id && s.Own.Replicas > 1:
			s.known[g.ID] = member.Know(g, 0)
		default:
			delete(s.known, g.ID)
		}
	}
}

// KnowsLater reports whether this process knows a later configuration of a number than the coordinator, which has lost its data. Then its copy is kept. Mu is held.
func (s *Server) KnowsLater(g *member.Group) bool {
	k, ok := s.known[g.ID]
	return g.Lost != nil || ok && k.Later(g)
}

// Replica returns which replica of a group this process has, and its index, as far as the group or this process knows by now: it may have joined again with its memory, and the group
// still have it by its incarnation of before. -1: none. Mu is held.
func (s *Server) Replica(g *member.Group) (i int, current bool) {
	if i = g.Find(s.Own.Incarnation); i >= 0 {
		return i, true
	}
	return slices.IndexFunc(g.Replicas, s.Own.Had), false
}

// Closed returns why no compute node is let in at present; nil: members are. Mu is held.
func (s *Server) Closed() error {
	switch {
	case s.ended:
		return fmt.Errorf("%w: %v ends", fabric.ErrNodeDown, s.id)
	case s.away != nil:
		return fmt.Errorf("%w: %v joins the cluster again: %v", fabric.ErrNodeDown, s.id, s.away)
	}
	return nil
}

// ID is member.MemoryServer.ID.
func (s *Server) ID() fabric.MemID { return s.id }

// Size is member.MemoryServer.Size.
func (s *Server) Size() uint64 { return s.size }

// Word is member.MemoryServer.Word.
func (s *Server) Word(offset uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(s.Base, offset))
}

// Epoch is member.MemoryServer.Epoch.
func (s *Server) Epoch() uint32 { return s.Member().Epoch }

// Member is member.MemoryServer.Member.
func (s *Server) Member() member.MN {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Own
}

// Contact is member.Contact.
func (s *Server) Contact() (silent time.Duration, why error) {
	s.Mu.Lock()
	m := s.member
	s.Mu.Unlock()
	return Reach(m)
}

// Away is member.MemoryServer.Away.
func (s *Server) Away() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.away
}

// Addr is member.MemoryServer.Addr.
func (s *Server) Addr() net.Addr { return s.Door.Addr() }

// Done is member.MemoryServer.Done.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is member.MemoryServer.Err.
func (s *Server) Err() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.err
}

// Quit shuts all compute nodes out, for good. why is what Err returns.
func (s *Server) Quit(why error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.quit(why)
}

// quit is Quit; Mu is held.
func (s *Server) quit(why error) {
	if s.ended {
		return
	}
	s.ended, s.err = true, why
	s.lend.Evict(nil)
	close(s.done)
}

// End quits and frees everything, but does not end the membership.
func (s *Server) End(why error) {
	s.closing.Do(func() {
		s.Quit(why)
		s.cancel()
		s.lend.Stop()
		s.tasks.Wait()
		s.lend.Release()
	})
}

// Close is member.MemoryServer.Close.
func (s *Server) Close() error {
	s.Quit(nil) // it joins no more
	s.Mu.Lock()
	m, away := s.member, s.away
	s.Mu.Unlock()
	var err error
	if away == nil {
		err = leave(context.Background(), m, member.Member.Leave)
	}
	if errors.Is(err, fabric.ErrFenced) {
		err = nil // it was given up before
	}
	s.End(nil)
	return errors.Join(err, s.Left())
}

var _ member.MemoryServer = (*Server)(nil)
