//go:build linux && cgo

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
)

// A MemoryServer is a memory node. It registers memory and connects compute
// nodes; no operation waits for its process to run.
type MemoryServer struct {
	o       Options
	dev     *device
	cq      *cq // of its queue pairs, which never send: it stays empty
	mem     mapped
	service *service
	info    memoryInfo
	lead    *lead // of memory node 0
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	close   sync.Once

	mu     sync.Mutex
	view   viewMessage     // who may attach, as the lead says
	ready  bool            // whether the lead has said
	fenced map[uint64]bool // tickets that were in a view and are not any more
	guests map[*session]*guest
	gone   bool
}

// A guest is a compute node that is attached.
type guest struct {
	life
	lanes []*qp
}

// Serve starts a memory node: it registers memory, and serves until Close.
// Memory starts zeroed.
func Serve(o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	s := &MemoryServer{o: o, fenced: map[uint64]bool{}, guests: map[*session]*guest{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *MemoryServer) open() (err error) {
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
	s.info = memoryInfo{ID: s.o.Mem, Size: s.o.Size, Epoch: s.o.Epoch, Addr: s.o.Advertise, Up: true}
	if s.o.Mem == 0 {
		s.lead = newLead(s)
		s.ready = true
	}
	s.service.start(s.handle, s.ended)
	if s.lead != nil {
		return nil
	}
	return s.enlist()
}

// enlist makes the memory node known to the lead, and again when the
// connection is lost.
func (s *MemoryServer) enlist() error {
	lead, err := s.dialLead(false)
	if err != nil {
		return err
	}
	s.tasks.Go(func() {
		for s.ctx.Err() == nil {
			if lead != nil {
				<-lead.done
				// Nobody tells us any more who has died: nobody may go on.
				s.mu.Lock()
				s.ready = false
				s.mu.Unlock()
				s.evict(nil)
			}
			if lead, err = s.dialLead(true); err != nil {
				lead = nil
				s.o.Report(fmt.Errorf("memory node %v: %w", s.o.Mem, err))
				sleep(s.ctx, redialEvery)
			}
		}
	})
	return nil
}

func (s *MemoryServer) dialLead(again bool) (*session, error) {
	lead, err := dial(s.ctx, s.o.Lead, &s.o, s.handle)
	if err != nil {
		return nil, err
	}
	s.tasks.Go(lead.run)
	stop := context.AfterFunc(s.ctx, lead.close)
	s.tasks.Go(func() { <-lead.done; stop() })
	info := s.info
	info.Addr, info.Again = s.o.address(s.service, lead), again
	ctx, cancel := context.WithTimeout(s.ctx, 3*s.o.DeadAfter) // it may wait for others: see lead.awaitReturns
	defer cancel()
	if err := lead.call(ctx, askServe, info, nil); err != nil {
		lead.close()
		return nil, err
	}
	return lead, nil
}

// address returns the control address that others are told: where it listens, on the
// address by which it reached the lead.
func (o *Options) address(v *service, s *session) string {
	if o.Advertise != "" {
		return o.Advertise
	}
	host, port, _ := net.SplitHostPort(v.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return net.JoinHostPort(host, port)
	}
	host, _, _ = net.SplitHostPort(s.conn.LocalAddr().String())
	return net.JoinHostPort(host, port)
}

// handle answers compute nodes, and the lead.
func (s *MemoryServer) handle(c *session, kind string, body json.RawMessage) (any, error) {
	switch kind {
	case askAttach:
		return decoded(body, func(r attachRequest) (any, error) { return s.attach(c, r) })
	case askLane:
		return decoded(body, func(r laneRequest) (any, error) { return s.relane(c, r) })
	case askMembers:
		return decoded(body, func(v viewMessage) (any, error) { s.setMembers(v); return nil, nil })
	case askJoin, askLeave, askServe:
		if s.lead == nil {
			return nil, fmt.Errorf("%w: this is memory node %v; the lead is memory node 0", ErrProtocol, s.o.Mem)
		}
		return s.lead.handle(c, kind, body)
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
	if len(r.Lanes) == 0 || len(r.Lanes) > maxQueuePairs {
		return nil, fmt.Errorf("%w: %d queue pairs", ErrProtocol, len(r.Lanes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone:
		return nil, fabric.ErrNodeDown
	case s.fenced[r.Ticket]:
		return nil, fmt.Errorf("%w: %v", fabric.ErrFenced, r.ID)
	case !s.ready:
		return nil, fmt.Errorf("%w: memory node %v is without the lead", fabric.ErrNodeDown, s.o.Mem)
	case !s.view.has(r.life):
		return nil, fmt.Errorf("%w: %v is not a member", fabric.ErrFenced, r.ID)
	case s.guests[c] != nil:
		return nil, fmt.Errorf("%w: attached already", ErrProtocol)
	}
	g := &guest{life: r.life}
	reply := attachReply{memoryInfo: s.info, Base: uint64(uintptr(s.mem.at)), Keys: s.mem.keys(), Shift: s.mem.shift}
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

// setMembers takes over who may attach, and fences all others.
func (s *MemoryServer) setMembers(v viewMessage) {
	s.mu.Lock()
	if s.ready && v.Epoch < s.view.Epoch {
		s.mu.Unlock()
		return
	}
	for _, c := range s.view.Live {
		if !v.has(c.life) {
			s.fenced[c.Ticket] = true
		}
	}
	s.view, s.ready = v, true
	s.mu.Unlock()
	s.evict(&v)
}

// evict drops all guests that are not in a view; all of them if it is nil.
func (s *MemoryServer) evict(v *viewMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, g := range s.guests {
		if v == nil || !v.has(g.life) {
			g.drop()
			delete(s.guests, c)
			c.close()
		}
	}
}

// ended runs after a session has ended.
func (s *MemoryServer) ended(c *session) {
	s.mu.Lock()
	if g := s.guests[c]; g != nil {
		g.drop()
		delete(s.guests, c)
	}
	s.mu.Unlock()
	if s.lead != nil {
		s.lead.ended(c)
	}
}

// ID returns the number of the memory node.
func (s *MemoryServer) ID() fabric.MemID { return s.o.Mem }

// Size returns the length of its memory in bytes.
func (s *MemoryServer) Size() uint64 { return s.o.Size }

// Epoch returns the epoch that began with Serve.
func (s *MemoryServer) Epoch() uint32 { return s.o.Epoch }

// Addr returns the address of the control service.
func (s *MemoryServer) Addr() net.Addr { return s.service.listener.Addr() }

// Device returns which end of the network it uses.
func (s *MemoryServer) Device() Candidate { return s.dev.end }

// revoke makes the device refuse the key of the memory.
func (s *MemoryServer) revoke() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mem.unregister()
	// The compute nodes keep the old keys.
	limit := s.o.regionLimit
	if limit == 0 {
		limit = uint64(s.dev.caps.max_mr_size)
	}
	return s.mem.register(s.dev, s.o.Size, true, limit)
}

// Close stops serving: compute nodes get ErrNodeDown.
func (s *MemoryServer) Close() error {
	s.close.Do(func() {
		s.cancel()
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
		s.evict(nil)
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
	return nil
}

// redialEvery is how often one tries to reach a node again.
const redialEvery = 100 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// newTicket draws a number that was never drawn before.
func newTicket() uint64 {
	for {
		if t := rand.Uint64(); t != 0 {
			return t
		}
	}
}

func sortLive(live []cnInfo) {
	slices.SortFunc(live, func(a, b cnInfo) int { return int(a.ID) - int(b.ID) })
}
