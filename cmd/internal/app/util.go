package app

import (
	"context"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/scheme"
)

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

// policyOf returns the lock policies of a running cluster's compute nodes here: one, as it should be, or "mixed".
func policyOf(ctx context.Context, at scheme.Cluster) string {
	policy := "unknown"
	for _, socket := range control.Sockets(at.RunDir()) {
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
