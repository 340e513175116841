package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/fiss"
	"github.com/declock/declock/lab/locks/netlock"
	"github.com/declock/declock/lab/locks/server"
)

// fiss returns the configuration of FissLock: with few registers, for a switch is made for each scenario.
func (s *Scenario) fiss() fiss.Config {
	cfg := fiss.Config{Locks: cmp.Or(s.Registers, 64), Slots: 512, Passes: 4, Device: s.Switch > 0, Switch: fabric.CNID(s.Switch), Server: server.Config{Homes: s.CNs}}
	if s.Local > 0 {
		cfg.Home = func(a fabric.Addr) int { return server.HomeOf(a, s.CNs) }
	}
	if s.Clients == 0 {
		cfg.Slots = 8 // an exploration makes many
	}
	if s.Dropped+s.Copied > 0 {
		cfg.ResendNs = 10 * fabric.Microsecond
	}
	cfg.Acks = s.Between > 0
	return cfg
}

// switched draws what the switch does to packets.
func (s *Scenario) switched(d *drawer) {
	s.Lock, s.CountMax = "fiss", 0
	s.Try, s.Deadline, s.Cancel = pick(d, 0, 10), pick(d, 0, 20, 60), pick(d, 0, 20, 60)
	s.WaitNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	if d.percent(30) {
		s.Registers = 1
	}
	if d.percent(15) {
		return // a compute node plays the switch
	}
	s.Switch = 1
	s.Dropped, s.Copied, s.Delayed = pick(d, 0, 1, 5, 20), pick(d, 0, 5, 30), pick(d, 0, 5, 30)
	s.PacketNs = pick(d, fabric.Microsecond, 20*fabric.Microsecond, 200*fabric.Microsecond)
}

// switchedCrash draws which nodes crash, and how often the switch. A compute node that plays the switch stays, and so do servers of locks without registers.
func (s *Scenario) switchedCrash(d *drawer) {
	s.Registers, s.DetectNs = 0, pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond)
	if s.Switch > 0 {
		s.Fails = pick(d, 0, 1, 1, 3)
	}
	if s.Fails == 0 || d.percent(60) {
		s.crashAllBut(d, s.kill)
	}
	if s.Switch == 0 {
		s.Plan = slices.DeleteFunc(s.Plan, func(f sim.Fault) bool { return f.Node == sim.OfCN(1) })
	}
}

// switchedLeave draws which nodes leave in order, and join, of the classes that all draw crashes of. A compute node that plays the switch stays.
func (s *Scenario) switchedLeave(d *drawer) {
	if d.percent(40) {
		s.Plan, s.Fails, s.Registers = nil, 0, 0
	} else {
		s.switchedCrash(d)
	}
	s.Joins, s.Leaves = pick(d, 0, 1, 2), d.between(1, 3)
	s.NewsNs = pick(d, 0, 3*fabric.Microsecond, 30*fabric.Microsecond, 300*fabric.Microsecond)
}

// switchedLocal draws a lock that is at a compute node, and what becomes of packets and nodes.
func (s *Scenario) switchedLocal(d *drawer) {
	s.switched(d)
	s.Local, s.Registers = 1, 0
	switch d.between(0, 3) {
	case 0:
		s.Lock, s.Switch, s.Dropped, s.Copied, s.Delayed, s.PacketNs = "parlock", 0, 0, 0, 0, 0
	case 1:
		s.switchedCrash(d)
	}
}

// switchedLoss draws what becomes of all packets, those between compute nodes too, and of nodes. No server's packets are sent anew, so the switch has registers for all locks.
func (s *Scenario) switchedLoss(d *drawer) {
	s.switched(d)
	s.Switch, s.Between, s.Registers = 1, 1, 0
	s.Dropped, s.Copied, s.Delayed = pick(d, 1, 5, 20), pick(d, 0, 5, 30), pick(d, 0, 5, 30)
	s.PacketNs = pick(d, fabric.Microsecond, 20*fabric.Microsecond, 200*fabric.Microsecond)
	switch d.between(0, 4) {
	case 0:
		s.switchedCrash(d)
	case 1:
		s.switchedLeave(d)
	case 2:
		s.Local = 1
	}
	s.Registers, s.Rounds = 0, min(s.Rounds, 20) // there are some times as many messages
}

// makeSwitch adds the programmable switch with the program of the scenario's lock.
func (w *world) makeSwitch() error {
	if w.s.Lock == "netlock" {
		program, err := netlock.NewProgram(w.s.netlock())
		if err == nil {
			w.addSwitch(program)
		}
		return err
	}
	program, err := fiss.NewProgram(w.s.fiss())
	if err == nil {
		w.program = program
		w.addSwitch(program)
	}
	return err
}

// addSwitch adds the programmable switch.
func (w *world) addSwitch(program pswitch.Program) {
	share := func(percent int) float64 { return float64(percent) / 100 }
	w.theSwitch = w.c.AddSwitch(program, sim.SwitchModel{Pass: 400, Packet: 1, Drop: share(w.s.Dropped), Twice: share(w.s.Copied), Late: share(w.s.Delayed), LateNs: w.s.PacketNs, Between: w.s.Between > 0})
	if id := w.theSwitch.ID(); id != 1 {
		w.object("errors", fmt.Sprintf("the switch has become %v", id))
	}
}

// startSwitchFailures has the switch fail at some times.
func (w *world) startSwitchFailures() {
	d := &drawer{newRand(w.s.Seed, streamSwitch)}
	for range w.s.Fails {
		at, away := w.began+w.s.at(d), d.time(fabric.Millisecond)
		w.c.At(at, func() { w.failSwitch(away) })
	}
}

// failSwitch has the switch fail, unless it is away. Some time after its failure is known, another with empty registers takes its place.
func (w *world) failSwitch(away fabric.Time) {
	failed := w.theSwitch
	if failed == nil {
		return
	}
	w.theSwitch = nil
	w.c.Kill(failed)
	var replace func()
	replace = func() {
		if !failed.Fenced() {
			w.c.At(w.c.Now()+10*fabric.Microsecond, replace)
			return
		}
		program, err := w.program.Restart()
		if err != nil {
			w.object("errors", err.Error())
			return
		}
		w.program = program
		w.addSwitch(program)
	}
	w.c.At(w.c.Now()+away, replace)
}
