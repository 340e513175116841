package sim

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// A node that is cut off from the coordinator goes on, and hears nothing; others are not admitted beside it. When it is declared
// dead, a memory node that has not heard of that serves it; only when all have refused it, the new one begins.
func TestDetached(t *testing.T) {
	c := New(Config{Seed: 1, NewsDelay: 10})
	defer c.Close()
	m := c.AddMN(4096)
	a := c.AddCN()
	c.AddCN()
	const us = fabric.Microsecond
	plan, err := ParsePlan("1000 detach cn1 until 400000; 50000 detach mn0 until 300000; 60000 fence cn1")
	if err != nil {
		t.Fatal(err)
	}
	plan.Apply(c)
	var served, began fabric.Time
	c.Go(a, "a", func(p fabric.Port) {
		for {
			err := p.Do([]fabric.Op{fabric.FAA(fabric.At(m, 64), 1)})
			if errors.Is(err, fabric.ErrFenced) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			served = p.Now()
			if n := len(c.nodes); n == 3 && a.View().Live.Has(c.nodes[2].ID()) {
				t.Error("a detached node has heard of another")
			}
			_ = p.Pause(p.Now() + us)
		}
	})
	c.At(20*us, func() {
		n := c.AddCN()
		c.Go(n, "joins", func(p fabric.Port) { began = p.Now() })
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if served < 290*us || served > 310*us {
		t.Errorf("a was served until %d us; the memory node hears at 300", served/us)
	}
	if began < 300*us {
		t.Errorf("the new one began at %d us, a was served until %d", began/us, served/us)
	}
	if s := c.FaultStats(); s[HeldNews] == 0 {
		t.Error("no news were held up")
	}
}
