package reclaim

import (
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
)

// A leading is a round, as its leader knows it.
type leading struct {
	word  roundWord
	since fabric.Time // of the step
	base  *table      // when the round began
	dead  fabric.CNSet

	blocks []Block // candidates that have not been published yet
	batch  []Block // those that are
	whole  bool    // nothing was left out
	forced bool    // it serves a call of Force
	wishes uint64  // calls of Force before it was begun
}

// number makes the round word that of a new round in place of what was, which this member leads. false: another was faster.
//
// A promotion leaves the word of the round behind, and the numbers begin anew, but records come to backups as they are: so a record may have answered, before the promotion, a step of
// the number that comes next. No record has the number of a round that begins. What a member answers late, since it stood still over the promotion, is no step of it either, but the first: the record
// is no more what it was, or the member remembers since then.
func (m *Member) number(o Owner, was roundWord) (w roundWord, ok bool, err error) {
	buf := o.Port().Alloc(8 * maxNodes)
	defer o.Port().Free(buf)
	for {
		w = was.begun(m.cn, m.incarnation)
		ops := [2]fabric.Op{ // one chain: the records are those of the memory node that has the word
			fabric.Read(m.base.Add(recordsAt), buf),
			fabric.CAS(m.base, uint64(was), uint64(w)),
		}
		if err := o.Do(ops[:]); err != nil {
			return w, false, fmt.Errorf("reclaim: round at %v: %w", m.base, err)
		}
		if !ops[1].Swapped() || !decodeTable(buf).answers(w.mark().round()) {
			return w, ops[1].Swapped(), nil
		}
		if ok, err := m.swapRound(o.Do, w, w.ended()); err != nil || !ok {
			return w, false, err
		}
		was = w.ended()
	}
}

// begin begins a round in place of what was, and leads it.
func (m *Member) begin(o Owner, was roundWord) error {
	wishes := m.wishes.Load()
	w, ok, err := m.number(o, was)
	if err != nil || !ok {
		return err
	}
	m.remember(w.mark())
	l := &leading{word: w, since: o.Port().Now(), whole: true, forced: m.forced, wishes: wishes}
	// A compute node that registers from now on sees the round.
	if l.base, err = readTable(o.Port(), o.Do, m.base); err != nil {
		return err
	}
	v := o.View()
	for i, r := range l.base {
		if r.open() && !v.Live.Has(fabric.CNID(i)) {
			l.dead.Add(fabric.CNID(i))
		}
	}
	m.lead, m.forced = l, false
	return nil
}

// goOn goes on with the round that this member leads, which w says is under way.
func (m *Member) goOn(o Owner, w roundWord) (busy bool, err error) {
	l := m.lead
	if w != l.word {
		m.abandon() // a member has left, or has taken over
		return true, nil
	}
	defer func() {
		if err != nil {
			m.abandon()
			m.rest(o)
		}
	}()
	t, err := readTable(o.Port(), o.Do, m.base)
	if err != nil {
		return false, err
	}
	may, err := o.Lead(false)
	if err != nil {
		return false, err
	}
	res := l.answered(t, o.View())
	if !may {
		res = broken
	}
	switch res {
	case broken:
		m.abandon()
		_, err := m.swapRound(o.Do, l.word, l.word.ended())
		return true, err
	case some:
		if o.Port().Now()-l.since > patienceNs {
			// A member takes no part, or does not come to an end with an operation.
			m.abandon()
			m.rest(o)
			_, err := m.swapRound(o.Do, l.word, l.word.ended())
			return false, err
		}
		return true, m.answer(o, l.word.mark(), t[m.cn])
	}
	// A member that has closed its record before it was read has ended the round before that.
	if w, err = m.loadRound(o.Do); err != nil || w != l.word {
		return true, err
	}
	return m.next(o, t)
}

// abandon gives the round up.
func (m *Member) abandon() {
	if m.lead != nil {
		m.forced = m.forced || m.lead.forced
		m.lead = nil
		m.forget()
		m.look = 0
		m.abandoned.Add(1)
	}
}

// rest puts the next round off.
func (m *Member) rest(o Owner) {
	m.pause = min(max(2*m.pause, minBackoffNs), maxBackoffNs)
	m.after = o.Port().Now() + m.pause
}

// Whether the members have answered.
type answers uint8

const (
	all    answers = iota
	some           // not all
	broken         // one has crashed that took part
)

// answered reports whether all members have answered the present step. A round also ends when one crashes that has answered it: that would do no harm, for
// it has had no candidate since, but what it had is to be found by another round anyway.
func (l *leading) answered(t *table, v fabric.View) answers {
	res := all
	for i, r := range t {
		cn := fabric.CNID(i)
		same := l.base[i].open() && r.incarnation() == l.base[i].incarnation()
		switch {
		case !r.open(), same && l.dead.Has(cn):
		case !same && r.owes(), !v.Live.Has(cn):
			return broken
		case r.mark() != l.word.mark():
			res = some
		}
	}
	return res
}

// next does what all answers were waited for, and begins the next step.
func (m *Member) next(o Owner, t *table) (busy bool, err error) {
	l := m.lead
	if l.word.mark().step() == 0 {
		blocks, err := o.Mark()
		if err != nil {
			return false, err
		}
		// What this compute node has itself need not be published; if it has it no more when it is asked, it is found in another round.
		l.whole = !blocks.Again
		var own snapshot
		o.Held(own.add)
		m.kept(own.add)
		own.sort()
		l.blocks = blocks.unmarked(own.has)
	} else if err := m.take(o); err != nil {
		return false, err
	}
	if len(l.blocks) == 0 {
		return true, m.finish(o, t)
	}
	if l.word.mark().step() == maxStep {
		l.whole = false
		return true, m.finish(o, t)
	}
	return true, m.publish(o)
}

// publish publishes the next batch.
func (m *Member) publish(o Owner) error {
	l := m.lead
	w := l.word + 1 // the next step
	n := min(len(l.blocks), batchSize)
	l.batch, l.blocks = l.blocks[:n], l.blocks[n:]
	buf := o.Port().Alloc(8 * batchSize)
	defer o.Port().Free(buf)
	for i, p := range l.batch {
		binary.LittleEndian.PutUint64(buf[8*i:], uint64(makeCandidate(p, w.mark())))
	}
	ops := [2]fabric.Op{
		fabric.Write(m.base.Add(batchAt), buf),
		fabric.CAS(m.base, uint64(l.word), uint64(w)),
	}
	if err := o.Do(ops[:]); err != nil {
		return fmt.Errorf("reclaim: round at %v: %w", m.base, err)
	}
	if ops[1].Swapped() { // else the next call finds out
		l.word, l.since = w, o.Port().Now()
	}
	return nil
}

// take releases what is left of the batch that all have answered.
func (m *Member) take(o Owner) error {
	l := m.lead
	buf := o.Port().Alloc(8 * batchSize)
	defer o.Port().Free(buf)
	if _, err := execute(o.Do, "candidates", fabric.Read(m.base.Add(batchAt), buf)); err != nil {
		return err
	}
	var garbage []Block
	for i, p := range l.batch {
		switch c := candidate(binary.LittleEndian.Uint64(buf[8*i:])); c {
		case makeCandidate(p, l.word.mark()):
			garbage = append(garbage, p)
		case 0:
		default:
			l.whole = false // a leader of before has written late: it is left for the next round
		}
	}
	l.batch = nil
	if err := o.Release(garbage); err != nil {
		return err // what has not been released is found by the next round
	}
	m.blocks.Add(uint64(len(garbage)))
	return nil
}

// finish ends the round: what crashed nodes had has been found.
func (m *Member) finish(o Owner, t *table) error {
	l := m.lead
	for i, r := range t {
		var w recordWord
		switch was := l.base[i]; {
		case !l.whole || !r.open() && !r.owes():
			continue
		case was.open() && r.open() && r.incarnation() == was.incarnation() && l.dead.Has(fabric.CNID(i)):
			w = r.closed().cleared()
		case was.owes() && r.owes() && r.open() == was.open() && r.incarnation() == was.incarnation():
			w = r.cleared()
		default:
			continue
		}
		if _, err := execute(o.Do, "record", fabric.CAS(m.record(fabric.CNID(i)), uint64(r), uint64(w))); err != nil {
			return err
		}
	}
	if _, err := m.swapRound(o.Do, l.word, l.word.ended()); err != nil {
		return err
	}
	m.lead = nil
	m.forget()
	m.rounds.Add(1)
	m.granted.Store(l.wishes)
	if l.forced {
		m.served.Add(1)
	}
	m.look = 0
	if l.whole {
		m.after, m.pause = 0, 0
	} else {
		m.rest(o)
	}
	return nil
}
