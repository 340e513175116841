package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
)

// kind is what a row shows, and so how it is drawn.
type kind uint8

const (
	kindNote      kind = iota // what a client reports
	kindPost                  // a client posts a chain
	kindRead                  // an operation takes effect
	kindWrite                 // ...
	kindAtomic                // ...
	kindAnswer                // a client sees the completion of a chain
	kindSend                  // a client sends a message
	kindMessage               // a message arrives
	kindFault                 // something goes wrong, or recovers
	kindObjection             // an oracle objects
	numKinds
)

var kindNames = [numKinds]string{"note", "post", "read", "write", "atomic", "answer", "send", "message", "fault", "objection"}

// A row is one line of the picture.
type row struct {
	at    fabric.Time
	kind  kind
	lane  *lane
	from  int    // the row at which its arrow begins; -1: it has none
	key   int    // rows of one chain or message have the same
	label string // at the head of the arrow
	text  string // beside the picture
	more  string // what is shown under the pointer, beside the text
	bad   bool   // it failed or was dropped
}

// A lane is the line of a client, an agent or a memory node.
type lane struct {
	name   string
	cn     fabric.CNID // 0: a memory node, or the network
	mn     fabric.MemID
	index  int // of a client on its compute node
	net    bool
	x      float64
	number int
}

// style says how a span is drawn.
type style uint8

const (
	spanWait      style = iota // a client waits for a lock
	spanShared                 // it holds the lock
	spanExclusive              // ...
	spanRelease                // its release is under way
	spanOperation              // it executes an operation of a store or tree
	spanDown                   // a node is dead or paused
	spanNetwork                // messages or operations are held up
	numStyles
)

var styleNames = [numStyles]string{"wait", "shared", "exclusive", "release", "operation", "down", "network"}

// A span is a bar along a lane, from one row to another.
type span struct {
	style    style
	lane     *lane
	cn       fabric.CNID // of spanDown: all lanes of the compute node
	from, to int         // to is -1 until it ends
	slot     int         // of spans beside each other
	label    string
	more     string
}

// A Trace is the history of a run, as it is drawn.
type Trace struct {
	Title string
	// Notes are lines above the picture: the command that repeats the run, what came of it.
	Notes []string
	// Began is what the picture calls time 0.
	Began fabric.Time
	// Untimed: times mean nothing, as in an exploration; rows are numbered.
	Untimed bool
	// Data: clients read and write a number under the locks, which reports have.
	Data  bool
	Words *Words

	now    func() fabric.Time
	rows   []row
	lanes  []*lane
	spans  []*span
	marks  []mark
	keys   int
	chains map[fabric.Pending]*chain

	clients map[fabric.ClientID]*lane
	inboxes map[fabric.ClientID]*lane // of clients that have given their inbox up
	flights map[flight][]int
	twice   map[flight]int
	open    map[*lane][]*span
	down    map[fabric.CNID]*span
}

// A chain is what is known of a chain that a client has posted.
type chain struct{ post, last, key int }

// A flight is a message under way.
type flight struct {
	from, to fabric.ClientID
	kind     fabric.MsgKind
	body     [7]uint64
}

// A mark is a row that is not an event: it goes in front of the first row that is later.
type mark struct {
	at   fabric.Time
	call func()
}

// New returns an empty trace. now returns the virtual time.
func New(now func() fabric.Time, words *Words) *Trace {
	return &Trace{
		Words: words, now: now,
		chains: map[fabric.Pending]*chain{}, clients: map[fabric.ClientID]*lane{}, inboxes: map[fabric.ClientID]*lane{},
		flights: map[flight][]int{}, twice: map[flight]int{}, open: map[*lane][]*span{}, down: map[fabric.CNID]*span{},
	}
}

// Len returns the number of rows.
func (t *Trace) Len() int { return len(t.rows) }

// add adds a row and returns its number.
func (t *Trace) add(r row) int {
	for len(t.marks) > 0 && t.marks[0].at <= r.at {
		m := t.marks[0]
		t.marks = t.marks[1:]
		m.call()
	}
	t.rows = append(t.rows, r)
	return len(t.rows) - 1
}

func (t *Trace) newKey() int {
	t.keys++
	return t.keys
}

// laneOf returns the lane of a client.
func (t *Trace) laneOf(id fabric.ClientID) *lane {
	l := t.clients[id]
	if l == nil {
		l = t.newLane(&lane{name: id.String(), cn: id.CN(), index: id.Index()})
		if id.IsAgent() {
			l.name = fmt.Sprintf("%v agent", id.CN())
		}
		t.clients[id] = l
	}
	return l
}

func (t *Trace) newLane(l *lane) *lane {
	t.lanes = append(t.lanes, l)
	return l
}

// memory returns the lane of a memory node.
func (t *Trace) memory(id fabric.MemID) *lane {
	return t.shared(lane{name: id.String(), mn: id})
}

// network returns the lane of what is wrong with the network.
func (t *Trace) network() *lane {
	return t.shared(lane{name: "network", net: true})
}

// shared returns a lane that is no client's, which is made when it is needed first.
func (t *Trace) shared(want lane) *lane {
	for _, l := range t.lanes {
		if l.cn == 0 && l.name == want.name {
			return l
		}
	}
	return t.newLane(&want)
}

// acts returns the lane of a client that does something itself.
func (t *Trace) acts(id fabric.ClientID) *lane {
	if t.inboxes[id] != nil { // another client has got the ID
		delete(t.inboxes, id)
		delete(t.clients, id)
	}
	return t.laneOf(id)
}

// Observe implements sim.Observer.
func (t *Trace) Observe(e *sim.Event) {
	switch e.Step {
	case sim.StepPost:
		t.post(e)
	case sim.StepEffect, sim.StepPart:
		t.effect(e)
	case sim.StepComplete:
		t.complete(e)
	case sim.StepSend:
		i := t.add(row{at: e.Time, kind: kindSend, lane: t.acts(e.Client), from: -1, key: t.newKey(),
			text: fmt.Sprintf("sends %s to %v", t.Words.Message(e.Msg), t.name(e.To)), more: e.String()})
		f := flightOf(e)
		t.flights[f] = append(t.flights[f], i)
	case sim.StepDeliver, sim.StepDrop:
		t.deliver(e)
	case sim.StepAbandon:
		l := t.laneOf(e.Client)
		t.clients[e.To] = l
		t.inboxes[e.Client] = t.laneOf(fabric.AgentOf(e.Client.CN()))
		t.add(row{at: e.Time, kind: kindNote, lane: l, from: -1, text: fmt.Sprintf("leaves the inbox of %v to the agent, and is %v from now on", e.Client, e.To)})
	default:
		t.fault(e)
	}
}

// name returns how a client is called.
func (t *Trace) name(id fabric.ClientID) string {
	if id.IsAgent() {
		return fmt.Sprintf("%v's agent", id.CN())
	}
	return id.String()
}

func flightOf(e *sim.Event) flight { return flight{e.Client, e.To, e.Msg.Kind, e.Msg.Body} }

func (t *Trace) post(e *sim.Event) {
	if e.Index > 0 {
		r := &t.rows[t.chains[e.Chain].post]
		r.text += ", " + opName(e.Op.Kind)
		r.more += "\n" + e.Op.String()
		return
	}
	c := &chain{key: t.newKey()}
	c.post = t.add(row{at: e.Time, kind: kindPost, lane: t.acts(e.Client), from: -1, key: c.key, text: "posts " + opName(e.Op.Kind),
		more: fmt.Sprintf("%v posts, at %d ns:\n%v", e.Client, e.Time, e.Op)})
	c.last = c.post
	t.chains[e.Chain] = c
}

// opName is the name of an operation, whether it is masked or not.
func opName(k fabric.OpKind) string {
	return strings.TrimPrefix(strings.TrimSuffix(k.String(), "16"), "MASKED_")
}

// effect adds an operation that takes effect, or a part of it.
func (t *Trace) effect(e *sim.Event) {
	r := row{at: e.Time, kind: kindRead, lane: t.memory(e.Mem), from: -1, label: opName(e.Op.Kind), more: e.String()}
	switch {
	case e.Op.Kind.IsAtomic():
		r.kind = kindAtomic
	case e.Op.Kind == fabric.OpWrite:
		r.kind = kindWrite
	}
	if failed(e) {
		r.label += " ✗"
	}
	if e.Step == sim.StepPart {
		r.label += " (part)"
		r.text = r.label
	} else {
		r.text = r.label + " " + t.Words.Effect(e)
	}
	c := t.chains[e.Chain]
	if c != nil {
		r.from, r.key = c.post, c.key
	} else {
		r.text += fmt.Sprintf(" (late, of %v)", e.Client)
	}
	i := t.add(r)
	if c != nil {
		c.last = i
	}
}

// failed reports whether an operation that took effect is a CAS that changed nothing.
func failed(e *sim.Event) bool {
	switch e.Op.Kind {
	case fabric.OpCAS:
		return e.Step == sim.StepEffect && e.Old != e.Op.Cmp
	case fabric.OpMaskedCAS, fabric.OpMaskedCAS16:
		w := e.Op.Wide
		return e.Step == sim.StepEffect && ((w.Old[0]^w.Cmp[0])&w.CmpMask[0] != 0 || e.Op.Kind == fabric.OpMaskedCAS16 && (w.Old[1]^w.Cmp[1])&w.CmpMask[1] != 0)
	}
	return false
}

func (t *Trace) complete(e *sim.Event) {
	c := t.chains[e.Chain]
	r := row{at: e.Time, kind: kindAnswer, lane: t.laneOf(e.Client), from: -1, text: "has the answer", more: e.String(), bad: e.Err != nil}
	if e.Err != nil {
		r.text = "gets an error: " + e.Err.Error()
	}
	if c != nil {
		r.key = c.key
		if c.last != c.post {
			r.from = c.last
		}
		delete(t.chains, e.Chain)
	}
	t.add(r)
}

func (t *Trace) deliver(e *sim.Event) {
	f := flightOf(e)
	l := t.inboxes[e.To]
	if l == nil {
		l = t.laneOf(e.To)
	}
	r := row{at: e.Time, kind: kindMessage, lane: l, from: -1, label: t.Words.name(e.Msg.Kind), more: e.String()}
	again := ""
	if list := t.flights[f]; len(list) > 0 {
		r.from = list[0]
		t.flights[f], t.twice[f] = list[1:], list[0]
	} else if i, ok := t.twice[f]; ok {
		r.from, again = i, " once more"
	}
	if r.from >= 0 {
		r.key = t.rows[r.from].key
	}
	if e.Step == sim.StepDrop {
		r.bad = true
		r.label += " ✗"
		r.text = fmt.Sprintf("%s is dropped%s", t.Words.name(e.Msg.Kind), again)
	} else {
		r.text = fmt.Sprintf("gets %s%s", t.Words.Message(e.Msg), again)
		if e.Client != 0 {
			r.text += fmt.Sprintf(" from %v", t.name(e.Client))
		}
	}
	t.add(r)
}

// fates are what becomes of a node.
var fates = map[sim.Step]string{
	sim.StepKill:    "crashes",
	sim.StepPause:   "is paused",
	sim.StepResume:  "goes on",
	sim.StepFence:   "is fenced: memory nodes refuse it",
	sim.StepNews:    "hears of a change of the membership",
	sim.StepRestart: "restarts, in a new epoch",
	sim.StepServe:   "is served in another epoch",
}

// fault adds what becomes of a node.
func (t *Trace) fault(e *sim.Event) {
	cn := e.Client.CN()
	r := row{at: e.Time, kind: kindFault, from: -1, more: e.String()}
	if e.Step == sim.StepNews {
		r.kind = kindNote
	}
	if e.Step == sim.StepRestart || cn == 0 {
		r.lane = t.memory(e.Mem)
		r.text = fmt.Sprintf("%v %s", e.Mem, fates[e.Step])
		if e.Step == sim.StepServe {
			r.text += fmt.Sprintf(", term %d", e.New)
		}
		t.add(r)
		return
	}
	r.lane = t.laneOf(fabric.AgentOf(cn))
	r.text = fmt.Sprintf("%v %s", cn, fates[e.Step])
	i := t.add(r)
	switch e.Step {
	case sim.StepKill, sim.StepPause:
		t.endDown(cn, i)
		t.down[cn] = t.newSpan(&span{style: spanDown, cn: cn, from: i, label: e.Step.String(), more: r.text})
		if e.Step == sim.StepKill {
			t.endSpans(cn, i)
		}
	case sim.StepResume:
		t.endDown(cn, i)
	}
}

// endDown ends the span of a node that is up again.
func (t *Trace) endDown(cn fabric.CNID, i int) {
	if s := t.down[cn]; s != nil {
		s.to = i
		delete(t.down, cn)
	}
}

// endSpans ends the spans of the clients of a node that crashes.
func (t *Trace) endSpans(cn fabric.CNID, i int) {
	for l, list := range t.open {
		if l.cn == cn {
			for _, s := range list {
				s.to = i
			}
			delete(t.open, l)
		}
	}
}

func (t *Trace) newSpan(s *span) *span {
	s.to = -1
	t.spans = append(t.spans, s)
	return s
}

// Report adds what a client reports of itself, or what became of a node. lock is what the lock is called.
func (t *Trace) Report(e *oracle.Event, lock string) {
	at := t.now()
	switch e.Kind {
	case oracle.Killed, oracle.Fenced, oracle.Restarted:
		return // the simulator's history has it
	case oracle.Lost:
		t.add(row{at: at, kind: kindFault, lane: t.memory(e.Lock.MN()), from: -1, text: fmt.Sprintf("%v has lost its memory", e.Lock.MN())})
		return
	case oracle.Joined:
		i := t.add(row{at: at, kind: kindFault, lane: t.laneOf(fabric.AgentOf(e.Client.CN())), from: -1, text: fmt.Sprintf("a new compute node joins as %v", e.Client.CN())})
		t.endDown(e.Client.CN(), i)
		return
	}
	text := fmt.Sprintf("%v %s %v", e.Kind, lock, e.Mode)
	if e.Kind == oracle.Granted {
		if t.Data {
			text += fmt.Sprintf(", reads %d", e.Value)
		}
		if e.Token != 0 {
			text += ", token " + t.Words.Token(e.Token)
		}
	}
	if e.Torn {
		text += ", torn"
	}
	if e.Kind == oracle.Releasing && e.Writes {
		text += fmt.Sprintf(", writes %d", e.Value)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	l := t.laneOf(e.Client)
	i := t.add(row{at: at, kind: kindNote, lane: l, from: -1, text: text, more: fmt.Sprintf("%v %s", l.name, text), bad: e.Err != nil})
	switch e.Kind {
	case oracle.Requested:
		t.begin(l, i, spanWait, lock, "waits for "+lock)
	case oracle.Granted:
		t.end(l, i, lock)
		t.begin(l, i, map[bool]style{true: spanExclusive, false: spanShared}[e.Mode.String() == "exclusive"], lock, text)
	case oracle.Upgrading, oracle.Kept: // it holds as before
	case oracle.Upgraded:
		t.end(l, i, lock)
		t.begin(l, i, spanExclusive, lock, text)
	case oracle.Releasing:
		t.end(l, i, lock)
		t.begin(l, i, spanRelease, lock, "releases "+lock)
	default:
		t.end(l, i, lock)
	}
}

// Begin adds that a client begins something: an operation of a store or tree.
func (t *Trace) Begin(id fabric.ClientID, what string) {
	l := t.laneOf(id)
	i := t.add(row{at: t.now(), kind: kindNote, lane: l, from: -1, text: "begins " + what})
	t.begin(l, i, spanOperation, "", what)
}

// End adds that a client has ended what it began last.
func (t *Trace) End(id fabric.ClientID, what string) {
	l := t.laneOf(id)
	i := t.add(row{at: t.now(), kind: kindNote, lane: l, from: -1, text: what})
	t.end(l, i, "")
}

func (t *Trace) begin(l *lane, i int, y style, label, more string) {
	t.open[l] = append(t.open[l], t.newSpan(&span{style: y, lane: l, from: i, label: label, more: more}))
}

// end ends the last span of a lane with a label.
func (t *Trace) end(l *lane, i int, label string) {
	list := t.open[l]
	for k, s := range slices.Backward(list) {
		if s.label == label && (label != "" || s.style == spanOperation) {
			s.to = i
			t.open[l] = slices.Delete(list, k, k+1)
			return
		}
	}
}

// Object adds an objection of an oracle.
func (t *Trace) Object(v oracle.Violation) {
	line, _, _ := strings.Cut(v.What, "\n")
	t.add(row{at: t.now(), kind: kindObjection, from: -1, text: fmt.Sprintf("the oracle %q objects: %s", v.Judge, line), more: v.String(), bad: true})
	t.Blame(v.What)
}

// Fail adds the failure of a run, unless an oracle has objected already.
func (t *Trace) Fail(err error) {
	if len(t.rows) > 0 && t.rows[len(t.rows)-1].kind == kindObjection {
		return
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	t.add(row{at: t.now(), kind: kindObjection, from: -1, text: "the run fails: " + line, more: err.Error(), bad: true})
}

// here marks the operation with which a history ceases to be linearizable.
const here = "   <-- here"

// Blame marks the row of the operation at which an objection to a history of operations points.
func (t *Trace) Blame(what string) {
	for line := range strings.Lines(what) {
		op, ok := strings.CutSuffix(strings.TrimRight(line, "\n"), here)
		if !ok {
			continue
		}
		if _, after, ok := strings.Cut(op, "] "); ok {
			op = after
		}
		for i := range t.rows {
			if r := &t.rows[i]; r.kind == kindNote && r.text == op {
				r.kind, r.bad, r.text = kindObjection, true, "HERE the history ceases to be linearizable: "+op
			}
		}
	}
}

// Sever adds that a link is cut from now on, for good.
func (t *Trace) Sever(from, to *sim.Node, both bool) {
	text := fmt.Sprintf("cut %v → %v", from, to)
	if both {
		text = fmt.Sprintf("cut %v ↔ %v", from, to)
	}
	s := &span{style: spanNetwork, label: text, lane: t.network()}
	s.from = t.add(row{at: t.now(), kind: kindFault, lane: s.lane, from: -1, text: text})
	t.newSpan(s)
}

// Plan adds the faults that are no events of a node: those of the network and of the coordinator, and memory nodes that are down.
func (t *Trace) Plan(p sim.Plan) {
	slot := 0
	for _, f := range p {
		text := f.Kind.String() + " " + f.Node.String()
		switch f.Kind {
		case sim.FaultKill, sim.FaultPause, sim.FaultFence, sim.FaultPromote, sim.FaultDrop:
			if f.Node.CN == 0 {
				t.marks = append(t.marks, mark{f.At, func() {
					t.add(row{at: f.At, kind: kindFault, lane: t.memory(f.Node.MN), from: -1, text: text, more: f.String()})
				}})
			}
			continue
		case sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate:
			text += " → " + f.Peer.String()
		}
		s := &span{style: spanNetwork, label: text, more: f.String(), slot: slot % 3}
		slot++
		t.marks = append(t.marks, mark{f.At, func() {
			s.lane = t.network()
			i := t.add(row{at: f.At, kind: kindFault, lane: s.lane, from: -1, text: text + " begins", more: f.String()})
			s.from = i
			t.newSpan(s)
		}}, mark{f.Until, func() {
			s.to = t.add(row{at: f.Until, kind: kindFault, lane: t.network(), from: -1, text: text + " ends", more: f.String()})
		}})
	}
	slices.SortStableFunc(t.marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
}
