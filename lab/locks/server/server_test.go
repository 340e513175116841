package server_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

// join returns how a node gets locks of a variant.
func join(cfg server.Config) locktest.Join[*server.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *server.Locker, locktest.Agent) {
		return func(p fabric.Port) *server.Locker {
			l := server.New(p, server.ServerOf(n), cfg)
			l.Incarnation = server.IncarnationOf(n)
			return l
		}, server.NewAgent(n, cfg)
	}
}

// joinNear is join of clients that execute their requests to the server of their own node.
func joinNear(cfg server.Config) locktest.Join[*server.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *server.Locker, locktest.Agent) {
		agent := server.NewAgent(n, cfg)
		return func(p fabric.Port) *server.Locker {
			l := server.New(p, server.ServerOf(n), cfg)
			l.Near, l.Incarnation = agent, server.IncarnationOf(n)
			return l
		}, agent
	}
}

// The conformance suite also holds where clients of a node access the server's table beside it.
func TestConformanceNear(t *testing.T) {
	for name, cfg := range map[string]server.Config{
		"one server":                  {Kind: server.Queue},
		"servers on two nodes":        {Kind: server.Queue, Homes: 2},
		"retry":                       {Kind: server.Retry, Homes: 2},
		"readers first":               {Kind: server.ReadersFirst, Homes: 2},
		"slow servers, local locks":   {Kind: server.Queue, Homes: 2, ServiceNs: us, LocalNs: 150, Home: func(fabric.Addr) int { return 0 }},
		"slow servers, distant locks": {Kind: server.Queue, Homes: 2, ServiceNs: us, LocalNs: 150, Home: func(fabric.Addr) int { return 1 }},
	} {
		m := locktest.Mechanism{Layout: server.Layout, Start: joinNear(cfg).Start}
		t.Run(name, func(t *testing.T) {
			if cfg.ServiceNs > 0 {
				locktest.Run(t, locktest.Sim(1), m)
				return
			}
			locktest.Form(t, 3, m, name == "servers on two nodes")
		})
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]server.Config{
		"retry":                {Kind: server.Retry},
		"retry, answered":      {Kind: server.Retry, Answered: true},
		"queue":                {Kind: server.Queue},
		"queue, plain":         {Kind: server.Queue, Plain: true},
		"readers first":        {Kind: server.ReadersFirst},
		"retry, slow servers":  {Kind: server.Retry, ServiceNs: us, Workers: 2},
		"queue, a slow server": {Kind: server.Queue, ServiceNs: us},
	} {
		m := locktest.Mechanism{Layout: server.Layout, NoTokens: cfg.Plain, Start: join(cfg).Start}
		t.Run(name, func(t *testing.T) {
			if cfg.ServiceNs > 0 {
				locktest.Run(t, locktest.Sim(1), m)
				return
			}
			locktest.All(t, 3, m)
		})
	}
}

type actor = locktest.Actor[*server.Locker]

// Of two clients that queue the first to come is the first to be granted; with Retry it is chance; readers pass a writer with ReadersFirst, and only a
// number of them.
func TestKinds(t *testing.T) {
	for kind, want := range map[server.Kind]int{server.Queue: 0, server.ReadersFirst: 3} {
		var order []lock.Mode
		locktest.Play(t, 7, join(server.Config{Kind: kind, Passes: 3}), func(k *actor) {
			mode := lock.Shared
			if k.I == 1 {
				mode = lock.Exclusive
			}
			k.At(fabric.Time(k.I) * 10 * us)
			k.Acquire(mode)
			order = append(order, mode)
			k.After(200 * us)
			k.Release()
		})
		if before := slices.Index(order, lock.Exclusive) - 1; len(order) != 7 || before != want {
			t.Errorf("kind %v: grants %v, %d readers pass the writer, want %d", kind, order, before, want)
		}
	}
}

// Requests wait for a worker: throughput is workers over service time.
func TestServiceTime(t *testing.T) {
	for _, workers := range []int{1, 4} {
		requests, until := 0, 2*fabric.Millisecond
		s := locktest.Play(t, 16, join(server.Config{Kind: server.Queue, ServiceNs: 10 * us, Workers: workers}), func(k *actor) {
			own := k.Lock.Add(8 * uint64(k.I))
			for k.P.Now() < until {
				k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: own, Mode: lock.Exclusive}))
				k.Release()
				requests += 2
			}
		})
		// The last releases are still under way.
		if most := workers * int(s.Now()/(10*us)); requests > most+16 || requests < most*8/10 {
			t.Errorf("%d workers: %d requests in %d us, want about %d", workers, requests, s.Now()/us, most)
		}
	}
}

// A client that gives up is taken out of the queue; what was granted to it meanwhile is released.
func TestGiveUp(t *testing.T) {
	for _, deadline := range []fabric.Time{60 * us, 108 * us} { // while it waits; while the grant is on its way
		grants := 0
		locktest.Play(t, 3, join(server.Config{Kind: server.Queue}), func(k *actor) {
			k.At(fabric.Time(k.I) * 10 * us)
			r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive}
			if k.I == 1 {
				r.Deadline = deadline
			}
			switch err := k.L.Acquire(&k.H, &r); {
			case err == nil:
				grants++
				k.At(100 * us)
				k.Release()
			case k.I != 1 || !errors.Is(err, lock.ErrTimeout):
				t.Errorf("client %d: %v", k.I, err)
			}
		})
		if grants < 2 {
			t.Errorf("deadline at %d us: %d grants", deadline/us, grants)
		}
	}
}

// When a node crashes, the server releases what its clients held, and forgets what they wanted.
func TestCrash(t *testing.T) {
	for _, kind := range []server.Kind{server.Retry, server.Queue} {
		c := sim.New(sim.Config{NIC: sim.Ideal(), DetectDelay: 50 * us})
		defer c.Close()
		a := fabric.At(c.AddMN(1<<20), 4096)
		granted := fabric.Time(0)
		for i := range 4 { // the server, a holder, a waiter, and one that stays
			n, cfg := c.AddCN(), server.Config{Kind: kind}
			c.GoAgent(n, func(fabric.Port) { _ = server.NewAgent(n, cfg).Run(nil) })
			if i == 0 {
				continue
			}
			c.Go(n, "client", func(p fabric.Port) {
				var h lock.Hold
				_ = p.Pause(fabric.Time(i) * 10 * us)
				l := server.New(p, server.ServerOf(n), cfg)
				if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive, Deadline: fabric.Millisecond}); err != nil {
					t.Error(err)
				}
				if granted = p.Now(); i == 3 {
					_ = l.Release(&h, nil)
				}
				_ = p.Pause(fabric.Second)
			})
			if i < 3 {
				c.At(100*us, func() { c.Kill(n) })
			}
		}
		if err := c.Run(); err != nil {
			t.Error(err)
		}
		if granted < 150*us || granted > 300*us {
			t.Errorf("kind %v: granted at %d us, want soon after the crash is noticed at 150", kind, granted/us)
		}
	}
}

// Each writer that waits is passed by so many readers, by 10 if that is not given, as in DSLR's evaluation, and not the first one alone.
func TestEachWriterIsPassed(t *testing.T) {
	const rounds, length = 3, 2 * fabric.Millisecond
	for passes, want := range map[int]int{3: 3, 0: 10} {
		var order [rounds][]lock.Mode
		locktest.Play(t, 14, join(server.Config{Kind: server.ReadersFirst, Passes: passes}), func(k *actor) {
			mode := lock.Shared
			if k.I == 1 {
				mode = lock.Exclusive
			}
			for i := range order {
				k.At(fabric.Time(i)*length + fabric.Time(k.I)*10*us)
				k.Acquire(mode)
				order[i] = append(order[i], mode)
				k.After(200 * us)
				k.Release()
			}
		})
		for i := range order {
			if before := slices.Index(order[i], lock.Exclusive) - 1; before != want {
				t.Errorf("round %d: grants %v, %d readers pass the writer, want %d", i, order[i], before, want)
			}
		}
	}
}

// Readers that wait behind a writer pass it when a reader before it is granted the lock.
func TestQueuedReadersPass(t *testing.T) {
	var order []int
	locktest.Play(t, 7, join(server.Config{Kind: server.ReadersFirst, Passes: 3}), func(k *actor) {
		mode := lock.Shared
		if k.I == 0 || k.I == 2 {
			mode = lock.Exclusive
		}
		k.At(fabric.Time(k.I) * 10 * us)
		k.Acquire(mode)
		order = append(order, k.I)
		k.After(200 * us)
		k.Release()
	})
	if len(order) != 7 || slices.Index(order, 2) != 5 {
		t.Errorf("grants in the order %v, want the writer 2 behind the readers 1, 3, 4 and 5", order)
	}
}

// When the server has crashed, requests wait until their deadlines, and fail once the crash has been noticed.
func TestServerCrashes(t *testing.T) {
	c := sim.New(sim.Config{NIC: sim.Ideal(), DetectDelay: 50 * us})
	defer c.Close()
	a, cfg := fabric.At(c.AddMN(1<<20), 4096), server.Config{Kind: server.Queue}
	var got []error
	for i := range 2 {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) { _ = server.NewAgent(n, cfg).Run(nil) })
		if i == 0 {
			c.At(100*us, func() { c.Kill(n) })
			continue
		}
		of := server.ServerOf(n)
		c.Go(n, "client", func(p fabric.Port) {
			l := server.New(p, of, cfg)
			for _, at := range []fabric.Time{120 * us, fabric.Millisecond} { // before the crash is noticed, and after that
				var h lock.Hold
				_ = p.Pause(at)
				got = append(got, l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive, Deadline: at + 500*us}))
			}
		})
	}
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	if len(got) != 2 || !errors.Is(got[0], lock.ErrTimeout) || !errors.Is(got[1], fabric.ErrNodeDown) {
		t.Errorf("%v, want a deadline, and a node that is down", got)
	}
}

// A release is a message, which takes its client no time, or waits for an answer: as long as one of its own and the server's work take. It does not wait for a server that has crashed.
func TestReleaseIsAnswered(t *testing.T) {
	for _, answered := range []bool{false, true} {
		for _, crash := range []bool{false, true} {
			locktest.Play(t, 2, join(server.Config{Kind: server.Retry, Answered: answered, ServiceNs: 10 * us}), func(k *actor) {
				if k.I == 0 {
					return
				}
				k.Acquire(lock.Exclusive)
				if crash {
					k.Kill(k.Nodes[0])
				}
				began := k.P.Now()
				_ = k.L.Release(&k.H, nil)
				if took := k.P.Now() - began; took > 10*fabric.Millisecond+us || !crash && (took > 10*us) != answered {
					t.Errorf("answered %v, the server has crashed %v: a release takes %d us", answered, crash, took/us)
				}
			})
		}
	}
}
