package peer

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Caller names a compute node that wants to be let in, and the node it calls: one incarnation of each, and no other with the same number or
// address. It is a part of verbs' control protocol.
type Caller struct {
	ID       fabric.CNID        `json:"id"`
	From     member.Incarnation `json:"from"`
	To       member.Incarnation `json:"to"`
	Revision uint64             `json:"revision"` // of the state that the caller acts on
	Cert     *x509.Certificate  `json:"-"`        // nil without TLS
}

// judge checks by a state that the caller is a member, in its present incarnation: ErrFenced if not, ErrBehind if the caller acts on a newer state.
// own reports whether the state has this node. A state from before would let in nodes that were fenced before this node was published: no
// state will ask it to shut them out. With TLS the caller must have the member's certificate.
func (c *Caller) judge(st *member.State, own bool, from member.CN, found bool) (member.CN, error) {
	switch found = found && from.Incarnation == c.From; {
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
	if c.To != n.Own.Incarnation {
		return member.CN{}, fmt.Errorf("%w: this is another compute node, or another incarnation of %v", fabric.ErrNodeDown, n.Own.ID)
	}
	from, found := Find(st, c.ID)
	return c.judge(st, Present(st, n.Own), from, found)
}

// Client returns the compute node that wants to use the memory, or why it is not let in by the state in force. Mu is held.
func (s *Server) Client(c *Caller) (member.CN, error) {
	if err := s.Closed(); err != nil {
		return member.CN{}, err
	}
	st, _ := s.State()
	switch {
	case c.To != s.Own.Incarnation:
		return member.CN{}, fmt.Errorf("%w: this is another incarnation of %v, or another memory node", fabric.ErrStaleEpoch, s.id)
	case st == nil:
		return member.CN{}, fmt.Errorf("%w: %v", ErrBehind, s.id)
	}
	from, found := st.CN(c.ID)
	return c.judge(st, st.Has(s.Own.Incarnation), from, found)
}
