package sim_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A chain reads a word twice that others count up. In order, the first READ never finds more than the second; exchanged, it does.
func TestExchangedReads(t *testing.T) {
	for _, exchange := range []float64{0, 0.5} {
		c := sim.New(sim.Config{Seed: 1, ExchangeReads: exchange})
		word := fabric.At(c.AddMN(1<<20), 64)
		for i := range 8 {
			c.Go(c.AddCN(), fmt.Sprint("writer ", i), func(p fabric.Port) {
				for range 2000 {
					if err := p.Do([]fabric.Op{fabric.FAA(word, 1), fabric.FAA(word, 1)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		newer, n := 0, c.AddCN()
		if in := n.Caps().ReadsInOrder; in != (exchange == 0) {
			t.Errorf("ReadsInOrder is %v", in)
		}
		c.Go(n, "reader", func(p fabric.Port) {
			for range 2000 {
				ops := []fabric.Op{fabric.Load(word), fabric.Load(word)}
				if err := p.Do(ops); err != nil {
					t.Error(err)
				}
				if ops[0].Old > ops[1].Old {
					newer++
				}
			}
			// An operation that is refused names itself, and those before it are executed.
			err := p.Do([]fabric.Op{fabric.Load(word), fabric.Load(fabric.At(0, 1<<20)), fabric.Load(word)})
			if k := fabric.Executed(err, 3); k > 1 {
				t.Errorf("%v: %d executed", err, k)
			}
		})
		if err := c.Run(); err != nil {
			t.Error(err)
		}
		if newer > 0 != (exchange > 0) {
			t.Errorf("exchanged with probability %v: %d of 2000 chains have found more by the first READ", exchange, newer)
		}
		c.Close()
	}
}
