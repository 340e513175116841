//go:build race

package ram

import (
	"runtime"
	"unsafe"
)

// The race detector does not follow memory that Go did not allocate: a lock in
// shared memory would order nothing for it, and it would report what the lock
// protects. Under it, each operation and each message is a synchronisation with
// those before it. That hides races between operations; they are allowed anyway.
var raceOrder byte

// RaceAcquire follows an operation on shared memory, or a message that was taken from it.
func RaceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceOrder)) }

// RaceRelease goes before one.
func RaceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceOrder)) }
