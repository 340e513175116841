package cql

import (
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Terms: see docs/replication.md. When a memory node that is replicated ends, another takes its place, and its locks begin anew: indices are given out again, at
// the same addresses. What tells them from those of before is the term, which grows each time. Tickets, tokens and messages about locks have it. It is 0 for locks that are
// not replicated; then all is as without terms.

// In a message the term is in the upper half of its kind.
const (
	kindBits = 16
	kindMask = 1<<kindBits - 1
	// MaxTerm is the last term for which there are tokens.
	MaxTerm = 1<<16 - 1
)

// MessageTerm returns the term of the lock that a message is about.
func MessageTerm(m *fabric.Message) uint16 { return uint16(m.Kind >> kindBits) }

// MessageKind returns the kind of a message without the term.
func MessageKind(m *fabric.Message) fabric.MsgKind { return m.Kind & kindMask }

// inTerm marks a message with a term.
func inTerm(m *fabric.Message, term uint16) {
	m.Kind = m.Kind&kindMask | fabric.MsgKind(term)<<kindBits
}

// terms are those of the memory nodes that a client or an agent is attached to; none: 0.
type terms []uint16

func (t terms) at(mn fabric.MemID) uint16 {
	if int(mn) < len(t) {
		return t[mn]
	}
	return 0
}

func (t *terms) set(mn fabric.MemID, term uint16) {
	if t.at(mn) == term {
		return
	}
	for int(mn) >= len(*t) {
		*t = append(*t, 0)
	}
	(*t)[mn] = term
}

// Attached records in which term the client is attached to a memory node.
func (c *Client) Attached(mn fabric.MemID, term uint16) { c.terms.set(mn, term) }

// Attached records in which term the agent is attached to a memory node.
func (a *Agent) Attached(mn fabric.MemID, term uint16) { a.terms.set(mn, term) }

// Tokens of a lock that is replicated begin with its term. A term goes on growing where a generation would end: each planned move of a memory node is one.
//
//	 63       48 47                     8 7         0
//	+-----------+------------------------+-----------+
//	| term (16) |     index + 1 (40)     |  seq (8)  |
//	+-----------+------------------------+-----------+
const (
	termSeqBits   = 8
	termIndexBits = 40
	maxTermSeq    = 1<<termSeqBits - 1
	maxTermIndex  = 1<<termIndexBits - 2
)

// The widths sum up to 64.
var _ = [1]struct{}{}[termSeqBits+termIndexBits+16-64]

// TermToken returns the fencing token of the seq-th grant under the entry index, in a term.
func TermToken(term uint16, index uint64, seq uint16) lock.Token {
	return lock.Token(uint64(term)<<(termIndexBits+termSeqBits) | (index+1)<<termSeqBits | uint64(seq))
}

// MaxSeq returns the largest seq under the ticket: a tenure has at most so many exclusive grants.
func (p *Ticket) MaxSeq() uint16 {
	if p.Term != 0 {
		return maxTermSeq
	}
	return MaxSeq
}

// token returns the fencing token of the seq-th grant under an index.
func (p *Ticket) token(generation uint32, index uint64, seq uint16) lock.Token {
	if p.Term != 0 {
		return TermToken(p.Term, index, seq)
	}
	return Token(generation, index, seq)
}
