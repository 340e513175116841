//go:build linux && cgo

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
)

// A lead is memory node 0's side of membership: it numbers compute nodes, notices
// who has gone, has every memory node fence him, and only then tells
// the others.
type lead struct {
	s     *MemoryServer
	begun time.Time
	epoch uint64 // of the last view; begins with the memory node's, so that it grows across restarts

	// change is held while a change is made known: one at a time.
	change sync.Mutex

	mu      sync.Mutex
	members map[*session]cnInfo
	leaving map[*session]bool // members who have said that they go
	mems    map[*session]memoryInfo
	known   map[fabric.MemID]memoryInfo // those that are down too
	returns bool                        // whether somebody has come back
	lost    uint64                      // grows when a member dies; begins like epoch, since who has died with another lead is unknown
}

func newLead(s *MemoryServer) *lead {
	l := &lead{s: s, begun: time.Now(), epoch: uint64(s.o.Epoch) << 32, lost: uint64(s.o.Epoch) << 32,
		members: map[*session]cnInfo{}, leaving: map[*session]bool{}, mems: map[*session]memoryInfo{}, known: map[fabric.MemID]memoryInfo{}}
	if s.info.Addr == "" {
		// Compute nodes reach the lead where they have reached it: see attach.
		l.known[0] = memoryInfo{ID: 0, Size: s.info.Size, Epoch: s.info.Epoch, Up: true}
	} else {
		l.known[0] = s.info
	}
	return l
}

func (l *lead) handle(c *session, kind string, body json.RawMessage) (any, error) {
	switch kind {
	case askJoin:
		return decoded(body, func(r joinRequest) (any, error) { return l.join(c, r) })
	case askLeave:
		l.mu.Lock()
		defer l.mu.Unlock()
		if _, ok := l.members[c]; ok {
			l.leaving[c] = true
		}
		return nil, nil
	}
	return decoded(body, func(m memoryInfo) (any, error) { return nil, l.serve(c, m) })
}

// join makes a compute node a member. When it returns, all members know.
func (l *lead) join(c *session, r joinRequest) (any, error) {
	if r.Ticket != 0 {
		// Entered now and announced later, so that the first view has all who come back.
		if _, err := l.enter(c, r); err != nil {
			return nil, err
		}
	}
	l.awaitReturns(r.Ticket != 0)
	l.change.Lock()
	defer l.change.Unlock()
	own := cnInfo{life: r.life}
	if r.Ticket == 0 {
		var err error
		if own, err = l.enter(c, r); err != nil {
			return nil, err
		}
	}
	v := l.announce(c)
	return joinReply{life: own.life, View: v}, nil
}

// awaitReturns holds back what would make a view while members whom the lead
// knew before it restarted may still be on their way back: a view without
// them would be a false alarm, and fence them.
func (l *lead) awaitReturns(again bool) {
	l.mu.Lock()
	l.returns = l.returns || again
	wait := l.returns
	l.mu.Unlock()
	if wait {
		sleep(l.s.ctx, time.Until(l.returnsEnd()))
	}
}

// returnsEnd is until when a lead takes back whom another life of it has known.
func (l *lead) returnsEnd() time.Time { return l.begun.Add(l.s.o.returns) }

// enter finds a number for a new member, or gives one that comes back its own.
func (l *lead) enter(c *session, r joinRequest) (cnInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[fabric.CNID]bool{}
	for s, m := range l.members {
		taken[m.ID] = true
		if s == c {
			return cnInfo{}, fmt.Errorf("%w: joined already", ErrProtocol)
		}
	}
	own := cnInfo(r)
	if r.Ticket != 0 {
		// Afterwards others have been told that it is dead.
		if time.Now().After(l.returnsEnd()) || taken[r.ID] || r.ID == 0 {
			return cnInfo{}, fmt.Errorf("%w: %v has been given up", fabric.ErrFenced, r.ID)
		}
		l.returns = true
	} else {
		own.life = life{Ticket: newTicket()}
		for id := fabric.CNID(1); id != 0 && own.ID == 0; id++ {
			if !taken[id] {
				own.ID = id
			}
		}
		if own.ID == 0 {
			return cnInfo{}, fmt.Errorf("%w: %d", ErrFull, fabric.MaxCN)
		}
	}
	if c.ended() {
		return cnInfo{}, ErrLost
	}
	l.members[c] = own
	return own, nil
}

// serve makes a memory node known.
func (l *lead) serve(c *session, m memoryInfo) error {
	l.awaitReturns(m.Again)
	l.change.Lock()
	defer l.change.Unlock()
	if m.ID == 0 || m.ID >= MaxMN {
		return fmt.Errorf("%w: memory node %d", ErrProtocol, m.ID)
	}
	l.mu.Lock()
	if old, ok := l.known[m.ID]; ok && old.Up {
		l.mu.Unlock()
		return fmt.Errorf("%w: there is a memory node %v at %s", ErrInUse, m.ID, old.Addr)
	}
	m.Up, m.Again = true, false
	l.mems[c], l.known[m.ID] = m, m
	l.mu.Unlock()
	l.announce(nil)
	return nil
}

// ended notices that a member has gone.
func (l *lead) ended(c *session) {
	l.mu.Lock()
	_, member := l.members[c]
	_, mem := l.mems[c]
	l.mu.Unlock()
	if !member && !mem {
		return
	}
	l.awaitReturns(false)
	l.change.Lock()
	defer l.change.Unlock()
	l.drop(c)
	l.announce(nil)
}

// drop takes a member or memory node off the list.
func (l *lead) drop(c *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.members[c]; ok && !l.leaving[c] {
		l.lost++
	}
	delete(l.members, c)
	delete(l.leaving, c)
	if m, ok := l.mems[c]; ok {
		delete(l.mems, c)
		m.Up = false
		l.known[m.ID] = m
	}
}

// announce makes the present view known: to the memory nodes first, which fence who
// is not in it, then to the compute nodes but one. Who does not answer in time is
// not in the next view, which follows at once. change is held.
func (l *lead) announce(but *session) viewMessage {
	for {
		v, mems, members := l.snapshot()
		l.s.setMembers(v)
		late := l.tell(mems, askMembers, v)
		if len(late) == 0 {
			delete(members, but)
			late = l.tell(members, askView, v)
		}
		if len(late) == 0 || l.s.ctx.Err() != nil {
			return v
		}
		for _, c := range late {
			c.close()
			l.drop(c)
		}
	}
}

func (l *lead) snapshot() (v viewMessage, mems, members map[*session]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	v.Epoch, v.Lost = l.epoch, l.lost
	mems, members = map[*session]bool{}, map[*session]bool{}
	for c, m := range l.members {
		members[c] = true
		v.Live = append(v.Live, m)
	}
	for c := range l.mems {
		mems[c] = true
	}
	for id := range fabric.MemID(MaxMN) {
		if m, ok := l.known[id]; ok {
			v.Mem = append(v.Mem, m)
		}
	}
	sortLive(v.Live)
	return v, mems, members
}

// tell asks all of some, and returns those who do not answer.
func (l *lead) tell(whom map[*session]bool, what string, v viewMessage) (late []*session) {
	ctx, cancel := context.WithTimeout(l.s.ctx, l.s.o.DeadAfter)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	for c := range whom {
		all.Go(func() {
			if err := c.call(ctx, what, v, nil); err != nil && !errors.Is(err, context.Canceled) {
				mu.Lock()
				late = append(late, c)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return late
}
