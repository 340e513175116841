package netlock_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/netlock"
	"github.com/declock/declock/lock/locktest"
)

func join(cfg netlock.Config) locktest.Join[*netlock.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *netlock.Locker, locktest.Agent) {
		pool := netlock.NewPool(n, cfg)
		return func(p fabric.Port) *netlock.Locker { return netlock.New(p, pool) }, netlock.NewAgent(n, pool)
	}
}

// On all fabrics the agent of the first compute node plays the switch.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]netlock.Config{"tokens": {}, "plain": {Plain: true}, "short queues": {Queue: 6, Slots: 16}, "most locks at the server": {Locks: 1}, "no lock on the switch": {Hot: []fabric.Addr{}}} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start}
		t.Run(name, func(t *testing.T) { locktest.Form(t, 3, m, name == "tokens" || name == "short queues") })
	}
}

// lossy is a switch that loses, repeats and delays packets.
var lossy = sim.SwitchModel{Pass: 400, Packet: 1, Drop: 0.05, Twice: 0.1, Late: 0.1, LateNs: 20 * fabric.Microsecond}

// With a switch in the simulator, one that does all that a network may do to packets included.
func TestConformanceOnSwitch(t *testing.T) {
	sound := sim.SwitchModel{Pass: 400, Packet: 1}
	for name, x := range map[string]struct {
		cfg   netlock.Config
		model sim.SwitchModel
	}{
		"true":    {netlock.Config{Device: true}, sound},
		"lossy":   {netlock.Config{Device: true, ResendNs: 10 * fabric.Microsecond}, lossy},
		"servers": {netlock.Config{Device: true, Locks: 1}, sound},
	} {
		program := func() pswitch.Program {
			p, err := netlock.NewProgram(x.cfg)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		m := locktest.Mechanism{Layout: x.cfg.Layout(), Start: join(x.cfg).Start, Lasts: x.model.Drop > 0} // a lost release keeps others out
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) { locktest.Run(t, locktest.SimSwitch(seed, program, x.model), m) })
		}
	}
}
