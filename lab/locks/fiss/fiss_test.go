package fiss_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/fiss"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock/locktest"
)

func join(cfg fiss.Config) locktest.Join[*fiss.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *fiss.Locker, locktest.Agent) {
		pool := fiss.NewPool(n, cfg)
		return func(p fabric.Port) *fiss.Locker { return fiss.New(p, pool) }, fiss.NewAgent(n, pool)
	}
}

// local has all locks at two machines.
func local(cfg fiss.Config) fiss.Config {
	cfg.Home = func(a fabric.Addr) int { return server.HomeOf(a, 2) }
	return cfg
}

// On all fabrics the agent of the first compute node plays the switch.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]fiss.Config{"tokens": {}, "plain": {Plain: true}, "most locks at servers": {Locks: 1, Server: server.Config{Homes: 2}},
		"locks at machines": local(fiss.Config{})} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start}
		t.Run(name, func(t *testing.T) { locktest.Form(t, 3, m, name == "tokens" || name == "most locks at servers") })
	}
}

// lossy is a switch that loses, repeats and delays packets.
var lossy = sim.SwitchModel{Pass: 400, Packet: 1, Drop: 0.05, Twice: 0.1, Late: 0.1, LateNs: 20 * fabric.Microsecond}

// allLossy does the same to messages between machines.
var allLossy = sim.SwitchModel{Pass: 400, Packet: 1, Drop: 0.05, Twice: 0.1, Late: 0.1, LateNs: 20 * fabric.Microsecond, Between: true}

// With a switch in the simulator, one that does all that a network may do to packets included.
func TestConformanceOnSwitch(t *testing.T) {
	for name, x := range map[string]struct {
		cfg   fiss.Config
		model sim.SwitchModel
	}{
		"true":                     {fiss.Config{Device: true}, sim.SwitchModel{Pass: 400, Packet: 1}},
		"lossy":                    {fiss.Config{Device: true, ResendNs: 10 * fabric.Microsecond}, lossy},
		"all lossy":                {fiss.Config{Device: true, ResendNs: 10 * fabric.Microsecond, Acks: true}, allLossy},
		"locks at machines":        {local(fiss.Config{Device: true}), sim.SwitchModel{Pass: 400, Packet: 1}},
		"locks at machines, lossy": {local(fiss.Config{Device: true, ResendNs: 10 * fabric.Microsecond}), lossy},
		"servers":                  {fiss.Config{Device: true, Locks: 1, Server: server.Config{Homes: 2}}, sim.SwitchModel{Pass: 400, Packet: 1}},
	} {
		program := func() pswitch.Program {
			p, err := fiss.NewProgram(x.cfg)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		m := locktest.Mechanism{Layout: x.cfg.Layout(), Start: join(x.cfg).Start, Lasts: x.model.Drop > 0} // a lost FREE keeps others out
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) { locktest.Run(t, locktest.SimSwitch(seed, program, x.model), m) })
		}
	}
}
