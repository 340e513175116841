//go:build !amd64

package ram

import "unsafe"

// HasAtomic16: the 16-byte atomics of other CPUs are not used.
const HasAtomic16 = false

func cas16(a unsafe.Pointer, old0, old1, new0, new1 uint64) (uint64, uint64) {
	return swapWords(a, old0, old1, new0, new1)
}
