package objstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/timesync"
)

// absorbers returns clients of a store whose locks stay on a compute node for its clients, as many on each compute node.
func absorbers(t *testing.T, w *world, each int) (cs []*Client) {
	t.Helper()
	p, err := hier.ParsePolicy(hier.DefaultPolicy)
	wantErr(t, "policy", err, nil)
	y := cql.Layout{CapacityBits: 3, VersionBits: 16}
	cfg := w.config()
	cfg.Lock, cfg.Objects = y.Lock(), 1
	for cn, n := range w.cns {
		s, table, clock := w.open(cn, cfg), hier.NewTable(p), new(timesync.Clock)
		for range each {
			c, err := s.Client(hier.New(table, w.port(cn), n, clock, hier.Config{Layout: y}))
			wantErr(t, "client", err, nil)
			cs = append(cs, c)
		}
	}
	return cs
}

// Clients of two compute nodes change two keys of one bucket by all operations, most of all by sets and deletes, so that many are deferred to the next client of their compute node.
func TestLinearizableAbsorbed(t *testing.T) {
	absorbed, stores := uint64(0), uint64(0)
	for seed := range uint64(24) {
		w := newWorld(t, sim.Config{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}}, 1, 4<<20, 2)
		cs := absorbers(t, w, 4)
		var history []porcupine.Operation
		for i, c := range cs {
			w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
				unique := uint64(1)
				for k := range 40 {
					in := linInput{key: int(c.port.Rand() % 8 / 7), value: fmt.Sprintf("<%d.%d>", i, k), cas: unique}
					begin := w.c.Now()
					out := absorbedOp(t, c, &in)
					history = append(history, porcupine.Operation{ClientId: i, Input: in, Output: out, Call: int64(begin), Return: int64(w.c.Now())})
					if in.op == "get" && out.found {
						unique = out.cas
					}
				}
			})
		}
		wantErr(t, "run", w.c.Run(), nil)
		if r := porcupine.CheckOperationsTimeout(linModel, history, 20*time.Second); r != porcupine.Ok {
			t.Fatalf("seed %d: history is %v", seed, r)
		}
		for _, c := range cs {
			absorbed, stores = absorbed+c.stats.Absorbed, stores+c.stats.Stores
		}
		mustBeSound(t, cs[0])
	}
	if absorbed < stores/20 {
		t.Errorf("%d operations absorbed, %d objects stored", absorbed, stores)
	}
}

// absorbedOp does one operation: a set or a delete in four of six cases.
func absorbedOp(t *testing.T, c *Client, in *linInput) (out linOutput) {
	switch c.port.Rand() % 6 {
	case 0, 1, 2:
		in.op = "set"
		wantErr(t, in.op, c.Set(keyOf(in.key), b(in.value), Options{}), nil)
		return linOutput{ok: true}
	case 3:
		in.op = "delete"
		err := c.Delete(keyOf(in.key))
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("delete: %v", err)
		}
		return linOutput{ok: err == nil}
	}
	return linOp(t, c, in)
}

// Many clients of a compute node store one key: fewer than half of the objects are written. What was not published is free again.
func TestSetsOfOneKeyAreAbsorbed(t *testing.T) {
	const each, times = 8, 50
	w := newWorld(t, sim.Config{Seed: 1}, 1, 4<<20, 1)
	cs := absorbers(t, w, each)
	wantErr(t, "set", cs[0].Set(b("k"), b("0"), Options{}), nil)
	for i, c := range cs {
		w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
			for n := range times {
				wantErr(t, "set", c.Set(b("k"), fmt.Append(nil, n), Options{}), nil)
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	absorbed := uint64(0)
	for _, c := range cs {
		absorbed += c.stats.Absorbed
	}
	if absorbed < each*times/2 {
		t.Errorf("%d of %d sets were absorbed", absorbed, each*times)
	}
	wantErr(t, "drain", cs[0].Drain(), nil)
	for _, n := range mustBeSound(t, cs[0]).Nodes {
		if n.Elsewhere != 0 {
			t.Errorf("%d chunks are in use and in no list", n.Elsewhere)
		}
	}
}

// A set that was deferred to a client which then fails before it has published anything is done all the same, and so it is by its own client.
func TestAbsorberFails(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 1}, 1, 4<<20, 1)
	cs := absorbers(t, w, 3)
	for _, c := range cs {
		wantErr(t, "set", c.Set(b("k"), b("0"), Options{}), nil) // so that chunks are there
	}
	failed := errors.New("failed before anything was published")
	last := cs[2]
	last.l = &quitter{Locker: last.l, err: failed}
	for i, c := range cs {
		w.c.GoOn(c.port, fmt.Sprint(i), func(p fabric.Port) {
			_ = p.Pause(p.Now() + fabric.Time(i)*100)
			if err := c.Set(b("k"), fmt.Append(nil, 1+i), Options{}); (i < 2) != (err == nil) {
				t.Errorf("set by client %d: %v", i, err)
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	if n := last.l.(*quitter).deferred; n == 0 {
		t.Error("nothing was deferred to the client that fails")
	}
	wantValue(t, cs[0], "k", "2")
	mustBeSound(t, cs[0])
}

// A quitter releases what it was granted with something deferred to it, and fails.
type quitter struct {
	lock.Locker
	err      error
	deferred int
}

func (l *quitter) Acquire(h *lock.Hold, r *lock.Request) error {
	err := l.Locker.Acquire(h, r)
	if err == nil && r.Deferred != 0 {
		l.deferred++
		return errors.Join(l.err, l.Locker.Release(h, nil))
	}
	return err
}

// Clients of a compute node set one key, in whose bucket another with the same fingerprint is in a slot before: the object of a set that was deferred is not
// in memory, so nobody may READ it. (A review found that they did.)
func TestAbsorbedBehindATwin(t *testing.T) {
	const each, times = 8, 50
	w := newWorld(t, sim.Config{Seed: 1}, 1, 4<<20, 1)
	cs := absorbers(t, w, each)
	twin := twinOf(cs[0].s, "k")
	wantErr(t, "set", cs[0].Set(b(twin), b("twin"), Options{}), nil)
	wantErr(t, "set", cs[0].Set(b("k"), b("0"), Options{}), nil)
	failed := 0
	for i, c := range cs {
		w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
			for n := range times {
				if err := c.Set(b("k"), fmt.Append(nil, n), Options{}); err != nil {
					if failed++; failed == 1 {
						t.Errorf("set %d by client %d: %v", n, i, err)
					}
				}
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	mustBeSound(t, cs[0])
}

// A set is deferred to a delete, which finds the key, though the set's chunk has the object of another key until somebody writes it.
func TestDeleteAbsorbedBehindATwin(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 1}, 1, 4<<20, 1)
	cs := absorbers(t, w, 3)
	wantErr(t, "set", cs[0].Set(b(twinOf(cs[0].s, "k")), b("twin"), Options{}), nil)
	wantErr(t, "set", cs[0].Set(b("k"), b("0"), Options{}), nil)
	for _, c := range cs {
		for range 2 { // so that chunks are there, and have been used
			for i := range 8 {
				wantErr(t, "set", c.Set(fmt.Append(nil, "x", i), b("x"), Options{}), nil)
			}
			for i := range 8 {
				wantErr(t, "delete", c.Delete(fmt.Append(nil, "x", i)), nil)
			}
		}
	}
	do := []func(*Client) error{
		func(c *Client) error { return c.Set(b("k"), b("1"), Options{}) },
		func(c *Client) error { return c.Set(b("k"), b("2"), Options{}) },
		func(c *Client) error { return c.Delete(b("k")) },
	}
	for i, c := range cs {
		w.c.GoOn(c.port, fmt.Sprint(i), func(p fabric.Port) {
			_ = p.Pause(p.Now() + fabric.Time(i)*100)
			err := do[i](c)
			if err != nil {
				t.Errorf("client %d: %v; the key was there all the time", i, err)
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	if _, err := cs[0].Get(b("k")); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the delete, which came last: %v", err)
	}
	mustBeSound(t, cs[0])
}

// The context of a set ends while the memory node does not answer: the set ends soon, also if it was deferred to another client, which waits for longer.
func TestInterruptedAbsorbed(t *testing.T) {
	worst, worstAt, absorbed := fabric.Time(0), fabric.Time(0), 0
	nic := sim.CX4()
	nic.Retry = 20 * fabric.Millisecond
	for at := fabric.Time(0); at < 14000; at += 200 {
		w := newWorld(t, sim.Config{Seed: 1, Grace: 2 * fabric.Microsecond, NIC: nic}, 1, 4<<20, 1)
		cs := absorbers(t, w, 3)
		for _, c := range cs {
			wantErr(t, "set", c.Set(b("k"), b("0"), Options{}), nil)
		}
		start := w.c.Now()
		w.c.At(start+at, func() {
			w.c.KillMN(0)
			cs[1].port.Interrupt()
		})
		for i, c := range cs {
			w.c.GoOn(c.port, fmt.Sprint(i), func(p fabric.Port) {
				_ = p.Pause(start + fabric.Time(i)*100)
				err := c.Set(b("k"), fmt.Append(nil, 1+i), Options{})
				if i != 1 {
					return
				}
				if took := w.c.Now() - start - at; took > worst {
					worst, worstAt = took, at
				}
				if c.hold.Left {
					absorbed++
				}
				if err != nil && !errors.Is(err, fabric.ErrInterrupted) && !errors.Is(err, lock.ErrCanceled) {
					t.Errorf("at %d: %v", at, err)
				}
			})
		}
		_ = w.c.RunUntil(start + 30*fabric.Millisecond)
	}
	if worst > 3*fabric.Millisecond || absorbed == 0 {
		t.Errorf("at %d: the set ended %d ns after its interrupt; %d were deferred", worstAt, worst, absorbed)
	}
}
