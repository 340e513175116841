package sim

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// abandons counts the clients that give their inbox up.
type abandons struct{ list []Event }

func (a *abandons) Observe(e *Event) {
	if e.Step == StepAbandon {
		a.list = append(a.list, *e)
	}
}

// An Observer learns which client has which ID; the history is the same without one.
func TestObserverSeesAbandon(t *testing.T) {
	run := func(o Observer) (hash uint64) {
		c := New(Config{Observer: o})
		defer c.Close()
		c.Go(c.AddCN(), "client", func(p fabric.Port) {
			if err := p.Abandon(); err != nil {
				t.Error(err)
			}
			_ = p.Pause(p.Now() + 100)
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return c.Hash()
	}
	o := &abandons{}
	if with, without := run(o), run(nil); with != without {
		t.Errorf("hash %#x with an Observer, %#x without", with, without)
	}
	if len(o.list) != 1 || o.list[0].Client != fabric.Client(1, 1) || o.list[0].To == o.list[0].Client {
		t.Errorf("seen: %v", o.list)
	}
}
