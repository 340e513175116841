package memory_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A slow is a Port that stands still for a millisecond after one of its chains.
type slow struct {
	fabric.Port
	left *int
}

// Under implements fabric.Under.
func (p slow) Under() fabric.Port { return p.Port }

// Do implements fabric.Port.
func (p slow) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	p.after()
	return err
}

// Wait implements fabric.Port.
func (p slow) Wait(x fabric.Pending) error {
	err := p.Port.Wait(x)
	p.after()
	return err
}

func (p slow) after() {
	if *p.left--; *p.left == -1 {
		_ = p.Pause(p.Now() + fabric.Millisecond)
	}
}

// A client stands still after each of its chains, while another changes the word further and has it levelled: no backup ever has an older word than one that has been
// levelled, for that may be promoted at any time (rule 19).
func TestSlowClientLevelsNothingOlder(t *testing.T) {
	for factor := 2; factor <= 3; factor++ {
		for k, left := 0, -1; left < 0 && !t.Failed(); k++ {
			w := newReplicated(t, factor)
			a, done := w.r.At(size-8), uint64(0)
			w.c.SetObserver(observer(func(e *sim.Event) {
				if e.Step != sim.StepEffect {
					return
				}
				w.c.Backups(w.mn, func(host fabric.MemID, peek func(uint64, []byte)) {
					var b [8]byte
					if peek(size-8, b[:]); uint64(b[0]) < done {
						t.Errorf("%d replicas, chain %d: %v has %d, and %d was levelled", factor, k, host, b[0], done)
					}
				})
			}))
			change := func(p fabric.Port, was uint64) {
				want(t, p.Do([]fabric.Op{fabric.CAS(a, was, was+1)}), nil)
				want(t, w.r.Level(p, a, 1), nil)
				done = max(done, was+1)
			}
			left = k
			w.c.Go(w.nodes[0], "slow", func(p fabric.Port) { change(slow{p, &left}, 0) })
			w.c.Go(w.nodes[1], "other", func(p fabric.Port) {
				_ = p.Pause(p.Now() + fabric.Millisecond/2)
				change(p, 1)
			})
			if err := w.c.Run(); err != nil {
				t.Fatal(fmt.Sprint(factor, k), err)
			}
		}
	}
}
