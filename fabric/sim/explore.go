package sim

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/declock/declock/fabric"
)

// Errors of exploration.
var (
	// ErrLivelock: a schedule went on for ExploreConfig.MaxSteps events.
	ErrLivelock = errors.New("sim: no end in sight")
	// ErrSchedule: a schedule does not fit the program that is to replay it.
	ErrSchedule = errors.New("sim: schedule does not fit")
)

// ExploreConfig says what Explore does. The zero value explores every order
// of events without timeouts, faults or clocks that tick.
type ExploreConfig struct {
	// Sim configures the cluster. Latencies play no part. Tear.Prob above 0 means
	// that every READ and WRITE of more than one piece (of Tear.Grain) takes effect
	// piece by piece, in every order (larger ones: in four parts). Late
	// operations of a killed node (unless LateDrop) may take effect until it is fenced.
	Sim Config

	// Bounds; 0 is none, except MaxSteps (20,000) and MaxDepth (100,000).
	MaxSchedules int           // executions, pruned ones included
	MaxStates    int           // states kept, 16 bytes and a bit each
	MaxWall      time.Duration // of real time
	MaxDepth     int           // choices in one schedule
	MaxSteps     int           // events in one schedule; more is ErrLivelock
	// MaxSwitches bounds preemptions: choices of another actor's event while the
	// last actor has one. 0 is none.
	MaxSwitches int

	// Actions is how many of the actions given to Cluster.Sometime may happen
	// in one schedule.
	Actions int
	// Early is how many deadlines may pass in one schedule while something else could
	// happen: the clock of that compute node is put on. Otherwise, a deadline passes only when nothing else can,
	// and all clocks go on.
	Early int
	// NoDeadlines: deadlines of Recv never pass; who waits for what never
	// comes is a deadlock then.
	NoDeadlines bool
	// Ticks is how often in one schedule a compute node's clock may tick, by Tick (0
	// means 1 us), when a client of it goes on. Clocks stand still otherwise, so all
	// timestamps are equal; with n ticks there are up to n+1 different ones, in
	// any order between nodes (clocks differ).
	Ticks int
	Tick  fabric.Time

	// News: each node hears of a change of the membership at a point of its own. Otherwise all hear of it at once.
	News bool

	// FairPolls treats loops that poll as what they mean: "wait until it
	// changes". A chain that was just executed, from the same call stack, by the same
	// client, changed nothing, and would return the same again, waits until
	// it would not, or until nothing else can happen; and the state after such a
	// repetition counts as the state after the first. Sound if such loops are memoryless: what
	// the client does next depends on the last answer (and the time), not on how
	// often it asked. Loops that give up after many rounds are found to do so
	// when nothing else can happen. Without FairPolls such loops make
	// exploration endless.
	FairPolls bool

	// Private: the clients of a compute node share no memory that matters, except with the node's agent. (Lockers
	// of the flat policy are such.) States then need not say in which order they went on.
	Private bool

	// Sleep: schedules are not executed that differ from one that is in the order of things that have nothing to do with
	// each other. (States that are equal anyway are not even reached by all ways that lead to them; there are no fewer states.) Sound if the
	// clients of different nodes tell each other nothing but through the fabric, and oracles that take note of what several clients do
	// say so (Cluster.Witness). Not used together with MaxSwitches, or Walks.
	Sleep bool

	// For tests of exploration itself: no merging of equal states; no client goes on at
	// once; each is a choice of its own.
	NoStates bool
	NoEager  bool

	// Audit, for tests: states are told apart by all that clients were ever told, and exploration looks whether Cluster.Forget and
	// Cluster.NodeState are right.
	Audit bool

	// Walks, if not 0, is the number of random schedules (by Sim.Seed) that
	// are run instead of all.
	Walks int
	// NoShrink leaves the failing schedule as it was found.
	NoShrink bool
}

func (cfg ExploreConfig) withDefaults() ExploreConfig {
	if cfg.MaxSteps == 0 {
		cfg.MaxSteps = 20_000
	}
	if cfg.MaxDepth == 0 {
		cfg.MaxDepth = 100_000
	}
	if cfg.Tick == 0 {
		cfg.Tick = fabric.Microsecond
	}
	return cfg
}

// A Report says what was explored.
type Report struct {
	Schedules int      // executions to their end
	Pruned    int      // executions that came to a state known before
	Foreseen  int      // executions that were left out because they would have
	States    int      // different states in which there was a choice
	Ends      []uint64 // hashes of the different states at the end, in order
	Steps     uint64
	MaxDepth  int // most choices in one schedule
	MaxSteps  int // most events in one schedule
	// Exhaustive: every schedule was executed, or is equal to one that was.
	Exhaustive bool
	// Bound says what ended or limited the exploration otherwise.
	Bound string
	// Shared are the compute nodes of which several clients were active.
	Shared []fabric.CNID
	Wall   time.Duration
	// Audit says what is wrong with Cluster.Forget or Cluster.NodeState, if ExploreConfig.Audit has found that.
	Audit   string
	Failure *Failure // the first, nil: none
}

// A Failure is a schedule that fails: a client panics, clients wait for ever
// (*DeadlockError), the schedule has no end (ErrLivelock), a check fails.
type Failure struct {
	Err      error    // of Schedule
	Schedule Schedule // shrunk
	Found    Schedule // as it was found
	Trace    []string // what happens in Schedule
}

func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d schedules, %d pruned, %d foreseen, %d states, %d final, %d choices and %d events at most, %.2f s: ",
		r.Schedules, r.Pruned, r.Foreseen, r.States, len(r.Ends), r.MaxDepth, r.MaxSteps, r.Wall.Seconds())
	switch {
	case r.Failure != nil:
		fmt.Fprintf(&b, "FAILED\n%v", r.Failure)
	case r.Exhaustive:
		b.WriteString("exhaustive")
	default:
		fmt.Fprintf(&b, "not exhaustive (%s)", r.Bound)
	}
	return b.String()
}

// maxTraced bounds the lines of a trace in a Failure's text; the middle is left out.
const maxTraced = 200

func (f *Failure) String() string {
	lines := f.Trace
	if n := len(lines); n > maxTraced {
		lines = append(append(append([]string(nil), lines[:maxTraced/2]...),
			fmt.Sprintf("... %d more ...", n-maxTraced)), lines[n-maxTraced/2:]...)
	}
	return fmt.Sprintf("schedule %v (found as %v)\n%s\n%v", f.Schedule, f.Found, strings.Join(lines, "\n"), f.Err)
}

// Explore executes the program that build makes under every schedule: every
// order in which the events of its clients can happen, by depth-first search
// with re-execution, up to orders that make no difference. build is called for each execution
// with an empty cluster: it adds nodes, starts clients, and registers checks
// (Cluster.AtEnd, Watch, HashWith, SetObserver). It must do the same each time.
//
// The events are: the effect of the next operation of a chain (per client and memory node in
// order), the delivery of the next message between two clients, a client's going on when what it
// waits for has come, the passing of a deadline, the fencing of a killed node, and actions
// (Cluster.Sometime). A run ends when nothing more can happen.
//
// # Which schedules are not executed
//
// A client is a function of what it has been told: results, messages, errors,
// times, views. Clients of one compute node share its memory, so a node is a function of
// what its clients were told, in that order. Hence a state is: the memory nodes; what
// each compute node has been told; chains, messages and inboxes; clocks; and what the
// caller's oracles remember (HashWith). Where it is known what a node's clients share (NodeState), it is a function
// of that, and each of them of what it was told and of what it found there. A state met again is not explored again (64-bit hashes
// are compared: of a million states, two are taken for one with a chance of 3 in 100 million).
// Clients of different nodes must not communicate but through the fabric.
//
// What happens on a compute node goes by that node's part of the state, by what everybody goes by, and by the words of memory that it is
// about; and it changes nothing else. So what it led to once, it leads to again; where that is a state that need not be explored, it is not executed.
//
// A client goes on at once, without a choice, when it is the only one of its node
// that ever does something (the agent's start does not count) and no action
// or fence that concerns the node is outstanding: nobody else then sees when it does, for what it posts and sends
// takes effect by events of its own. Which nodes are so is assumed, and when another client of
// such a node becomes active exploration starts anew without the assumption. (If
// there is a schedule in which it becomes active, up to that moment it is
// equal to one that was executed, which has the same message on its way.)
//
// A message is delivered when its receiver waits for one, and the receiver goes on with it at once: nobody but the receiver
// can tell since when it was in the inbox. That is not so for messages of a node that may be fenced meanwhile, for those
// to somebody who is interrupted, and as long as clocks may tick.
//
// With ExploreConfig.Sleep, what has nothing to do with each other is tried in one order only, where states would show
// the other order to be equal, too, but only after it has been executed: sleep sets, and what sleeps is kept with each state. What something has
// to do with (words of memory, Ports, memory that clients of a node share, oracles) is noted while it happens.
//
// An execution begins like the one before it: that part is repeated without a look at what else could happen, and without hashes.
func Explore(cfg ExploreConfig, build func(*Cluster)) Report {
	s := newSearch(cfg, build)
	defer s.pool.close()
	s.explore()
	return s.report
}

// An Outcome is what a replayed schedule led to.
type Outcome struct {
	Err   error // nil: no failure
	Trace []string
	Final uint64 // hash of the state at the end
}

// Replay executes one schedule that Explore has reported for the same
// configuration and program. An Observer (ExploreConfig.Sim, Cluster.SetObserver) sees its history.
func Replay(cfg ExploreConfig, schedule Schedule, build func(*Cluster)) Outcome {
	s := newSearch(cfg, build)
	defer s.pool.close()
	return s.replay(schedule)
}

// Sometime gives exploration an action that may happen once, at any point, or
// never: a crash, an interrupt. ExploreConfig.Actions bounds how many happen in one schedule. n is the
// only compute node whose clients can see the difference, as with Port.Interrupt of one of them; nil: all, as
// with Kill (its fence changes views, and what Send returns), which makes many more schedules.
// Outside of exploration nothing happens.
func (c *Cluster) Sometime(name string, n *Node, f func()) {
	if c.ex != nil {
		c.ex.actions = append(c.ex.actions, action{name: name, node: n, f: f})
	}
}

// SometimeKill is Sometime of Kill, with fewer schedules and states. f (nil: nothing) is called with it. What a node's
// clients do between two operations is not cut off from what they do before: who dies before it is, to all others, like who dies after
// it with nothing of what it posted and sent arriving. What clients of the dead were told is forgotten: see Forget.
func (c *Cluster) SometimeKill(n *Node, f func()) {
	if c.ex == nil {
		return
	}
	c.ex.actions = append(c.ex.actions, action{name: "kill " + n.String(), node: n, kills: true, f: func() {
		if f != nil {
			f()
		}
		c.Kill(n)
		n.gone = true
		c.ex.killed(n)
	}})
}

// SometimeInterrupt is Sometime of Port.Interrupt, with fewer schedules: while the client waits in Recv or Pause. An
// interrupt of before is not noticed before that.
func (c *Cluster) SometimeInterrupt(p fabric.Port) {
	if c.ex != nil {
		port := p.(*Port)
		c.ex.actions = append(c.ex.actions, action{name: "interrupt " + port.id.String(), node: port.node, port: port, f: port.Interrupt})
	}
}

// InOrder says that clients differ in nothing but their names: what one does in a schedule the other does in
// another that must be as good or bad. Exploration then tries only schedules in which they begin, and have their
// first effect on memory, in the order given; of n such clients, one in n! schedules. They must all be of different
// nodes (which differ in nothing else either), or all of one.
func (c *Cluster) InOrder(tasks ...*Task) {
	for i, t := range tasks[1:] {
		t.after = tasks[i]
	}
}

// waits tells whether another client has to make the first step before this one, by InOrder.
func (t *Task) waits(made func(*Task) bool) bool {
	return t.after != nil && !made(t) && !made(t.after) && !t.after.killed && !t.after.done
}

// AtEnd registers a check of the state in which nothing more happens. In exploration it
// is called at the end of each schedule; otherwise the caller does so by RunChecks.
func (c *Cluster) AtEnd(check func() error) { c.atEnd = append(c.atEnd, check) }

// RunChecks calls the checks of AtEnd and returns the first error.
func (c *Cluster) RunChecks() error {
	for _, f := range c.atEnd {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// Watch registers an invariant, checked after each event of exploration (a
// client that goes on at once does so in an event of its own).
func (c *Cluster) Watch(check func() error) { c.watch = append(c.watch, check) }

// HashWith registers a hash of what an oracle remembers. Exploration takes
// two states for equal only if these hashes are equal too.
func (c *Cluster) HashWith(hash func() uint64) { c.hashers = append(c.hashers, hash) }

// NodeState says what clients of a node share: shares appends all of it that tells two states apart, and agent what the node's agent
// remembers beside it while it waits for a message. Exploration then takes two states for one whatever the order was in which the
// clients went on, if each was told the same and found the same state each time. Otherwise that order is all that is known.
func (c *Cluster) NodeState(n *Node, shares, agent func(dst []byte) []byte) {
	n.shares, n.keeps, n.ran = shares, agent, true
}

// Forget is for the client that runs: it says that all that it will do from now on follows
// from v, from its node's state that HashWith covers, and from what it will be told. What it has been told so far then
// makes no difference between states (unless others of its node, with which it shares
// memory, remember). A client that does the same work again and again calls it
// between two pieces of work. Agents that wait for a message count as remembering nothing but what HashWith or NodeState covers. Checks at the end may
// depend on forgotten things only by way of HashWith.
func (c *Cluster) Forget(v uint64) {
	if c.ex != nil && c.cur != nil {
		c.cur.forget(v)
	}
}

// Witness is for an oracle that takes note of what clients of several nodes do: it is called whenever it does so, by what it may
// judge by. See ExploreConfig.Sleep.
func (c *Cluster) Witness() {
	if c.ex != nil {
		c.ex.print.witnessed = true
	}
}

// SetObserver replaces Config.Observer: an oracle of this very run.
func (c *Cluster) SetObserver(o Observer) { c.cfg.Observer = o }

// Fail ends the run with an error, unless it has failed already: for oracles. It may be
// called anywhere, also by an Observer.
func (c *Cluster) Fail(err error) { c.fail(err) }

// Exploring tells whether the cluster is one of Explore or Replay.
func (c *Cluster) Exploring() bool { return c.ex != nil }
