package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// ErrMicro is wrapped by what [Micro.Validate] returns.
var ErrMicro = errors.New("bench: bad microbenchmark")

// A Micro is one run of the microbenchmark: an operation acquires a lock, does CSLen
// data operations of 8 bytes on the memory node (READs if the lock is shared,
// WRITEs if it is exclusive), one after the other, and releases.
// [Default] is the paper's default point.
type Micro struct {
	Lock string // a name of locks.Names

	CNs     int // compute nodes; 0: as many as Clients need with 32 on each
	Clients int // in all, dealt out evenly; 0 means 256
	CSLen   int // data operations of a critical section
	ReadPct int // percentage of shared acquisitions
	Locks   int // 0 means 100,000
	// Theta is the exponent of the Zipf distribution of locks; 0 is uniform.
	Theta float64
	Seed  uint64

	// WarmupNs and WindowNs are how long clients run before figures are taken, and while they are. If both are 0,
	// that is until the run is steady (see [Pace]); in real time and in an open loop, as long as is
	// usually enough.
	WarmupNs, WindowNs fabric.Time
	// LeastNs is how long a run is measured at least that is measured when it is steady; 0: as long as any.
	LeastNs fabric.Time
	// Turns is how many operations a client does at least, on average, in such a run; 0: as many as in any.
	Turns int
	// Quick: such a run is shorter.
	Quick bool

	// Rate is operations per second of all clients together at which they are
	// due, by a Poisson process, whether or not earlier ones are done; latency
	// counts from when an operation was due. 0 is a closed loop: each client
	// begins its next operation when it has done the one before.
	Rate float64

	// Chain has the last data operation travel with the release, and the first
	// READ with the acquisition, for locks that can: lock.Locker's contract.
	// The paper's microbenchmark does not.
	Chain bool
	// Keep has locks that can (lock.Keeper) keep a lock's data on the compute node for the
	// first data operation of a critical section; of other locks it is Chain. The others, up to CSLen, go to
	// the memory node as ever.
	Keep bool

	// NIC is the model of the network, by name (sim.Preset); "" is cx4.
	NIC string
	// MessageScale stretches messages between compute nodes, and MessageExtraNs
	// adds to them (paper, appendix C). 0 means 1, and nothing.
	MessageScale   float64
	MessageExtraNs fabric.Time
	// ServerNs is what a worker of a server takes for a request, of locks that have servers. 0: locks.ServerNs.
	ServerNs fabric.Time
	// Tune changes constants of the model: "LocalWake=1650,Pipe=32" (fields of sim.NIC). "" leaves them as they are.
	Tune string
	// CoreClients is how many clients share a core and its queue pair; 0: 2, as in the model.
	CoreClients int
	// LeaseNs is for how long a lock with leases may be held; 0: as its paper has it.
	LeaseNs fabric.Time
	// Steps: the mean times of the steps of acquisitions and releases are taken, too. In virtual time only.
	Steps bool
	// Used: locks that no client of the run has used yet are as their users of before it left them, the last a reader as often as here. In virtual time only.
	Used bool
	// Capacity is the length of the queues of CQL locks; 0: what the participants need.
	Capacity int
}

// Limits of a Micro.
const (
	maxCNs       = int(fabric.MaxCN)
	maxClients   = 8192
	maxCSLen     = 1024
	maxLocks     = 100_000_000
	clientsPerCN = 32 // the paper's
)

// Defaults of a Micro, the paper's (section 6.2).
const (
	DefaultClients = 256
	DefaultLocks   = 100_000
	DefaultTheta   = 0.99
	DefaultReadPct = 50
	DefaultNIC     = "cx4"
)

// Default returns the paper's default point for a lock.
func Default(lock string) Micro {
	return Micro{Lock: lock, Clients: DefaultClients, CSLen: 1, ReadPct: DefaultReadPct, Locks: DefaultLocks, Theta: DefaultTheta, Seed: 1}
}

// WithDefaults returns m with its zero values filled in.
func (m Micro) WithDefaults() Micro {
	m.Clients = cmp.Or(m.Clients, DefaultClients)
	m.CNs = cmp.Or(m.CNs, max(1, (m.Clients+clientsPerCN-1)/clientsPerCN))
	m.Locks = cmp.Or(m.Locks, DefaultLocks)
	m.NIC = cmp.Or(m.NIC, DefaultNIC)
	m.MessageScale = cmp.Or(m.MessageScale, 1)
	if m.Rate > 0 || m.WarmupNs > 0 || m.WindowNs > 0 {
		return m.timed()
	}
	return m
}

// timed returns m with a fixed window.
func (m Micro) timed() Micro {
	window, warmup := m.times()
	m.WindowNs, m.WarmupNs = cmp.Or(m.WindowNs, window), cmp.Or(m.WarmupNs, warmup)
	return m
}

// times returns a window that is usually enough, and how long to wait before it. Both grow with the critical section, so
// that the hottest lock changes hands often enough: in the steady state of a fair lock most clients wait for a few locks,
// and a wait takes 1 ms, or 12 ms with 32 data operations. A lock without fairness takes far longer to get there.
func (m *Micro) times() (window, warmup fabric.Time) {
	n := fabric.Time(m.CSLen)
	if strings.HasPrefix(m.Lock, "cas") {
		return 20*fabric.Millisecond + n*5*fabric.Millisecond, 20*fabric.Millisecond + n*12*fabric.Millisecond
	}
	return 10*fabric.Millisecond + n*fabric.Millisecond*5/4, 5*fabric.Millisecond + n*fabric.Millisecond*3/4
}

// Limits of runs that do not become steady, of virtual time: with long critical sections a wait is longer.
const (
	limitNs      = 400 * fabric.Millisecond
	limitEachOps = 25 * fabric.Millisecond // more for each data operation
	leastEachOps = fabric.Millisecond
)

// pace returns when m is measured.
func (m *Micro) pace() Pace {
	p := paceOf(m.Clients, m.Turns, limitNs+fabric.Time(m.CSLen)*limitEachOps)
	if m.Quick && m.WindowNs == 0 {
		p = p.quick(m.Clients)
	}
	p.LeastNs = max(p.LeastNs+fabric.Time(m.CSLen)*leastEachOps, m.LeastNs)
	p.WarmupNs, p.WindowNs = m.WarmupNs, m.WindowNs
	return p
}

// Validate says what is wrong with a Micro that has its defaults.
func (m *Micro) Validate() error { return m.validate(ErrMicro) }

// validate returns errors of a kind.
func (m *Micro) validate(bad error) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s", bad, fmt.Sprintf(format, args...)))
		}
	}
	check(m.CNs >= 1 && m.CNs <= maxCNs, "%d compute nodes: want 1 to %d", m.CNs, maxCNs)
	check(m.Clients >= m.CNs && m.Clients <= maxClients, "%d clients: want at least one for each compute node, and at most %d", m.Clients, maxClients)
	check(m.CSLen >= 0 && m.CSLen <= maxCSLen, "critical section of %d operations: want 0 to %d", m.CSLen, maxCSLen)
	check(m.ReadPct >= 0 && m.ReadPct <= 100, "%d %% reads: want 0 to 100", m.ReadPct)
	check(m.Locks >= 1 && m.Locks <= maxLocks, "%d locks: want 1 to %d", m.Locks, maxLocks)
	check(m.Theta >= 0 && m.Theta <= 5, "theta %v: want 0 to 5", m.Theta)
	check(m.WarmupNs >= 0 && m.WindowNs >= 0 && m.WindowNs <= 600*fabric.Second && m.LeastNs >= 0 && m.LeastNs <= 600*fabric.Second, "window of %d ns after %d ns of warm-up: want up to 600 s", m.WindowNs, m.WarmupNs)
	check(m.Rate >= 0 && m.Rate <= 1e9 && !math.IsNaN(m.Rate), "%v operations per second: want 0 (closed loop) to 1e9", m.Rate)
	check(m.MessageScale > 0 && m.MessageScale <= 1000, "messages stretched by %v: want more than 0, to 1000", m.MessageScale)
	check(m.ServerNs >= 0 && m.ServerNs <= fabric.Second, "%d ns for a request of a server: want 0 to 1 s", m.ServerNs)
	check(m.MessageExtraNs >= 0 && m.MessageExtraNs <= fabric.Second, "messages %d ns longer: want 0 to 1 s", m.MessageExtraNs)
	check(m.CoreClients >= 0 && m.CoreClients <= clientsPerCN, "%d clients share a core: want 0 (as in the model) to %d", m.CoreClients, clientsPerCN)
	check(m.Capacity == 0 || m.Capacity >= 2 && m.Capacity&(m.Capacity-1) == 0, "queue capacity %d: want a power of two from 2", m.Capacity)
	if _, err := m.model(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", bad, err))
	}
	if _, err := locks.Lookup(m.Lock); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", bad, err))
	}
	if len(errs) == 0 {
		errs = append(errs, m.refused(bad, 0))
	}
	return errors.Join(errs...)
}

// refused returns the error, of a kind, of a lock that cannot be set up for the Micro, and clients that ask for leases of some length (0: its own).
func (m *Micro) refused(bad error, longestNs fabric.Time) error {
	mech, err := locks.Lookup(m.Lock)
	if err == nil {
		c := m.cfg(nil, fabric.At(0, counterOffset), 0)
		c.LongestNs = longestNs
		_, err = mech.New(c)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", bad, err)
	}
	return nil
}

// system sets the lock up for a cluster with a word for the synchronisation of clocks; a server takes some virtual time for a request.
func (m *Micro) system(counter fabric.Addr, serverNs fabric.Time) (*locks.System, error) {
	return m.systemAt(nil, counter, serverNs)
}

// systemAt is system for locks of which home says which compute node they are at.
func (m *Micro) systemAt(home func(fabric.Addr) int, counter fabric.Addr, serverNs fabric.Time) (*locks.System, error) {
	mech, err := locks.Lookup(m.Lock)
	if err != nil {
		return nil, err
	}
	return mech.New(m.cfg(home, counter, serverNs))
}

// cfg says for what cluster the lock is set up.
func (m *Micro) cfg(home func(fabric.Addr) int, counter fabric.Addr, serverNs fabric.Time) locks.Config {
	c := locks.Config{CNs: m.CNs, Clients: (m.Clients + m.CNs - 1) / m.CNs, Counter: counter, ServerNs: serverNs, LeaseNs: m.LeaseNs, Home: home}
	if n, err := m.model(); err == nil && serverNs > 0 { // in virtual time
		c.LocalNs, c.PollNs = n.LocalWake, locks.PollNs
	}
	if m.Capacity != 0 {
		c.CapacityBits = uint8(bits.TrailingZeros(uint(m.Capacity)))
	}
	return c
}

// nic returns the model of the network of a Micro that is valid.
func (m *Micro) nic() sim.NIC {
	n, err := m.model()
	if err != nil {
		panic(err) // Validate has seen it
	}
	return n
}

func (m *Micro) model() (sim.NIC, error) {
	n, err := sim.Preset(m.NIC)
	if err == nil {
		err = tune(&n, m.Tune)
	}
	n.MessageMin += m.MessageExtraNs
	n.MessageMax += m.MessageExtraNs
	n.MessageScale = m.MessageScale
	return n, err
}

// cluster returns the configuration of the simulated cluster.
func (m *Micro) cluster() sim.Config {
	cfg := sim.Config{Seed: m.Seed, NIC: m.nic()}
	if m.CoreClients > 0 {
		cfg.ClientsPerCore = m.CoreClients
		each := max(clientsPerCN, (m.Clients+m.CNs-1)/m.CNs)
		cfg.Cores = (each + m.CoreClients - 1) / m.CoreClients
	}
	return cfg
}

// A plan is where the locks and their data lie in the memory of the memory node.
type plan struct {
	at    fabric.Addr
	span  uint64
	data  uint64 // offset of a lock's data behind its first byte
	locks uint64
}

const (
	// counterOffset is the word of clock synchronisation.
	counterOffset = 64
	planBase      = 4096
	dataSize      = 8
	// slotSize is the unit in which NICs index their atomic units. A lock and its
	// data take an odd number of units, so that locks spread over all of them.
	slotSize = 16
)

func newPlan(y lock.Layout, n int, at fabric.Addr) plan {
	p := plan{at: at, data: (y.Size + 7) &^ 7, locks: uint64(n)}
	units := (p.data + dataSize + slotSize - 1) / slotSize
	p.span = (units | 1) * slotSize
	return p
}

// size returns the bytes of memory that the plan needs.
func (p *plan) size() uint64 { return planBase + p.locks*p.span }

// addr returns the address of the lock of a rank. Neighbours in rank are no
// neighbours in memory.
func (p *plan) addr(rank uint64) fabric.Addr {
	const scatter = 2654435761 // prime: a permutation
	return p.at.Add(planBase + rank*scatter%p.locks*p.span)
}

// row is addr for locks of rows: neighbours in rank are neighbours in memory, in an order of their own, so that what a transaction takes is in few places.
func (p *plan) row(rank uint64) fabric.Addr { return p.at.Add(planBase + rank*p.span) }

// A sequence is a client's operations: from its seed alone, the same for every lock.
type sequence struct {
	zipf *traces.Zipf
	r    *traces.Rand
	read uint64 // of 100
	gap  float64
}

// sequence returns the operations of one client.
func (m *Micro) sequence(z *traces.Zipf, client int) *sequence {
	d := &sequence{zipf: z, r: traces.NewRand(m.Seed, uint64(client)), read: uint64(m.ReadPct)}
	if m.Rate > 0 {
		d.gap = 1e9 * float64(m.Clients) / m.Rate
	}
	return d
}

// next returns the rank (from 0) of the next lock, and whether it is shared.
func (d *sequence) next() (rank uint64, shared bool) {
	return d.zipf.Rank(d.r) - 1, d.r.Below(100) < d.read
}

// wait returns the time between two arrivals.
func (d *sequence) wait() fabric.Time {
	return fabric.Time(-math.Log(1-d.r.Float64())*d.gap + 0.5)
}
