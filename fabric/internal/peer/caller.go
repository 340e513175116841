package peer

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Caller says who wants to be let in, and where: one incarnation of a node, and no other that has its number or its address. It is a part of
// verbs' control protocol.
type Caller struct {
	ID       fabric.CNID       `json:"id"`
	From     member.Life       `json:"from"`
	To       member.Life       `json:"to"`
	Revision uint64            `json:"revision"` // of the state that the caller acts on
	Cert     *x509.Certificate `json:"-"`        // nil without TLS
}

// judge checks by a state that the caller is a compute node, in its present incarnation: ErrFenced if not, ErrBehind if the caller knows more than this
// node. A state from before the publication of this node (own) would let in nodes that were given up before that, and that nobody has asked it to
// shut out. With TLS nobody speaks for another.
func (c *Caller) judge(st *member.State, own bool, from member.CN, found bool) (member.CN, error) {
	switch found = found && from.Life == c.From; {
	case !own || !found && st.Revision < c.Revision:
		return from, fmt.Errorf("%w: it knows nothing of %v, or of itself", ErrBehind, c.ID)
	case !found:
		return from, fmt.Errorf("%w: %v is no member in that incarnation", fabric.ErrFenced, c.ID)
	case c.Cert == nil:
		return from, nil
	}
	return from, Denied(errors.Join(MayCompute(c.Cert), ParseContact(from.Addr).Owns(c.Cert)))
}

// Sender returns the compute node that wants to send messages to this one, or why it is not let in by a state.
func (n *Node) Sender(st *member.State, c *Caller) (member.CN, error) {
	if c.To != n.Own.Life {
		return member.CN{}, fmt.Errorf("%w: this is another compute node, or another incarnation of %v", fabric.ErrNodeDown, n.Own.ID)
	}
	from, found := Find(st, c.ID)
	return c.judge(st, Lives(st, n.Own), from, found)
}

// Client returns the compute node that wants to use the memory, or why it is not let in by the state in force. Mu is held.
func (s *Server) Client(c *Caller) (member.CN, error) {
	if err := s.Closed(); err != nil {
		return member.CN{}, err
	}
	st, _ := s.State()
	switch {
	case c.To != s.Own.Life:
		return member.CN{}, fmt.Errorf("%w: this is another incarnation of %v, or another memory node", fabric.ErrStaleEpoch, s.id)
	case st == nil:
		return member.CN{}, fmt.Errorf("%w: %v", ErrBehind, s.id)
	}
	from, found := st.CN(c.ID)
	return c.judge(st, st.Has(s.Own.Life), from, found)
}
