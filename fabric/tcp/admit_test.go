package tcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// A memory node in a new epoch executes nothing before all compute nodes that may still act know of it: those that do not hand locks of the epoch
// before on among their clients. With its memory and without, and with one of the compute nodes cut off from the coordinator.
func TestMemoryNodeWaitsForAllComputeNodes(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		for _, dies := range []bool{false, true} {
			waitsForAll(t, keeps, dies)
		}
	}
}

func waitsForAll(t *testing.T, keeps, dies bool) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Heartbeat, o.DeadAfter = 20*time.Millisecond, 200*time.Millisecond }
	s := c.Serve(0, 1<<16)
	a, b := c.Join(), c.Join()
	p := peertest.Open(t, b)
	peertest.Do(t, p, fabric.FAA(peertest.Word, 1))
	was := s.Epoch()
	deaf := c.way.of(a.Own.Incarnation)
	deaf.detach()
	served := make(chan struct{})
	if keeps {
		c.Members.Now().Kill(s.peer.Own.Incarnation) // it joins again by itself
		close(served)
	} else {
		c.KillMN(0)
		o := c.options()
		o.Size = 1 << 16
		go func() {
			defer close(served)
			var err error
			if s, err = Serve(context.Background(), o); err != nil {
				t.Errorf("Serve: %v", err)
			}
			c.Servers[0] = s
		}()
	}
	var epoch uint32
	peertest.Await(t, "the other compute node has heard of the new epoch", func() bool { // a busy memory node may join twice
		epoch = b.MemoryEpoch(0)
		return epoch > was && p.Reattach(0, epoch) == nil
	})
	for range 3 {
		if err := p.Do([]fabric.Op{fabric.FAA(peertest.Word, 1)}); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("keeps %v: an operation in epoch %d, while a compute node has only heard of epoch %d: %v", keeps, epoch, a.MemoryEpoch(0), err)
		}
	}
	if got := a.MemoryEpoch(0); got != was {
		t.Errorf("a compute node that hears nothing knows epoch %d of %d", got, was)
	}
	if dies {
		c.Members.Now().Kill(a.Own.Incarnation)
	} else {
		deaf.reattach()
	}
	ops := []fabric.Op{fabric.FAA(peertest.Word, 1)}
	peertest.Await(t, "the memory node can be used", func() bool { return p.Do(ops) == nil })
	if got := a.MemoryEpoch(0); !dies && got != epoch {
		t.Errorf("the memory node can be used in epoch %d, and a compute node knows epoch %d", epoch, got)
	}
	if ops[0].Old != 1 && keeps || ops[0].Old != 0 && !keeps {
		t.Errorf("keeps %v: the word was %d", keeps, ops[0].Old)
	}
	deaf.reattach()
	<-served
}
