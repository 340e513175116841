package reclaim

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

func TestGoldenWords(t *testing.T) {
	w := makeRound(7, 0xabcdef, 0x12345678)
	if w != 0x07abcdef12345678 || w.leader() != 7 || w.incarnation() != 0xabcdef || w.mark().round() != 0x12345 || w.mark().step() != 0x678 {
		t.Errorf("%#x", uint64(w))
	}
	if e := w.ended(); e != 0x12345678 || e.active() || e.begun(3, 1) != 0x0300000112346000 {
		t.Errorf("%#x, then %#x", uint64(e), uint64(e.begun(3, 1)))
	}
	if b := roundWord(0xfffff123).begun(3, 1); b != 0x0300000100001000 {
		t.Errorf("the round behind the last is %#x: round 0 is none", uint64(b))
	}
	r := makeRecord(true, 0xabcdef, 0x12345678)
	if r != 0xc0abcdef12345678 || !r.open() || !r.owes() || r.incarnation() != 0xabcdef || r.mark() != 0x12345678 ||
		r.closed() != 0x40abcdef12345678 || r.crashed() != 0x40abcdef12345678 || r.closed().cleared() != 0xabcdef12345678 || r.answering(5) != 0xc0abcdef00000005 {
		t.Errorf("%#x", uint64(r))
	}
	c := makeCandidate(Block{Part: 0x81, Off64: 0x312345678}, 0xffffffff)
	if c != 0xffffe04312345678 || c.part() != 0x81 || c.off64() != 0x312345678 || !c.stamped(0xffffffff) || c.stamped(0xfffffffe) {
		t.Errorf("%#x", uint64(c))
	}
}

// A world is compute nodes that have a store of blocks open: each has a list of them, and there is no index.
type world struct {
	t    *testing.T
	c    *sim.Cluster
	base fabric.Addr
	cns  []*sim.Node
	mine []*lists
	used []uint64 // blocks to which the index leads
}

// lists is what a compute node has: the Owner, too.
type lists struct {
	w        *world
	node     *sim.Node
	port     fabric.Port
	m        *Member
	u        User
	free     []uint64
	released []uint64
	between  func() // before and after each chain; nil: nothing

	unready, unsettled bool // not Lead, not Settled

	inUse int // so many times Mark finds memory leaked by crashed nodes in use by others, for now
}

// There are so many blocks, of one unit each, from first on.
const (
	first  = 0x400
	blocks = 60
)

// newWorld makes nodes that have every so manieth block each.
func newWorld(t *testing.T, nodes int) *world {
	w := &world{t: t, c: sim.New(sim.Config{NIC: sim.Ideal()})}
	t.Cleanup(func() { w.c.Close() })
	w.base = fabric.At(w.c.AddMN(1<<20), 0)
	for range nodes {
		w.cns = append(w.cns, w.c.AddCN())
	}
	if p, err := w.cns[0].Open(); err != nil || Init(p, w.base) != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		w.mine = append(w.mine, w.join(i))
	}
	for i := range blocks {
		l := w.mine[i%nodes]
		l.free = append(l.free, first+uint64(i))
	}
	return w
}

func (w *world) join(i int) *lists {
	w.t.Helper()
	p, err := w.cns[i].Open()
	if err != nil {
		w.t.Fatal(err)
	}
	l := &lists{w: w, node: w.cns[i], port: p, m: new(Member)}
	if err := l.m.Join(p, w.base, nil); err != nil {
		w.t.Fatal(err)
	}
	l.m.Add(&l.u)
	return l
}

func (l *lists) Port() fabric.Port { return l.port }

func (l *lists) Do(ops []fabric.Op) error {
	if l.between != nil {
		l.between()
		defer l.between()
	}
	return l.port.Do(ops)
}

func (l *lists) View() fabric.View { return l.node.View() }

func (l *lists) Lead(bool) (bool, error) { return !l.unready, nil }

func (l *lists) Settled() bool { return !l.unsettled }

func (l *lists) Release(list []Block) error {
	for _, p := range list {
		l.released = append(l.released, p.Off64)
	}
	return nil
}

func (l *lists) Held(add func(part int, from, to uint64)) {
	for _, off := range l.free {
		add(0, off, off+1)
	}
}

// Mark implements Owner: what has been released is in a free list of the memory nodes.
func (l *lists) Mark() (*Map, error) {
	m := &Map{parts: [][]dividedRun{{{first: first, step: 1, count: blocks, marked: make([]uint64, 1)}}}}
	for _, x := range l.w.mine {
		for _, off := range x.released {
			m.Mark(0, off, off+1)
		}
	}
	for _, off := range l.w.used {
		m.Mark(0, off, off+1)
	}
	if l.inUse > 0 {
		l.inUse--
		m.Again = true
		m.Mark(0, first, first+blocks)
	}
	return m, nil
}

// tend has nodes tend in turn, so many times.
func (w *world) tend(times int, nodes ...int) {
	w.t.Helper()
	for range times {
		for _, i := range nodes {
			if _, err := w.mine[i].m.ReclaimStep(w.mine[i]); err != nil {
				w.t.Fatalf("node %d: %v", i, err)
			}
		}
	}
}

// kill kills a node, and waits until another sees it.
func (w *world) kill(i, other int) {
	w.t.Helper()
	w.c.Kill(w.cns[i])
	if err := w.mine[other].port.Pause(w.mine[other].port.Now() + fabric.Second); err != nil {
		w.t.Fatal(err)
	}
}

// wantFound checks that the blocks of some nodes have been found, once each, and no others.
func (w *world) wantFound(what string, nodes ...int) {
	w.t.Helper()
	all := map[uint64]bool{}
	for _, l := range w.mine {
		for _, off := range l.released {
			if all[off] {
				w.t.Errorf("%s: block %#x was found twice", what, off)
			}
			all[off] = true
		}
	}
	for _, i := range nodes {
		for _, off := range w.mine[i].free {
			if !all[off] {
				w.t.Errorf("%s: block %#x of node %d is not found", what, off, i)
			}
			delete(all, off)
		}
	}
	for off := range all {
		w.t.Errorf("%s: block %#x was found, and a member has it", what, off)
	}
}

func TestReclaimFindsCrashedNodesBlocks(t *testing.T) {
	w := newWorld(t, 3)
	w.tend(10, 0, 1, 2)
	w.wantFound("no node has crashed")
	w.kill(2, 0)
	w.tend(20, 0)
	w.wantFound("one does not answer")
	w.tend(20, 0, 1)
	w.wantFound("all answer", 2)
	if n := w.mine[0].m.Found().Rounds + w.mine[1].m.Found().Rounds; n != 1 {
		t.Errorf("%d rounds, want 1", n)
	}
}

func TestLeaderCrashesAtEveryStep(t *testing.T) {
	for steps := range 10 {
		w := newWorld(t, 3)
		w.kill(2, 0)
		w.tend(1, 0) // leads
		w.tend(steps, 1, 0)
		w.mine[0].released = nil // into no list: here they are found again
		w.kill(0, 1)
		w.tend(20, 1)
		want := []int{0, 2}
		if len(w.mine[1].released) == len(w.mine[0].free) {
			want = want[:1] // the round had come to its end
		}
		w.wantFound("killed leader", want...)
	}
}

// Between a list and the Tracker a block is nowhere: a client that has it there is waited for.
func TestABlockOnItsWayOutOfAListIsNotFound(t *testing.T) {
	for steps := range 10 {
		w := newWorld(t, 3)
		w.kill(2, 0)
		w.tend(1, 0)
		w.tend(steps, 1, 0)
		l := w.mine[1]
		var other User // whose operation is waited for meanwhile
		l.m.Add(&other)
		other.Enter()
		w.tend(3, 1, 0)
		l.u.Enter()
		off := l.free[0]
		l.free = l.free[1:]
		other.Exit()
		w.tend(5, 1, 0)
		l.m.Touch(0, off)
		l.u.Exit()
		w.tend(20, 1, 0)
		w.wantFound("in hand", 2)
	}
}

func TestOperationsFromBeforeTheRoundAreWaitedFor(t *testing.T) {
	w := newWorld(t, 3)
	w.kill(2, 0)
	w.mine[1].u.Enter()
	w.tend(20, 0, 1)
	w.wantFound("under way")
	w.mine[1].u.Exit()
	w.tend(20, 0, 1)
	w.wantFound("over", 2)
}

func TestLeavingMemberEndsTheRound(t *testing.T) {
	for steps := range 10 {
		w := newWorld(t, 4)
		w.kill(3, 0)
		w.tend(1, 0)
		w.tend(steps, 2, 1, 0)
		// Node 2 gives what it has to a list of the memory nodes after that was marked, and 1 takes it when it has answered.
		given := w.mine[2].free
		for _, off := range given {
			w.mine[2].m.Touch(0, off)
		}
		w.mine[2].free = nil
		if err := w.mine[2].m.Leave(w.mine[2].Do, nil); err != nil {
			t.Fatal(err)
		}
		if w.mine[0].m.lead != nil {
			w.tend(1, 0)
			if w.mine[0].m.lead != nil {
				t.Errorf("after %d steps: the round goes on", steps)
			}
		}
		w.mine[1].free = append(w.mine[1].free, given...)
		w.tend(20, 0, 1)
		w.wantFound("left", 3)
	}
}

func TestANumberThatIsUsedAgainOwes(t *testing.T) {
	w := newWorld(t, 2)
	old := w.mine[1]
	w.mine = append(w.mine, w.join(1)) // the same number, another incarnation
	w.tend(20, 0, 2)
	w.wantFound("joined again", 1)
	if _, err := old.m.ReclaimStep(old); !errors.Is(err, ErrReplaced) {
		t.Errorf("the member of before: %v", err)
	}
}

// What the first with a number had is to be found, also when another with it has come, and has closed before any member looked.
func TestANumberOwesUntilItIsFound(t *testing.T) {
	w := newWorld(t, 2)
	second := w.join(1)
	if err := second.m.Leave(second.Do, nil); err != nil {
		t.Fatal(err)
	}
	w.mine = append(w.mine, w.join(1)) // the third
	w.tend(20, 0, 2)
	w.wantFound("the third", 1)
}

// A leaked block that a client still uses is found by a later round: until then its record is not cleared.
func TestABlockInUseIsFoundLater(t *testing.T) {
	w := newWorld(t, 3)
	w.kill(2, 0)
	w.mine[0].inUse, w.mine[1].inUse = 1, 1
	w.tend(20, 0, 1)
	w.wantFound("in use")
	if err := w.mine[0].port.Pause(w.mine[0].port.Now() + 5*fabric.Second); err != nil {
		t.Fatal(err)
	}
	w.tend(40, 0, 1)
	w.wantFound("used no more", 2)
}

// A round that was asked for is begun again when a member leaves in the middle of it.
func TestAForcedRoundThatIsBrokenIsBegunAgain(t *testing.T) {
	for steps := range 8 {
		w := newWorld(t, 3)
		lost := w.mine[1].free[0]
		w.mine[1].free = w.mine[1].free[1:] // no member's, and none has crashed
		w.mine[0].m.Force()
		w.tend(1, 0)
		w.tend(steps, 1, 0)
		w.pass(2, 1, len(w.mine[2].free))
		if err := w.mine[2].m.Leave(w.mine[2].Do, nil); err != nil {
			t.Fatal(err)
		}
		w.tend(20, 0, 1)
		w.mine[2].free = []uint64{lost}
		w.wantFound("forced", 2)
		if n := w.mine[0].m.Found().Forced; n != 1 {
			t.Errorf("%d forced rounds are completed, want 1", n)
		}
	}
}

func TestJoiningNodeMarksItsNumberCrashed(t *testing.T) {
	w := newWorld(t, 2)
	if err := MarkCrashed(w.mine[1].port, w.base, nil, nil); err != nil {
		t.Fatal(err)
	}
	w.tend(20, 0)
	w.wantFound("marked crashed", 1)
}

func TestLostBlocksStayTheirOwnersUntilItLeaves(t *testing.T) {
	w := newWorld(t, 2)
	lost := w.mine[0].free[0]
	w.mine[0].free = w.mine[0].free[1:]
	w.mine[0].m.Lose(0, lost)
	w.mine[1].m.Force()
	w.tend(20, 1, 0)
	w.wantFound("lost")
	if err := w.mine[0].m.Leave(w.mine[0].Do, nil); err != nil {
		t.Fatal(err)
	}
	w.kill(0, 1)
	w.mine[0].free = append(w.mine[0].free, lost)
	w.tend(20, 1)
	w.wantFound("left", 0)
}

func TestMapMarksWhatOverlaps(t *testing.T) {
	m := Map{parts: [][]dividedRun{{
		{first: 100, step: 4, count: 3, marked: make([]uint64, 1)},
		{first: 200, step: 1, count: 2, class: 1, marked: make([]uint64, 1)},
	}}}
	m.Mark(0, 104, 108)
	m.Mark(0, 111, 112)
	m.Mark(0, 150, 201)
	m.Mark(3, 0, 1000)
	got := m.unmarked(func(int, uint64) bool { return false })
	if len(got) != 2 || got[0] != (Block{0, 100, 0}) || got[1] != (Block{0, 201, 1}) {
		t.Error(got)
	}
}

// A promotion takes the word of the round away, and records may have answered steps of rounds: nothing that a member has is taken for leaked then.
func TestRoundsAfterAPromotion(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.mine[0], w.mine[1]
	lost := b.free[0]
	b.free = b.free[1:]
	round := func(both bool) {
		t.Helper()
		a.m.Force()
		for range 40 {
			if _, err := a.m.ReclaimStep(a); err != nil {
				t.Fatal(err)
			}
			if both {
				if _, err := b.m.ReclaimStep(b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	round(true)
	if len(a.released) != 1 || a.released[0] != lost {
		t.Fatalf("released %#x, leaked was %#x", a.released, lost)
	}
	if _, err := execute(a.port.Do, "round", fabric.Store(w.base.Add(Offset), 0)); err != nil {
		t.Fatal(err)
	}
	a.m.lead, a.m.round = nil, 0
	a.free = a.free[1:]
	round(false)
	if len(a.released) > 1 {
		t.Fatalf("released %#x, and the other has answered nothing", a.released[1:])
	}
	round(true)
	if len(a.released) != 2 {
		t.Errorf("released %#x: not what was leaked", a.released)
	}
}

// A promotion takes the word of the round away, and the record of a member, be it the leader's, has answered before it a step with the number of the next round. What that member has in hand is not taken for
// leaked.
func TestRecordsThatHaveAnsweredBefore(t *testing.T) {
	for who := range 2 {
		w := newWorld(t, 2)
		l := w.mine[who]
		r := makeRecord(false, l.m.incarnation, roundWord(0).begun(1, 1).mark())
		if _, err := execute(l.port.Do, "record", fabric.Store(l.m.record(l.m.cn), uint64(r))); err != nil {
			t.Fatal(err)
		}
		l.u.Enter()
		off := l.free[0]
		l.free = l.free[1:]
		l.m.Touch(0, off)
		w.mine[0].m.Force()
		w.tend(10, 0, 1)
		w.used = append(w.used, off)
		l.u.Exit()
		w.tend(20, 0, 1)
		w.wantFound("in the index")
		if n := w.mine[0].m.Found(); n.Forced != 1 || n.Abandoned > 0 {
			t.Errorf("member %d has answered: %+v", who, n)
		}
	}
}

// A member that has not settled what it has taken does not answer, and none leads that may not.
func TestRoundWaits(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.mine[0], w.mine[1]
	b.free = b.free[1:]
	step := func() {
		t.Helper()
		for range 40 {
			for _, l := range w.mine {
				if _, err := l.m.ReclaimStep(l); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	a.unready, b.unready, b.unsettled = true, true, true
	a.m.Force()
	step()
	if w, err := a.m.loadRound(a.Do); err != nil || w.active() {
		t.Errorf("a round is under way: %#x, %v", uint64(w), err)
	}
	a.unready = false
	step()
	if len(a.released) > 0 {
		t.Errorf("released %#x, and a member has not answered", a.released)
	}
	b.unsettled = false
	step()
	if len(a.released) != 1 {
		t.Errorf("released %#x", a.released)
	}
}
