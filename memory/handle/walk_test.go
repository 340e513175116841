package handle

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

// A walk is due when a compute node has gone, and when a backup has come in sync, to which one may have written that had gone before.
func TestWalkIsDue(t *testing.T) {
	r := round{begun: true, view: fabric.View{Lost: 1}, backups: []uint32{2, 3}}
	r.view.Live.Add(1)
	gone := r.view
	gone.Live = fabric.CNSet{}
	lost := r.view
	lost.Lost++
	for _, c := range []struct {
		what    string
		v       fabric.View
		backups []uint32
		stale   bool
	}{
		{"as it was", r.view, []uint32{2, 3}, false},
		{"without a backup", r.view, []uint32{2, 0}, false},
		{"a backup has come in sync", r.view, []uint32{2, 4}, true},
		{"a node has gone", gone, []uint32{2, 3}, true},
		{"a node has been lost", lost, []uint32{2, 3}, true},
	} {
		if r.stale(c.v, c.backups) != c.stale {
			t.Errorf("%s: not %v", c.what, c.stale)
		}
	}
}

// A walk that is under way begins anew when another compute node goes: what that has written may be where the walk has been.
func TestWalkBeginsAnew(t *testing.T) {
	h := new(Handle)
	s := Session{hooks: Hooks{Handle: func() *Handle { return h }}, forced: true}
	begun, steps := 0, 0
	var k Walk
	v := fabric.View{Lost: 1}
	for i, lost := range []uint64{1, 1, 2, 2} {
		v.Lost = lost
		busy, over, err := s.WalkOn(&k, v, func() { begun, steps = begun+1, 0 }, func() (busy, over bool, err error) {
			steps++
			return steps < 2, steps == 2 && lost == 2, nil
		})
		if want := i == 3; err != nil || over != want || busy == want && i != 1 {
			t.Errorf("step %d: busy %v, over %v, %v", i, busy, over, err)
		}
	}
	if begun != 2 {
		t.Errorf("%d walks were begun", begun)
	}
	if stale, _ := h.walked.stale(v, []uint32{}); stale {
		t.Error("a walk is due after the last")
	}
}

// onPort is a lock.Locker of which only the Port is used.
type onPort struct {
	lock.Locker
	p fabric.Port
}

func (l onPort) Port() fabric.Port { return l.p }

// Locks that have been dropped are zero at a new backup, where their memory was something else before: they may be published again as they are.
func TestDroppedLocksAreMadeZero(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const size = 1 << 20
	c := sim.New(sim.Config{Seed: 1})
	defer c.Close()
	mn := c.AddReplicatedMN(size, 2)
	p, err := c.AddCN().Open()
	check(err)
	check(memory.Format(p, mn, memory.Params{Size: size, CapacityLog2: 3, VersionBits: 16, Factor: 2}))
	r, err := memory.Open(p, mn)
	check(err)
	before, _, err := r.Create(p, memory.Spec{Name: "s", Kind: memory.KindStore, Size: 4096})
	check(err)
	check(r.Retire(p, &before))
	check(r.Free(p, &before))
	e, _, err := r.Create(p, memory.Spec{Name: "l", Kind: memory.KindLocks, Size: 3000})
	check(err)
	check(r.Retire(p, &e))
	host := c.AddMN(4096)
	check(c.Change(member.Change{ID: mn, Kind: member.AddBackup, Host: c.Incarnation(host), Seen: c.Group(mn).Changed}))
	to, err := NewBackupOf(p, r)
	check(err)
	b, err := r.Backups(p)
	check(err)
	there := p.Alloc(int(e.Length))
	copy(there, bytes.Repeat([]byte{0xa5}, len(there)))
	check(b.Fill(to.Number, []fabric.Op{fabric.Write(e.Addr, there)}))
	x := copying{l: onPort{p: p}, region: r, to: to}
	check(x.zeroLocks(nil))
	if c.PeekBackup(e.Addr, host, there); !bytes.Equal(there, make([]byte, len(there))) {
		t.Errorf("at the new backup: %x", there[:64])
	}
}
