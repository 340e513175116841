//go:build shmonly

package embedded

import (
	"context"

	"github.com/declock/declock/fabric/member"
)

// A Server is a running etcd of one member. In this program there is none: what an etcd takes to compile is left out.
type Server struct{}

// Start returns member.ErrLeftOut.
func Start(context.Context, Options) (*Server, error) { return nil, member.ErrLeftOut }

// Endpoint returns nothing.
func (*Server) Endpoint() string { return "" }

// Close does nothing.
func (*Server) Close() error { return nil }
