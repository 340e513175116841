package bench

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks"
)

// tiny is a microbenchmark that takes no time.
func tiny(lock string) Micro {
	m := Default(lock)
	m.CNs, m.Clients, m.Locks = 2, 8, 100
	m.WarmupNs, m.WindowNs = 50*fabric.Microsecond, 200*fabric.Microsecond
	if isDrTM(lock) {
		m.WindowNs = 2 * fabric.Millisecond // its readers keep a lock for one
	}
	return m
}

// Every lock of the registry runs, and the same seed gives the same figures.
func TestSameSeedSameFigures(t *testing.T) {
	for _, name := range locks.Names() {
		var first Metrics
		for range 2 {
			r, err := Sim(context.Background(), tiny(name))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if r.Ops == 0 || r.Locks.Acquires == 0 {
				t.Errorf("%s: %d operations, %d acquired", name, r.Ops, r.Locks.Acquires)
			}
			if first != nil && !reflect.DeepEqual(first, r.Metrics()) {
				t.Errorf("%s: %v, then %v", name, first, r.Metrics())
			}
			first = r.Metrics()
		}
		m := tiny(name)
		m.Seed = 2
		if r, err := Sim(context.Background(), m); err != nil || reflect.DeepEqual(first, r.Metrics()) {
			t.Errorf("%s: another seed gives the same (%v)", name, err)
		}
	}
}

// The figures of silent locks, and of no others, are the same however long messages take.
func TestSilentLocks(t *testing.T) {
	for _, l := range locks.All() {
		m := tiny(l.Name)
		m.Locks = 1
		m.WindowNs = fabric.Millisecond
		usual, err := Sim(context.Background(), m)
		m.MessageScale = 3
		slow, err2 := Sim(context.Background(), m)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if same := reflect.DeepEqual(usual.Metrics(), slow.Metrics()); same != l.Silent {
			t.Errorf("%s: silent %v, the same figures with slower messages: %v", l.Name, l.Silent, same)
		}
	}
}

// Clients of an open loop do what is due, no more, and latency counts from then.
func TestOpenLoop(t *testing.T) {
	m := tiny("declock-tf")
	m.WindowNs = 10 * fabric.Millisecond
	m.Rate = 100_000
	r, err := Sim(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	if due := 1000.0; float64(r.Ops) < 0.8*due || float64(r.Ops) > 1.2*due {
		t.Errorf("%d operations, %v were due", r.Ops, due)
	}
	m.Rate = 10e6 // far too many
	over, err := Sim(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	if p, q := over.Metrics()["p50_us"], over.Metrics()["acquire_p99_us"]; p < 1000 || p < q {
		t.Errorf("p50 of %v us with a queue that grows; the acquisition takes %v", p, q)
	}
}

// Chaining data with the lock's own operations saves a round trip.
func TestChain(t *testing.T) {
	m := tiny("declock-tf")
	m.Locks, m.Theta = 10_000, 0
	plain, err := Sim(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	m.Chain = true
	chained, err := Sim(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	if p, c := plain.Metrics()["p50_us"], chained.Metrics()["p50_us"]; c > 0.75*p {
		t.Errorf("p50 of %v us, chained %v", p, c)
	}
}

// As many compute nodes and clients as a cluster can have.
func TestLargest(t *testing.T) {
	m := tiny("declock")
	m.CNs, m.Clients = int(fabric.MaxCN), maxClients
	m.WarmupNs, m.WindowNs = 100*fabric.Microsecond, 100*fabric.Microsecond
	r, err := Sim(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	if r.Metrics()["mops"] == 0 {
		t.Error("nobody was granted")
	}
	m.CNs++
	if _, err := Sim(context.Background(), m); !errors.Is(err, ErrMicro) {
		t.Errorf("with one node more: %v", err)
	}
}

// What cannot be is refused, with what is wrong.
func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Micro){
		"clients":  func(m *Micro) { m.CNs, m.Clients = 8, 4 },
		"theta":    func(m *Micro) { m.Theta = -1 },
		"reads":    func(m *Micro) { m.ReadPct = 101 },
		"locks":    func(m *Micro) { m.Locks = -1 },
		"capacity": func(m *Micro) { m.Capacity = 12 },
		"nic":      func(m *Micro) { m.NIC = "cx99" },
		"lock":     func(m *Micro) { m.Lock = "no-such-lock" },
		"rate":     func(m *Micro) { m.Rate = -1 },
		"tune":     func(m *Micro) { m.Tune = "LocalWake" },
		"constant": func(m *Micro) { m.Tune = "Name=3" },
		"value":    func(m *Micro) { m.Tune = "Atomic=300,PCIeAtomic=200" },
	} {
		m := tiny("cas")
		change(&m)
		if _, err := Sim(context.Background(), m); !errors.Is(err, ErrMicro) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A run stops when its context ends.
func TestSimStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Sim(ctx, tiny("cas")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Tune changes the model, by the names of its fields.
func TestTune(t *testing.T) {
	m := tiny("declock-tf").WithDefaults()
	m.Tune = "LocalWake=1600,Pipe=32"
	if n := m.nic(); n.LocalWake != 1600 || n.Pipe != 32 || n.Atomic != 200 {
		t.Errorf("%+v", n)
	}
}
