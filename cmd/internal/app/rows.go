package app

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

// A Total is the row of a replay over all operations.
type Total struct {
	Op           string `json:"op"` // "all"
	Lock         string `json:"lock,omitempty"`
	Target       string `json:"target,omitempty"`
	ComputeNodes int    `json:"cns"`
	replay.Summary
	MNOpsPerAcquire float64 `json:"mn_ops_per_acquire"`   // to acquire or to enter the queue: lock.Stats.AcquireOps
	Prefetch        float64 `json:"prefetch_per_acquire"` // READs of the queue by clients that begin to wait for another of their node
	MNOpsPerOp      float64 `json:"mn_ops_per_op"`        // all, with releases and data, for an operation of the store
	Acquires        uint64  `json:"acquires"`
	HandoversLocal  uint64  `json:"handovers_local"`
	HandoversRemote uint64  `json:"handovers_remote"`
	LocalJoins      uint64  `json:"local_joins"`
	Refetch         float64 `json:"refetch_per_release"`
	Resets          uint64  `json:"resets"`
	CacheHits       uint64  `json:"location_cache_hits"`
	CacheMisses     uint64  `json:"location_cache_misses"`
	Evictions       uint64  `json:"evictions"`
	Expired         uint64  `json:"expired"`
	SkippedLines    int64   `json:"skipped_lines"`
	LostNodes       int     `json:"lost_nodes"`
	Fill            bool    `json:"-"` // a miss was followed by a set
}

// ReplayRows computes the rows of a replay: all operations, then each.
func ReplayRows(out *fleet.Outcome, policy, target string) (Total, []replay.Row) {
	locks, store := &out.Counters.Locks, &out.Counters.Store
	t := Total{
		Op: "all", Lock: policy, Target: target, ComputeNodes: out.Members, Summary: out.Result.Summary(),
		MNOpsPerAcquire: ratio(locks.AcquireOps, locks.Acquires), Prefetch: ratio(locks.Prefetches, locks.Acquires),
		Acquires: locks.Acquires, HandoversLocal: locks.HandoversLocal, HandoversRemote: locks.HandoversRemote,
		LocalJoins: locks.LocalJoins, Refetch: ratio(locks.Refetches, locks.Acquires), Resets: out.Resets,
		CacheHits: store.CacheHits, CacheMisses: store.CacheMisses, Evictions: store.Evictions, Expired: store.Expired,
		SkippedLines: out.Skipped, LostNodes: len(out.Lost),
	}
	t.MNOpsPerOp = ratio(out.Counters.NIC.Total(), t.Ops)
	t.Stopped = t.Stopped || out.Err != nil
	if target != "" {
		t.Lock = ""
	}
	return t, t.Rows
}

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// nameWidth is the width of the names that line writes.
const nameWidth = 15

// line writes a line with a name before its text.
func line(w io.Writer, name, format string, args ...any) {
	fmt.Fprintf(w, "  %-*s "+format+"\n", append([]any{nameWidth, name}, args...)...)
}

// WriteReplay writes a replay's rows for people.
func WriteReplay(w io.Writer, title string, t *Total, rows []replay.Row) {
	fmt.Fprintf(w, "%s\n\n", title)
	note := ""
	if t.Stopped {
		note = "   (stopped before its end: what was measured so far)"
	}
	line(w, "operations", "%s in %.2f s%s", units.Count(t.Ops), t.Seconds, note)
	line(w, "throughput", "%s operations/s", units.Count(uint64(t.OpsPerS)))
	hitRatio(w, t, rows)
	line(w, "errors", "%s", units.Count(t.Errors))
	if t.Target == "" {
		line(w, "MN operations", "%.3f per acquire, and %.3f READs of a queue by clients that begin to wait; in all %.2f per operation",
			t.MNOpsPerAcquire, t.Prefetch, t.MNOpsPerOp)
		line(w, "acquires", "%s, of which %s joined local readers", units.Count(t.Acquires), units.Count(t.LocalJoins))
		line(w, "handovers", "%s local, %s remote", units.Count(t.HandoversLocal), units.Count(t.HandoversRemote))
		line(w, "resets", "%s", units.Count(t.Resets))
		line(w, "location cache", "%s hits, %s misses", units.Count(t.CacheHits), units.Count(t.CacheMisses))
		line(w, "evictions", "%s", units.Count(t.Evictions))
	}
	extras(w, t)
	fmt.Fprintln(w)
	replayTable(rows).Write(w)
}

// hitRatio explains the hit ratio: how many reads missed, and what makes reads miss.
func hitRatio(w io.Writer, t *Total, rows []replay.Row) {
	var reads, misses, deleted uint64
	for _, r := range rows {
		switch r.Op {
		case traces.OpGet.String(), traces.OpGets.String():
			reads, misses = reads+r.Count, misses+r.Misses
		case traces.OpDelete.String():
			deleted += r.Count - min(r.Count, r.Misses+r.Errors)
		}
	}
	if reads == 0 {
		line(w, "hit ratio", "none: there were no reads")
		return
	}
	line(w, "hit ratio", "%.3f: %s of %s reads missed", t.HitRatio, units.Count(misses), units.Count(reads))
	if misses == 0 {
		return
	}
	var why []string
	for _, reason := range []struct {
		when bool
		text string
	}{
		{t.Warmed == 0, "the cache was not filled before"},
		{deleted > 0, units.Count(deleted) + " objects were deleted by the trace"},
		{t.Expired > 0, units.Count(t.Expired) + " expired"},
		{t.Evictions > 0, units.Count(t.Evictions) + " were evicted: memory was full"},
		{!t.Fill, "nothing stores a key after its miss but the trace (--fill does)"},
	} {
		if reason.when {
			why = append(why, reason.text)
		}
	}
	line(w, "misses because", "%s", strings.Join(why, ";\n"+strings.Repeat(" ", 2+nameWidth+1)))
}

// extras are lines that are there only if there is something to say.
func extras(w io.Writer, t *Total) {
	if t.Verified > 0 || t.VerifyFailures > 0 {
		line(w, "verified", "%s values, %s FAILURES", units.Count(t.Verified), units.Count(t.VerifyFailures))
	}
	if t.Warmed > 0 {
		line(w, "filled before", "%s objects, %s errors", units.Count(t.Warmed), units.Count(t.WarmErrors))
	}
	if t.SkippedLines > 0 {
		line(w, "skipped lines", "%s", units.Count(uint64(t.SkippedLines)))
	}
	if t.Capped > 0 {
		line(w, "values cut", "%s to --max-value", units.Count(t.Capped))
	}
	if t.LongKeys > 0 {
		line(w, "keys shortened", "%s to 250 bytes", units.Count(t.LongKeys))
	}
	if t.MaxLagS > 0.1 {
		line(w, "behind", "%.1f s at most: the trace asks for more than was reached", t.MaxLagS)
	}
	if t.LostNodes > 0 {
		line(w, "lost nodes", "%d: their operations are not in the figures", t.LostNodes)
	}
}

func replayTable(rows []replay.Row) *report.Table {
	t := &report.Table{Head: []string{"op", "count", "misses", "errors", "p50 us", "p99 us", "p99.9 us", "max us"}}
	us := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	for _, r := range rows {
		t.Add(r.Op, units.Count(r.Count), units.Count(r.Misses), units.Count(r.Errors), us(r.P50Us), us(r.P99Us), us(r.P999Us), us(r.MaxUs))
	}
	return t
}
