package server_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const ms = fabric.Millisecond

// A cluster is a server of one lock, on its first node, and others that come and go.
type cluster struct {
	*sim.Cluster
	t    *testing.T
	cfg  server.Config
	lock fabric.Addr
	// exclusive and shared are how many hold the lock.
	exclusive, shared int
}

func newCluster(t *testing.T, cfg server.Config, of sim.Config) *cluster {
	c := &cluster{Cluster: sim.New(of), t: t, cfg: cfg}
	t.Cleanup(func() { c.Close() })
	c.lock = fabric.At(c.AddMN(1<<20), 4096)
	return c
}

// add adds a node whose client wants the lock at a time, and has it for a while. It returns the time of the grant, 0: there is none.
func (c *cluster) add(at fabric.Time, m lock.Mode, holds fabric.Time) (n *sim.Node, granted *fabric.Time) {
	n, granted = c.AddCN(), new(fabric.Time)
	c.GoAgent(n, func(fabric.Port) { _ = server.NewAgent(n, c.cfg).Run(func(err error) { c.t.Error(err) }) })
	c.Go(n, "client", func(p fabric.Port) {
		l, h := server.New(p, server.ServerOf(n), c.cfg), lock.Hold{}
		l.Incarnation = server.IncarnationOf(n)
		if holds == 0 || p.Pause(at) != nil || l.Acquire(&h, &lock.Request{Lock: c.lock, Mode: m, Deadline: 150 * ms}) != nil {
			return
		}
		count := &c.exclusive
		if m == lock.Shared {
			count = &c.shared
		}
		*count++
		if *granted = p.Now(); c.exclusive > 1 || c.exclusive == 1 && c.shared > 0 {
			c.t.Errorf("%d hold the lock exclusively, and %d share it", c.exclusive, c.shared)
		}
		_ = p.Pause(p.Now() + holds)
		*count--
		_ = l.Release(&h, nil)
	})
	return n, granted
}

func (c *cluster) run() {
	c.t.Helper()
	if err := c.RunUntil(200 * ms); err != nil {
		c.t.Error(err)
	}
}

// A node that holds a lock leaves, and another joins in its number before the server has looked: the lock is not the new one's, and others get it.
func TestNumberIsAnothers(t *testing.T) {
	for _, gap := range []fabric.Time{0, us, 400 * us} {
		for seed := range uint64(20) {
			c := newCluster(t, server.Config{Kind: server.Queue}, sim.Config{NewsDelay: max(gap-100*us, 0), Seed: seed})
			c.add(0, 0, 0)
			old, _ := c.add(0, lock.Exclusive, fabric.Second)
			_, next := c.add(2*ms, lock.Exclusive, ms)
			c.At(5*ms, func() { c.exclusive--; _ = old.Close() })
			c.At(5*ms+gap, func() { c.add(0, 0, 0) })
			if c.run(); *next == 0 {
				t.Errorf("another in its number after %d us, seed %d: the lock stays held", gap/us, seed)
			}
		}
	}
}

// A node leaves whose client waits to share a lock, and another in its number wants the lock exclusively: it does not take the grant for its own.
func TestGrantOfAnotherInTheNumber(t *testing.T) {
	same := 0
	for seed := range uint64(100) {
		c := newCluster(t, server.Config{Kind: server.Queue}, sim.Config{NewsDelay: 300 * us, Seed: seed})
		c.add(0, lock.Exclusive, 20*ms)
		old, _ := c.add(ms, lock.Shared, 10*ms)
		c.add(2*ms, lock.Shared, 10*ms)
		c.At(5*ms, func() { _ = old.Close() })
		c.At(5*ms+400*us, func() {
			if n, _ := c.add(6*ms, lock.Exclusive, 10*ms); n.ID() == old.ID() {
				same++
			}
		})
		c.run()
	}
	if same < 50 {
		t.Errorf("in %d of 100 runs another has the number", same)
	}
}

// What a node that has gone waited for, or had asked a busy server for, is not granted to it.
func TestGoneBeforeItsTurn(t *testing.T) {
	for name, first := range map[string]struct {
		cfg   server.Config
		holds fabric.Time
	}{
		"it waits":              {server.Config{Kind: server.Queue}, 20 * ms},
		"no worker has it, yet": {server.Config{Kind: server.Queue, ServiceNs: 5 * ms}, 0},
	} {
		c := newCluster(t, first.cfg, sim.Config{})
		c.add(0, lock.Exclusive, first.holds)
		old, _ := c.add(100*us, lock.Exclusive, fabric.Second)
		_, next := c.add(40*ms, lock.Exclusive, ms)
		c.At(ms, func() { _ = old.Fail() })
		if c.run(); *next == 0 {
			t.Errorf("%s: the lock stays held", name)
		}
	}
}

// Readers have passed a writer that gives up: so many may pass the next one.
func TestWriterAfterOneThatGaveUp(t *testing.T) {
	passed := 0
	locktest.Play(t, 10, join(server.Config{Kind: server.ReadersFirst, Passes: 3}), func(k *actor) {
		switch {
		case k.I == 0: // holds for long
			k.Acquire(lock.Shared)
			k.After(1000 * us)
		case k.I == 1: // gives up
			k.At(10 * us)
			_ = k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Deadline: 100 * us})
			return
		case k.I < 5: // pass it
			k.At(fabric.Time(20+k.I) * us)
			k.Acquire(lock.Shared)
			k.After(900 * us)
		case k.I == 5:
			k.At(200 * us)
			k.Acquire(lock.Exclusive)
		default:
			k.At(fabric.Time(220+k.I) * us)
			if k.Acquire(lock.Shared); k.P.Now() < 400*us {
				passed++
			}
		}
		k.Release()
	})
	if passed != 3 {
		t.Errorf("%d readers pass the second writer, want 3", passed)
	}
}

// All readers that wait at the head of a queue share the lock once the writer before them has released.
func TestReadersOfAQueueShare(t *testing.T) {
	now, most := 0, 0
	locktest.Play(t, 6, join(server.Config{Kind: server.Queue}), func(k *actor) {
		mode := lock.Shared
		if k.At(fabric.Time(k.I) * 10 * us); k.I == 0 {
			mode = lock.Exclusive
		}
		k.Acquire(mode)
		now++
		most = max(most, now)
		k.After(200 * us)
		now--
		k.Release()
	})
	if most != 5 {
		t.Errorf("%d readers share the lock, want 5", most)
	}
}
