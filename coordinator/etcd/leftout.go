//go:build shmonly

package etcd

import (
	"context"

	"github.com/declock/declock/fabric/member"
)

// A Coordinator is a cluster in etcd. In this program there is none: what etcd's client takes to compile is left out.
type Coordinator struct{ member.Service }

// New returns member.ErrLeftOut, or what is wrong with the options.
func New(_ context.Context, o Options) (*Coordinator, error) {
	if _, err := o.withDefaults(); err != nil {
		return nil, err
	}
	return nil, member.ErrLeftOut
}

// Close does nothing.
func (c *Coordinator) Close() error { return nil }
