package peer

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/secure/securetest"
)

// A caller is judged by the state that the node acts on: one that it has heard of and not taken yet lets no node in, and
// a node that has gone from it is refused; so are all nodes by a state from before the node's own publication.
func TestCallersAreJudgedByTheStateInForce(t *testing.T) {
	own, mn, from := member.CN{ID: 1, Incarnation: 10}, member.MN{ID: 3, Incarnation: 10}, member.CN{ID: 2, Incarnation: 20}
	n := &Node{Own: own}
	st := func(revision uint64, cns ...member.CN) *member.State {
		return &member.State{Revision: revision, CNs: append(cns, own), MNs: []member.MN{mn}}
	}
	older, newer := st(4), st(5, from)
	before := &member.State{Revision: 5, CNs: []member.CN{from}}
	ask := func(from, to member.Incarnation, revision uint64) *Caller {
		return &Caller{ID: 2, From: from, To: to, Revision: revision}
	}
	for _, x := range []struct {
		name string
		in   *member.State
		ask  *Caller
		want error
	}{
		{"a member", newer, ask(20, 10, 5), nil},
		{"a caller that acts on a state that this node has not taken", older, ask(20, 10, 5), ErrBehind},
		{"a caller that is no member, and knows nothing newer", older, ask(20, 10, 4), fabric.ErrFenced},
		{"another incarnation of the number", newer, ask(19, 10, 5), fabric.ErrFenced},
		{"a member, by a state from before this node", before, ask(20, 10, 5), ErrBehind},
		{"a caller that wants another incarnation of this node", newer, ask(20, 9, 5), fabric.ErrNodeDown},
	} {
		if _, err := n.Sender(x.in, x.ask); !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("messages: %s: %v, want %v", x.name, err, x.want)
		}
		if x.want == fabric.ErrNodeDown {
			x.want = fabric.ErrStaleEpoch
		}
		s := &Server{Own: mn}
		s.Take(x.in)
		if _, err := s.Client(x.ask); !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("memory: %s: %v, want %v", x.name, err, x.want)
		}
	}
	if _, err := (&Server{Own: mn}).Client(ask(20, 10, 5)); !errors.Is(err, ErrBehind) {
		t.Errorf("without a state: %v", err)
	}
	for _, s := range []*Server{{Own: mn, ended: true}, {Own: mn, away: errors.New("given up")}} {
		if s.Take(newer); s.Closed() == nil {
			t.Error("a memory node that does not serve says that it does")
		}
		if _, err := s.Client(ask(20, 10, 5)); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("a memory node that does not serve: %v", err)
		}
	}
}

// A caller has the certificate of the member that it says it is.
func TestNoNodeSpeaksForAnother(t *testing.T) {
	a := securetest.New(t)
	judge := func(role, addr string) error {
		cert, err := OwnCertificate(a.Config("host-8", role))
		if err != nil {
			t.Fatal(err)
		}
		c := &Caller{ID: 2, From: 20, Cert: cert}
		_, err = c.judge(&member.State{}, true, member.CN{ID: 2, Incarnation: 20, Addr: addr}, true)
		return err
	}
	if err := judge(NameCN, "127.0.0.1:1#host-8"); err != nil {
		t.Errorf("the member itself: %v", err)
	}
	for _, addr := range []string{"127.0.0.1:1#host-9", "127.0.0.1:1"} {
		if err := judge(NameCN, addr); !errors.Is(err, ErrAuth) {
			t.Errorf("for %s: %v", addr, err)
		}
	}
	if err := judge(NameMN, "127.0.0.1:1#host-8"); !errors.Is(err, ErrAuth) {
		t.Errorf("a memory node as a compute node: %v", err)
	}
}
