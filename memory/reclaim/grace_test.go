package reclaim

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// A busy owner has something happen whenever it uses its Port: before and after each chain, and when it asks for the time.
type busy struct {
	*lists
	happens func()
}

func (o *busy) Port() fabric.Port { return busyPort{o.lists.port, o} }

func (o *busy) Do(ops []fabric.Op) error {
	o.happens()
	defer o.happens()
	return o.lists.Do(ops)
}

type busyPort struct {
	fabric.Port
	o *busy
}

func (p busyPort) Now() fabric.Time {
	p.o.happens()
	return p.Port.Now()
}

// An epoch lasts as long as it is to; while a later one is waited for, a tenth of a second is enough.
func TestEpochsAreAwaited(t *testing.T) {
	w := newWorld(t, 2)
	var graces [2]Grace
	epochsIn := func(d fabric.Time) (n uint64) {
		epoch := func() uint64 {
			ops := []fabric.Op{fabric.Load(graces[0].at)}
			if err := w.mine[0].port.Do(ops); err != nil {
				t.Fatal(err)
			}
			return ops[0].Old
		}
		n = epoch()
		for until := w.mine[0].port.Now() + d; w.mine[0].port.Now() < until; {
			for i, l := range w.mine {
				if err := l.port.Pause(l.port.Now() + 10*fabric.Millisecond); err != nil {
					t.Fatal(err)
				}
				if err := l.m.GraceStep(&graces[i], l, fabric.Second); err != nil {
					t.Fatal(err)
				}
			}
		}
		return epoch() - n
	}
	for i := range graces {
		graces[i].Init(w.base.Add(1 << 19))
	}
	if n := epochsIn(10 * fabric.Second); n < 8 || n > 10 {
		t.Errorf("%d epochs in 10 s", n)
	}
	e, err := graces[1].Epoch(w.mine[1].port.Do)
	if err != nil {
		t.Fatal(err)
	}
	graces[1].Await(e + 3)
	if !graces[1].Awaited() || graces[0].Awaited() {
		t.Error("what waits for an epoch is not known, or elsewhere")
	}
	if n := epochsIn(600 * fabric.Millisecond); n < 3 || n > 4 {
		t.Errorf("%d epochs in 0.6 s, of three that are waited for", n)
	}
	if n := epochsIn(3 * fabric.Second); graces[1].Awaited() || n > 4 {
		t.Errorf("then %d epochs in 3 s", n)
	}
}

// While an operation is under way that began in epoch e, the epoch is e+1 at most, at whatever moment of its compute node's steps it began; then epochs go on.
func TestEpochsWaitForOperations(t *testing.T) {
	for at := 1; epochsWait(t, at); at++ {
	}
}

// epochsWait has an operation begin at a moment of the steps, and reports whether there was such.
func epochsWait(t *testing.T, at int) (begun bool) {
	w := newWorld(t, 2)
	var graces [2]Grace
	var owners [2]*busy
	for i, l := range w.mine {
		graces[i].Init(w.base.Add(1 << 19))
		owners[i] = &busy{lists: l, happens: func() {}}
	}
	step := func() (epoch uint64) {
		for i, o := range owners {
			if err := o.port.Pause(o.port.Now() + 2); err != nil {
				t.Fatal(err)
			}
			if err := o.m.GraceStep(&graces[i], o, 1); err != nil {
				t.Fatal(err)
			}
		}
		ops := []fabric.Op{fabric.Load(graces[0].at)}
		if err := w.mine[1].port.Do(ops); err != nil {
			t.Fatal(err)
		}
		return ops[0].Old
	}
	for range 5 {
		step()
	}
	moments, began := 0, uint64(0)
	owners[0].happens = func() {
		if moments++; moments != at {
			return
		}
		begun = true
		w.mine[0].u.Enter()
		var err error
		if began, err = graces[0].Epoch(w.mine[0].port.Do); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 {
		if epoch := step(); begun && epoch > began+1 {
			t.Fatalf("moment %d: an operation of epoch %d is under way in epoch %d", at, began, epoch)
		}
	}
	if !begun || moments > 60 {
		return false
	}
	w.mine[0].u.Exit()
	for range 12 {
		step()
	}
	if epoch := step(); epoch < began+3 {
		t.Errorf("moment %d: epoch %d, long after an operation of epoch %d", at, epoch, began)
	}
	return true
}
