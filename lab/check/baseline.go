package check

import (
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
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
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
)

// A baselineLock is one of the baseline locks, with fencing tokens.
type baselineLock struct {
	name string
	// atomics: it needs masked atomics of the NIC.
	atomics bool
	// crashable: it survives crashes of clients.
	crashable bool
	// synced: it relies on clocks that differ by less than 50 us.
	synced bool
	// served: it does not survive a crash of cn1.
	served bool
	// cycles: Scenario.CountMax is how many tickets it draws until it resets its counters.
	cycles bool
	// updates: its Lockers are lock.Upgraders. slots: a lease has several slots, if a client asks for a longer one.
	updates, slots bool
	// homes: each compute node but the witness has a server, of a part of the locks. It survives crashes, but for these.
	homes bool
	// class is its own, which the others do not have: its lock needs something that theirs do not. "": those of all.
	class Class
	// layout is where a lock's bytes are. Data begins behind them.
	layout lock.Layout
	// fair is how many later requests may pass one, for each client of the cluster; 0: any number. The most that
	// 1500 seeds of class FieldFair showed was 0.9 (mcs), 5.7 (dslr: readers that come while one sleeps), 1.9 (dslr+),
	// 3.8 (shift), 4.0 (shift-artifact) and 2.0 (server). The bounds are about the double.
	fair int
	join func(s *Scenario) func(fabric.Node) *locks.Node
}

var baselineLocks = []baselineLock{
	{name: "cas", layout: cas.Config{}.Layout(), join: always(locks.CAS(cas.Config{}))},
	{name: "cas-backoff", layout: cas.Config{}.Layout(), join: always(locks.CAS(cas.Config{BackoffMinNs: 500, BackoffMaxNs: 8000, Adaptive: true}))},
	{name: "sherman", layout: cas.Config{}.Layout(), join: always(locks.Sherman(cas.Config{}, false))},
	{name: "mcs", layout: mcs.Config{}.Layout(), atomics: true, fair: 2, join: always(locks.MCS(mcs.Config{}))},
	{name: "dslr", layout: dslr.Config{}.Layout(), crashable: true, cycles: true, updates: true, fair: 12, join: joinDSLR(dslr.Config{Wait: dslr.Dynamic})},
	{name: "dslr+", layout: dslr.Config{}.Layout(), crashable: true, cycles: true, updates: true, fair: 4, join: joinDSLR(dslr.Config{Wait: dslr.Truncated})},
	{name: "shift", layout: shift.Layout, atomics: true, crashable: true, fair: 8, join: joinShift(false)},
	{name: "shift-artifact", layout: shift.Layout, atomics: true, crashable: true, fair: 8, join: joinShift(true)},
	{name: "drtm", layout: drtm.Config{}.Layout(), crashable: true, synced: true, join: joinDrTM(false)},
	{name: "rmarw", layout: rmarw.Config{}.Layout(), atomics: true, join: joinRMARW},
	{name: "rpc", layout: server.Layout, crashable: true, served: true, join: always(locks.Server(server.Config{Kind: server.Retry}))},
	{name: "server", layout: server.Layout, crashable: true, served: true, fair: 4, join: always(locks.Server(server.Config{Kind: server.Queue}))},
	{name: "server-ro", layout: server.Layout, crashable: true, served: true, join: always(locks.Server(server.Config{Kind: server.ReadersFirst}))},
	{name: "ncosed", layout: ncosed.Config{}.Layout(), join: func(s *Scenario) func(fabric.Node) *locks.Node { return locks.NCoSED(ncosed.Config{Homes: s.CNs}) }},
	{name: "fiss", layout: fiss.Config{}.Layout(), class: Switched, join: func(s *Scenario) func(fabric.Node) *locks.Node { return locks.Fiss(s.fiss()) }},
	{name: "netlock", layout: netlock.Config{}.Layout(), class: NetLocked, join: func(s *Scenario) func(fabric.Node) *locks.Node { return locks.NetLock(s.netlock()) }},
	{name: "qplock", layout: qplock.Config{}.Layout(), class: Near, join: joinQPLock(false)},
	{name: "parlock", layout: server.Layout, class: Homes, homes: true, join: func(s *Scenario) func(fabric.Node) *locks.Node {
		if s.Local > 0 {
			return joinHomes(locks.NearServer, server.Config{Kind: server.Queue})(s)
		}
		return joinHomes(locks.Server, server.Config{Kind: server.Queue})(s)
	}},
	{name: "rpc:shiftlock", layout: server.Layout, class: Homes, homes: true, join: joinHomes(locks.Server, server.Config{Kind: server.Retry, Answered: true})},
	{name: "alock", layout: qplock.Config{ALock: true}.Layout(), class: Near, join: joinQPLock(true)},
	{name: "dslr:slots", layout: dslr.Config{}.Layout(), class: Updates, crashable: true, cycles: true, updates: true, slots: true, join: joinDSLR(dslr.Config{MultiSlot: true})},
	{name: "dslr+-overflow", layout: dslr.Config{}.Layout(), class: Updates, crashable: true, cycles: true, updates: true, join: joinDSLR(dslr.Config{Wait: dslr.Overflowing})},
	{name: "dslr:busy", layout: dslr.Config{}.Layout(), class: Variants, cycles: true, join: joinDSLR(dslr.Config{Wait: dslr.Busy})},
	{name: "cas-cas", layout: cas.Config{}.Layout(), class: Variants, join: always(locks.CAS(cas.Config{ReleaseByCAS: true}))},
	{name: "sherman+notes", layout: cas.Config{}.Layout(), class: Variants, join: always(locks.Sherman(cas.Config{}, true))},
	{name: "drtm:half", layout: drtm.Config{}.Layout(), class: Variants, synced: true, join: joinDrTM(true)},
	{name: "parlock:ro", layout: server.Layout, class: Variants, homes: true, join: joinHomes(locks.Server, server.Config{Kind: server.ReadersFirst})},
	{name: "parlock:local", layout: server.Layout, class: SwitchedLocal, homes: true, join: joinHomes(locks.NearServer, server.Config{Kind: server.Queue})},
	{name: "fiss:local", layout: fiss.Config{}.Layout(), class: SwitchedLocal, join: func(s *Scenario) func(fabric.Node) *locks.Node {
		local := *s
		local.Local = 1
		return locks.Fiss(local.fiss())
	}},
}

// baselineOf returns the lock of a name, or nil.
func baselineOf(name string) *baselineLock {
	i := slices.IndexFunc(baselineLocks, func(f baselineLock) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &baselineLocks[i]
}

// room returns how many bytes a lock has before its data: its own, and at least those that DecLock's would have (f is nil).
func (f *baselineLock) room(y cql.Layout) uint64 {
	size := y.Lock().Size
	if f != nil {
		size = max(size, (f.layout.Size+7)&^7)
	}
	return size
}

// baselineNames lists the locks of classes Field, FieldFair and FieldCrash that can do what is wanted of them.
func baselineNames(can func(*baselineLock) bool) []string {
	return namesOf(func(f *baselineLock) bool { return f.class == "" && can(f) })
}

// namesOf lists locks.
func namesOf(wanted func(*baselineLock) bool) (names []string) {
	for i := range baselineLocks {
		if wanted(&baselineLocks[i]) {
			names = append(names, baselineLocks[i].name)
		}
	}
	return names
}

// always returns the join of a lock whose configuration no scenario changes.
func always(join func(fabric.Node) *locks.Node) func(*Scenario) func(fabric.Node) *locks.Node {
	return func(*Scenario) func(fabric.Node) *locks.Node { return join }
}

// joinHomes has a server on each compute node but the witness.
func joinHomes(join func(server.Config) func(fabric.Node) *locks.Node, cfg server.Config) func(*Scenario) func(fabric.Node) *locks.Node {
	return func(s *Scenario) func(fabric.Node) *locks.Node {
		cfg := cfg
		cfg.Homes = s.CNs
		return join(cfg)
	}
}

func joinDSLR(cfg dslr.Config) func(*Scenario) func(fabric.Node) *locks.Node {
	return func(s *Scenario) func(fabric.Node) *locks.Node {
		cfg := cfg
		cfg.LeaseNs, cfg.CountMax = s.LeaseNs, uint16(s.CountMax)
		return locks.DSLR(cfg)
	}
}

// joinDrTM has readers join a lease of which half is left, wherever time passes between grant and release: any other may be over then. In exploration
// it does not.
func joinDrTM(half bool) func(*Scenario) func(fabric.Node) *locks.Node {
	return func(s *Scenario) func(fabric.Node) *locks.Node {
		return locks.DrTM(drtm.Config{LeaseNs: 400 * fabric.Microsecond, Half: half || s.Clients > 0, RetryNs: 5 * fabric.Microsecond})
	}
}

// joinRMARW has the mode of the lock change often: a lock of few readers and writers never reaches the published thresholds.
func joinRMARW(s *Scenario) func(fabric.Node) *locks.Node {
	n := s.CountMax % 16
	return locks.RMARW(rmarw.Config{Writers: uint64(n), Readers: uint32(4 * n)})
}

// joinQPLock has budgets run out often.
func joinQPLock(alock bool) func(*Scenario) func(fabric.Node) *locks.Node {
	return func(s *Scenario) func(fabric.Node) *locks.Node { return locks.QPLock(budgets(s, alock)) }
}

// budgets are those of the asymmetric locks.
func budgets(s *Scenario, alock bool) qplock.Config {
	n := uint32(max(s.CountMax%16, 1))
	return qplock.Config{ALock: alock, Local: n, Remote: 2 * n}
}

func joinShift(artifact bool) func(*Scenario) func(fabric.Node) *locks.Node {
	return func(s *Scenario) func(fabric.Node) *locks.Node {
		return locks.Shift(shift.Config{Artifact: artifact, LeaseNs: s.LeaseNs, Threshold: uint32(s.CountMax % 16)})
	}
}

// field draws what the classes of the baseline locks are about.
func (s *Scenario) field(d *drawer) {
	s.Policy, s.SyncNs, s.Kept, s.Bad = "", 0, 0, 0
	s.CountMax = pick(d, 3, 17, 68)
	switch s.Class {
	case FieldFair:
		s.Lock = pick(d, baselineNames(func(f *baselineLock) bool { return f.fair > 0 })...)
		s.NIC, s.CNs, s.Clients, s.Rounds, s.Locks = "cx4", d.between(2, 4), d.between(2, 6), 40, 1
		s.HoldNs, s.ThinkNs = pick(d, 0, fabric.Microsecond), pick(d, 0, fabric.Microsecond)
		s.Writers = pick(d, 0, 1)
		s.CountMax = 0 // a reset of the counters loses the order
	case FieldCrash:
		s.Lock = pick(d, baselineNames(func(f *baselineLock) bool { return f.crashable })...)
		s.crashAllBut(d, s.kill)
		s.DetectNs = pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond)
		s.LeaseNs = s.DetectNs + 400*fabric.Microsecond // a crashed node is fenced before its leases end
		// No cycle of tickets ends within half a lease. For shift, CountMax draws a threshold: 3, or the usual one.
		if s.CountMax > 3 || baselineOf(s.Lock).cycles {
			s.CountMax = 0
		}
	case Switched:
		s.switched(d)
	case SwitchedCrash:
		s.switched(d)
		s.switchedCrash(d)
	case SwitchedLeave:
		s.switched(d)
		s.switchedLeave(d)
	case NetLocked:
		s.netLocked(d)
	case SwitchedLocal:
		s.switchedLocal(d)
	case SwitchedLoss:
		s.switchedLoss(d)
	case Updates:
		s.updates(d)
	default:
		switch s.Class {
		case Near:
			s.Lock, s.Near = pick(d, "qplock", "alock"), d.between(1, s.CNs)
		case HomesCrash:
			s.homesCrash(d)
		case Homes, Variants:
			s.Lock = pick(d, namesOf(func(f *baselineLock) bool { return f.class == s.Class })...)
		default:
			s.Lock = pick(d, baselineNames(func(*baselineLock) bool { return true })...)
		}
		s.Try, s.Deadline, s.Cancel = pick(d, 0, 10), pick(d, 0, 20, 60), pick(d, 0, 20, 60)
		s.WaitNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	}
	if baselineOf(s.Lock).served {
		s.Plan = slices.DeleteFunc(s.Plan, func(f sim.Fault) bool { return f.Node == sim.OfCN(1) })
	}
	if baselineOf(s.Lock).synced {
		s.SkewNs, s.DriftPM = min(s.SkewNs, 40*fabric.Microsecond), min(s.DriftPM, 20)
	}
	if s.NIC == "cxl" && baselineOf(s.Lock).atomics {
		s.NIC = "cx4"
	}
}
