package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// maxStatus bounds a status, in bytes.
const maxStatus = 1 << 20

// fetchStatus asks a daemon of another host for its status, where it says that it has it.
func fetchStatus(ctx context.Context, hostPort string) (*control.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostPort+"/status", nil)
	if err != nil {
		return nil, err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s says %s", hostPort, r.Status)
	}
	s := new(control.Status)
	if err := json.NewDecoder(io.LimitReader(r.Body, maxStatus)).Decode(s); err != nil {
		return nil, fmt.Errorf("%s: no status: %w", hostPort, err)
	}
	return s, nil
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
