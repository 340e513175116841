package oracle

import (
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Kind is what an [Event] reports.
type Kind uint8

// What clients report, and what becomes of compute nodes.
const (
	Requested Kind = iota // the client calls Acquire
	Granted               // Acquire returned: it holds
	Refused               // Acquire returned an error: it does not hold
	Releasing             // the client calls Release: it does not hold from now on
	Released              // Release returned
	Killed                // Client.CN() was killed
	Fenced                // Client.CN() was fenced: no operation of it reaches memory any more
	Restarted             // the memory node of Lock has restarted: no client holds a lock there
	Lost                  // the memory node of Lock has come back without its memory: what was there is gone
	Joined                // Client.CN() is a new compute node, perhaps with the number of one that was fenced
	Upgrading             // the client, a holder for update, calls Upgrade
	Upgraded              // Upgrade returned: it holds exclusively
	Kept                  // Upgrade returned an error: it holds for update
	numKinds
)

var kindNames = [numKinds]string{"requests", "holds", "refused", "releases", "released", "killed", "fenced", "restarted", "lost its memory", "joined", "upgrades", "upgraded", "keeps"}

func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// An Event is what a client reports of itself, or what became of a compute node.
type Event struct {
	Time fabric.Time
	Kind Kind
	// Client is the client's ID when it requested: it is that of the queue
	// entry, and names the wait in all events of it.
	Client fabric.ClientID
	Lock   fabric.Addr
	Mode   lock.Mode
	Token  lock.Token // Granted
	// Value is the number that the lock's cell holds, as read under the lock
	// (Granted) or as written with the release (Releasing).
	Value uint64
	// Writes tells that Value is written (Releasing).
	Writes bool
	// Torn tells that the words of the cell were not all the same (Granted).
	Torn bool
	Err  error // Refused, Released, Kept; Releasing: what is written may not be acknowledged
}

func (e *Event) String() string {
	switch e.Kind {
	case Killed, Fenced, Joined:
		return fmt.Sprintf("%d %v %v", e.Time, e.Client.CN(), e.Kind)
	case Restarted, Lost:
		return fmt.Sprintf("%d %v %v", e.Time, e.Lock.MN(), e.Kind)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %v %v %v %v", e.Time, e.Client, e.Kind, e.Lock, e.Mode)
	switch e.Kind {
	case Granted:
		fmt.Fprintf(&b, " token=%#x value=%d", uint64(e.Token), e.Value)
		if e.Torn {
			b.WriteString(" torn")
		}
	case Releasing:
		if e.Writes {
			fmt.Fprintf(&b, " value=%d", e.Value)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, " error=%v", e.Err)
	}
	return b.String()
}

// An Effect is an atomic operation (FAA or CAS) on the header word of a lock, at
// the instant at which memory changed.
type Effect struct {
	Time     fabric.Time
	Client   fabric.ClientID // the client that posted it
	Lock     fabric.Addr
	Old, New uint64
}

// A Violation is what a judge objects to.
type Violation struct {
	Judge string // its name
	Time  fabric.Time
	What  string
}

func (v Violation) String() string { return fmt.Sprintf("%s at %d ns: %s", v.Judge, v.Time, v.What) }

// A Judge follows a history. Its methods return what is wrong, or "".
type Judge interface {
	// Name is the name of the judge in violations and tables.
	Name() string
	Event(e *Event) string
	Effect(x *Effect) string
	// End is called when nothing more can happen.
	End() []string
}

// neutral is a judge of a name to whom nothing matters: for embedding.
type neutral struct{ name string }

func (n neutral) Name() string        { return n.name }
func (neutral) Event(*Event) string   { return "" }
func (neutral) Effect(*Effect) string { return "" }
func (neutral) End() []string         { return nil }

// MaxViolations bounds what a Court writes down.
const MaxViolations = 20

// A Court passes a history to its judges and writes down what they object to.
// What clients of a fenced compute node believe counts for nothing: memory has refused it since. Once another has joined
// with its number, its clients must not report any more.
type Court struct {
	judges     []Judge
	fenced     fabric.CNSet
	violations []Violation
	last       fabric.Time
}

// NewCourt returns a court of judges.
func NewCourt(judges ...Judge) *Court { return &Court{judges: judges} }

// Event takes the next event of the history.
func (c *Court) Event(e *Event) {
	c.last = e.Time
	if e.Kind == Joined {
		c.fenced.Remove(e.Client.CN())
		return
	}
	if c.fenced.Has(e.Client.CN()) {
		return
	}
	if e.Kind == Fenced {
		c.fenced.Add(e.Client.CN())
	}
	for _, j := range c.judges {
		c.note(j, j.Event(e))
	}
}

// Effect takes the next effect of the history.
func (c *Court) Effect(x *Effect) {
	c.last = x.Time
	for _, j := range c.judges {
		c.note(j, j.Effect(x))
	}
}

// End ends the history.
func (c *Court) End() {
	for _, j := range c.judges {
		for _, what := range j.End() {
			c.note(j, what)
		}
	}
}

func (c *Court) note(j Judge, what string) {
	if what != "" {
		c.Object(j.Name(), what)
	}
}

// Now tells the court the time, for what a judge of another kind objects to.
func (c *Court) Now(t fabric.Time) { c.last = max(c.last, t) }

// Object writes down what a judge of another kind objects to.
func (c *Court) Object(judge, what string) {
	if len(c.violations) < MaxViolations {
		c.violations = append(c.violations, Violation{judge, c.last, what})
	}
}

// State returns a text of all that the judges will judge by, without times: of
// two histories with the same state, what follows is judged alike. Only judges of one
// moment have such a state: others are left out, and must not be in a court that explores.
func (c *Court) State() string {
	var b strings.Builder
	for _, j := range c.judges {
		if s, ok := j.(interface{ state(b *strings.Builder) }); ok {
			s.state(&b)
		}
	}
	return b.String()
}

// Violations returns what was written down, in order.
func (c *Court) Violations() []Violation { return c.violations }
