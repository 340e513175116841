package traces

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

const (
	// MaxKeys is the largest key space of a generator.
	MaxKeys = 1 << 40
	// maxKeySize is memcached's bound, and the object store's.
	maxKeySize = 250
	// pieceShare: append and prepend add an eighth of the key's value size. The
	// table tells nothing of pieces; whole values would grow lists without bound.
	pieceShare = 8
	// maxClients keeps one generator per client affordable.
	maxClients = 1 << 20
)

// GenConfig says what trace to make.
type GenConfig struct {
	Preset   Preset // of Presets or FindPreset, or varied
	Seed     uint64
	Keys     uint64 // distinct keys that may be asked for
	Requests uint64 // of all clients together; 0 is without end
	Clients  int    // 0 is 1
}

// A Generator makes traces of a cluster: requests are independent draws of a key
// (Zipf) and an operation (the preset's mix). A key keeps its size, its value's size and
// its family (object or counter). It is immutable: any number of goroutines may take streams from it.
type Generator struct {
	cfg      GenConfig
	zipf     *Zipf
	sizer    *sizer
	perm     permutation
	ops      [2]opTable // of objects, of counters
	counters bool
	ttls     []TTLShare // Share is cumulative
	meanSec  float64    // seconds per request
	filler   []byte
}

// NewGenerator checks the configuration. A preset that lacks a statistic is refused with ErrIncomplete.
func NewGenerator(cfg GenConfig) (*Generator, error) {
	if cfg.Clients == 0 {
		cfg.Clients = 1
	}
	p := &cfg.Preset
	if missing := p.Missing(); len(missing) > 0 {
		return nil, fmt.Errorf("%w: no trace can be made of %q: the published table has no %s; take another cluster or set the figure",
			ErrIncomplete, p.Name, strings.Join(missing, ", "))
	}
	if what := badConfig(&cfg); what != "" {
		return nil, fmt.Errorf("%w: %s", ErrConfig, what)
	}
	zipf, err := NewZipf(cfg.Keys, p.Alpha)
	if err != nil {
		return nil, err
	}
	mix := p.Mix()
	counting := mix[OpIncr] + mix[OpDecr]
	g := &Generator{
		cfg: cfg, zipf: zipf, counters: counting > 0,
		sizer:   newSizer(p, cfg.Seed, cfg.Keys, counting),
		perm:    newPermutation(cfg.Keys, cfg.Seed),
		ttls:    p.TTLMix(),
		meanSec: 1 / (p.RateKQPS * 1000),
		filler:  newFiller(),
	}
	inCounters := g.sizer.countingShare(counting)
	for family, share := range []float64{0, inCounters} {
		g.ops[family] = newOpTable(mix, counting, share)
	}
	sum := 0.0
	for i := range g.ttls {
		sum += g.ttls[i].Share
		g.ttls[i].Share = sum
	}
	return g, nil
}

func badConfig(cfg *GenConfig) string {
	p := &cfg.Preset
	switch {
	case cfg.Keys == 0 || cfg.Keys > MaxKeys:
		return fmt.Sprintf("%d keys: there must be 1 to %d", cfg.Keys, uint64(MaxKeys))
	case cfg.Clients < 0 || cfg.Clients > maxClients:
		return fmt.Sprintf("%d clients: there must be 1 to %d", cfg.Clients, maxClients)
	case !(p.RateKQPS > 0) || p.RateKQPS > 1e6:
		return fmt.Sprintf("a request rate of %g kqps: it must be above 0 and at most 1000000", p.RateKQPS)
	case p.KeySize > maxKeySize/1.2:
		return fmt.Sprintf("a mean key size of %g: with its spread it must stay below %d", p.KeySize, maxKeySize)
	case p.KeySize < float64(idWidth(cfg.Keys)):
		return fmt.Sprintf("a mean key size of %g bytes: %d keys need %d to be told apart", p.KeySize, cfg.Keys, idWidth(cfg.Keys))
	case p.ValueSize > maxValueSize/8:
		return fmt.Sprintf("a mean value size of %g: it must be at most %d", p.ValueSize, maxValueSize/8)
	}
	return ""
}

// Config returns what the generator was made from.
func (g *Generator) Config() GenConfig { return g.cfg }

// An opTable draws an operation: thresholds of a 32-bit number.
type opTable struct {
	op   [NumOps]Op
	upTo [NumOps]uint64
	n    int
}

// newOpTable is the mix of one family: incr and decr have the given share of it, and
// the others keep their proportions. Summed over the families the mix is the preset's.
func newOpTable(mix [NumOps]float64, counting, share float64) opTable {
	var t opTable
	sum := 0.0
	for op := OpGet; op < NumOps; op++ {
		w := mix[op]
		switch {
		case op.Counts() && counting > 0:
			w *= share / counting
		case !op.Counts() && counting < 1:
			w *= (1 - share) / (1 - counting)
		}
		if w <= 0 {
			continue
		}
		sum += w
		t.op[t.n], t.upTo[t.n] = op, uint64(sum*(1<<32))
		t.n++
	}
	if t.n > 0 {
		t.upTo[t.n-1] = 1 << 32 // rounding
	}
	return t
}

func (t *opTable) draw(bits32 uint64) Op {
	i := 0
	for bits32 >= t.upTo[i] {
		i++
	}
	return t.op[i]
}

// A Stream is the requests of one client, or of all. It implements [Source] and allocates nothing.
type Stream struct {
	g          *Generator
	rng        *Rand
	client     uint64
	index, end uint64 // of the whole trace: client i has i, i+n, i+2n, ...
	key        [maxKeySize]byte
}

// Stream returns the requests of client i of the configured number. The
// substream's seed is derived from (seed, i): processes that share a configuration make their clients'
// streams independently, and together these are the trace that All returns.
func (g *Generator) Stream(i int) *Stream {
	if i < 0 || i >= g.cfg.Clients {
		panic(fmt.Sprintf("traces: stream of client %d of %d", i, g.cfg.Clients))
	}
	end := g.cfg.Requests
	if end == 0 {
		end = math.MaxUint64 - uint64(g.cfg.Clients)
	}
	return &Stream{g: g, rng: NewRand(g.cfg.Seed, uint64(i)), client: uint64(i), index: uint64(i), end: end}
}

// Err implements [Source]: a stream does not fail.
func (s *Stream) Err() error { return nil }

// Next implements [Source].
func (s *Stream) Next(rec *Record) bool {
	if s.index >= s.end {
		return false
	}
	g := s.g
	rank := g.zipf.Rank(s.rng)
	counter := g.counters && g.sizer.isCounter(rank)
	family := 0
	if counter {
		family = 1
	}
	draw := s.rng.Uint64()
	rec.Op = g.ops[family].draw(draw >> 32)
	rec.Key = g.putKey(s.key[:], rank, counter)
	rec.KeySize = uint32(len(rec.Key))
	rec.Time = g.time(s.index)
	rec.Client = s.client
	rec.TTL, rec.ValueSize = 0, 0
	switch {
	case rec.Op.IsRead():
		rec.ValueSize = g.sizer.valueSize(rank, counter)
	case rec.Op.Stores():
		rec.ValueSize = g.sizer.valueSize(rank, counter)
		rec.TTL = g.ttl(draw & (1<<32 - 1))
	case rec.Op.Extends():
		rec.ValueSize = max(1, g.sizer.valueSize(rank, counter)/pieceShare)
	}
	s.index += uint64(g.cfg.Clients)
	return true
}

func (g *Generator) time(index uint64) uint32 {
	return uint32(min(float64(index)*g.meanSec, math.MaxUint32))
}

func (g *Generator) ttl(bits32 uint64) uint32 {
	u := float64(bits32) * 0x1p-32
	for i := range g.ttls {
		if u < g.ttls[i].Share {
			return g.ttls[i].TTL
		}
	}
	return g.ttls[len(g.ttls)-1].TTL
}

const keyDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"

// newFiller is the text that keys are padded with, from an offset of their own.
func newFiller() []byte {
	text, r := make([]byte, 256+maxKeySize), NewRand(0, 0)
	for i := range text {
		text[i] = keyDigits[r.Below(64)]
	}
	return text
}

// putKey writes the key of a rank: the counter prefix if it is one, the permuted
// number of the key in base 64, which makes it unique, and filler to its size.
func (g *Generator) putKey(b []byte, rank uint64, counter bool) []byte {
	size := g.sizer.keySize(rank, counter)
	at := 0
	if counter {
		at = copy(b, CounterPrefix)
	}
	id := g.perm.apply(rank - 1)
	for i := at + g.sizer.idWidth - 1; i >= at; i-- {
		b[i] = keyDigits[id&63]
		id >>= 6
	}
	at += g.sizer.idWidth
	copy(b[at:size], g.filler[mix(rank, g.sizer.seed)>>56:])
	return b[:size]
}

// A permutation of [0, n): ranks become key numbers, so that hot keys are not neighbours. It
// is invertible steps on the next power of two, repeated until the result is below n.
type permutation struct {
	n, mask, m1, m2 uint64
	shift           uint
}

func newPermutation(n, seed uint64) permutation {
	width := uint(bits.Len64(n - 1))
	return permutation{
		n: n, mask: 1<<width - 1, shift: width/2 + 1,
		m1: mix(seed, 0xfeed)&^7 | 5, m2: mix(seed, 0xbeef)&^7 | 5, // odd: invertible
	}
}

func (p *permutation) apply(x uint64) uint64 {
	for {
		x = (x*p.m1 + 0x9e37) & p.mask
		x ^= x >> p.shift
		x = (x * p.m2) & p.mask
		x ^= x >> p.shift
		if x < p.n {
			return x
		}
	}
}

// A sourceFunc is a Source that does not fail.
type sourceFunc func(rec *Record) bool

// Next implements [Source].
func (f sourceFunc) Next(rec *Record) bool { return f(rec) }

// Err implements [Source].
func (sourceFunc) Err() error { return nil }

// All returns the whole trace, in order of time: record j is the next of client j mod n.
func (g *Generator) All() Source {
	streams, next := make([]*Stream, g.cfg.Clients), 0
	for i := range streams {
		streams[i] = g.Stream(i)
	}
	return sourceFunc(func(rec *Record) bool {
		s := streams[next]
		next = (next + 1) % len(streams)
		return s.Next(rec)
	})
}

// Keys returns a set of each key: the share of client i of n, coldest
// first, so that a cache too small for them ends up with the hot ones. It is what to warm a cache with.
func (g *Generator) Keys(i, n int) Source {
	if n <= 0 || i < 0 || i >= n {
		panic(fmt.Sprintf("traces: keys of client %d of %d", i, n))
	}
	step, rank := uint64(n), uint64(0) // the next; 0 at the end
	if first := uint64(i) + 1; first <= g.cfg.Keys {
		rank = first + (g.cfg.Keys-first)/step*step
	}
	buf := make([]byte, maxKeySize)
	return sourceFunc(func(rec *Record) bool {
		if rank == 0 {
			return false
		}
		counter := g.counters && g.sizer.isCounter(rank)
		key := g.putKey(buf, rank, counter)
		*rec = Record{Key: key, KeySize: uint32(len(key)), ValueSize: g.sizer.valueSize(rank, counter),
			Client: (rank - 1) % step, Op: OpSet, TTL: g.ttl(mix(rank, g.sizer.seed) >> 32)}
		rank -= min(rank, step)
		return true
	})
}
