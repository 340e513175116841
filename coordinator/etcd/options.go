package etcd

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/declock/declock/fabric"
)

// Defaults of Options.
const (
	DefaultMaxCN   = 16
	DefaultTTL     = 5 * time.Second
	DefaultTimeout = 5 * time.Second
)

// Errors of this implementation, besides those of package member.
var (
	// ErrOptions: options that make no sense.
	ErrOptions = errors.New("etcd: bad options")
	// ErrFormat: another version of this program has made the cluster.
	ErrFormat = errors.New("etcd: the cluster was made by another version")
)

// Options of a Coordinator.
type Options struct {
	// Endpoints of etcd: http://host:port, https://host:port or unix:///path.
	Endpoints []string
	// Cluster is the name of the cluster: 1 to 64 letters, digits, '-', '_' and '.'.
	Cluster string
	// MaxCN is the largest number of a compute node. All nodes of a cluster should have the same. Default 16.
	MaxCN fabric.CNID
	// TTL is after what time a node is declared dead that does not reach etcd while others
	// do: how long the failure of a node takes to be detected. Whole seconds; etcd raises it to one and a
	// half times its election timeout (2 s by default). Default 5 s.
	TTL time.Duration
	// Timeout bounds each request. Default 5 s.
	Timeout time.Duration
	// TLS is what https endpoints are reached with.
	TLS *tls.Config
	// User and Password, if etcd has authentication enabled. The user needs read and write permission for the
	// keys with prefix /declock/CLUSTER/.
	User, Password string
	// Report is called with errors in the background. nil: none.
	Report func(error)
}

func (o Options) withDefaults() (Options, error) {
	o.MaxCN, o.TTL, o.Timeout = cmp.Or(o.MaxCN, DefaultMaxCN), cmp.Or(o.TTL, DefaultTTL), cmp.Or(o.Timeout, DefaultTimeout)
	if o.Report == nil {
		o.Report = func(error) {}
	}
	switch {
	case len(o.Endpoints) == 0:
		return o, fmt.Errorf("%w: no endpoints", ErrOptions)
	case o.TTL < time.Second || o.TTL%time.Second != 0:
		return o, fmt.Errorf("%w: TTL is %v, must be whole seconds", ErrOptions, o.TTL)
	case o.Timeout < 0:
		return o, fmt.Errorf("%w: timeout is %v", ErrOptions, o.Timeout)
	case (o.User == "") != (o.Password == ""):
		return o, fmt.Errorf("%w: user and password go together", ErrOptions)
	case !validName(o.Cluster):
		return o, fmt.Errorf("%w: cluster name %q: want 1 to 64 letters, digits, '-', '_' and '.', not starting with '.'", ErrOptions, o.Cluster)
	}
	for _, e := range o.Endpoints {
		scheme, rest, ok := strings.Cut(e, "://")
		if !ok || rest == "" || scheme != "http" && scheme != "https" && scheme != "unix" && scheme != "unixs" {
			return o, fmt.Errorf("%w: endpoint %q: want http://host:port, https://host:port or unix:///path", ErrOptions, e)
		}
	}
	return o, nil
}

func validName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return name != "" && len(name) <= 64 && name[0] != '.' && strings.Trim(name, allowed) == ""
}
