package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// A txnRun is a run of transactions by two-phase locking: a client takes all locks of a transaction, executes it, which is a pause, and releases them.
type txnRun struct {
	simulation
	m        Micro // of which lock, clients and network count; with trace "zipf" its locks, too
	trace    string
	artifact bool
	// sorted: locks are taken in the order of their numbers. Otherwise in that of the transaction, which gives up after txnPatience, releases all, and begins again.
	sorted bool
	// patience, if not 0, is for how long one that is not sorted waits for a lock before it does so, in place of txnPatience for all of them.
	patience fabric.Time
	mutex    bool // there are no shared holders, as ShiftLock's authors ran CAS and MCS

	warehouses  int // of TPC-C; 0: txnWarehouses for each compute node
	subscribers int // of TATP; 0: txnSubscribers
	mns         int // memory nodes, among which its warehouses are dealt out; 0: 1
	// local: each compute node has a memory node beside it, with the locks of its warehouses, and is the home of these locks.
	local bool
	think fabric.Time
	// data: a transaction READs 64 bytes for each of its locks before its pause, and WRITEs as many for each exclusive one behind it, one after the other, as ShiftLock's published client does.
	data    bool
	delayNs fabric.Time // between two transactions of a client
	word    uint64      // of each lock when the run begins
	scans   float64     // the share of long readers among its transactions
	tables  bool        // customers are taken by their table first, as they are where there are long readers
	scanNs  fabric.Time // for how long one holds its locks
	leaseNs fabric.Time // what transactions ask for where locks have leases of several slots
	longAsk bool        // long readers alone do so, others for one slot
	fails   failures
	// unchecked: a transaction that has lost a lock commits all the same; only one that is passed over while it waits begins again.
	unchecked bool
	ends      bool // Pace.Ends
	commits   int  // how many its fixed window has at least, as far as commitsNs suffices
	// hot is how many locks a profile names; 0: as many as the lock asks for.
	hot     int
	objects int  // with trace "zipf": so many, each of which belongs to one of the locks; 0: each lock is one
	nearBar bool // Point.Near

	// before are sources of other transactions of the same kind, for a dry run of them: a profile. nil: there is none.
	before   func(node, client int) locktrace.Source
	serverNs fabric.Time // what a worker of a server takes for a request; 0: locks.ServerNs
	retryNs  fabric.Time // a client that is refused a lock asks again after up to so long; 0: it waits as the lock has it

	plans  []plan
	each   int // locks of a warehouse; 0: they are not of warehouses
	used   *usedLocks
	aborts uint64 // transactions that gave up, and began again
	broken uint64 // transactions that lost a lock
	failed uint64 // clients that failed
	near   uint64 // acquisitions, with local, of locks of the own compute node, and all
	all    uint64
}

// The pauses for which ShiftLock's clients execute a transaction (its section 4.4), and after how long FissLock's give up.
var txnThink = map[string]fabric.Time{"tatp": 2800, "tpcc": 7 * fabric.Microsecond}

const txnPatience = 10 * fabric.Millisecond

// abortsLimitNs is how long a run of transactions that give up is at most if it does not become steady: few ever do, and one takes half a minute.
const abortsLimitNs = 200 * fabric.Millisecond

// commitsNs is for how long a run of so many commits is measured at most.
const commitsNs = 200 * fabric.Millisecond

// Sizes of the databases: 100 warehouses for each compute node.
const (
	txnWarehouses  = 100
	txnSubscribers = 100_000
)

func (r txnRun) point(m Micro, params Params, o Options) Point {
	r.m = m.WithDefaults()
	return Point{
		Cost: 1e8 * float64(min(r.m.Clients, 64)), Near: r.nearBar, Same: r.measurand(o),
		Measure: one(params, func(ctx context.Context, seed uint64) (Metrics, error) {
			r := r
			r.m.Seed = seed
			return r.measurand(o).take(func() (Metrics, error) {
				metrics, err := r.run(ctx, o)
				if err != nil {
					err = fmt.Errorf("%s with %s: %w", r.trace, r.m.Lock, err)
				}
				return metrics, err
			})
		}),
	}
}

// A thinker is a source that says how long its last transaction takes once it has its locks.
type thinker interface{ think() fabric.Time }

// zipfSource draws transactions of one lock, as a microbenchmark does.
type zipfSource struct {
	seq   *sequence
	locks uint64
}

func (s zipfSource) Next(list []locktrace.Access) []locktrace.Access {
	rank, shared := s.seq.next()
	a := locktrace.Access{Lock: uint32(rank % s.locks), Mode: lock.Exclusive}
	if shared {
		a.Mode = lock.Shared
	}
	return append(list, a)
}

// sources returns how many locks there are, and what makes the transactions of a client of a node.
func (r *txnRun) sources(o Options) (int, func(node, client int) locktrace.Source, error) {
	random := func(client int) *traces.Rand { return traces.NewRand(r.m.Seed, uint64(client)) }
	switch r.trace {
	case "zipf":
		z, err := traces.NewZipf(uint64(cmp.Or(r.objects, r.m.Locks)), r.m.Theta)
		return r.m.Locks, func(_, client int) locktrace.Source { return zipfSource{r.m.sequence(z, client), uint64(r.m.Locks)} }, err
	case "bank":
		z, err := traces.NewZipf(uint64(r.m.Locks), r.m.Theta)
		return r.m.Locks, func(_, client int) locktrace.Source { return &bankSource{zipf: z, Rand: random(client)} }, err
	case "tpcc":
		db := &locktrace.TPCC{Warehouses: cmp.Or(r.warehouses, txnWarehouses*r.m.CNs), Nodes: r.m.CNs, Artifact: r.artifact, Seed: r.m.Seed}
		r.each = db.Each()
		return db.Locks(), func(node, client int) locktrace.Source {
			if r.scans > 0 || r.tables {
				return db.Scans(node, random(client), r.scans)
			}
			return db.Source(node, random(client))
		}, nil
	}
	subscribers := cmp.Or(r.subscribers, txnSubscribers)
	if o.Tiny {
		subscribers = min(subscribers, 1000)
	}
	db := locktrace.NewTATP(subscribers, r.artifact)
	return db.Locks(), func(_, client int) locktrace.Source { return db.Source(random(client)) }, nil
}

// place makes memory nodes with room for all locks.
func (r *txnRun) place(y lock.Layout, n int) {
	mns := max(r.mns, 1)
	if r.local {
		mns = r.m.CNs
	}
	warehouse := max(r.each, 1)
	each := (n/warehouse + mns - 1) / mns * warehouse
	if mns == 1 {
		each = n
	}
	for i := range mns {
		p := newPlan(y, each, fabric.At(fabric.MemID(i), 0))
		r.plans = append(r.plans, p)
		size := p.size()
		if r.data {
			size += p.locks * dataOfLock
		}
		r.c.AddMN(size)
	}
}

// dataOf returns where the data of a lock is: behind all locks of its memory node.
func (r *txnRun) dataOf(l fabric.Addr) fabric.Addr {
	p := &r.plans[l.MN()]
	return p.at.Add(p.size() + (uint64(l-p.at)-planBase)/p.span*dataOfLock)
}

// addr returns where a lock is. Those of a warehouse are on one memory node.
func (r *txnRun) addr(l uint32) fabric.Addr {
	mns, each := uint64(len(r.plans)), uint64(max(r.each, 1))
	plan, rank := &r.plans[0], uint64(l)
	if mns > 1 {
		warehouse, rest := uint64(l)/each, uint64(l)%each
		share := plan.locks / each
		if r.local { // as TPCC.Source has it
			plan, warehouse = &r.plans[warehouse/share], warehouse%share
		} else {
			plan, warehouse = &r.plans[warehouse%mns], warehouse/mns
		}
		rank = warehouse*each + rest
	}
	if r.each > locktrace.WarehouseLocks {
		return plan.row(rank)
	}
	return plan.addr(rank)
}

// home returns where the locks are that compute nodes are the homes of.
func (r *txnRun) home() func(fabric.Addr) int {
	if !r.local {
		return nil
	}
	return func(a fabric.Addr) int { return int(a.MN()) }
}

func (r *txnRun) run(ctx context.Context, o Options) (Metrics, error) {
	n, source, err := r.sources(o)
	if err != nil {
		return nil, err
	}
	if err := r.profile(o); err != nil {
		return nil, err
	}
	return r.runWith(ctx, n, source)
}

// build makes the cluster, and the clients of the transactions that sources make, over n locks.
func (r *txnRun) build(n int, source func(node, client int) locktrace.Source) error {
	sys, err := r.m.systemAt(r.home(), fabric.At(0, counterOffset), cmp.Or(r.serverNs, locks.ServerNs))
	if err != nil {
		return err
	}
	r.c = sim.New(r.m.cluster())
	r.place(sys.Layout(), n)
	if r.before != nil {
		sys.Profile(func(most int) []fabric.Addr { return r.hottest(n, min(most, cmp.Or(r.hot, most))) })
	}
	r.prepare(sys.Used(), n)
	r.fill(n)
	if err := r.addSwitch(sys); err != nil {
		return err
	}
	for i := range r.m.CNs {
		node := r.c.AddCN()
		if r.local {
			r.c.Place(node, fabric.MemID(i))
		}
		joined, err := sys.Join(node)
		if err != nil {
			return err
		}
		r.startAgent(joined, node)
		for k := i; k < r.m.Clients; k += r.m.CNs {
			r.start(&txnClient{r: r, name: fmt.Sprintf("client %d", k), node: node, joined: joined, src: source(i, k), at: i})
		}
	}
	return nil
}

// runWith runs the transactions that sources make, over n locks.
func (r *txnRun) runWith(ctx context.Context, n int, source func(node, client int) locktrace.Source) (Metrics, error) {
	err := r.build(n, source)
	if r.c != nil {
		defer r.c.Close()
	}
	if err != nil {
		return nil, err
	}
	pace := r.m.pace()
	if !r.sorted {
		pace.LimitNs = min(pace.LimitNs, abortsLimitNs)
	}
	if n := uint64(r.commits); n > 0 {
		pace.Ops, pace.LeastOps, pace.LimitNs = n, n, pace.WarmupNs+commitsNs
	}
	pace.Ends = r.ends
	part, err := r.settle(ctx, pace, func(*counters) {})
	if err != nil {
		return nil, err
	}
	res := &Result{Ops: uint64(part.last - part.first), WindowNs: part.window(), counters: part.counters, part: part,
		tally: r.journal.tally(part.first, part.last)}
	metrics := res.Metrics()
	all := float64(max(len(r.journal.list), 1))
	metrics["aborts_pct"], metrics["broken_pct"] = 100*float64(r.aborts)/all, 100*float64(r.broken)/all
	passed := uint64(0)
	for _, l := range r.lockers {
		passed += l.Stats().Aborts
	}
	// Of a transaction a lease ends, or that of a client before it, by which it is passed over.
	metrics["expired_pct"] = 100 * float64(r.broken+passed) / (all + float64(r.broken+passed))
	metrics["resets"] = float64(part.Locks.Resets)
	metrics["failures"] = float64(r.failed)
	metrics["commits"] = float64(res.Ops)
	metrics["busiest_agent"] = r.busiest()
	if r.local {
		metrics["near_pct"] = 100 * per(r.near, r.all)
	}
	metrics["packets_per_op"] = per(r.packets(), uint64(len(r.journal.list)))
	for _, k := range locktrace.KindsOf(r.trace) {
		h := r.journal.ofKind(part.first, part.last, txnOp+kind(k))
		for _, q := range kindQuantiles {
			metrics[fmt.Sprintf("%v_p%d_us", k, q)] = quantile(h, float64(q))
		}
		metrics[k.String()+"_pct"] = 100 * per(uint64(h.TotalCount()), res.Ops)
	}
	return metrics, nil
}

// kindQuantiles are those of the latency of each kind of transaction.
var kindQuantiles = []int{10, 25, 50, 75, 81, 85, 90, 99}

// A txnClient is a client of a run.
type txnClient struct {
	r      *txnRun
	name   string
	node   *sim.Node
	joined *locks.Node
	src    locktrace.Source
	at     int         // which compute node it is of
	long   bool        // its transaction is a long reader
	due    bool        // it fails when it next waits for the first of its locks
	gone   bool        // it has failed
	lost   fabric.Addr // the lock that its transaction has lost last, or was passed over at
	l      lock.Locker
	holds  []lock.Hold
	req    lock.Request
	op     [1]fabric.Op
	buf    []byte
}

// dataOfLock is how much of data each lock has, where transactions access it.
const dataOfLock = 64

// A restarter is a Locker whose clients, once others have passed them over, release all that they hold, pause, and begin again. tries counts how often a transaction had to in a row for the same lock.
type restarter interface {
	FailPassed()
	Backoff(tries int) fabric.Time
}

// start starts a client.
func (r *txnRun) start(c *txnClient) {
	r.c.Go(c.node, c.name, func(p fabric.Port) {
		c.l = c.joined.Locker(r.fails.port(p))
		if l, ok := c.l.(restarter); ok {
			l.FailPassed()
		}
		r.lockers = append(r.lockers, c.l)
		if r.data {
			c.buf = p.Alloc(dataOfLock)
		}
		r.fail(c.work())
	})
}

// work does transactions until the run ends, or the client fails.
func (c *txnClient) work() error {
	r := c.r
	var list []locktrace.Access
	port, wait := c.l.Port(), fabric.Time(0)
	if r.delayNs > 0 { // clients do not begin together
		wait = fabric.Time(port.Rand() % uint64(r.delayNs))
	}
	for ; r.err == nil && !c.gone; wait = r.delayNs {
		if wait > 0 {
			if err := port.Pause(port.Now() + wait); err != nil {
				return err
			}
		}
		if list = c.src.Next(list[:0]); len(list) == 0 {
			continue
		}
		if s, ok := c.src.(*locktrace.Scans); ok {
			c.long = s.Long
		}
		if r.sorted {
			slices.SortFunc(list, func(a, b locktrace.Access) int { return cmp.Compare(a.Lock, b.Lock) })
		}
		if n := len(list); n > len(c.holds) {
			c.holds = make([]lock.Hold, n)
		}
		if err := c.transact(list); err != nil {
			return err
		}
	}
	return nil
}

// transact does a transaction, with the same locks again and again until it has committed, or the client fails.
func (c *txnClient) transact(list []locktrace.Access) error {
	r, port := c.r, c.l.Port()
	fails := r.fails.draw(port)
	if r.fails.waiting {
		c.due, fails = c.due || fails, false
	}
	think := cmp.Or(r.think, txnThink[r.trace])
	if c.long {
		think = r.scanNs
	} else if s, ok := c.src.(thinker); ok {
		think = s.think()
	}
	began := port.Now()
	for tries, last := 0, fabric.Addr(0); r.err == nil; {
		err := c.begin(list)
		switch {
		case c.gone:
			return err
		case errors.Is(err, lock.ErrTimeout):
			r.aborts++
			continue
		case errors.Is(err, dslr.ErrPassed):
		case err != nil:
			return err
		case fails:
			return c.failHolding(len(list))
		default:
			if done, err := c.commit(list, began, think); done || err != nil {
				return err
			}
		}
		if tries++; c.lost != last {
			tries, last = 1, c.lost
		}
		if l, ok := c.l.(restarter); ok {
			if err := port.Pause(port.Now() + l.Backoff(tries)); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit executes a transaction that has its locks and releases these, and reports whether it has lost none: else it has not committed.
func (c *txnClient) commit(list []locktrace.Access, began, think fabric.Time) (done bool, err error) {
	r, port, n := c.r, c.l.Port(), len(list)
	got := port.Now()
	if err := c.execute(list, think); err != nil {
		return false, err
	}
	ready := port.Now()
	lost, err := c.end(n)
	if lost = lost && !r.unchecked; lost {
		r.broken++
	}
	if lost || err != nil {
		return false, err
	}
	now := port.Now()
	r.journal.add(now-began, got-began, now-ready, false)
	if s, ok := c.src.(interface{ Kind() locktrace.Kind }); ok {
		r.journal.list[len(r.journal.list)-1].kind = txnOp + kind(s.Kind())
	}
	return true, nil
}

// execute executes a transaction: a pause and, if the run has data, a READ before it for each of its locks, and a WRITE behind it for each exclusive one.
func (c *txnClient) execute(list []locktrace.Access, think fabric.Time) error {
	port := c.l.Port()
	if err := c.access(list, fabric.OpRead); err != nil {
		return err
	}
	if err := port.Pause(port.Now() + think); err != nil {
		return err
	}
	return c.access(list, fabric.OpWrite)
}

// access does an operation on the data of each lock, or of each exclusive one if it is a WRITE.
func (c *txnClient) access(list []locktrace.Access, kind fabric.OpKind) error {
	for _, a := range list {
		if !c.r.data || kind == fabric.OpWrite && a.Mode == lock.Shared {
			continue
		}
		c.op[0] = fabric.Op{Kind: kind, Addr: c.r.dataOf(c.r.addr(a.Lock)), Buf: c.buf}
		if err := c.l.Port().Do(c.op[:]); err != nil {
			return err
		}
	}
	return nil
}

// begin takes the locks of a transaction, or none.
func (c *txnClient) begin(list []locktrace.Access) error {
	deadline := fabric.Time(0)
	if !c.r.sorted {
		deadline = c.l.Port().Now() + txnPatience
	}
	for i := range list {
		if c.r.patience > 0 {
			deadline = c.l.Port().Now() + c.r.patience
		}
		take := c.take
		if c.due && i == 0 {
			take = c.takeOrFail
		}
		err := take(i, list[i], deadline)
		if c.gone {
			return err
		}
		if err != nil {
			_, failed := c.end(i)
			c.lost = c.req.Lock
			return errors.Join(err, failed)
		}
	}
	return nil
}

// take takes one lock.
func (c *txnClient) take(i int, a locktrace.Access, deadline fabric.Time) error {
	if c.r.mutex {
		a.Mode = lock.Exclusive
	}
	req := &c.req
	*req = lock.Request{Lock: c.r.addr(a.Lock), Mode: a.Mode, Deadline: deadline, Try: c.r.retryNs > 0}
	if c.long || !c.r.longAsk {
		req.LeaseNs = c.r.leaseNs
	}
	c.r.used.ask(uint64(a.Lock), req.Lock)
	if c.r.all++; c.r.local && int(req.Lock.MN()) == c.at {
		c.r.near++
	}
	for {
		err := c.l.Acquire(&c.holds[i], req)
		if !errors.Is(err, lock.ErrBusy) {
			return err
		}
		if p := c.l.Port(); deadline > 0 && p.Now() > deadline {
			return lock.ErrTimeout
		} else if err := p.Pause(p.Now() + fabric.Time(p.Rand()%uint64(c.r.retryNs))); err != nil {
			return err
		}
	}
}

// end releases the first n locks, and reports whether the transaction has lost one: it was held for longer than its lease.
func (c *txnClient) end(n int) (lost bool, err error) {
	for i := range c.holds[:n] {
		h := &c.holds[i]
		if err := c.l.Release(h, nil); errors.Is(err, lock.ErrLost) {
			c.r.journal.lose()
			c.lost, lost = h.Lock, true
		} else if err != nil {
			return lost, err
		}
	}
	return lost, nil
}
