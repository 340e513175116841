package membership_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/internal/membership"
)

type closer struct{ closed int }

var errCloser = errors.New("the coordinator's")

func (c *closer) Close() error {
	c.closed++
	return errCloser
}

func join(t *testing.T, members *coordinator.Memory) fabric.Node {
	t.Helper()
	n, err := tcp.Join(context.Background(), tcp.Options{Members: members, Insecure: true, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// Callers ask a compute node for more than fabric.Node by interfaces of their own: a wrapper must have those methods, too.
func TestNodeHidesNothing(t *testing.T) {
	// Methods for the inside of a fabric: of peer.Standing and peer.Clock, of peer.Node and peer.Network.
	inside := []string{"Admit", "Await", "AwaitTry", "Reset", "State", "Take", "Now", "Poll",
		"Abort", "Act", "Check", "Dead", "Enter", "Fence", "Go", "Init", "IsClosed", "IsFenced", "Limit", "Links", "OpenAgent", "Place", "Remote", "Remotes",
		"Revision", "UseMemory", "Vanish",
		"Attach", "Beat", "NewPort", "NewWire", "Release", "Sender", "Shut", "Start", "Stop"}
	inner := join(t, coordinator.NewMemory(4))
	outer := reflect.TypeOf(membership.Node(inner, &closer{}))
	for m := range reflect.TypeOf(inner).Methods() {
		if _, ok := outer.MethodByName(m.Name); !ok && !slices.Contains(inside, m.Name) {
			t.Errorf("%s is hidden", m.Name)
		}
	}
}

// Close and Fail do what those of the node do, and close the coordinator.
func TestNodeLeaves(t *testing.T) {
	for _, fails := range []bool{false, true} {
		members := coordinator.NewMemory(4)
		other := join(t, members)
		c := &closer{}
		n := membership.Node(join(t, members), c)
		leave, lost := n.Close, uint64(0)
		if fails {
			leave, lost = n.Fail, 1
		}
		if err := leave(); !errors.Is(err, errCloser) || c.closed != 1 {
			t.Errorf("fails %v: %v, closed %d times", fails, err, c.closed)
		}
		for limit := time.Now().Add(time.Minute); other.View().Live.Has(n.ID()) && time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
		}
		if got := other.View().Lost; uint64(got) != lost {
			t.Errorf("fails %v: %d nodes lost", fails, got)
		}
	}
}
