package ram

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// HasAtomic16 reports whether the CPU has 16-byte atomics: all of this century
// but the first.
var HasAtomic16 = cpu.X86.HasCX16

// cas16 compares the 16 bytes at an aligned address with old, replaces them by
// new if they are equal, and returns what was there.
//
//go:noescape
func cas16(a unsafe.Pointer, old0, old1, new0, new1 uint64) (seen0, seen1 uint64)
