//go:build cgo && !shmonly

package verbs

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A MemoryServer is a memory node. It registers memory and connects compute
// nodes; no operation waits for its process to run.
type MemoryServer struct {
	member.MemoryServer // peer
	peer                *peer.Server
	o                   Options
	dev                 *device
	cq                  *cq // of its queue pairs, which never send: it stays empty
	mem                 mapped
	service             *service
	guests              map[*session]*guest // under Mu of peer
}

// A guest is a compute node that is attached.
type guest struct {
	incarnation member.Incarnation
	lanes       []*qp
}

// Serve starts a memory node: it registers memory, and serves until Close.
// Memory starts zeroed.
func Serve(ctx context.Context, o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	p := &peer.Server{}
	s := &MemoryServer{MemoryServer: p, peer: p, o: o, guests: map[*session]*guest{}}
	p.Init(o.config(), peer.Lender{Renew: func() {}, Evict: s.evictAll, Suspended: s.renewKey, Stop: s.stop, Release: s.release})
	if err := s.open(ctx); err != nil {
		p.End(err)
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
	s.peer.Base = s.mem.at
	if s.service, err = listen(&s.o); err != nil {
		return err
	}
	s.peer.Door = s.service.Door
	addr, err := s.service.Contact(func(c *x509.Certificate) error { return peer.MayServe(c, s.o.Mem) })
	if err != nil {
		return err
	}
	return s.peer.Join(ctx, member.MN{ID: s.o.Mem, Size: s.o.Size, Addr: addr}, func() { s.service.start(s.handle, s.ended) })
}

// evictAll drops guests that are not in a state; nil: all guests. When it returns, nothing of what those have sent can reach
// memory any more. Mu is held.
func (s *MemoryServer) evictAll(st *member.State) {
	for c, g := range s.guests {
		if st == nil || !st.Has(g.incarnation) {
			s.evict(c, g)
		}
	}
}

// evict drops a guest; Mu is held.
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
	return nil, fmt.Errorf("%w: unknown kind of request %q", ErrProtocol, kind)
}

func decoded[T any](body json.RawMessage, f func(T) (any, error)) (any, error) {
	var t T
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return f(t)
}

// attach connects queue pairs for a compute node.
func (s *MemoryServer) attach(c *session, r attachRequest) (reply any, err error) {
	if len(r.Lanes) == 0 || len(r.Lanes) > maxQueuePairs {
		return nil, fmt.Errorf("%w: %d queue pairs", ErrProtocol, len(r.Lanes))
	}
	r.Cert = c.cert
	err = s.peer.Await(s.peer.Ctx, func(*member.State) (err error) {
		s.peer.Mu.Lock()
		defer s.peer.Mu.Unlock()
		reply, err = s.enter(c, &r)
		return err
	})
	return reply, err
}

// enter lets a compute node in, or says why not; Mu is held.
func (s *MemoryServer) enter(c *session, r *attachRequest) (any, error) {
	if _, err := s.peer.Client(&r.Caller); err != nil {
		return nil, err
	}
	if s.guests[c] != nil {
		return nil, fmt.Errorf("%w: attached already", ErrProtocol)
	}
	for before, old := range s.guests {
		// The node has given that session up, and this end has not noticed yet: nothing that was sent over its queue pairs may be
		// executed after what is sent over the new ones.
		if old.incarnation == r.From {
			s.evict(before, old)
		}
	}
	g := &guest{incarnation: r.From}
	reply := attachReply{Size: s.o.Size, Base: uint64(uintptr(s.mem.at)), Keys: s.mem.keys(), Shift: s.mem.shift}
	for _, to := range r.Lanes {
		q, err := s.connect(to)
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

func (s *MemoryServer) connect(to end) (*qp, error) {
	q, err := s.dev.newQP(s.cq, s.cq, 1, 1, 0, true)
	if err != nil {
		return nil, err
	}
	if err := q.connect(to); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// relane replaces a queue pair that has failed.
func (s *MemoryServer) relane(c *session, r laneRequest) (any, error) {
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
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
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	if g := s.guests[c]; g != nil {
		s.evict(c, g)
	}
}

// Device returns which end of the network it uses.
func (s *MemoryServer) Device() Candidate { return s.dev.end }

// renewKey registers the memory anew: from then on the device refuses the key of before. Mu is held.
func (s *MemoryServer) renewKey() error {
	s.mem.unregister()
	limit := s.o.regionLimit
	if limit == 0 {
		limit = uint64(s.dev.caps.max_mr_size)
	}
	return s.mem.register(s.dev, s.o.Size, true, limit)
}

// stop lets no node in any more.
func (s *MemoryServer) stop() {
	if s.service != nil {
		s.service.close()
	}
}

// release gives everything back.
func (s *MemoryServer) release() {
	if s.mem.at != nil {
		s.mem.release()
	}
	if s.cq != nil {
		freeCQ(s.cq)
	}
	if s.dev != nil {
		s.dev.close()
	}
}
