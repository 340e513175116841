package fiss

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/lock"
)

var seeds = flag.Uint64("seeds", 600, "of TestViewsInAnyOrder")

// A world is machines and a switch in which each machine has a view of its own time: views come late, are skipped, and come before the message that says so. A machine is admitted, and makes its Pool, when all others know it.
// Messages come in any order between pairs of nodes; in a lossy world they are lost and copied, too. Time passes by steps.
type world struct {
	cfg      Config
	rand     *rand.Rand
	lossy    bool
	now      fabric.Time
	views    []state
	machines []*machine
	program  *Program
	sw       *pswitch.Switch
	up       bool        // the switch
	which    uint64      // its incarnation
	back     int         // the view that had that first
	next     uint64      // incarnation
	under    []addressed // messages under way
	failure  string
}

// A state is a view, with the incarnations of its nodes.
type state struct {
	fabric.View
	incarnations [16]uint64
}

type machine struct {
	*Pool
	cn          fabric.CNID
	incarnation uint64
	live, runs  bool // a member; and admitted
	joined, at  int  // the views in which it has joined, and that it knows
	news        bool // it has not been told of its view
}

// addressed is a message to an incarnation of a node.
type addressed struct {
	from, to    fabric.ClientID
	incarnation uint64
	fabric.Message
}

// post is a Port of a machine: only what a Pool uses.
type post struct {
	fabric.Port
	w  *world
	m  *machine
	id fabric.ClientID
}

func (p post) ID() fabric.ClientID { return p.id }
func (p post) Now() fabric.Time    { return p.w.now }
func (p post) Send(to fabric.ClientID, m *fabric.Message) error {
	x := addressed{p.id, to, p.m.incarnation, *m}
	x.Message.From = p.id
	if to.CN() != p.m.cn {
		known := &p.w.views[p.m.at]
		if !known.Live.Has(to.CN()) {
			return fabric.ErrNodeDown
		}
		x.incarnation = known.incarnations[to.CN()]
	}
	p.w.under = append(p.w.under, x)
	return nil
}

func newWorld(t *testing.T, cfg Config, seed uint64) *world {
	t.Helper()
	cfg.Device, cfg.Switch, cfg.Locks, cfg.Slots, cfg.Machines, cfg.Passes = true, switchAt, 8, 16, 8, 2
	program, err := NewProgram(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cfg: cfg, rand: rand.New(rand.NewPCG(seed, 0)), program: program, sw: pswitch.New(program)}
	for i := range 4 {
		w.machines = append(w.machines, &machine{cn: fabric.CNID(2 + i)})
	}
	return w
}

func (w *world) agent(m *machine) fabric.Port { return post{w: w, m: m, id: fabric.AgentOf(m.cn)} }

// changes makes the next view.
func (w *world) changes(lost uint64) {
	var s state
	if n := len(w.views); n > 0 {
		s.View = fabric.View{Epoch: w.views[n-1].Epoch, Lost: w.views[n-1].Lost + lost}
	}
	s.Epoch++
	if w.up {
		s.Live.Add(switchAt)
		s.incarnations[switchAt] = w.which
	}
	for _, m := range w.machines {
		if m.live {
			s.Live.Add(m.cn)
			s.incarnations[m.cn] = m.incarnation
		}
	}
	w.views = append(w.views, s)
}

func (w *world) joins(m *machine) {
	w.next++
	m.incarnation, m.live, m.runs, m.Pool = w.next, true, false, nil
	w.changes(0)
	m.joined = len(w.views) - 1
	m.at = m.joined
}

func (w *world) goes(m *machine, lost uint64) {
	m.live, m.runs = false, false
	w.changes(lost)
}

func (w *world) switchFails() {
	w.up = false
	w.changes(1)
}

func (w *world) switchIsBack() error {
	program, err := w.program.Restart()
	if err != nil {
		return err
	}
	w.next++
	w.program, w.sw, w.up, w.which, w.back = program, pswitch.New(program), true, w.next, len(w.views)
	w.changes(0)
	return nil
}

// known reports whether all machines know a view.
func (w *world) known(view int) bool {
	for _, m := range w.machines {
		if m.live && m.at < view {
			return false
		}
	}
	return true
}

// admits has the machines begin that all others know.
func (w *world) admits() {
	for _, m := range w.machines {
		if !m.live || m.runs || !w.known(m.joined) {
			continue
		}
		m.Pool = NewPool(begun{w: w, m: m}, w.cfg)
		m.runs = true
		m.viewed(w.agent(m))
		m.alone(w.agent(m))
		m.join(w.agent(m))
	}
}

// begun is the node of a machine.
type begun struct {
	fabric.Node
	w *world
	m *machine
}

func (b begun) ID() fabric.CNID                   { return b.m.cn }
func (b begun) View() fabric.View                 { return b.w.views[b.m.at].View }
func (b begun) Incarnation(cn fabric.CNID) uint64 { return b.w.views[b.m.at].incarnations[cn] }

// learns has a machine act on a view from now on.
func (w *world) learns(m *machine, view int) {
	if m.live && view > m.at {
		m.at, m.news = view, true
		w.admits()
	}
}

// told has a machine look at the view that it acts on.
func (w *world) told(m *machine) {
	if m.news && m.runs {
		m.news = false
		m.handle(w.agent(m), &fabric.Message{Kind: fabric.MsgView})
	}
}

func (w *world) deliver(x addressed) {
	if x.to.CN() == switchAt {
		if !w.up || !w.known(w.back) || x.incarnation != w.which {
			return // lost
		}
		w.sw.Handle(&x.Message, func(to fabric.ClientID, out *fabric.Message) {
			if m := w.machine(to); m != nil && m.live {
				y := addressed{fabric.AgentOf(switchAt), to, m.incarnation, *out}
				y.Message.From = y.from
				w.under = append(w.under, y)
			}
		})
		return
	}
	if m := w.machine(x.to); m != nil && m.runs && m.incarnation == x.incarnation {
		m.handle(post{w: w, m: m, id: x.to}, &x.Message)
	}
	w.exclusive()
}

func (w *world) machine(to fabric.ClientID) *machine {
	if i := int(to.CN()) - 2; i >= 0 && i < len(w.machines) {
		return w.machines[i]
	}
	return nil
}

// some delivers a message that may come now, or loses or copies it.
func (w *world) some() {
	if len(w.under) == 0 {
		return
	}
	i := w.rand.IntN(len(w.under))
	x := w.under[i]
	unsure := w.lossy && x.from.CN() != x.to.CN() && (w.cfg.Acks || x.from.CN() == switchAt || x.to.CN() == switchAt)
	switch r := w.rand.IntN(100); {
	case !unsure: // the first from there to there, once that runs
		for k := range i {
			if w.under[k].from == x.from && w.under[k].to == x.to {
				i, x = k, w.under[k]
				break
			}
		}
		if m := w.machine(x.to); m != nil && m.live && !m.runs && m.incarnation == x.incarnation {
			return
		}
	case r < 15:
		w.under = append(w.under[:i], w.under[i+1:]...)
		return
	case r < 25:
		w.deliver(x)
		return
	}
	w.under = append(w.under[:i:i], w.under[i+1:]...)
	w.deliver(x)
}

// exclusive checks that no lock is held by a writer and another.
func (w *world) exclusive() {
	holders, writers := map[fabric.Addr]int{}, map[fabric.Addr]int{}
	for _, m := range w.machines {
		if !m.runs {
			continue
		}
		for i := range m.slots {
			if t := &m.slots[i]; t.phase == holds {
				holders[t.lock]++
				if t.op.mode() == lock.Exclusive {
					writers[t.lock]++
				}
			}
		}
	}
	for l, n := range writers {
		if holders[l] > 1 {
			w.failure = fmt.Sprintf("%v is held %d times, %d of them exclusively", l, holders[l], n)
		}
	}
}

// acts has a client of a machine ask, release or give up.
func (w *world) acts(m *machine) {
	if !m.runs {
		return
	}
	var own []*ticket
	for i := range m.slots {
		if t := &m.slots[i]; t.phase != idle && !t.left && t.client.CN() == m.cn && t.client != m.self {
			own = append(own, t)
		}
	}
	if len(own) > 0 && w.rand.IntN(3) > 0 {
		t := own[w.rand.IntN(len(own))]
		port := post{w: w, m: m, id: t.client}
		switch {
		case t.phase == holds:
			m.release(port, t)
		case t.phase == refusedIt || t.phase == outside:
			m.end(t)
		case (t.phase == asked || t.phase == waiting) && w.rand.IntN(3) == 0:
			m.giveUp(port, t)
		}
		return
	}
	if len(own) < 3 {
		m.begin(post{w: w, m: m, id: fabric.Client(m.cn, 1+w.rand.IntN(9))}, &lock.Request{
			Lock: theLock + fabric.Addr(64*w.rand.IntN(2)), Mode: [...]lock.Mode{lock.Shared, lock.Exclusive}[w.rand.IntN(2)], Try: w.rand.IntN(6) == 0,
		})
	}
}

// happens does one thing.
func (w *world) happens(faults *int) error {
	m := w.machines[w.rand.IntN(len(w.machines))]
	switch r := w.rand.IntN(100); {
	case r < 60:
		w.some()
	case r < 75:
		w.acts(m)
	case r < 83:
		if unknown := len(w.views) - 1 - m.at; unknown > 0 {
			w.learns(m, m.at+1+w.rand.IntN(unknown))
		}
	case r < 91:
		w.told(m)
	case r < 98:
		if m.runs {
			m.resend(w.agent(m))
		}
	case !w.up:
		return w.switchIsBack()
	case *faults > 0:
		*faults--
		w.fault(m)
	}
	w.exclusive()
	return nil
}

// fault has the switch fail, or a machine go or join. Mostly one is left that has seen all, else none need be.
func (w *world) fault(m *machine) {
	switch {
	case w.rand.IntN(4) == 0:
		w.switchFails()
	case w.rand.IntN(6) == 0:
		w.relieved()
	case !m.live:
		w.joins(m)
	case w.witness(m):
		w.goes(m, uint64(w.rand.IntN(2)))
	case w.rand.IntN(2) == 0:
		w.goes(m, 0)
	}
}

// relieved has all machines that run leave in order, once others have joined, of which none has its Pool before all know that.
func (w *world) relieved() {
	var run []*machine
	for _, m := range w.machines {
		switch {
		case m.runs:
			run = append(run, m)
		case !m.live:
			w.joins(m)
		}
	}
	for _, m := range run {
		w.goes(m, 0)
	}
	for _, m := range w.machines {
		if m.live {
			m.at = len(w.views) - 1
		}
	}
	w.admits()
}

// witness reports whether a machine runs beside another.
func (w *world) witness(m *machine) bool {
	for _, other := range w.machines {
		if other != m && other.runs {
			return true
		}
	}
	return false
}

// calms delivers all that is under way, and what comes of it, without a fault.
func (w *world) calms() {
	w.lossy = false
	for range 60 {
		for _, m := range w.machines {
			w.learns(m, len(w.views)-1)
		}
		w.admits()
		for _, m := range w.machines {
			w.told(m)
		}
		for n := 0; len(w.under) > 0 && n < 400; n++ {
			x := w.under[0]
			w.under = w.under[1:]
			w.deliver(x)
		}
		w.now += 50 * recoverNs
		for _, m := range w.machines {
			if m.runs {
				m.resend(w.agent(m))
			}
		}
	}
}

// unfinished returns what any machine still does.
func (w *world) unfinished() (does string) {
	for _, m := range w.machines {
		if !m.runs {
			continue
		}
		if m.stopped || m.lead != nil {
			does += fmt.Sprintf("machine %v has stopped (%v) in round %d of %d, or leads %+v; ", m.cn, m.stopped, m.round, w.program.rounds, m.lead)
		}
		for i := range m.slots {
			if t := m.slots[i]; t.phase != idle {
				does += fmt.Sprintf("machine %v: %+v; ", m.cn, t)
			}
		}
	}
	return does
}

// ends has all clients release what they hold, until none wants anything any more.
func (w *world) ends() {
	for range 40 {
		if w.calms(); w.failure != "" || w.unfinished() == "" {
			return
		}
		for _, m := range w.machines {
			for i := 0; m.runs && i < len(m.slots); i++ {
				switch t := &m.slots[i]; t.phase {
				case holds:
					m.release(w.agent(m), t)
				case refusedIt, outside:
					m.end(t)
				}
			}
		}
	}
	w.failure = w.unfinished()
}

// starts has some machines begin together.
func (w *world) starts(machines int) {
	w.which, w.next, w.up = 1, 1, true
	w.changes(0)
	for _, m := range w.machines[:machines] {
		w.joins(m)
	}
	for _, m := range w.machines {
		w.learns(m, len(w.views)-1)
	}
}

// run runs a seed: faults, and then clients that want each lock.
func (w *world) run(steps, faults int) error {
	w.starts(2 + w.rand.IntN(3))
	for s := 0; s < steps && w.failure == ""; s++ {
		w.now++
		if err := w.happens(&faults); err != nil {
			return err
		}
	}
	if !w.up {
		if err := w.switchIsBack(); err != nil {
			return err
		}
	}
	if !w.witness(nil) { // whatever joins last finds no lock held for ever
		for _, m := range w.machines[:1+w.rand.IntN(2)] {
			if !m.live {
				w.joins(m)
			}
		}
	}
	w.ends()
	for _, m := range w.machines {
		for k := 0; m.runs && k < 2; k++ {
			m.begin(post{w: w, m: m, id: fabric.Client(m.cn, 1+k)}, &lock.Request{Lock: theLock + fabric.Addr(64*k), Mode: lock.Exclusive})
		}
	}
	if w.failure == "" {
		w.ends()
	}
	return nil
}

// Whatever order machines learn of views in, and messages come in, a lock is held by one at a time, each recovery ends, and all locks are free in the end.
func TestViewsInAnyOrder(t *testing.T) {
	for seed := range *seeds {
		for _, cfg := range []Config{{}, {ResendNs: 10}, {ResendNs: 10, Acks: true}} {
			lossy := cfg.ResendNs > 0
			w := newWorld(t, cfg, seed)
			w.lossy = lossy
			if err := w.run(200+w.rand.IntN(1200), 2+w.rand.IntN(10)); err != nil || w.failure != "" {
				t.Fatalf("seed %d, lossy %v, acks %v: %v %s", seed, lossy, cfg.Acks, err, w.failure)
			}
		}
	}
}
