package overtcp

import (
	"fmt"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/internal/membership"
	"github.com/declock/declock/internal/secure"
)

// ErrAddress: an address that is not well-formed.
var ErrAddress = declock.ErrAddress

// Form is the form of addresses.
var Form = membership.Form("tcp")

// Options say how this process takes part in a cluster.
type Options struct {
	Etcd    []string // host:port, or the path of a Unix socket
	Cluster string   // its name

	Listen    string       // host:port that others reach this process at; empty: any port, of the loopback if Insecure (fabric/tcp.Options)
	Advertise string       // the address that they use, if it is another
	Note      string       // for tools: see fabric/tcp.Options
	TLS       secure.Files // mutual TLS between nodes
	Insecure  bool         // must be true without it

	EtcdTLS          secure.Files // for https; CA alone is right where etcd does not ask for certificates
	EtcdUser         string
	EtcdPasswordFile string

	// DeadAfter is how long the failure of a node takes to be detected; 0: the defaults of coordinator/etcd and fabric/tcp.
	DeadAfter time.Duration
	// SilentAfter is when a memory node with replicas is suspected that does not answer an operation of this compute node; 0: when its lease ends. See tcp.Options.
	SilentAfter time.Duration
	// Local is whether a memory node lends its memory to compute nodes of its machine, and a compute node takes it: see tcp.Options.
	Local bool
	// Report, if it is not nil, is called with errors in the background.
	Report func(error)
}

// Parse reads what is behind "tcp:" in an address.
func Parse(rest string) (o Options, err error) {
	err = o.Add(rest)
	return o, err
}

// Add adds what is behind "tcp:" in an address: of what it may say, options that are set already stay as they are.
func (o *Options) Add(rest string) error {
	m, query, err := membership.Parse("tcp", rest)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	o.Etcd, o.Cluster = m.Etcd, m.Cluster
	err = membership.ParseQuery("tcp:"+rest, query, map[string]any{
		"listen": &o.Listen, "advertise": &o.Advertise, "insecure": &o.Insecure, "dead-after": &o.DeadAfter, "silent-after": &o.SilentAfter, "local": &o.Local,
		"tls-ca": &o.TLS.CA, "tls-cert": &o.TLS.Cert, "tls-key": &o.TLS.Key,
		"etcd-ca": &o.EtcdTLS.CA, "etcd-cert": &o.EtcdTLS.Cert, "etcd-key": &o.EtcdTLS.Key, "etcd-user": &o.EtcdUser, "etcd-password-file": &o.EtcdPasswordFile,
	})
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
