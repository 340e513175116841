package member_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// roomy is a memory node that lends its memory to one backup of another number.
func roomy(id fabric.MemID, label string) member.MN {
	return member.MN{ID: id, Replicas: 2, Room: 1 << 20, Label: label}
}

// hosts returns with which numbers the hosts of a group have joined.
func hosts(l *member.Ledger, id fabric.MemID) (list []fabric.MemID) {
	for _, r := range l.Groups[id].Replicas {
		list = append(list, r.ID)
	}
	return list
}

// The ledger puts backups on memory nodes with room, of another label where there is one, and on the next number.
func TestPlaced(t *testing.T) {
	for _, x := range []struct {
		labels [4]string
		want   [4]fabric.MemID // of the backups
	}{
		{want: [4]fabric.MemID{1, 2, 3, 0}},
		{labels: [4]string{"a", "a", "b", "b"}, want: [4]fabric.MemID{2, 3, 0, 1}},
		{labels: [4]string{"a", "a", "a", "a"}, want: [4]fabric.MemID{1, 2, 3, 0}},
	} {
		l := member.NewLedger(4)
		var all []*member.Entry
		for id, label := range x.labels {
			e, _ := l.ReserveMN(member.MN{ID: fabric.MemID(id), Size: 1 << 20, Replicas: 2, Room: 1 << 20, Label: label})
			all = append(all, e)
		}
		for _, e := range all {
			l.Join(e)
		}
		ackAll(l)
		for id, want := range x.want {
			if got := hosts(l, fabric.MemID(id)); !slices.Equal(got, []fabric.MemID{fabric.MemID(id), want}) {
				t.Errorf("labels %q: replicas of %d are on %v, want the backup on %d", x.labels, id, got, want)
			}
		}
	}
}

// A backup that is lost for good is replaced; one whose host has only ended is not, and none is given up while the primary is down.
func TestReplaced(t *testing.T) {
	l := member.NewLedger(4)
	mns := []*member.Entry{joinMN(t, l, roomy(0, "")), joinMN(t, l, member.MN{ID: 1, Room: 1 << 20})}
	ackAll(l)
	if err := change(l, member.Synced, mns[1].Incarnation()); err != nil {
		t.Fatal(err)
	}
	third := joinMN(t, l, member.MN{ID: 2, Room: 1 << 20})
	ackAll(l)
	l.End(mns[1], member.Died)
	ackAll(l)
	if got := l.Groups[0]; got.Find(mns[1].Incarnation()) != 1 || got.Find(third.Incarnation()) >= 0 {
		t.Errorf("the end of a host has dropped its backup: %+v", *got)
	}
	again := joinMN(t, l, member.MN{ID: 1, Room: 1 << 20, Was: mns[1].Incarnation()})
	ackAll(l)
	if got := l.Groups[0]; got.Find(again.Incarnation()) != 1 || got.Replicas[1].Phase != member.InSync {
		t.Errorf("it has come back with its memory: %+v", *got)
	}
	l.End(again, member.Died)
	ackAll(l)
	joinMN(t, l, member.MN{ID: 1}) // without its memory, and without room
	ackAll(l)
	if got := hosts(l, 0); !slices.Equal(got, []fabric.MemID{0, 2}) {
		t.Errorf("replicas are on %v, want the third in the place of the second", got)
	}
	if err := change(l, member.Synced, third.Incarnation()); err != nil {
		t.Fatal(err)
	}
	l.End(third, member.Died)
	ackAll(l)
	if err := l.Forget(2); err != nil {
		t.Fatal(err)
	}
	ackAll(l)
	if got := hosts(l, 0); !slices.Equal(got, []fabric.MemID{0}) {
		t.Errorf("replicas are on %v, and memory node 2 is not expected back", got)
	}
}

// A memory node that is forgotten loses its copies when the primary has acknowledged that: one that has failed, and is not known to have, does not, and then the copy may be the last one. Where
// nothing serves a number, no memory node is forgotten that has a copy in sync, or may have a later one.
func TestForgottenCopy(t *testing.T) {
	for _, fails := range []bool{false, true} {
		l := member.NewLedger(4)
		first, second := joinMN(t, l, roomy(0, "")), joinMN(t, l, member.MN{ID: 1, Room: 1 << 20})
		ackAll(l)
		syncAll(t, l)
		g := l.Groups[0]
		l.End(second, member.Died)
		ackAll(l)
		joinMN(t, l, member.MN{ID: 2, Room: 1 << 20})
		ackAll(l)
		if err := l.Forget(1); err != nil {
			t.Fatal(err)
		}
		if got := l.Groups[0]; got.Find(second.Incarnation()) < 0 {
			t.Fatalf("its copy is dropped at once: %+v", *got)
		}
		if !fails {
			ackAll(l)
			if got := hosts(l, 0); !slices.Equal(got, []fabric.MemID{0, 2}) {
				t.Errorf("replicas are on %v", got)
			}
			continue
		}
		l.End(first, member.Died)
		ackAll(l)
		if down := l.State().Down; len(down) != 1 || down[0].ID != 0 {
			t.Errorf("down are %v", down)
		}
		if err := l.Forget(0); !errors.Is(err, member.ErrReplica) {
			t.Errorf("the primary of a number that nothing serves is forgotten: %v", err)
		}
		if err := l.Forget(2); !errors.Is(err, member.ErrInUse) {
			t.Errorf("it is up: %v", err)
		}
		mn := second.MN
		mn.Was = second.Incarnation()
		again := joinMN(t, l, mn)
		ackAll(l)
		if got := l.Groups[0]; got.Primary() != again.Incarnation() || got.Term <= g.Term || !got.Serving {
			t.Errorf("%+v, and its last copy has come back", *got)
		}
	}
	l, _, mns := replicated(t, 1)
	g := l.Groups[0]
	l = anew()
	rejoin(t, l, mns[0], g, g.Replicas[0].Number)
	other := mns[1].MN
	other.Replicas = 0
	l.End(joinMN(t, l, other), member.Died)
	ackAll(l)
	if err := l.Forget(other.ID); !errors.Is(err, member.ErrReplica) {
		t.Errorf("one that may have a later copy is forgotten: %v", err)
	}
}

// A backup whose host ends before it is in sync makes way for another: nothing is lost with it, and as long as it was there no other would be made.
func TestReplacedWhileItIsCopied(t *testing.T) {
	l := member.NewLedger(4)
	first, second := joinMN(t, l, roomy(0, "")), joinMN(t, l, member.MN{ID: 1, Room: 1 << 20})
	ackAll(l)
	third := joinMN(t, l, member.MN{ID: 2, Room: 1 << 20})
	ackAll(l)
	if got := l.Groups[0]; got.Find(second.Incarnation()) != 1 || got.Replicas[1].Phase != member.Copying {
		t.Fatalf("%+v", *got)
	}
	l.End(second, member.Died)
	ackAll(l)
	if got := l.Groups[0]; got.Primary() != first.Incarnation() || len(got.Replicas) != 2 || got.Replicas[1].Host != third.Incarnation() {
		t.Errorf("%+v, want its backup on %v", *got, third.Incarnation())
	}
}

// A primary that is killed comes back as a spare, and gets a backup of its own number.
func TestPrimaryBecomesBackup(t *testing.T) {
	l := member.NewLedger(4)
	mns := []*member.Entry{joinMN(t, l, roomy(0, "")), joinMN(t, l, roomy(1, ""))}
	ackAll(l)
	for id, e := range []*member.Entry{mns[1], mns[0]} {
		if err := l.Change(member.Change{ID: fabric.MemID(id), Kind: member.Synced, Host: e.Incarnation(), Seen: l.Groups[fabric.MemID(id)].Changed}); err != nil {
			t.Fatal(err)
		}
	}
	ackAll(l)
	l.End(mns[0], member.Died)
	ackAll(l)
	wantPrimary(t, l, mns[1], 2, true)
	joinMN(t, l, roomy(0, ""))
	ackAll(l)
	for id := range fabric.MemID(2) {
		if got := hosts(l, id); !slices.Equal(got, []fabric.MemID{1, 0}) {
			t.Errorf("replicas of %d are on %v", id, got)
		}
		if g := l.Groups[id]; g.Origin != mns[id].Incarnation() || g.Replicas[1].Phase != member.Copying {
			t.Errorf("%+v", *g)
		}
	}
}

// How many copies are to be in sync is what the memory node says that has joined with the number, also when it joins again with another minimum. What serves the number meanwhile does not count.
func TestMinInSync(t *testing.T) {
	l := member.NewLedger(4)
	mn := func(id fabric.MemID, minInSync int) *member.Entry {
		m := roomy(id, "")
		m.MinInSync = minInSync
		return joinMN(t, l, m)
	}
	home, other := mn(0, 2), mn(1, 1)
	ackAll(l)
	syncAll(t, l)
	want := func(n int) {
		t.Helper()
		if got := l.Groups[0]; got.MinInSync != n || l.Groups[1].MinInSync != 1 {
			t.Errorf("%+v, %+v", *got, *l.Groups[1])
		}
	}
	want(2)
	l.End(home, member.Died)
	ackAll(l)
	if l.Groups[0].Primary() != other.Incarnation() {
		t.Fatalf("%+v", *l.Groups[0])
	}
	want(2)
	again := mn(0, 1)
	ackAll(l)
	want(1)
	// A minimum above the copies that there are to be would stop all changes for ever.
	l.End(again, member.Died)
	ackAll(l)
	mn(0, 3)
	ackAll(l)
	want(2)
}

// What a memory node serves of other numbers takes room, as backups do.
func TestRoomOfWhatIsServed(t *testing.T) {
	l := member.NewLedger(4)
	mn := func(id fabric.MemID, room uint64) *member.Entry {
		return joinMN(t, l, member.MN{ID: id, Size: 1 << 20, Replicas: 2, Room: room})
	}
	first, second := mn(0, 1<<20), mn(1, 1<<20)
	ackAll(l)
	syncAll(t, l)
	l.End(first, member.Died)
	ackAll(l)
	wantPrimary(t, l, second, 2, true)
	mn(2, 1) // it has no room for others
	ackAll(l)
	if got := hosts(l, 2); !slices.Equal(got, []fabric.MemID{2}) {
		t.Errorf("replicas of 2 are on %v: memory node 1 serves number 0 where it had room", got)
	}
}
