package memory_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/memory"
)

// anew puts a backup of zeroed memory in the place of the one that there was, and formats it as its host would.
func (w *replicated) anew(p fabric.Port) {
	w.t.Helper()
	g := w.c.Group(w.mn)
	want(w.t, w.c.Change(member.Change{ID: w.mn, Kind: member.Drop, Host: g.Replicas[1].Host, Seen: g.Changed}), nil)
	w.c.AddBackup(w.mn, w.c.AddMN(4096))
	const identity, state = 64, 0x40
	b := p.Alloc(state + 8)
	want(w.t, p.Do([]fabric.Op{fabric.Read(fabric.At(w.mn, 0), b)}), nil)
	rep := fabric.ReplicatorOf(p)
	r, err := rep.Replicas(w.mn)
	want(w.t, err, nil)
	post, err := rep.PostBackup(&r, 0, []fabric.Op{fabric.Write(fabric.At(w.mn, 0), b[:identity]), fabric.Write(fabric.At(w.mn, state), b[state:])})
	want(w.t, err, nil)
	want(w.t, p.Wait(post), nil)
}

// locksThere looks whether the locks with some names are there, where they were, when the backup is promoted.
func (w *replicated) locksThere(p fabric.Port, list []memory.Entry) {
	w.t.Helper()
	want(w.t, w.c.Promote(w.mn), nil)
	w.attach(p, w.nodes[0])
	pages, err := w.r.Pages(p)
	want(w.t, err, nil)
	for _, e := range list {
		found, err := w.r.Lookup(p, e.Name, memory.KindLocks)
		if want(w.t, err, nil); found.Addr != e.Addr || pages.Owned(&found) < e.Length {
			w.t.Errorf("%+v is %+v", e, found)
		}
	}
	if next := w.locks(p, "next"); next.Addr == list[0].Addr || next.Addr == list[1].Addr {
		w.t.Errorf("%+v lie where others do", next)
	}
}

func (w *replicated) locks(p fabric.Port, name string) memory.Entry {
	w.t.Helper()
	e, _, err := w.r.Create(p, memory.Spec{Name: name, Kind: memory.KindLocks, Size: 3000})
	want(w.t, err, nil)
	return e
}

// A new backup has all names of locks, and their pages, when they have been copied.
func TestCopyNames(t *testing.T) {
	w := newReplicated(t, 2)
	p := open(t, w.nodes[0])
	list := []memory.Entry{w.locks(p, "a"), w.locks(p, "b")}
	w.anew(p)
	want(t, w.r.CopyNames(p), nil)
	w.locksThere(p, list)
}

// An entry that was made while a backup was added, of which its creator did not know, is there when a client has settled it.
func TestSettle(t *testing.T) {
	w := newReplicated(t, 2)
	p := open(t, w.nodes[0])
	list := []memory.Entry{w.locks(p, "a"), w.locks(p, "b")}
	w.anew(p)
	for i := range list {
		want(t, w.r.Settle(p, &list[i]), nil)
	}
	w.locksThere(p, list)
}

// A client that does not know of a new backup yet levels the state of an entry there, and not what the entry says: that is copied all the same.
func TestCopyNamesOfWhichTheStateIsThere(t *testing.T) {
	w := newReplicated(t, 2)
	p := open(t, w.nodes[0])
	list := []memory.Entry{w.locks(p, "a"), w.locks(p, "b")}
	w.anew(p)
	want(t, w.r.Level(p, w.r.At(memory.DirectoryOffset), 1), nil)
	want(t, w.r.CopyNames(p), nil)
	w.locksThere(p, list)
}

// A backup is added while a compute node makes a run zero, before it says what the run is: then the run is zero there, too, whatever was in its place.
func TestZeroNew(t *testing.T) {
	w := newReplicated(t, 2)
	p := open(t, w.nodes[0])
	e := w.locks(p, "a")
	x, err := w.r.Grow(p, &e, memory.Growth{Size: 1})
	want(t, err, nil)
	zeroed, err := w.r.Zero(p, &x)
	want(t, err, nil)
	w.anew(p)
	b, err := w.r.Backups(p)
	want(t, err, nil)
	a := w.r.At(x.Off)
	want(t, b.Write([]fabric.Op{fabric.Store(a, 1)}, 0), nil)
	want(t, w.r.ZeroNew(p, &x, zeroed), nil)
	ops := []fabric.Op{fabric.Load(a)}
	if want(t, b.Read(0, ops...), nil); ops[0].Old != 0 {
		t.Errorf("%#x at the new backup", ops[0].Old)
	}
}
