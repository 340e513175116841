package explore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// Errors of exploration.
var (
	// ErrLivelock: a schedule went on for Config.MaxSteps events.
	ErrLivelock = errors.New("explore: no end in sight")
	// ErrSchedule: a schedule does not fit the program that is to replay it.
	ErrSchedule = errors.New("explore: schedule does not fit")
)

// Config says what Explore does. The zero value explores every order
// of events without timeouts, faults or clocks that tick.
type Config struct {
	// Sim configures the cluster. Latencies play no part. Tear.Prob above 0 means
	// that every READ and WRITE of more than one piece (of Tear.Grain) takes effect
	// piece by piece, in every order (larger ones: in four parts). Late
	// operations of a killed node (unless LateDrop) may take effect until it is fenced.
	Sim sim.Config

	// Bounds; 0 is none, except MaxSteps (20,000).
	MaxSchedules int           // executions, pruned ones included
	MaxStates    int           // states kept, 16 bytes and a bit each
	MaxWall      time.Duration // of real time
	MaxSteps     int           // events in one schedule; more is ErrLivelock
	// MaxSwitches bounds preemptions: choices of another actor's event while the
	// last actor has one. 0 is none.
	MaxSwitches int

	// Actions is how many of the actions given to Cluster.Sometime may happen
	// in one schedule.
	Actions int
	// NoDeadlines: deadlines of Recv never pass; a client that waits for what never comes is a deadlock then. Otherwise a deadline
	// passes when nothing else can happen, and all clocks go on.
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
	// say so (Cluster.Witness). Not used together with MaxSwitches.
	Sleep bool

	// For tests of exploration itself: no merging of equal states; no client goes on at
	// once; each is a choice of its own.
	NoStates bool
	NoEager  bool

	// Audit, for tests: states are told apart by all that clients were ever told, and exploration looks whether Cluster.Forget and
	// Cluster.NodeState are right.
	Audit bool
}

func (cfg Config) withDefaults() Config {
	if cfg.MaxSteps == 0 {
		cfg.MaxSteps = 20_000
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
	// Audit says what is wrong with Cluster.Forget or Cluster.NodeState, if Config.Audit has found that.
	Audit   string
	Failure *Failure // the first, nil: none
}

// A Failure is a schedule that fails: a client panics, clients wait for ever
// (*sim.DeadlockError), the schedule has no end (ErrLivelock), a check fails.
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

func (f *Failure) String() string {
	return fmt.Sprintf("schedule %v (found as %v)\n%s\n%v", f.Schedule, f.Found, strings.Join(Fold(f.Trace), "\n"), f.Err)
}

// Explore executes the program that build makes under every schedule, up to orders that make no difference. build is called for each execution
// with an empty cluster: it adds nodes, starts clients, and registers checks
// (Cluster.AtEnd, HashWith, SetObserver). It must do the same each time.
func Explore(cfg Config, build func(*Cluster)) Report {
	s := newSearch(cfg, build)
	defer s.pool.Close()
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
// configuration and program. An Observer (Config.Sim, Cluster.SetObserver) sees its history.
func Replay(cfg Config, schedule Schedule, build func(*Cluster)) Outcome {
	s := newSearch(cfg, build)
	defer s.pool.Close()
	return s.replay(schedule)
}
