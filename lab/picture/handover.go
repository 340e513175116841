package picture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// Where things are in the memory of a handover's memory node.
const (
	handoverCounter = 64
	handoverLock    = 4096
	handoverCell    = 6144
	handoverSize    = 8192
)

// Handovers are the locks whose handovers docs/handover.md shows: DecLock, also in a train, and each baseline lock.
var Handovers = []string{"declock", Train, "cql", "cas", "cas-backoff", "sherman", "dslr", "dslr+", "mcs", "ncosed", "rmarw", "shift", "shift-artifact", "rpc", "server"}

// A participant is a client of a handover.
type participant struct {
	cn       int // from 0
	mode     lock.Mode
	at, hold fabric.Time // when it asks, and for how long it holds
}

// Train is the name of DecLock's handover in a train.
const Train = "declock-train"

// inTrain are the clients of a train: a writer whose release forms it, its three members, and a writer behind them.
var inTrain = []participant{
	{0, lock.Exclusive, 0, 12 * fabric.Microsecond},
	{1, lock.Exclusive, 3 * fabric.Microsecond, 2 * fabric.Microsecond},
	{2, lock.Shared, 4 * fabric.Microsecond, 2 * fabric.Microsecond},
	{3, lock.Exclusive, 5 * fabric.Microsecond, 2 * fabric.Microsecond},
	{4, lock.Exclusive, 15 * fabric.Microsecond, 2 * fabric.Microsecond},
}

// participants are the clients of a handover: the first holds the lock when the others ask for it.
var participants = []participant{
	{0, lock.Exclusive, 0, 9 * fabric.Microsecond},
	{1, lock.Exclusive, 4 * fabric.Microsecond, 2 * fabric.Microsecond},
	{1, lock.Exclusive, 5 * fabric.Microsecond, 2 * fabric.Microsecond},
	{0, lock.Shared, 6 * fabric.Microsecond, 2 * fabric.Microsecond},
}

// Handover returns the trace of a lock of package lab/locks that is handed over: from a writer of one compute node to two writers of
// another, one after the other, and to a reader of the first; of Train, through a train. Fabric and lock are those of the simulator's default, and of the papers.
func Handover(name string) (*Trace, error) {
	parts, cns, train := participants, 2, name == Train
	if train {
		name, parts, cns = "declock", inTrain, len(inTrain)
	}
	m, err := locks.Lookup(name)
	if err != nil {
		return nil, err
	}
	sys, err := m.New(locks.Config{CNs: cns, Clients: 2, Counter: fabric.At(0, handoverCounter), SyncIntervalNs: -1, ServerNs: locks.ServerNs})
	if err != nil {
		return nil, err
	}
	h := &handover{left: len(parts)}
	h.c = sim.New(sim.Config{Seed: 1, Observer: h})
	defer h.c.Close()
	h.lock, h.cell = fabric.At(h.c.AddMN(handoverSize), handoverLock), fabric.At(0, handoverCell)
	y, err := cql.LayoutFor(2 * len(parts)) // or less
	if err != nil {
		return nil, err
	}
	for ; y.CapacityBits > 1 && y.Lock().Size > sys.Layout().Size; y.CapacityBits-- { // flat queues have room for clients, others for nodes
	}
	h.t = New(h.c.Now, Of(name, y))
	h.t.Data = true
	if h.t.Title = fmt.Sprintf("%s: %s", m.Name, m.About); train {
		h.t.Title = m.Name + ": a train of three"
	}
	h.t.Words.Name(h.lock, sys.Layout().Size, "lock", h.t.Words.Lock)
	h.t.Words.Name(h.cell, 8, "data", func(_ uint64, b []byte) string { return fmt.Sprint(binary.LittleEndian.Uint64(b)) })
	var nodes []*sim.Node
	var joined []*locks.Node
	for range cns {
		n := h.c.AddCN()
		j, err := sys.Join(n)
		if err != nil {
			return nil, err
		}
		if j.Run != nil {
			h.c.GoAgent(n, func(fabric.Port) { h.fail(j.Run(h.fail)) })
		}
		nodes, joined = append(nodes, n), append(joined, j)
	}
	for i := range parts {
		g := &parts[i]
		h.c.Go(nodes[g.cn], fmt.Sprintf("client %d", i), func(p fabric.Port) { h.fail(h.client(g, uint64(i+1), joined[g.cn].Locker(p))) })
	}
	if err := errors.Join(h.c.Run(), h.err); err != nil {
		return nil, fmt.Errorf("picture: handover of %s: %w", name, err)
	}
	return h.t, nil
}

// A handover is the run of one.
type handover struct {
	c    *sim.Cluster
	t    *Trace
	lock fabric.Addr
	cell fabric.Addr
	left int // participants that are not done
	err  error
}

// Observe implements sim.Observer.
func (h *handover) Observe(e *sim.Event) {
	if h.t != nil && h.left > 0 {
		h.t.Observe(e)
	}
}

func (h *handover) fail(err error) {
	if h.err == nil {
		h.err = err
	}
}

// client is one client: it acquires the lock, holds it, writes and releases.
func (h *handover) client(g *participant, value uint64, k lock.Locker) error {
	p := k.Port()
	if err := p.Pause(g.at); err != nil {
		return err
	}
	e := oracle.Event{Kind: oracle.Requested, Client: p.ID(), Lock: h.lock, Mode: g.mode}
	h.t.Report(&e, "lock")
	reads := []fabric.Op{fabric.Load(h.cell)}
	var hold lock.Hold
	if err := k.Acquire(&hold, &lock.Request{Lock: h.lock, Mode: g.mode, Reads: reads}); err != nil {
		return err
	}
	e.Kind, e.Token, e.Value = oracle.Granted, hold.Token, reads[0].Old
	h.t.Report(&e, "lock")
	if err := p.Pause(p.Now() + g.hold); err != nil {
		return err
	}
	e.Kind, e.Value, e.Writes = oracle.Releasing, value, g.mode == lock.Exclusive
	h.t.Report(&e, "lock")
	var before []fabric.Op
	if e.Writes {
		before = []fabric.Op{fabric.Store(h.cell, value)}
	}
	if err := k.Release(&hold, before); err != nil {
		return err
	}
	e.Kind, e.Writes = oracle.Released, false
	h.t.Report(&e, "lock")
	h.left--
	return nil
}
