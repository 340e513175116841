package cn

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
)

const memSize = 1 << 20

// format formats memory node i of a fake fabric for capacity 2^c and versions of v bits.
func format(t *testing.T, f *fakeFabric, i int, c, v uint8) {
	t.Helper()
	p, err := f.nodes[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := memory.Format(p, fabric.MemID(i), memory.Params{Size: uint64(len(f.mems[i])), CapacityLog2: c, VersionBits: v}); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, f *fakeFabric, i int, cfg Config) *Node {
	t.Helper()
	cfg.Report = func(err error) { t.Errorf("cn%d: %v", i+1, err) }
	n, err := Start(f.nodes[i], cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func lockAt(i int) fabric.Addr { return fabric.At(0, memSize/2+uint64(i)*256) }

// Memory that is missing, not formatted, formatted differently or in a way that no lock can have is refused.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		mems [][2]uint8 // capacity, version bits; {}: not formatted
		want string
		is   error
	}{
		{"no memory node", nil, "no memory node", ErrNoMemory},
		{"not formatted", [][2]uint8{{}}, "mn0", memory.ErrNotFormatted},
		{"other capacity", [][2]uint8{{3, 16}, {4, 16}}, "mn0 and mn1 are formatted with different lock layouts", nil},
		{"other versions", [][2]uint8{{3, 16}, {3, 16}, {3, 17}}, "mn0 and mn2", nil},
		{"no capacity", [][2]uint8{{0, 16}}, "queue capacity", nil},
		{"no versions", [][2]uint8{{3, 0}}, "versions", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(1)
			for i, m := range c.mems {
				f.mems = append(f.mems, make([]byte, memSize))
				if m != ([2]uint8{}) {
					format(t, f, i, m[0], m[1])
				}
			}
			n, err := Start(f.nodes[0], Config{})
			if err == nil {
				n.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A node uses memory that programs of before may use, too: only its locks are not passed on in trains.
func TestPlainMemory(t *testing.T) {
	for _, plain := range []bool{false, true} {
		f := newFake(1, memSize)
		p, err := f.nodes[0].Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := memory.Format(p, 0, memory.Params{Size: memSize, CapacityLog2: 3, VersionBits: 16, Plain: plain}); err != nil {
			t.Fatal(err)
		}
		n := start(t, f, 0, Config{})
		if got := n.hcfg.CQL.Plain(fabric.At(0, 64)); got != plain || !n.Table().Policy().Train || !n.hcfg.CQL.Plain(fabric.At(1, 64)) {
			t.Errorf("plain %v: %v, policy %+v", plain, got, n.Table().Policy())
		}
		n.Close()
	}
}

// The zero Config has the default policy; Flat must be asked for.
func TestConfigPolicy(t *testing.T) {
	byDefault, _ := hier.ParsePolicy(hier.DefaultPolicy)
	bound, _ := hier.ParsePolicy("local-bound:7")
	for _, c := range []struct {
		cfg  Config
		want hier.Policy
	}{
		{Config{}, byDefault},
		{Config{Flat: true}, hier.Policy{}},
		{Config{Policy: bound}, bound},
	} {
		f := newFake(1, memSize)
		format(t, f, 0, 3, 16)
		n := start(t, f, 0, c.cfg)
		if n.Table().Policy() != c.want || n.Layout() != (cql.Layout{CapacityBits: 3, VersionBits: 16}) || len(n.Regions()) != 1 {
			t.Errorf("%+v: policy %+v, layout %+v", c.cfg, n.Table().Policy(), n.Layout())
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A node that has left something different at a backup leaves the cluster as one that has crashed does.
func TestUnsettledLeavesAsCrashed(t *testing.T) {
	for _, unsettled := range []bool{false, true} {
		f := newFake(1, memSize)
		format(t, f, 0, 3, 16)
		n := start(t, f, 0, Config{})
		if unsettled {
			n.Unsettled()
		}
		if err := n.Close(); err != nil || f.nodes[0].ended != unsettled {
			t.Errorf("unsettled %v, it has left as crashed %v: %v", unsettled, f.nodes[0].ended, err)
		}
	}
}

// Close may be called twice, of nodes and sessions; it closes what is open, ends the
// agent, and no session opens after it. Counters of closed sessions stay.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	f := newFake(1, memSize)
	format(t, f, 0, 3, 16)
	n := start(t, f, 0, Config{})
	var last *Session
	for i := range 3 {
		s, err := n.Session()
		if err != nil {
			t.Fatal(err)
		}
		var h lock.Hold
		if err := s.Acquire(context.Background(), &h, &lock.Request{Lock: lockAt(i)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(&h, nil); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		}
		last = s
	}
	if err := errors.Join(n.Close(), n.Close(), last.Close()); err != nil {
		t.Error(err)
	}
	if o := n.Observe(0); o.Locks.Acquires != 3 || o.NIC.Ops[fabric.OpFAA] != 6 {
		t.Errorf("%d acquired, %d FAAs, after Close", o.Locks.Acquires, o.NIC.Ops[fabric.OpFAA])
	}
	if s, err := n.Session(); err == nil || s != nil {
		t.Errorf("a session of a closed node: %v", err)
	}
	for i := 0; runtime.NumGoroutine() > before && i < 1000; i++ {
		time.Sleep(time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines before, %d after Close", before, now)
	}
}

// Clients whose contexts end at any moment: no client holds beside a writer, one that is cancelled
// does not hold, the cause is in the error, and the lock goes on.
func TestContextsEnd(t *testing.T) {
	cause := errors.New("the user went away")
	for _, cfg := range []Config{{}, {Flat: true}} {
		f := newFake(2, memSize)
		format(t, f, 0, 4, 16)
		nodes := []*Node{start(t, f, 0, cfg), start(t, f, 1, cfg)}
		var writers, readers, granted, canceled, timeouts atomic.Int64
		var wg sync.WaitGroup
		plain := 0 // guarded by the lock: for the race detector
		for i := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				s, err := nodes[i%2].Session()
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				var h lock.Hold
				for n := range 150 {
					ctx, cancel := context.WithCancelCause(context.Background())
					if n%3 != 0 {
						time.AfterFunc(time.Duration(n*13%200)*time.Microsecond, func() { cancel(cause) })
					}
					req := lock.Request{Lock: lockAt(0), Mode: lock.Mode(n % 2)}
					if n%10 == 5 {
						req.Deadline = s.Port().Now() + 50*fabric.Microsecond
					}
					switch err := s.Acquire(ctx, &h, &req); {
					case err == nil:
						granted.Add(1)
						if h.Mode == lock.Exclusive {
							plain++
							if writers.Add(1) != 1 || readers.Load() != 0 {
								t.Error("a writer is not alone")
							}
							runtime.Gosched()
							writers.Add(-1)
						} else {
							readers.Add(1)
							if writers.Load() != 0 {
								t.Error("a reader with a writer")
							}
							runtime.Gosched()
							readers.Add(-1)
						}
						if err := s.Release(&h, nil); err != nil {
							t.Errorf("release: %v", err)
						}
					case errors.Is(err, lock.ErrCanceled):
						canceled.Add(1)
						if !errors.Is(err, cause) || h.Held {
							t.Errorf("canceled: %v, held %v", err, h.Held)
						}
					case errors.Is(err, lock.ErrTimeout) && req.Deadline != 0:
						timeouts.Add(1)
					default:
						t.Errorf("%v", err)
					}
					cancel(nil)
				}
			}()
		}
		wg.Wait()
		s, err := nodes[0].Session()
		if err != nil {
			t.Fatal(err)
		}
		var h lock.Hold
		if err := s.Acquire(context.Background(), &h, &lock.Request{Lock: lockAt(0), Mode: lock.Exclusive}); err != nil {
			t.Error(err)
		}
		if err := s.Release(&h, nil); err != nil {
			t.Error(err)
		}
		t.Logf("flat %v: %d granted, %d canceled, %d timeouts", cfg.Flat, granted.Load(), canceled.Load(), timeouts.Load())
		for _, n := range nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// An interruptPort counts interrupts, and those that come when none is due.
type interruptPort struct {
	fabric.Port
	due         atomic.Bool
	late        atomic.Int64
	interrupted atomic.Bool
}

func (p *interruptPort) Interrupt() {
	if !p.due.Load() {
		p.late.Add(1)
	}
	p.interrupted.Store(true)
}
func (p *interruptPort) ClearInterrupt() { p.interrupted.Store(false) }

// An interrupt of one operation never reaches the next, however the end of the
// context and End race.
func TestBeginEndRace(t *testing.T) {
	p := &interruptPort{}
	s := &Session{port: p}
	var ends sync.WaitGroup
	for i := range 20_000 {
		ctx, cancel := context.WithCancel(context.Background())
		mine := i%2 == 0 // otherwise every interrupt is of the operation before
		p.due.Store(mine)
		begun, err := s.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if mine {
			ends.Add(1)
			go func() { cancel(); ends.Done() }()
		} else {
			runtime.Gosched()
			defer cancel()
		}
		if i%3 == 0 {
			runtime.Gosched()
		}
		if err := s.End(ctx, begun, nil); err != nil {
			t.Fatal(err)
		}
		p.due.Store(false)
		if p.interrupted.Load() {
			t.Fatalf("operation %d left an interrupt behind", i)
		}
	}
	ends.Wait()
	if n := p.late.Load(); n != 0 || p.interrupted.Load() {
		t.Errorf("%d interrupts after End", n)
	}
}

// What Begin and End say.
func TestBeginEndErrors(t *testing.T) {
	cause := errors.New("shutting down")
	p := &interruptPort{}
	s := &Session{port: p}
	if begun, err := s.Begin(context.Background()); begun != 0 || err != nil {
		t.Errorf("a context that cannot end: %v", err)
	}
	if err := s.End(context.Background(), 0, lock.ErrBusy); err != lock.ErrBusy {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	begun, err := s.Begin(ctx)
	if err != nil || begun == 0 {
		t.Fatal(err)
	}
	p.due.Store(true)
	cancel(cause)
	for !p.interrupted.Load() {
		runtime.Gosched()
	}
	if err := s.End(ctx, begun, lock.ErrCanceled); !errors.Is(err, lock.ErrCanceled) || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	if p.interrupted.Load() {
		t.Error("End leaves the interrupt")
	}
	if _, err := s.Begin(ctx); !errors.Is(err, lock.ErrCanceled) || !errors.Is(err, cause) {
		t.Errorf("a context that has ended: %v", err)
	}
	if err := s.End(ctx, 1, lock.ErrLost); err != lock.ErrLost {
		t.Errorf("%v", err)
	}
}
