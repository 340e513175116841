package app

import (
	"context"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/daemon"
)

func fleetName(address string) (string, error) { return daemon.ClusterName(address) }

// statusTimeout bounds the wait for one daemon's status: it may be stopped.
const statusTimeout = 3 * time.Second

// askStatus asks a daemon for its status.
func askStatus(ctx context.Context, socket string) (*control.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	c, err := control.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status(ctx)
}

// policyOf returns the lock policies of a running cluster's compute nodes: one, as it should be, or "mixed".
func (o *replayOptions) policyOf(ctx context.Context) string {
	policy := "unknown"
	name, err := fleetName(o.cluster)
	if err != nil {
		return policy
	}
	for _, socket := range control.Sockets(daemon.ClusterDir(o.dir, name)) {
		s, err := askStatus(ctx, socket)
		switch {
		case err != nil:
		case policy == "unknown":
			policy = s.Policy
		case policy != s.Policy:
			return "mixed"
		}
	}
	return policy
}
