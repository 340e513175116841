package traces

import (
	"fmt"
	"math"
	"math/bits"
)

// Rand is xoshiro256++: small, fast, and the same in every version of Go, so
// that a seed means the same trace for ever.
type Rand struct{ s [4]uint64 }

// NewRand returns a generator for a seed and a stream; other streams of the seed are independent of it.
func NewRand(seed, stream uint64) *Rand {
	r := new(Rand)
	x := mix(seed, 0x94d049bb133111eb) ^ mix(stream+1, 0xd6e8feb86659fd93)
	for i := range r.s { // splitmix64, as the authors of xoshiro advise
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		r.s[i] = z ^ z>>31
	}
	return r
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	s := &r.s
	out := bits.RotateLeft64(s[0]+s[3], 23) + s[0]
	t := s[1] << 17
	s[2] ^= s[0]
	s[3] ^= s[1]
	s[1] ^= s[2]
	s[0] ^= s[3]
	s[2] ^= t
	s[3] = bits.RotateLeft64(s[3], 45)
	return out
}

// Float64 returns a number in [0, 1).
func (r *Rand) Float64() float64 { return float64(r.Uint64()>>11) * 0x1p-53 }

// Below returns a number in [0, n), all equally likely to within n/2^64.
func (r *Rand) Below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.Uint64(), n)
	return hi
}

// Zipf draws ranks 1..n with probability proportional to rank^-alpha, for any
// alpha >= 0 and in constant memory: rejection-inversion (W. Hörmann and G.
// Derflinger, "Rejection-inversion to generate variates from monotone discrete
// distributions", ACM TOMACS 6(3), 1996). It inverts the integral of the density's
// continuous hull and rejects the difference, so the distribution is exact; more than
// three quarters of the draws are accepted at once.
type Zipf struct {
	n, alpha  float64
	q, invQ   float64 // 1-alpha and its inverse
	logLike   bool    // alpha so near 1 that the power form of the integral loses its digits
	hX1, hN   float64 // the range of the integral that is drawn from
	threshold float64 // ranks nearer to the drawn point than this need no second look
}

// NewZipf returns a sampler over n ranks.
func NewZipf(n uint64, alpha float64) (*Zipf, error) {
	if n == 0 || n > MaxKeys || !(alpha >= 0) || alpha > 20 {
		return nil, fmt.Errorf("%w: Zipf over %d ranks with alpha %g: ranks must be 1 to %d and alpha 0 to 20",
			ErrConfig, n, alpha, uint64(MaxKeys))
	}
	z := &Zipf{n: float64(n), alpha: alpha, q: 1 - alpha}
	if math.Abs(z.q) < 1e-6 {
		z.logLike = true
	} else {
		z.invQ = 1 / z.q
	}
	z.hX1 = z.integral(1.5) - 1
	z.hN = z.integral(z.n + 0.5)
	z.threshold = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z, nil
}

// Rank draws a rank, from 1.
func (z *Zipf) Rank(r *Rand) uint64 {
	if z.alpha == 0 {
		return 1 + r.Below(uint64(z.n))
	}
	for {
		u := z.hN + r.Float64()*(z.hX1-z.hN)
		x := z.inverse(u)
		k := math.Floor(x + 0.5)
		if k < 1 {
			k = 1
		} else if k > z.n {
			k = z.n
		}
		if k-x <= z.threshold || u >= z.integral(k+0.5)-z.density(k) {
			return uint64(k)
		}
	}
}

// density is the weight of a rank.
func (z *Zipf) density(x float64) float64 { return math.Exp(-z.alpha * math.Log(x)) }

// integral of the density from 1 to x: (x^q - 1)/q, which tends to log x as q tends to 0.
func (z *Zipf) integral(x float64) float64 {
	l := math.Log(x)
	if z.logLike {
		return l * (1 + z.q*l/2)
	}
	return math.Expm1(z.q*l) * z.invQ
}

// inverse of integral.
func (z *Zipf) inverse(u float64) float64 {
	if z.logLike {
		return math.Exp(u * (1 - z.q*u/2))
	}
	t := u * z.q
	if t < -1 {
		t = -1 // rounding, at the far end
	}
	return math.Exp(math.Log1p(t) * z.invQ)
}
