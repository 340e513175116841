package member

import (
	"time"

	"github.com/declock/declock/fabric"
)

// A Contact is a [Member] that knows how it reaches the coordinator.
type Contact interface {
	// Contact returns how long ago the coordinator has last answered, and why it does not answer; nil: it does.
	Contact() (silent time.Duration, why error)
}

// A Follower is a fabric.Node that follows the states of a coordinator: what those want to know who watch over it.
type Follower interface {
	// Fenced is closed when the cluster has given this node up: all its operations are fabric.ErrFenced from then on.
	Fenced() <-chan struct{}
	// Err returns why, as an error that is fabric.ErrFenced too; nil before.
	Err() error
	// Down returns the memory nodes that the cluster has had, has not now, and expects back, with their last epochs.
	Down() []fabric.Memory
	Contact
}
