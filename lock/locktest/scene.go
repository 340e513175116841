package locktest

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// A Scene is a simulated cluster with one lock: what happens on it has its time, so a test says in which order clients come.
type Scene struct {
	*sim.Cluster
	Nodes []*sim.Node
	Lock  fabric.Addr
	t     testing.TB
}

// Play runs a body for each of some clients, all on nodes of their own, that join sets up. It
// returns the scene as they have left it.
func Play[L lock.Locker](t testing.TB, clients int, join Join[L], body func(*Actor[L])) *Scene {
	t.Helper()
	s := &Scene{Cluster: sim.New(sim.Config{NIC: sim.Ideal()}), t: t}
	t.Cleanup(func() { s.Close() })
	s.Lock = fabric.At(s.AddMN(1<<20), 4096)
	for i := range clients {
		n := s.AddCN()
		s.Nodes = append(s.Nodes, n)
		locker, agent := join(n)
		if agent != nil {
			s.GoAgent(n, func(fabric.Port) {
				if err := agent.Run(func(err error) { t.Error(err) }); err != nil {
					t.Error(err)
				}
			})
		}
		s.Go(n, fmt.Sprint(i), func(p fabric.Port) { body(&Actor[L]{Scene: s, I: i, L: locker(p), P: p}) })
	}
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Words checks the words of the lock.
func (s *Scene) Words(when string, want ...uint64) {
	s.t.Helper()
	for i, w := range want {
		if got := s.PeekWord(s.Lock.Add(8 * uint64(i))); got != w {
			s.t.Errorf("%s: word %d is %#016x, want %#016x", when, i, got, w)
		}
	}
}

// An Actor is a client of a Scene.
type Actor[L lock.Locker] struct {
	*Scene
	I int // of the clients, from 0
	L L
	P fabric.Port
	H lock.Hold
}

// At waits until a time.
func (k *Actor[L]) At(when fabric.Time) { _ = k.P.Pause(when) }

// After waits for some time.
func (k *Actor[L]) After(d fabric.Time) { k.At(k.P.Now() + d) }

// Must reports an error.
func (k *Actor[L]) Must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Errorf("client %d: %v", k.I, err)
	}
}

// Acquire acquires the scene's lock with H, which must succeed.
func (k *Actor[L]) Acquire(m lock.Mode) {
	k.t.Helper()
	k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: m}))
}

// Release releases H, which must succeed.
func (k *Actor[L]) Release() {
	k.t.Helper()
	k.Must(k.L.Release(&k.H, nil))
}
