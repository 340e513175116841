package reclaim

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

var errGone = errors.New("it has been removed")

// reused is what Join and MarkCrashed ask when the memory is found to be the store's, and is given back and used for something else before they go on: its words
// become what use returns. The next time they ask, it is not the store's any more.
func (w *world) reused(a fabric.Addr, use func(was uint64) uint64) func() error {
	asked := false
	return func() error {
		if asked {
			return errGone
		}
		asked = true
		w.c.Poke(a, binary.LittleEndian.AppendUint64(nil, use(w.c.PeekWord(a))))
		return nil
	}
}

// Who registers with a store that is dropped meanwhile changes nothing of what has its memory then, whatever that is: it is zero, most of the time.
func TestRecordInMemoryThatIsUsedAgain(t *testing.T) {
	for name, use := range map[string]func(uint64) uint64{
		"zero":           func(uint64) uint64 { return 0 },
		"another record": func(was uint64) uint64 { return was ^ 1 },
	} {
		w := newWorld(t, 2)
		w.cns = append(w.cns, w.c.AddCN())
		p, err := w.cns[2].Open()
		if err != nil {
			t.Fatal(err)
		}
		a := w.base.Add(Offset + recordsAt + 8*uint64(p.ID().CN()))
		want := use(w.c.PeekWord(a))
		if err := new(Member).Join(p, w.base, w.reused(a, use)); !errors.Is(err, errGone) || w.c.PeekWord(a) != want {
			t.Errorf("%s: join: %v, the word is %#x, want %#x", name, err, w.c.PeekWord(a), want)
		}
		mine := w.mine[1].port
		a = w.base.Add(Offset + recordsAt + 8*uint64(mine.ID().CN()))
		want = use(w.c.PeekWord(a))
		if err := MarkCrashed(mine, w.base, w.reused(a, use), nil); err != nil && !errors.Is(err, errGone) || w.c.PeekWord(a) != want {
			t.Errorf("%s: mark crashed: %v, the word is %#x, want %#x", name, err, w.c.PeekWord(a), want)
		}
		if err := MarkCrashed(mine, w.base, func() error { return errGone }, nil); err != nil && !errors.Is(err, errGone) || w.c.PeekWord(a) != want {
			t.Errorf("%s: mark crashed of what is gone: %v, the word is %#x, want %#x", name, err, w.c.PeekWord(a), want)
		}
	}
}

// A registration that is undone because the store has been removed leaves a round alone: the word of the round may be something else by then.
func TestRetract(t *testing.T) {
	w := newWorld(t, 2)
	m := w.join(1).m // the second incarnation of this number
	word := w.base.Add(Offset)
	w.c.Poke(word, binary.LittleEndian.AppendUint64(nil, ^uint64(0)))
	if err := m.Retract(w.mine[1].port.Do, nil, nil); err != nil || w.c.PeekWord(word) != ^uint64(0) {
		t.Errorf("%v, the round is %#x", err, w.c.PeekWord(word))
	}
	if r := recordWord(w.c.PeekWord(m.record(m.cn))); r.open() || !r.owes() {
		t.Errorf("the record is %v", r)
	}
}
