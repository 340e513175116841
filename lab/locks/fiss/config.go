package fiss

import (
	"cmp"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// Config chooses a variant. All machines and the switch must have the same.
type Config struct {
	// Plain: no word for tokens.
	Plain bool
	// Locks is how many locks the switch has registers for. 0: 2^20.
	Locks int
	// IncarnationBits is the width of a lock's incarnation, 8 as published, 16 or 32. 0: as many as there is memory for, so 16 with 2^20 locks.
	IncarnationBits int
	// Slots is how many operations a machine may have under way with the switch. 0: 256, at most 4096.
	Slots int
	// Machines bounds the numbers of compute nodes: the switch has registers for each slot of each machine with a lower one. 0: 256.
	Machines int
	// Passes is how many readers may pass a writer that waits, until the agent has the switch bar them. 0: 16.
	Passes int
	// Server is that of the locks for which the switch has no registers, and Device says that the switch is a node of its own, which has no server.
	Server server.Config
	Device bool
	// Switch is the switch's number. 0: the lowest one that is live when a machine joins, which must not be away then.
	Switch fabric.CNID
	// ResendNs is when a packet is sent anew to which no answer has come: for networks that lose or repeat packets. 0: never.
	ResendNs fabric.Time
	// Acks: messages between machines are acknowledged, and sent anew as those to the switch are, unless they are answers: for networks that lose, repeat or exchange them, too. No server's are, so the switch needs registers for all locks.
	Acks bool
	// Home returns which of the machines, from 0, a lock is at, until a first recovery: that machine grants it to its own clients without a message, and the switch sends it the requests of
	// others. All these machines must be there before locks are used. nil: locks are where they are asked for.
	Home func(fabric.Addr) int
	// LocalNs is how long a client takes for a request for a lock that is at its machine: in virtual time about that of a message within a machine. 0: what it takes.
	LocalNs fabric.Time
}

// DefaultSlots and MaxSlots are how many operations a machine has under way with the switch unless Config says otherwise, and at most.
const (
	DefaultSlots = 256
	MaxSlots     = 1 << slotBits
)

// Defaults of Config.
const (
	defaultLocks  = 1 << 20
	defaultPasses = 16
)

func (c Config) withDefaults() Config {
	c.Locks = cmp.Or(c.Locks, defaultLocks)
	c.Slots = min(cmp.Or(c.Slots, DefaultSlots), MaxSlots)
	c.Machines = cmp.Or(c.Machines, int(fabric.MaxCN)+1)
	if c.IncarnationBits == 0 {
		c.IncarnationBits = c.widest()
	}
	c.Passes = cmp.Or(c.Passes, defaultPasses)
	c.Server.Kind, c.Server.Plain, c.Server.Homes = server.Queue, true, max(c.Server.Homes, 1) // tokens are in memory, whoever grants
	return c
}

// widest returns the most bits of an incarnation for which the switch has memory.
func (c Config) widest() int {
	for _, c.IncarnationBits = range []int{32, 16} {
		if _, _, err := c.Registers(); err == nil {
			return c.IncarnationBits
		}
	}
	return 8
}

// Registers returns how many stages of the switch, and how many bits, the registers take.
func (c Config) Registers() (stages int, bits uint64, err error) {
	c = c.withDefaults()
	var m pswitch.Memory
	for _, a := range new(Program).arrays(&c) {
		take := m.Take
		if a.beside {
			take = m.TakeBeside
		}
		if err := take(a.n, a.width); err != nil {
			return 0, 0, fmt.Errorf("fiss: %s: %w", a.name, err)
		}
	}
	stages, bits = m.Used()
	return stages, bits, nil
}

// Layout returns the layout of a lock. Only the word of tokens means anything.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }

// wrap returns an incarnation as its register has it.
func (c *Config) wrap(v uint64) uint64 { return v & (1<<c.IncarnationBits - 1) }

// ahead returns by how much an incarnation is ahead of another, as far as registers tell.
func (c *Config) ahead(v, of uint64) int64 {
	shift := 64 - c.IncarnationBits
	return int64((v-of)<<shift) >> shift
}

// first returns the number of the first machine, which has those of others behind it.
func (c *Config) first() fabric.CNID {
	first := max(c.Switch, 1)
	if c.Device {
		first++
	}
	return first
}

// homeOf returns the machine that a lock is at, with Config.Home.
func (c *Config) homeOf(l fabric.Addr) fabric.CNID { return c.first() + fabric.CNID(c.Home(l)) }

// switchOf returns the switch's number. In the simulator the switch is a node of its own, if it was added first (Device); otherwise the agent of
// that compute node plays it, and must stay.
func (c *Config) switchOf(v fabric.View) fabric.CNID {
	first, _ := v.Live.Next(0)
	return cmp.Or(c.Switch, first)
}
