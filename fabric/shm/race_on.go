//go:build race

package shm

import (
	"runtime"
	"unsafe"
)

// The race detector does not follow memory that Go did not allocate: a lock in
// shared memory would order nothing for it, and it would report what the lock
// protects. Under it, each operation and each message is a synchronisation with
// those before it. That hides races between operations; they are allowed anyway.
var raceOrder byte

func raceAcquire() { runtime.RaceAcquire(unsafe.Pointer(&raceOrder)) }
func raceRelease() { runtime.RaceReleaseMerge(unsafe.Pointer(&raceOrder)) }
