package lock

import "github.com/declock/declock/fabric"

// How long a client pauses between two looks at a memory node that is being replaced (AgainAfter).
const (
	minAgainNs = 200 * fabric.Microsecond
	maxAgainNs = 10 * fabric.Millisecond
	againShare = 64
)

// AgainAfter returns for how long a client pauses that has waited for so long for a memory node to be replaced, before it looks again, by attaching to what serves. It is a small part of that time: the wait
// grows by that at most, and one that ends with a failure costs some thousand looks, and not some ten thousand.
func AgainAfter(waited fabric.Time) fabric.Time {
	return min(max(minAgainNs, waited/againShare), maxAgainNs)
}

// PauseAgain pauses a client for that, which has waited from first on, but not beyond until.
func PauseAgain(port fabric.Port, first, until fabric.Time) error {
	now := port.Now()
	return port.Pause(min(until, now+AgainAfter(now-first)))
}
