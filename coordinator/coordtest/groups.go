package coordtest

import (
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// startReplica joins a memory node whose number is to have replicas.
func (e *env) startReplica(id fabric.MemID, replicas int, was member.Incarnation) *node {
	e.Helper()
	n := newNode()
	m, err := e.Service.JoinMN(e.ctx, member.MN{ID: id, Size: 1 << 20, Addr: "mn.example:1", Replicas: replicas, Was: was}, n.ready)
	return e.started(n, m, err)
}

// change changes the group of number 0, and again if that has changed meanwhile.
func (e *env) change(kind member.ChangeKind, host *node) {
	e.Helper()
	for {
		s, _ := e.watch().State()
		err := e.Service.Change(e.ctx, member.Change{ID: 0, Kind: kind, Host: host.MN().Incarnation, Seen: s.Group(0).Changed})
		if err == nil {
			return
		}
		if !errors.Is(err, member.ErrChanged) || e.ctx.Err() != nil {
			e.Fatalf("%v: %v", kind, err)
		}
	}
}

// startGroup joins a compute node, and two memory nodes that have number 0.
func (e *env) startGroup() (a, p, b *node) {
	e.Helper()
	p, a = e.startReplica(0, 2, 0), e.startCN() // etcd has to know from the start that there are groups
	e.await(a, "the group", func(s *member.State) bool { g := s.Group(0); return g != nil && g.Serving })
	b = e.startMN(1)
	e.change(member.AddBackup, b)
	e.await(a, "copying", func(s *member.State) bool {
		g := s.Group(0)
		return len(g.Replicas) == 2 && g.Replicas[1].Phase == member.Copying
	})
	e.change(member.Synced, b)
	e.await(a, "in sync", func(s *member.State) bool { return s.Group(0).Replicas[1].Phase == member.InSync })
	return a, p, b
}

// servedBy waits until a memory node serves number 0.
func (e *env) servedBy(a, n *node) *member.Group {
	e.Helper()
	return e.await(a, "the primary", func(s *member.State) bool {
		g := s.Group(0)
		return g != nil && g.Serving && g.Primary() == n.MN().Incarnation
	}).Group(0)
}

// A number that is not replicated shows nothing of groups.
func groupOfOne(e *env) {
	a, m := e.startCN(), e.startMN(0)
	s := e.await(a, "m", func(s *member.State) bool { return len(s.MNs) == 1 })
	if mem := s.Memory(); len(s.Groups) != 0 || len(mem) != 1 || mem[0] != (fabric.Memory{ID: 0, Size: 1 << 20, Epoch: m.MN().Epoch}) {
		e.Errorf("groups %+v, memory %+v", s.Groups, mem)
	}
}

// The backup of a primary that ends is promoted, and serves when all have acknowledged that.
func promotion(e *env) {
	a, p, b := e.startGroup()
	late := e.startCN()
	before := e.servedBy(a, p)
	late.setDeaf(true)
	e.kill(p)
	s := e.await(a, "the promotion", func(s *member.State) bool { return s.Group(0).Primary() == b.MN().Incarnation })
	if g := s.Group(0); g.Term != before.Term+1 || g.Epoch <= before.Epoch || g.Serving || len(g.Replicas) != 1 {
		e.Errorf("%+v after %+v, and a node has not acknowledged", *g, *before)
	}
	e.awaitSeen(a, s.Revision)
	e.awaitSeen(b, s.Revision)
	if s, _ := a.State(); s.Group(0).Serving {
		e.Errorf("%+v serves, and a node has not acknowledged", *s.Group(0))
	}
	late.setDeaf(false)
	e.servedBy(a, b)

	// A host that joins with the number is a spare, and may become a backup.
	spare := e.startReplica(0, 2, 0)
	if g := e.servedBy(a, b); g.Find(spare.MN().Incarnation) >= 0 {
		e.Errorf("a spare is a replica: %+v", *g)
	}
	e.change(member.AddBackup, spare)
	e.await(a, "the new backup", func(s *member.State) bool { return len(s.Group(0).Replicas) == 2 })
	if s, _ := a.State(); len(s.Memory()) != 2 || s.Memory()[0].Term != before.Term+1 {
		e.Errorf("memory is %+v", s.Memory())
	}
}

// A memory node that joins again with its memory goes on as the primary that it was, in the same term, if none was promoted meanwhile.
func primaryAgain(e *env) {
	a, p, b := e.startGroup()
	e.change(member.Drop, b)
	e.await(a, "the drop", func(s *member.State) bool { return len(s.Group(0).Replicas) == 1 })
	before := e.servedBy(a, p)
	e.kill(p)
	s := e.await(a, "p down", func(s *member.State) bool { return len(s.Down) == 1 })
	if g := s.Group(0); g.Term != before.Term || g.Primary() != p.MN().Incarnation {
		e.Errorf("%+v without a replica in sync", *g)
	}
	p = e.startReplica(0, 2, p.MN().Incarnation)
	if g := e.servedBy(a, p); g.Term != before.Term || g.Epoch <= before.Epoch {
		e.Errorf("%+v after %+v", *g, *before)
	}
}

// A primary goes elsewhere while it is up. A change that goes by what was before that fails.
func plannedMove(e *env) {
	a, p, b := e.startGroup()
	seen := e.servedBy(a, p).Changed
	p.setDeaf(true)
	e.change(member.Promote, b)
	s := e.await(a, "the move", func(s *member.State) bool { return s.Group(0).Primary() == b.MN().Incarnation })
	e.awaitSeen(a, s.Revision)
	if s, _ := a.State(); s.Group(0).Serving {
		e.Errorf("%+v serves, and the primary of before may do so, too", *s.Group(0))
	}
	p.setDeaf(false)
	e.servedBy(a, b)
	for _, kind := range []member.ChangeKind{member.Drop, member.Promote} {
		if err := e.Service.Change(e.ctx, member.Change{ID: 0, Kind: kind, Host: b.MN().Incarnation, Seen: seen}); !errors.Is(err, member.ErrChanged) {
			e.Errorf("%v by a group of before: %v", kind, err)
		}
	}
	if err := e.Service.Change(e.ctx, member.Change{ID: 1, Kind: member.Drop}); !errors.Is(err, member.ErrUnknown) {
		e.Errorf("a change of a number that is not replicated: %v", err)
	}
}
