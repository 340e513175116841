package cql

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A message about a lock of another term is none about a ticket with the same lock and index.
func TestTermOfAGrant(t *testing.T) {
	l := fabric.At(3, 4096)
	for _, kind := range []fabric.MsgKind{msgGrant, msgReport, msgMembers} {
		for term := range uint16(4) {
			p := Ticket{Lock: l, Index: 7, Mode: lock.Exclusive, Term: 2, Train: &Train{in: true, granted: true, wait: 1 << 5}}
			m := fabric.Message{Kind: kind, Body: [7]uint64{uint64(l), 7, 5}}
			inTerm(&m, term)
			granted := p.Take(&m)
			if granted != (term == 2 && kind != msgMembers) {
				t.Errorf("message %#x of term %d: granted %v", kind, term, granted)
			}
			if term != 2 && (p.Train.got != 0 || p.Train.list != nil) {
				t.Errorf("message %#x of term %d counts", kind, term)
			}
		}
	}
	m := fabric.Message{Kind: msgGrant}
	inTerm(&m, MaxTerm)
	if MessageTerm(&m) != MaxTerm || MessageKind(&m) != msgGrant {
		t.Errorf("%#x", m.Kind)
	}
	if inTerm(&m, 0); m.Kind != msgGrant {
		t.Errorf("%#x without a term", m.Kind)
	}
}

// Tokens grow with terms, and are a format. Without a term they are what they were.
func TestTermTokens(t *testing.T) {
	p := Ticket{Index: 5, Term: 2}
	if got, want := p.Token(77, 9), lock.Token(2<<48|6<<8|9); got != want {
		t.Errorf("token %#x, want %#x", uint64(got), uint64(want))
	}
	if p.Term = 0; p.Token(77, 9) != Token(77, 5, 9) || p.MaxSeq() != MaxSeq {
		t.Errorf("token %#x without a term", uint64(p.Token(77, 9)))
	}
	for _, term := range []uint16{1, 1023, 1024, MaxTerm - 1} {
		last, first := TermToken(term, maxTermIndex-1, maxTermSeq), TermToken(term+1, 0, 0)
		if last >= first || TermToken(term, 0, 0) >= TermToken(term, 0, 1) || TermToken(term, 0, maxTermSeq) >= TermToken(term, 1, 0) {
			t.Errorf("term %d: %#x before %#x", term, uint64(last), uint64(first))
		}
	}
}

// An agent counts answers of the term in which it leads a reset, and answers in the term of the signal. A reset of an earlier term has voided nothing in a later one.
func TestTermOfAReset(t *testing.T) {
	r := newAgentRig(t)
	y, mn := agentLayout, r.l.MN()
	in := func(term uint16, kind fabric.MsgKind) fabric.MsgKind {
		m := fabric.Message{Kind: kind}
		inTerm(&m, term)
		return m.Kind
	}
	r.a.Attached(mn, 1)
	r.handle(agent2, in(1, msgReset), 77, 1000)
	r.want("a signal of term 1", sent{agent2, in(1, msgResetAck), [3]uint64{uint64(r.l), 77}})

	r.a.Attached(mn, 2)
	r.setHeader(y.Header(0, 4, 4, 0))
	locked := uint64(y.Header(0, 4, 4, 1))
	r.handle(fabric.Client(1, 1), in(2, msgAskReset), 4, uint64(QueueOverflow))
	signal := func(to fabric.ClientID) sent { return sent{to, in(2, msgReset), [3]uint64{uint64(r.l), locked, 4}} }
	r.want("an overflow in term 2", signal(agent1), signal(agent2), signal(agent3))
	for _, from := range []fabric.ClientID{agent1, agent2, agent3} {
		r.handle(from, in(1, msgResetAck), locked)
	}
	if r.header().ResetID() != 1 {
		t.Error("answers of term 1 have ended a reset of term 2")
	}
	r.parts.busy = 1
	r.handle(agent3, in(3, msgReset), 99, 4) // it knows a later term
	r.handle(agent2, in(2, msgReset), 98, 1000)
	r.handle(fabric.Client(1, 1), in(2, msgQuiesced))
	r.want("a signal of term 3, and a late one of term 2", sent{agent3, in(3, msgResetAck), [3]uint64{uint64(r.l), 99}})
	for _, from := range []fabric.ClientID{agent1, agent2, agent3} {
		r.handle(from, in(2, msgResetAck), locked)
	}
	if h := r.header(); h.ResetID() != 0 || y.Head(h) < 4 {
		t.Errorf("after all answers of term 2: %s", y.FormatHeader(h))
	}
}

// All that a client sends about a lock has the term in which it is attached: also what passes along a train, and a grant that it leaves to its agent.
func TestClientsSendTheirTerm(t *testing.T) {
	r := newAgentRig(t)
	p, err := r.nodes[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(p, r.nodes[0], agentLayout, Config{}, &lock.Stats{})
	c.Attached(r.l.MN(), 7)
	other := fabric.Client(2, 1)
	list := new(members)
	for i := range 12 {
		list.push(i, member(other)|member(i%2)<<fabric.ClientIDBits)
	}
	ticket := Ticket{Lock: r.l, Index: 20, Term: 7, Mode: lock.Exclusive, Train: &Train{in: true, list: list, length: 12}}
	_ = c.passTrain(&ticket)
	_ = c.Regrant(&ticket)
	_ = c.passTrain(&Ticket{Lock: r.l, Index: 20, Term: 7, Mode: lock.Shared, Train: &Train{in: true, collector: other}})
	c.Quiesced(r.l)
	c.AskReset(r.l, 3, NodeFailure)
	kinds := map[fabric.MsgKind]bool{}
	for _, m := range r.out {
		full := fabric.Message{Kind: m.kind}
		kinds[MessageKind(&full)] = true
		if MessageTerm(&full) != 7 {
			t.Errorf("message %#x has another term", m.kind)
		}
	}
	for _, kind := range []fabric.MsgKind{msgGrant, msgMembers, msgReport, msgQuiesced, msgAskReset} {
		if !kinds[kind] {
			t.Errorf("no message %#x is sent", kind)
		}
	}
}
