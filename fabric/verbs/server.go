//go:build linux && cgo

package verbs

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A MemoryServer is a memory node. It registers memory and connects compute
// nodes; no operation waits for its process to run.
type MemoryServer struct {
	o        Options
	dev      *device
	cq       *cq // of its queue pairs, which never send: it stays empty
	mem      mapped
	service  *service
	own      member.MN
	standing peer.Standing // what it acts on
	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	closing  sync.Once
	done     chan struct{} // closed when it does not serve any more

	mu     sync.Mutex
	member member.Member // the present one, or the last
	away   error         // why it is none now, and joins again
	guests map[*session]*guest
	err    error // why it does not serve any more
	over   bool
}

// A guest is a compute node that is attached.
type guest struct {
	life  member.Life
	lanes []*qp
}

// Serve starts a memory node: it registers memory, and serves until Close.
// Memory starts zeroed.
func Serve(ctx context.Context, o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	s := &MemoryServer{o: o, guests: map[*session]*guest{}, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

func (s *MemoryServer) open(ctx context.Context) (err error) {
	if s.dev, err = openDevice(&s.o); err != nil {
		return err
	}
	if s.cq, err = s.dev.newCQ(16, channel{}, 1); err != nil {
		return err
	}
	if s.mem, err = s.dev.mapMemory(s.o.Size, true, s.o.Huge, s.o.regionLimit); err != nil {
		return err
	}
	if s.service, err = listen(&s.o); err != nil {
		return err
	}
	addr, err := s.service.Contact(func(c *x509.Certificate) error { return peer.MayServe(c, s.o.Mem) })
	if err != nil {
		return err
	}
	s.own = member.MN{ID: s.o.Mem, Size: s.o.Size, Addr: addr}
	m, err := s.o.Members.JoinMN(ctx, s.own, func(m member.Member) {
		s.ready(m)
		s.service.start(s.handle, s.ended)
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
	if s.over {
		return false
	}
	s.member, s.own, s.away = m, m.MN(), nil
	s.standing.Reset() // its revision may be that of a coordinator that has lost its storage since
	st, _ := m.State()
	s.standing.Take(st)
	s.tasks.Go(func() {
		_ = peer.Follow(s.ctx, m, func(st *member.State) { s.take(m, st) }) // its end is the Keeper's business
	})
	return true
}

// suspend shuts everybody out: when it returns, nothing reaches memory until the memory node is ready in a new epoch, with a new key.
func (s *MemoryServer) suspend(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := s.away == nil
	s.away = why
	s.evictAll()
	if !served || s.over {
		return
	}
	if err := s.renewKey(); err != nil {
		err = fmt.Errorf("memory node %v joins again: %w", s.o.Mem, err)
		s.o.Report(err)
		s.halt(err)
		s.cancel() // it joins no more
	}
}

// evictAll drops all guests; mu is held.
func (s *MemoryServer) evictAll() {
	for c, g := range s.guests {
		s.evict(c, g)
	}
}

// take acts on a state of a membership: who is not in it is shut out. When it returns, nothing of what those have sent can reach
// memory any more.
func (s *MemoryServer) take(m member.Member, st *member.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m != s.member {
		return // of a membership that has ended
	}
	s.standing.Take(st)
	for c, g := range s.guests {
		if !st.Has(g.life) {
			s.evict(c, g)
		}
	}
}

// evict drops a guest; mu is held.
func (s *MemoryServer) evict(c *session, g *guest) {
	g.drop()
	delete(s.guests, c)
	c.close()
}

// handle answers compute nodes.
func (s *MemoryServer) handle(c *session, kind string, body json.RawMessage) (any, error) {
	switch kind {
	case askAttach:
		return decoded(body, func(r attachRequest) (any, error) { return s.attach(c, r) })
	case askLane:
		return decoded(body, func(r laneRequest) (any, error) { return s.relane(c, r) })
	}
	return nil, fmt.Errorf("%w: what is %q?", ErrProtocol, kind)
}

func decoded[T any](body json.RawMessage, f func(T) (any, error)) (any, error) {
	var t T
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return f(t)
}

// attach connects queue pairs for a compute node.
func (s *MemoryServer) attach(c *session, r attachRequest) (any, error) {
	switch {
	case len(r.Lanes) == 0 || len(r.Lanes) > maxQueuePairs:
		return nil, fmt.Errorf("%w: %d queue pairs", ErrProtocol, len(r.Lanes))
	case r.To != s.Member().Life:
		return nil, fmt.Errorf("%w: this is another life of %v, or another memory node", fabric.ErrStaleEpoch, s.o.Mem)
	}
	judge := func(st *member.State) error {
		if !st.Has(r.To) { // By a state from before its own publication it would let in who was given up before that.
			return fmt.Errorf("%w: %v", peer.ErrBehind, s.o.Mem)
		}
		return r.in(st, (*member.State).CN)
	}
	if err := s.standing.Await(s.ctx, judge); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, fmt.Errorf("%w: %v ends", fabric.ErrNodeDown, s.o.Mem)
	case s.away != nil:
		return nil, fmt.Errorf("%w: %v joins the cluster again: %v", fabric.ErrNodeDown, s.o.Mem, s.away)
	case r.To != s.own.Life: // it has joined again meanwhile
		return nil, fmt.Errorf("%w: this is another life of %v", fabric.ErrStaleEpoch, s.o.Mem)
	}
	st, _ := s.standing.State()
	from, _ := st.CN(r.ID)
	switch err := judge(st); {
	case err != nil: // gone meanwhile
		return nil, err
	case c.of(from) != nil:
		return nil, c.of(from)
	case s.guests[c] != nil:
		return nil, fmt.Errorf("%w: attached already", ErrProtocol)
	}
	for before, old := range s.guests {
		// The node has given that session up, and this end has not noticed yet: nothing that was sent over its queue pairs may be
		// executed after what is sent over the new ones.
		if old.life == r.From {
			s.evict(before, old)
		}
	}
	g := &guest{life: r.From}
	reply := attachReply{Size: s.o.Size, Base: uint64(uintptr(s.mem.at)), Keys: s.mem.keys(), Shift: s.mem.shift}
	for _, peer := range r.Lanes {
		q, err := s.connect(peer)
		if err != nil {
			g.drop()
			return nil, err
		}
		g.lanes = append(g.lanes, q)
		reply.Lanes = append(reply.Lanes, q.end())
	}
	s.guests[c] = g
	return reply, nil
}

func (s *MemoryServer) connect(peer end) (*qp, error) {
	q, err := s.dev.newQP(s.cq, s.cq, 1, 1, 0, true)
	if err != nil {
		return nil, err
	}
	if err := q.connect(peer); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// relane replaces a queue pair that has failed.
func (s *MemoryServer) relane(c *session, r laneRequest) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guests[c]
	if g == nil {
		return nil, fmt.Errorf("%w: not attached", fabric.ErrFenced)
	}
	if r.Index < 0 || r.Index >= len(g.lanes) {
		return nil, fmt.Errorf("%w: queue pair %d of %d", ErrProtocol, r.Index, len(g.lanes))
	}
	q, err := s.connect(r.End)
	if err != nil {
		return nil, err
	}
	g.lanes[r.Index].close()
	g.lanes[r.Index] = q
	return q.end(), nil
}

// drop destroys a guest's queue pairs: when it returns, nothing of what the
// guest has sent can reach memory any more.
func (g *guest) drop() {
	for _, q := range g.lanes {
		q.close()
	}
	g.lanes = nil
}

// ended runs after a session has ended.
func (s *MemoryServer) ended(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.guests[c]; g != nil {
		s.evict(c, g)
	}
}

// ID returns the number of the memory node.
func (s *MemoryServer) ID() fabric.MemID { return s.o.Mem }

// Word returns a word of its memory, for its own use; it is good until Close. The offset is a multiple of 8.
func (s *MemoryServer) Word(offset uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(s.mem.at, offset))
}

// Size returns the length of its memory in bytes.
func (s *MemoryServer) Size() uint64 { return s.o.Size }

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

// Addr returns the address of the control service.
func (s *MemoryServer) Addr() net.Addr { return s.service.Addr() }

// Done is closed when the memory node does not serve any more, and Err says why: nil after Close, member.ErrInUse or
// ErrSuperseded when the cluster has given it up and another process has its number. Then it has to be closed. (One that the cluster
// has given up, and whose number is free, joins again with its memory: see Away.)
func (s *MemoryServer) Done() <-chan struct{} { return s.done }

// Err says why the memory node does not serve any more.
func (s *MemoryServer) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Device returns which end of the network it uses.
func (s *MemoryServer) Device() Candidate { return s.dev.end }

// renewKey registers the memory anew: from then on the device refuses the key of before. mu is held.
func (s *MemoryServer) renewKey() error {
	s.mem.unregister()
	limit := s.o.regionLimit
	if limit == 0 {
		limit = uint64(s.dev.caps.max_mr_size)
	}
	return s.mem.register(s.dev, s.o.Size, true, limit)
}

// stop shuts everybody out.
func (s *MemoryServer) stop(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halt(why)
}

// halt is stop; mu is held.
func (s *MemoryServer) halt(why error) {
	if s.over {
		return
	}
	s.over, s.err = true, why
	s.evictAll()
	close(s.done)
}

// end stops and gives everything back, but leaves the membership to whom it belongs.
func (s *MemoryServer) end(why error) {
	s.closing.Do(func() {
		s.stop(why)
		s.cancel()
		if s.service != nil {
			s.service.close()
		}
		s.tasks.Wait()
		if s.mem.at != nil {
			s.mem.release()
		}
		if s.cq != nil {
			freeCQ(s.cq)
		}
		if s.dev != nil {
			s.dev.close()
		}
	})
}

// Close stops serving: compute nodes get fabric.ErrNodeDown.
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

// redialEvery is how often one tries to reach a node again.
const redialEvery = 100 * time.Millisecond
