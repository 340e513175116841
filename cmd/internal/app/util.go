package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
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

// askAll asks the compute nodes on this machine of a cluster for their statuses. One that does not answer has none.
func askAll(ctx context.Context, runDir string) map[string]*control.Status {
	here := map[string]*control.Status{}
	for _, socket := range control.Sockets(runDir) {
		if s, err := askStatus(ctx, socket); err == nil {
			here[s.Node] = s
		}
	}
	return here
}

// maxStatus bounds a status, in bytes.
const maxStatus = 1 << 20

// fetchStatus asks the daemon of a compute node on another host for its status, where it says that it has it.
// An answer of another daemon is an error: one address may mean another process on each host.
func fetchStatus(ctx context.Context, hostPort string, of scheme.Cluster, node string) (*control.Status, error) {
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
	if s.Node != node || clusterName(s.Address) != clusterName(of.Address()) {
		return nil, fmt.Errorf("%s: the status of %q of %q, and not of %s of %s", hostPort, s.Node, s.Address, node, of.Address())
	}
	return s, nil
}

// clusterName returns the last part of a cluster's address: what comes before it may differ from host to host.
func clusterName(address string) string {
	address, _, _ = strings.Cut(address, "?")
	return path.Base(address)
}

// policyOf returns the lock policies of a running cluster's compute nodes here: one, as it should be, or "mixed".
func policyOf(ctx context.Context, at scheme.Cluster) string {
	policy := "unknown"
	for _, s := range askAll(ctx, at.RunDir()) {
		switch {
		case policy == "unknown":
			policy = s.Policy
		case policy != s.Policy:
			return "mixed"
		}
	}
	return policy
}
