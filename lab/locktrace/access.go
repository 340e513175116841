package locktrace

import (
	"slices"

	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// An Access is a lock that a transaction takes.
type Access struct {
	Lock uint32 // from 0
	Mode lock.Mode
}

// A Source draws the transactions of a client.
type Source interface {
	// Next appends the locks of the next transaction to a list. It may have none: its row does not exist.
	Next(list []Access) []Access
}

// draw is what both sources draw from.
type draw struct{ *traces.Rand }

// between returns a number from low to high.
func (d draw) between(low, high int) int { return low + int(d.Below(uint64(high-low+1))) }

// percent reports whether something happens that does so often.
func (d draw) percent(n int) bool { return d.between(1, 100) <= n }

// nurand is the non-uniform random number of both benchmarks, from low to high.
func (d draw) nurand(a, low, high int) int {
	return (d.between(0, a)|d.between(low, high))%(high-low+1) + low
}

// take adds a lock to those of a transaction, which has each once.
func take(list []Access, l int, m lock.Mode) []Access {
	i := slices.IndexFunc(list, func(a Access) bool { return a.Lock == uint32(l) })
	if i < 0 {
		return append(list, Access{uint32(l), m})
	}
	list[i].Mode = max(list[i].Mode, m)
	return list
}
