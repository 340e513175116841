package membership

import (
	"errors"
	"io"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// Node returns a compute node that closes the coordinator, which it needs, after it has left the cluster. n must be a member.Follower too.
func Node(n fabric.Node, coordinator io.Closer) fabric.Node {
	return &node{n, n.(member.Follower), coordinator}
}

type node struct {
	fabric.Node
	member.Follower
	coordinator io.Closer
}

// Close is fabric.Node.Close.
func (n *node) Close() error { return errors.Join(n.Node.Close(), n.coordinator.Close()) }

// Fail is fabric.Node.Fail.
func (n *node) Fail() error { return errors.Join(n.Node.Fail(), n.coordinator.Close()) }
