package check

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/objstore"
)

// storePromotes draws object stores on replicated memory-node numbers, of which the memory nodes end: the primary, a backup, or one after the other; compute nodes may crash or
// stand still, too, and the network fail. Nothing that was acknowledged is lost: if memory is lost, then by fewer memory nodes than there are copies.
func (s *Scenario) storePromotes(d *drawer) {
	s.few(d)
	s.MNs, s.Copies, s.Spares = d.between(1, 2), pick(d, 2, 2, 3), d.between(0, 2)
	s.Spares = max(s.Spares, s.Copies-s.MNs)
	s.impatient()
	s.DetectNs = pick(d, 20*fabric.Microsecond, 200*fabric.Microsecond, fabric.Millisecond)
	if d.percent(30) {
		s.crashAllBut(d, pick(d, s.kill, s.kill, s.zombie))
	}
	crashes := s.Plan
	if s.Plan = nil; d.percent(30) {
		s.drawPlan(d, sim.FaultPause, sim.FaultCut, sim.FaultDelay, sim.FaultDuplicate, sim.FaultDetach)
	}
	s.Plan = append(s.Plan, crashes...)
	n, drops := d.between(0, 4), d.percent(40)
	for range n {
		s.Plan = append(s.Plan, s.ends(d, n < s.Copies && !drops)...)
	}
	if drops {
		s.slowLinks(d)
	}
	if s.Tree > 0 {
		return
	}
	if d.percent(20) {
		s.NoEvict, s.Room = d.between(0, 1), 4096+s.Keys*(128+s.Values)*d.between(30, 120)/100
	}
	if d.percent(20) {
		s.SecondNs, s.Expiring = pick(d, 5*fabric.Microsecond, 100*fabric.Microsecond), 50
		s.EpochNs, s.SkewNs = 0, pick(d, 0, s.SecondNs/2)
	}
}

// slowLinks draws links between compute nodes and memory nodes, those of backups and spares among them, on which nothing passes for a while, or late; and clients that are
// interrupted, or whose connections break, while a chain to a backup is under way. It may land at any time later. Such a backup is dropped, so the memory of another may not
// be lost.
func (s *Scenario) slowLinks(d *drawer) {
	for range d.between(1, 6) {
		at := s.at(d)
		f := sim.Fault{At: at, Kind: pick(d, sim.FaultCut, sim.FaultDelay), Until: at + 1 + d.time(fabric.Millisecond),
			Node: sim.OfCN(fabric.CNID(d.between(1, s.CNs))), Peer: sim.OfMN(fabric.MemID(d.between(0, s.MNs+s.Spares-1)))}
		if f.Kind == sim.FaultDelay {
			f.Delay = 1 + d.time(300*fabric.Microsecond)
		}
		if d.percent(20) {
			f.Node, f.Peer = f.Peer, f.Node
		}
		s.Plan = append(s.Plan, f)
	}
	if d.percent(70) {
		s.Cancel, s.WaitNs = pick(d, 20, 60), pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
		s.GraceNs = pick(d, 1, fabric.Microsecond, 5*fabric.Microsecond, 50*fabric.Microsecond)
	}
	if s.GraceNs == 0 || d.percent(30) {
		s.BreakNs = pick(d, 5*fabric.Microsecond, 50*fabric.Microsecond)
		s.BrokenLateNs = pick(d, 100*fabric.Microsecond, fabric.Millisecond)
	}
}

// ends draws how a memory node ends. mayLose: its memory may be lost with it.
func (s *Scenario) ends(d *drawer, mayLose bool) (p sim.Plan) {
	node := sim.OfMN(fabric.MemID(d.between(0, s.MNs-1))) // most often it is a primary
	if d.percent(40) {
		node = sim.OfMN(fabric.MemID(d.between(0, s.MNs+s.Spares-1)))
	}
	at := s.at(d)
	back := sim.Fault{At: at, Kind: sim.FaultReboot, Node: node, Until: at + 1 + d.time(2*fabric.Millisecond)}
	if mayLose && d.percent(50) {
		back.Kind = sim.FaultRestart
	}
	if d.percent(30) { // it is given up, and its NIC goes on
		p = append(p, sim.Fault{At: at, Kind: sim.FaultFence, Node: node})
		back.At = back.Until
		back.Until += 1 + d.time(fabric.Millisecond)
	}
	if d.percent(20) { // it stands still for others, and hears of nothing
		p = append(p, sim.Fault{At: max(0, at-d.time(100*fabric.Microsecond)), Kind: sim.FaultDetach, Node: node, Until: back.Until})
	}
	return append(p, back)
}

// closeReplicated checks a replicated store when all is over: it is sound, and reads every key once more; and so it is, and does, when its backups serve, for what has changed at
// them last shows there only. If nothing has crashed or failed, the backups are what the primary is.
func (w *world) closeReplicated(p fabric.Port) {
	w.looking = false
	if w.s.Tree > 0 {
		w.closeReplicatedTree(p)
		return
	}
	own := w.nodes[w.s.CNs]
	st, err := own.store.Client(w.storeLocker(own, p))
	if err != nil {
		w.object("store check", err.Error())
		return
	}
	w.readAll(st, p) // it attaches to what serves now
	w.reclaimOn()
	w.reclaimOnWitness()
	if w.s.Repair > 0 && !w.awaitCopies(p) {
		return
	}
	w.awaitWalks("store check", p, func() (verdict, error) { return st.Check(objstore.CheckOptions{Backups: true}) })
	w.promoteAll(p)
	w.readAll(st, p)
	if r, err := st.Check(objstore.CheckOptions{}); err != nil || !r.Sound() {
		w.object("store check", fmt.Sprint("after the last promotion: ", err, r))
	}
	w.judgeLeaks(p)
}

// judgeLeaks ends all compute nodes but the witness, which finds what they had, and what was free at primaries that are no more: then nothing is leaked.
func (w *world) judgeLeaks(p fabric.Port) {
	own := w.nodes[w.s.CNs]
	for cn := 1; cn <= w.s.CNs; cn++ {
		if !w.dead(cn) {
			w.c.Kill(w.nodes[cn-1].sim)
		}
	}
	_ = p.Pause(p.Now() + w.s.DetectNs + 8*w.s.NewsNs + fabric.Second)
	k, err := w.reclaimer(own, own, p)
	if err == nil {
		err = errors.Join(k.Reclaim(own.sim.View), k.Drain())
		k.Close()
	}
	if errors.Is(err, objstore.ErrUnanswered) && w.backupsDown() {
		return // one that is not there may have what no primary has, and be promoted yet
	}
	if err != nil {
		w.object("keeper", fmt.Sprintf("memory that was free before promotions is not found: %v", err))
		return
	}
	w.judgeRest(own, p)
}

// promoteAll promotes a backup of each number, if there is one in sync, and waits until all know.
func (w *world) promoteAll(p fabric.Port) {
	w.looking = false
	for _, id := range w.mns {
		_ = w.c.Promote(id)
	}
	_ = p.Pause(p.Now() + abandonNs + 8*w.s.NewsNs)
}

// walkNs is within which time all backups are what their primaries are once the faults are over, and walkLookNs how often is looked.
const (
	walkNs     = 400 * fabric.Millisecond
	walkLookNs = 5 * fabric.Millisecond
)

// A verdict is what a check of a store or tree finds.
type verdict interface {
	Sound() bool
	String() string
}

// awaitWalks has a store or tree become sound, and its backups equal to the primaries: compute nodes repair what others that crashed, and failed operations, have left.
func (w *world) awaitWalks(oracle string, p fabric.Port, check func() (verdict, error)) {
	for began := p.Now(); ; {
		r, err := check()
		switch {
		case err == nil && r.Sound():
			return
		case errors.Is(err, fabric.ErrNodeDown) && p.Now() > began+4*walkLookNs: // a backup that has ended, and has missed nothing
			return
		case p.Now() < began+walkNs:
			_ = p.Pause(p.Now() + walkLookNs)
		default:
			w.object(oracle, fmt.Sprint(err, r))
			return
		}
	}
}

// backupsDown reports whether a replica is not up, and is a member of its group.
func (w *world) backupsDown() bool {
	for _, id := range w.mns {
		if g := w.c.Group(id); g != nil {
			for _, r := range g.Replicas {
				if !w.c.Has(r.Host) {
					return true
				}
			}
		}
	}
	return false
}
