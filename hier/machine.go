package hier

import (
	"fmt"
	"slices"
)

// A state is where a local lock is between its first client and its last. The list in doc.go has the transitions with their guards
// and what they do; transitions has all that are legal.
type state uint8

const (
	// idle: not in the table.
	idle state = iota
	// acquiring: the owner is acquiring the remote lock (the paper's "pending").
	acquiring
	// waiting: the owner is in the remote queue, and waits for the grant.
	waiting
	// early: as waiting, and the agent has got the grant: the owner is giving up.
	early
	// abandoned: the owner gave up, and its ticket is in the remote queue: the agent takes the grant.
	abandoned
	// held: the remote lock is held by this node.
	held
	// releasing: the last holder is giving the remote lock up. No client may
	// acquire it again before that is done, or the node would have two entries.
	releasing
	// parked: the owner waits for the end of a reset, and is no participant.
	parked
	// lost: out of the table, for its memory node has restarted; only its holders know it still.
	lost
	numStates
)

var stateNames = [numStates]string{"idle", "acquiring", "waiting", "early", "abandoned", "held", "releasing", "parked", "lost"}

func (s state) String() string { return stateNames[s] }

// queued reports whether the node has a ticket in the remote queue that waits for its grant.
func (s state) queued() bool { return s == waiting || s == early || s == abandoned }

// An event is what takes a local lock from one state to another.
type event uint8

// With these events a node has done what a reset waits for: it is no participant any more, or a later one.
const (
	evEnqueue  event = iota // the header counts the owner, and its entry is in the queue
	evAbort                 // a reset refuses the owner
	evChoose                // the node's next waiter becomes the owner
	evForget                // no client of the node wants the lock
	evSetAside              // others get a lock that was lost, before its holders release it
	// With these it is a participant as before.
	evBegin    // a client wants the lock, the first of the node
	evFreeze   // a reset waits for the node
	evGrant    // the node holds the remote lock
	evArrive   // the grant has come to the agent
	evQuit     // the owner gives up: its ticket stays
	evFail     // the owner gives up: its ticket is void, or given to a reset
	evTakeOver // a client takes over a ticket that a restart has made void
	evResume   // the reset is over
	evShare    // another client becomes a holder, beside those there are
	evHandOver // the last holder passes the lock to a waiter of the node
	evUnshare  // a holder releases, and others hold
	evRelease  // the last holder gives the remote lock up
	numEvents
)

var eventNames = [numEvents]string{"enqueue", "abort", "choose", "forget", "set aside", "begin", "freeze", "grant", "arrive", "quit", "fail",
	"take over", "resume", "share", "hand over", "unshare", "release"}

func (e event) String() string { return eventNames[e] }

// thaws reports whether an event ends what a reset waits for.
func (e event) thaws() bool { return e < evBegin }

// A Transition is a step of a local lock's state machine.
type Transition struct {
	from  state
	event event
	to    state
}

func (t Transition) String() string { return fmt.Sprintf("%v --%v--> %v", t.from, t.event, t.to) }

// transitions are all that are legal. A local lock can be frozen in the states that have evFreeze, and in no other.
var transitions = []Transition{
	{idle, evBegin, acquiring},

	{acquiring, evGrant, held},
	{acquiring, evEnqueue, waiting},
	{acquiring, evAbort, parked},
	{acquiring, evChoose, acquiring},
	{acquiring, evForget, idle},
	{acquiring, evFreeze, acquiring},

	{waiting, evGrant, held},
	{waiting, evAbort, parked},
	{waiting, evFail, acquiring},
	{waiting, evQuit, abandoned},
	{waiting, evArrive, early},
	{waiting, evFreeze, waiting},

	{early, evQuit, abandoned},
	{early, evFail, acquiring},
	{early, evArrive, early},
	{early, evFreeze, early},

	{abandoned, evGrant, held},
	{abandoned, evTakeOver, acquiring},
	{abandoned, evChoose, acquiring},
	{abandoned, evForget, idle},

	{held, evShare, held},
	{held, evHandOver, held},
	{held, evUnshare, held},
	{held, evRelease, releasing},
	{held, evChoose, acquiring},
	{held, evForget, idle},
	{held, evSetAside, lost},
	{held, evFreeze, held},

	{releasing, evChoose, acquiring},
	{releasing, evForget, idle},
	{releasing, evFreeze, releasing},

	{parked, evResume, acquiring},
	{parked, evChoose, acquiring},
	{parked, evForget, idle},

	{lost, evUnshare, lost},
	{lost, evForget, idle},
}

// Transitions returns all legal transitions.
func Transitions() []Transition { return slices.Clone(transitions) }

// nextStates has transitions by state and event. Its sizes are powers of two, so that an index needs no check.
var nextStates = func() (next [16][32]state) {
	for s := range next {
		for e := range next[s] {
			next[s][e] = numStates
		}
	}
	for _, t := range transitions {
		next[t.from][t.event] = t.to
	}
	return next
}()

// step takes a local lock through an event, and reports whether a reset has waited for that: then the caller notifies the agent
// (cql.Client.Quiesced) when it has unlocked the shard. A step that is not in transitions, or keeps a lock frozen where it cannot be, would
// be two holders, or none, sooner or later: it panics. The shard is locked.
func (t *Table) step(x *local, e event) (thawed bool) {
	return !t.ordinary(x, e) && t.stepWith(x, e)
}

// ordinary takes a step that is legal, of a local lock that is not frozen and not observed; of others it reports false, and does
// nothing. It is compiled into its callers: those through which every acquisition of a free lock goes ask it before they call stepWith.
func (t *Table) ordinary(x *local, e event) bool {
	to := nextStates[x.state&15][e&31]
	if to == numStates || x.frozen || t.OnTransition != nil {
		return false
	}
	x.state = to
	return true
}

// stepWith is step for what is not ordinary: a local lock that is frozen, or observed, and a step that is not legal.
func (t *Table) stepWith(x *local, e event) (thawed bool) {
	to := nextStates[x.state][e]
	thawed = x.frozen && e.thaws()
	if to == numStates || x.frozen && !thawed && nextStates[to][evFreeze] == numStates {
		panic(fmt.Sprintf("hier: lock %v is %v (frozen: %v), and must not %v", x.ticket.Lock, x.state, x.frozen, e))
	}
	x.frozen = x.frozen && !thawed
	if t.OnTransition != nil {
		t.OnTransition(Transition{x.state, e, to})
	}
	x.state = to
	return thawed
}

// freeze makes a reset wait until the node has given up the lock or its acquisition. Tickets with an index of used or above are of after the reset.
// The shard is locked.
func (t *Table) freeze(x *local, used uint64) {
	t.step(x, evFreeze)
	x.frozen, x.used = true, used
}
