package fiss

import (
	"cmp"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
)

// Recovery, in the paper's three steps: all machines pause, and report what they know (S1), agents are rebuilt (S2), and the registers of the switch (S3). The live machine
// with the lowest number leads, in place of the paper's coordinator. A recovery is a round, whose number the switch's control plane gives out: it is
// in the name of each operation, so that nothing of a round before has any effect.
//
// Only holds are rebuilt. After the recovery a machine asks anew for what its clients wait for, and releases what they have released meanwhile.
//
// All machines know when a node has gone that they have seen. They tell the lowest, which may have come, or made its Pool, since; what none of them has seen the switch tells: it is closed then.
//
// A machine takes part in a round only if its leader has paused it: so each number of a machine has one incarnation in a round. A machine that joins later begins a round of its
// own; before the first recovery the switch knows machines by the incarnation that their ACQUIREs name, and by what those say that join.

// A step is how far a recovery has come.
type step uint8

const (
	begins   step = iota // the switch is asked for a round
	collects             // S1
	rebuilds             // S2
	restores             // S3
	opens
)

// A recovery is what its leader keeps of it.
type recovery struct {
	epoch    uint64 // View.Epoch: it makes up for all nodes that had gone until then
	round    uint64 // that it is, or asks for
	step     step
	machines fabric.CNSet           // that take part
	waits    fabric.CNSet           // those whose answer is missing
	holders  map[fabric.Addr][]opID // that were reported
	left     []fabric.Addr          // restores: the locks that are not restored yet
	sent     int                    // restores: so many of these have been sent
	due      fabric.Time            // when to send the switch anew what it has not answered
}

const (
	// restoreWindow is how many locks are restored at once.
	restoreWindow = 64
	// recoverNs is Config.ResendNs of a recovery, if that is 0: the switch may be away.
	recoverNs = 100 * fabric.Microsecond
)

// machines returns the live compute nodes but the switch.
func (p *Pool) machines() fabric.CNSet {
	live := p.view().Live
	if p.cfg.Device {
		live.Remove(p.to.CN())
	}
	return live
}

// viewed looks whether a machine or the switch has gone: failed, or left. The lowest machine leads a recovery; one that leads begins anew.
func (p *Pool) viewed(port fabric.Port) {
	if p.view == nil {
		return
	}
	p.look(p.view())
	v := p.view()
	switch first, any := p.machines().Next(0); {
	case p.lead != nil && (p.lead.epoch >= p.gone || v.Epoch < p.gone):
		p.lead.due = min(p.lead.due, port.Now()) // the switch may be back
	case p.lead != nil: // it may have begun that round, which nobody else leads
		p.lead = &recovery{epoch: v.Epoch, round: p.lead.round}
	case p.gone <= p.recovered || v.Epoch < p.gone: // the view comes that shows that
		return
	case first == p.cn:
		p.lead = &recovery{epoch: v.Epoch} // round 0 asks which is the last
	case any:
		p.send(port, fabric.AgentOf(first), msgLook, 0, 0, p.gone)
		return
	default:
		return
	}
	p.leads(port)
}

// presume takes it that nodes had gone by a view, and that this machine may not have noticed.
func (p *Pool) presume(port fabric.Port, epoch uint64) {
	if epoch > p.gone {
		p.gone = epoch
		p.viewed(port)
	}
}

// look notes which nodes are live, and whether one has gone since it last did: another may have its number by now. It may have come since, too: that is two changes of the view
// that show no other node. (A single one may be the beginning of a leave, which shows later.)
func (p *Pool) look(v fabric.View) {
	changed, unseen := v.Lost != p.lost, int64(v.Epoch-p.looked)
	p.lost, p.looked = v.Lost, v.Epoch
	for i := range p.last {
		now := uint64(0)
		switch cn := fabric.CNID(i); {
		case !v.Live.Has(cn):
		case p.incarnation == nil:
			now = 1
		default:
			now = cmp.Or(p.incarnation(cn), p.last[i], 1) // 0: the next view does not have it
		}
		if p.last[i] == 0 && now != 0 {
			unseen--
		}
		changed = changed || p.last[i] != 0 && p.last[i] != now
		p.last[i] = now
	}
	if changed || unseen > 1 {
		p.gone = v.Epoch
	}
}

// incarnationOf returns the incarnation of a node that is live; 0: none is, or the fabric has none.
func (p *Pool) incarnationOf(cn fabric.CNID) uint64 {
	if p.incarnation == nil {
		return 0
	}
	return p.incarnation(cn)
}

// alone begins a recovery: all machines that there were before this one may have left. None is left to notice, or none was there.
func (p *Pool) alone(port fabric.Port) {
	if p.cfg.Device && p.machines().Len() == 1 {
		p.missed(port)
	}
}

// join tells the switch which nodes were live when this machine joined, until that has answered, and returns when to do so again. Of those that had gone before, no machine may be left that saw
// them go.
func (p *Pool) join(port fabric.Port) fabric.Time {
	switch {
	case !p.joining:
		return fabric.Forever
	case port.Now() < p.begun.Due:
		return p.begun.Due
	}
	p.send(port, p.to, msgJoin, 0, uint64(newOp(p.cn, 0, 0)), uint64(p.key), p.found[0], p.found[1], p.found[2], p.found[3])
	if p.cfg.ResendNs == 0 {
		p.joining = false
		return fabric.Forever
	}
	p.begun.Start(port.Now(), p.cfg.ResendNs)
	return p.begun.Due
}

// missed begins a recovery, for a machine that others do not know in the present round. It may have stopped in one before, whose leader knew it.
func (p *Pool) missed(port fabric.Port) {
	if p.view != nil && p.lead == nil {
		p.lead = &recovery{epoch: p.view().Epoch}
		p.leads(port)
	}
}

// leads sends the switch what it has not answered yet, and returns when to do so again.
func (p *Pool) leads(port fabric.Port) fabric.Time {
	r := p.lead
	if r == nil || r.step == collects || r.step == rebuilds || !p.view().Live.Has(p.to.CN()) {
		return fabric.Forever
	}
	if port.Now() < r.due {
		return r.due
	}
	r.due = port.Now() + recoverNs
	if p.cfg.ResendNs > 0 {
		r.due = port.Now() + p.cfg.ResendNs
	}
	switch r.step {
	case begins:
		p.send(port, p.to, msgBegin, 0, 0, r.round, 0, p.incarnationOf(p.cn))
	case restores:
		r.sent = 0
		p.restore(port)
	case opens:
		p.send(port, p.to, msgOpen, 0, 0, r.round)
	}
	return r.due
}

// goOn goes on with the next step.
func (p *Pool) goOn(port fabric.Port, s step) {
	p.lead.step, p.lead.due = s, 0
	p.leads(port)
}

// all sends a message to all machines that take part.
func (p *Pool) all(port fabric.Port, to fabric.CNSet, kind fabric.MsgKind, body ...uint64) {
	for cn, ok := to.Next(0); ok; cn, ok = to.Next(cn) {
		p.send(port, fabric.AgentOf(cn), kind, body...)
	}
}

// recovers handles the messages of recoveries.
func (p *Pool) recovers(port fabric.Port, m *fabric.Message) {
	o, round, r := opID(m.Body[1]), m.Body[2], p.lead
	leads := r != nil && r.round == round
	switch {
	case m.Kind == msgJoined:
		p.joining = p.joining && round != uint64(p.key)
	case m.Kind == msgTaken && round == uint64(p.key) && o.round() == inRound(p.round): // another has had its number, or has gone
		p.joining = false
		p.missed(port)
	case m.Kind == msgRound:
		p.hearsOfRound(port, m)
	case m.Kind == msgPause && round > p.round && p.leading(m.From, m.Body[3]): // else it has gone, and its number may be another's
		p.pauses(port, m.From, round)
	case m.Kind == msgReport && leads && r.step == collects:
		p.reported(port, m)
	case m.Kind == msgRebuild && round == p.round && p.stopped:
		p.rebuild(port, m)
	case m.Kind == msgRebuilt && leads && r.step == rebuilds:
		if r.waits.Remove(m.From.CN()); r.waits.Len() == 0 {
			p.goOn(port, restores)
		}
	case m.Kind == msgDone && leads && o == 0 && r.step == opens:
		p.lead = nil
		p.all(port, p.machines(), msgResume, 0, 0, round, r.epoch)
	case m.Kind == msgDone && leads && o != 0 && r.step == restores:
		p.restored(port, fabric.Addr(m.Body[0]))
	case m.Kind == msgResume:
		p.recovered = max(p.recovered, m.Body[3])
		if round == p.round && p.stopped {
			p.resume(port)
		}
		if p.viewed(port); round > p.round { // it has joined since that began
			p.missed(port)
		}
	}
}

// hearsOfRound goes on with what the switch says of the last round. One that is not over yet needs another only if its leader has gone, and if nobody is left who knows.
func (p *Pool) hearsOfRound(port fabric.Port, m *fabric.Message) {
	round, by := m.Body[2], fabric.ClientID(m.Body[3])
	switch r := p.lead; {
	case r == nil && round > p.round && m.Body[5] != 0:
		if p.view != nil && p.gone <= p.recovered && !p.leading(by, m.Body[4]) {
			p.presume(port, p.since)
		}
	case r == nil && round > p.round: // it has joined since
		p.missed(port)
	case r == nil || round < r.round || round == r.round && r.step != begins:
	case round == r.round && round > p.led && by == p.self:
		p.led = round
		r.step, r.machines, r.holders = collects, p.machines(), map[fabric.Addr][]opID{}
		r.waits = r.machines
		p.all(port, r.machines, msgPause, 0, 0, round, p.incarnationOf(p.cn))
	case r.step != begins && m.Body[5] != 0 && p.leading(by, m.Body[4]): // that one will pause this machine, unless it does not know it: then its round ends first
	default: // another leads it, and will pause this machine unless it has failed; or the switch has failed since
		*r = recovery{epoch: r.epoch, round: round + 1}
		p.leads(port)
	}
}

// leading reports whether the machine is live that has begun a round, as the switch says (0: none has, it is since the switch failed).
func (p *Pool) leading(by fabric.ClientID, incarnation uint64) bool {
	return by != 0 && p.view().Live.Has(by.CN()) && p.incarnationOf(by.CN()) == incarnation
}

// pauses stops the machine's clients, and reports those that hold a lock.
func (p *Pool) pauses(port fabric.Port, leader fabric.ClientID, round uint64) {
	if p.lead != nil && leader != p.self && round >= p.lead.round && p.view().Live.Has(leader.CN()) {
		p.givesWay(port, leader, round)
	}
	p.enter(round)
	for i := range p.slots {
		if t := &p.slots[i]; t.phase == holds {
			p.send(port, leader, msgReport, uint64(t.lock), uint64(t.op), round)
		}
	}
	p.send(port, leader, msgReport, 0, 0, round)
}

// givesWay ends what this machine leads, for another leads a later round; it looks again when that one resumes, or goes. That one may not know of a machine yet that has stopped in a round of this one.
func (p *Pool) givesWay(port fabric.Port, leader fabric.ClientID, round uint64) {
	p.lead = nil
	if p.led == 0 {
		return
	}
	others := p.machines()
	others.Remove(p.cn)
	others.Remove(leader.CN())
	p.all(port, others, msgRound, 0, 0, round)
}

// enter begins a round. Of what a machine has with the switch and other machines, holders remain, and clients that want a lock.
func (p *Pool) enter(round uint64) {
	p.round, p.stopped = round, true
	clear(p.agents)
	clear(p.moves)
	p.idle = p.idle[:0]
	for i, t := range slices.Backward(p.slots) {
		op := newOp(p.cn, i, round)
		switch flags := t.op & (opTry | opMode); {
		case t.phase == holds:
			t.op, t.known = op.next(flags), true
		case t.phase == refusedIt || t.phase == outside: // the client has not seen it yet
			t.op = op.next(flags)
		case (t.phase == asked || t.phase == waiting) && !t.left:
			t.op, t.phase, t.known, t.Tries = op.next(flags), asked, false, 0
		default:
			t = ticket{op: op}
			p.idle = append(p.idle, i)
		}
		p.slots[i] = t
	}
}

// reported collects the holders. Once all are there, the machine of a first holder of each lock gets its agent.
func (p *Pool) reported(port fabric.Port, m *fabric.Message) {
	r, l, o := p.lead, fabric.Addr(m.Body[0]), opID(m.Body[1])
	if o != 0 {
		r.holders[l] = append(r.holders[l], o)
		return
	}
	if r.waits.Remove(m.From.CN()); r.waits.Len() > 0 {
		return
	}
	r.step, r.waits, r.left = rebuilds, r.machines, slices.Sorted(maps.Keys(r.holders))
	for _, l := range r.left {
		slices.Sort(r.holders[l])
		for _, o := range r.holders[l] {
			p.send(port, fabric.AgentOf(r.holders[l][0].cn()), msgRebuild, uint64(l), uint64(o), r.round)
		}
	}
	p.all(port, r.machines, msgRebuild, 0, 0, r.round)
}

// rebuild takes a holder of a lock whose agent is here, of this machine the first.
func (p *Pool) rebuild(port fabric.Port, m *fabric.Message) {
	l, o := fabric.Addr(m.Body[0]), opID(m.Body[1])
	switch a := p.agents[l]; {
	case o == 0:
		p.send(port, m.From, msgRebuilt, 0, 0, p.round)
	case a == nil:
		p.install(port, l, o, 0, nil, o.slot())
	default:
		a.add(o)
	}
}

// restore has the switch restore registers: some at once.
func (p *Pool) restore(port fabric.Port) {
	r := p.lead
	for ; r.sent < min(len(r.left), restoreWindow); r.sent++ {
		l := r.left[r.sent]
		p.send(port, p.to, msgRestore, uint64(l), uint64(r.holders[l][0]), r.round)
	}
	if len(r.left) == 0 {
		p.goOn(port, opens)
	}
}

// restored notes that the registers of a lock are.
func (p *Pool) restored(port fabric.Port, l fabric.Addr) {
	r := p.lead
	if i, ok := slices.BinarySearch(r.left, l); ok {
		r.left = slices.Delete(r.left, i, i+1)
		if i < r.sent {
			r.sent--
		}
		p.restore(port)
	}
}

// resume lets the clients go on: they ask for what they want, and release what they have released meanwhile.
func (p *Pool) resume(port fabric.Port) {
	p.stopped = false
	for i := range p.slots {
		switch t := &p.slots[i]; t.phase {
		case releasing:
			p.release(port, t)
		case asked:
			if p.ask(port, t); t.phase != asked {
				p.wake(port, t)
			}
		}
	}
}
