package bench

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/declock/declock/fabric"
)

// Locks of transactions have been used before, too, by readers if the last of their clients was one.
func TestTransactionsUseUsedLocks(t *testing.T) {
	ops := func(used, mutex bool) float64 {
		m := Default("drtm")
		m.Used, m.ReadPct, m.Locks, m.Theta, m.WarmupNs, m.WindowNs = used, 100, 1_000_000, 0, 200*fabric.Microsecond, 500*fabric.Microsecond
		r := txnRun{trace: "zipf", sorted: true, mutex: mutex, m: m.WithDefaults(), think: 1}
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return got["mn_ops_per_op"]
	}
	// A million acquisitions of a million locks leave 63 % that have been asked for. Where all are writers, none has a lease.
	for _, mutex := range []bool{false, true} {
		want := 1 - 1/math.E
		if mutex {
			want = 0
		}
		if more := ops(true, mutex) - ops(false, mutex); more < want-0.05 || more > want+0.05 {
			t.Errorf("mutex %v: %v operations more for each transaction on used locks, want %v", mutex, more, want)
		}
	}
}

// Clients that do nothing between operations have a mean latency of clients over throughput, if none starves.
func TestMeanLatency(t *testing.T) {
	r, err := Sim(context.Background(), Default("dslr"))
	if err != nil {
		t.Fatal(err)
	}
	m := r.Metrics()
	if want := DefaultClients / m["mops"]; m["mean_us"] < 0.9*want || m["mean_us"] > 1.1*want || m["p50_us"] > 0.8*want {
		t.Errorf("mean %v us, median %v us: want a mean of %v us", m["mean_us"], m["p50_us"], want)
	}
}

// Errors about transactions say so.
func TestTxnRefuses(t *testing.T) {
	m := tiny("cas")
	m.Clients = 1
	if err := (Txn{}).Validate(&m); !errors.Is(err, ErrTxn) || errors.Is(err, ErrMicro) {
		t.Errorf("one client on two nodes: %v", err)
	}
	if m.Lock = "nosuch"; !errors.Is((Txn{}).Validate(&m), ErrTxn) {
		t.Error("a lock that is none is accepted")
	}
}
