package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/objstore"
)

// A Result is what came of a run.
type Result struct {
	Scenario   Scenario
	Violations []oracle.Violation
	Hash       uint64      // of the history: the same in every run
	Time       fabric.Time // virtual
	Overtaken  int         // how often the one was passed that was passed most
	Counts

	// Last are the last operations of each client, if they were traced.
	Last []ClientHistory
}

// Counts are what has been counted in a run, or in many.
type Counts struct {
	Events    uint64
	Grants    uint64 // or operations of the store
	Refused   uint64 // tried, timed out, cancelled
	Resets    uint64
	Upgraded  uint64         // holders for update
	Evicted   uint64         // objects
	Moved     uint64         // objects, so that another class gets the memory
	Expired   uint64         // objects that were found expired and dropped
	Open      uint64         // objects that were stored without a lock
	Absorbed  uint64         // sets and deletes that a later client of the compute node has done
	Copied    uint64         // backups that have come in sync
	Dropped   uint64         // stores and trees
	LetGo     uint64         // by compute nodes that had them open
	Undecided uint64         // keys whose history took too long to judge
	Effects   sim.FaultStats // of faults
	LongestNs fabric.Time    // that anyone waited for a lock
}

// Bad reports whether an oracle objects.
func (r *Result) Bad() bool { return len(r.Violations) > 0 }

// errStuck ends a run in which clients wait for ever.
var errStuck = errors.New("clients wait for ever")

func newRand(seed, stream uint64) sim.Rand { return sim.NewRand(seed, 1<<33+stream) }

// Run runs a scenario: first with its faults, then without; in the end every
// live compute node acquires every lock once more. All oracles judge.
func Run(s Scenario) (*Result, error) { return run(s, false) }

func run(s Scenario, trace bool) (*Result, error) {
	w, err := newWorld(s, trace)
	if err != nil {
		return nil, err
	}
	return w.play(), nil
}

// play runs the world to its end.
func (w *world) play() *Result {
	defer w.c.Close()
	w.startAgents()
	w.startClients()
	if w.s.Keys > 0 {
		w.startReclaimers()
	}
	if w.s.Repair > 0 {
		w.startCopiers()
	}
	if w.s.Side > 0 {
		w.startSides()
	}
	w.startJoins()
	w.startLeaves()
	w.startSwitchFailures()
	w.s.Plan.Shift(w.began).Apply(w.c)
	w.sever()
	if w.s.Copies > 0 {
		w.c.At(w.began+w.s.restarted(), w.abandon)
	} else {
		w.startLosses()
	}
	w.c.Go(w.nodes[w.s.CNs].sim, "witness", w.witness)
	err := w.c.Run()
	if err == nil {
		err = w.settle()
	}
	switch {
	case errors.Is(err, errStuck):
		w.court.End()
	case err != nil:
		var p *sim.PanicError
		kind := "events"
		if errors.As(err, &p) {
			kind = "panic"
		}
		w.object(kind, err.Error())
		w.court.End()
	default:
		w.court.End()
		w.atRest()
	}
	return w.result()
}

// sever cuts the link between two compute nodes for longer than the run takes.
func (w *world) sever() {
	a, b := sim.OfCN(1), sim.OfCN(2)
	if w.s.Severed > 0 {
		w.c.Cut(a, b, fabric.Forever/2)
	}
	if w.s.Severed > 1 {
		w.c.Cut(b, a, fabric.Forever/2)
	}
}

// startClients starts the clients of all nodes but the witness.
func (w *world) startClients() {
	for cn := 1; cn <= w.s.CNs; cn++ {
		w.startClientsOf(cn)
	}
}

// startClientsOf starts the clients of a node.
func (w *world) startClientsOf(cn int) {
	for i := range w.s.Clients {
		w.working++
		n := w.nodes[cn-1]
		n.active++
		name := fmt.Sprintf("%d.%d", cn, i+1)
		w.c.Go(n.sim, name, func(p fabric.Port) {
			defer func() { w.working--; n.active-- }()
			c := w.newClient(cn, name, p)
			n.clients = append(n.clients, c)
			switch {
			case w.s.Sit > 0 && cn == 1 && i == 0:
				c.sits()
			case w.s.Tree > 0:
				c.treeRounds()
			case w.s.Keys > 0:
				c.storeRounds()
			default:
				c.lockRounds()
			}
		})
	}
}

// startJoins has nodes join while things go wrong, and somewhat later. They get the numbers of crashed nodes, once these are
// free. What goes wrong spares them.
func (w *world) startJoins() {
	for i := range w.s.Joins {
		d := drawer{newRand(w.s.Seed, streamJoins+uint64(i))}
		within := w.s.horizon() + w.s.DetectNs + 4*w.s.NewsNs
		at := fabric.Time(d.Uint64n(uint64(within)))
		if i == 0 && w.s.JoinNs > 0 {
			at = w.s.JoinNs
		}
		w.working++ // the witness waits for the nodes that are to join
		w.c.At(w.began+at, func() {
			w.working--
			w.join()
		})
	}
}

// patience is how long clients may take after the last fault until they are
// stuck. A client that passes a lock on to a waiter that never writes its entry looks for
// that for some 1.5 s before it asks for a reset; a few such in a row are tolerated.
func (w *world) patience() fabric.Time {
	if w.s.PatienceNs != 0 {
		return w.s.PatienceNs
	}
	p := 5*fabric.Second + 20*w.s.span() + 8*w.s.ResetNs + w.s.DetectNs
	return p + fabric.Time(w.s.Rounds*w.s.Clients*w.s.CNs)*w.s.WaitNs
}

// witness waits until all clients are done, with a bound once the faults are
// over; then it has each living node acquire each lock.
func (w *world) witness(p fabric.Port) {
	calm := w.began + w.s.Plan.End()
	if w.s.Copies > 0 {
		calm = w.began + w.s.restarted()
	}
	for cn := 1; cn <= w.s.CNs; cn++ {
		if w.s.deadly(cn) {
			calm = w.began + w.s.Plan.End() + w.s.DetectNs + 4*w.s.NewsNs // crashed nodes are fenced by then, and all know
		}
	}
	if p.Now() < calm {
		_ = p.Pause(calm)
	}
	w.await(p, max(p.Now(), calm)+w.patience())
	if w.s.Keys == 0 {
		for cn := 1; cn <= len(w.nodes); cn++ {
			if w.dead(cn) {
				continue
			}
			w.working++
			w.c.Go(w.nodes[cn-1].sim, fmt.Sprintf("last of cn%d", cn), func(p fabric.Port) {
				defer func() { w.working-- }()
				c := w.newClient(cn, "last", p)
				for i := range w.locks {
					if !w.homeGone(w.locks[i]) && c.acquireLast(i) {
						c.release(i)
					}
				}
			})
		}
		w.await(p, p.Now()+w.patience())
	}
}

func (w *world) await(p fabric.Port, limit fabric.Time) {
	step := 50 * fabric.Microsecond
	for w.working > 0 {
		if p.Now() >= limit {
			panic(errStuck)
		}
		_ = p.Pause(p.Now() + step)
		step = min(2*step, fabric.Millisecond)
	}
}

// settle lets what is under way come to its end, and closes the store or tree.
func (w *world) settle() error {
	end := w.c.Now() + 5*fabric.Millisecond + w.s.ResetNs
	if w.s.leavesBehind() {
		end += 15*fabric.Millisecond + w.s.ResetNs // the same: see below
	}
	if w.s.BrokenLateNs > 0 {
		// An operation of unknown outcome may have left a place behind. Its node asks for the reset when it has seen the
		// operation settled, and it looks every 5 ms.
		end = max(end, w.began+w.s.Plan.End()+w.s.BrokenLateNs+10*fabric.Millisecond+w.s.ResetNs)
	}
	if err := w.c.RunUntil(end); err != nil {
		return err
	}
	if w.s.Keys == 0 {
		return nil
	}
	if w.s.loses() {
		w.c.Go(w.nodes[w.s.CNs].sim, "closer", w.closeLost)
		return w.c.Run()
	}
	if w.s.Side > 0 {
		w.c.Go(w.nodes[w.s.CNs].sim, "closer beside", w.closeSides)
		if err := w.c.Run(); err != nil {
			return err
		}
	}
	if w.s.Copies > 0 {
		w.c.Go(w.nodes[w.s.CNs].sim, "closer", w.closeReplicated)
		return w.c.Run()
	}
	swept := false
	witness := w.nodes[w.s.CNs]
	w.c.Go(witness.sim, "closer", func(p fabric.Port) {
		if w.s.Tree > 0 && !w.repairTree(p) {
			return
		}
		if swept = w.sweepUp(p); swept && !w.s.givesUp() {
			w.judgeRest(witness, p)
		}
	})
	if err := w.c.Run(); err != nil || !swept || !w.s.givesUp() {
		return err
	}
	return w.succeed(witness)
}

// succeed has a node that joins take the place of the witness, which leaves: what an operation of unknown outcome had is the
// node's that began it as long as that node runs, and leaked when it has gone.
func (w *world) succeed(witness *node) error {
	w.addNode()
	n := w.nodes[len(w.nodes)-1]
	w.event(oracle.Event{Kind: oracle.Joined, Client: fabric.AgentOf(n.sim.ID())})
	w.startAgent(len(w.nodes))
	w.c.Go(n.sim, "successor", func(p fabric.Port) {
		if err := w.openOn(n, p); err != nil {
			w.object("keeper", fmt.Sprintf("the node that joins in the end: %v", err))
			return
		}
		w.c.Kill(witness.sim)
		_ = p.Pause(p.Now() + w.s.DetectNs + 4*w.s.NewsNs + fabric.Second)
		k, err := w.reclaimer(n, n, p)
		if err == nil {
			err = k.Reclaim(n.sim.View)
			k.Close()
		}
		if err != nil {
			w.object("keeper", fmt.Sprintf("what the last node had is not found: %v", err))
			return
		}
		w.judgeRest(n, p)
	})
	return w.c.Run()
}

// judgeRest judges what is left of the store or tree, for a client of a live node.
func (w *world) judgeRest(n *node, p fabric.Port) {
	if w.s.Tree > 0 {
		w.judgeTree(n, p)
		return
	}
	st, err := n.store.Client(w.storeLocker(n, p))
	if err != nil {
		w.object("store check", err.Error())
		return
	}
	w.inspect(st)
	w.readAll(st, p)
	w.judgeSegments(n, st, p)
}

// inspect checks the store, of which no memory may be missing.
func (w *world) inspect(st *objstore.Client) {
	r, err := st.Check(objstore.CheckOptions{})
	switch {
	case err != nil:
		w.object("store check", err.Error())
		return
	case !r.Sound():
		w.object("store check", r.String())
	}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Elsewhere != 0 {
			w.object("leaked memory", fmt.Sprintf("%d bytes are in no object and in no list:\n%v", n.Elsewhere, r))
			return
		}
	}
}

// readAll reads every key once more: what the clients left must be readable,
// and be what their history says.
func (w *world) readAll(st *objstore.Client, p fabric.Port) {
	for i := range w.s.Keys {
		if o, err := w.storeOp(st, p, oracle.StoreOp{Client: 0, Method: "get", Key: fmt.Sprintf("key%d", i)}); err != nil {
			w.object("errors", fmt.Sprintf("at the end: %v: %v", o, err))
		}
	}
}

// judgeTime bounds the search for a linearization of one key. Hardly any takes a thousandth of it.
const judgeTime = 10 * time.Second

// atRest judges what is left when all is over.
func (w *world) atRest() {
	for i, l := range w.locks {
		if w.s.Lock != "" {
			break // what the others leave, the last acquisitions have shown
		}
		if what := oracle.CheckHeader(w.s.Capacity, w.c.PeekWord(l)); what != "" {
			w.object("header", fmt.Sprintf("lock %d: %s", i, what))
		}
	}
	w.settleLost()
	w.judgeBackups()
	for i, n := range w.nodes {
		if w.dead(i + 1) { // a client of it may have stopped for ever with the mutex of its table
			continue
		}
		if left := n.table.Len(); left != 0 {
			w.object("residue", fmt.Sprintf("cn%d has %d local locks left", i+1, left))
		}
		if left := n.sim.Abandoned(); left != 0 {
			w.object("ids", fmt.Sprintf("cn%d has %d client IDs that were abandoned and that nobody has retired", i+1, left))
		}
	}
	if w.s.SyncNs == 0 {
		before := w.c.Events()
		if err := w.c.RunUntil(w.c.Now() + 100*fabric.Second); err != nil {
			w.object("events", err.Error())
		}
		between := w.c.Events()
		if err := w.c.RunUntil(w.c.Now() + 100*fabric.Second); err != nil || w.c.Events() != between {
			w.object("residue", fmt.Sprintf("the cluster does not come to rest: %d events, then %d more", between-before, w.c.Events()-between))
		}
	}
}

// settleNs is how long a compute node may take to let go of what it had of a lost memory: its agent looks at a memory node every 5 ms
// once it knows of trouble, and a node that has not used one since may hear of it from its last client.
const settleNs = 20 * fabric.Millisecond

// settleLost gives compute nodes that have something left of a lost memory time to notice.
func (w *world) settleLost() {
	lost := w.s.Copies > 0 || slices.ContainsFunc(w.s.Plan, func(f sim.Fault) bool { return f.Kind == sim.FaultRestart })
	left := func(n *node) bool { return !n.dead && (n.table.Len() != 0 || n.sim.Abandoned() != 0) }
	if !lost || !slices.ContainsFunc(w.nodes, left) {
		return
	}
	if err := w.c.RunUntil(w.c.Now() + settleNs); err != nil {
		w.object("events", err.Error())
	}
}

func (w *world) result() *Result {
	r := &Result{Scenario: w.s, Hash: w.c.Hash(), Time: w.c.Now() - w.began, Overtaken: w.over.Most(), Counts: w.counts}
	r.Events, r.Effects = w.c.Events(), w.c.FaultStats()
	if w.store.Len() > 0 {
		wrong, undecided := w.store.Check(judgeTime)
		for _, what := range wrong {
			w.object("linearizability", what)
		}
		r.Undecided = uint64(undecided)
	}
	w.judgeHistories(r)
	for _, n := range w.nodes {
		if n.agent != nil {
			r.Resets += n.agent.Resets().Led
		}
	}
	w.tap.drawObjections() // those of the end
	r.Violations = w.court.Violations()
	if w.tap.trace {
		r.Last = w.tap.last.histories()
	}
	return r
}
