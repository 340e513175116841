package sim

import "math/bits"

// A Rand is a xoshiro256** generator: small, fast, and the same in every
// process and Go version. Streams of one seed are independent.
type Rand struct{ s [4]uint64 }

// NewRand returns the generator of a stream of a seed.
func NewRand(seed, stream uint64) Rand {
	x := seed ^ bits.RotateLeft64(stream*0x9e3779b97f4a7c15, 32)
	var r Rand
	for i := range r.s {
		x += 0x9e3779b97f4a7c15
		r.s[i] = Mix(x)
	}
	return r
}

// Mix is the finisher of SplitMix64.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	out := bits.RotateLeft64(r.s[1]*5, 7) * 9
	t := r.s[1] << 17
	r.s[2] ^= r.s[0]
	r.s[3] ^= r.s[1]
	r.s[1] ^= r.s[2]
	r.s[0] ^= r.s[3]
	r.s[2] ^= t
	r.s[3] = bits.RotateLeft64(r.s[3], 45)
	return out
}

// Uint64n returns a number from 0 to n-1; n must not be 0. The bias of n/2^64
// does not matter here.
func (r *Rand) Uint64n(n uint64) uint64 {
	hi, _ := bits.Mul64(r.Uint64(), n)
	return hi
}

// Float64 returns a number in [0, 1).
func (r *Rand) Float64() float64 { return float64(r.Uint64()>>11) / (1 << 53) }
