package explore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/declock/declock/fabric"
)

// spinlock makes n clients that each enter once under a lock that spins by CAS.
// wrong: they look first and then take it with a WRITE.
func spinlock(c *Cluster, n int, wrong bool) {
	mn := c.AddMN(4096)
	word, data := fabric.At(mn, 0), fabric.At(mn, 8)
	inside := 0
	c.HashWith(func() uint64 { return uint64(inside) })
	for i := range n {
		c.Go(c.AddCN(), fmt.Sprint("client ", i), func(p fabric.Port) {
			ops := []fabric.Op{fabric.CAS(word, 0, 1)}
			if wrong {
				ops[0] = fabric.Load(word)
			}
			for p.Do(ops); ops[0].Old != 0; p.Do(ops) {
			}
			if wrong {
				p.Do([]fabric.Op{fabric.Store(word, 1)})
			}
			c.Witness()
			if inside++; inside > 1 {
				panic("both are in")
			}
			p.Do([]fabric.Op{fabric.FAA(data, 1)})
			c.Witness()
			inside--
			p.Do([]fabric.Op{fabric.Store(word, 0)})
		})
	}
	c.AtEnd(func() error {
		if v := c.PeekWord(data); v != uint64(n) {
			return fmt.Errorf("%d were in", v)
		}
		return nil
	})
}

func TestExploreSpinlock(t *testing.T) {
	for _, sleep := range []bool{false, true} {
		for n := 2; n <= 4; n++ {
			r := Explore(Config{FairPolls: true, Sleep: sleep}, func(c *Cluster) { spinlock(c, n, false) })
			if !r.Exhaustive {
				t.Error(r)
			}
			t.Logf("%d clients: %v", n, r)
		}
		r := Explore(Config{FairPolls: true, Sleep: sleep}, func(c *Cluster) { spinlock(c, 3, true) })
		if r.Failure == nil || !strings.Contains(r.Failure.Err.Error(), "both are in") {
			t.Error(r)
		}
	}
}

// Clients that meet at an oracle only: with sleep sets, both orders are seen if it says that it takes note of them. If it does
// not, one order is left out: that is what Witness is for.
func TestWitnessKeepsOrders(t *testing.T) {
	for _, witness := range []bool{true, false} {
		seen, r := outcomes(t, Config{Sleep: true, NoStates: true}, func(c *Cluster, end func(func() string)) {
			mn := c.AddMN(64)
			order := ""
			for i := range uint64(2) {
				c.Go(c.AddCN(), "", func(p fabric.Port) {
					p.Do([]fabric.Op{fabric.Store(fabric.At(mn, 8*i), 1)})
					if witness {
						c.Witness()
					}
					order += fmt.Sprint(i)
				})
			}
			end(func() string { return order })
		})
		if want := map[bool]int{true: 2, false: 1}[witness]; len(seen) != want {
			t.Errorf("witness %v: %v, %v", witness, seen, r)
		}
	}
}

// Two READs of one word from two places are no loop: they may find the same, or not.
func TestFairPollsAreLoopsOnly(t *testing.T) {
	seen, _ := outcomes(t, Config{FairPolls: true}, func(c *Cluster, end func(func() string)) {
		a := fabric.At(c.AddMN(64), 0)
		first, second := []fabric.Op{fabric.Load(a)}, []fabric.Op{fabric.Load(a)}
		c.Go(c.AddCN(), "reader", func(p fabric.Port) {
			p.Do(first)
			p.Do(second)
		})
		c.Go(c.AddCN(), "writer", func(p fabric.Port) {
			p.Do([]fabric.Op{fabric.Store(a, 1)})
			p.Do([]fabric.Op{fabric.Store(a, 2)})
		})
		end(func() string { return fmt.Sprint(first[0].Old, second[0].Old) })
	})
	if len(seen) != 6 {
		t.Errorf("%v", seen)
	}
}

// Who forgets between two rounds reaches the same ends with fewer states.
func TestForgetReachesTheSameEnds(t *testing.T) {
	build := func(forget bool) func(c *Cluster, end func(func() string)) {
		return func(c *Cluster, end func(func() string)) {
			a := fabric.At(c.AddMN(64), 0)
			for range 3 {
				c.Go(c.AddCN(), "", func(p fabric.Port) {
					for i := range uint64(2) {
						if forget {
							c.Forget(i)
						}
						ops := []fabric.Op{fabric.Load(a)}
						p.Do(ops)
						p.Do([]fabric.Op{fabric.Store(a, ops[0].Old+1)})
					}
					if forget {
						c.Forget(2)
					}
				})
			}
			end(func() string { return fmt.Sprint(c.PeekWord(a)) })
		}
	}
	long, r1 := outcomes(t, Config{}, build(false))
	short, r2 := outcomes(t, Config{}, build(true))
	if len(long) != len(short) || len(long) < 4 || r2.States >= r1.States/2 {
		t.Errorf("%v, %v; %v, %v", long, r1, short, r2)
	}
}

// A program that is not the same each time is found out.
func TestExploreNeedsDeterminism(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "not deterministic") {
			t.Errorf("recovered %v", r)
		}
	}()
	runs := 0
	Explore(Config{}, func(c *Cluster) {
		a := fabric.At(c.AddMN(64), 0)
		runs++
		for range 2 + runs%2 {
			c.Go(c.AddCN(), "", func(p fabric.Port) { p.Do([]fabric.Op{fabric.FAA(a, 1)}) })
		}
	})
}

// Bounds are reported for what they are.
func TestExploreSaysWhatItLeftOut(t *testing.T) {
	big := func(c *Cluster) {
		a := fabric.At(c.AddMN(64), 0)
		for range 3 {
			c.Go(c.AddCN(), "", func(p fabric.Port) {
				for range 3 {
					p.Do([]fabric.Op{fabric.FAA(a, 1)})
				}
			})
		}
	}
	for _, cfg := range []Config{{MaxSchedules: 5}, {MaxStates: 5}, {MaxWall: 1}, {MaxSwitches: 1}} {
		if r := Explore(cfg, big); r.Exhaustive || r.Bound == "" || r.Failure != nil {
			t.Errorf("%+v: %v", cfg, r)
		}
	}
	few, all := Explore(Config{MaxSwitches: 1}, big), Explore(Config{}, big)
	if few.States >= all.States || !all.Exhaustive {
		t.Errorf("%v; %v", few, all)
	}
}

// A failing schedule shrinks, and fails as it was found, too.
func TestFailuresShrink(t *testing.T) {
	r := Explore(Config{}, counters(3))
	if r.Failure == nil || len(r.Failure.Schedule.String()) > len(r.Failure.Found.String()) {
		t.Fatal(r)
	}
	if o := Replay(Config{}, r.Failure.Found, counters(3)); !errors.Is(o.Err, errLost) {
		t.Errorf("as found: %v", o.Err)
	}
}

func TestSchedulesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{Choices: rapid.SliceOfN(rapid.IntRange(0, 3), 0, 30).Draw(t, "choices")}.trim()
		for range rapid.IntRange(0, 3).Draw(t, "shared") {
			s.Shared = append(s.Shared, fabric.CNID(rapid.IntRange(1, 255).Draw(t, "cn")))
		}
		got, err := ParseSchedule(s.String())
		if err != nil || got.String() != s.String() || len(got.Choices) != len(s.Choices) {
			t.Fatalf("%v: %v, %v", s, got, err)
		}
	})
	for _, bad := range []string{"", "x", "1", "1.0", "2.1,1.1", "1.1,1.1", "s:1.1", "s0:1.1", "s300:", "1.1,", "q1:1.1"} {
		if s, err := ParseSchedule(bad); !errors.Is(err, ErrSchedule) {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
	}
	if o := Replay(Config{}, Schedule{Choices: []int{9}}, counters(2)); !errors.Is(o.Err, ErrSchedule) {
		t.Errorf("a schedule of another program: %v", o.Err)
	}
}
