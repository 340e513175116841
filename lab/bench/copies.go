package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// A copiesRun is a store on replicated memory nodes whose clients set keys of their own choice: three memory nodes, each of which serves its own number and has backups of
// others. With one copy the numbers are not replicated.
type copiesRun struct {
	simulation
	nic          string
	seed         uint64
	copies       int
	numbers      int // that the store is on
	cns, clients int
	keys         int
	acks         acksModel // of the coordinator; the zero acksModel: all nodes know all at once
	clientsOf    []*copiesClient

	warmupNs, windowNs fabric.Time // a fixed window of the cost of a set; 0: see Pace

	served fabric.Time // when number 0 was served in another term
}

// copiesMNs is how many memory nodes a copiesRun has.
const copiesMNs = 3

const (
	copiesMemory = 64 << 20
	copiesValue  = 100 // bytes, as "declock-lab bench replicas" has them
)

// newsNs is how long it takes at most until a node knows of a change of the cluster, and the coordinator of its acknowledgement: each after a time of its own. Assumed.
const newsNs = fabric.Millisecond

// An acksModel says how long the coordinator works on an acknowledgement, of which it has one of each member for each change of the cluster.
type acksModel struct {
	name       string
	each, seen fabric.Time // for the acknowledgement itself, and for each member that sees it
}

// Models of a coordinator. With etcd an acknowledgement is a transaction, and memory nodes watch them; if all members did, each change would be as many events as the square of the
// members. An etcd whose clients had the same two processors, with four threads for each, took some 400 and 20 us. A quarter of that is assumed.
var (
	acksFew  = acksModel{name: "seen by memory nodes", each: 100*fabric.Microsecond + copiesMNs*eventNs}
	acksAll  = acksModel{name: "seen by all members", each: 100 * fabric.Microsecond, seen: eventNs}
	acksFree = acksModel{name: "no time", each: 1}
)

// eventNs is what it costs that one member sees an acknowledgement. Assumed, as the rest.
const eventNs = 5 * fabric.Microsecond

// time returns how long an acknowledgement takes with so many members.
func (a *acksModel) time(members int) fabric.Time { return a.each + a.seen*fabric.Time(members) }

// build makes the cluster and its clients, which begin when it runs.
func (r *copiesRun) build() error {
	nic, err := sim.Preset(r.nic)
	if err != nil {
		return err
	}
	cfg := sim.Config{Seed: r.seed, NIC: nic, DetectDelay: detectNs, Observer: r}
	if r.acks != (acksModel{}) {
		cfg.NewsDelay, cfg.AckTime = newsNs, r.acks.time(r.cns+copiesMNs)
	}
	r.c = sim.New(cfg)
	for range copiesMNs {
		if r.copies == 1 {
			r.c.AddMN(copiesMemory)
		} else {
			r.c.AddReplicatedMN(copiesMemory, r.copies)
		}
	}
	for i := range copiesMNs {
		for k := 1; k < r.copies; k++ {
			r.c.AddBackup(fabric.MemID(i), fabric.MemID((i+k)%copiesMNs))
		}
	}
	var nodes []*sim.Node
	for range r.cns { // before anything happens: so all know all of them
		nodes = append(nodes, r.c.AddCN())
	}
	layout, err := cql.LayoutWithTrains(r.cns)
	if err != nil {
		return err
	}
	capacity := 1 << min(layout.CapacityBits, memory.MaxCapacityLog2) // as memory nodes have it
	sys, err := (&Micro{Lock: "declock", CNs: r.cns, Clients: r.clients, Capacity: capacity}).system(fabric.At(0, memory.TimesyncOffset), locks.ServerNs)
	if err != nil {
		return err
	}
	return r.open(sys, nodes)
}

// open formats the memory, opens the store on all nodes and makes the clients.
func (r *copiesRun) open(sys *locks.System, nodes []*sim.Node) error {
	format := memory.Params{Size: copiesMemory, CapacityLog2: 8, VersionBits: 16}
	if r.copies > 1 {
		format.Factor = uint8(r.copies)
	}
	cfg := objstore.Config{Name: "bench", Lock: sys.Layout(), Objects: uint64(r.keys)}
	for i := range r.numbers {
		cfg.Nodes = append(cfg.Nodes, fabric.MemID(i))
	}
	for i, node := range nodes {
		p, err := node.Open()
		if err != nil {
			return err
		}
		for mn := range copiesMNs {
			if err := memory.Format(p, fabric.MemID(mn), format); i == 0 && err != nil {
				return err
			}
		}
		store, err := objstore.Open(p, cfg)
		if err != nil {
			return err
		}
		joined, err := sys.Join(node)
		if err != nil {
			return err
		}
		r.c.GoAgent(node, func(fabric.Port) { _ = joined.Run(func(error) {}) }) // what fails there is the memory node that ended
		for k := i; k < r.clients; k += r.cns {
			r.c.Go(node, fmt.Sprintf("client %d", k), func(p fabric.Port) { r.fail(r.client(store, joined.Locker(p))) })
		}
	}
	return nil
}

// A copiesClient is what one client has done.
type copiesClient struct {
	cn     fabric.CNID
	lastNs fabric.Time // when it did its last operation
	nextNs fabric.Time // when it did the first one after the failure
}

// client is the code of a client: it sets keys until the run ends.
func (r *copiesRun) client(store *objstore.Store, l lock.Locker) error {
	c, err := store.Client(l)
	if err != nil {
		return err
	}
	p := l.Port()
	own := &copiesClient{cn: p.ID().CN()}
	r.clientsOf, r.lockers = append(r.clientsOf, own), append(r.lockers, l)
	key, value := make([]byte, 8), make([]byte, copiesValue)
	for r.err == nil {
		binary.BigEndian.PutUint64(key, scatter(p.Rand()%uint64(r.keys)))
		began := p.Now()
		if err := c.Set(key, value, objstore.Options{}); err != nil && !errors.Is(err, fabric.ErrUnknownOutcome) {
			return err
		} else if err != nil { // the backup was being written to
			r.journal.lose()
			continue
		}
		r.journal.add(p.Now()-began, 0, 0, false)
		if own.lastNs = p.Now(); r.served > 0 && own.nextNs == 0 {
			own.nextNs = own.lastNs
		}
	}
	return nil
}

// Observe implements sim.Observer.
func (r *copiesRun) Observe(e *sim.Event) {
	if e.Step == sim.StepServe && e.Mem == 0 && e.New != e.Old {
		r.served = e.Time
	}
}

// cost measures sets.
func (r *copiesRun) cost(ctx context.Context) (Metrics, error) {
	if err := r.build(); err != nil {
		return nil, err
	}
	defer r.c.Close()
	pace := paceOf(r.clients, 0, limitNs)
	pace.WarmupNs, pace.WindowNs = r.warmupNs, r.windowNs
	part, err := r.settle(ctx, pace, func(*counters) {})
	if err != nil {
		return nil, err
	}
	t := r.journal.tally(part.first, part.last)
	m := part.metrics(part.figures(t.op, part.window()))
	m["chains_per_op"], m["ops_per_op"] = per(part.Ports.Chains, t.ops), per(part.Ports.Total(), t.ops)
	return m, nil
}

const (
	failoverWarmupNs = 5 * fabric.Millisecond
	failoverLimitNs  = 3 * fabric.Second
)

// failover kills the primary of number 0, and measures when the clients of each compute node go on.
func (r *copiesRun) failover(ctx context.Context) (Metrics, error) {
	if err := r.build(); err != nil {
		return nil, err
	}
	defer r.c.Close()
	killed := r.c.Now() + failoverWarmupNs
	r.c.At(killed, func() { r.c.KillMN(0) })
	first := map[fabric.CNID]fabric.Time{}
	for end := killed + failoverLimitNs; len(first) < r.cns && r.c.Now() < end; {
		if err := errors.Join(r.c.RunUntil(r.c.Now()+fabric.Millisecond), r.err, context.Cause(ctx)); err != nil {
			return nil, err
		}
		for _, c := range r.clientsOf {
			if c.nextNs > 0 {
				first[c.cn] = min(cmp.Or(first[c.cn], c.nextNs), c.nextNs)
			}
		}
	}
	if len(first) < r.cns {
		return nil, fmt.Errorf("bench: %d of %d compute nodes do not go on within %d ms of the end of a memory node", r.cns-len(first), r.cns, failoverLimitNs/fabric.Millisecond)
	}
	var list []float64
	for _, at := range first {
		list = append(list, float64(at-killed)/1e6)
	}
	slices.Sort(list)
	return Metrics{"detect_ms": float64(detectNs) / 1e6, "served_ms": float64(r.served-killed) / 1e6, "median_ms": list[len(list)/2], "max_ms": list[len(list)-1],
		"failed": float64(r.journal.lost), "ack_us": float64(r.acks.time(r.cns+copiesMNs)) / 1e3}, nil
}
