package inbox

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"pgregory.net/rapid"
)

// host is a backend on which nothing comes from outside.
type host struct{ start time.Time }

func (h host) Now() fabric.Time { return 1 + fabric.Time(time.Since(h.start)) }
func (h host) Poll()            {}

const cn = 7

func newTable(t testing.TB) *Table {
	before := runtime.NumGoroutine()
	table := NewTable(cn, host{time.Now()})
	t.Cleanup(func() {
		table.CloseAll()
		for range 1000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
	})
	return table
}

func open(t testing.TB, table *Table) *Box {
	t.Helper()
	b, err := table.Open()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func message(n uint64) *fabric.Message {
	return &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{n}}
}

// far is a deadline that no test reaches.
func far(table *Table) fabric.Time { return table.host.Now() + 20*fabric.Second }

func wantMessage(t *testing.T, b *Box, n uint64) {
	t.Helper()
	m, err := b.Recv(far(b.table))
	if err != nil || m.Body[0] != n {
		t.Fatalf("Recv: %+v, %v; want %d", m, err, n)
	}
}

func TestOrder(t *testing.T) {
	table := newTable(t)
	b := open(t, table)
	// In bursts of growing length, so that the queue wraps and grows.
	in, out := uint64(0), uint64(0)
	for burst := range 40 {
		for range burst * 3 {
			table.Deliver(b.ID().Index(), message(in))
			in++
		}
		for range burst * 2 {
			wantMessage(t, b, out)
			out++
		}
	}
	for ; out < in; out++ {
		wantMessage(t, b, out)
	}
	if b.Len() != 0 {
		t.Errorf("%d messages left", b.Len())
	}
}

func TestRecvWakes(t *testing.T) {
	table := newTable(t)
	a, b := open(t, table), open(t, table)
	const rounds = 20000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(rounds) {
			if m, err := b.Recv(far(table)); err != nil || m.Body[0] != i {
				t.Errorf("Recv %d: %+v, %v", i, m, err)
				return
			}
			table.Deliver(a.ID().Index(), message(i))
		}
	})
	for i := range uint64(rounds) {
		table.Deliver(b.ID().Index(), message(i))
		wantMessage(t, a, i)
	}
	wg.Wait()
}

func TestDeadline(t *testing.T) {
	table := newTable(t)
	b := open(t, table)
	for _, wait := range []fabric.Time{-1, 0, 1, 30 * fabric.Microsecond, fabric.Millisecond, 15 * fabric.Millisecond} {
		until := table.host.Now() + wait
		if _, err := b.Recv(until); !errors.Is(err, fabric.ErrDeadline) {
			t.Errorf("Recv for %d: %v", wait, err)
		}
		if err := b.Pause(until + wait); err != nil {
			t.Errorf("Pause for %d: %v", wait, err)
		}
		if now := table.host.Now(); now < until+wait {
			t.Errorf("waits for %d ended %d too early", wait, until+wait-now)
		}
	}
	if _, err := b.Recv(0); !errors.Is(err, fabric.ErrDeadline) {
		t.Errorf("a poll: %v", err)
	}
}

// One timer serves waits with deadlines before and after the one that it was
// armed for.
func TestTimerIsReused(t *testing.T) {
	table := newTable(t)
	b := open(t, table)
	for _, wait := range []fabric.Time{50, 2, 1, 12, 3} {
		if wait == 50 {
			// Armed, and then not needed.
			go func() {
				for b.armedFor() == 0 {
					runtime.Gosched()
				}
				table.Deliver(b.ID().Index(), message(1))
			}()
			wantMessage(t, b, 1)
			continue
		}
		begin := table.host.Now()
		_, err := b.Recv(begin + wait*fabric.Millisecond)
		if took := table.host.Now() - begin; !errors.Is(err, fabric.ErrDeadline) || took < wait*fabric.Millisecond {
			t.Errorf("Recv for %d ms: %v after %d ns", wait, err, took)
		}
	}
}

func (b *Box) armedFor() fabric.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.timerAt
}

// waitParked returns when the owner of a box is parked.
func waitParked(b *Box) {
	for {
		b.mu.Lock()
		parked := b.parked
		b.mu.Unlock()
		if parked != waitNone {
			return
		}
		runtime.Gosched()
	}
}

func TestInterrupt(t *testing.T) {
	table := newTable(t)
	b := open(t, table)
	errs := make(chan error)
	for _, wait := range []func() error{
		func() error { _, err := b.Recv(fabric.Forever); return err },
		func() error { return b.Pause(fabric.Forever) },
	} {
		go func() { errs <- wait() }()
		waitParked(b)
		b.Interrupt()
		if err := <-errs; !errors.Is(err, fabric.ErrInterrupted) {
			t.Errorf("interrupted: %v", err)
		}
		if err := wait(); !errors.Is(err, fabric.ErrInterrupted) {
			t.Errorf("before ClearInterrupt: %v", err)
		}
		table.Deliver(b.ID().Index(), message(3))
		wantMessage(t, b, 3)
		b.ClearInterrupt()
		if _, err := b.Recv(table.host.Now() + 1); !errors.Is(err, fabric.ErrDeadline) {
			t.Errorf("after ClearInterrupt: %v", err)
		}
	}
}

func TestPauseIsNotEndedByMessages(t *testing.T) {
	table := newTable(t)
	b := open(t, table)
	until := table.host.Now() + 20*fabric.Millisecond
	go func() {
		waitParked(b)
		table.Deliver(b.ID().Index(), message(1))
	}()
	if err := b.Pause(until); err != nil || table.host.Now() < until {
		t.Errorf("Pause: %v, %d too early", err, until-table.host.Now())
	}
	wantMessage(t, b, 1)
}

func TestCloseEndsWaits(t *testing.T) {
	table := newTable(t)
	a, b := open(t, table), open(t, table)
	errs := make(chan error)
	go func() { _, err := a.Recv(fabric.Forever); errs <- err }()
	go func() { errs <- b.Pause(fabric.Forever) }()
	waitParked(a)
	waitParked(b)
	table.Close(a)
	table.CloseAll()
	for range 2 {
		if err := <-errs; !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
	if _, err := table.Open(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Open: %v", err)
	}
	if err := table.Abandon(b); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Abandon: %v", err)
	}
}

func TestAbandon(t *testing.T) {
	table := newTable(t)
	b := open(t, table)
	old := b.ID()
	for i := range uint64(12) {
		table.Deliver(old.Index(), message(i))
	}
	wantMessage(t, b, 0)
	if err := table.Abandon(b); err != nil {
		t.Fatal(err)
	}
	table.Deliver(old.Index(), message(12))
	table.Deliver(b.ID().Index(), message(100))
	wantMessage(t, b, 100)
	for i := uint64(1); i <= 12; i++ {
		wantMessage(t, table.Agent(), i)
	}
	if b.ID() == old || b.Len() != 0 {
		t.Errorf("after Abandon: %v with %d messages", b.ID(), b.Len())
	}
	table.Retire(b.ID()) // not abandoned: nothing
	table.Deliver(b.ID().Index(), message(101))
	wantMessage(t, b, 101)
	table.Retire(old)
	table.Retire(old)
	table.Deliver(old.Index(), message(13))
	if table.Agent().Len() != 0 {
		t.Error("a retired ID still leads to the agent")
	}
	if err := table.Abandon(table.Agent()); !errors.Is(err, ErrAgent) {
		t.Errorf("the agent abandons: %v", err)
	}
}

// An abandoned ID is not given out until it is retired, however scarce IDs are.
func TestIDsRunOut(t *testing.T) {
	table := newTable(t)
	var boxes []*Box
	for range fabric.MaxClientIndex - 1 {
		boxes = append(boxes, open(t, table))
	}
	old := boxes[0].ID()
	if err := table.Abandon(boxes[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Open(); !errors.Is(err, fabric.ErrTooManyClients) {
		t.Fatalf("Open: %v", err)
	}
	if err := table.Abandon(boxes[1]); !errors.Is(err, fabric.ErrTooManyClients) {
		t.Fatalf("Abandon: %v", err)
	}
	table.Retire(old)
	if b := open(t, table); b.ID() != old {
		t.Errorf("%v, not the retired %v", b.ID(), old)
	}
	table.Close(boxes[2])
	if b := open(t, table); b.ID() != boxes[2].ID() {
		t.Errorf("%v, not the closed %v", b.ID(), boxes[2].ID())
	}
}

func TestDeliverToUnknownClient(t *testing.T) {
	table := newTable(t)
	for _, index := range []int{-1, 1, 4095, 4096, 1 << 30} {
		if table.Deliver(index, message(1)) {
			t.Errorf("index %d woke a client", index)
		}
	}
}

// Whatever happens, a message is in the box of its ID or the agent's, in order.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := NewTable(cn, host{time.Now()})
		defer table.CloseAll()
		next := uint64(0)
		var boxes []*Box
		want := map[*Box][]uint64{}             // what is in each box
		leads := map[int]*Box{0: table.Agent()} // whose each ID is
		rt.Repeat(map[string]func(*rapid.T){
			"open": func(rt *rapid.T) {
				b, err := table.Open()
				if err != nil {
					rt.Fatal(err)
				}
				if leads[b.ID().Index()] != nil {
					rt.Fatalf("%v is in use", b.ID())
				}
				boxes, leads[b.ID().Index()] = append(boxes, b), b
			},
			"deliver": func(rt *rapid.T) {
				index := rapid.IntRange(0, 12).Draw(rt, "index")
				table.Deliver(index, message(next))
				if b := leads[index]; b != nil {
					want[b] = append(want[b], next)
				}
				next++
			},
			"take": func(rt *rapid.T) {
				b := rapid.SampledFrom(append(boxes, table.Agent())).Draw(rt, "box")
				var m fabric.Message
				got := b.Take(&m)
				if got != (len(want[b]) > 0) || got && m.Body[0] != want[b][0] {
					rt.Fatalf("%v has %+v, %v, want %v", b.ID(), m, got, want[b])
				}
				if got {
					want[b] = want[b][1:]
				}
			},
			"abandon": func(rt *rapid.T) {
				if len(boxes) == 0 {
					rt.Skip()
				}
				b := rapid.SampledFrom(boxes).Draw(rt, "box")
				old := b.ID().Index()
				if err := table.Abandon(b); err != nil {
					rt.Fatal(err)
				}
				want[table.Agent()] = append(want[table.Agent()], want[b]...)
				want[b] = nil
				leads[old] = table.Agent()
				if leads[b.ID().Index()] != nil {
					rt.Fatalf("%v is in use", b.ID())
				}
				leads[b.ID().Index()] = b
			},
			"retire": func(rt *rapid.T) {
				index := rapid.IntRange(1, 12).Draw(rt, "index")
				table.Retire(fabric.Client(cn, index))
				if leads[index] == table.Agent() {
					delete(leads, index)
				}
			},
		})
	})
}

func BenchmarkHandOver(b *testing.B) {
	table := newTable(b)
	p, q := open(b, table), open(b, table)
	go func() {
		for {
			m, err := q.Recv(fabric.Forever)
			if err != nil {
				return
			}
			table.Deliver(p.ID().Index(), &m)
		}
	}()
	m := message(0)
	for b.Loop() {
		table.Deliver(q.ID().Index(), m)
		if _, err := p.Recv(fabric.Forever); err != nil {
			b.Fatal(err)
		}
	}
}
