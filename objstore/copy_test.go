package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
	"github.com/declock/declock/memory/slab"
)

// A copyWorld is a replicated number with a store, and a new backup that is to be copied to.
type copyWorld struct {
	*world
	cfg   Config
	s     *Store
	head  []byte // of the memory, which hosts format
	model map[string]string
	c     *Client // that works meanwhile
}

func newCopyWorld(t *testing.T, objects uint64) *copyWorld {
	x := &copyWorld{model: map[string]string{}}
	x.world = newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal(), FormatCopy: func(_ fabric.MemID, write func(uint64, []byte)) { write(0, x.head) }}, 1, 2<<20, 2, 2)
	x.cfg = x.config()
	x.cfg.Objects = objects
	x.s = x.open(0, x.cfg)
	x.c = x.client(0, x.s)
	return x
}

func (x *copyWorld) group() *member.Group { return x.world.c.Group(x.mns[0]) }

// add adds a backup, which is not in sync.
func (x *copyWorld) add() handle.NewBackup {
	x.t.Helper()
	x.head = make([]byte, 0x48)
	x.world.c.Peek(fabric.At(x.mns[0], 0), x.head)
	host := x.world.c.AddMN(4096)
	g := x.group()
	wantErr(x.t, "add", x.world.c.Change(member.Change{ID: x.mns[0], Kind: member.AddBackup, Host: x.world.c.Incarnation(host), Seen: g.Changed}), nil)
	g = x.group()
	r := g.Replicas[len(g.Replicas)-1]
	if r.Phase != member.Copying {
		x.t.Fatalf("%+v", *g)
	}
	return handle.NewBackup{Mem: x.mns[0], Number: r.Number, Epoch: g.Epoch}
}

// inSync says that the new backup is in sync, and that all others end: it is promoted.
func (x *copyWorld) inSync(to handle.NewBackup) {
	x.t.Helper()
	g := x.group()
	wantErr(x.t, "synced", x.world.c.Change(member.Change{ID: to.Mem, Kind: member.Synced, Host: g.Replicas[len(g.Replicas)-1].Host, Seen: g.Changed}), nil)
	r, err := x.c.Check(CheckOptions{Backups: true})
	if wantErr(x.t, "check", err, nil); !r.Sound() {
		x.t.Fatalf("backups: %v", r)
	}
	for x.group().Replicas[0].Number != to.Number {
		wantErr(x.t, "promote", x.world.c.Promote(to.Mem), nil)
	}
	d := x.client(0, x.open(0, x.cfg))
	for key, value := range x.model {
		if value == "" {
			wantMiss(x.t, d, key)
		} else {
			wantValue(x.t, d, key, value)
		}
	}
	mustBeSound(x.t, d)
}

// change does one thing or another with a key.
func (x *copyWorld) change(i int) {
	key := string(keyOf(i * 7 % 300))
	switch was := x.model[key]; i % 4 {
	case 0, 1:
		x.model[key] = fmt.Sprintf("%0*d", 1+i*13%2500, i)
		wantErr(x.t, "set", x.c.Set(b(key), b(x.model[key]), Options{}), nil)
	case 2:
		if err := x.c.Append(b(key), b("more")); !errors.Is(err, ErrNotFound) {
			wantErr(x.t, "append", err, nil)
			x.model[key] = was + "more"
		}
	default:
		if err := x.c.Delete(b(key)); !errors.Is(err, ErrNotFound) {
			wantErr(x.t, "delete", err, nil)
		}
		x.model[key] = ""
	}
	_ = x.c.Touch(keyOf(i*11%300), 0)
}

// What there is when a backup is added is copied, overflow blocks too, and what changes meanwhile comes there as well: the backup has all when it is promoted.
func TestCopyUnderLoad(t *testing.T) {
	for _, objects := range []uint64{20, 1000} {
		for _, busy := range []int{0, 1, 7} {
			x := newCopyWorld(t, objects)
			for i := range 400 {
				x.change(i)
			}
			to := x.add()
			l := cas.New(x.port(0), cas.Config{})
			wantErr(t, "names", x.s.h.Parts[0].Region.CopyNames(x.port(0)), nil)
			at, steps := handle.CopyPosition{}, 0
			for done := false; !done; steps++ {
				k, err := x.s.Copy(l, &x.s.h.Parts[0].Entry, to, &at) // each goes on where the one before has ended
				wantErr(t, "copy", err, nil)
				if done, err = k.Step(); err != nil {
					t.Fatal(err)
				}
				k.Close()
				for range busy {
					x.change(400 + 3*steps)
				}
			}
			if n, _ := x.s.Buckets(); steps < int(n) || at.Bytes == 0 {
				t.Errorf("%d steps, %d buckets, %d bytes", steps, n, at.Bytes)
			}
			x.inSync(to)
		}
	}
}

// The lock of a bucket is given up between large objects, and what changes then is at the backup all the same.
func TestCopyLargeObjects(t *testing.T) {
	x := newCopyWorld(t, 4)
	for i := range 6 {
		key := string(keyOf(i))
		x.model[key] = fmt.Sprintf("%0*d", 150_000, i)
		wantErr(t, "set", x.c.Set(b(key), b(x.model[key]), Options{}), nil)
	}
	to, at, steps := x.add(), handle.CopyPosition{}, 0
	wantErr(t, "names", x.s.h.Parts[0].Region.CopyNames(x.port(0)), nil)
	k, err := x.s.Copy(cas.New(x.port(0), cas.Config{}), &x.s.h.Parts[0].Entry, to, &at)
	wantErr(t, "copy", err, nil)
	for done := false; !done; steps++ {
		done, err = k.Step()
		wantErr(t, "step", err, nil)
		key := string(keyOf(steps % 6))
		x.model[key] = fmt.Sprintf("%0*d", 100+steps, steps)
		wantErr(t, "set", x.c.Set(b(key), b(x.model[key]), Options{}), nil)
	}
	if steps < 3 {
		t.Errorf("%d steps", steps)
	}
	x.inSync(to)
}

// A watched is a Locker that looks whether its lock is held when something is read.
type watched struct {
	*cas.Locker
	at          fabric.Addr // is looked at
	held        bool
	reads, free int // of which without the lock
}

func (l *watched) Acquire(h *lock.Hold, r *lock.Request) error {
	err := l.Locker.Acquire(h, r)
	l.held = err == nil
	return err
}

func (l *watched) Release(h *lock.Hold, before []fabric.Op) error {
	l.held = false
	return l.Locker.Release(h, before)
}

// Ready is asked before each chain.
func (l *watched) Ready(at fabric.Addr) error {
	if at == l.at {
		if l.reads++; !l.held {
			l.free++
		}
	}
	return nil
}

func (l *watched) Attach(fabric.MemID) error { return nil }

// A bucket is read and copied under its lock: else what is stored between the two is overwritten at the backup. (Seeds hardly meet that: to store
// takes longer than to copy.)
func TestCopyUnderTheLock(t *testing.T) {
	x := newCopyWorld(t, 1)
	for i := range 20 {
		x.change(i)
	}
	to := x.add()
	wantErr(t, "names", x.s.h.Parts[0].Region.CopyNames(x.port(0)), nil)
	l := &watched{Locker: cas.New(x.port(0), cas.Config{}), at: x.s.slotsAddr(x.s.bucket(0, 0))}
	k, err := x.s.Copy(l, &x.s.h.Parts[0].Entry, to, new(handle.CopyPosition))
	wantErr(t, "copy", err, nil)
	for done := false; !done; {
		done, err = k.Step()
		wantErr(t, "step", err, nil)
	}
	if l.reads == 0 || l.free > 0 {
		t.Errorf("the bucket is read %d times, %d of them without its lock", l.reads, l.free)
	}
	x.inSync(to)
}

// A number is copied whole, no faster than it may be, and says how far it is. What cannot be copied is not taken for copied.
func TestCopyNumber(t *testing.T) {
	x := newCopyWorld(t, 1000)
	for i := range 400 {
		x.change(i)
	}
	to := x.add()
	p := x.port(0)
	var done, all uint64
	o := handle.CopyOptions{BytesPerSecond: 100_000, Progress: func(n, of uint64) { done, all = n, of }}
	o.Use = func(e *memory.Entry, f func(handle.Copied) error) error { return f(x.s) }
	began := p.Now()
	wantErr(t, "copy", handle.CopyNumber(cas.New(p, cas.Config{}), to, o), nil)
	if n, _ := x.s.Buckets(); done != n || all != n {
		t.Errorf("%d of %d buckets, there are %d", done, all, n)
	}
	if took := p.Now() - began; took < fabric.Second {
		t.Errorf("%d ns", took)
	}
	x.inSync(to)
	_, _, err := x.s.h.Parts[0].Region.Create(x.port(0), memory.Spec{Name: "m", Kind: memory.KindMemory, Size: 100})
	wantErr(t, "create", err, nil)
	wantErr(t, "copy", handle.CopyNumber(cas.New(x.port(0), cas.Config{}), x.add(), o), memory.ErrReplicated)
}

// What clients count their uniques from is copied: a client of after a promotion of the new backup has none that one of before the copy has.
func TestCopyHasUniques(t *testing.T) {
	x := newCopyWorld(t, 20)
	seen := map[uint64]bool{x.c.uniques[0].next: true}
	for i := range 3 {
		seen[x.client(i%2, x.s).uniques[0].next] = true
	}
	to := x.add()
	wantErr(t, "copy", handle.CopyNumber(cas.New(x.port(0), cas.Config{}), to, handle.CopyOptions{Use: func(_ *memory.Entry, f func(handle.Copied) error) error { return f(x.s) }}), nil)
	x.inSync(to)
	for range 3 {
		if u := x.client(0, x.open(0, x.cfg)).uniques[0].next; seen[u] {
			t.Errorf("unique %#x again", u)
		}
	}
}

// A copy that was begun in another epoch is worth nothing, and writes nothing.
func TestCopyInAnotherEpoch(t *testing.T) {
	x := newCopyWorld(t, 20)
	x.change(0)
	to := x.add()
	x.world.c.KillMN(1) // the other backup ends, and the primary comes back
	x.world.c.RestartServer(0)
	if g := x.group(); g.Epoch == to.Epoch || g.Replicas[0].ID != 0 || g.Replicas[2].Number != to.Number {
		t.Fatalf("%+v", *g)
	}
	k, err := x.s.Copy(cas.New(x.port(0), cas.Config{}), &x.s.h.Parts[0].Entry, to, new(handle.CopyPosition))
	wantErr(t, "copy", err, nil)
	_, err = k.Step()
	wantErr(t, "step", err, fabric.ErrStaleEpoch)
}

// A compute node writes to the new backup, and not to the primary, and crashes. The walk that follows the copy compares that backup, too.
func TestWalkComparesANewBackup(t *testing.T) {
	x := newCopyWorld(t, 1)
	walkAll(t, x.c, x.cns[0].View)
	to := x.add()
	wantErr(t, "copy", handle.CopyNumber(cas.New(x.port(0), cas.Config{}), to, handle.CopyOptions{Use: func(_ *memory.Entry, f func(handle.Copied) error) error { return f(x.s) }}), nil)
	part := x.s.h.Parts[0]
	p := x.port(0)
	backups, err := part.Region.Backups(p)
	wantErr(t, "backups", err, nil)
	wantErr(t, "write", backups.Fill(to.Number, []fabric.Op{fabric.Store(x.s.slotsAddr(x.s.bucket(0, 0)), uint64(makeSlot(1, chunk{off64: part.First >> 6}, 100, 1)))}), nil)
	g := x.group()
	wantErr(t, "synced", x.world.c.Change(member.Change{ID: to.Mem, Kind: member.Synced, Host: g.Replicas[len(g.Replicas)-1].Host, Seen: g.Changed}), nil)
	if !walkAll(t, x.c, x.cns[0].View) {
		t.Error("no walk")
	}
	r, err := x.c.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Sound() {
		t.Errorf("%v", r)
	}
}

// The memory of a store was something else before, which the new backup has in part: what nobody writes to backups is zero there when the store has been copied.
func TestCopyMakesLocksZero(t *testing.T) {
	x := newCopyWorld(t, 100)
	cfg := x.cfg
	cfg.Name = "old"
	wantErr(t, "leave", x.client(1, x.open(1, cfg)).Leave(), nil)
	wantErr(t, "drop", Stores.Drop(x.port(1), "old", x.mns, x.cns[1].View), nil)
	cfg.Name = "new"
	s := x.open(1, cfg)
	c := x.client(1, s)
	wantErr(t, "set", c.Set(keyOf(1), nil, Options{}), nil)
	to := x.add()
	part, buckets := s.h.Parts[0], s.geo.buckets
	b, err := part.Region.Backups(c.port)
	wantErr(t, "backups", err, nil)
	garbage := c.port.Alloc(int(part.Entry.Length))
	copy(garbage, bytes.Repeat([]byte{0xa5}, len(garbage)))
	wantErr(t, "fill", b.Fill(to.Number, []fabric.Op{fabric.Write(part.Base, garbage)}), nil)
	at := handle.CopyPosition{}
	for done := false; !done; {
		k, err := s.Copy(cas.New(x.port(1), cas.Config{}), &part.Entry, to, &at)
		wantErr(t, "copy", err, nil)
		done, err = k.Step()
		wantErr(t, "step", err, nil)
		k.Close()
	}
	g := x.group()
	x.world.c.PeekBackup(part.Base, g.Replicas[len(g.Replicas)-1].ID, garbage)
	zero := func(what string, from, size uint64) {
		if b := garbage[from:][:size]; !bytes.Equal(b, make([]byte, size)) {
			t.Errorf("%s: %x", what, b[:min(size, 64)])
		}
	}
	records, words := reclaim.Records(part.Base)
	zero("epochs", graceOffset, reclaim.GraceBytes)
	zero("round", reclaim.Offset, records.Offset()-part.Base.Offset()-reclaim.Offset)
	behind := records.Add(8*uint64(words)).Offset() - part.Base.Offset()
	zero("candidates and lines", behind, linesOffset+(numClasses+1)*slab.LineSize-behind)
	for i := range buckets {
		zero("lock of a bucket", tableOffset+i*s.geo.bucketSize, s.geo.lockSize)
	}
}

// Others drop the store that the copying compute node has open, and make another of its name: that one is copied, though this compute node has not seen the drop before.
func TestCopyOfAnotherOfTheName(t *testing.T) {
	x := newCopyWorld(t, 20)
	old := x.s
	wantErr(t, "set", x.c.Set(keyOf(1), []byte("old"), Options{}), nil)
	wantErr(t, "drop", Stores.Drop(x.port(1), x.cfg.Name, x.mns, x.cns[1].View), nil)
	x.s = x.open(1, x.cfg)
	x.c = x.client(1, x.s)
	x.model[string(keyOf(2))] = "new"
	wantErr(t, "set", x.c.Set(keyOf(2), []byte("new"), Options{}), nil)
	to := x.add()
	l := cas.New(x.port(0), cas.Config{})
	use := func(e *memory.Entry, f func(handle.Copied) error) error { // as declock.copier
		if !old.Dropped() {
			return f(old)
		}
		s := x.open(0, x.cfg)
		return errors.Join(f(s), s.LeaveUnused(l))
	}
	wantErr(t, "copy", handle.CopyNumber(l, to, handle.CopyOptions{Use: use}), nil)
	if !old.Dropped() {
		t.Error("the copying compute node has not seen the drop")
	}
	x.inSync(to)
}
