package btree

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
)

// A copyWorld is a tree on replicated numbers, of which one gets a new backup that is to be copied to.
type copyWorld struct {
	*world
	mn    int    // which number
	head  []byte // of the memory, which hosts format
	model map[string]string
	tree  *Tree
	c     *Client // that works meanwhile
}

func newCopyWorld(t *testing.T, mns int) *copyWorld { return newCopyWorldOf(t, mns, 0) }

// newCopyWorldOf is newCopyWorld, in which nodes hear of changes after so long at most.
func newCopyWorldOf(t *testing.T, mns int, news fabric.Time) *copyWorld {
	x := &copyWorld{model: map[string]string{}}
	x.world = newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal(), NewsDelay: news, FormatCopy: func(_ fabric.MemID, write func(uint64, []byte)) { write(0, x.head) }}, mns, 4<<20, 2, 2)
	x.tree = x.open(0, x.config())
	x.c = x.client(0, x.tree)
	return x
}

func (x *copyWorld) group() *member.Group { return x.world.c.Group(x.mns[x.mn]) }

// add adds a backup, which is not in sync.
func (x *copyWorld) add() handle.NewBackup {
	x.t.Helper()
	x.head = make([]byte, 0x48)
	x.world.c.Peek(fabric.At(x.mns[x.mn], 0), x.head)
	host := x.world.c.AddMN(4096)
	wantErr(x.t, "add", x.world.c.Change(member.Change{ID: x.mns[x.mn], Kind: member.AddBackup, Host: x.world.c.Incarnation(host), Seen: x.group().Changed}), nil)
	g := x.group()
	return handle.NewBackup{Mem: x.mns[x.mn], Number: g.Replicas[len(g.Replicas)-1].Number, Epoch: g.Epoch}
}

// synced says that the new backup is in sync.
func (x *copyWorld) synced(to handle.NewBackup) {
	x.t.Helper()
	g := x.group()
	wantErr(x.t, "synced", x.world.c.Change(member.Change{ID: to.Mem, Kind: member.Synced, Host: g.Replicas[len(g.Replicas)-1].Host, Seen: g.Changed}), nil)
	r, err := x.c.Check(CheckOptions{Backups: true})
	if wantErr(x.t, "check", err, nil); !r.Clean() {
		x.t.Fatalf("backups: %v", r)
	}
}

// inSync says that the new backup is in sync, and that all others end: it is promoted.
func (x *copyWorld) inSync(to handle.NewBackup) {
	x.t.Helper()
	x.synced(to)
	for x.group().Replicas[0].Number != to.Number {
		wantErr(x.t, "promote", x.world.c.Promote(to.Mem), nil)
	}
	d := x.client(0, x.open(0, x.config()))
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
	switch i % 4 {
	case 0, 1, 2:
		x.model[key] = fmt.Sprintf("%0*d", 5+i*i%4*i%900, i)
		wantErr(x.t, "put", x.c.Put([]byte(key), []byte(x.model[key])), nil)
	default:
		if err := x.c.Delete([]byte(key)); !errors.Is(err, ErrNotFound) {
			wantErr(x.t, "delete", err, nil)
		}
		x.model[key] = ""
	}
}

// empty deletes a run of keys, so that nodes are unlinked.
func (x *copyWorld) empty(from int) {
	for i := range 20 {
		key := string(keyOf((from + i) % 300))
		if err := x.c.Delete([]byte(key)); !errors.Is(err, ErrNotFound) {
			wantErr(x.t, "delete", err, nil)
		}
		x.model[key] = ""
	}
}

// What there is when a backup is added is copied, large values too, and what changes meanwhile comes there as well, on however many memory nodes the tree is: the backup has all when it is promoted.
func TestCopyUnderLoad(t *testing.T) {
	for _, mns := range []int{1, 2} {
		for _, busy := range []int{0, 1, 7} {
			x := newCopyWorld(t, mns)
			for i := range 400 {
				x.change(i)
			}
			to := x.add()
			l := cas.New(x.port(0), cas.Config{Plain: true})
			wantErr(t, "names", x.tree.h.Parts[0].Region.CopyNames(x.port(0)), nil)
			at, steps := handle.CopyPosition{}, 0
			for done := false; !done; steps++ {
				k, err := x.tree.Copy(l, &x.tree.h.Parts[x.mn].Entry, to, &at) // each goes on where the one before has ended
				wantErr(t, "copy", err, nil)
				if done, err = k.Step(); err != nil {
					t.Fatal(err)
				}
				k.Close()
				for range busy {
					x.change(400 + 3*steps)
				}
				if busy > 0 && steps%10 == 9 {
					x.empty(11 * steps)
				}
			}
			if steps < 20 || at.Bytes == 0 {
				t.Errorf("%d steps, %d bytes", steps, at.Bytes)
			}
			x.inSync(to)
		}
	}
}

func (x *copyWorld) copyAll(to handle.NewBackup) {
	x.t.Helper()
	use := func(_ *memory.Entry, f func(handle.Copied) error) error { return f(x.tree) }
	wantErr(x.t, "copy", handle.CopyNumber(cas.New(x.port(0), cas.Config{Plain: true}), to, handle.CopyOptions{Use: use}), nil)
}

// An after is a Port that does something after its first chain with a WRITE at an address.
type after struct {
	*sim.Port
	at   fabric.Addr
	then func()
}

func (p *after) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	if then := p.then; then != nil && ops[0].Kind == fabric.OpWrite && ops[0].Addr == p.at {
		p.then = nil
		then()
	}
	return err
}

// A tree is being made while a backup is added: its creator has made the root at the backups that it knew, and publishes it later. The copy waits for that, and so the backup has the tree when it is
// promoted. What a crashed creator has left is not waited for.
func TestCopyWhileATreeIsMade(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		x := newCopyWorld(t, 1)
		cfg := x.config()
		cfg.Name = "other"
		list, err := x.tree.h.Parts[0].Region.List(x.port(0))
		wantErr(t, "list", err, nil)
		base := list[0].Addr.Add((list[0].Length + 4095) &^ 4095) // where the next one is made
		var to handle.NewBackup
		o := handle.CopyOptions{
			Use:  func(_ *memory.Entry, f func(handle.Copied) error) error { return f(x.tree) },
			Dead: func() fabric.CNSet { return x.cns[0].View().Dead() },
		}
		l := cas.New(x.port(0), cas.Config{Plain: true})
		p := &after{Port: x.port(1).(*sim.Port), at: base.Add(firstLeafOffset + x.tree.geo.lockSize)}
		p.then = func() {
			to = x.add()
			wantErr(t, "copy", handle.CopyNumber(l, to, o), memory.ErrHalfCreated)
			if crashed {
				x.world.c.Kill(x.cns[1])
				wantErr(t, "pause", x.port(0).Pause(x.port(0).Now()+fabric.Second), nil)
			}
		}
		other, err := Open(p, cfg)
		if p.then != nil {
			t.Fatal("the tree was made somewhere else")
		}
		if !crashed {
			wantErr(t, "open", err, nil)
			wantErr(t, "put", x.client(1, other).Put(keyOf(1), []byte("v")), nil)
			o.Use = func(e *memory.Entry, f func(handle.Copied) error) error {
				if e.Name == cfg.Name {
					return f(other)
				}
				return f(x.tree)
			}
		}
		wantErr(t, "copy", handle.CopyNumber(l, to, o), nil)
		x.inSync(to)
		if crashed {
			continue
		}
		cfg.Existing = true
		d := x.client(0, x.open(0, cfg))
		wantValue(t, d, string(keyOf(1)), "v")
		mustBeSound(t, d)
	}
}

// The memory of a dropped tree is not given back while a compute node has it open, though a backup serves by then that was added when the tree had been dropped; and that compute node hears of the drop.
func TestCopyOfADroppedTree(t *testing.T) {
	x := newCopyWorld(t, 1)
	d, err := x.open(1, x.config()).Client(&following{attaching{cas.New(x.port(1), cas.Config{Plain: true}), x.cns[1]}})
	wantErr(t, "client", err, nil)
	wantErr(t, "put", d.Put(keyOf(1), make([]byte, 500)), nil)
	p := x.port(0)
	r := x.tree.h.Parts[0].Region
	wantErr(t, "drop", Trees.Drop(p, "test", x.mns, x.cns[0].View), nil)
	wantErr(t, "leave", x.c.Leave(), nil)
	to := x.add()
	x.copyAll(to)
	g := x.group()
	wantErr(t, "synced", x.world.c.Change(member.Change{ID: to.Mem, Kind: member.Synced, Host: g.Replicas[len(g.Replicas)-1].Host, Seen: g.Changed}), nil)
	for x.group().Replicas[0].Number != to.Number {
		wantErr(t, "promote", x.world.c.Promote(to.Mem), nil)
	}
	p = x.port(0)
	retired := func() int {
		t.Helper()
		wantErr(t, "free", handle.FreeDropped(p, x.mns, x.cns[0].View), nil)
		list, err := r.Retired(p)
		wantErr(t, "retired", err, nil)
		return len(list)
	}
	if n := retired(); n != 1 {
		t.Fatalf("%d dropped trees have memory, want the one that a compute node has open", n)
	}
	_, err = d.ReclaimStep(x.cns[1].View)
	wantErr(t, "step", err, ErrDropped)
	wantErr(t, "leave", d.Leave(), nil)
	if n := retired(); n != 0 {
		t.Fatalf("%d dropped trees have memory, which no compute node has open", n)
	}
}

// A giving is a Port that does something before its first chain to a backup at an address.
type giving struct {
	*sim.Port
	at   fabric.Addr
	then func()
}

func (p *giving) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if then := p.then; then != nil && ops[0].Addr == p.at {
		p.then = nil
		then()
	}
	return p.Port.PostBackup(g, i, ops)
}

// The last compute node lets a dropped tree go while a copy writes to the new backup which compute nodes have it open. The memory is not given back under the copier, and be something else then: the copier
// gives it back.
func TestCopyOfADroppedTreeGivenBack(t *testing.T) {
	x := newCopyWorld(t, 1)
	part := x.tree.h.Parts[0]
	wantErr(t, "drop", Trees.Drop(x.port(1), "test", x.mns, x.cns[1].View), nil)
	records, words := reclaim.Records(part.Base)
	retired := func() int {
		t.Helper()
		list, err := part.Region.Retired(x.port(1))
		wantErr(t, "retired", err, nil)
		return len(list)
	}
	free := func() error { return handle.FreeDropped(x.port(1), x.mns, x.cns[1].View) }
	reused := false
	p := &giving{Port: x.port(0).(*sim.Port), at: records, then: func() {
		wantErr(t, "leave", x.c.Leave(), nil)
		wantErr(t, "free", free(), nil)
		if retired() == 1 {
			return
		}
		e, _, err := part.Region.Create(x.port(1), memory.Spec{Name: "locks", Kind: memory.KindLocks, Size: part.Entry.Length, Align: 4096})
		wantErr(t, "locks", err, nil)
		if e.Addr.Offset() == part.Base.Offset() {
			reused = true
			l := cas.New(x.port(1), cas.Config{Plain: true})
			wantErr(t, "acquire", l.Acquire(new(lock.Hold), &lock.Request{Lock: records, Mode: lock.Exclusive}), nil)
		}
	}}
	to := x.add()
	wantErr(t, "copy", handle.CopyNumber(cas.New(p, cas.Config{Plain: true}), to, handle.CopyOptions{Free: free}), nil)
	if p.then != nil || retired() != 0 {
		t.Fatalf("%d dropped trees have memory, which no compute node has open", retired())
	}
	buf := make([]byte, 8*words)
	x.world.c.PeekBackup(records, fabric.MemID(2), buf)
	if reused && !bytes.Equal(buf, make([]byte, len(buf))) {
		t.Fatal("locks are not zero at the new backup")
	}
}

// A hooked is a Locker that does something before it acquires a lock, once, or after it has released one, each time.
type hooked struct {
	*cas.Locker
	acquiring, released func()
}

func (l *hooked) Release(h *lock.Hold, before []fabric.Op) error {
	err := l.Locker.Release(h, before)
	if l.released != nil {
		l.released()
	}
	return err
}

func (l *hooked) Acquire(h *lock.Hold, r *lock.Request) error {
	if f := l.acquiring; f != nil {
		l.acquiring = nil
		f()
	}
	return l.Locker.Acquire(h, r)
}

// A node is copied before its lock is released: what changes after that is not overwritten at the backup.
func TestCopyUnderTheLock(t *testing.T) {
	x := newCopyWorld(t, 1)
	for i := range 40 {
		x.change(i)
	}
	to := x.add()
	wantErr(t, "names", x.tree.h.Parts[0].Region.CopyNames(x.port(0)), nil)
	l := &hooked{Locker: cas.New(x.port(1), cas.Config{Plain: true})}
	k, err := x.open(1, x.config()).Copy(l, &x.tree.h.Parts[x.mn].Entry, to, new(handle.CopyPosition))
	wantErr(t, "copy", err, nil)
	round := 0
	l.released = func() {
		round++
		for i := range 300 {
			if key := string(keyOf(i)); x.model[key] != "" {
				x.model[key] = fmt.Sprintf("%05d", round)
				wantErr(t, "put", x.c.Put([]byte(key), []byte(x.model[key])), nil)
			}
		}
	}
	for done := false; !done; {
		done, err = k.Step()
		wantErr(t, "step", err, nil)
	}
	l.released = nil
	x.inSync(to)
}

// A large value is written before its leaf is locked. A backup is added between the two, and is in sync: it has the value.
func TestCopyBetweenAValueAndItsRecord(t *testing.T) {
	x := newCopyWorld(t, 1)
	for i := range 50 {
		x.change(i)
	}
	l := &hooked{Locker: cas.New(x.port(1), cas.Config{Plain: true})}
	d, err := x.open(1, x.config()).Client(l)
	wantErr(t, "client", err, nil)
	wantErr(t, "get", ignore(func() error { _, err := d.Get(keyOf(1)); return err }(), ErrNotFound), nil) // it knows the way
	var to handle.NewBackup
	l.acquiring = func() {
		to = x.add()
		x.copyAll(to)
		x.synced(to)
	}
	x.model["large"] = string(bytes.Repeat([]byte("v"), 500))
	wantErr(t, "put", d.Put([]byte("large"), []byte(x.model["large"])), nil)
	r, err := x.c.Check(CheckOptions{Backups: true})
	if wantErr(t, "check", err, nil); !r.Clean() {
		t.Fatal(r)
	}
}

// A copy that was begun in another epoch is worth nothing, and writes nothing.
func TestCopyInAnotherEpoch(t *testing.T) {
	x := newCopyWorld(t, 1)
	x.change(0)
	to := x.add()
	x.world.c.KillMN(1) // the other backup ends, and the primary comes back
	x.world.c.RestartServer(0)
	k, err := x.tree.Copy(cas.New(x.port(0), cas.Config{Plain: true}), &x.tree.h.Parts[x.mn].Entry, to, new(handle.CopyPosition))
	wantErr(t, "copy", err, nil)
	_, err = k.Step()
	wantErr(t, "step", err, fabric.ErrStaleEpoch)
}

// A cutting is a Port of which a chain to a backup is cut in the middle, once, and something happens then.
type cutting struct {
	*sim.Port
	after int
	then  func()
}

func (p *cutting) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	then := p.then
	if then == nil || len(ops) <= p.after {
		return p.Port.PostBackup(g, i, ops)
	}
	p.then = nil
	pending, err := p.Port.PostBackup(g, i, ops[:p.after])
	if err == nil {
		err = p.Wait(pending)
	}
	then()
	if err != nil {
		return 0, err
	}
	return 0, &fabric.ChainError{Index: p.after, Op: ops[p.after], Err: fabric.ErrStaleEpoch}
}

// An attaching is a Locker that attaches its client as package hier does.
type attaching struct {
	*cas.Locker
	n *sim.Node
}

func (l *attaching) Ready(fabric.Addr) error { return nil }

func (l *attaching) Attach(mn fabric.MemID) error {
	return l.Port().Reattach(mn, l.n.MemoryEpoch(mn))
}

// A backup is promoted in the middle of a chain to it. What it has is a node, whatever its client does next. Of the first operation nothing shows: the put is done at the new primary.
func TestChainToABackupIsCut(t *testing.T) {
	for after := 1; after <= 3; after++ {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 3)
		p := &cutting{Port: w.port(0).(*sim.Port), after: after}
		l := &attaching{cas.New(p, cas.Config{Plain: true}), w.cns[0]}
		c, err := w.open(0, w.tiny()).Client(l)
		wantErr(t, "client", err, nil)
		for i := range 8 {
			wantErr(t, "put", c.Put(fmt.Appendf(nil, "%02d", i), valueOf(i, 1)), nil)
		}
		p.then = func() {
			for range 2 { // the last backup is written first
				wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
			}
		}
		want := fabric.ErrUnknownOutcome
		if after == 1 {
			want = nil
		}
		wantErr(t, "put", c.Put([]byte("00"), valueOf(0, 2)), want)
		wantErr(t, "attach", lock.Renew(l, w.mns[0]), nil)
		for i := range 5 {
			wantErr(t, "put", c.Put([]byte("07"), valueOf(7, i)), nil)
		}
		if c.Stats().Rewrites == 0 {
			t.Fatal("no node was written anew")
		}
		if v, err := c.Get([]byte("00")); err != nil || !bytes.Equal(v, valueOf(0, 2)) && (want == nil || !bytes.Equal(v, valueOf(0, 1))) {
			t.Errorf("cut after %d operations: %q, %v", after, v, err)
		}
		mustBeSound(t, c)
	}
}

// A backup of any number of the tree is added before or during a bulk load of several parts, and copied to meanwhile, however far the copier had come when the load began: it has all when it is promoted.
func TestCopyBesideABulkLoad(t *testing.T) {
	const during = 3
	for _, on := range [][2]int{{1, 0}, {2, 0}, {2, 1}} { // numbers, and which
		for before := range during + 1 {
			x := newCopyWorld(t, on[0])
			x.mn = on[1]
			other := x.client(0, x.tree)
			l, at := cas.New(x.port(0), cas.Config{Plain: true}), handle.CopyPosition{}
			var to handle.NewBackup
			add := func() {
				to = x.add()
				wantErr(t, "names", x.tree.h.Parts[x.mn].Region.CopyNames(x.port(0)), nil)
			}
			done := false
			step := func() {
				if done {
					return
				}
				k, err := x.tree.Copy(l, &x.tree.h.Parts[x.mn].Entry, to, &at)
				wantErr(t, "copy", err, nil)
				done, err = k.Step()
				wantErr(t, "step", err, nil)
				k.Close()
			}
			if before < during {
				add()
				for range before {
					step()
				}
			}
			wantErr(t, "load", x.c.BulkLoadParts(2, BulkOptions{}, func(b *Bulk) error {
				err := b.Part(1, other, somePairs(100, 200))
				if before == during {
					add()
				}
				step()
				return errors.Join(err, b.Part(0, x.c, somePairs(0, 100)))
			}), nil)
			for k, v := range somePairs(0, 200) {
				x.model[string(k)] = string(v)
			}
			for !done {
				step()
			}
			x.inSync(to)
		}
	}
}
