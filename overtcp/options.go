package overtcp

import (
	"fmt"
	"net/url"
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
	// Report, if it is not nil, is called with errors in the background.
	Report func(error)
}

// Parse reads what is behind "tcp:" in an address.
func Parse(rest string) (Options, error) {
	m, query, err := membership.Parse("tcp", rest)
	o := Options{Etcd: m.Etcd, Cluster: m.Cluster}
	if err != nil {
		return o, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	return o, o.parseQuery("tcp:"+rest, query)
}

func (o *Options) parseQuery(address, query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrAddress, address, err)
	}
	texts := map[string]*string{
		"listen": &o.Listen, "advertise": &o.Advertise, "tls-ca": &o.TLS.CA, "tls-cert": &o.TLS.Cert, "tls-key": &o.TLS.Key,
		"etcd-ca": &o.EtcdTLS.CA, "etcd-cert": &o.EtcdTLS.Cert, "etcd-key": &o.EtcdTLS.Key, "etcd-user": &o.EtcdUser, "etcd-password-file": &o.EtcdPasswordFile,
	}
	for name, values := range q {
		value := values[len(values)-1]
		switch v := texts[name]; {
		case v != nil:
			*v = value
		case name == "insecure" && (value == "true" || value == "false"):
			o.Insecure = value == "true"
		case name == "dead-after":
			if o.DeadAfter, err = time.ParseDuration(value); err != nil {
				return fmt.Errorf("%w: %q: dead-after=%s is no duration, such as 5s", ErrAddress, address, value)
			}
		default:
			return fmt.Errorf("%w: %q: %s=%s means nothing", ErrAddress, address, name, value)
		}
	}
	return nil
}

// membership returns the options of the membership.
func (o *Options) membership() *membership.Options {
	return &membership.Options{Etcd: o.Etcd, Cluster: o.Cluster, TLS: o.EtcdTLS, User: o.EtcdUser, PasswordFile: o.EtcdPasswordFile,
		DeadAfter: o.DeadAfter, Report: o.Report}
}

// Address returns the address of the cluster, without what else was said.
func (o *Options) Address() string { return o.membership().Address("tcp") }
