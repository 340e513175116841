package replay

import (
	"errors"
	"fmt"
	"slices"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/traces"
)

const (
	// opFill is the row of sets that follow a miss.
	opFill  = traces.NumOps
	numRows = traces.NumOps + 1

	// Latencies from 1 ns to 100 s, to within 1 %: 2 digits keep a client's histograms at 30 KB an
	// operation, which 256 clients can afford in memory and in their CPU's cache.
	maxLatencyNs  = int64(100e9)
	latencyDigits = 2
)

func opName(op traces.Op) string {
	if op == opFill {
		return "fill"
	}
	return op.String()
}

// row is one operation's counts and latencies.
type row struct {
	Outcomes [numOutcomes]uint64
	Hist     histogram
}

// A histogram travels as HdrHistogram's compressed V2 encoding.
type histogram struct{ *hdr.Histogram }

// MarshalText implements encoding.TextMarshaler.
func (h histogram) MarshalText() ([]byte, error) { return h.Encode(hdr.V2CompressedEncodingCookieBase) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *histogram) UnmarshalText(text []byte) (err error) {
	h.Histogram, err = hdr.Decode(text)
	return err
}

func (r *row) record(ns int64) {
	_ = r.Hist.RecordValue(min(max(ns, 0), maxLatencyNs)) // in range, so it cannot fail
}

func (r *row) count() uint64 {
	n := uint64(0)
	for _, o := range r.Outcomes {
		n += o
	}
	return n
}

// Counts are what clients counted besides operations.
type Counts struct {
	Verified       uint64 `json:"verified"`        // values checked
	VerifyFailures uint64 `json:"verify_failures"` // of them or of what was returned, wrong
	Warmed         uint64 `json:"warmed"`          // objects stored before measuring
	WarmErrors     uint64 `json:"warm_errors"`     // and failures of that
	Capped         uint64 `json:"capped"`          // values cut to MaxValue
	Raised         uint64 `json:"raised"`          // values raised to MinBlock for Verify
	LongKeys       uint64 `json:"long_keys"`       // keys shortened to the cache's bound
	ExtraGets      uint64 `json:"extra_gets"`      // gets done for a cas without one
}

// A Result is what one or more clients measured. Results of clients, and of
// processes (it travels as JSON, histograms included), are added by Merge.
type Result struct {
	Counts
	Clients        int
	StartNs, EndNs int64         // wall time, monotonic within the process
	Rows           [numRows]*row // by operation; nil: there was none
	MaxLagNs       int64         // how late a second of the trace began, with Speed
	Messages       []string      // the first errors

	// Kinds counts errors by what they were, for the first messages may all be of one kind.
	Kinds   map[string]uint64 `json:",omitempty"`
	Stopped bool              // before the end of the trace
}

// count counts an error by its kind.
func (r *Result) count(kinds []error, err error) {
	kind := "other errors"
	if i := slices.IndexFunc(kinds, func(k error) bool { return errors.Is(err, k) }); i >= 0 {
		kind = kinds[i].Error()
	}
	if r.Kinds == nil {
		r.Kinds = map[string]uint64{}
	}
	r.Kinds[kind]++
}

// row returns the row of the operation; it is made at its first use.
func (r *Result) row(op traces.Op) *row {
	if r.Rows[op] == nil {
		r.Rows[op] = &row{Hist: histogram{hdr.New(1, maxLatencyNs, latencyDigits)}}
	}
	return r.Rows[op]
}

// maxMessages bounds what a merged result keeps.
const maxMessages = 64

// Merge adds another result to r.
func (r *Result) Merge(o *Result) error {
	for i, from := range o.Rows {
		if from == nil {
			continue
		}
		op := traces.Op(i)
		if from.Hist.Histogram == nil {
			return fmt.Errorf("%w: no latencies of %s", ErrMerge, opName(op))
		}
		to := r.row(op)
		stats.Add(&to.Outcomes, &from.Outcomes)
		if dropped := to.Hist.Merge(from.Hist.Histogram); dropped > 0 {
			return fmt.Errorf("%w: %d latencies of %s do not fit", ErrMerge, dropped, opName(op))
		}
	}
	if r.StartNs == 0 || (o.StartNs != 0 && o.StartNs < r.StartNs) {
		r.StartNs = o.StartNs
	}
	r.EndNs = max(r.EndNs, o.EndNs)
	r.Clients += o.Clients
	stats.Add(&r.Counts, &o.Counts)
	r.MaxLagNs = max(r.MaxLagNs, o.MaxLagNs)
	if r.Kinds == nil && len(o.Kinds) > 0 {
		r.Kinds = map[string]uint64{}
	}
	for kind, n := range o.Kinds {
		r.Kinds[kind] += n
	}
	r.Stopped = r.Stopped || o.Stopped
	r.Messages = append(r.Messages, o.Messages[:min(len(o.Messages), max(0, maxMessages-len(r.Messages)))]...)
	return nil
}

// A Row is one operation in a summary.
type Row struct {
	Op        string  `json:"op"`
	Count     uint64  `json:"count"`
	Hits      uint64  `json:"hits"` // found, or took effect
	Misses    uint64  `json:"misses"`
	Exists    uint64  `json:"exists,omitempty"`     // add found an object, cas a changed one
	NotNumber uint64  `json:"not_number,omitempty"` // incr or decr of something else
	TooLarge  uint64  `json:"too_large,omitempty"`  // the cache takes no value of that size
	Errors    uint64  `json:"errors"`
	MeanUs    float64 `json:"mean_us"` // latencies of what did not fail
	P50Us     float64 `json:"p50_us"`
	P99Us     float64 `json:"p99_us"`
	P999Us    float64 `json:"p999_us"`
	MaxUs     float64 `json:"max_us"`
}

// Summary is a result for people: the row over all operations, and those of each.
type Summary struct {
	Clients  int     `json:"clients"`
	Ops      uint64  `json:"count"` // of the trace; fills are not of the trace
	Seconds  float64 `json:"seconds"`
	OpsPerS  float64 `json:"ops_per_s"`
	HitRatio float64 `json:"hit_ratio"` // of get and gets
	Errors   uint64  `json:"errors"`
	Counts
	MaxLagS  float64  `json:"max_lag_s"`
	Stopped  bool     `json:"stopped"`
	Rows     []Row    `json:"-"`
	Messages []string `json:"messages,omitempty"`
}

// Summary computes rates and percentiles.
func (r *Result) Summary() Summary {
	s := Summary{
		Clients: r.Clients, Counts: r.Counts, Stopped: r.Stopped, Messages: r.Messages,
		Seconds: float64(r.EndNs-r.StartNs) / 1e9, MaxLagS: float64(r.MaxLagNs) / 1e9,
	}
	var reads, hits uint64
	for i, from := range r.Rows {
		if from == nil {
			continue
		}
		op := traces.Op(i)
		row := from.summary(opName(op))
		s.Rows = append(s.Rows, row)
		s.Errors += row.Errors
		if op != opFill {
			s.Ops += row.Count
		}
		if op.IsRead() {
			reads += row.Count
			hits += row.Hits
		}
	}
	if s.Seconds > 0 {
		s.OpsPerS = float64(s.Ops) / s.Seconds
	}
	if reads > 0 {
		s.HitRatio = float64(hits) / float64(reads)
	}
	return s
}

func (r *row) summary(op string) Row {
	us := func(ns int64) float64 { return float64(ns) / 1000 }
	return Row{
		Op: op, Count: r.count(), Hits: r.Outcomes[hit], Misses: r.Outcomes[miss], Exists: r.Outcomes[exists],
		NotNumber: r.Outcomes[notNumber], TooLarge: r.Outcomes[tooLarge], Errors: r.Outcomes[failed],
		MeanUs: r.Hist.Mean() / 1000, P50Us: us(r.Hist.ValueAtPercentile(50)), P99Us: us(r.Hist.ValueAtPercentile(99)),
		P999Us: us(r.Hist.ValueAtPercentile(99.9)), MaxUs: us(r.Hist.Max()),
	}
}
