package tcp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// A MemoryServer is a memory node: memory, and the software NIC that executes what
// compute nodes ask for.
type MemoryServer struct {
	member.MemoryServer // peer
	peer                *peer.Server
	o                   Options
	home                *region // of its own number
	acceptor            *acceptor
	counter             *peer.Door // where memory is lent; nil: it is not
	workers             []*worker
	next                atomic.Uint32 // worker of the next connection
	begun               time.Time
	riders              sync.Map // of *laneConn by riderKey: those of which frames may come on shared connections

	// Under Mu of peer.

	copies []*region // of replicated numbers, its own among them
	format func(fabric.Copy) error
	lanes  map[laneKey]*served
	shared map[laneKey]*served // connections for frames of several lanes; their targets are 0
	gone   []laneKey           // of those in lanes that are over and remembered, the oldest first

	leaves          map[laneKey]*leave
	executedLocally executed // by leaves that are no more
}

// A laneKey names a lane: of a compute node in one of its incarnations, to some memory in one epoch.
type laneKey struct {
	incarnation member.Incarnation
	index       uint16
	target      target
}

// A riderKey names a lane to a replicated number by the tag that its frames have on a shared connection.
type riderKey struct {
	incarnation member.Incarnation
	index       uint16
	tag         uint32
}

// A served is a lane as the memory node knows it: it outlives its connections. Frames of it are executed as long as it has the connection by which they were let in, wherever
// they come from. So what the memory node can cut is all that can execute: newLaneConn gives a lane its connection, cut takes it away, and nothing else changes it.
type served struct {
	laneKey
	executed uint32 // frames before it have been executed; changed under the exec mutex of conn
	first    uint32 // the first frame of the hello by which it was let in last; under Mu
	conn     atomic.Pointer[laneConn]
	gone     bool // its node has gone
	over     bool // its memory is not served in that epoch any more
}

// cut cuts the connection of a lane, if it has one.
func (l *served) cut() {
	if c := l.conn.Load(); c != nil {
		c.cut()
	}
}

// forget cuts a lane and forgets it; Mu is held.
func (s *MemoryServer) forget(l *served) {
	l.cut()
	delete(s.lanes, l.laneKey)
}

// follows notes the first frame of a hello, or refuses one from before the lane was connected anew: the dial was given up, and the hello is late. Behind it, frames that are left on a
// shared connection, and were issued again since, would be executed once more.
func (l *served) follows(first uint32) error {
	if int32(first-l.first) < 0 {
		return fmt.Errorf("%w: a hello from before the lane was connected anew: it begins with frame %d, the last began with %d", ErrProtocol, first, l.first)
	}
	l.first = first
	return nil
}

// maxGone is how many lanes are remembered of nodes that have gone, and to backups in epochs that are over: a node that comes back, or asks, learns
// which of its frames were executed.
const maxGone = 1024

// retire cuts a lane to memory that is not served in its epoch any more; Mu is held. One to a backup is remembered: that may serve by now, and what was executed there stands.
func (s *MemoryServer) retire(l *served) {
	if l.target.replica == 0 {
		s.forget(l)
		return
	}
	l.cut()
	if !l.over && !l.gone {
		s.gone = append(s.gone, l.laneKey)
	}
	l.over = true
}

// Serve starts a memory node: it serves when Serve returns, and until Close.
func Serve(ctx context.Context, o Options) (*MemoryServer, error) {
	if err := o.checkServe(); err != nil {
		return nil, err
	}
	p := &peer.Server{}
	s := &MemoryServer{MemoryServer: p, peer: p, o: o, begun: time.Now(), lanes: map[laneKey]*served{}, shared: map[laneKey]*served{}, leaves: map[laneKey]*leave{}}
	p.Init(o.config(), peer.Lender{Renew: s.renew, Evict: s.evict, Suspended: func() error { return nil }, Stop: s.stop, Release: s.release})
	if err := s.open(ctx); err != nil {
		p.End(err)
		return nil, err
	}
	return s, nil
}

func (s *MemoryServer) open(ctx context.Context) (err error) {
	mem, err := openMemory(&s.o)
	if err != nil {
		return err
	}
	s.home = newRegion(s.o.Mem, mem)
	s.peer.Base = mem.base
	if s.acceptor, err = newAcceptor(&s.peer.Config, s.admit); err != nil {
		return err
	}
	s.peer.Door = s.acceptor.door
	addr, err := s.peer.Door.Contact(nil)
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
	own := member.MN{ID: s.o.Mem, Size: mem.size, Addr: addr, Epoch: mem.epoch, Replicas: s.o.Replicas, MinInSync: s.o.MinInSync, Label: s.o.Label, Room: s.o.Room}
	return s.peer.Join(ctx, own, func() {
		for _, w := range s.workers {
			s.peer.Go(w.run)
		}
		s.peer.Go(s.watch)
		s.offer()
		s.acceptor.start()
	})
}

// renew begins an epoch: neither what lanes have executed is valid any more, nor the key.
func (s *MemoryServer) renew() {
	s.home.mem.keepEpoch(s.peer.Own.Epoch)
	for _, l := range s.lanes {
		s.forget(l)
	}
	s.gone = nil
	s.home.nic.key.Store(rand.Uint32())
	for _, r := range s.copies {
		r.nic.key.Store(rand.Uint32())
	}
}

// evict cuts the lanes of compute nodes that are not in a state, and those to memory that is not served so any more; nil: all lanes.
func (s *MemoryServer) evict(st *member.State) {
	s.takeBack(func(l *leave) bool { return st == nil || !st.Has(l.incarnation) })
	for k, l := range s.lanes {
		if st != nil && (l.gone || st.Has(k.incarnation)) {
			continue
		}
		if st != nil {
			l.gone = true
			s.gone = append(s.gone, k)
		}
		l.cut()
	}
	for k, l := range s.shared {
		if st == nil || !st.Has(k.incarnation) {
			l.cut()
			delete(s.shared, k)
		}
	}
	if st != nil {
		s.regroup(st)
	}
	for ; len(s.gone) > maxGone; s.gone = s.gone[1:] {
		if l := s.lanes[s.gone[0]]; l != nil && (l.gone || l.over) {
			s.forget(l)
		}
	}
}

// admit answers a hello.
func (s *MemoryServer) admit(g guest) (reply, func(*stream), error) {
	enter := s.enter
	switch g.role {
	case roleLane:
	case roleShared:
		enter = s.enterShared
	default:
		return reply{}, nil, fmt.Errorf("%w: this is %v, which takes no links", ErrProtocol, s.ID())
	}
	var r reply
	var take func(*stream)
	err := s.peer.Await(s.peer.Ctx, func(*member.State) (err error) {
		s.peer.Mu.Lock()
		defer s.peer.Mu.Unlock()
		r, take, err = enter(&g)
		return err
	})
	return r, take, err
}

// enter lets a member in, or says why not; Mu is held.
func (s *MemoryServer) enter(g *guest) (r reply, take func(*stream), err error) {
	key := laneKey{member.Incarnation(g.from), g.index, g.target}
	x := s.home
	r = reply{caps: capMasked | capAtomic16 | capShared, epoch: s.peer.Own.Epoch}
	if g.target != (target{}) {
		if x = s.copyOf(g.target.id); x == nil {
			x = s.home // it refuses
		}
		r.epoch = x.epoch
	}
	r.size, r.key = x.mem.size, x.nic.key.Load()
	l := s.lanes[key]
	if l != nil && (l.gone || l.over || s.peer.Closed() != nil) {
		r.known, r.number = true, uint64(l.executed) // it has been cut
	}
	if _, err := s.peer.Client(g.caller()); err != nil {
		return r, nil, err
	}
	if l != nil && l.gone {
		return r, nil, fmt.Errorf("%w: cn%d was shut out", fabric.ErrFenced, g.cn)
	}
	st, _ := s.peer.State()
	r.revision = st.Revision
	if err := s.refusal(x, g); err != nil {
		return r, nil, err
	}
	r.known = l != nil // else what of it was executed is not remembered
	if l == nil {
		l = &served{laneKey: key, executed: uint32(g.number), first: uint32(g.number)}
		s.lanes[key] = l
	}
	l.over = false
	if err := l.follows(uint32(g.number)); err != nil {
		return r, nil, err
	}
	conn := newLaneConn(s, x, l, uint32(g.number))
	r.number = uint64(l.executed)
	conn.tag, conn.key = uint32(g.number>>32), r.key
	if key.target != (target{}) && conn.tag != 0 {
		s.riders.Store(conn.rider(), conn)
	}
	return r, func(st *stream) { s.begin(conn, st) }, nil
}

// enterShared lets a member in for frames of its lanes; Mu is held.
func (s *MemoryServer) enterShared(g *guest) (r reply, take func(*stream), err error) {
	if _, err := s.peer.Client(g.caller()); err != nil {
		return r, nil, err
	}
	key := laneKey{member.Incarnation(g.from), g.index, target{}}
	l := s.shared[key]
	if l == nil {
		l = &served{laneKey: key}
		s.shared[key] = l
	}
	conn := newLaneConn(s, nil, l, 0)
	st, _ := s.peer.State()
	return reply{caps: capMasked | capAtomic16 | capShared, epoch: s.peer.Own.Epoch, revision: st.Revision}, func(st *stream) { s.begin(conn, st) }, nil
}

// begin serves a connection that was let in; nil: it was lost. Its node may not know: it has been answered, and sends frames on a connection that lanes share.
func (s *MemoryServer) begin(c *laneConn, st *stream) {
	if st == nil {
		c.cut()
		return
	}
	s.workers[int(s.next.Add(1))%len(s.workers)].take(c, st)
}

// watch cuts connections that do not take their answers, and checks that the file of the memory was not truncated.
func (s *MemoryServer) watch() {
	t := time.NewTicker(s.o.Heartbeat)
	defer t.Stop()
	limit := s.peer.Limit()
	for {
		select {
		case <-t.C:
		case <-s.peer.Ctx.Done():
			return
		}
		if err := s.home.mem.damage(); err != nil {
			s.peer.Quit(err)
		}
		s.peer.Mu.Lock()
		for _, lanes := range []map[laneKey]*served{s.lanes, s.shared} {
			for _, l := range lanes {
				if c := l.conn.Load(); c != nil {
					c.stalls(limit)
				}
			}
		}
		s.peer.Mu.Unlock()
	}
}

// stop lets no node in any more, and ends the workers.
func (s *MemoryServer) stop() {
	if s.acceptor != nil {
		s.acceptor.door.Close()
	}
	if s.counter != nil {
		s.counter.Close()
	}
	for _, w := range s.workers {
		w.poller.stop()
	}
}

// release gives everything back.
func (s *MemoryServer) release() {
	for _, w := range s.workers {
		w.poller.close()
	}
	if s.home != nil {
		s.home.mem.close()
	}
	for _, r := range s.copies {
		if r != s.home {
			r.mem.close()
		}
	}
}
