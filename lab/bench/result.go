package bench

import (
	"maps"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/declock/declock/fabric"
)

// A Result is what one run of a Micro gave, within its window.
type Result struct {
	Ops      uint64
	WindowNs fabric.Time
	counters
	// OldestNs is for how long the oldest operation had been under way when the
	// window ended: a starving client is in no histogram.
	OldestNs fabric.Time

	tally *tally
	part  *measured               // in virtual time
	data  *hdrhistogram.Histogram // of each data operation, if there are any
}

// figures are what all runs have: of operations within a window, whose latencies are in a histogram.
func (c *counters) figures(op *hdrhistogram.Histogram, window fabric.Time) Metrics {
	ops := uint64(op.TotalCount())
	reads, writes := c.Ports.Ops[fabric.OpRead], c.Ports.Ops[fabric.OpWrite]
	atomics := c.Ports.Total() - reads - writes
	mean := op.Mean() / 1e3
	return Metrics{
		"mn_reads_per_op":     per(reads, ops),
		"mn_atomics_per_op":   per(atomics, ops),
		"mops":                float64(ops) * 1e3 / float64(window),
		"mean_us":             mean,
		"p50_us":              quantile(op, 50),
		"p99_us":              quantile(op, 99),
		"p999_us":             quantile(op, 99.9),
		"mn_ops_per_op":       per(c.Ports.Total(), ops),
		"retries_per_acquire": per(c.Locks.Retries, c.Locks.Acquires),
	}
}

// Metrics returns the figures of a result by the names that rows use. Times are in microseconds.
func (r *Result) Metrics() Metrics {
	s := &r.Locks
	m := r.figures(r.tally.op, r.WindowNs)
	maps.Copy(m, Metrics{
		"acquire_p20_us":       quantile(r.tally.acquire, 20),
		"acquire_p50_us":       quantile(r.tally.acquire, 50),
		"acquire_p90_us":       quantile(r.tally.acquire, 90),
		"acquire_p99_us":       quantile(r.tally.acquire, 99),
		"release_p50_us":       quantile(r.tally.release, 50),
		"release_mean_us":      r.tally.release.Mean() / 1e3,
		"mn_ops_per_acquire":   per(s.AcquireOps, s.Acquires),
		"refetch_per_release":  per(s.Refetches, s.Acquires),
		"prefetch_per_acquire": per(s.Prefetches, s.Acquires),
		"local_handovers":      per(s.HandoversLocal, s.Acquires),
		"remote_handovers":     per(s.HandoversRemote, s.Acquires),
		"messages_per_op":      per(r.Ports.Sent, r.Ops),
		"lost":                 float64(r.tally.lost),
		"oldest_us":            float64(r.OldestNs) / 1e3,
		"window_us":            float64(r.WindowNs) / 1e3,
	})
	for _, q := range hotQuantiles {
		m[hotName(q)] = quantile(r.tally.hot, q)
	}
	if r.data != nil {
		m["data_p50_us"] = quantile(r.data, 50)
	}
	if r.Steps.Releases.N > 0 {
		r.Steps.metrics(m)
	}
	if r.part != nil {
		r.part.metrics(m)
	}
	return m
}

// hotQuantiles are the quantiles of acquisitions of the most contended lock that results keep.
var hotQuantiles = func() (list []float64) {
	for q := 1.0; q < 100; q++ {
		list = append(list, q)
	}
	return append(list, 99.9)
}()

// hotName returns the name of a quantile of the most contended lock.
func hotName(q float64) string { return hotPrefix + strings.ReplaceAll(Figure(q), ".", "") + "_us" }

const hotPrefix = "hot_p"

// quantile returns a quantile of a histogram of nanoseconds, in microseconds.
func quantile(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtQuantile(q)) / 1e3
}

// per returns a/b, and 0 if there is nothing to divide by.
func per(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
