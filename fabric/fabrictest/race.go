//go:build race

package fabrictest

// RaceEnabled reports whether the race detector is on: it allocates, and what allocates nothing cannot be told from what does.
const RaceEnabled = true
