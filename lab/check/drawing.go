package check

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lab/picture"
	"github.com/declock/declock/lock"
)

// A drawing is the picture of a run, if one is wanted.
type drawing struct {
	picture  *picture.Trace // nil: none
	objected int            // objections that it has
	found    map[fabric.Addr]string
}

// Picture runs a scenario as Run does, and returns its picture, too.
func Picture(s Scenario) (*Result, *picture.Trace, error) {
	w, err := newWorld(s, true)
	if err != nil {
		return nil, nil, err
	}
	w.draw()
	r := w.play()
	t := w.tap.picture
	t.Title = fmt.Sprintf("sim faults: class %s, seed %d", s.Class, s.Seed)
	t.Notes = []string{Replay(s)}
	for i, v := range r.Violations {
		if i == told {
			break
		}
		t.Blame(v.What)
		line, _, _ := strings.Cut(v.String(), "\n")
		t.Notes = append(t.Notes, "objection: "+line)
	}
	if !r.Bad() {
		t.Notes = append(t.Notes, fmt.Sprintf("holds: %d grants, %d events, history hash %#016x", r.Grants, r.Events, r.Hash))
	}
	return r, t, nil
}

// draw has the run drawn from now on.
func (w *world) draw() {
	words := picture.Of(w.s.Lock, w.s.layout())
	if w.s.Copies > 0 {
		words.Replicated()
	}
	for i, l := range w.locks {
		words.Name(l, w.s.layout().Lock().Size, fmt.Sprintf("lock %d", i), words.Lock)
		words.Name(w.cell(i), cellSize, fmt.Sprintf("data of lock %d", i), func(_ uint64, b []byte) string { return cellWords(b) })
	}
	words.Name(w.sync.Counter, 8, "counter of the clocks", nil)
	t := picture.New(w.c.Now, words)
	t.Began, t.Data = w.began, w.s.Keys == 0
	t.Plan(w.s.Plan.Shift(w.began))
	w.tap.picture = t
}

// cellWords says what is in the data under a lock.
func cellWords(b []byte) string {
	if len(b) < 8 {
		return fmt.Sprintf("%x", b)
	}
	v := binary.LittleEndian.Uint64(b)
	for i := 8; i+8 <= len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != v {
			return fmt.Sprintf("%d, torn", v)
		}
	}
	return fmt.Sprint(v)
}

// drawObjections adds objections that the picture does not have yet.
func (t *tap) drawObjections() {
	if t.picture == nil {
		return
	}
	for list := t.w.court.Violations(); t.objected < len(list); t.objected++ {
		t.picture.Object(list[t.objected])
	}
}

// drawEvent adds what a client reports.
func (t *tap) drawEvent(e *oracle.Event) {
	if t.picture != nil {
		t.picture.Report(e, t.picture.Words.NameOf(e.Lock))
	}
}

// drawBegin and drawEnd add the begin and the end of an operation of a store or tree.
func (t *tap) drawBegin(p fabric.Port, o *oracle.StoreOp) {
	if t.picture != nil {
		t.picture.Begin(p.ID(), o.Method+" "+o.Key)
	}
}

func (t *tap) drawEnd(p fabric.Port, what string) {
	if t.picture != nil {
		t.picture.End(p.ID(), what)
	}
}

// A noting Locker records where the locks of a store or tree are, and their holders: for reports and pictures. It has all that a hier.Locker has: else a run that is traced would be another.
type noting struct {
	*hier.Locker
	tap *tap
}

// Acquire implements lock.Locker.
func (n *noting) Acquire(h *lock.Hold, r *lock.Request) error {
	name := n.tap.find(r.Lock)
	e := oracle.Event{Kind: oracle.Requested, Client: n.Port().ID(), Lock: r.Lock.In(0), Mode: r.Mode}
	n.note(&e, name)
	err := n.Locker.Acquire(h, r)
	if e.Kind, e.Token = oracle.Granted, h.Token; err != nil {
		e.Kind, e.Err = oracle.Refused, err
	}
	n.note(&e, name)
	return err
}

// Release implements lock.Locker.
func (n *noting) Release(h *lock.Hold, before []fabric.Op) error {
	e := oracle.Event{Kind: oracle.Releasing, Client: n.Port().ID(), Lock: h.Lock.In(0), Mode: h.Mode}
	name := n.tap.find(h.Lock)
	n.note(&e, name)
	err := n.Locker.Release(h, before)
	e.Kind, e.Err = oracle.Released, err
	n.note(&e, name)
	return err
}

func (n *noting) note(e *oracle.Event, name string) {
	if n.tap.picture != nil {
		n.tap.picture.Report(e, name)
	}
}

// find returns the name of a lock of a store or tree.
func (t *tap) find(l fabric.Addr) string {
	l = l.In(0)
	name, ok := t.found[l]
	if ok {
		return name
	}
	if t.found == nil {
		t.found = map[fabric.Addr]string{}
	}
	size := t.w.s.layout().Lock().Size
	if t.w.s.Tree > 0 {
		name = fmt.Sprintf("node %d", len(t.found))
	} else {
		name = fmt.Sprintf("bucket %d", len(t.found))
	}
	t.found[l] = name
	switch {
	case t.picture == nil:
	case t.w.s.Tree > 0:
		t.picture.Words.Node(l, size, treeNode, name)
	default:
		t.picture.Words.Bucket(l, size, bucketSlots(size), name)
	}
	return name
}

// bucketSlots returns the bytes of the slots and the link of a bucket of an object store: at least 13 words, in lines of 64 bytes with the lock.
func bucketSlots(lock uint64) uint64 { return (lock+8*13+63)&^63 - lock }

// draw has a replay drawn from now on.
func (g *exploring) draw(d *drawing) {
	words := picture.Of(g.x.Policy, g.cfg.Layout)
	words.Name(g.lock, g.cfg.Layout.Lock().Size, "lock", words.Lock)
	words.Name(g.lock.Add(g.field.room(g.cfg.Layout)), 8, "data", func(_ uint64, b []byte) string { return cellWords(b) })
	*d = drawing{picture: picture.New(g.c.Now, words)}
	d.picture.Untimed, d.picture.Data = true, true
	g.drawn = d
}

// Picture runs the schedule as Run does, and returns its picture, too.
func (r Rerun) Picture() (*Rerunning, *picture.Trace) {
	var d drawing
	out := r.run(&d)
	t := d.picture
	t.Title = "sim explore: " + r.Program.String()
	t.Notes = []string{ReplaySchedule(r)}
	if err := out.Outcome.Err; err != nil {
		t.Fail(err)
		t.Notes = append(t.Notes, "fails: "+strings.ReplaceAll(err.Error(), "\n", " "))
	} else {
		t.Notes = append(t.Notes, fmt.Sprintf("holds, final state %#016x", out.Outcome.Final))
	}
	return out, t
}

// What package lock asks a Locker for besides: one without Replicated does not wait for memory that is being replaced.
var _ interface {
	Replicated(mn fabric.MemID) bool
	lock.Trimmer
} = (*noting)(nil)
