package reclaim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// Errors, for errors.Is.
var (
	// ErrReplaced: this compute node has opened the store or tree a second time, or its record was cleared. It must
	// take no more part.
	ErrReplaced = errors.New("reclaim: this compute node's record is another's now")
	// ErrUnanswered: nothing can be found, because a compute node that is registered does not take part, or is always at work.
	ErrUnanswered = errors.New("reclaim: not all who have it open take part in looking for free memory")
)

// An Owner is the store or tree whose leaked blocks are looked for, as the client sees it that does so.
type Owner interface {
	// Port is what the calls are made over.
	Port() fabric.Port
	// Do executes a chain, in the present incarnation of the memory node.
	Do(ops []fabric.Op) error
	// View returns the live compute nodes, as of now or later.
	View() fabric.View
	// Held calls add for all free blocks that this compute node has in its lists, by part, from an offset to another, in units of 64 bytes.
	Held(add func(part int, from, to uint64))
	// Mark returns all blocks that there are, with those marked that are reachable or in free lists of the memory nodes.
	Mark() (*Map, error)
	// Lead reports whether this compute node may begin a round, or go on with one that it leads: of replicated memory only if no backup leads to a block that no primary leads to.
	Lead(begins bool) (bool, error)
	// Settled reports whether runs that this compute node has taken are known as such at all backups.
	Settled() bool
	// Release puts leaked blocks into free lists of the memory nodes. They are sorted by part, extent and offset. If it
	// fails, it calls Lose for those that may be in a list, or come there yet.
	Release(list []Block) error
}

// A Member is a compute node's registration with a store or tree, and its part in rounds. Any goroutine may use it, and its Tracker; Leave
// comes when no client uses it any more.
type Member struct {
	Tracker
	base        fabric.Addr // of what members share
	cn          fabric.CNID
	incarnation incarnation

	stepping atomic.Bool // a goroutine is in ReclaimStep: what follows is its own
	wanted   atomic.Bool // Force was called

	round uint32   // that it remembers for, 0: none
	asked mark     // the step for which it waits for operations under way
	held  snapshot // what was in its lists when it was asked

	lead    *leading // the round that it leads
	closing bool     // its record may be closed, by Leave or LetGo

	view   uint64      // epoch of the view that was looked at last
	look   fabric.Time // when to look at all records again
	need   bool        // a crashed node had blocks, when it looked last
	forced bool        // a round is wanted whatever has happened, and has not begun
	after  fabric.Time // no round is begun before
	pause  fabric.Time // how long the next wait for that will be

	wishes, granted atomic.Uint64 // calls of Force, and those after which a round was begun that is completed

	rounds, served, abandoned, blocks atomic.Uint64 // see Found
}

// Found counts what the rounds that this member led have found.
type Found struct {
	Rounds    uint64 // completed
	Forced    uint64 // of these, begun since Force was called
	Abandoned uint64 // begun and not completed
	Blocks    uint64
	Lost      uint64 // blocks that operations of this compute node, of unknown outcome, may use yet: it keeps them until it leaves
}

// How long a leader waits for a step to be answered, and how long it waits then before it begins another round: twice as long each time.
// How often a member looks at all records although no node has come or gone.
const (
	patienceNs   = 5 * fabric.Second
	minBackoffNs = fabric.Second
	maxBackoffNs = 256 * fabric.Second
	lookNs       = 10 * fabric.Second
)

// Init prepares the memory that members of a new store or tree share, in its first part, which begins at base and is zero.
func Init(port fabric.Port, base fabric.Addr) error {
	b := port.Alloc(8 * maxNodes)
	defer port.Free(b)
	w := makeRecord(false, incarnation(port.Rand())&incarnationMask, mark(port.Rand())|1).closed()
	for i := range maxNodes {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(w))
	}
	_, err := execute(port.Do, "records", fabric.Write(base.Add(Offset+recordsAt), b))
	return err
}

// execute executes an operation, by do, and returns what was there before.
func execute(do func([]fabric.Op) error, what string, op fabric.Op) (old uint64, err error) {
	ops := [1]fabric.Op{op}
	if err := do(ops[:]); err != nil {
		return 0, fmt.Errorf("reclaim: %s at %v: %w", what, op.Addr, err)
	}
	return ops[0].Old, nil
}

// Join registers the compute node of a Port, as a Member that is zero but for its Users, with the store or tree whose first part's memory begins at base. It comes before
// anything is taken. Join calls there after it has read the compute node's record, and before it changes that. there returns an error if the memory is not the store's
// or tree's any more: then what was read may be no record, and Join changes nothing.
func (m *Member) Join(port fabric.Port, base fabric.Addr, there func() error) error {
	m.base, m.cn = base.Add(Offset), port.ID().CN()
	if int(m.cn) >= maxNodes || m.cn == 0 {
		return fmt.Errorf("reclaim: %v has no record", m.cn)
	}
	m.incarnation, m.closing = incarnation(port.Rand())&incarnationMask, false
	err := m.change(port.Do, there, func(old recordWord) (recordWord, bool) {
		return makeRecord(old.open() || old.owes(), m.incarnation, 0), true // if it is open, one with this number has crashed
	}, nil)
	if err != nil {
		return err
	}
	w, err := m.loadRound(port.Do)
	if err == nil && w.active() {
		m.remember(w.mark())
	}
	return err
}

// Undoing returns a Member of which nothing but Retract is used, now or later, when a Join has failed, or what comes after it. Any later Join stays.
func (m *Member) Undoing() *Member {
	m.forget()
	return &Member{base: m.base, cn: m.cn, incarnation: m.incarnation}
}

// Retract undoes a Join, if it has registered the compute node. there, if not nil, is as for Join: without it the memory may be something else already, and foretell is nil.
func (m *Member) Retract(do func([]fabric.Op) error, there func() error, foretell Foretell) error {
	m.forget()
	return m.change(do, there, m.toClosed, foretell)
}

// A Put makes the word at an address at the backups what it is to be at the primary next. there is as for Join. again: the primary or the backups are others by now, and all is to be done again.
type Put = func(a fabric.Addr, to uint64, there func() error) (again bool, err error)

// A Foretell is called before a record is read that is to be closed: once it is that at the primary, the memory may be something else, and nothing must be written there any more. So a record is
// closed at the backups first, and opened at the primary first. A nil Foretell, and a nil Put, is of memory that is not replicated.
type Foretell func() (Put, error)

// mostAgain bounds how often a record is read again because the memory nodes have changed.
const mostAgain = 16

// toClosed returns what the record is to be when the registration ends: false if it is not open, or another's.
func (m *Member) toClosed(w recordWord) (recordWord, bool) {
	return w.closed(), w.open() && w.incarnation() == m.incarnation
}

// change changes the compute node's record, if it is to be: to returns the word for the present one. there, if not nil, is asked between the reading and each attempt.
func (m *Member) change(do func([]fabric.Op) error, there func() error, to func(recordWord) (recordWord, bool), foretell Foretell) error {
	a := m.record(m.cn)
	for again := 0; ; {
		var put Put
		if foretell != nil {
			var err error
			if put, err = foretell(); err != nil {
				return err
			}
		}
		old, err := execute(do, "record", fabric.Load(a))
		if err != nil {
			return err
		}
		w, ok := to(recordWord(old))
		if !ok {
			return nil
		}
		if there != nil {
			if err := there(); err != nil {
				return err
			}
		}
		if put != nil {
			if others, err := put(a, uint64(w), there); err != nil {
				return err
			} else if others && again < mostAgain {
				again++
				continue
			}
		}
		was, err := execute(do, "record", fabric.CAS(a, old, uint64(w)))
		if err != nil || was == old {
			return err
		}
	}
}

// MarkCrashed notes, if a compute node with the number of a Port's has crashed with the store or tree open whose first part's memory begins at
// base, that what it had is to be found. A compute node that joins the cluster calls it before it opens the store or tree: else others would wait for it. there is as for Join.
func MarkCrashed(port fabric.Port, base fabric.Addr, there func() error, foretell Foretell) error {
	m := &Member{base: base.Add(Offset), cn: port.ID().CN()}
	var seen recordWord
	return m.change(port.Do, there, func(w recordWord) (recordWord, bool) {
		seen = cmp.Or(seen, w)
		return w.crashed(), w.open() && w == seen // if it has changed, it has been looked after
	}, foretell)
}

// Ahead reports whether a backup has a record that is closed, or is about to be, at a primary that has it open.
func Ahead(backup, primary uint64) bool {
	b, p := recordWord(backup), recordWord(primary)
	return !b.open() && p.open() && b.incarnation() == p.incarnation()
}

// InUse reports whether a compute node has the store or tree open whose first part's memory begins at base. view, if it is not nil, returns the live
// compute nodes, as of now or later: crashed nodes use nothing.
func InUse(port fabric.Port, base fabric.Addr, view func() fabric.View) (bool, error) {
	t, err := readTable(port, port.Do, base.Add(Offset))
	if err != nil {
		return false, err
	}
	// A compute node in the records has joined the cluster before: so it is in a view that is younger, unless it has crashed.
	var v fabric.View
	if view != nil {
		v = view()
	}
	for i, w := range t {
		if w.open() && (view == nil || v.Live.Has(fabric.CNID(i))) {
			return true, nil
		}
	}
	return false, nil
}

// remember begins to remember for the round of a mark.
func (m *Member) remember(k mark) {
	m.track()
	m.round, m.asked, m.held = k.round(), 0, snapshot{}
}

// forget ends it.
func (m *Member) forget() {
	if m.round != 0 {
		m.untrack()
		m.round, m.held = 0, snapshot{}
	}
}

func (m *Member) record(cn fabric.CNID) fabric.Addr { return m.base.Add(recordsAt + 8*uint64(cn)) }

// Leave ends the registration, after the last block has been given back. A round that is under way ends with it:
// what this member remembers no other knows. If it has lost blocks, the registration stays, until others see that this compute node
// has left the cluster, and look for them: then nothing that it was at takes effect any more. do executes a chain.
func (m *Member) Leave(do func([]fabric.Op) error, foretell Foretell) error {
	if m.losses() > 0 {
		return nil
	}
	return m.LetGo(do, foretell)
}

// LetGo is Leave for a store or tree that has been dropped: lost blocks do not count, since nothing that this compute node was at can take
// effect any more.
//
// If either has failed, the record may be closed, and the memory something else, in which no word is this record: the next touches nothing but the record.
func (m *Member) LetGo(do func([]fabric.Op) error, foretell Foretell) error {
	m.lead = nil
	for !m.closing {
		w, err := m.loadRound(do)
		if err != nil {
			return err
		}
		if !w.active() {
			m.closing = true
		} else if _, err := m.swapRound(do, w, w.ended()); err != nil {
			return err
		}
	}
	m.forget()
	return m.change(do, nil, m.toClosed, foretell)
}

func (m *Member) loadRound(do func([]fabric.Op) error) (roundWord, error) {
	w, err := execute(do, "round", fabric.Load(m.base))
	return roundWord(w), err
}

func (m *Member) swapRound(do func([]fabric.Op) error, old, w roundWord) (bool, error) {
	was, err := execute(do, "round", fabric.CAS(m.base, uint64(old), uint64(w)))
	return err == nil && was == uint64(old), err
}

// Found returns what the rounds that this member led have found.
func (m *Member) Found() Found {
	return Found{Rounds: m.rounds.Load(), Forced: m.served.Load(), Abandoned: m.abandoned.Load(), Blocks: m.blocks.Load(), Lost: m.losses()}
}

// A table is the records of all compute nodes, as they were read.
type table [maxNodes]recordWord

// readTable reads the records, of what begins at base.
func readTable(port fabric.Port, do func([]fabric.Op) error, base fabric.Addr) (*table, error) {
	buf := port.Alloc(8 * maxNodes)
	defer port.Free(buf)
	if _, err := execute(do, "records", fabric.Read(base.Add(recordsAt), buf)); err != nil {
		return nil, err
	}
	return decodeTable(buf), nil
}

func decodeTable(buf []byte) *table {
	var t table
	for i := range t {
		t[i] = recordWord(binary.LittleEndian.Uint64(buf[8*i:]))
	}
	return &t
}

// answers reports whether a compute node that is registered has answered a step of a round last.
func (t *table) answers(round uint32) bool {
	return slices.ContainsFunc(t[:], func(w recordWord) bool { return w.open() && w.mark().round() == round })
}

// OpenOn returns the compute nodes, besides this one, that have the store or tree open, or crashed with it open.
func (m *Member) OpenOn(o Owner) ([]fabric.CNID, error) {
	t, err := readTable(o.Port(), o.Do, m.base)
	if err != nil {
		return nil, err
	}
	var list []fabric.CNID
	for i, w := range t {
		if cn := fabric.CNID(i); w.open() && cn != m.cn {
			list = append(list, cn)
		}
	}
	return list, nil
}

// owing reports whether a crashed node had blocks.
func (t *table) owing(live fabric.CNSet) bool {
	for i, w := range t {
		if w.owes() || w.open() && !live.Has(fabric.CNID(i)) {
			return true
		}
	}
	return false
}

// Force makes the next call of ReclaimStep that finds no round under way begin one, whether or not a node has crashed. It returns the number of the wish, for Granted.
func (m *Member) Force() (wish uint64) {
	wish = m.wishes.Add(1)
	m.wanted.Store(true)
	return wish
}

// Granted reports whether a round of this member is completed that was begun after a call of Force.
func (m *Member) Granted(wish uint64) bool { return m.granted.Load() >= wish }

// ReclaimStep does this member's part of what there is to do, and reports whether there is more: then it is to be called again
// soon, else after a second or when a node has crashed. It does not wait. One goroutine does it at a time: for another there is more to do.
func (m *Member) ReclaimStep(o Owner) (busy bool, err error) {
	if !m.stepping.CompareAndSwap(false, true) {
		return true, nil
	}
	defer m.stepping.Store(false)
	if m.wanted.Swap(false) {
		m.forced, m.look, m.after = true, 0, 0
	}
	w, err := m.loadRound(o.Do)
	if err != nil {
		return false, err
	}
	if m.lead != nil {
		return m.goOn(o, w)
	}
	if !w.active() {
		m.forget()
		if !m.need && o.View().Epoch == m.view && o.Port().Now() < m.look {
			return false, nil
		}
	}
	t, err := readTable(o.Port(), o.Do, m.base)
	if err != nil {
		return false, err
	}
	// A compute node in the table has joined the cluster before: so it is in a view that is younger, unless it is dead.
	v := o.View()
	if own := t[m.cn]; !own.open() || own.incarnation() != m.incarnation {
		return false, fmt.Errorf("%w: %v", ErrReplaced, own)
	}
	if leader := t[w.leader()]; w.active() && w.leader() != m.cn && v.Live.Has(w.leader()) && leader.open() && leader.incarnation() == w.incarnation() {
		return true, m.answer(o, w.mark(), t[m.cn])
	}
	now := o.Port().Now()
	m.view, m.look, m.need = v.Epoch, now+lookNs, m.forced || t.owing(v.Live)
	if !m.need && !w.active() || now < m.after {
		return false, nil
	}
	if ok, err := o.Lead(true); err != nil || !ok {
		return false, err
	}
	return true, m.begin(o, w)
}

// How often Reclaim looks, and for how long.
const (
	minReclaimNs  = 10 * fabric.Microsecond
	maxReclaimNs  = 10 * fabric.Millisecond
	reclaimWaitNs = 30 * fabric.Second
)

// Reclaim has a round completed that begins from now on, and takes part in it. ErrUnanswered: others do not.
func (m *Member) Reclaim(o Owner) error {
	port, pause, before := o.Port(), minReclaimNs, m.Found().Forced
	m.Force()
	for until := port.Now() + reclaimWaitNs; ; {
		busy, err := m.ReclaimStep(o)
		switch {
		case err != nil:
			return err
		case m.Found().Forced > before:
			return nil
		case !busy || port.Now() > until:
			return ErrUnanswered
		}
		if err := port.Pause(port.Now() + pause); err != nil {
			return err
		}
		pause = min(pause*5/4, maxReclaimNs)
	}
}

// answer answers a step of a round, if the operations that it must wait for are over.
func (m *Member) answer(o Owner, k mark, own recordWord) error {
	if own.mark() == k {
		return nil
	}
	if m.round != k.round() {
		if k.step() != 0 {
			return nil // it has not been asked for the first
		}
		m.remember(k)
	}
	if m.asked != k {
		// First the lists, then which clients are to be waited for: what leaves a list later is in held; what had left it and was not remembered
		// yet is in the hand of an operation under way, and is remembered when that is done.
		m.asked, m.held = k, snapshot{}
		if k.step() > 0 {
			o.Held(m.held.add)
			m.kept(m.held.add)
			m.held.sort()
		}
		m.await()
	}
	if !m.quiet() || !o.Settled() {
		return nil
	}
	if k.step() > 0 {
		if err := m.strike(o, k); err != nil {
			return err
		}
	}
	_, err := execute(o.Do, "record", fabric.CAS(m.record(m.cn), uint64(own), uint64(own.answering(k))))
	return err // if the record has changed meanwhile, the next call answers
}

// strike strikes out of a batch what this compute node has.
func (m *Member) strike(o Owner, k mark) error {
	buf := o.Port().Alloc(8 * batchSize)
	defer o.Port().Free(buf)
	a := m.base.Add(batchAt)
	if _, err := execute(o.Do, "candidates", fabric.Read(a, buf)); err != nil {
		return err
	}
	var ops [fabric.MaxChain]fabric.Op
	n := 0
	for i := range batchSize {
		c := candidate(binary.LittleEndian.Uint64(buf[8*i:]))
		if c == 0 || !c.stamped(k) || !m.has(c.part(), c.off64()) {
			continue
		}
		ops[n] = fabric.CAS(a.Add(8*uint64(i)), uint64(c), 0) // by CAS, so that one that comes late strikes nothing else
		if n++; n == len(ops) {
			if err := o.Do(ops[:n]); err != nil {
				return fmt.Errorf("reclaim: candidates at %v: %w", a, err)
			}
			n = 0
		}
	}
	if err := o.Do(ops[:n]); err != nil {
		return fmt.Errorf("reclaim: candidates at %v: %w", a, err)
	}
	return nil
}

// has reports whether this compute node had a block in its lists when it was asked, or has had it in its hands since it remembers.
func (m *Member) has(part int, off64 uint64) bool {
	return m.held.has(part, off64) || m.had(part, off64)
}
