package traces

import (
	"cmp"
	"math"
	"slices"
)

// DefaultTrackedKeys bounds the memory of a Stats to about 64 MiB.
const DefaultTrackedKeys = 1 << 20

const (
	maxTrackedTTLs    = 4096
	maxTrackedClients = 1 << 16
	// A rank takes part in the Zipf regression if it has this many requests: below, noise and not popularity orders the keys.
	minRankCount = 16
	// minRanks is the least number of such ranks for an estimate.
	minRanks = 8
)

// Stats gathers the statistics of a trace, in bounded memory: it counts each key exactly until there
// are more than the bound, and from then on those keys whose hash falls
// below a threshold that halves whenever the table is full again (spatial sampling, as SHARDS does:
// Waldspurger et al., FAST 2015). Summary.Sampled tells the share.
type Stats struct {
	ops         [NumOps]uint64
	keyBytes    uint64
	valueBytes  uint64
	valueRows   uint64
	pieceBytes  uint64
	pieceRows   uint64
	misses      uint64
	requests    uint64
	first, last uint32
	backwards   uint64
	ttls        map[uint32]uint64
	ttlRows     uint64
	clients     map[uint64]struct{}
	keys        keyTable
}

// NewStats returns empty statistics that track at most the given number of keys; 0 is DefaultTrackedKeys.
func NewStats(trackedKeys int) *Stats {
	if trackedKeys <= 0 {
		trackedKeys = DefaultTrackedKeys
	}
	return &Stats{ttls: make(map[uint32]uint64), clients: make(map[uint64]struct{}), keys: newKeyTable(trackedKeys)}
}

// Add counts a record.
func (s *Stats) Add(rec *Record) {
	if s.requests == 0 {
		s.first, s.last = rec.Time, rec.Time
	}
	s.requests++
	if rec.Time < s.last {
		s.backwards++
	}
	s.first, s.last = min(s.first, rec.Time), max(s.last, rec.Time)
	s.ops[rec.Op]++
	s.keyBytes += uint64(rec.KeySize)
	whole := uint32(0)
	switch {
	case rec.Op.Extends():
		s.pieceRows++
		s.pieceBytes += uint64(rec.ValueSize)
	case rec.IsMiss():
		s.misses++
	case rec.ValueSize > 0:
		whole = rec.ValueSize
		s.valueRows++
		s.valueBytes += uint64(rec.ValueSize)
	}
	if rec.Op.Stores() {
		s.ttlRows++
		if _, ok := s.ttls[rec.TTL]; ok || len(s.ttls) < maxTrackedTTLs {
			s.ttls[rec.TTL]++
		}
	}
	if len(s.clients) < maxTrackedClients {
		s.clients[rec.Client] = struct{}{}
	}
	s.keys.add(HashKey(rec.Key), rec.KeySize, whole)
}

// AddAll counts all records of a source, and returns its error.
func (s *Stats) AddAll(src Source) error {
	var rec Record
	for src.Next(&rec) {
		s.Add(&rec)
	}
	return src.Err()
}

// Summary is the statistics of a trace, ready for JSON. An unknown figure is null.
type Summary struct {
	Requests    uint64  `json:"requests"`
	DurationS   uint64  `json:"duration_s"`       // the first and the last second included
	RateKQPS    float64 `json:"rate_kqps"`        // requests over duration
	OutOfOrder  uint64  `json:"out_of_order"`     // records older than one before
	Clients     int     `json:"clients"`          // distinct ids, counted up to 65536
	MeanKey     float64 `json:"mean_key"`         // bytes, over requests
	MeanValue   float64 `json:"mean_value"`       // bytes, over requests that carry a whole value
	MeanPiece   float64 `json:"mean_piece"`       // bytes, over append and prepend
	TraceMisses float64 `json:"trace_miss_ratio"` // get and gets rows with value size 0

	Ops  []OpShare  `json:"ops"`  // by share
	TTLs []TTLCount `json:"ttls"` // of set, add, replace and cas; the ten most frequent

	Keys        float64 `json:"keys"`              // distinct; exact if Sampled is 1
	Sampled     float64 `json:"sampled"`           // share of the keys that Keys and what follows rest on
	MeanFreq    float64 `json:"mean_freq"`         // requests per key
	OneHitRatio float64 `json:"one_hit_ratio"`     // keys asked for once
	WorkingSet  float64 `json:"working_set_bytes"` // key and last whole value of all keys, TTLs ignored

	// Alpha of the Zipf distribution, and how well it fits: least squares of log count over log rank, as published
	// tables do it, at ranks that grow geometrically so that each octave counts the same, as far as ranks have 16 requests.
	Alpha   *float64 `json:"zipf_alpha"`
	AlphaR2 *float64 `json:"zipf_r2"`
}

// An OpShare is a row of the operation mix.
type OpShare struct {
	Op    string  `json:"op"`
	Count uint64  `json:"count"`
	Share float64 `json:"share"`
}

// A TTLCount is a row of the TTL mix.
type TTLCount struct {
	TTL   uint32  `json:"ttl_s"`
	Share float64 `json:"share"`
}

// Share returns the share of an operation.
func (m *Summary) Share(op Op) float64 {
	for _, o := range m.Ops {
		if o.Op == op.String() {
			return o.Share
		}
	}
	return 0
}

// Summary computes what was gathered so far.
func (s *Stats) Summary() Summary {
	m := Summary{Requests: s.requests, Clients: len(s.clients), OutOfOrder: s.backwards, Sampled: 1}
	if s.requests == 0 {
		return m
	}
	n := float64(s.requests)
	m.DurationS = uint64(s.last-s.first) + 1
	m.RateKQPS = n / float64(m.DurationS) / 1000
	m.MeanKey = float64(s.keyBytes) / n
	m.MeanValue = ratio(s.valueBytes, s.valueRows)
	m.MeanPiece = ratio(s.pieceBytes, s.pieceRows)
	m.TraceMisses = ratio(s.misses, s.ops[OpGet]+s.ops[OpGets])
	for op, c := range s.ops {
		if c > 0 {
			m.Ops = append(m.Ops, OpShare{Op: Op(op).String(), Count: c, Share: float64(c) / n})
		}
	}
	slices.SortStableFunc(m.Ops, func(a, b OpShare) int { return cmp.Compare(b.Count, a.Count) })
	m.TTLs = s.topTTLs(10)
	s.summarizeKeys(&m)
	return m
}

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func (s *Stats) topTTLs(most int) []TTLCount {
	out := make([]TTLCount, 0, len(s.ttls))
	for ttl, c := range s.ttls {
		out = append(out, TTLCount{TTL: ttl, Share: ratio(c, s.ttlRows)})
	}
	slices.SortFunc(out, func(a, b TTLCount) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.TTL, b.TTL)) })
	return out[:min(most, len(out))]
}

func (s *Stats) summarizeKeys(m *Summary) {
	t := &s.keys
	m.Sampled = t.share()
	var once, bytes, requests uint64
	n := uint64(len(t.keys))
	counts := make([]uint32, 0, n)
	for _, e := range t.keys {
		counts = append(counts, e.count)
		bytes += uint64(e.keySize) + uint64(e.valueSize)
		requests += uint64(e.count)
		if e.count == 1 {
			once++
		}
	}
	m.Keys = float64(n) / m.Sampled
	m.MeanFreq = ratio(requests, n)
	if m.Sampled == 1 {
		m.MeanFreq = ratio(s.requests, n)
	}
	m.OneHitRatio = ratio(once, n)
	m.WorkingSet = float64(bytes) / m.Sampled
	slices.SortFunc(counts, func(a, b uint32) int { return cmp.Compare(b, a) })
	if alpha, r2, ok := rankRegression(counts); ok {
		m.Alpha, m.AlphaR2 = &alpha, &r2
	}
}

// rankRegression fits log count = c - alpha log rank to counts in falling order. Ranks of a
// sample of the keys are the true ranks times a constant, which does not change the slope.
func rankRegression(counts []uint32) (alpha, r2 float64, ok bool) {
	var n, sx, sy, sxx, sxy, syy float64
	for rank := 1; rank <= len(counts) && counts[rank-1] >= minRankCount; rank = max(rank+1, rank*11/10) {
		x, y := math.Log(float64(rank)), math.Log(float64(counts[rank-1]))
		n++
		sx, sy, sxx, sxy, syy = sx+x, sy+y, sxx+x*x, sxy+x*y, syy+y*y
	}
	if n < minRanks {
		return 0, 0, false
	}
	vx, vy, cov := sxx-sx*sx/n, syy-sy*sy/n, sxy-sx*sy/n
	if vy <= 1e-12 {
		return 0, 1, true
	}
	return max(0, -cov/vx), cov * cov / (vx * vy), true
}
