package oververbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/verbs"
	"github.com/declock/declock/internal/membership"
	"github.com/declock/declock/internal/secure"
)

// ErrAddress: an address that is not well-formed.
var ErrAddress = declock.ErrAddress

// Form is the form of addresses.
var Form = membership.Form("verbs")

func init() {
	declock.Register("verbs", func(ctx context.Context, rest string) (fabric.Node, error) {
		o, err := Parse(rest)
		if err != nil {
			return nil, err
		}
		return o.Join(ctx)
	})
}

// Options say how this process takes part in a cluster.
type Options struct {
	Etcd    []string // host:port, or the path of a Unix socket
	Cluster string   // its name

	Listen     string // host:port that others reach this process at
	Advertise  string // the address that they use, if it is another
	SecretFile string // of what all nodes share
	TLS        secure.Files
	Insecure   bool // must be true without both

	Device     string // of RDMA
	Port       int
	GID        string
	QueuePairs int // to each memory node

	EtcdTLS          secure.Files // for https; CA alone is right where etcd does not ask for certificates
	EtcdUser         string
	EtcdPasswordFile string

	// DeadAfter is how long the failure of a node takes to be detected; 0: the defaults of coordinator/etcd and fabric/verbs.
	DeadAfter time.Duration
	// Report, if it is not nil, is called with errors in the background.
	Report func(error)
}

// Parse reads what is behind "verbs:" in an address.
func Parse(rest string) (o Options, err error) {
	err = o.Add(rest)
	return o, err
}

// Add adds what is behind "verbs:" in an address: of what it may say, options that are set already stay as they are.
func (o *Options) Add(rest string) error {
	m, query, err := membership.Parse("verbs", rest)
	if err == nil {
		o.Etcd, o.Cluster = m.Etcd, m.Cluster
		err = membership.ParseQuery("verbs:"+rest, query, map[string]any{
			"listen": &o.Listen, "advertise": &o.Advertise, "insecure": &o.Insecure, "dead-after": &o.DeadAfter,
			"tls-ca": &o.TLS.CA, "tls-cert": &o.TLS.Cert, "tls-key": &o.TLS.Key, "secret-file": &o.SecretFile,
			"etcd-ca": &o.EtcdTLS.CA, "etcd-cert": &o.EtcdTLS.Cert, "etcd-key": &o.EtcdTLS.Key, "etcd-user": &o.EtcdUser, "etcd-password-file": &o.EtcdPasswordFile,
			"device": &o.Device, "port": &o.Port, "gid": &o.GID, "queue-pairs": &o.QueuePairs,
		})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	return nil
}

// Membership returns the options of the membership.
func (o *Options) Membership() *membership.Options {
	return &membership.Options{Etcd: o.Etcd, Cluster: o.Cluster, TLS: o.EtcdTLS, User: o.EtcdUser, PasswordFile: o.EtcdPasswordFile,
		DeadAfter: o.DeadAfter, Report: o.Report}
}

// Open returns the options of fabric/verbs for a node, and its coordinator, which the node closes when it is closed; if there is no node, the caller does. ctx
// bounds the connecting.
func (o *Options) Open(ctx context.Context) (verbs.Options, *etcd.Coordinator, error) {
	vo := verbs.Options{
		Listen: o.Listen, Advertise: o.Advertise, Insecure: o.Insecure, Device: o.Device, Port: o.Port, GID: o.GID,
		QueuePairs: o.QueuePairs, DeadAfter: o.DeadAfter, Heartbeat: o.DeadAfter / 5, Report: o.Report,
	}
	var err error
	if o.TLS.Given() {
		if vo.TLS, err = o.TLS.Config(); err != nil {
			return vo, nil, err
		}
	}
	if o.SecretFile == "" && !o.TLS.Given() && !o.Insecure {
		return vo, nil, fmt.Errorf("%w: no Secret and no TLS: give secret-file, or tls-ca, tls-cert and tls-key (as flags --secret-file FILE .., in an address ?secret-file=FILE&..), "+
			"or insecure (--insecure, ?insecure=true), which lets in any program that can reach this node", verbs.ErrOptions)
	}
	if o.SecretFile != "" {
		if vo.Secret, err = secure.Secret(o.SecretFile); err != nil {
			return vo, nil, err
		}
	}
	e, err := o.Membership().Coordinator(ctx)
	if err == nil {
		vo.Members, vo.Left = e, e.Close
	}
	return vo, e, err
}

// Join makes the process a compute node.
func (o *Options) Join(ctx context.Context) (fabric.Node, error) {
	vo, e, err := o.Open(ctx)
	if err != nil {
		return nil, err
	}
	n, err := verbs.Join(ctx, vo)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return n, nil
}
