package netlock

import (
	"cmp"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// Config chooses a variant. All machines and the switch must have the same.
type Config struct {
	// Plain: no word for tokens.
	Plain bool
	// Hot are the locks that have queues on the switch; nil: the first ones that are asked for.
	Hot []fabric.Addr
	// Locks is how many locks may have queues on the switch, and Queue how many entries each has. 0: 10,000 and 10, as in FissLock's evaluation.
	Locks, Queue int
	// Slots is how many requests and releases a machine may have under way. 0: 256, at most 4096.
	Slots int
	// Server is that of the other locks, and Device says that the switch is a node of its own, which has no server.
	Server server.Config
	Device bool
	// ResendNs is when a packet is sent anew to which no answer has come: for networks that lose, repeat or exchange packets. 0: never.
	ResendNs fabric.Time
}

// DefaultLocks is how many locks have queues on the switch, and Entries how many entries these have in all, as in FissLock's evaluation.
const (
	DefaultLocks = 10_000
	Entries      = 100_000
)

// Defaults of Config.
const (
	defaultQueue = Entries / DefaultLocks
	defaultSlots = 256
	maxQueue     = countMask
)

func (c Config) withDefaults() Config {
	c.Locks, c.Queue = cmp.Or(c.Locks, DefaultLocks), min(cmp.Or(c.Queue, defaultQueue), maxQueue)
	c.Slots = min(max(cmp.Or(c.Slots, defaultSlots), 2), 1<<slotBits)
	c.Server.Kind, c.Server.Plain = server.Queue, true // tokens are in memory, whoever grants
	return c
}

// Layout returns the layout of a lock. Only the word of tokens means anything.
func (c Config) Layout() lock.Layout { return baseline.Layout(c.Plain) }

// switchOf returns the switch, and the machine that has the server: the lowest numbers that are live when a machine joins. They must stay. In the simulator
// the switch is a node of its own, if it was added first (Device); otherwise the first machine's agent plays it.
func (c *Config) switchOf(n fabric.Node) (itself, server fabric.CNID) {
	first, _ := n.View().Live.Next(0)
	if c.Device {
		return first, first + 1
	}
	return first, first
}
