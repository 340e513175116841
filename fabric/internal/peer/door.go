package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Callee is the target of a dial: where it is, and what its certificate must say.
type Callee struct {
	Contact
	role string // the name of a role
	is   func(*x509.Certificate) error
}

// MemoryNode returns the target for a memory node that has joined with a number.
func MemoryNode(id fabric.MemID, addr string) Callee {
	return Callee{ParseContact(addr), NameMN, func(c *x509.Certificate) error { return MayServe(c, id) }}
}

// ComputeNode returns the target for a compute node.
func ComputeNode(m member.CN) Callee { return Callee{ParseContact(m.Addr), NameCN, MayCompute} }

// Dial connects to a member.
func (c *Callee) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.HostPort)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return conn, nil
}

// TLS returns the configuration for TLS with the target.
func (c *Callee) TLS(own *tls.Config) *tls.Config {
	cfg := own.Clone()
	cfg.ServerName = c.role
	return cfg
}

// Accept checks the certificate of the target.
func (c *Callee) Accept(cert *x509.Certificate) error {
	return Denied(errors.Join(c.is(cert), c.Owns(cert)))
}

// Denied says that a certificate does not allow what was tried; nil if there is no reason.
func Denied(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrAuth, why)
}

// Broken distinguishes a certificate that was refused from a connection that broke before the sides knew each other.
func Broken(when string, err error) error {
	if CertificateRefused(err) {
		return Denied(err)
	}
	return fmt.Errorf("%w: %s: %w (or TLS on one side only)", ErrLost, when, err)
}

// Pause waits for some time, or until a context ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A Door lets connections in.
type Door struct {
	cfg      *Config
	what     string // is let in
	listener net.Listener
	crowd    Crowd // of connections that are not authenticated yet
	tasks    sync.WaitGroup

	mu       sync.Mutex
	reported time.Time // of the last report
	silent   int       // connections that were refused without a report since
}

// NewDoor listens where a configuration says. Connections are let in after Open.
func NewDoor(cfg *Config, what string) (*Door, error) {
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for %ss: %w", what, err)
	}
	return DoorAt(cfg, what, l), nil
}

// DoorAt returns a door at which something listens already.
func DoorAt(cfg *Config, what string, l net.Listener) *Door {
	return &Door{cfg: cfg, what: what, listener: l}
}

// Addr returns the address of the door.
func (d *Door) Addr() net.Addr { return d.listener.Addr() }

// Contact returns what the node publishes about itself. is checks that the node's certificate allows its role; nil leaves that to
// the other nodes, which check it too.
func (d *Door) Contact(is func(*x509.Certificate) error) (string, error) {
	own, err := NewContact(d.listener, d.cfg.Advertise, d.cfg.Note, d.cfg.TLS)
	if err == nil && d.cfg.TLS != nil && is != nil {
		var cert *x509.Certificate
		if cert, err = OwnCertificate(d.cfg.TLS); err == nil {
			err = is(cert)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return own.String(), nil
}

// Open calls serve for each connection, in a goroutine of its own. An error of serve is reported, and closes the connection. Until serve
// calls Known, the connection may be closed in favour of others: see Crowd.
func (d *Door) Open(serve func(net.Conn) error) {
	d.tasks.Go(func() {
		for {
			c, err := d.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptors left, perhaps
				continue
			}
			if !d.crowd.Enter(c) {
				_ = c.Close()
				continue
			}
			d.tasks.Go(func() {
				err := serve(c)
				d.crowd.Leave(c)
				if err == nil {
					return
				}
				_ = c.Close()
				if !d.crowd.Closed() {
					d.refused(fmt.Errorf("%s from %v: %w", d.what, c.RemoteAddr(), err))
				}
			})
		}
	})
}

// Known notes that a connection is authenticated. It returns an error if the connection was closed in favour of another.
func (d *Door) Known(c net.Conn) error {
	if !d.crowd.Leave(c) {
		return fmt.Errorf("%w: too many connections are not authenticated", ErrLost)
	}
	return nil
}

// reportEvery bounds how often strangers are reported: they decide how often they come.
const reportEvery = 200 * time.Millisecond

// refused reports a connection that was not let in.
func (d *Door) refused(err error) {
	d.mu.Lock()
	now := time.Now()
	if now.Sub(d.reported) < reportEvery {
		d.silent++
		d.mu.Unlock()
		return
	}
	if d.silent > 0 {
		err = fmt.Errorf("%w (and %d more that were not let in)", err, d.silent)
	}
	d.reported, d.silent = now, 0
	d.mu.Unlock()
	d.cfg.Report(err)
}

// Close stops listening, closes connections that are not authenticated, and waits until serve has returned for all.
func (d *Door) Close() {
	_ = d.listener.Close()
	d.crowd.Close()
	d.tasks.Wait()
}
