package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
)

// A Class is a family of scenarios.
type Class string

// The classes. What a class claims must hold for every seed.
const (
	// Locks: no faults but torn READs and WRITEs and bad clocks. No client looks
	// twice: a grant that is lost is lost.
	Locks Class = "locks"
	// Fair: one lock that many want, and policies that are fair: no request is passed too often. The
	// clocks may wrap meanwhile.
	Fair Class = "fair"
	// Cancel: as Locks; requests are tried, time out, and are cancelled.
	Cancel Class = "cancel"
	// Wraps: as Cancel, with tiny queues and versions, so that locks are reset all the time.
	Wraps Class = "wraps"
	// Pause: compute nodes stand still for a while; waiters look after their
	// locks, in this class and those below.
	Pause Class = "pause"
	// Net: directions between nodes are cut or slow for a while; what is sent comes later, and messages
	// may come twice.
	Net Class = "net"
	// Break: as Net, and operations that are held up for long have unknown outcomes.
	Break Class = "break"
	// Crash: compute nodes crash, are detected and fenced; their locks are reset.
	Crash Class = "crash"
	// Zombie: compute nodes stand still, are declared dead, and wake up.
	Zombie Class = "zombie"
	// Restart: memory nodes crash and come back with their memory, in a new epoch; compute nodes may crash as well.
	Restart Class = "restart"
	// Lost: memory nodes crash and come back without their memory, some with it; clients use locks by addresses of now and of before.
	Lost Class = "lost"
	// Chaos: all faults of the classes above Restart at once, on locks that wrap.
	Chaos Class = "chaos"
	// Field: as Cancel, with the baseline locks, whose counters are reset all the time.
	Field Class = "field"
	// FieldFair: as Fair, with those of them that are fair.
	FieldFair Class = "fieldfair"
	// FieldCrash: as Crash, with those of them that survive that.
	FieldCrash Class = "fieldcrash"
	// Store: the object store, without faults.
	Store Class = "store"
	// StoreCrash: the object store while compute nodes crash or stand still.
	StoreCrash Class = "storecrash"
	// StoreRestart: the object store while memory nodes crash and come back with their memory.
	StoreRestart Class = "storerestart"
	// StoreLost: the object store while memory nodes crash and come back without their memory.
	StoreLost Class = "storelost"
	// StoreExpiry: the object store with objects that expire, by clocks that differ, also while compute nodes crash or stand still.
	StoreExpiry Class = "storeexpiry"
	// StoreEvict: the object store with too little memory, also while compute nodes crash or stand still.
	StoreEvict Class = "storeevict"
	// Tree: the B+tree, without faults, in small nodes that split and are unlinked all the time.
	Tree Class = "tree"
	// TreeCrash: the B+tree while compute nodes crash or stand still.
	TreeCrash Class = "treecrash"
	// Tenure: as Locks; few clients of few nodes hand one lock over among themselves, more often than a token counts, and locks
	// are reset meanwhile.
	Tenure Class = "tenure"
	// Resets: as Net; one lock after the other is reset, and messages of one reset arrive in the next.
	Resets Class = "resets"
	// Lease: compute nodes join while the lease of another runs out, which goes on and does not know; some memory nodes hear late of it.
	Lease Class = "lease"
	// TreeRestart: the B+tree while memory nodes restart with their memory, and compute nodes may crash.
	TreeRestart Class = "treerestart"
	// TreeBreak: the B+tree while operations that are held up for long have unknown outcomes.
	TreeBreak Class = "treebreak"
	// StoreBreak: the object store, likewise.
	StoreBreak Class = "storebreak"
	// Promote: memory nodes that are replicated end and are replaced; compute nodes may crash as well, and the network fail.
	Promote Class = "promote"
	// StorePromote: the object store on memory nodes that are replicated, while these end; compute nodes may crash, clients be interrupted, and the network fail. (From g15 on.)
	StorePromote Class = "storepromote"
	// StoreRepair: as StorePromote; new backups take the place of those that are lost, and what stores have is copied to them.
	StoreRepair Class = "storerepair"
	// TreePromote and TreeRepair: the B+tree on memory nodes that are replicated, as StorePromote and StoreRepair.
	TreePromote Class = "treepromote"
	TreeRepair  Class = "treerepair"
	// StoreLarge: the object store with values in segments, under the faults of the other classes of stores but lost memory.
	StoreLarge Class = "storelarge"
	// StoreOpen: the object store with slots that open, under the faults of the other classes of stores. It is not among Classes: with another generator it may be, for another list
	// draws other classes.
	StoreOpen Class = "storeopen"
	// StoreRuns: the object store while most clients set and delete one key, so that one does it for others of its compute node, under the faults of StoreOpen. By name, as StoreOpen.
	StoreRuns Class = "storeruns"
	// Drops: the object store or the B+tree, and beside it others that are made, used and dropped by name, over and over, under the faults of StoreRepair and TreeRepair, of the other
	// classes of stores and trees, or none. By name, as StoreOpen.
	Drops Class = "drops"
	// Switched: as Cancel, with the lock of a programmable switch, whose packets are lost, come twice, late and out of order. By name, as StoreOpen.
	Switched Class = "switched"
	// SwitchedCrash: as Switched, while compute nodes and the switch crash. By name, as StoreOpen.
	SwitchedCrash Class = "switchedcrash"
	// SwitchedLeave: as SwitchedCrash or without crashes, while compute nodes leave in order and join. By name, as StoreOpen.
	SwitchedLeave Class = "switchedleave"
	// NetLocked: as Switched, with NetLock. By name, as StoreOpen.
	NetLocked Class = "netlocked"
	// Near: as Cancel, with the asymmetric locks, some nodes on machines of memory nodes, and atomics of the NIC that are none to CPUs. By name, as StoreOpen.
	Near Class = "near"
	// Homes: as Cancel, with locks that have a server on each compute node. By name, as StoreOpen.
	Homes Class = "homes"
	// HomesCrash: as Homes, with all locks that have servers on compute nodes, while these crash: each with its part of the locks. By name, as StoreOpen.
	HomesCrash Class = "homescrash"
	// SwitchedLocal: as Switched, SwitchedCrash or Homes, with locks that are at compute nodes, whose clients take them without a message. By name, as StoreOpen.
	SwitchedLocal Class = "switchedlocal"
	// SwitchedLoss: as Switched, SwitchedCrash, SwitchedLeave or with locks that are at compute nodes, while messages between compute nodes, too, are lost, come twice, late and out of order. By name, as StoreOpen.
	SwitchedLoss Class = "switchedloss"
	// Updates: as Field or FieldCrash, with DSLR's variants, also those that Field does not draw: clients acquire for update, are upgraded or not, and ask for leases of
	// several slots. By name, as StoreOpen.
	Updates Class = "updates"
	// Variants: as Field, with variants of the baseline locks that Field does not draw. By name, as StoreOpen.
	Variants Class = "variants"
)

// Classes lists all classes.
func Classes() []Class {
	return []Class{Locks, Fair, Cancel, Wraps, Pause, Net, Break, Crash, Zombie, Restart, Chaos, Field, FieldFair, FieldCrash, Store, StoreCrash, StoreRestart, StoreExpiry, StoreEvict, Tree, TreeCrash, Tenure, Resets, Lease, Lost, StoreLost, TreeRestart, TreeBreak, StoreBreak, Promote, StorePromote,
		StoreRepair, TreePromote, TreeRepair, StoreLarge}
}

// ByName lists the classes that are run only if they are asked for.
func ByName() []Class {
	return []Class{StoreOpen, StoreRuns, Drops, Switched, SwitchedCrash, SwitchedLeave, NetLocked, Near, Homes, HomesCrash, SwitchedLocal, SwitchedLoss, Updates, Variants}
}

// ParseClasses parses a list of classes with commas; "" is all.
func ParseClasses(list string) ([]Class, error) {
	if list == "" {
		return Classes(), nil
	}
	var out []Class
	for n := range strings.SplitSeq(list, ",") {
		if all := append(Classes(), ByName()...); !slices.Contains(all, Class(n)) {
			return nil, fmt.Errorf("%w: no class %q: there are %v", ErrScenario, n, all)
		}
		out = append(out, Class(n))
	}
	return out, nil
}

// generator names how Draw draws. Another way of drawing gets another name,
// so that the seeds of old reports are not taken for the new ones'.
const generator = "g16"

// A drawer draws from the one seed of a scenario.
type drawer struct{ sim.Rand }

func (d *drawer) between(lo, hi int) int { return lo + int(d.Uint64n(uint64(hi-lo+1))) }

func (d *drawer) percent(p int) bool { return int(d.Uint64n(100)) < p }

func pick[T any](d *drawer, list ...T) T { return list[d.Uint64n(uint64(len(list)))] }

// time draws from 0 to most, more often small than large.
func (d *drawer) time(most fabric.Time) fabric.Time {
	return fabric.Time(d.Uint64n(uint64(most)+1)) >> d.Uint64n(8)
}

// Draw draws the scenario of a seed, of one of the classes.
func Draw(seed uint64, classes ...Class) Scenario {
	d := &drawer{sim.NewRand(seed, streamDraw)}
	class := pick(d, classes...)
	s := Scenario{
		Gen: generator, Class: class, Seed: seed,
		CNs: d.between(1, 4), Clients: d.between(1, 6), MNs: d.between(1, 2),
		Policy: pick(d, append(hier.PolicyNames(), "declock-tf", "declock-pf", "local-bound:1")...),
		NIC:    pick(d, "cx4", "cx4", "cx6", "ideal", "cxl"),
		Scale:  pick(d, 100, 100, 30, 300),
		Tear:   pick(d, 0, 30, 100), Grain: pick(d, 8, 64), TearNs: pick(d, 0, 5*fabric.Microsecond),
		SkewNs: pick(d, 0, 5*fabric.Microsecond, 50*fabric.Millisecond), DriftPM: pick(d, int64(0), 20, 1000),
		SyncNs: pick(d, 0, 0, fabric.Millisecond),
		Locks:  d.between(1, 3), Rounds: d.between(5, 40),
		Reads:  pick(d, 0, 30, 50, 80, 95, 100),
		HoldNs: pick(d, 0, fabric.Microsecond, 5*fabric.Microsecond, 40*fabric.Microsecond),
		Late:   "draw",
	}
	s.ThinkNs = pick(d, 0, fabric.Microsecond, 20*fabric.Microsecond)
	s.layoutFor(d)
	s.shape(d)
	if slices.Contains([]Class{Field, FieldFair, FieldCrash, Switched, SwitchedCrash, SwitchedLeave, NetLocked, Near, Homes, HomesCrash, SwitchedLocal, SwitchedLoss, Updates, Variants}, class) {
		s.field(d)
		s.drawNews(seed)
		s.strays(seed)
		return s
	}
	s.faults(d)
	s.drawNews(seed)
	s.extras(seed)
	s.unknown(seed)
	if class == Store && d.percent(30) || class == StoreCrash && d.percent(15) {
		s.Version = uint8(d.between(2, 3))
	}
	s.leaves(seed)
	s.sit(seed)
	s.interrupts(seed)
	s.shortOfRoom(seed)
	s.trains(seed)
	return s
}

// shape draws what is particular to the class, but for faults.
func (s *Scenario) shape(d *drawer) {
	switch s.Class {
	case Fair:
		s.Policy = pick(d, "cql", "remote-prefer", "declock-tf", "declock-tf", "declock-pf", "declock")
		s.NIC, s.CNs, s.Clients, s.Rounds = "cx4", d.between(2, 4), d.between(2, 6), 60
		s.Locks, s.SyncNs, s.DriftPM = 1, 0, 20
		s.EpochNs, s.SkewNs = pick(d, 0, 65_400*fabric.Microsecond, 32_700*fabric.Microsecond), pick(d, 0, 5*fabric.Microsecond)
		s.HoldNs, s.ThinkNs = pick(d, 0, fabric.Microsecond), pick(d, 0, fabric.Microsecond)
		s.Writers = pick(d, 0, 1)
		s.SharingNs = pick(d, hier.DefaultSharing, hier.DefaultSharing, 0) // 0: up to MaxSharing
		s.layoutFor(d)
		s.Version = 27 // a reset loses the order
	case Cancel, Wraps, Chaos:
		s.Try, s.Deadline, s.Cancel = pick(d, 0, 10), pick(d, 0, 20, 60), pick(d, 0, 20, 60)
		s.WaitNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
		s.layoutFor(d)
	case Store, StoreCrash, StoreRestart, StoreLost, StoreExpiry, StoreEvict, StoreBreak, StorePromote, StoreRepair, StoreLarge, StoreOpen, StoreRuns:
		s.Locks, s.Reads, s.Keys, s.Values = 0, 0, d.between(1, 4), pick(d, 0, 20, 200, 3000)
		s.Clients = d.between(1, 4)
		if d.percent(25) {
			s.Keys, s.Values = 60, 20 // a bucket with overflow blocks, fingerprints that collide
		}
		s.Rounds = min(d.between(5, 25), max(3, 100*s.Keys/(s.CNs*s.Clients)))
		s.layoutFor(d)
	}
	if s.Class == StoreExpiry || s.Class == StoreEvict {
		s.lifetime(d)
	}
	switch s.Class {
	case Drops:
		s.besides(d)
	case StoreLarge:
		s.segments(d)
	case StoreOpen:
		s.openSlots(d)
	case StoreRuns:
		s.runsOfSets(d)
	}
	switch s.Class {
	case Tree, TreeCrash, TreeRestart, TreeBreak, TreePromote, TreeRepair:
		s.Tree, s.Locks, s.Reads, s.Keys, s.Values = 1, 0, 0, d.between(3, 12), pick(d, 0, 20, 200, 3000)
		s.Clients = d.between(1, 4)
		s.Rounds = d.between(10, 40)
		s.layoutFor(d)
	}
	switch s.Class {
	case Wraps:
		s.wraps(d)
	case Tenure:
		s.tenure(d)
	case Resets:
		s.resets(d)
	case Lease:
		s.lease(d)
	}
}

// drawNews draws which nodes join meanwhile, and how far apart nodes hear of crashes: of most, one hears while another goes on as before.
func (s *Scenario) drawNews(seed uint64) {
	crashes := s.Fails > 0 || slices.ContainsFunc(s.Plan, func(f sim.Fault) bool {
		return f.Kind == sim.FaultKill || f.Kind == sim.FaultFence || f.Kind == sim.FaultReboot || f.Kind == sim.FaultRestart
	})
	if d := (&drawer{sim.NewRand(seed, streamNews)}); crashes && s.Class != Lease || s.Class == Promote || s.Class == StorePromote || slices.Contains([]Class{StoreRepair, TreePromote, TreeRepair, Drops}, s.Class) {
		s.NewsNs = pick(d, 0, 3*fabric.Microsecond, 30*fabric.Microsecond, 300*fabric.Microsecond, 3*fabric.Millisecond)
	}
	if d := (&drawer{sim.NewRand(seed, streamJoins)}); len(s.Plan) > 0 && s.Joins == 0 && s.Keys == 0 && s.Lock == "" && d.percent(30) {
		s.Joins = d.between(1, 2)
		s.room()
	}
	if s.LeaseNs > 0 && s.NewsNs > 0 { // crashed nodes are fenced before their leases count
		s.NewsNs = min(s.NewsNs, 30*fabric.Microsecond)
		s.LeaseNs += s.DetectNs + 4*s.NewsNs // a crash that is not known yet may be waited for
	}
}

// extras draws what came later, from streams of its own.
func (s *Scenario) extras(seed uint64) {
	share := func(stream uint64, p int) bool { return (&drawer{sim.NewRand(seed, stream)}).percent(p) }
	s.strays(seed)
	if s.Keys > 0 {
		if s.Tree == 0 && s.Open == 0 && share(streamPaper, 30) {
			s.Paper = 1
		}
		return
	}
	if s.Class == Fair {
		return // a reader that joins holders and finds the value there takes no virtual time: no bound holds
	}
	if share(streamKept, 50) {
		s.Kept = 1
	}
	if bad := (&drawer{sim.NewRand(seed, streamBad)}); bad.percent(30) || s.Class == Lease && bad.percent(50) {
		s.Bad = pick(bad, 2, 10, 50)
	}
}

// unknown has operations of unknown outcome take effect late, and locks reset before: by others whose patience is short. (From g10 on.)
func (s *Scenario) unknown(seed uint64) {
	d := &drawer{sim.NewRand(seed, streamBroken)}
	switch {
	case s.Class == Break && d.percent(60):
	case s.Class == Chaos && d.percent(30):
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	default:
		return
	}
	for range d.between(1, 3) { // what is held up on its way to a memory node takes effect late, not what is on its way back
		at := s.at(d)
		s.Plan = append(s.Plan, sim.Fault{At: at, Kind: sim.FaultCut, Node: sim.OfCN(fabric.CNID(d.between(1, s.CNs))),
			Peer: sim.OfMN(fabric.MemID(d.between(0, s.MNs-1))), Until: at + 2*s.BreakNs + d.time(300*fabric.Microsecond)})
	}
	s.BrokenLateNs = pick(d, 100*fabric.Microsecond, fabric.Millisecond, 5*fabric.Millisecond)
	s.RecheckNs = pick(d, 50*fabric.Microsecond, 500*fabric.Microsecond)
	s.ResetNs = pick(d, 200*fabric.Microsecond, fabric.Millisecond, 10*fabric.Millisecond)
}

// strays has messages overtake each other, but for those between the same clients. Fairness is judged without: a later message is passed.
func (s *Scenario) strays(seed uint64) {
	if d := (&drawer{sim.NewRand(seed, streamStray)}); s.Class != Fair && s.Class != FieldFair && d.percent(50) {
		s.StrayNs = pick(d, fabric.Microsecond, 10*fabric.Microsecond, 100*fabric.Microsecond)
	}
}

// wraps makes queues short and versions narrow. Fewer entries than participants will do, but the
// counts must hold them, each twice: see participants.
func (s *Scenario) wraps(d *drawer) {
	s.Capacity -= min(s.Capacity-1, pick(d, uint8(0), 1, 2))
	for s.participants() >= 2<<s.Capacity {
		s.Capacity++
	}
	s.Version = uint8(d.between(2, 3))
}

// participants returns how many may be in the queue of a lock: the witness is one more node. A client that gives up
// leaves at most one ticket behind that is more than the entries: then it acquires by CAS (cql.Client.EnqueueCautious).
func (s *Scenario) participants() int {
	if s.Policy == "cql" {
		n := s.CNs*s.Clients + s.CNs + 1 + (s.Joins+s.Leaves)*(s.Clients+1)
		if s.Side > 0 { // up to two clients of each node, a keeper, and one that copies
			n = max(n, 3*(s.CNs+1)+1)
		}
		return n
	}
	return s.CNs + 1 + s.Joins + s.Leaves
}

// layoutFor draws a queue with room for all participants.
func (s *Scenario) layoutFor(d *drawer) {
	s.Capacity = 1
	for 1<<s.Capacity < s.participants() {
		s.Capacity++
	}
	s.Capacity += pick(d, uint8(0), 0, 1)
	s.Version = pick(d, uint8(3), 6, 27)
}

// span is a rough guess of how long the rounds take.
func (s *Scenario) span() fabric.Time {
	per := s.HoldNs/2 + 8*fabric.Microsecond
	queue := max(1, s.CNs*s.Clients/max(1, s.Locks+s.Keys))
	return fabric.Time(s.Rounds) * (s.ThinkNs/2 + per*fabric.Time(queue))
}

// faults draws the fault plan.
func (s *Scenario) faults(d *drawer) {
	switch s.Class {
	case Pause:
		s.drawPlan(d, sim.FaultPause)
		s.impatient()
	case Net:
		s.drawPlan(d, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.impatient()
	case Break:
		s.drawPlan(d, sim.FaultCut, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.impatient()
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	case Lease:
		s.runOut(d)
	case Resets:
		s.lateNews(d)
		s.impatient()
	case Promote, StorePromote, StoreRepair, TreePromote, TreeRepair:
		s.promotes(d)
	case Crash:
		s.crashAllBut(d, s.kill)
	case Zombie:
		s.crashAllBut(d, s.zombie)
	case Chaos:
		s.crashAllBut(d, pick(d, s.kill, s.zombie))
		s.Version = uint8(d.between(2, 4))
		crashes := s.Plan
		s.drawPlan(d, sim.FaultPause, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.Plan = append(s.Plan, crashes...)
	case Restart:
		if d.percent(40) {
			s.crashAllBut(d, s.kill)
		}
		s.reboots(d)
	case Lost:
		s.losses(d)
		s.Old = pick(d, 0, 10, 30)
	case StoreLost:
		s.few(d)
		s.losses(d)
	case StoreRestart:
		s.few(d)
		s.reboots(d)
	case TreeRestart:
		s.few(d)
		if d.percent(30) {
			s.crashAllBut(d, s.kill)
		}
		s.reboots(d)
	case TreeBreak, StoreBreak:
		s.few(d)
		s.drawPlan(d, sim.FaultCut, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.impatient()
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
	case StoreExpiry, StoreEvict:
		s.lifetimeFaults(d)
	case StoreLarge:
		s.largeFaults(d)
	case StoreOpen, StoreRuns:
		s.openFaults(d)
	case Drops:
		s.dropFaults(d)
	case StoreCrash, TreeCrash:
		s.crashAllBut(d, pick(d, s.kill, s.kill, s.zombie))
	}
}

// lifetimeFaults draws faults for stores in which objects expire or are evicted; or none.
func (s *Scenario) lifetimeFaults(d *drawer) {
	switch d.between(0, 3) {
	case 1:
		s.crashAllBut(d, pick(d, s.kill, s.kill, s.zombie))
	case 2:
		s.drawPlan(d, sim.FaultPause)
		s.impatient()
	case 3:
		s.drawPlan(d, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate)
		s.impatient()
	}
}

// few makes clients few and keys many: operations of unknown outcome make histories hard to judge.
func (s *Scenario) few(d *drawer) {
	if s.Hot > 0 { // clients of one compute node are what it is about
		s.CNs, s.Clients, s.Rounds = min(s.CNs, 2), min(s.Clients, 4), min(s.Rounds, 20)
	} else {
		s.CNs, s.Clients, s.Keys = min(s.CNs, 3), min(s.Clients, 2), s.Keys+3
	}
	s.layoutFor(d)
}

// impatient makes waiters recheck their locks, as they do in production.
func (s *Scenario) impatient() {
	s.RecheckNs, s.ResetNs = 500*fabric.Microsecond, 10*fabric.Millisecond
}

func (s *Scenario) drawPlan(d *drawer, kinds ...sim.FaultKind) {
	s.Plan = sim.DrawPlan(&d.Rand, sim.PlanParams{CNs: s.CNs, MNs: s.MNs, Faults: 8, Horizon: s.horizon() + 1000, Kinds: kinds, Spare: 1})
}

// horizon is when faults have begun: most runs are under way still.
func (s *Scenario) horizon() fabric.Time {
	switch {
	case s.Side > 0:
		return min(s.span(), max(fabric.Millisecond, fabric.Time(s.Rounds)*s.ThinkNs/2))
	case s.Keys > 0:
		return s.span()
	}
	return s.span() / 3
}

func (s *Scenario) at(d *drawer) fabric.Time { return fabric.Time(d.Uint64n(uint64(s.horizon()))) }

// crashAllBut has all compute nodes but one or more crash, each as crash draws it.
func (s *Scenario) crashAllBut(d *drawer, crash func(d *drawer, cn sim.Endpoint) sim.Plan) {
	s.CNs = max(s.CNs, 2)
	s.layoutFor(d)
	s.impatient()
	s.DetectNs = pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond, 2*fabric.Millisecond)
	s.Late = pick(d, "draw", "drop", "keep")
	first := d.between(1, s.CNs)
	for i := range d.between(1, s.CNs-1) {
		s.Plan = append(s.Plan, crash(d, sim.OfCN(fabric.CNID((first+i)%s.CNs+1+s.Switch)))...)
	}
}

// reboots has memory nodes restart with their memory: while nothing is under way for a moment, or away for long.
func (s *Scenario) reboots(d *drawer) {
	s.impatient()
	for range d.between(1, 3) {
		t := s.at(d)
		s.Plan = append(s.Plan, sim.Fault{At: t, Kind: sim.FaultReboot, Node: sim.OfMN(fabric.MemID(d.Uint64n(uint64(s.MNs)))),
			Until: t + 1 + d.time(2*fabric.Millisecond)})
	}
}

// kill is a crash.
func (s *Scenario) kill(d *drawer, cn sim.Endpoint) sim.Plan {
	return sim.Plan{{At: s.at(d), Kind: sim.FaultKill, Node: cn}}
}

// zombie is a pause in which, or some time after which, the node is declared dead.
func (s *Scenario) zombie(d *drawer, cn sim.Endpoint) sim.Plan {
	t := s.at(d)
	return sim.Plan{
		{At: t, Kind: sim.FaultPause, Node: cn, Until: t + d.time(4*fabric.Millisecond) + 100},
		{At: t + d.time(2*fabric.Millisecond), Kind: sim.FaultFence, Node: cn},
	}
}
