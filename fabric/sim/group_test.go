package sim

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A memory node that is a replica again begins with zeroed memory, also if it has not heard that it was none between.
func TestReplicaAgain(t *testing.T) {
	for _, news := range []fabric.Time{0, 100 * fabric.Microsecond} {
		c := New(Config{Seed: 1, NewsDelay: news})
		p := c.AddReplicatedMN(4096, 2)
		b := c.AddMN(4096)
		c.AddBackup(p, b)
		n := c.AddCN()
		a := fabric.At(p, 64)
		add := func(port fabric.Port, wait fabric.Time) {
			_ = port.Pause(port.Now() + wait)
			if err := port.Reattach(p, n.MemoryEpoch(p)); err != nil {
				t.Fatal(err)
			}
			ops := []fabric.Op{fabric.FAA(a, 1)}
			if err := port.Do(ops); err != nil || ops[0].Old != 0 {
				t.Errorf("%v, %v", ops[0].Old, err)
			}
		}
		change := func(kind member.ChangeKind, host fabric.MemID) {
			x := member.Change{ID: p, Kind: kind, Host: c.mn(host).member.entry.Incarnation(), Seen: c.Group(p).Changed}
			if err := c.Change(x); err != nil {
				t.Fatal(kind, err)
			}
		}
		c.Go(n, "client", func(port fabric.Port) {
			const ms = fabric.Millisecond
			add(port, 0)
			if news > 0 {
				c.Detach(OfMN(p), port.Now()+2*ms)
			}
			change(member.Promote, b)
			change(member.AddBackup, p)
			add(port, 5*ms)
			change(member.Synced, p)
			_ = port.Pause(port.Now() + ms)
			change(member.Promote, p)
			add(port, ms)
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		if c.Group(p).Term != 3 {
			t.Errorf("%+v", *c.Group(p))
		}
		c.Close()
	}
}

// A primary that was given up and runs on is used no more by compute nodes that have acknowledged that, also if no backup takes its place: it does not hear which of them are fenced.
func TestGivenUpPrimary(t *testing.T) {
	c := New(Config{Seed: 1, NewsDelay: 100 * fabric.Microsecond})
	defer c.Close()
	p := c.AddReplicatedMN(4096, 2)
	c.Go(c.AddCN(), "client", func(port fabric.Port) {
		ops := []fabric.Op{fabric.FAA(fabric.At(p, 64), 1)}
		if err := port.Do(ops); err != nil {
			t.Error(err)
		}
		c.FenceMN(p)
		_ = port.Pause(port.Now() + fabric.Millisecond)
		if err := port.Do(ops); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("it was given up: %v", err)
		}
		c.RestartServer(p)
		_ = port.Pause(port.Now() + fabric.Millisecond)
		if err := port.Do(ops); !errors.Is(err, fabric.ErrStaleEpoch) {
			t.Errorf("it is back: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}

// When the lease of a compute node has run out, nothing that a replicated number answers counts: neither what is posted afterwards, nor what is under way. The primary, which
// was given up as well and hears of nothing, would execute it.
func TestLease(t *testing.T) {
	c := New(Config{Seed: 1, NewsDelay: 100 * fabric.Microsecond})
	defer c.Close()
	p := c.AddReplicatedMN(4096, 2)
	n := c.AddCN()
	c.Go(n, "client", func(port fabric.Port) {
		c.Detach(OfCN(n.ID()), fabric.Second)
		c.FenceMN(p)
		ops := []fabric.Op{fabric.FAA(fabric.At(p, 64), 1)}
		pd, err := port.Post(ops)
		if err != nil {
			t.Error(err)
		}
		c.Fence(n)
		if err := port.Wait(pd); !errors.Is(err, fabric.ErrUnknownOutcome) {
			t.Errorf("an operation under way: %v", err)
		}
		if err := port.Do(ops); !errors.Is(err, fabric.ErrFenced) {
			t.Errorf("an operation that is posted afterwards: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}

// The answer of a primary that comes when the compute node has acknowledged another does not count: the node has cut its connections to the one before.
func TestAnswerOfADeposedPrimary(t *testing.T) {
	c := New(Config{Seed: 1})
	defer c.Close()
	p := c.AddReplicatedMN(4096, 2)
	c.AddBackup(p, c.AddMN(4096))
	n := c.AddCN()
	c.Go(n, "client", func(port fabric.Port) {
		c.Cut(OfMN(p), OfCN(n.ID()), port.Now()+fabric.Millisecond) // its answers are held up
		pd, err := port.Post([]fabric.Op{fabric.FAA(fabric.At(p, 64), 1)})
		if err != nil {
			t.Error(err)
		}
		_ = port.Pause(port.Now() + 100*fabric.Microsecond)
		if err := c.Promote(p); err != nil {
			t.Error(err)
		}
		if err := port.Wait(pd); !errors.Is(err, fabric.ErrUnknownOutcome) {
			t.Errorf("the answer comes after the promotion: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}
