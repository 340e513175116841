package explore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
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
	r := Explore(Config{}, counters(2))
	if r.Failure == nil || !errors.Is(r.Failure.Err, errLost) {
		t.Fatal(r)
	}
	t.Log(r)
	s, err := ParseSchedule(r.Failure.Schedule.String())
	if err != nil {
		t.Fatal(err)
	}
	o := Replay(Config{}, s, counters(2))
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

// outcomes explores and returns what the program's end looks like in all schedules.
func outcomes(t *testing.T, cfg Config, build func(c *Cluster, end func(func() string))) (map[string]int, Report) {
	t.Helper()
	seen := map[string]int{}
	r := Explore(cfg, func(c *Cluster) {
		build(c, func(f func() string) {
			c.AtEnd(func() error { seen[f()]++; return nil })
		})
	})
	if r.Failure != nil || !r.Exhaustive {
		t.Fatal(r)
	}
	return seen, r
}

// Two clients with one operation each: beginning, effect, going on. Three events
// of each, in all orders: 6 over 3.
func TestExploreCountsInterleavings(t *testing.T) {
	for _, x := range []struct{ clients, ops, want int }{{2, 1, 20}, {2, 2, 252}, {3, 1, 1680}} {
		build := func(c *Cluster, end func(func() string)) {
			mn := c.AddMN(4096)
			for range x.clients {
				c.Go(c.AddCN(), "", func(p fabric.Port) {
					for range x.ops {
						p.Do([]fabric.Op{fabric.FAA(fabric.At(mn, 0), 1)})
					}
				})
			}
			end(func() string { return fmt.Sprint(c.PeekWord(fabric.At(mn, 0))) })
		}
		seen, r := outcomes(t, Config{NoStates: true, NoEager: true}, build)
		if r.Schedules != x.want || seen[fmt.Sprint(x.clients*x.ops)] != x.want || len(seen) != 1 {
			t.Errorf("%+v: %v, %v", x, r, seen)
		}
	}
}

// Peterson's algorithm, over READs and WRITEs. wrong: who wants says so after giving way.
func peterson(c *Cluster, wrong bool) {
	mn := c.AddMN(4096)
	flag := [2]fabric.Addr{fabric.At(mn, 0), fabric.At(mn, 8)}
	turn, data := fabric.At(mn, 16), fabric.At(mn, 24)
	inside := 0
	c.HashWith(func() uint64 { return uint64(inside) })
	for i := range uint64(2) {
		c.Go(c.AddCN(), fmt.Sprint("client ", i), func(p fabric.Port) {
			first, second := fabric.Store(flag[i], 1), fabric.Store(turn, 1-i)
			if wrong {
				first, second = second, first
			}
			p.Do([]fabric.Op{first})
			p.Do([]fabric.Op{second})
			for {
				ops := []fabric.Op{fabric.Load(flag[1-i]), fabric.Load(turn)}
				if p.Do(ops); ops[0].Old == 0 || ops[1].Old == i {
					break
				}
			}
			c.Witness()
			if inside++; inside > 1 {
				panic("both are in")
			}
			p.Do([]fabric.Op{fabric.Load(data)})
			c.Witness()
			inside--
			p.Do([]fabric.Op{fabric.Store(flag[i], 0)})
		})
	}
}

func TestExplorePeterson(t *testing.T) {
	for _, sleep := range []bool{false, true} {
		r := Explore(Config{FairPolls: true, Sleep: sleep}, func(c *Cluster) { peterson(c, false) })
		if !r.Exhaustive || r.States < 20 {
			t.Error(r)
		}
		t.Log(r)
		r = Explore(Config{FairPolls: true, Sleep: sleep}, func(c *Cluster) { peterson(c, true) })
		if r.Failure == nil || !strings.Contains(r.Failure.Err.Error(), "both are in") {
			t.Error(r)
		}
	}
}

// A client that waits for what no client does is stuck: with a loop or in Recv.
func TestExploreFindsStuckProgram(t *testing.T) {
	r := Explore(Config{FairPolls: true, MaxSteps: 1000}, func(c *Cluster) {
		mn := c.AddMN(64)
		c.Go(c.AddCN(), "spins", func(p fabric.Port) {
			for ops := []fabric.Op{fabric.Load(fabric.At(mn, 0))}; ops[0].Old == 0; {
				p.Do(ops)
			}
		})
	})
	if r.Failure == nil || !errors.Is(r.Failure.Err, ErrLivelock) {
		t.Error(r)
	}
	r = Explore(Config{}, func(c *Cluster) {
		for range 2 {
			c.Go(c.AddCN(), "waits", func(p fabric.Port) { p.Recv(fabric.Forever) })
		}
	})
	var d *sim.DeadlockError
	if r.Failure == nil || !errors.As(r.Failure.Err, &d) || len(d.Blocked) != 2 {
		t.Error(r)
	}
}

// Messages of two senders arrive in both orders; those of one sender in one.
func TestExploreMessageRace(t *testing.T) {
	seen, _ := outcomes(t, Config{}, func(c *Cluster, end func(func() string)) {
		var got []uint64
		c.HashWith(func() uint64 {
			h := uint64(1)
			for _, g := range got {
				h = h*10 + g
			}
			return h
		})
		n := c.AddCN()
		c.Go(n, "receiver", func(p fabric.Port) {
			for range 4 {
				m, _ := p.Recv(fabric.Forever)
				got = append(got, m.Body[0])
			}
		})
		for i := range uint64(2) {
			c.Go(c.AddCN(), "sender", func(p fabric.Port) {
				p.Send(fabric.Client(n.ID(), 1), &fabric.Message{Body: [7]uint64{2*i + 1}})
				p.Send(fabric.Client(n.ID(), 1), &fabric.Message{Body: [7]uint64{2*i + 2}})
			})
		}
		end(func() string { return fmt.Sprint(got) })
	})
	if len(seen) != 6 { // 4 over 2
		t.Errorf("%v", seen)
	}
}

// A crash happens before, between and after all operations, and those under way happen or not.
func TestExploreCrashesEverywhere(t *testing.T) {
	for _, late := range []sim.LateOps{sim.LateDrop, sim.LateDraw} {
		seen, _ := outcomes(t, Config{Actions: 1, Sim: sim.Config{Late: late}}, func(c *Cluster, end func(func() string)) {
			mn := c.AddMN(64)
			n := c.AddCN()
			done, views := 0, 0
			c.HashWith(func() uint64 { return uint64(done)<<8 | uint64(views) })
			c.Go(n, "victim", func(p fabric.Port) {
				for range 3 {
					p.Do([]fabric.Op{fabric.FAA(fabric.At(mn, 0), 1)})
					done++
				}
			})
			w := c.AddCN()
			c.Go(w, "witness", func(p fabric.Port) {
				p.Pause(10)
				p.Do([]fabric.Op{fabric.FAA(fabric.At(mn, 8), 1)})
				views = w.View().Live.Len()
			})
			c.Sometime("crash", n, func() { c.Kill(n) })
			end(func() string { return fmt.Sprint(c.PeekWord(fabric.At(mn, 0)), done, views) })
		})
		// Killed before the k-th effect, before it goes on after it, or never; noticed or not.
		for k := range 4 {
			for _, what := range []string{fmt.Sprint(k, k), fmt.Sprint(k+1, k)} {
				if k < 3 && seen[what+" 1"]+seen[what+" 2"]+seen[what+" 0"] == 0 {
					t.Errorf("late %v: no crash left %s: %v", late, what, seen)
				}
			}
		}
	}
}
