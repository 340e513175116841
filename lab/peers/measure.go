package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A load is what clients do.
type load struct {
	name   string
	many   bool // clients; else one
	shared bool // of one lock; else each has its own
}

var loads = []load{
	{"1 client", false, false},
	{"own locks", true, false},
	{"one lock", true, true},
}

// A row is a point, as a median of the rounds.
type row struct {
	Peer    string  `json:"lock"`
	Load    string  `json:"load"`
	Clients int     `json:"clients"`
	Rate    float64 `json:"ops_per_s"` // acquisitions and releases
	P50     float64 `json:"p50_us"`    // of an acquisition with its release
	P99     float64 `json:"p99_us"`
}

// measure measures all loads, peers in turns.
func measure(ctx context.Context, o *options, peers []*peer, loads []load) (rows []row, err error) {
	for _, l := range loads {
		clients := 1
		if l.many {
			clients = o.clients
		}
		rounds := make([][]row, len(peers))
		for round := range o.rounds {
			for k := range peers {
				i := (k + round*len(peers)/o.rounds) % len(peers) // none is always behind the same one
				p := peers[i]
				fmt.Fprintf(os.Stderr, "\r%s, round %d of %d: %-20s", l.name, round+1, o.rounds, p.name)
				r, err := once(ctx, o, p, l, clients)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", p.name, l.name, err)
				}
				rounds[i] = append(rounds[i], r)
			}
		}
		for i, p := range peers {
			rows = append(rows, row{p.name, l.name, clients, median(rounds[i], func(r row) float64 { return r.Rate }),
				median(rounds[i], func(r row) float64 { return r.P50 }), median(rounds[i], func(r row) float64 { return r.P99 })})
		}
	}
	fmt.Fprintln(os.Stderr)
	return rows, nil
}

// median returns the median of a figure.
func median[T any](rounds []T, of func(T) float64) float64 {
	values := make([]float64, 0, len(rounds))
	for _, r := range rounds {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// once measures one peer under a load for a window. Locks are those of before, and free.
func once(ctx context.Context, o *options, p *peer, l load, n int) (row, error) {
	clients := make([]client, n)
	for i := range clients {
		lock := i + 1
		if l.shared {
			lock = 0
		}
		c, err := p.open(ctx, lock)
		if err != nil {
			return row{}, err
		}
		defer c.close()
		if err := turn(ctx, c, nil); err != nil { // connections, scripts
			return row{}, err
		}
		clients[i] = c
	}
	var holders *atomic.Int32
	if l.shared {
		holders = new(atomic.Int32)
	}
	var all sync.WaitGroup
	took, errs := make([][]time.Duration, n), make([]error, n)
	// What ends within the window is the rate. A client that waits when it ends still gets the lock: how long that takes is a latency,
	// and no matter of the rate.
	within := make([]int, n)
	end := time.Now().Add(o.window)
	for i, c := range clients {
		all.Go(func() {
			for now := time.Now(); now.Before(end) && ctx.Err() == nil && errs[i] == nil; {
				errs[i] = turn(ctx, c, holders)
				then := time.Now()
				took[i] = append(took[i], then.Sub(now))
				if !then.After(end) {
					within[i]++
				}
				now = then
			}
		})
	}
	all.Wait()
	if err := cmp.Or(append(errs, ctx.Err())...); err != nil {
		return row{}, err
	}
	every := slices.Concat(took...)
	slices.Sort(every)
	at := func(q float64) float64 { return float64(every[int(q*float64(len(every)-1))]) / 1e3 }
	ended := 0
	for _, n := range within {
		ended += n
	}
	return row{Rate: float64(ended) / o.window.Seconds(), P50: at(0.5), P99: at(0.99)}, nil
}

// turn acquires and releases once.
func turn(ctx context.Context, c client, holders *atomic.Int32) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	if holders != nil {
		if k := holders.Add(1); k != 1 {
			return fmt.Errorf("%d hold the lock at a time", k)
		}
		holders.Add(-1)
	}
	return c.unlock(ctx)
}
