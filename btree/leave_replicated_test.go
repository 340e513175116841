package btree

import (
	"encoding/binary"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/memory/reclaim"
)

// A stopping is a Port that does something after its first chains that have an operation at an address, one thing after each; nil is nothing.
type stopping struct {
	*sim.Port
	at    fabric.Addr
	after []func()
}

func (p *stopping) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	for i := range ops {
		if ops[i].Addr == p.at && len(p.after) > 0 {
			then := p.after[0]
			if p.after = p.after[1:]; then != nil {
				then()
			}
			break
		}
	}
	return err
}

// When a compute node has closed its record in a dropped tree, or that of a crashed one, it stands still; another gives the memory back, and it becomes locks, of which one is held. Nothing of the
// first goes to the backup then: there the locks are zero, and so free after a promotion.
func TestClosedRecordIsWrittenNowhere(t *testing.T) {
	for _, how := range []string{"leave", "let go", "mark crashed", "retract"} {
		w := newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
		q := w.port(1)
		p := &stopping{Port: w.port(0).(*sim.Port)}
		tree := w.open(0, w.config())
		if how == "retract" {
			other := w.client(0, tree)
			tree = w.open(1, w.config())
			wantErr(t, "leave", other.Leave(), nil)
		}
		part := tree.h.Parts[0]
		base, r := part.Base, part.Region
		records, words := reclaim.Records(base)
		l := cas.New(q, cas.Config{Plain: true})
		at := records.Add(8 * 3) // of a compute node that is not there
		var h lock.Hold
		reuse := func() {
			wantErr(t, how+": free", handle.FreeDropped(q, w.mns, w.cns[1].View), nil)
			e, _, err := r.Create(q, memory.Spec{Name: "locks", Kind: memory.KindLocks, Size: part.Entry.Length, Align: 4096})
			wantErr(t, how+": locks", err, nil)
			if e.Addr.Offset() != base.Offset() {
				t.Fatalf("%s: locks are at %v, the tree was at %v", how, e.Addr, base)
			}
			wantErr(t, how+": acquire", l.Acquire(&h, &lock.Request{Lock: at, Mode: lock.Exclusive}), nil)
		}
		drop := func() { wantErr(t, how+": drop", Trees.Drop(q, "test", w.mns, w.cns[1].View), nil) }
		p.at, p.after = records.Add(8*uint64(w.cns[0].ID())), []func(){nil, reuse} // it looks, and closes
		switch how {
		case "leave":
			c := clientOn(t, tree, p)
			drop()
			wantErr(t, how, c.Leave(), nil)
		case "let go":
			drop()
			tree.MarkDropped()
			k := leaver{cas.New(p, cas.Config{Plain: true})}
			for done := false; !done; wantErr(t, "pause", p.Pause(p.Now()+100*fabric.Millisecond), nil) {
				var err error
				done, err = tree.LetGo(k, w.cns[0].View)
				wantErr(t, how, err, nil)
			}
		case "mark crashed":
			drop()
			list, err := r.Retired(p)
			if wantErr(t, "retired", err, nil); len(list) != 1 {
				t.Fatalf("%d retired", len(list))
			}
			wantErr(t, how, Trees.MarkCrashed(p, r, &list[0]), nil)
		case "retract":
			other := w.client(1, tree) // it looks, registers, looks again, and closes
			p.after = []func(){nil, func() { drop(); wantErr(t, "leave", other.Leave(), nil) }, nil, reuse}
			_, err := Open(p, w.config())
			wantErr(t, how, err, memory.ErrRemoved)
		}
		if len(p.after) > 0 {
			t.Fatalf("%s: nothing has happened", how)
		}
		wantErr(t, how+": release", l.Release(&h, nil), nil)
		buf := make([]byte, 8*words)
		w.c.PeekBackup(records, 1, buf)
		for i := 0; i < len(buf); i += 8 {
			if v := binary.LittleEndian.Uint64(buf[i:]); v != 0 {
				t.Errorf("%s: the lock word at %v is %#x at the backup", how, records.Add(uint64(i)), v)
			}
		}
		wantErr(t, how+": promote", w.c.Promote(w.mns[0]), nil)
		q = w.port(1)
		l = cas.New(q, cas.Config{Plain: true})
		wantErr(t, how+": acquire after the promotion", l.Acquire(&h, &lock.Request{Lock: at, Mode: lock.Exclusive, Deadline: q.Now() + fabric.Second}), nil)
	}
}

// A compute node leaves a tree. Before it closes its record at the primary another registers, and makes the records at the backup what they are at the primary. The record that was closed at the backup
// before stays so: nobody is registered when the backup has been promoted.
func TestClosedRecordStaysClosedAtABackup(t *testing.T) {
	w := newReplicated(t, sim.Config{Seed: 1, NIC: sim.Ideal()}, 1, 1<<20, 2, 2)
	tree := w.open(0, w.config())
	base := tree.h.Parts[0].Base
	records, _ := reclaim.Records(base)
	p := &closing{Port: w.port(0).(*sim.Port), at: records.Add(8 * uint64(w.cns[0].ID()))}
	c := clientOn(t, tree, p)
	p.then = func() { wantErr(t, "leave", w.client(1, w.open(1, w.config())).Leave(), nil) }
	wantErr(t, "leave", c.Leave(), nil)
	if p.then != nil {
		t.Fatal("nothing has happened")
	}
	wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
	if used, err := reclaim.InUse(w.port(1), base, nil); err != nil || used {
		t.Errorf("it is in use: %v, %v", used, err)
	}
}

// A closing is a Port that does something before its first CAS at an address.
type closing struct {
	*sim.Port
	at   fabric.Addr
	then func()
}

func (p *closing) Do(ops []fabric.Op) error {
	if then := p.then; then != nil && ops[0].Addr == p.at && ops[0].Kind == fabric.OpCAS {
		p.then = nil
		then()
	}
	return p.Port.Do(ops)
}
