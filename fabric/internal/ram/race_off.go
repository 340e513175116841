//go:build !race

package ram

// RaceAcquire is for the race detector, which does not see shared memory: see race_on.go.
func RaceAcquire() {}

// RaceRelease is, too.
func RaceRelease() {}
