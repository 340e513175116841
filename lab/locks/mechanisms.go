package locks

import (
	"slices"
	"strconv"
	"strings"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lab/locks/drtm"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lab/locks/fiss"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lab/locks/ncosed"
	"github.com/declock/declock/lab/locks/netlock"
	"github.com/declock/declock/lab/locks/qplock"
	"github.com/declock/declock/lab/locks/rmarw"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lab/locks/sherman"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// mechanisms is the registry.
var mechanisms = []Mechanism{
	{Name: "cas", About: "CAS spinlock without backoff (CASLock)", Silent: true, setUp: casLock(cas.Config{})},
	{Name: "cas-cas", About: "cas, whose writers release by a repeated CAS, as published", Silent: true, setUp: casLock(cas.Config{ReleaseByCAS: true})},
	{Name: "cas-backoff", About: "CAS spinlock with SMART's truncated exponential backoff, as ShiftLock's authors run it", Silent: true, setUp: casLock(cas.Config{BackoffMinNs: BackoffMinNs, BackoffMaxNs: BackoffMaxNs, Adaptive: true})},
	{Name: "dslr", About: "DSLR: tickets, dynamic interval polling", Silent: true, setUp: dslrLock(dslr.Config{})},
	{Name: "dslr+", About: "DSLR with truncated exponential backoff (DSLR+)", Silent: true, setUp: dslrLock(dslr.Config{Wait: dslr.Truncated})},
	{Name: "dslr+-overflow", About: "DSLR+ with the overflowing backoff of the published comparison", Silent: true, setUp: dslrLock(dslr.Config{Wait: dslr.Overflowing})},
	{Name: "drtm", About: "DrTM's lock: CAS for writers, leases for readers", Silent: true, setUp: drtmLock(drtm.Config{})},
	{Name: "ncosed", About: "N-CoSED: CAS for writers, FAA for readers, messages to the tail", setUp: ncosedLock},
	{Name: "mcs", About: "MCS lock, exclusive only (ShiftLock paper, Algorithm 1)", Needs: Needs{Masked: true}, Exclusive: true, setUp: mcsLock},
	{Name: "rmarw", About: "RMA-RW: a queue of writers, counted readers", Needs: Needs{Masked: true}, setUp: rmarwLock},
	{Name: "shift", About: "ShiftLock (Algorithms 2 and 3)", Needs: Needs{Atomic16: true}, setUp: shiftLock(shift.Config{})},
	{Name: "shift-artifact", About: "ShiftLock as published: a handover does not count in memory", Needs: Needs{Atomic16: true}, setUp: shiftLock(shift.Config{Artifact: true})},
	{Name: "sherman", About: "Sherman's hierarchical lock: local-bound over cas", Silent: true, setUp: shermanLock(false)},
	{Name: "sherman+notes", About: "sherman, whose holders leave the next one of the node what they would READ", Silent: true, setUp: shermanLock(true)},
	{Name: "rpc", About: "a server's table; clients that are refused ask again", setUp: serverLock(server.Retry, ServerWorkers)},
	{Name: "server", About: "a server's queue: the traditional lock manager", setUp: serverLock(server.Queue, ServerWorkers)},
	{Name: "server-ro", About: "server, whose readers pass writers", setUp: serverLock(server.ReadersFirst, ServerWorkers)},
	{Name: "parlock", About: "server on each compute node, for a part of the locks", setUp: parLock(server.Queue, ServerWorkers)},
	{Name: "fiss", About: "FissLock: a programmable switch grants, and agents on holders' machines queue", setUp: fissLock(0, ServerWorkers)},
	{Name: "netlock", About: "NetLock: a programmable switch has the queues of the hottest locks, a server the other locks", setUp: netLock},
	{Name: "qplock", About: "asymmetric lock: local clients by CPU, others by NIC; exclusive only", Exclusive: true, setUp: qpLock(qplock.Config{})},
	{Name: "alock", About: "ALock: the asymmetric lock as published in 2024", Exclusive: true, setUp: qpLock(qplock.Config{ALock: true})},
	{Name: "cql", About: "the queue-notify lock, flat: every client queues on the memory node", setUp: decLock("cql")},
	{Name: "declock-tf", About: "DecLock by timestamp, task-fair", setUp: decLock("declock-tf")},
	{Name: "declock-pf", About: "DecLock by timestamp, phase-fair", setUp: decLock("declock-pf")},
	{Name: "declock", About: "DecLock with all improvements", setUp: decLock("declock")},
	{Name: "paper-tf", About: "declock-tf to the letter of the paper: writers can starve", setUp: decLock("paper-tf")},
	{Name: "paper-pf", About: "declock-pf to the letter of the paper: writers can starve", setUp: decLock("paper-pf")},
	{Name: "remote-prefer", About: "DecLock that prefers waiters of other nodes", setUp: decLock("remote-prefer")},
	{Name: "local-prefer", About: "DecLock that prefers waiters of the own node", setUp: decLock("local-prefer")},
	{Name: "local-bound", About: "DecLock that prefers waiters of the own node 4 times in a row", setUp: decLock("local-bound")},
}

// TheirPauseNs is the pause that the clients of ShiftLock's published code have by default, of ShiftLock as of the baselines: about a round trip.
const TheirPauseNs = shift.PublishedPauseNs

// BackoffMinNs and BackoffMaxNs are the backoff of cas-backoff: doubled with each try and truncated at a maximum that adapts, as SMART and ShiftLock's published code do it.
const (
	BackoffMinNs = TheirPauseNs
	BackoffMaxNs = 1024 * BackoffMinNs
)

// PollNs is the pause of DSLR's waiters per ticket in virtual time, tuned to the network as section 4.6 of its paper says: to the round trip of the models cx4 and cx5, some 2 us.
// The paper's 5 us, for its cluster, are "dslr:wait:5".
const PollNs = 2 * fabric.Microsecond

// ServerNs is what a core of a server takes for a request in virtual time, assumed: its NIC delivers it, it polls, looks the lock up and answers.
const ServerNs = fabric.Microsecond

// ServerWorkers are those of a server, unless the name says how many.
const ServerWorkers = 4

// TheirWorkers are those of the RPC server in ShiftLock's published code. Each waits until its answer has been acknowledged, for another ackNs (the model's round trip), before
// it takes the next request.
const (
	TheirWorkers = 47
	ackNs        = 2 * fabric.Microsecond
	// TheirServerNs is what one takes for a request, in all.
	TheirServerNs = ServerNs + ackNs
)

// srvWorkers are those of the servers of FissLock's evaluation.
const srvWorkers = 8

// CAS returns how a node joins, for a configuration of the lock's own. So do those below, which set up an agent, too.
func CAS(cfg cas.Config) func(fabric.Node) *Node {
	return func(fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return cas.New(p, cfg) }}
	}
}

// Sherman is cas behind the local locks of each node.
func Sherman(cfg cas.Config, handoffs bool) func(fabric.Node) *Node {
	return func(fabric.Node) *Node {
		table := sherman.NewTable(sherman.DefaultBound)
		table.Handoffs = handoffs
		return &Node{Locker: func(p fabric.Port) lock.Locker { return sherman.New(table, cas.New(p, cfg)) }}
	}
}

// DSLR returns how a node joins.
func DSLR(cfg dslr.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return dslr.New(p, cfg) }, Run: dslr.NewAgent(n, cfg).Run}
	}
}

// DrTM returns how a node joins.
func DrTM(cfg drtm.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return drtm.New(p, n, cfg) }}
	}
}

// MCS returns how a node joins.
func MCS(cfg mcs.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return mcs.New(p, cfg) }, Run: mcs.NewAgent(n, cfg).Run}
	}
}

// NCoSED returns how a node joins.
func NCoSED(cfg ncosed.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		home := ncosed.HomeOf(n)
		return &Node{Locker: func(p fabric.Port) lock.Locker { return ncosed.New(p, home, cfg) }, Run: ncosed.NewAgent(n, home, cfg).Run}
	}
}

// RMARW returns how a node joins.
func RMARW(cfg rmarw.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return rmarw.New(p, cfg) }, Run: rmarw.NewAgent(n, cfg).Run}
	}
}

// Server returns how a node joins.
func Server(cfg server.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		first := server.ServerOf(n)
		return &Node{Locker: func(p fabric.Port) lock.Locker {
			l := server.New(p, first, cfg)
			l.Incarnation = server.IncarnationOf(n)
			return l
		}, Run: server.NewAgent(n, cfg).Run}
	}
}

// NearServer returns how a node joins, whose clients execute their requests to its own server themselves.
func NearServer(cfg server.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		first, agent := server.ServerOf(n), server.NewAgent(n, cfg)
		return &Node{Locker: func(p fabric.Port) lock.Locker {
			l := server.New(p, first, cfg)
			l.Near, l.Incarnation = agent, server.IncarnationOf(n)
			return l
		}, Run: agent.Run}
	}
}

// Fiss returns how a node joins.
func Fiss(cfg fiss.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		pool := fiss.NewPool(n, cfg)
		return &Node{Locker: func(p fabric.Port) lock.Locker { return fiss.New(p, pool) }, Run: fiss.NewAgent(n, pool).Run}
	}
}

// NetLock returns how a node joins.
func NetLock(cfg netlock.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		pool := netlock.NewPool(n, cfg)
		return &Node{Locker: func(p fabric.Port) lock.Locker { return netlock.New(p, pool) }, Run: netlock.NewAgent(n, pool).Run}
	}
}

// QPLock returns how a node joins.
func QPLock(cfg qplock.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return qplock.New(p, cfg) }, Run: qplock.NewAgent(n, cfg).Run}
	}
}

// Shift returns how a node joins.
func Shift(cfg shift.Config) func(fabric.Node) *Node {
	return func(n fabric.Node) *Node {
		return &Node{Locker: func(p fabric.Port) lock.Locker { return shift.New(p, n, cfg) }, Run: shift.NewAgent(n, cfg).Run}
	}
}

func casLock(cfg cas.Config) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		cfg := cfg
		cfg.Plain = !c.Tokens
		return &System{layout: cfg.Layout(), join: CAS(cfg)}, nil
	}
}

func dslrLock(cfg dslr.Config) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		cfg := cfg
		cfg.Plain, cfg.LeaseNs, cfg.Clients = !c.Tokens, c.LeaseNs, c.CNs*c.Clients
		if cfg.WaitNs == 0 {
			cfg.WaitNs = c.PollNs
		}
		return &System{layout: cfg.Layout(), join: DSLR(cfg)}, cfg.Check(c.LongestNs)
	}
}

func drtmLock(cfg drtm.Config) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		cfg := cfg
		cfg.Plain, cfg.LeaseNs = !c.Tokens, c.LeaseNs
		return &System{layout: cfg.Layout(), join: DrTM(cfg), used: drtm.Used()}, cfg.Check()
	}
}

// variedDrTM returns drtm with readers that join a lease only if half of it is left ("half"), by clocks that may be off by N us ("N"), or both ("half:N").
func variedDrTM(name, variant string) (Mechanism, bool) {
	off, half := strings.CutPrefix(variant, "half")
	m := Mechanism{Name: name, About: "drtm, whose readers join a lease only if half of it is left", Silent: true}
	if off == "" {
		m.setUp = drtmLock(drtm.Config{Half: half})
		return m, half
	}
	if m.About = "drtm by clocks that may be off by so many us"; half {
		off, _ = strings.CutPrefix(off, ":")
	}
	us, err := strconv.ParseUint(off, 10, 32)
	m.setUp = drtmLock(drtm.Config{Half: half, UncertaintyNs: fabric.Time(us) * fabric.Microsecond})
	return m, err == nil && us > 0
}

// variedShift returns ShiftLock as published with features, of which each follows a colon: "pause", whose waiters pause between READs as its authors' client has them by default, "casN",
// whose writers try a free lock N times before they queue, and a number of writers in a row after which readers come.
func variedShift(name, features string) (Mechanism, bool) {
	cfg := shift.Config{Artifact: true}
	for f := range strings.SplitSeq(features, ":") {
		tries, of := strings.CutPrefix(f, "cas")
		n, err := strconv.ParseUint(tries, 10, 32)
		switch {
		case of && err == nil && n > 0 && cfg.Tries == 0:
			cfg.Tries = int(n)
		case f == "pause" && cfg.PauseNs == 0:
			cfg.PauseNs = TheirPauseNs
		case !of && err == nil && n > 0 && cfg.Threshold == 0:
			cfg.Threshold = uint32(n)
		default:
			return Mechanism{}, false
		}
	}
	return Mechanism{Name: name, About: "ShiftLock as published, with " + features, Needs: Needs{Atomic16: true}, setUp: shiftLock(cfg)}, true
}

// microseconds returns the time of a text that says how many microseconds it is, more than none.
func microseconds(text string) (fabric.Time, bool) {
	us, err := strconv.ParseFloat(text, 64)
	return fabric.Time(us * float64(fabric.Microsecond)), err == nil && us >= 0.001 && us < 1<<20
}

func mcsLock(c *Config) (*System, error) {
	cfg := mcs.Config{Plain: !c.Tokens}
	return &System{layout: cfg.Layout(), join: MCS(cfg)}, nil
}

func ncosedLock(c *Config) (*System, error) {
	cfg := ncosed.Config{Plain: !c.Tokens, Homes: c.CNs}
	return &System{layout: cfg.Layout(), join: NCoSED(cfg)}, nil
}

func rmarwLock(c *Config) (*System, error) {
	cfg := rmarw.Config{Plain: !c.Tokens}
	return &System{layout: cfg.Layout(), join: RMARW(cfg)}, nil
}

func shiftLock(cfg shift.Config) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		cfg := cfg
		cfg.LeaseNs = c.LeaseNs
		return &System{layout: shift.Layout, join: Shift(cfg)}, nil
	}
}

// serverLock returns a server's lock.
func serverLock(kind server.Kind, workers int) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		return &System{layout: server.Layout, join: Server(server.Config{Kind: kind, Plain: !c.Tokens, Workers: workers, ServiceNs: c.ServerNs})}, nil
	}
}

// theirServer returns ShiftLock's RPC lock as its authors run it. Their one machine has a thread and a NIC's send queue for each worker; here the Port of a node sends its answers one after the
// other, so the workers are dealt out to the compute nodes.
func theirServer(c *Config) (*System, error) {
	cfg := server.Config{Kind: server.Retry, Plain: !c.Tokens, Workers: (TheirWorkers + c.CNs - 1) / c.CNs, Homes: c.CNs, Answered: true}
	if c.ServerNs > 0 {
		cfg.ServiceNs = c.ServerNs + ackNs
	}
	return &System{layout: server.Layout, join: Server(cfg)}, nil
}

// parLock returns servers on all compute nodes.
func parLock(kind server.Kind, workers int) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		return &System{layout: server.Layout, join: Server(server.Config{Kind: kind, Plain: !c.Tokens, Workers: workers, ServiceNs: c.ServerNs, Homes: c.CNs})}, nil
	}
}

// parLockLocal returns a server of one worker on each compute node, of the locks that are at it.
func parLockLocal(c *Config) (*System, error) {
	return &System{layout: server.Layout, join: NearServer(server.Config{Kind: server.Queue, Plain: !c.Tokens, ServiceNs: c.ServerNs, Homes: c.CNs, Home: c.Home, LocalNs: c.LocalNs})}, nil
}

// fissLockLocal returns FissLock, whose locks are at compute nodes.
func fissLockLocal(c *Config) (*System, error) {
	home := c.Home
	if home == nil {
		home = func(a fabric.Addr) int { return server.HomeOf(a, c.CNs) }
	}
	return fissOf(c, fiss.Config{Home: home, LocalNs: c.LocalNs}), nil
}

// fissLock returns FissLock, whose switch has registers for so many locks (0: as many as published); servers on all compute nodes have the others.
func fissLock(registers, workers int) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		return fissOf(c, fiss.Config{Locks: registers, Server: server.Config{Workers: workers, ServiceNs: c.ServerNs, Homes: c.CNs}}), nil
	}
}

// fissOf returns FissLock with slots for all clients.
func fissOf(c *Config, cfg fiss.Config) *System {
	cfg.Plain = !c.Tokens
	if many := SlotsOfClient * c.Clients; many > fiss.DefaultSlots { // transactions that hold many locks
		cfg.Slots = min(many, fiss.MaxSlots)
	}
	cfg.Machines = c.CNs + 2 // numbers from 1 on, of which the switch has one
	return &System{layout: cfg.Layout(), join: func(n fabric.Node) *Node { return Fiss(cfg)(n) }, program: func() (pswitch.Program, error) {
		cfg.Device = true
		return fiss.NewProgram(cfg)
	}}
}

// SlotsOfClient is how many locks a client holds or asks for, where a compute node has so many clients that the usual slots do not suffice.
const SlotsOfClient = 20

func netLock(c *Config) (*System, error) {
	cfg := netlock.Config{Plain: !c.Tokens, Server: server.Config{Workers: srvWorkers, ServiceNs: c.ServerNs}}
	return &System{layout: cfg.Layout(), join: func(n fabric.Node) *Node { return NetLock(cfg)(n) }, program: func() (pswitch.Program, error) {
		cfg.Device = true
		return netlock.NewProgram(cfg)
	}, profile: func(hottest func(n int) []fabric.Addr) {
		cfg.Hot = hottest(netlock.DefaultLocks)
		cfg.Locks, cfg.Queue = max(len(cfg.Hot), 1), netlock.Entries/max(len(cfg.Hot), 1)
	}}, nil
}

func qpLock(cfg qplock.Config) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		cfg := cfg
		cfg.Plain = !c.Tokens
		return &System{layout: cfg.Layout(), join: QPLock(cfg)}, nil
	}
}

func shermanLock(handoffs bool) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		cfg := cas.Config{Plain: !c.Tokens}
		return &System{layout: cfg.Layout(), join: Sherman(cfg, handoffs)}, nil
	}
}

// decLock returns DecLock under a policy.
func decLock(policy string) func(*Config) (*System, error) {
	return func(c *Config) (*System, error) {
		p, err := hier.ParsePolicy(policy)
		if err != nil {
			return nil, err
		}
		y, err := layoutOf(&p, c)
		if err != nil {
			return nil, err
		}
		if c.CapacityBits != 0 {
			y.CapacityBits = c.CapacityBits
			if err := y.Validate(); err != nil {
				return nil, err
			}
		}
		cfg := hier.Config{Layout: y}
		sync := hier.SyncConfig{Counter: c.Counter, IntervalNs: c.SyncIntervalNs}
		if sync.IntervalNs == 0 {
			sync.IntervalNs = fabric.Second
		}
		return &System{layout: y.Lock(), join: func(n fabric.Node) *Node {
			table, clock := hier.NewTable(p), new(timesync.Clock)
			agent := hier.NewAgent(table, n, clock, cfg, sync)
			return &Node{
				Locker: func(port fabric.Port) lock.Locker { return hier.New(table, port, n, clock, cfg) },
				Run:    agent.Run,
			}
		}}, nil
	}
}

// layoutOf returns the layout of the locks of a policy: with room for all participants, and for their trains.
func layoutOf(p *hier.Policy, c *Config) (cql.Layout, error) {
	switch {
	case p.Kind == hier.Flat:
		return cql.LayoutFor(c.CNs * c.Clients)
	case p.Train:
		return cql.LayoutWithTrains(c.CNs)
	}
	return cql.LayoutFor(c.CNs)
}

// varied returns a mechanism whose name is a policy with a bound or with features, or a variant of DSLR.
func varied(name string) (Mechanism, bool) {
	if name == "retry-on-fail" { // DSLR's name for it
		return Mechanism{Name: name, About: "CAS for writers, FAA for readers: cas", Silent: true, setUp: casLock(cas.Config{})}, true
	}
	if name == "srvlock" { // FissLock's name for it
		return Mechanism{Name: name, About: "a server's queue, with 8 workers: server:8", setUp: serverLock(server.Queue, srvWorkers)}, true
	}
	if variant, ok := strings.CutPrefix(name, "drtm:"); ok {
		return variedDrTM(name, variant)
	}
	if variant, ok := strings.CutPrefix(name, "dslr:"); ok {
		if variant == "slots" {
			return Mechanism{Name: name, About: "DSLR with leases of several slots", Silent: true, setUp: dslrLock(dslr.Config{MultiSlot: true})}, true
		}
		if variant == "shiftlock" {
			return Mechanism{Name: name, About: "DSLR as ShiftLock's authors run it: it pauses for 1862 ns per ticket, and readers for those of writers alone", Silent: true, setUp: dslrLock(dslr.Config{WaitNs: TheirPauseNs, ForWriters: true})}, true
		}
		if variant == "busy" {
			return Mechanism{Name: name, About: "DSLR that polls without a pause", setUp: dslrLock(dslr.Config{Wait: dslr.Busy})}, true
		}
		if wait, ok := strings.CutPrefix(variant, "wait:"); ok {
			pause, ok := microseconds(wait)
			return Mechanism{Name: name, About: "DSLR that pauses for so many us per ticket, on any network", Silent: true, setUp: dslrLock(dslr.Config{WaitNs: pause})}, ok
		}
		longest, withdraw := strings.CutPrefix(variant, "withdraw:")
		us, err := strconv.ParseUint(longest, 10, 32)
		return Mechanism{Name: name, About: "DSLR with a longest backoff of resets, in us", setUp: dslrLock(dslr.Config{Withdraw: withdraw, ResetMaxNs: fabric.Time(us) * fabric.Microsecond})}, err == nil && us > 0
	}
	if features, ok := strings.CutPrefix(name, "shift-artifact:"); ok {
		return variedShift(name, features)
	}
	switch name {
	case "rpc:shiftlock":
		return Mechanism{Name: name, About: "rpc as ShiftLock's authors run it: 47 workers, and a release waits for its answer", setUp: theirServer}, true
	case "fiss:local":
		return Mechanism{Name: name, About: "FissLock-Local: FissLock, whose locks are at compute nodes, whose clients take them without a message", setUp: fissLockLocal}, true
	case "parlock:local":
		return Mechanism{Name: name, About: "parlock of one worker, of the locks that are at its compute node, whose clients take them without a message", setUp: parLockLocal}, true
	}
	if registers, ok := strings.CutPrefix(name, "fiss:"); ok {
		n, err := strconv.ParseUint(registers, 10, 20)
		return Mechanism{Name: name, About: "FissLock with registers for so many locks; a server on each compute node, of one worker and not 4, has the others", setUp: fissLock(int(n), 1)}, err == nil && n > 0
	}
	if name == "parlock:ro" {
		return Mechanism{Name: name, About: "parlock, whose readers pass writers", setUp: parLock(server.ReadersFirst, ServerWorkers)}, true
	}
	if kind, workers, ok := strings.Cut(name, ":"); ok {
		if n, err := strconv.ParseUint(workers, 10, 8); kind == "parlock" && err == nil && n > 0 {
			return Mechanism{Name: name, About: "parlock with so many workers on each compute node", setUp: parLock(server.Queue, int(n))}, true
		}
		if i := slices.Index([]string{"rpc", "server", "server-ro"}, kind); i >= 0 {
			n, err := strconv.ParseUint(workers, 10, 8)
			return Mechanism{Name: name, About: kind + " with so many workers", setUp: serverLock(server.Kind(i), int(n))}, err == nil && n > 0
		}
	}
	if _, err := hier.ParsePolicy(name); err == nil && strings.ContainsAny(name, ":+") {
		return Mechanism{Name: name, About: "DecLock by the policy " + name, setUp: decLock(name)}, true
	}
	return Mechanism{}, false
}
