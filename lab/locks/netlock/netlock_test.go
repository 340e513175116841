package netlock_test

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/netlock"
	"github.com/declock/declock/lock"
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

// Machines come in the number of others that have left, or crashed, with nothing held, and use the same locks: each gets them, and none beside one that stays and holds one. With a switch,
// one that loses packets too, and without.
func TestMachinesComeInOneNumber(t *testing.T) {
	for name, cfg := range map[string]netlock.Config{"switch": {Device: true}, "lossy": {Device: true, ResendNs: 10 * fabric.Microsecond}, "short queues": {Device: true, Queue: 1}, "no switch": {}} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) { comeInOneNumber(t, cfg, seed) })
		}
	}
}

func comeInOneNumber(t *testing.T, cfg netlock.Config, seed uint64) {
	const ms = fabric.Millisecond
	c := sim.New(sim.Config{Seed: seed})
	defer c.Close()
	kept := fabric.At(c.AddMN(1<<20), 4096)
	if cfg.Device {
		program, err := netlock.NewProgram(cfg)
		if err != nil {
			t.Fatal(err)
		}
		model := sim.SwitchModel{Pass: 400, Packet: 1}
		if cfg.ResendNs > 0 {
			model = lossy
		}
		c.AddSwitch(program, model)
	}
	add := func(clients int, body func(i int, p fabric.Port, l *netlock.Locker)) *sim.Node {
		n := c.AddCN()
		locker, agent := join(cfg)(n)
		c.GoAgent(n, func(fabric.Port) { _ = agent.Run(func(err error) { t.Error(err) }) })
		for i := range clients {
			c.Go(n, "client", func(p fabric.Port) { body(i, p, locker(p)) })
		}
		return n
	}
	add(1, func(_ int, p fabric.Port, l *netlock.Locker) { hold(t, p, l, kept, fabric.Forever, 150*ms) })
	granted := 0
	var next func()
	var number fabric.CNID
	next = func() {
		uses := granted%3 + 1
		n := add(2, func(i int, p fabric.Port, l *netlock.Locker) {
			for k := range uses {
				hold(t, p, l, kept.Add(uint64(64*(1+(i+k)%2))), p.Now()+5*ms, p.Now()+10*fabric.Microsecond)
			}
			granted++
			var h lock.Hold
			if err := l.Acquire(&h, &lock.Request{Lock: kept, Mode: lock.Exclusive, Try: true}); err == nil {
				t.Errorf("a second machine has the lock that another holds")
			}
		})
		if number != 0 && n.ID() != number {
			t.Errorf("the machine's number is %v, want %v", n.ID(), number)
		}
		number = n.ID()
		c.At(c.Now()+8*ms, func() {
			if uses == 2 {
				c.Kill(n)
			} else if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range fabric.Time(5) {
		c.At((30*i+1)*ms, next)
	}
	if err := c.RunUntil(200 * ms); err != nil {
		t.Fatal(err)
	}
	if granted != 10 {
		t.Errorf("%d clients of 10 have got their locks", granted)
	}
}

// hold holds a lock until a time.
func hold(t *testing.T, p fabric.Port, l *netlock.Locker, at fabric.Addr, deadline, until fabric.Time) {
	var h lock.Hold
	if err := l.Acquire(&h, &lock.Request{Lock: at, Mode: lock.Exclusive, Deadline: deadline}); err != nil {
		t.Errorf("%v, at %v: %v", p.ID(), p.Now(), err)
		return
	}
	_ = p.Pause(until)
	if err := l.Release(&h, nil); err != nil {
		t.Error(err)
	}
}
