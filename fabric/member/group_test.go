package member_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// joinMN makes a memory node a member.
func joinMN(t *testing.T, l *member.Ledger, mn member.MN) *member.Entry {
	t.Helper()
	mn.Size = 1 << 20
	e, err := l.ReserveMN(mn)
	if err != nil {
		t.Fatal(err)
	}
	l.Join(e)
	return e
}

func joinCN(t *testing.T, l *member.Ledger) *member.Entry {
	t.Helper()
	e, err := l.ReserveCN("")
	if err != nil {
		t.Fatal(err)
	}
	l.Join(e)
	return e
}

// ackAll has all members acknowledge the present state, and what follows from that.
func ackAll(l *member.Ledger, but ...*member.Entry) {
	for range 4 {
		for _, e := range slices.Clone(l.Entries) {
			if e.Phase == member.Joined && !slices.Contains(but, e) {
				l.Ack(e, l.Revision)
			}
		}
	}
}

// change changes a group as it is now.
func change(l *member.Ledger, kind member.ChangeKind, host member.Incarnation) error {
	return l.Change(member.Change{ID: 0, Kind: kind, Host: host, Seen: l.Groups[0].Changed})
}

// replicated returns a ledger with a compute node, and number 0 of which memory node 0 has the primary and some others backups in sync.
func replicated(t *testing.T, backups int) (l *member.Ledger, cn *member.Entry, mns []*member.Entry) {
	t.Helper()
	l = member.NewLedger(4)
	cn = joinCN(t, l)
	mns = append(mns, joinMN(t, l, member.MN{ID: 0, Replicas: backups + 1}))
	for i := range backups {
		mns = append(mns, joinMN(t, l, member.MN{ID: fabric.MemID(i + 1)}))
	}
	ackAll(l)
	for _, b := range mns[1:] {
		for _, kind := range []member.ChangeKind{member.AddBackup, member.Synced} {
			if err := change(l, kind, b.Incarnation()); err != nil {
				t.Fatal(err)
			}
			ackAll(l)
		}
	}
	return l, cn, mns
}

func wantPrimary(t *testing.T, l *member.Ledger, e *member.Entry, term uint32, serving bool) {
	t.Helper()
	if g := l.Groups[0]; g.Primary() != e.Incarnation() || g.Term != term || g.Serving != serving {
		t.Errorf("the group is %+v; want primary %x, term %d, serving %v", *g, uint64(e.Incarnation()), term, serving)
	}
}

// A number that is not replicated has no group, and its states show what they did before there were groups.
func TestGroupOfOne(t *testing.T) {
	l := member.NewLedger(4)
	e := joinMN(t, l, member.MN{ID: 3, Replicas: 1})
	ackAll(l)
	s := l.State()
	if len(s.Groups) != 0 || len(s.Down) != 0 || fmt.Sprint(s.Memory()) != fmt.Sprint([]fabric.Memory{{ID: 3, Size: 1 << 20, Epoch: e.MN.Epoch}}) {
		t.Errorf("%+v, memory %+v", *s, s.Memory())
	}
	if err := l.Change(member.Change{ID: 3, Kind: member.AddBackup}); !errors.Is(err, member.ErrUnknown) {
		t.Errorf("a backup of a number that is not replicated: %v", err)
	}
}

// When a primary ends, its backup is promoted in a later term and epoch, and serves when all that may still act have acknowledged that: also a node
// that has gone, until it is forgotten.
func TestPromotion(t *testing.T) {
	l, cn, mns := replicated(t, 1)
	late := joinCN(t, l)
	ackAll(l)
	before := *l.Groups[0]
	wantPrimary(t, l, mns[0], 1, true)
	l.End(mns[0], member.Died)
	wantPrimary(t, l, mns[1], 2, false)
	if g := l.Groups[0]; g.Epoch <= before.Epoch || len(g.Replicas) != 1 {
		t.Errorf("%+v after %+v", *g, before)
	}
	s := l.State()
	if mn, epoch, ok := s.Server(0); !ok || mn.ID != 1 || epoch != l.Groups[0].Epoch || len(s.Down) != 0 {
		t.Errorf("served by %+v in epoch %d: %+v", mn, epoch, *s)
	}
	if m := s.Memory(); len(m) != 2 || m[0].ID != 0 || m[0].Term != 2 || m[1].ID != 1 || m[1].Term != 0 {
		t.Errorf("memory is %+v", m)
	}
	ackAll(l, late)
	wantPrimary(t, l, mns[1], 2, false)
	l.End(late, member.Died)
	wantPrimary(t, l, mns[1], 2, false)
	l.Ack(cn, l.Revision)
	wantPrimary(t, l, mns[1], 2, false) // memory node 1 has not cut the crashed node off
	ackAll(l)
	wantPrimary(t, l, mns[1], 2, true)

	// A host that joins with the number now is a spare.
	spare := joinMN(t, l, member.MN{ID: 0, Replicas: 2})
	ackAll(l)
	wantPrimary(t, l, mns[1], 2, true)
	if mn, _, _ := l.State().Server(0); mn.ID != 1 {
		t.Errorf("served by %+v, and a spare has joined", mn)
	}
	if err := change(l, member.AddBackup, spare.Incarnation()); err != nil {
		t.Error(err)
	}
	if g := l.Groups[0]; g.Replicas[0].Number != 2 || g.Replicas[1].Number != 3 || g.Made != 3 {
		t.Errorf("replicas have numbers of before: %+v", *g)
	}
}

// Only a replica in sync is promoted. If there is none, the number waits for one of those that were.
func TestPromotedInSync(t *testing.T) {
	l, _, mns := replicated(t, 1)
	third := joinMN(t, l, member.MN{ID: 2})
	ackAll(l)
	if err := change(l, member.AddBackup, third.Incarnation()); err != nil {
		t.Fatal(err)
	}
	if err := change(l, member.Synced, third.Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("in sync, and not all write to it: %v", err)
	}
	if err := change(l, member.Promote, third.Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("promoted without being in sync: %v", err)
	}
	if err := change(l, member.Drop, mns[1].Incarnation()); err != nil {
		t.Error(err)
	}
	ackAll(l)
	l.End(mns[0], member.Died)
	ackAll(l)
	wantPrimary(t, l, mns[0], 1, true)
	if s := l.State(); len(s.Down) != 1 || s.Down[0].ID != 0 || len(s.Memory()) != 2 {
		t.Errorf("down are %+v, memory is %+v", s.Down, s.Memory())
	}
	// With another memory it is not one of those.
	empty := joinMN(t, l, member.MN{ID: 0, Replicas: 2})
	ackAll(l)
	wantPrimary(t, l, mns[0], 1, true)
	if len(l.State().Down) != 1 {
		t.Errorf("an empty memory serves: %+v", *l.State())
	}
	if err := change(l, member.AddBackup, empty.Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("a backup without a primary: %v", err)
	}
	// The operator gives up what it had.
	if err := change(l, member.Abandon, 0); err != nil {
		t.Fatal(err)
	}
	ackAll(l)
	wantPrimary(t, l, empty, 2, true)
}

// What was given up once is not given up again, neither as it was seen before that nor as it is until a memory node with its number joins.
func TestAbandonTwice(t *testing.T) {
	l, _, mns := replicated(t, 1)
	for _, mn := range mns {
		l.End(mn, member.Died)
	}
	ackAll(l)
	once := member.Change{ID: 0, Kind: member.Abandon, Seen: l.Groups[0].Changed}
	if err := l.Change(once); err != nil {
		t.Fatal(err)
	}
	if err := l.Change(once); !errors.Is(err, member.ErrChanged) {
		t.Errorf("as it was seen before: %v", err)
	}
	if err := change(l, member.Abandon, 0); !errors.Is(err, member.ErrReplica) {
		t.Errorf("as it is now: %v", err)
	}
}

// A number that begins anew after it was abandoned has other replicas, by their numbers, in a later term: what was written for those of before comes to nothing.
func TestAbandonedBeginsWithOtherReplicas(t *testing.T) {
	l, _, mns := replicated(t, 1)
	for _, mn := range mns {
		l.End(mn, member.Died)
	}
	ackAll(l)
	before := *l.Groups[0]
	if err := change(l, member.Abandon, 0); err != nil {
		t.Fatal(err)
	}
	empty := joinMN(t, l, member.MN{ID: 0, Replicas: 2})
	ackAll(l)
	wantPrimary(t, l, empty, before.Term+1, true)
	if g := l.Groups[0]; g.Replicas[0].Number <= before.Made || g.Made != g.Replicas[0].Number {
		t.Errorf("%+v after %+v", *g, before)
	}
}

// A backup to which is being copied begins again, as another replica, when another backup is promoted: what has been copied is of another primary.
func TestCopiedAnewAfterAPromotion(t *testing.T) {
	l, _, mns := replicated(t, 1)
	third := joinMN(t, l, member.MN{ID: 2})
	ackAll(l)
	if err := change(l, member.AddBackup, third.Incarnation()); err != nil {
		t.Fatal(err)
	}
	ackAll(l)
	before := *l.Groups[0]
	if r := before.Replicas[2]; r.Phase != member.Copying {
		t.Fatalf("%+v", before)
	}
	l.End(mns[0], member.Died)
	g := l.Groups[0]
	if r := g.Replicas[1]; r.Host != third.Incarnation() || r.Number <= before.Made || r.Phase != member.Added {
		t.Errorf("%+v after %+v", *g, before)
	}
	ackAll(l)
	if r := l.Groups[0].Replicas[1]; r.Phase != member.Copying {
		t.Errorf("%+v", *l.Groups[0])
	}
}

// A coordinator that is cut off for a lease gives all memory nodes up. Each keeps its memory, and whichever is back first serves.
func TestAllReplicasGivenUp(t *testing.T) {
	for first := range 2 {
		l, _, mns := replicated(t, 1)
		epoch := l.Groups[0].Epoch
		l.End(mns[1], member.Died)
		l.End(mns[0], member.Died)
		ackAll(l)
		if g := l.Groups[0]; len(g.Replicas) != 2 || g.Term != 1 {
			t.Fatalf("%+v", *g)
		}
		again := joinMN(t, l, member.MN{ID: fabric.MemID(first), Replicas: 2 - first, Was: mns[first].Incarnation()})
		ackAll(l)
		wantPrimary(t, l, again, 1+uint32(first), true)
		if g := l.Groups[0]; g.Epoch <= epoch {
			t.Errorf("epoch %d after %d", g.Epoch, epoch)
		}
		if err := change(l, member.Abandon, 0); !errors.Is(err, member.ErrReplica) {
			t.Errorf("abandoned while it is there: %v", err)
		}
	}
}

// A host is put into its group by an incarnation that ends before the host has heard so: it says again that it is the one before that, and serves.
func TestGivenUpBeforeItHasHeard(t *testing.T) {
	l, _, mns := replicated(t, 1)
	l.End(mns[1], member.Died)
	l.End(mns[0], member.Died)
	ackAll(l)
	was := mns[0].Incarnation()
	for range 3 {
		again := joinMN(t, l, member.MN{Replicas: 2, Was: was})
		ackAll(l)
		wantPrimary(t, l, again, 1, true)
		l.End(again, member.Died)
		ackAll(l)
	}
	other := joinMN(t, l, member.MN{Replicas: 2, Was: mns[1].Incarnation()})
	ackAll(l)
	if g := l.Groups[0]; g.Primary() == other.Incarnation() && g.Term == 1 {
		t.Errorf("another's memory serves: %+v", *g)
	}
}

// Of two that change a group one fails: a backup is not dropped by a node that has not seen that it is to be promoted, nor promoted by one that has not seen
// that it is dropped; and while the primary is down none is dropped.
func TestDropAgainstPromote(t *testing.T) {
	l, _, mns := replicated(t, 1)
	seen, b := l.Groups[0].Changed, mns[1].Incarnation()
	wish := func(kind member.ChangeKind) error {
		return l.Change(member.Change{ID: 0, Kind: kind, Host: b, Seen: seen})
	}
	if err := wish(member.Drop); err != nil {
		t.Fatal(err)
	}
	if err := wish(member.Promote); !errors.Is(err, member.ErrChanged) {
		t.Errorf("promoted after it was dropped: %v", err)
	}
	ackAll(l)
	l.End(mns[0], member.Died)
	wantPrimary(t, l, mns[0], 1, true)

	l, _, mns = replicated(t, 1)
	seen, b = l.Groups[0].Changed, mns[1].Incarnation()
	l.End(mns[0], member.Died)
	if err := wish(member.Drop); !errors.Is(err, member.ErrChanged) {
		t.Errorf("dropped after it was promoted: %v", err)
	}
	ackAll(l)
	wantPrimary(t, l, mns[1], 2, true)

	l, _, mns = replicated(t, 1)
	l.End(mns[1], member.Died)
	l.End(mns[0], member.Died)
	if err := change(l, member.Drop, mns[1].Incarnation()); !errors.Is(err, member.ErrReplica) {
		t.Errorf("dropped while the primary is down: %v", err)
	}
}

// A backup is dropped when the primary has acknowledged that: a primary that has ended, and is not known to have, does not, and the backup takes its place. In another epoch the drop
// is not wished any more.
func TestDropWaitsForPrimary(t *testing.T) {
	for _, what := range []string{"acknowledges", "ends", "joins again"} {
		l, _, mns := replicated(t, 1)
		b := mns[1].Incarnation()
		if err := change(l, member.Drop, b); err != nil {
			t.Fatal(err)
		}
		ackAll(l, mns[0])
		if g := l.Groups[0]; g.Find(b) != 1 || !g.Replicas[1].Dropped {
			t.Fatalf("%+v, and the primary has not acknowledged", *g)
		}
		switch what {
		case "acknowledges":
			ackAll(l)
			if g := l.Groups[0]; len(g.Replicas) != 1 {
				t.Errorf("%+v", *g)
			}
		case "ends":
			l.End(mns[0], member.Died)
			ackAll(l)
			wantPrimary(t, l, mns[1], 2, true)
		default:
			l.End(mns[1], member.Died)
			l.End(mns[0], member.Died)
			again := joinMN(t, l, member.MN{Replicas: 2, Was: mns[0].Incarnation()})
			ackAll(l)
			wantPrimary(t, l, again, 1, true)
			if g := l.Groups[0]; g.Find(b) != 1 || g.Replicas[1].Dropped {
				t.Errorf("%+v", *g)
			}
		}
	}
}

// A planned move: the primary goes elsewhere while it is up.
func TestPlannedMove(t *testing.T) {
	l, cn, mns := replicated(t, 2)
	if err := change(l, member.Promote, mns[2].Incarnation()); err != nil {
		t.Fatal(err)
	}
	wantPrimary(t, l, mns[2], 2, false)
	ackAll(l, mns[0])
	wantPrimary(t, l, mns[2], 2, false) // the primary of before may still serve
	ackAll(l)
	wantPrimary(t, l, mns[2], 2, true)
	// The backup that was passed over may be older: it begins again.
	if g := l.Groups[0]; len(g.Replicas) != 2 || g.Find(mns[1].Incarnation()) != 1 || g.Replicas[1].Phase != member.Copying || g.Replicas[1].Number != 4 {
		t.Errorf("%+v", *g)
	}
	l.End(cn, member.Left)
	for _, e := range mns[:2] {
		l.End(e, member.Left)
	}
	wantPrimary(t, l, mns[2], 2, true)
}

// Whatever happens in whatever order: terms and epochs grow with each promotion, and only then do terms; a promoted replica was in sync; a primary serves only when all
// that may act have acknowledged its epoch; a group keeps a replica in sync.
func TestGroups(t *testing.T) {
	var promoted, served int
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, _, _ := replicated(t, 2)
		began := map[uint32]uint64{l.Groups[0].Epoch: l.Revision}
		for step := range 150 {
			before := l.Groups[0]
			actOnGroup(t, r, l)
			now := l.Groups[0]
			fail := func(why string) {
				t.Helper()
				t.Fatalf("seed %d, step %d: %s: %+v after %+v", seed, step, why, *now, *before)
			}
			if now == before {
				continue
			}
			if _, ok := began[now.Epoch]; !ok {
				began[now.Epoch] = now.Changed
				if now.Serving {
					began[now.Epoch]-- // it has been acknowledged in the same step
				}
			}
			was := before.Find(now.Primary())
			switch {
			case now.Term < before.Term || now.Epoch < before.Epoch || now.Changed <= before.Changed:
				fail("it goes back")
			case now.Term > before.Term && now.Epoch == before.Epoch:
				fail("a term within an epoch")
			case now.Term == before.Term && now.Primary() != before.Primary() && now.Epoch == before.Epoch:
				fail("another primary in the same epoch")
			case now.Term == before.Term+1 && was >= 0 && before.Replicas[was].Phase != member.InSync:
				fail("promoted before it was in sync")
			case !slices.ContainsFunc(now.Replicas, func(x member.Replica) bool { return x.Phase == member.InSync }) || now.Replicas[0].Phase != member.InSync:
				fail("no replica in sync")
			}
			if now.Term > before.Term {
				promoted++
			}
			if now.Serving && !before.Serving {
				served++
				if !l.Admits(began[now.Epoch]) {
					fail(fmt.Sprintf("it serves, and not all have acknowledged revision %d", began[now.Epoch]))
				}
			}
		}
	}
	if promoted < 100 || served < 100 {
		t.Errorf("the test shows nothing: %d promotions, %d have served", promoted, served)
	}
}

// actOnGroup does something that a coordinator may do.
func actOnGroup(t *testing.T, r *rand.Rand, l *member.Ledger) {
	g := l.Groups[0]
	e := l.Entries[r.IntN(len(l.Entries))]
	switch k := r.IntN(12); {
	case k == 0:
		if _, err := l.ReserveCN(""); err != nil && !errors.Is(err, member.ErrFull) {
			t.Fatal(err)
		}
	case k == 1 && len(l.Entries) < 7:
		mn := member.MN{ID: fabric.MemID(r.IntN(4)), Replicas: 3}
		if r.IntN(2) == 0 {
			mn.Was = g.Replicas[r.IntN(len(g.Replicas))].Host // whose memory it is; any may be
		}
		if e, err := l.ReserveMN(mn); err == nil {
			l.Join(e)
		}
	case k == 2 && (e.IsCN() || r.IntN(3) == 0) && len(l.Entries) > 2:
		l.End(e, member.Died)
	case k == 3:
		l.Join(e)
	case k < 6:
		host := e.Incarnation()
		kind := member.ChangeKind(1 + r.IntN(int(member.Promote)))
		if e.IsCN() {
			return
		}
		err := l.Change(member.Change{ID: 0, Kind: kind, Host: host, Seen: g.Changed - min(g.Changed, uint64(r.IntN(4)/3))})
		if err != nil && !errors.Is(err, member.ErrChanged) && !errors.Is(err, member.ErrReplica) {
			t.Fatal(err)
		}
	default:
		l.Ack(e, l.Revision-min(l.Revision, r.Uint64N(3)))
	}
}

// A memory node that is suspected, and acknowledges that, lives: the suspicion is over. It is over too when the memory node has gone. Meanwhile no other is suspected.
func TestSuspect(t *testing.T) {
	l := whole(t, 3)
	of := func(id fabric.MemID) *member.Entry {
		for _, e := range l.Entries {
			if !e.IsCN() && e.MN.ID == id && e.Phase == member.Joined {
				return e
			}
		}
		return nil
	}
	suspect := func(host member.Incarnation) error {
		return l.Change(member.Change{ID: 0, Kind: member.Suspect, Host: host, Seen: l.Groups[0].Changed})
	}
	primary, backup := l.Groups[0].Primary(), l.Groups[0].Replicas[1].Host
	if err := suspect(1 << 40); err == nil {
		t.Error("a memory node without a copy is suspected")
	}
	if err := suspect(primary); err != nil {
		t.Fatal(err)
	}
	if err := suspect(backup); err == nil {
		t.Error("two are suspected")
	}
	for _, e := range l.Entries {
		if e.Incarnation() != primary {
			l.Ack(e, l.Revision)
		}
	}
	if l.Groups[0].Suspect != primary {
		t.Fatalf("others have acknowledged: %+v", *l.Groups[0])
	}
	l.Ack(of(0), l.Groups[0].Changed-1)
	if l.Groups[0].Suspect != primary {
		t.Fatalf("it has acknowledged what was before: %+v", *l.Groups[0])
	}
	l.Ack(of(0), l.Groups[0].Changed)
	if x := l.Groups[0]; x.Suspect != 0 || x.Primary() != primary || !x.Serving {
		t.Fatalf("%+v", *x)
	}
	if err := suspect(backup); err != nil {
		t.Fatal(err)
	}
	if !l.State().Spares(primary) || !l.State().Spares(backup) {
		t.Error("there are two copies of each number")
	}
	for id := range fabric.MemID(3) {
		if e := of(id); e.Incarnation() == backup {
			l.End(e, member.Died)
		}
	}
	ackAll(l)
	if l.Groups[0].Suspect != 0 || l.State().Spares(primary) {
		t.Errorf("%+v: the suspected one has gone, and the other has the last copy", *l.Groups[0])
	}
}
