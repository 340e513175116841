package member_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// anew returns the ledger of a coordinator that has lost its data.
func anew() *member.Ledger {
	l := member.NewLedger(4)
	l.Last = 1000 // incarnations are never used again
	return l
}

// rejoin makes a memory node a member of another ledger, with what it knows of number 0. number is that of its replica.
func rejoin(t *testing.T, l *member.Ledger, e *member.Entry, g *member.Group, number uint32) *member.Entry {
	t.Helper()
	mn := e.MN
	mn.Was, mn.Known = e.Incarnation(), []member.Known{member.Know(g, number)}
	again := joinMN(t, l, mn)
	ackAll(l)
	return again
}

// wantWaiting checks that number 0 is not served, and which replicas are missing.
func wantWaiting(t *testing.T, l *member.Ledger, missing ...fabric.MemID) {
	t.Helper()
	s := l.State()
	if len(s.Waiting) != 1 || s.Waiting[0].Serving || !slices.ContainsFunc(s.Down, func(m member.MN) bool { return m.ID == 0 }) {
		t.Fatalf("number 0 does not wait: %+v", *s)
	}
	if _, _, ok := s.Server(0); ok || slices.ContainsFunc(s.Memory(), func(m fabric.Memory) bool { return m.ID == 0 }) {
		t.Errorf("number 0 is served: %+v", *s)
	}
	var ids []fabric.MemID
	for _, r := range s.Missing(s.Waiting[0]) {
		ids = append(ids, r.ID)
	}
	if !slices.Equal(ids, missing) {
		t.Errorf("missing are %v, want %v", ids, missing)
	}
}

// A coordinator that has lost its data learns of a group by its memory nodes. The primary serves when all replicas are there that may have been promoted since, in the same term, and
// backups begin anew.
func TestLostAndFound(t *testing.T) {
	for first := range 2 {
		l, _, mns := replicated(t, 1)
		g := l.Groups[0]
		l = anew()
		var again [2]*member.Entry
		again[first] = rejoin(t, l, mns[first], g, g.Replicas[first].Number)
		wantWaiting(t, l, mns[1-first].MN.ID)
		again[1-first] = rejoin(t, l, mns[1-first], g, g.Replicas[1-first].Number)
		wantPrimary(t, l, again[0], 1, true)
		if now := l.Groups[0]; now.Epoch <= g.Epoch || now.Origin != g.Origin || now.Began != g.Began || len(now.Replicas) != 1 || now.Made <= g.Made || len(l.State().Waiting) != 0 {
			t.Errorf("%+v after %+v", *now, *g)
		}
		l.End(again[0], member.Died) // before it has heard of its group
		ackAll(l)
		last := rejoin(t, l, mns[0], g, g.Replicas[0].Number)
		wantPrimary(t, l, last, 1, true)
	}
}

// The memory node that has served a number before a failover does not serve it again, neither with its memory nor without, whoever joins first.
func TestLostAfterFailover(t *testing.T) {
	for _, kept := range []bool{true, false} {
		for _, first := range []bool{true, false} {
			l, _, mns := replicated(t, 1)
			before := l.Groups[0]
			l.End(mns[0], member.Died)
			ackAll(l)
			wantPrimary(t, l, mns[1], 2, true)
			g := l.Groups[0]
			l = anew()
			old := func() {
				if kept {
					rejoin(t, l, mns[0], before, 1)
					return
				}
				joinMN(t, l, member.MN{Replicas: 2})
				ackAll(l)
			}
			if first {
				old()
			}
			b := rejoin(t, l, mns[1], g, 2)
			if !first {
				old()
			}
			if kept || !first {
				wantPrimary(t, l, b, 2, true)
				continue
			}
			wantWaiting(t, l) // what was made anew may have been used since
			if err := change(l, member.Adopt, b.Incarnation()); err != nil {
				t.Fatal(err)
			}
			ackAll(l)
			if now := l.Groups[0]; now.Primary() != b.Incarnation() || !now.Serving || now.Term <= 2 || now.Began != g.Began {
				t.Errorf("%+v", *now)
			}
		}
	}
}

// A primary waits for a backup to which was being copied as far as it has heard: that may be in sync, and the primary, since.
func TestLostUnheardPromotion(t *testing.T) {
	l, _, mns := replicated(t, 1)
	b := mns[1]
	for _, kind := range []member.ChangeKind{member.Drop, member.AddBackup} {
		if err := change(l, kind, b.Incarnation()); err != nil {
			t.Fatal(err)
		}
		ackAll(l)
	}
	heard := l.Groups[0]
	if err := change(l, member.Synced, b.Incarnation()); err != nil {
		t.Fatal(err)
	}
	l.End(mns[0], member.Died)
	ackAll(l)
	wantPrimary(t, l, b, 2, true)
	g := l.Groups[0]
	l = anew()
	rejoin(t, l, mns[0], heard, 1)
	wantWaiting(t, l, 1)
	wantPrimary(t, l, rejoin(t, l, b, g, 3), 2, true)
}

// A copy that may have missed something is served if the operator says so, in a later term than any that may have been, and what comes then does not change that.
func TestAdopt(t *testing.T) {
	l, _, mns := replicated(t, 1)
	before := l.Groups[0]
	l.End(mns[0], member.Died)
	ackAll(l)
	g := l.Groups[0]
	l = anew()
	p := rejoin(t, l, mns[0], before, 1)
	wantWaiting(t, l, 1)
	if err := change(l, member.AddBackup, p.Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("a backup of what is not served: %v", err)
	}
	other := joinMN(t, l, member.MN{ID: 5})
	ackAll(l)
	if err := change(l, member.Adopt, other.Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("a memory node without a copy: %v", err)
	}
	if err := change(l, member.Adopt, p.Incarnation()); err != nil {
		t.Fatal(err)
	}
	ackAll(l)
	now := l.Groups[0]
	if now.Primary() != p.Incarnation() || !now.Serving || now.Term <= g.Term {
		t.Errorf("%+v, and before there was %+v", *now, *g)
	}
	rejoin(t, l, mns[1], g, 2)
	wantPrimary(t, l, p, now.Term, true)
	if err := change(l, member.Adopt, p.Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("of a number of which nothing is lost: %v", err)
	}
}

// The operator gives up what is not there, and the number begins anew.
func TestLostIsAbandoned(t *testing.T) {
	l, _, mns := replicated(t, 1)
	g := l.Groups[0]
	l = anew()
	p := rejoin(t, l, mns[0], g, 1)
	wantWaiting(t, l, 1)
	if err := change(l, member.Abandon, 0); err != nil {
		t.Fatal(err)
	}
	ackAll(l)
	if now := l.Groups[0]; now.Primary() != p.Incarnation() || !now.Serving || now.Term <= g.Term || now.Began == g.Began {
		t.Errorf("%+v after %+v", *now, *g)
	}
}

// A host is a memory node's process in TestLosses: what it has of number 0, and what it knows.
type host struct {
	id     fabric.MemID
	entry  *member.Entry // in the present ledger; nil: it has not joined
	was    member.Incarnation
	known  []member.Known
	number uint32 // of its replica; 0: it has none
	value  int    // of the number, as its copy has it
}

// hears makes a host act on the present state, as a memory node does over TCP.
func (h *host) hears(l *member.Ledger) {
	for _, g := range l.State().Groups {
		if g.Lost != nil || len(h.known) > 0 && h.known[0].Later(g) {
			continue
		}
		i := g.Find(h.entry.Incarnation())
		current := i >= 0
		if !current {
			i = slices.IndexFunc(g.Replicas, h.entry.MN.Had)
		}
		h.known = nil
		switch {
		case i >= 0:
			h.was, h.known = h.entry.Incarnation(), []member.Known{member.Know(g, g.Replicas[i].Number)}
		case h.id == g.ID:
			h.known = []member.Known{member.Know(g, 0)}
		}
		if i < 0 || current && h.number != g.Replicas[i].Number {
			h.number, h.value = 0, 0
		}
		if current && h.number == 0 {
			h.number = g.Replicas[i].Number
		}
	}
	l.Ack(h.entry, l.Revision)
}

func (h *host) joined() bool { return h.entry != nil && h.entry.Phase == member.Joined }

// losses is a random run of a coordinator that loses its data, with number 0 on some hosts.
type losses struct {
	*testing.T
	*rand.Rand
	l     *member.Ledger
	cn    *member.Entry
	hosts []*host
	acked int // the last value of which a client knows that it is there
	reads int
}

func (x *losses) begin(last member.Incarnation) {
	x.l = member.NewLedger(4)
	x.l.Last = last
	x.cn = joinCN(x.T, x.l)
	for _, h := range x.hosts {
		h.entry = nil
	}
}

// step does something, by no order.
func (x *losses) step() {
	h := x.hosts[x.IntN(len(x.hosts))]
	switch g := x.l.Groups[0]; x.IntN(12) {
	case 0, 1, 2, 3:
		if h.joined() {
			h.hears(x.l)
		}
		x.l.Ack(x.cn, x.l.Revision)
	case 4, 5:
		if !h.joined() && (h.number != 0 || g != nil || x.acked == 0) { // an empty one would begin anew where nothing is known
			h.entry = joinMN(x.T, x.l, member.MN{ID: h.id, Replicas: 2, Was: h.was, Known: h.known})
		}
	case 6:
		if h.joined() {
			x.l.End(h.entry, member.Died)
		}
		if x.IntN(3) == 0 { // its process has ended, too
			h.was, h.known, h.number, h.value = 0, nil, 0, 0
		}
	case 7:
		if h.joined() && g != nil {
			_ = change(x.l, member.AddBackup, h.entry.Incarnation())
		}
	case 8:
		if h.joined() && g != nil && g.Serving && h.number != 0 {
			if i := g.Find(h.entry.Incarnation()); i > 0 && h.number == g.Replicas[i].Number && change(x.l, member.Synced, h.entry.Incarnation()) == nil {
				h.value = x.at(g.Primary()).value
			}
		}
	case 9, 10:
		x.write()
	case 11:
		if x.IntN(8) == 0 {
			x.begin(x.l.Last + 100)
		}
	}
}

func (x *losses) at(inc member.Incarnation) *host {
	i := slices.IndexFunc(x.hosts, func(h *host) bool { return h.joined() && h.entry.Incarnation() == inc })
	if i < 0 {
		return nil
	}
	return x.hosts[i]
}

// write reads the number, and then writes to all its replicas: those that are not reached are dropped.
func (x *losses) write() {
	g := x.l.Groups[0]
	if g == nil || !g.Serving || x.at(g.Primary()) == nil {
		return
	}
	if p := x.at(g.Primary()); p.number != g.Replicas[0].Number || p.value < x.acked {
		x.Fatalf("replica %d with %d of %d is served: %+v", p.number, p.value, x.acked, *g)
	}
	x.reads++
	for _, r := range slices.Clone(g.Replicas[1:]) {
		if b := x.at(r.Host); b != nil && b.number == r.Number && x.IntN(4) > 0 {
			b.value = x.acked + 1
		} else if change(x.l, member.Drop, r.Host) != nil || x.l.Groups[0].Find(r.Host) > 0 {
			return // the primary has to acknowledge that
		}
	}
	if p := x.at(x.l.Groups[0].Primary()); p != nil && x.l.Groups[0].Term == g.Term {
		x.acked++
		p.value = x.acked
	}
}

// Whatever fails and joins in whatever order, and whatever of it is heard: after the coordinator has lost its data, no copy is served that lacks what was acknowledged.
func TestLosses(t *testing.T) {
	reads, after := 0, 0
	for seed := range uint64(2000) {
		x := &losses{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), hosts: []*host{{id: 0}, {id: 1}, {id: 2}}}
		x.begin(0)
		for range 400 {
			x.step()
		}
		if reads += x.reads; x.l.Last > 200 && x.l.Groups[0] != nil && x.l.Groups[0].Serving {
			after++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if reads < 10000 || after < 100 {
		t.Errorf("%d reads, in %d runs served after losses", reads, after)
	}
}

// A copy that is adopted serves in a later term than all that any memory node knows, also one that has joined since the number was looked at: a coordinator asks what it has read, before it
// has written what is due.
func TestAdoptedIsLaterThanAllKnown(t *testing.T) {
	l, _, mns := replicated(t, 1)
	g := l.Groups[0]
	l = anew()
	b := rejoin(t, l, mns[1], g, 2)
	wantWaiting(t, l, mns[0].MN.ID)
	later := *g
	later.Term = 500
	e, err := l.ReserveMN(member.MN{ID: 5, Known: []member.Known{member.Know(&later, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	e.Phase = member.Joined
	n, err := l.Changed(member.Change{ID: 0, Kind: member.Adopt, Host: b.Incarnation(), Seen: l.Groups[0].Changed})
	if err != nil || n.Term <= later.Term {
		t.Errorf("%+v, %v, and %v is known", n, err, later.Term)
	}
}
