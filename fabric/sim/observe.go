package sim

import (
	"fmt"
	"math/bits"

	"github.com/declock/declock/fabric"
)

// An Observer sees the history of a run. It must not use the cluster's Ports.
type Observer interface {
	// Observe is called at each event, in order. e belongs to the cluster.
	Observe(e *Event)
}

// Step is what happened in an [Event].
type Step uint8

// The steps of a history.
const (
	StepPost     Step = iota // a client posted Op (each of a chain)
	StepEffect               // Op took effect, whole
	StepPart                 // a part of Op, which tears, took effect
	StepComplete             // a client saw the completion of a chain; Err says how
	StepSend                 // a client sent Msg to To
	StepDeliver              // Msg reached the inbox of To
	StepDrop                 // Msg to To was dropped: no such client, or fenced sender
	StepKill                 // compute node Client.CN() was killed
	StepPause                // ... was paused
	StepResume               // ... was resumed
	StepFence                // ... was fenced: all memory nodes refuse it
	StepRestart              // memory node Mem came back, in a new epoch
	StepNews                 // compute node Client.CN(), or if that is 0 memory node Mem, acts on a new state of the membership
	StepAbandon              // a client left its inbox to its agent, and is To from now on; not in the hash
	StepServe                // memory-node number Mem is served in another epoch: New is its term, Old the one before. Nobody acts in the epoch before any more
	numSteps
)

var stepNames = [numSteps]string{"post", "effect", "part", "complete", "send",
	"deliver", "drop", "kill", "pause", "resume", "fence", "restart", "news", "abandon", "serve"}

func (s Step) String() string { return nameOf(stepNames[:], s) }

// nameOf returns the name of a value.
func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%T(%d)", v, uint8(v))
}

// An Event is one step of a history.
type Event struct {
	Time   fabric.Time // virtual, not of any node's clock
	Step   Step
	Client fabric.ClientID // the one that posted or sent
	Mem    fabric.MemID    // StepRestart, StepServe; StepEffect: the memory node that has executed Op
	Chain  fabric.Pending
	Index  int        // of Op in its chain
	Op     *fabric.Op // with its results, from StepEffect on
	// Old and New are the word at Op.Addr before and after, for operations on a word.
	Old, New uint64
	To       fabric.ClientID
	Msg      *fabric.Message
	Err      error
}

func (e *Event) String() string {
	switch {
	case e.Step == StepServe:
		return fmt.Sprintf("%d %v %v: term %d", e.Time, e.Mem, e.Step, e.New)
	case e.Step == StepRestart, e.Step == StepNews && e.Client.CN() == 0:
		return fmt.Sprintf("%d %v %v", e.Time, e.Mem, e.Step)
	case e.Step == StepEffect && e.Op.Size() == 8:
		return fmt.Sprintf("%d %v %v %v: %#x -> %#x", e.Time, e.Client, e.Step, *e.Op, e.Old, e.New)
	case e.Op != nil:
		return fmt.Sprintf("%d %v %v %v", e.Time, e.Client, e.Step, *e.Op)
	case e.Msg != nil:
		return fmt.Sprintf("%d %v %v to %v: %#x %x", e.Time, e.Client, e.Step, e.To, uint32(e.Msg.Kind), e.Msg.Body)
	case e.Err != nil:
		return fmt.Sprintf("%d %v %v: %v", e.Time, e.Client, e.Step, e.Err)
	}
	return fmt.Sprintf("%d %v %v", e.Time, e.Client, e.Step)
}

// note adds a step to the history hash.
func (c *Cluster) note(s Step, who fabric.ClientID, x, y uint64) {
	h := bits.RotateLeft64(c.hash^uint64(c.now), 23) * 0x9fb21c651e98df25
	h ^= uint64(s)<<56 ^ uint64(who)<<32 ^ x
	h = bits.RotateLeft64(h*0xd6e8feb86659fd93, 31) ^ y
	c.hash = h * 0xa0761d6478bd642f
}

// Hash returns a hash of the history so far. Two runs with the same seed,
// configuration and program have the same.
func (c *Cluster) Hash() uint64 { return Mix(c.hash ^ uint64(c.now)) }

// observe hands an event to the Observer, if there is one.
func (c *Cluster) observe(e Event) {
	if c.cfg.Observer != nil {
		c.event = e
		c.event.Time = c.now
		c.cfg.Observer.Observe(&c.event)
	}
}

// observeOp is observe for a step of operation i of a chain.
func (c *Cluster) observeOp(s Step, ch *Chain, i int, op *fabric.Op, old, new uint64) {
	if c.cfg.Observer != nil { // an Event takes time to make
		c.observe(Event{Step: s, Client: ch.port.id, Mem: ch.qp.mn.id, Chain: ch.pending(), Index: i, Op: op, Old: old, New: new})
	}
}

// observeMessage is observe for a step of a message.
func (c *Cluster) observeMessage(s Step, f *flight) {
	if c.cfg.Observer != nil {
		c.observe(Event{Step: s, Client: f.msg.From, To: f.to, Msg: &f.msg})
	}
}

// observeNode notes a step of a compute node.
func (c *Cluster) observeNode(s Step, n *Node) {
	c.note(s, fabric.AgentOf(n.id), 0, 0)
	c.faultStats.node(s)
	c.observe(Event{Step: s, Client: fabric.AgentOf(n.id)})
}

// SetObserver replaces Config.Observer: an oracle of this very run.
func (c *Cluster) SetObserver(o Observer) { c.cfg.Observer = o }

// Fail ends the run with an error, unless it has failed already: for oracles. It may be
// called anywhere, also by an Observer.
func (c *Cluster) Fail(err error) {
	if c.err == nil {
		c.err = err
	}
}
