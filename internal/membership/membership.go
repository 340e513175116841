// Package membership finds a cluster whose members etcd knows: what the addresses of clusters of fabrics between machines
// (tcp, verbs) have in common.
package membership

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/secure"
)

// Form is the form of addresses of a fabric.
func Form(scheme string) string { return scheme + "://ETCD[,ETCD..]/NAME" }

// Options say which cluster it is, and how etcd is reached.
type Options struct {
	Etcd    []string // host:port, or the path of a Unix socket
	Cluster string   // its name

	TLS          secure.Files // for https; CA alone is right where etcd does not ask for certificates
	User         string
	PasswordFile string

	// DeadAfter is how long the failure of a node takes to be detected; 0: the default of coordinator/etcd.
	DeadAfter time.Duration
	// Report is called with what goes wrong in the background; it may be nil.
	Report func(error)
}

// Parse reads what is behind "scheme:" in an address, and returns what is behind the question mark. Its error says what is
// wrong with the address.
func Parse(scheme, rest string) (o Options, query string, err error) {
	address := scheme + ":" + rest
	plain, query, _ := strings.Cut(rest, "?")
	body, ok := strings.CutPrefix(plain, "//")
	if !ok {
		return o, "", fmt.Errorf("%q: want %s", address, Form(scheme))
	}
	if strings.HasPrefix(body, "/") {
		socket, name := path.Split(body)
		if socket = strings.TrimSuffix(socket, "/"); socket != "" {
			o.Etcd, o.Cluster = []string{socket}, name
		}
	} else if list, name, ok := strings.Cut(body, "/"); ok {
		o.Cluster = strings.TrimSuffix(name, "/")
		for _, e := range strings.Split(list, ",") {
			host, port, err := net.SplitHostPort(e)
			if err != nil || host == "" || port == "" {
				return o, "", fmt.Errorf("%q: %q is no HOST:PORT of etcd", address, e)
			}
			o.Etcd = append(o.Etcd, e)
		}
	}
	if len(o.Etcd) == 0 || o.Cluster == "" || strings.ContainsAny(o.Cluster, "/#") {
		return o, "", fmt.Errorf("%q: want %s", address, Form(scheme))
	}
	return o, query, nil
}

// ParseQuery reads what is behind the question mark of an address into the values that the names lead to: *string, *int, *bool or *time.Duration. Those that are
// set already stay as they are. Its error says what is wrong with the address.
func ParseQuery(address, query string, into map[string]any) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%q: %w", address, err)
	}
	for name, values := range q {
		value := values[len(values)-1]
		switch v := into[name].(type) {
		case *string:
			*v = cmp.Or(*v, value)
			continue
		case *int:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return fmt.Errorf("%q: %s=%s is no number", address, name, value)
			}
			*v = cmp.Or(*v, n)
			continue
		case *bool:
			if value == "true" || value == "false" {
				*v = *v || value == "true"
				continue
			}
		case *time.Duration:
			d, err := time.ParseDuration(value)
			if err != nil {
				return fmt.Errorf("%q: %s=%s is no duration, such as 5s", address, name, value)
			}
			*v = cmp.Or(*v, d)
			continue
		}
		return fmt.Errorf("%q: %s=%s means nothing", address, name, value)
	}
	return nil
}

// Address returns the address of the cluster.
func (o *Options) Address(scheme string) string {
	return scheme + "://" + strings.Join(o.Etcd, ",") + "/" + o.Cluster
}

// Coordinator returns the cluster's membership. ctx bounds what it takes.
func (o *Options) Coordinator(ctx context.Context) (*etcd.Coordinator, error) {
	eo := etcd.Options{Cluster: o.Cluster, MaxCN: fabric.MaxCN, TTL: o.DeadAfter.Round(time.Second), User: o.User, Report: o.Report}
	if o.DeadAfter > 0 && eo.TTL == 0 {
		eo.TTL = time.Second
	}
	scheme := "http://"
	if o.TLS.Given() {
		var err error
		if eo.TLS, err = o.TLS.Client(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	for _, e := range o.Etcd {
		if strings.HasPrefix(e, "/") {
			eo.Endpoints = append(eo.Endpoints, "unix://"+e)
		} else {
			eo.Endpoints = append(eo.Endpoints, scheme+e)
		}
	}
	if o.PasswordFile != "" {
		b, err := secure.Secret(o.PasswordFile)
		if err != nil {
			return nil, err
		}
		eo.Password = string(b)
	}
	return etcd.New(ctx, eo)
}

// Members returns the state of the membership, without becoming a member.
func (o *Options) Members(ctx context.Context) (*member.State, error) {
	c, err := o.Coordinator(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := c.Watch(ctx)
	if err != nil {
		return nil, err
	}
	s, _ := w.State()
	if s == nil {
		return nil, fmt.Errorf("%w: it says nothing of cluster %q", member.ErrUnreachable, o.Cluster)
	}
	return s, nil
}
