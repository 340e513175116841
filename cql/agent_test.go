package cql

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// fakeParts is a node with participants as a test says.
type fakeParts struct {
	busy      int
	waiting   []Waiting
	readers   []Waiting
	abandoned []uint64
	freezes   int
}

func (f *fakeParts) Freeze(_ fabric.Addr, _ uint64, w []Waiting) (int, []Waiting) {
	f.freezes++
	busy, waiting := f.busy, f.waiting
	f.busy, f.waiting = 0, nil // frozen: not again
	return busy, append(w, waiting...)
}

func (f *fakeParts) Granted(fabric.Addr, uint64, uint64) {}

func (f *fakeParts) Settled(fabric.Addr) bool { return true }

func (f *fakeParts) WaitingReaders(_ fabric.Addr, first, end uint64, to []Waiting) []Waiting {
	for _, w := range f.readers {
		if w.Index >= first && w.Index < end {
			to = append(to, w)
		}
	}
	return to
}

func (f *fakeParts) Adopt(m *fabric.Message) bool {
	index := m.Body[1]
	return slices.Contains(f.abandoned, index)
}

// sent is what the observer of an agentRig saw.
type sent struct {
	to   fabric.ClientID
	kind fabric.MsgKind
	body [3]uint64
}

// An agentRig is the agent of cn1 among three nodes, whose messages a test hands to it.
type agentRig struct {
	t     *testing.T
	c     *sim.Cluster
	nodes []*sim.Node
	parts fakeParts
	a     *Agent
	l     fabric.Addr
	out   []sent
}

var agentLayout = Layout{CapacityBits: 2, VersionBits: 16}

func (r *agentRig) Observe(e *sim.Event) {
	if e.Step == sim.StepSend {
		r.out = append(r.out, sent{e.To, e.Msg.Kind, [3]uint64(e.Msg.Body[:3])})
	}
}

func newAgentRig(t *testing.T) *agentRig {
	r := &agentRig{t: t}
	r.c = sim.New(sim.Config{Seed: 1, Observer: r})
	t.Cleanup(func() { r.c.Close() })
	r.l = fabric.At(r.c.AddMN(1<<20), 4096)
	for range 3 {
		r.nodes = append(r.nodes, r.c.AddCN())
	}
	r.a = NewAgent(r.nodes[0], agentLayout, &r.parts)
	return r
}

func (r *agentRig) handle(from fabric.ClientID, kind fabric.MsgKind, body ...uint64) {
	r.t.Helper()
	m := fabric.Message{From: from, Kind: kind}
	m.Body[0] = uint64(r.l)
	copy(m.Body[1:], body)
	if ok, err := r.a.Handle(&m); !ok || err != nil {
		r.t.Errorf("message %#x: %v, %v", kind, ok, err)
	}
}

// want checks what the agent has sent since the last look.
func (r *agentRig) want(what string, want ...sent) {
	r.t.Helper()
	if !slices.Equal(r.out, want) {
		r.t.Errorf("%s: sent %v, want %v", what, r.out, want)
	}
	r.out = nil
}

func (r *agentRig) header() Header { return Header(r.c.PeekWord(r.l)) }

func (r *agentRig) setHeader(h Header) {
	b := [8]byte{}
	for i := range b {
		b[i] = byte(h >> (8 * i))
	}
	r.c.Poke(r.l, b[:])
}

func (r *agentRig) setEntry(index uint64, m lock.Mode, client fabric.ClientID) {
	e := MakeEntry(m, client, agentLayout.Version(index), 0)
	r.c.Poke(agentLayout.entryAddr(r.l, index), binary.LittleEndian.AppendUint64(nil, uint64(e)))
}

const (
	agent1 = fabric.ClientID(1 << 12)
	agent2 = fabric.ClientID(2 << 12)
	agent3 = fabric.ClientID(3 << 12)
)

// The three steps of section 4.4, as the node that resets takes them.
func TestAgentLeads(t *testing.T) {
	r := newAgentRig(t)
	y := agentLayout
	r.setHeader(y.Header(5, 3, 2, 0))
	locked := uint64(y.Header(5, 3, 2, 1))
	r.handle(fabric.Client(1, 1), msgAskReset, 5, uint64(WaitTimeout))
	r.want("step 1 and 2", sent{agent1, msgReset, [3]uint64{uint64(r.l), locked, 8}},
		sent{agent2, msgReset, [3]uint64{uint64(r.l), locked, 8}}, sent{agent3, msgReset, [3]uint64{uint64(r.l), locked, 8}})
	if h := r.header(); h.ResetID() != 1 {
		t.Fatalf("header %s", y.FormatHeader(h))
	}
	r.handle(fabric.Client(1, 2), msgAskReset, 5, uint64(Corruption))
	r.want("asked again")
	r.handle(agent2, msgResetAck, locked)
	r.handle(agent2, msgResetAck, locked) // twice is once
	r.handle(agent3, msgResetAck, locked-1<<12)
	if r.header().ResetID() != 1 || r.a.Idle() {
		t.Fatal("reset ended without the answers of cn1 and cn3")
	}
	r.handle(agent1, msgResetAck, locked)
	r.handle(agent3, msgResetAck, locked)
	if h := r.header(); h != y.Header(12, 0, 0, 0) || !r.a.Idle() {
		t.Fatalf("header %s after the reset", y.FormatHeader(h))
	}
	if s := r.a.Stats(); s.Led != 1 || s.TakenOver != 0 || s.ByReason[WaitTimeout] != 1 {
		t.Errorf("%+v", *s)
	}
	// A wish from before is needless now.
	r.handle(fabric.Client(1, 1), msgAskReset, 7, uint64(WaitTimeout))
	r.want("a wish that comes too late")
	if r.header().ResetID() != 0 {
		t.Error("reset again")
	}
}

// The answer to an earlier reset of the same lock may come late, or twice. It says nothing about clients that hold the lock since.
func TestAgentAwaitsAnswersToThisReset(t *testing.T) {
	r := newAgentRig(t)
	y := agentLayout
	former := uint64(y.Header(0, 1, 1, 1))
	r.setHeader(y.Header(0, 1, 1, 0))
	r.handle(fabric.Client(1, 1), msgAskReset, 0, uint64(WaitTimeout))
	for _, from := range []fabric.ClientID{agent1, agent2, agent3} {
		r.handle(from, msgResetAck, former)
	}
	free := r.header()
	r.setHeader(y.Header(y.Head(free), 1, 1, 0))
	locked := uint64(y.Header(y.Head(free), 1, 1, 1))
	r.handle(fabric.Client(1, 1), msgAskReset, y.Head(free), uint64(WaitTimeout))
	r.handle(agent1, msgResetAck, locked)
	r.handle(agent2, msgResetAck, locked)
	r.handle(agent3, msgResetAck, former)
	if r.header().ResetID() != 1 || r.a.Idle() {
		t.Fatal("the reset ended with the answer of cn3 to the one before")
	}
	r.handle(agent3, msgResetAck, locked)
	if r.header().ResetID() != 0 || !r.a.Idle() || r.a.Stats().Led != 2 {
		t.Errorf("header %s, %d resets", y.FormatHeader(r.header()), r.a.Stats().Led)
	}
}

// "Responses from failed clients are not awaited": a view without them ends the wait.
func TestAgentDoesNotAwaitCrashedNodes(t *testing.T) {
	r := newAgentRig(t)
	locked := uint64(agentLayout.Header(0, 1, 1, 1))
	r.setHeader(agentLayout.Header(0, 1, 1, 0))
	r.handle(fabric.Client(1, 1), msgAskReset, 0, uint64(WaitTimeout))
	r.handle(agent1, msgResetAck, locked)
	r.handle(agent2, msgResetAck, locked)
	r.c.Fence(r.nodes[2])
	if err := r.a.onView(); err != nil || r.header().ResetID() != 0 || !r.a.Idle() {
		t.Errorf("%v, %s", err, agentLayout.FormatHeader(r.header()))
	}
}

// When a node has crashed, its number may belong to a new node already, which the reset waits for and which has got no signal: the nodes that
// have not answered get it again.
func TestAgentSignalsAgainAfterACrash(t *testing.T) {
	r := newAgentRig(t)
	y := agentLayout
	locked := uint64(y.Header(0, 1, 1, 1))
	r.setHeader(y.Header(0, 1, 1, 0))
	r.handle(fabric.Client(1, 1), msgAskReset, 0, uint64(WaitTimeout))
	r.handle(agent1, msgResetAck, locked)
	r.out = nil
	if err := r.a.onView(); err != nil {
		t.Fatal(err)
	}
	r.want("a view without a death")
	r.c.Fence(r.nodes[1])
	if err := r.a.onView(); err != nil {
		t.Fatal(err)
	}
	r.want("a death", sent{agent3, msgReset, [3]uint64{uint64(r.l), locked, 1}})
}

// A reset that another node has taken over, or has ended since, is not ended by the one that began it.
func TestAgentLeavesAResetThatWasTakenOver(t *testing.T) {
	y := agentLayout
	for _, now := range []Header{y.Header(5, 4, 2, 3), y.Header(12, 1, 1, 0)} {
		r := newAgentRig(t)
		locked := uint64(y.Header(5, 3, 2, 1))
		r.setHeader(y.Header(5, 3, 2, 0))
		r.handle(fabric.Client(1, 1), msgAskReset, 5, uint64(WaitTimeout))
		r.setHeader(now)
		for _, from := range []fabric.ClientID{agent1, agent2, agent3} {
			r.handle(from, msgResetAck, locked)
		}
		if h := r.header(); h != now || !r.a.Idle() || r.a.Stats().Led != 0 {
			t.Errorf("header %s, was %s; idle %v", y.FormatHeader(h), y.FormatHeader(now), r.a.Idle())
		}
	}
}

// When a memory node has restarted, the resets of its locks are forgotten, and those of others' are not.
func TestAgentForgetsResetsOfARestartedMemoryNode(t *testing.T) {
	r := newAgentRig(t)
	y := agentLayout
	locked := uint64(y.Header(0, 1, 1, 1))
	r.setHeader(y.Header(0, 1, 1, 0))
	r.handle(fabric.Client(1, 1), msgAskReset, 0, uint64(WaitTimeout))
	r.a.Forget(r.l.MN() + 1)
	if r.a.Idle() {
		t.Fatal("another memory node's restart ends the reset")
	}
	r.a.Forget(r.l.MN())
	if !r.a.Idle() {
		t.Error("a reset of a lock in the memory that was goes on")
	}
	for _, from := range []fabric.ClientID{agent1, agent2, agent3} {
		r.handle(from, msgResetAck, locked)
	}
	if r.header() != Header(locked) {
		t.Errorf("header %s", y.FormatHeader(r.header()))
	}
}

// "Clients holding the lock respond to the signal after releasing the lock, whereas
// other clients respond immediately. Clients waiting for the lock abort."
func TestAgentAnswers(t *testing.T) {
	r := newAgentRig(t)
	r.handle(agent2, msgReset, 77)
	r.want("no participant here", sent{agent2, msgResetAck, [3]uint64{uint64(r.l), 77}})
	r.parts.busy = 2
	r.parts.waiting = []Waiting{{Client: fabric.Client(1, 9), Index: 41}}
	r.handle(agent2, msgReset, 78)
	r.want("one holds, one waits", sent{fabric.Client(1, 9), msgAbort, [3]uint64{uint64(r.l), 41}})
	r.handle(fabric.Client(1, 9), msgQuiesced)
	r.handle(fabric.Client(2, 9), msgQuiesced) // not ours to count
	r.want("one is left")
	// The first resetter crashed; a second asks. A frozen participant quiesces once, and is awaited.
	r.handle(agent3, msgReset, 79)
	r.want("taken over while one holds")
	r.handle(fabric.Client(1, 3), msgQuiesced)
	r.want("the last has let go", sent{agent3, msgResetAck, [3]uint64{uint64(r.l), 79}})
	if !r.a.Idle() {
		t.Error("something is left")
	}
}

// Signals of two resetters may overtake each other. The later reset waits for this node's answer; the earlier one has ended.
func TestAgentAnswersTheLaterReset(t *testing.T) {
	r := newAgentRig(t)
	r.parts.busy = 1
	r.handle(agent3, msgReset, 79, 8)
	r.handle(agent2, msgReset, 78, 4)
	r.handle(fabric.Client(1, 3), msgQuiesced)
	r.want("the holder has released", sent{agent3, msgResetAck, [3]uint64{uint64(r.l), 79}})
}

// Appendix B: "the surviving clients ignore reset signals from the failed CN". One that
// comes late must not freeze participants that have acquired the lock since.
func TestAgentIgnoresCrashedNodes(t *testing.T) {
	r := newAgentRig(t)
	r.c.Fence(r.nodes[1])
	r.parts.busy = 1
	r.handle(agent2, msgReset, 77)
	r.want("a signal of a crashed node")
	if r.parts.freezes != 0 {
		t.Error("a signal of a crashed node froze the lock")
	}
}

// "If the reset ID corresponds to a failed CN, the surviving clients attempt to
// initiate a new reset process." One that runs is reminded, and left alone.
func TestAgentTakesOver(t *testing.T) {
	r := newAgentRig(t)
	y := agentLayout
	r.setHeader(y.Header(5, 1, 1, 2))
	r.handle(fabric.Client(1, 1), msgAskReset, 5, uint64(NodeFailure))
	r.want("the resetter runs", sent{agent2, msgAskReset, [3]uint64{uint64(r.l), 5, uint64(NodeFailure)}})
	r.c.Fence(r.nodes[1])
	r.handle(fabric.Client(1, 1), msgAskReset, 5, uint64(NodeFailure))
	locked := uint64(y.Header(5, 1, 1, 1))
	r.want("the resetter is dead", sent{agent1, msgReset, [3]uint64{uint64(r.l), locked, 13}}, sent{agent3, msgReset, [3]uint64{uint64(r.l), locked, 13}})
	if n := r.a.Stats().TakenOver; n != 1 {
		t.Errorf("%d taken over", n)
	}
}

// A reminder of a reset that this node has lost sight of begins it again; one from a client
// of another node is none.
func TestAgentReminded(t *testing.T) {
	r := newAgentRig(t)
	r.setHeader(agentLayout.Header(5, 1, 1, 1))
	r.handle(fabric.Client(2, 5), msgAskReset, 5, uint64(NodeFailure))
	r.want("a client of another node")
	r.handle(agent2, msgAskReset, 5, uint64(NodeFailure))
	if len(r.out) != 3 || r.out[0].kind != msgReset {
		t.Errorf("reminded: sent %v", r.out)
	}
}

// A grant by range, and a needless reset of a lock that has been passed on, reach the readers
// that wait here.
func TestAgentGrantsReaders(t *testing.T) {
	r := newAgentRig(t)
	r.parts.readers = []Waiting{{Client: fabric.Client(1, 1), Index: 4}, {Client: fabric.Client(1, 2), Index: 5}, {Client: fabric.Client(1, 3), Index: 6}}
	r.handle(agent2, msgGrantRange, 5, 6)
	r.want("range", sent{fabric.Client(1, 2), msgGrant, [3]uint64{uint64(r.l), 5}})
	r.setHeader(agentLayout.Header(5, 1, 0, 0))
	r.setEntry(4, lock.Shared, fabric.Client(1, 1))
	r.handle(fabric.Client(1, 1), msgAskReset, 4, uint64(NodeFailure))
	r.want("passed on", sent{fabric.Client(1, 1), msgGrant, [3]uint64{uint64(r.l), 4}}, sent{fabric.Client(1, 2), msgGrant, [3]uint64{uint64(r.l), 5}})
	// Without its entry, the head may be that of a reset.
	r.setHeader(agentLayout.Header(8, 1, 0, 0))
	r.c.Poke(r.l.Add(8), make([]byte, 8*agentLayout.Capacity()))
	r.handle(fabric.Client(1, 1), msgAskReset, 4, uint64(NodeFailure))
	r.want("passed by a reset")
	r.setEntry(8, lock.Shared, fabric.Client(1, 1)) // a later one, in the same slot
	r.setEntry(5, lock.Shared, fabric.Client(2, 2)) // another's
	r.handle(fabric.Client(1, 1), msgAskReset, 4, uint64(NodeFailure))
	r.want("the slots of others")
}

// Messages that are none of the protocol's are not taken.
func TestAgentLeavesOthersMessages(t *testing.T) {
	r := newAgentRig(t)
	for _, kind := range []fabric.MsgKind{0, fabric.MsgHier, fabric.MsgCQL + 10, fabric.MsgUser} {
		if ok, err := r.a.Handle(&fabric.Message{From: agent2, Kind: kind}); ok || err != nil {
			t.Errorf("kind %#x: %v, %v", kind, ok, err)
		}
	}
	r.parts.abandoned = []uint64{3}
	r.handle(agent2, msgGrant, 3)
	r.handle(agent2, msgGrant, 4)
	if n := r.a.Stats().Adopted; n != 1 {
		t.Errorf("%d adopted", n)
	}
	r.handle(agent1, msgAbort)
	r.want("nothing")
}
