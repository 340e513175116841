package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
)

var errLost = errors.New("update lost")

// counters makes n clients, each on a node of its own, that each add 1 to a word by READ and WRITE.
func counters(n int) func(c *Cluster) {
	return func(c *Cluster) {
		mn := c.AddMN(4096)
		a := fabric.At(mn, 64)
		for i := range n {
			c.Go(c.AddCN(), fmt.Sprint("client ", i), func(p fabric.Port) {
				ops := []fabric.Op{fabric.Load(a)}
				p.Do(ops)
				p.Do([]fabric.Op{fabric.Store(a, ops[0].Old+1)})
			})
		}
		c.AtEnd(func() error {
			if v := c.PeekWord(a); v != uint64(n) {
				return fmt.Errorf("%w: %d", errLost, v)
			}
			return nil
		})
	}
}

func TestExploreFindsTheLostUpdate(t *testing.T) {
	r := Explore(ExploreConfig{}, counters(2))
	if r.Failure == nil || !errors.Is(r.Failure.Err, errLost) {
		t.Fatal(r)
	}
	t.Log(r)
	s, err := ParseSchedule(r.Failure.Schedule.String())
	if err != nil {
		t.Fatal(err)
	}
	o := Replay(ExploreConfig{}, s, counters(2))
	if !errors.Is(o.Err, errLost) || strings.Join(o.Trace, "\n") != strings.Join(r.Failure.Trace, "\n") {
		t.Errorf("replayed: %v\n%s", o.Err, strings.Join(o.Trace, "\n"))
	}
	nonzero := 0
	for _, x := range r.Failure.Schedule.Choices {
		if x != 0 {
			nonzero++
		}
	}
	if nonzero != 1 {
		t.Errorf("schedule %v has %d switches, want 1", r.Failure.Schedule, nonzero)
	}
}
