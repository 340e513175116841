package tcp

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// A hello whose dial the compute node has given up is read after the lane has been connected anew: it is refused, and the lane goes on. Frames before the lane's first that are left on a
// connection that lanes share would be executed otherwise, though they may have been issued again. Numbers of frames wrap.
func TestLateHello(t *testing.T) {
	for _, first := range []uint32{1000, 2, 0} {
		g, own, _ := newSharing(t)
		late := own.r.hello(roleLane, own.index, 0)
		enter := func(first uint32) error {
			late.number = uint64(first) | uint64(own.tag)<<32
			g.p.peer.Mu.Lock()
			defer g.p.peer.Mu.Unlock()
			_, take, err := g.p.enter(&guest{hello: late})
			if err == nil {
				take(nil)
			}
			return err
		}
		last := own.posted.Load() + first
		if err := enter(last); err != nil {
			t.Fatal(err)
		}
		for _, before := range []uint32{1, 3, 1 << 20} {
			if err := enter(last - before); !errors.Is(err, ErrProtocol) {
				t.Errorf("a hello %d frames before the last: %v", before, err)
			}
		}
		if err := enter(last); err != nil {
			t.Errorf("the same once more, for its answer was lost: %v", err)
		}
	}
}

// What a late hello would have let in is not executed: the word is as it was when the lane had issued its FAA again.
func TestLateHelloLetsNothingIn(t *testing.T) {
	g, own, _ := newSharing(t)
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 1))
	conn := g.served(g.p, own)
	h := own.r.hello(roleLane, own.index, own.posted.Load()-1)
	h.number |= uint64(own.tag) << 32
	g.p.peer.Mu.Lock()
	conn.lane.first = own.posted.Load() // it was connected anew, and issued the frame again
	_, _, err := g.p.enter(&guest{hello: h})
	g.p.peer.Mu.Unlock()
	if err == nil || conn.isCut() {
		t.Errorf("the late hello: %v; the lane is cut: %v", err, conn.isCut())
	}
	peertest.Do(t, g.port, fabric.FAA(peertest.Word, 1))
	if got := g.word(g.p); got != 2 {
		t.Errorf("the word is %d", got)
	}
}
