package peer

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// An idleWire writes nothing by itself.
type idleWire struct{}

func (idleWire) Connect() error { return nil }
func (idleWire) Flush()         {}
func (idleWire) Cut()           {}
func (idleWire) Ask()           {}
func (idleWire) Unsent() bool   { return false }
func (idleWire) Release()       {}

// A Link keeps what was not delivered, whatever the length of its queue, and goes on from where the receiver has got to.
func TestLinkKeepsWhatWasNotDelivered(t *testing.T) {
	l := &Link{Node: &Node{}, Peer: member.CN{ID: 2}, Wire: idleWire{}, Broken: make(chan struct{}, 1), queue: make([]WireMessage, minQueue)}
	const burst = 5 * minQueue
	for i := range uint64(burst) {
		if err := l.send(1, 2, &fabric.Message{Body: [7]uint64{i}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for i := l.Acked; i != l.Filled; i++ {
			var m fabric.Message
			if l.At(i).Decode(&m); m.Body[0] != i {
				t.Fatalf("message %d is %d", i, m.Body[0])
			}
		}
	}
	check()
	l.Written = burst - 10
	for _, bad := range []uint64{burst - 9, burst} {
		if err := l.Resume(bad); !errors.Is(err, ErrProtocol) {
			t.Errorf("a receiver that has got %d messages of %d: %v", bad, l.Written, err)
		}
	}
	l.Break()
	if err := l.Resume(100); err != nil || l.Acked != 100 || l.Written != 100 || len(l.Broken) != 0 {
		t.Errorf("resumed: %v, %d acknowledged, %d written, broken %d", err, l.Acked, l.Written, len(l.Broken))
	}
	check()
	if err := l.Resume(99); !errors.Is(err, ErrProtocol) {
		t.Errorf("a receiver that has got less than before: %v", err)
	}
	for l.Acked < burst {
		l.Written = l.Acked + 1
		l.Ack(l.Acked + 1)
		check()
	}
	if len(l.queue) != minQueue {
		t.Errorf("a burst keeps %d places", len(l.queue))
	}
	l.Filled = l.Acked + MaxQueue // as if they waited
	if err := l.send(1, 2, &fabric.Message{}); !errors.Is(err, fabric.ErrResources) {
		t.Errorf("one message more than are kept: %v", err)
	}
	l.Stopped = true
	if err := l.send(1, 2, &fabric.Message{}); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("to a node that has gone: %v", err)
	}
	if err := l.Resume(l.Acked); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("a connection of a link that was stopped: %v", err)
	}
}
