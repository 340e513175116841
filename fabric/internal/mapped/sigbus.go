//go:build amd64 || arm64

package mapped

// sigbus is the signal handler. The kernel calls it; it is no Go function.
//
//lint:ignore U1000 handlerPC, which is assembly, uses it
func sigbus()

// handlerPC returns the address of sigbus.
func handlerPC() uintptr
