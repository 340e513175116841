package btree

import (
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/explore"
	"github.com/declock/declock/lab/locks/cas"
)

// A program is a small program of which all schedules are tried, on leaves of three keys. Each client has a
// compute node of its own.
type program struct {
	name    string
	before  string   // keys that are there, then, with a minus, keys that are deleted
	clients []string // their operations, with commas between
	crash   bool     // the first client's node may die at any point
	warm    []int    // clients whose index cache knows the tree
	tear    bool     // READs and WRITEs tear
	bound   int      // switches of client; 0 is none
	states  int      // to explore, if more than others: it is there for a bug that takes so many
}

// An exploring is one execution of a program.
type exploring struct {
	*history
	p       program
	c       *explore.Cluster
	w       *world
	before  map[string]string
	slots   []fabric.Addr // locks
	clients []*Client
	dead    fabric.CNSet
}

func (p program) build(t *testing.T) func(*explore.Cluster) {
	return func(c *explore.Cluster) {
		g := &exploring{history: &history{}, p: p, c: c, w: &world{t: t, c: c.Cluster}, before: map[string]string{}}
		g.w.populate(1, 1<<20, len(p.clients)+1, 0)
		cfg := g.w.tiny()
		var trees []*Tree
		for i := range len(p.clients) + 1 {
			trees = append(trees, g.w.open(i, cfg))
		}
		last := g.w.client(len(p.clients), trees[len(p.clients)])
		for _, k := range strings.Fields(p.before) {
			if gone, ok := strings.CutPrefix(k, "-"); ok {
				wantErr(t, "delete", last.Delete([]byte(gone)), nil)
				delete(g.before, gone)
				continue
			}
			g.before[k] = fullValue(k)
			wantErr(t, "put", last.Put([]byte(k), []byte(g.before[k])), nil)
		}
		for i := range p.clients {
			port := g.w.port(i)
			cl := clientOn(t, trees[i], port)
			if slices.Contains(p.warm, i) {
				for k := range g.before {
					wantValue(t, cl, k, g.before[k])
				}
			}
			g.clients = append(g.clients, cl)
		}
		g.clients = append(g.clients, last)
		g.findLocks(last)
		for i, work := range p.clients {
			c.GoOn(g.clients[i].port, fmt.Sprint("client ", i), func(fabric.Port) { g.client(i, work) })
		}
		if p.crash {
			c.SetObserver(g)
			c.Sometime("kill cn1", nil, func() {
				g.dead.Add(1)
				c.Kill(g.w.cns[0])
			})
		}
		c.HashWith(func() uint64 {
			h := fnv.New64a()
			fmt.Fprint(h, g.history, g.dead)
			return h.Sum64()
		})
		c.AtEnd(g.atEnd)
	}
}

// findLocks lists the locks of all slots.
func (g *exploring) findLocks(c *Client) {
	_, err := c.Check(CheckOptions{})
	wantErr(g.w.t, "check", err, nil)
	g.slots = lockAddrs(g.w.t, c)
}

// Observe frees the locks of the first compute node when that is fenced: what a reset does.
func (g *exploring) Observe(e *sim.Event) {
	if e.Step == sim.StepFence {
		g.clearLocks()
	}
}

func (g *exploring) clearLocks() {
	for _, a := range g.slots {
		if who, _ := cas.Owner(g.c.PeekWord(a)); who != 0 && g.dead.Has(who.CN()) {
			g.c.Poke(a, make([]byte, 8))
		}
	}
}

func (g *exploring) client(i int, work string) {
	for op := range strings.SplitSeq(work, ",") {
		if err := g.do(g.clients[i], i, strings.TrimSpace(op)); err != nil {
			if !g.dead.Has(fabric.CNID(i + 1)) {
				g.c.Fail(fmt.Errorf("%s: %w", op, err))
			}
			return
		}
	}
}

func (g *exploring) atEnd() error {
	g.clearLocks()
	c := g.clients[len(g.clients)-1]
	r, err := c.Check(CheckOptions{})
	if err != nil {
		return err
	}
	if !r.Sound() || !g.p.crash && !r.Clean() {
		return fmt.Errorf("check: %v", r)
	}
	// What a writer comes by is repaired; then nothing is unfinished.
	keys := map[string]bool{}
	for k := range g.before {
		keys[k] = true
	}
	for _, o := range g.calls {
		if o.key != "" {
			keys[o.key] = true
		}
	}
	sorted := make([]string, 0, len(keys))
	for k := range keys {
		sorted = append(sorted, k)
	}
	slices.Sort(sorted)
	for _, k := range sorted {
		if err := g.do(c, 99, "get "+k); err != nil {
			return err
		}
	}
	for _, op := range []string{"scan", "rscan"} {
		if err := g.do(c, 99, op); err != nil {
			return err
		}
	}
	if err := g.linearizable(g.before); err != nil {
		return err
	}
	if err := g.scansRight(g.before); err != nil {
		return err
	}
	if r, err = c.Check(CheckOptions{Repair: true}); err != nil || !r.Clean() {
		return fmt.Errorf("repair: %v, %w", r, err)
	}
	if n := g.calls[len(g.calls)-1]; len(n.pairs) != int(r.Keys) {
		return fmt.Errorf("%d keys, scanned %v", r.Keys, n.pairs)
	}
	return nil
}

// programs of small trees. With ten keys and leaves of three, the tree has a root with four leaves or so.
var programs = []program{
	{name: "root split and reader", before: "b d f", clients: []string{"put e E", "get b, get e, get f"}},
	{name: "root split and scanner", before: "b d f", clients: []string{"put e E", "scan"}},
	{name: "root split and descending scanner", before: "b d f", clients: []string{"put e E", "rscan"}},
	{name: "root split and writer", before: "b d f", clients: []string{"put e E", "put f F, get f"}},
	{name: "two root splits from one leaf", before: "b d f", clients: []string{"put e E", "put c C"}},
	{name: "split and warm reader", before: "b d f h j", clients: []string{"put i I, put k K", "get j, get h"}, warm: []int{0, 1}},
	{name: "split and scanner", before: "b d f h j", clients: []string{"put i I, put k K", "scan"}, warm: []int{0}},
	{name: "split and descending scanner", before: "b d f h j", clients: []string{"put i I, put k K", "rscan"}, warm: []int{0}},
	{name: "split and warm writer", before: "b d f h j", clients: []string{"put i I, put k K", "put j J"}, warm: []int{0, 1}},
	{name: "merge and warm reader", before: "b d f h j -h", clients: []string{"delete j", "get j, get b, get j"}, warm: []int{0, 1}},
	{name: "merge and cold reader", before: "b d f h j -h", clients: []string{"delete j", "get j"}},
	{name: "merge and scanner", before: "b d f h j -h", clients: []string{"delete f", "scan"}},
	{name: "merge and descending scanner", before: "b d f h j -h", clients: []string{"delete f", "rscan"}},
	{name: "merge and writer", before: "b d f h j -h", clients: []string{"delete j", "insert j J, get j"}, warm: []int{0, 1}},
	{name: "merge and split left of it", before: "b c d f h j -h", clients: []string{"delete j", "put e E"}, warm: []int{0, 1}},
	{name: "two merges", before: "b d f h j l n -h -l", clients: []string{"delete j", "delete f"}, warm: []int{0, 1}},
	{name: "half a split in the slot of a dead node", before: "b d f h j -h", clients: []string{"delete j, put k K", "get k, scan"}, warm: []int{0, 1}},
	{name: "reuse of a dead node", before: "b d f h j -h", clients: []string{"delete j, put c C, put e E", "get j, get f"}, warm: []int{0, 1}},
}

func exploreProgram(t *testing.T, p program, states int, wall time.Duration) explore.Report {
	t.Helper()
	cfg := explore.Config{FairPolls: true, MaxStates: states, MaxWall: wall, MaxSwitches: p.bound}
	if p.crash {
		cfg.Actions = 1
	}
	if p.tear {
		cfg.Sim.Tear = sim.Tear{Prob: 1, Grain: 64}
	}
	fabrictest.SkipInVirtualTime(t)
	return explore.Explore(cfg, p.build(t))
}

// crashes are programs in which the compute node of the first client may die at any point.
var crashes = []program{
	{name: "append", before: "b d", clients: []string{"put c C", "get b, put d D"}},
	{name: "room made", before: "a -a b d", clients: []string{"put c C", "get b, put d D"}},
	{name: "room made, then an append", before: "a -a b d", clients: []string{"put c C", "delete d"}, states: 2000},
	{name: "root split", before: "b d f", clients: []string{"put e E", "get f, put f F"}},
	{name: "split", before: "b d f h j", clients: []string{"put i I, put k K", "get h, put j J"}},
	{name: "split and scanner", before: "b d f h j", clients: []string{"put i I, put k K", "scan"}},
	{name: "split and descending scanner", before: "b d f h j", clients: []string{"put i I, put k K", "rscan"}},
	{name: "merge", before: "b d f h j -h", clients: []string{"delete j", "get j, put j J, get j"}},
	{name: "merge and warm writer", before: "b d f h j -h", clients: []string{"delete j", "get j, put j J, get j"}, warm: []int{0, 1}},
	{name: "merge and scanner", before: "b d f h j -h", clients: []string{"delete j", "scan"}},
	{name: "merge of inner nodes", before: "a b c d e f g h i j k l m n o p q r -q -p -o -m -n", clients: []string{"delete r", "get r, put r R, get a"}},
}

// tears are programs in which READs and WRITEs of nodes tear, too.
var tears = []program{
	{name: "append", before: "b d", clients: []string{"put c C", "get b, get c"}, tear: true},
	{name: "room made", before: "a -a b d", clients: []string{"put c C", "get b, get d"}, tear: true},
	{name: "split", before: "b d f", clients: []string{"put e E", "get f"}, tear: true},
	{name: "merge", before: "b d f h j -h", clients: []string{"delete j", "get j"}, tear: true},
	{name: "room made, crash", before: "a -a b d", clients: []string{"put c C", "get b"}, tear: true, crash: true},
}

// TestExplore: every order of operations.
func TestExplore(t *testing.T) { exploreAll(t, programs, 350) }

// TestExploreCrash: every order of operations, and a crash at every point of each.
func TestExploreCrash(t *testing.T) {
	for i := range crashes {
		crashes[i].crash = true
	}
	exploreAll(t, crashes, 150)
}

// TestExploreTorn: every order of the parts of operations.
func TestExploreTorn(t *testing.T) { exploreAll(t, tears, 150) }

// thorough lifts the bounds of exploration: all schedules take minutes.
var thorough = flag.Bool("thorough", false, "explore all schedules")

func exploreAll(t *testing.T, list []program, states int) {
	if testing.Short() {
		states = 60
	}
	if *thorough {
		states = 0
	}
	for _, p := range list {
		t.Run(p.name, func(t *testing.T) {
			r := exploreProgram(t, p, bounded(states, p.states), 5*time.Minute)
			if r.Failure != nil {
				t.Fatal(r)
			}
			t.Log(r)
		})
	}
}

// bounded returns the bound of a program: 0 is none.
func bounded(all, own int) int {
	if all == 0 {
		return 0
	}
	return max(all, own)
}
