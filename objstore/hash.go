package objstore

import (
	"encoding/binary"
	"math/bits"
)

// Odd constants of hashKey (the fractions of pi). Format: do not change: they
// decide where every key lives.
const (
	hashK0 = 0x243f6a8885a308d3
	hashK1 = 0x13198a2e03707345
	hashK2 = 0xa4093822299f31d1
	hashK3 = 0x082efa98ec4e6c89
)

// mum multiplies to 128 bits and folds them: one round of the wyhash family.
func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// hashKey hashes a key to 64 bits: the same on every compute node, so that all
// find the same bucket. The high bits choose node and bucket, the low ones
// are the fingerprint.
func hashKey(key []byte, seed uint64) uint64 {
	h := seed ^ hashK0
	n := len(key)
	p := key
	for len(p) > 16 {
		h = mum(binary.LittleEndian.Uint64(p)^hashK1, binary.LittleEndian.Uint64(p[8:])^h)
		p = p[16:]
	}
	var a, b uint64
	switch {
	case n >= 16:
		// The last 16 bytes, overlapping what was hashed already.
		q := key[n-16:]
		a, b = binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
	case n >= 8:
		a, b = binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[n-8:])
	case n >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(key)), uint64(binary.LittleEndian.Uint32(key[n-4:]))
	case n > 0:
		a = uint64(key[0])<<16 | uint64(key[n>>1])<<8 | uint64(key[n-1])
	}
	h = mum(a^hashK2, b^h)
	return mum(h^hashK3, uint64(n)^hashK1)
}
