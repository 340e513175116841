//go:build linux && !amd64

package shm

import "unsafe"

// hasAtomic16: the 16-byte atomics of other CPUs are not used. fabric.Caps says
// so, and operations that need them are refused before they get here.
const hasAtomic16 = false

func cas16(unsafe.Pointer, uint64, uint64, uint64, uint64) (uint64, uint64) {
	panic("shm: no 16-byte atomics on this CPU")
}
