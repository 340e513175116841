//go:build linux && (amd64 || arm64)

package mapped

// sigbus is the signal handler. The kernel calls it; it is no Go function.
func sigbus()

// handlerPC returns the address of sigbus.
func handlerPC() uintptr
