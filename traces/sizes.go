package traces

import "math"

// headRanks are calibrated one by one; behind them the law of large numbers holds.
const headRanks = 1 << 16

// sizeTable is a distribution of sizes with mean 1, as 256 equally likely classes.
type sizeTable [256]float64

// keySpread: keys of a cluster have one shape, with ids of different length.
var keySpread = newSizeTable(func(p float64) float64 { return 0.8 + 0.4*p })

// valueSpread: log-normal with sigma 0.6, cut at the outer 1/512ths, so the
// largest class is about four times the mean. The table publishes means only;
// this is our choice.
var valueSpread = newSizeTable(func(p float64) float64 { return math.Exp(0.6 * math.Sqrt2 * math.Erfinv(2*p-1)) })

func newSizeTable(quantile func(p float64) float64) *sizeTable {
	t, sum := new(sizeTable), 0.0
	for i := range t {
		t[i] = quantile((float64(i) + 0.5) / 256)
		sum += t[i]
	}
	for i := range t {
		t[i] *= 256 / sum
	}
	return t
}

// pick returns the size of the key with the given random bits: class by the lowest 8,
// rounding by the next 24 (so that small means come out right too).
func (t *sizeTable) pick(h uint64, base float64) float64 {
	return math.Floor(base*t[h&0xff] + float64(h>>8&0xffffff)*0x1p-24)
}

// A sizer gives each rank its key size, value size and family (object or
// counter). Hot ranks weigh so much that their own sizes decide the mean of the requests: with alpha 2.7 the first has
// 78 %. So the bases are solved for: the mean over requests, exact over the head, is the preset's.
type sizer struct {
	seed       uint64
	keys       uint64
	idWidth    int
	keyBase    float64
	valueBase  float64
	counterLen float64   // digits of a counter
	counters   []uint64  // bit set of head ranks that are counters
	tailShare  float64   // of counters behind the head
	weight     []float64 // of head ranks, adding up to 1 with tailWeight
	tailWeight float64   // of all others together
}

// newSizer lays out the ranks of a key space. counting is the share of requests that are incr or decr.
func newSizer(p *Preset, seed, keys uint64, counting float64) *sizer {
	z := &sizer{seed: mix(seed, 0x51e5), keys: keys, idWidth: idWidth(keys)}
	z.weigh(p.Alpha)
	// Twice the share of incr and decr: a counter is also read, set and deleted.
	z.chooseCounters(min(1, 2*counting))
	z.counterLen = min(10, max(1, math.Round(p.ValueSize)))
	z.keyBase = solve(p.KeySize, func(base float64) float64 {
		z.keyBase = base
		return z.mean(1, func(rank uint64, counter bool) float64 { return float64(z.keySize(rank, counter)) })
	})
	// The value size is the mean over requests that carry a whole value; those of
	// counters do so less often.
	carrying := 1 - z.countingShare(counting)
	z.valueBase = solve(p.ValueSize, func(base float64) float64 {
		z.valueBase = base
		return z.mean(carrying, func(rank uint64, counter bool) float64 { return float64(z.valueSize(rank, counter)) })
	})
	return z
}

// countingShare is the share of incr and decr among the requests to counters that makes them the given share of all.
func (z *sizer) countingShare(counting float64) float64 {
	if counting == 0 {
		return 0
	}
	return min(1, counting/z.counterWeight())
}

// weigh computes the probabilities of the head's ranks.
func (z *sizer) weigh(alpha float64) {
	head := min(z.keys, headRanks)
	z.weight = make([]float64, head)
	sum := 0.0
	for i := range z.weight {
		z.weight[i] = math.Pow(float64(i+1), -alpha)
		sum += z.weight[i]
	}
	tail := 0.0
	if z.keys > head {
		lo, hi := float64(head)+0.5, float64(z.keys)+0.5
		if q := 1 - alpha; math.Abs(q) < 1e-9 {
			tail = math.Log(hi / lo)
		} else {
			tail = (math.Pow(hi, q) - math.Pow(lo, q)) / q
		}
	}
	for i := range z.weight {
		z.weight[i] /= sum + tail
	}
	z.tailWeight = tail / (sum + tail)
}

// chooseCounters spreads the counters over the ranks such that they have
// at least their share of the requests in the head as in the tail.
func (z *sizer) chooseCounters(share float64) {
	z.counters = make([]uint64, len(z.weight)/64+1)
	z.tailShare = share
	if share <= 0 {
		return
	}
	have, all := 0.0, 0.0
	for i, w := range z.weight {
		all += w
		if have < share*all {
			z.counters[i/64] |= 1 << (i % 64)
			have += w
		}
	}
}

// counterWeight is the share of requests that go to counters.
func (z *sizer) counterWeight() float64 {
	w := z.tailWeight * z.tailShare
	for i := range z.weight {
		if z.isCounter(uint64(i + 1)) {
			w += z.weight[i]
		}
	}
	return w
}

func (z *sizer) isCounter(rank uint64) bool {
	if i := rank - 1; i < uint64(len(z.weight)) {
		return z.counters[i/64]>>(i%64)&1 != 0
	}
	return z.tailShare > 0 && float64(mix(rank, z.seed^0xc0)>>11)*0x1p-53 < z.tailShare
}

func (z *sizer) keySize(rank uint64, counter bool) int {
	least := z.idWidth
	if counter {
		least += len(CounterPrefix)
	}
	return int(min(maxKeySize, max(float64(least), keySpread.pick(mix(rank, z.seed), z.keyBase))))
}

func (z *sizer) valueSize(rank uint64, counter bool) uint32 {
	if counter {
		return uint32(z.counterLen)
	}
	return uint32(max(1, valueSpread.pick(mix(rank, z.seed)>>32, z.valueBase)))
}

// mean over requests, those to counters with the given weight: exact over the head, a sample of the tail.
func (z *sizer) mean(counterWeight float64, size func(rank uint64, counter bool) float64) float64 {
	sum, all := 0.0, 0.0
	add := func(rank uint64, w float64) {
		counter := z.isCounter(rank)
		if counter {
			w *= counterWeight
		}
		sum += w * size(rank, counter)
		all += w
	}
	for i, w := range z.weight {
		if w < 1e-12 {
			break // alpha is so large that these are not asked for
		}
		add(uint64(i+1), w)
	}
	if z.tailWeight > 0 {
		const sample = 4096
		for i := uint64(0); i < sample; i++ {
			add(headRanks+1+mix(i, z.seed)%(z.keys-headRanks), z.tailWeight/sample)
		}
	}
	return sum / all
}

// solve finds by bisection the base whose mean is the wanted one; the mean grows with the base.
func solve(want float64, mean func(base float64) float64) float64 {
	lo, hi := 0.0, 4*want+4
	for range 24 {
		mid := (lo + hi) / 2
		if mean(mid) < want {
			lo = mid
		} else {
			hi = mid
		}
	}
	base := (lo + hi) / 2
	mean(base)
	return base
}

// idWidth is the number of base-64 digits that tell the keys apart.
func idWidth(keys uint64) int {
	w := 1
	for n := uint64(64); n < keys; n *= 64 {
		w++
	}
	return w
}
