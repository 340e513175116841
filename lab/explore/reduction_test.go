package explore

import (
	"errors"
	flags "flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A toy is a small program in which little is independent.
type toy struct {
	nodes   []int      // of each client
	clients [][]string // operations of each client
	kill    int        // node that may be killed, 0: none
	stop    int        // 1 + client that may be interrupted
	tear    bool
	private bool // nothing is shared within a node
	covered bool // it is known what is shared within a node
	plain   bool // exploration does not know what its actions are
	ticks   int
}

const toyOps = "LSFCXsrpgvn"

func drawToy(t *rapid.T) toy {
	var y toy
	n := rapid.IntRange(2, 3).Draw(t, "clients")
	budget := 4 // operations in all: the unreduced tree grows like a multinomial
	y.private, y.ticks = rapid.Bool().Draw(t, "private"), rapid.IntRange(0, 1).Draw(t, "ticks")
	y.tear = n == 2 && rapid.IntRange(0, 3).Draw(t, "tear") == 0
	for i := range n {
		node := 1 + i
		if i > 0 && rapid.IntRange(0, 2).Draw(t, "beside") == 0 {
			node = i // shares the node of the client before
		}
		y.nodes = append(y.nodes, node)
		var ops []string
		for k := rapid.IntRange(1, 2).Draw(t, "ops"); k > 0 && budget > 0; k-- {
			budget--
			op := string(toyOps[rapid.IntRange(0, len(toyOps)-1).Draw(t, "op")])
			ops = append(ops, op+fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "arg")))
		}
		y.clients = append(y.clients, ops)
	}
	switch rapid.IntRange(0, 3).Draw(t, "action") {
	case 0:
		y.kill = y.nodes[0]
	case 1:
		y.stop = 1
	}
	y.covered = rapid.Bool().Draw(t, "covered")
	y.plain = rapid.Bool().Draw(t, "plain")
	return y
}

// noState is the state of who remembers nothing.
func noState(dst []byte) []byte { return dst }

// build makes the program. What it leaves behind is memory, what each client
// has seen, and what a word of each node's own memory has become.
func (y toy) build(c *Cluster, end func(func() (left, killed string))) {
	mn := c.AddMN(1024)
	word := func(arg byte) fabric.Addr { return fabric.At(mn, uint64(arg-'0')*8) }
	var nodes []*sim.Node
	var logs [4]string
	var own [4]int
	for i, ops := range y.clients {
		for len(nodes) < y.nodes[i] {
			nodes = append(nodes, c.AddCN())
			if i := len(nodes); y.covered {
				c.NodeState(nodes[i-1], func(dst []byte) []byte { return fmt.Append(dst, own[i]) }, noState)
			}
		}
		n := nodes[y.nodes[i]-1]
		c.Go(n, fmt.Sprint("client ", i), func(p fabric.Port) {
			switch {
			case y.stop != i+1:
			case y.plain:
				c.Sometime("interrupt", n, p.Interrupt)
			default:
				c.SometimeInterrupt(p)
			}
			say := func(v ...any) { logs[i] += fmt.Sprint(v...) + " " }
			for _, o := range ops {
				if !y.private {
					own[y.nodes[i]] = own[y.nodes[i]]*5 + i + 1
				}
				seen := own[y.nodes[i]]
				y.step(p, n, o[0], word(o[1]), fabric.Client(nodes[int(o[1]-'0')%len(nodes)].ID(), 1), say)
				say(seen)
			}
		})
	}
	switch {
	case y.kill == 0:
	case y.plain:
		c.Sometime("kill", nil, func() { c.Kill(nodes[y.kill-1]) })
	default:
		c.SometimeKill(nodes[y.kill-1], nil)
	}
	// Not part of what is hashed: logs follow from what clients were told.
	end(func() (left, killed string) {
		var big [128]byte
		c.Peek(fabric.At(mn, 512), big[:])
		show := func(dead func(n int) bool) string {
			logs, own := logs, own
			for i, n := range y.nodes {
				if dead(n) && !y.plain {
					logs[i], own[n] = "dead", 0 // how far it was told of what it had done makes no difference
				}
			}
			return fmt.Sprint(logs, own, c.PeekWord(word('0')), c.PeekWord(word('1')), big[0], big[64])
		}
		left = show(func(n int) bool { return nodes[n-1].Dead() })
		return left, show(func(n int) bool { return nodes[n-1].Dead() || n == y.kill })
	})
}

func (y toy) step(p fabric.Port, n *sim.Node, kind byte, a fabric.Addr, to fabric.ClientID, say func(...any)) {
	ops := []fabric.Op{fabric.Load(a)}
	switch kind {
	case 'S':
		ops[0] = fabric.Store(a, uint64(p.ID()))
	case 'F':
		ops[0] = fabric.FAA(a, uint64(p.ID().CN()))
	case 'C':
		ops[0] = fabric.CAS(a, 0, uint64(p.ID()))
	case 'X':
		ops = append(ops, fabric.FAA(fabric.At(a.MN(), a.Offset()^8), 1))
	case 's':
		say(p.Send(to, &fabric.Message{Body: [7]uint64{uint64(p.ID())}}))
		return
	case 'r':
		m, err := p.Recv(p.Now() + 1000)
		say(m.From, err, p.Now())
		return
	case 'p':
		m, err := p.Recv(0)
		say(m.From, err)
		return
	case 'g': // READ and WRITE of two lines
		buf := p.Alloc(128)
		say(p.Do([]fabric.Op{fabric.Read(fabric.At(a.MN(), 512), buf)}))
		say(buf[0], buf[64])
		buf[0]++
		buf[64]++
		ops = []fabric.Op{fabric.Write(fabric.At(a.MN(), 512), buf)}
	case 'n':
		say(p.Now())
		return
	case 'v':
		say(n.View().Live.Len(), p.Pause(p.Now()+500))
	}
	err := p.Do(ops)
	say(ops[0].Old, err)
}

// sameEnds checks that exploration of a toy reaches the same ends with reductions. It returns the numbers of schedules, and of executions with reductions.
func sameEnds(t interface {
	Helper()
	Fatalf(string, ...any)
}, y toy) (all, reduced int) {
	t.Helper()
	run := func(cfg Config) (seen, killed map[string]bool, r Report) {
		seen, killed = map[string]bool{}, map[string]bool{}
		cfg.Actions, cfg.Ticks, cfg.MaxSchedules = 1, y.ticks, 1500
		if y.tear {
			cfg.Sim.Tear.Prob = 1
		}
		r = Explore(cfg, func(c *Cluster) {
			y.build(c, func(f func() (left, killed string)) {
				c.AtEnd(func() error {
					a, b := f()
					seen[a], killed[b] = true, true
					return nil
				})
			})
		})
		if r.Failure != nil {
			t.Fatalf("%+v: %v", y, r)
		}
		return seen, killed, r
	}
	ends, _, full := run(Config{NoStates: true, NoEager: true})
	if !full.Exhaustive {
		return 0, 0 // too many to enumerate
	}
	all = full.Schedules
	configs := []Config{{NoEager: true}, {NoStates: true}, {}, {Sleep: true, NoStates: true, NoEager: true}, {Sleep: true, NoEager: true}, {Sleep: true}}
	if y.private {
		configs = append(configs, Config{Private: true}, Config{Private: true, NoEager: true}, Config{Private: true, Sleep: true})
	}
	for _, cfg := range configs {
		got, killed, r := run(cfg)
		// A crash after the last step of the last client is left out, since none is left that could see it.
		want := maps.Clone(ends)
		maps.DeleteFunc(want, func(s string, _ bool) bool { return killed[s] && !got[s] })
		if !r.Exhaustive || !maps.Equal(got, want) {
			missing := slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(s string) bool { return got[s] })
			more := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(s string) bool { return want[s] })
			t.Fatalf("%+v with %+v: %v\nmissing: %q\nnew: %q", y, cfg, r, missing, more)
		}
		if !cfg.NoEager && !cfg.NoStates {
			reduced += r.Schedules + r.Pruned
		}
	}
	return all, reduced
}

// What reductions leave out changes nothing: the same ends are reached. (Other programs are drawn each time; -rapid.checks=1500 takes
// more of them.)
func TestReductionsReachTheSameEnds(t *testing.T) {
	if f := flags.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		defer func() { _ = f.Value.Set(f.DefValue) }()
		_ = f.Value.Set("40")
	}
	all, reduced := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		full, some := sameEnds(t, drawToy(t))
		all += full
		reduced += some
	})
	t.Logf("%d schedules, %d executions with reductions", all, reduced)
}

// A message for a client that pauses arrives before its pause is over, if nothing else can happen: as without reductions.
func TestMessagesArriveBeforeTimePasses(t *testing.T) {
	sameEnds(t, toy{nodes: []int{1, 2}, clients: [][]string{{"F1", "s1"}, {"v1", "r0"}}, stop: 1, private: true, covered: true})
}

// An audit objects if clients share more than is said, or remember more.
func TestAuditObjects(t *testing.T) {
	for _, x := range []struct {
		says    bool
		forgets uint64 // what a client says that it remembers, beside what it shares
		want    bool
	}{{true, 1, true}, {false, 1, false}, {true, 0, false}} {
		r := Explore(Config{Audit: true}, func(c *Cluster) {
			mn := c.AddMN(1024)
			word := func(i uint64) fabric.Addr { return fabric.At(mn, 8*i) }
			for i := range uint64(2) {
				n := c.AddCN()
				shared := uint64(0)
				c.NodeState(n, func(dst []byte) []byte {
					if x.says {
						return append(dst, byte(shared))
					}
					return dst
				}, noState)
				c.Go(n, fmt.Sprint("client ", i), func(p fabric.Port) {
					ops := []fabric.Op{fabric.FAA(word(0), 1)}
					_ = p.Do(ops)
					shared = ops[0].Old
					_ = p.Do(ops)
					own := ops[0].Old
					c.Forget(own * x.forgets)
					_ = p.Do([]fabric.Op{fabric.Load(word(1))})
					_ = p.Do([]fabric.Op{fabric.Store(word(2+2*i), shared), fabric.Store(word(3+2*i), own)})
				})
			}
		})
		if (r.Audit == "") != x.want {
			t.Errorf("%+v: %v %q", x, r, r.Audit)
		}
	}
}

// Who goes on goes by what it has asked for: that is part of the state, also when it has been executed.
func TestClientsRememberTheirChain(t *testing.T) {
	r := Explore(Config{Sleep: true}, func(c *Cluster) {
		mn := c.AddMN(1024)
		word := func(i uint64) fabric.Addr { return fabric.At(mn, 8*i) }
		nodes := []*sim.Node{c.AddCN(), c.AddCN()}
		for _, n := range nodes {
			c.NodeState(n, noState, noState)
		}
		c.Go(nodes[0], "client", func(p fabric.Port) {
			ops := []fabric.Op{fabric.Load(word(0))}
			_ = p.Do(ops)
			ops[0] = fabric.Load(word(1 + ops[0].Old)) // word 1 or word 2: both are 0
			_ = p.Do(ops)
			_ = p.Do([]fabric.Op{fabric.Store(word(3), ops[0].Addr.Offset())})
		})
		c.Go(nodes[0], "client", func(p fabric.Port) {
			ops := []fabric.Op{fabric.Load(word(3))}
			_ = p.Do(ops)
			_ = p.Do([]fabric.Op{fabric.Store(word(6), ops[0].Old)})
		})
		c.Go(nodes[1], "client", func(p fabric.Port) { _ = p.Do([]fabric.Op{fabric.Store(word(0), 1)}) })
		c.AtEnd(func() error {
			if c.PeekWord(word(6)) == 16 {
				return errors.New("the planted failure")
			}
			return nil
		})
	})
	if r.Failure == nil {
		t.Error("nothing fails")
	}
}
