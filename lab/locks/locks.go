package locks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

// ErrUnknown: no mechanism has the name.
var ErrUnknown = errors.New("locks: unknown lock mechanism")

// Config says for what cluster a mechanism is set up.
type Config struct {
	// CNs and Clients (of each compute node) are the most that there will be: queues are sized for them.
	CNs, Clients int
	// Counter is a word of 8 zero bytes on a memory node, by which compute nodes
	// synchronise their clocks. Mechanisms without timestamps leave it alone.
	Counter fabric.Addr
	// SyncIntervalNs is the time between clock synchronisations; 0 is the paper's second,
	// negative is never.
	SyncIntervalNs fabric.Time
	// Tokens asks for fencing tokens from the mechanisms whose papers have none. It costs
	// them a word and an operation; without, they are as published, and Hold.Token is 0.
	Tokens bool
	// LeaseNs is for how long a lock with leases (dslr, shift; of drtm: its readers) may be held; 0 is the papers' 10 ms (drtm: 1 ms). On a
	// machine that stops a client for longer, it must be more.
	LeaseNs fabric.Time
	// LongestNs is the longest lease that clients ask for (lock.Request.LeaseNs), of locks that can choose: New fails if it cannot be. 0: LeaseNs.
	LongestNs fabric.Time
	// ServerNs is how long a worker of a server (rpc, server) takes for a request: in virtual time about [ServerNs]. 0: what it takes.
	ServerNs fabric.Time
	// PollNs is for how long a waiter of dslr pauses for each ticket before its own: in virtual time [PollNs]. 0: the 5 us of its paper's cluster.
	PollNs fabric.Time
	// Home returns which of the compute nodes, from 0, a lock is at, for locks that may be where they are asked for most ("parlock:local", "fiss:local"); nil: by a hash of its address. LocalNs is
	// how long a client of that node takes for a request: in virtual time a message within a node. 0: what it takes.
	Home    func(fabric.Addr) int
	LocalNs fabric.Time
	// CapacityBits, if not 0, makes DecLock's queues 2^n entries long.
	CapacityBits uint8
}

// Needs are the capabilities of a fabric that a mechanism cannot do without.
type Needs struct {
	Masked   bool // 8-byte masked atomics
	Atomic16 bool // 16-byte masked atomics
}

// Check returns fabric.ErrUnsupported, with the name of what is missing.
func (n Needs) Check(c fabric.Caps) error {
	switch {
	case n.Atomic16 && !c.Atomic16:
		return fmt.Errorf("%w: %s has no 16-byte masked atomics (capability Atomic16)", fabric.ErrUnsupported, c.Fabric)
	case n.Masked && !c.Masked:
		return fmt.Errorf("%w: %s has no masked atomics (capability Masked)", fabric.ErrUnsupported, c.Fabric)
	}
	return nil
}

// A Mechanism is a kind of lock.
type Mechanism struct {
	Name  string
	About string // one line
	Needs Needs
	// Exclusive: there are no shared holders; Shared requests are granted one at a time.
	Exclusive bool
	// Silent: compute nodes send each other no messages, so figures do not depend on how long these take.
	Silent bool

	setUp func(*Config) (*System, error)
}

// New sets the mechanism up for a cluster.
func (m Mechanism) New(c Config) (*System, error) {
	if c.CNs < 1 || c.CNs > int(fabric.MaxCN) || c.Clients < 1 || c.Clients > fabric.MaxClientIndex {
		return nil, fmt.Errorf("locks: %d compute nodes of %d clients: from 1 to %d of 1 to %d",
			c.CNs, c.Clients, fabric.MaxCN, fabric.MaxClientIndex)
	}
	s, err := m.setUp(&c)
	if err != nil {
		return nil, fmt.Errorf("locks: %s: %w", m.Name, err)
	}
	s.mechanism = m
	return s, nil
}

// A System is a mechanism, set up for one cluster.
type System struct {
	mechanism Mechanism
	layout    lock.Layout
	join      func(fabric.Node) *Node
	program   func() (pswitch.Program, error)
	used      uint64
	profile   func(hottest func(n int) []fabric.Addr)
}

// Profile tells a mechanism that asks for them which n locks are asked for most often, the hottest first: before the program is made, and nodes join. Without it,
// such a mechanism takes the first locks that are asked for.
func (s *System) Profile(hottest func(n int) []fabric.Addr) {
	if s.profile != nil {
		s.profile(hottest)
	}
}

// Used returns the first word of a free lock that readers had last, 0 if they leave nothing that costs the next client an operation.
func (s *System) Used() uint64 { return s.used }

// Program returns what a programmable switch runs for the mechanism, nil if it needs none. A simulated cluster gets the switch before its compute
// nodes; on other fabrics one of these plays it.
func (s *System) Program() (pswitch.Program, error) {
	if s.program == nil {
		return nil, nil
	}
	return s.program()
}

// Layout returns how many bytes a lock takes, and their alignment. Zeroed memory is a free lock.
func (s *System) Layout() lock.Layout { return s.layout }

// Join sets a compute node up. It fails if the fabric lacks what the mechanism needs.
func (s *System) Join(n fabric.Node) (*Node, error) {
	if err := s.mechanism.Needs.Check(n.Caps()); err != nil {
		return nil, fmt.Errorf("locks: %s: %w", s.mechanism.Name, err)
	}
	return s.join(n), nil
}

// A Node is a compute node's part of a System.
type Node struct {
	// Locker returns the Locker of a client of the node, over the client's Port.
	Locker func(fabric.Port) lock.Locker
	// Run runs the node's agent on the node's agent Port until that is closed; it must be running while clients use locks. What goes
	// wrong without ending it goes to report (nil: nowhere). nil: there is no agent.
	Run func(report func(error)) error
}

// All lists the mechanisms in the order of the papers' figures.
func All() []Mechanism { return append([]Mechanism(nil), mechanisms...) }

// Names lists the names of All.
func Names() []string {
	names := make([]string, len(mechanisms))
	for i, m := range mechanisms {
		names[i] = m.Name
	}
	return names
}

// Lookup returns the mechanism of a name. Besides those of All there are "retry-on-fail", which is cas, "srvlock", which is server:8,
// "local-bound:N", with a bound of N, and policies of DecLock with features: "declock-pf+batch"
// (see hier.ParsePolicy); "drtm:half", whose readers join a lease only if half of it is left, and "drtm:N" and "drtm:half:N", by clocks that may be off by N microseconds; "dslr:busy", which polls without a pause, "dslr:slots", with leases of several slots, "dslr:wait:N", whose waiters pause for N microseconds (or 0.5, say) for each ticket before their own, and "dslr:N", whose clients pause for at most N
// microseconds while counters are reset, "dslr:withdraw:N" the same with tickets that are taken back meanwhile, as in its paper; "shift-artifact:N", whose readers come after N writers in a row, "shift-artifact:pause", whose waiters pause between READs as its authors run it, "shift-artifact:casN", whose writers try a free lock N times before they queue, and several of these with colons; "dslr:shiftlock" and "rpc:shiftlock", as
// ShiftLock's authors run them; "rpc:N", "server:N", "server-ro:N" and "parlock:N", whose servers have N workers;
// "parlock:ro", whose readers pass writers; "fiss:N", whose switch has registers for N locks; "parlock:local" and "fiss:local", whose locks are at compute nodes ([Config.Home]), of which
// clients take them without a message.
func Lookup(name string) (Mechanism, error) {
	for _, m := range mechanisms {
		if m.Name == name {
			return m, nil
		}
	}
	if m, ok := varied(name); ok {
		return m, nil
	}
	return Mechanism{}, fmt.Errorf("%w %q: one of %s", ErrUnknown, name, strings.Join(Names(), ", "))
}
