//go:build !shmonly

package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// explain translates an error of the client. ctx is the caller's, not that of the single request.
func (c *Coordinator) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("etcd: %w: %v", ctx.Err(), err)
	case isRefusal(err):
		return fmt.Errorf("%w: etcd at %s: %v; check user, password and certificates", member.ErrRefused, c.where(), err)
	case isSilence(err):
		if why := c.refused(ctx); why != nil {
			return fmt.Errorf("%w: TLS to etcd at %s: %w; check the certificates (etcd-ca, etcd-cert, etcd-key)", member.ErrRefused, c.where(), why)
		}
		return fmt.Errorf("%w: etcd at %s: %v", member.ErrUnreachable, c.where(), err)
	}
	return fmt.Errorf("etcd at %s: %w", c.where(), err)
}

// isSilence reports whether an error says that etcd did not answer in time, or could not: it may have lost its quorum. A member of etcd
// that gives up says so with a code that says nothing, and the text of its own context's error.
func isSilence(err error) bool {
	var e rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &e) {
		code = e.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.Unknown:
		text := err.Error()
		return errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, context.DeadlineExceeded.Error()) || strings.Contains(text, context.Canceled.Error())
	}
	return false
}

// probeTimeout bounds an attempt to find out why etcd does not answer. A server that refuses a certificate does so
// at once.
const probeTimeout = time.Second

// refused returns why TLS to etcd is refused, by us or by etcd; nil: it is not, or nothing answers at all. The client does not say: to it, that is
// a connection that fails, and is tried again and again.
func (c *Coordinator) refused(ctx context.Context) error {
	for _, e := range c.opt.Endpoints {
		scheme, at, _ := strings.Cut(e, "://")
		network := "tcp"
		switch scheme {
		case "unixs":
			network = "unix"
		case "https":
		default:
			continue
		}
		cfg := &tls.Config{}
		if c.opt.TLS != nil {
			cfg = c.opt.TLS.Clone()
		}
		cfg.NextProtos = []string{"h2"}
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		limit, _ := probe.Deadline()
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(probe, network, at)
		if err == nil {
			// With TLS 1.3 the server says what it thinks of our certificate after the handshake.
			_ = conn.SetDeadline(limit)
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		cancel()
		if isCertificate(err) {
			return err
		}
	}
	return nil
}

// isCertificate reports whether a connection failed because a side does not accept the other's certificate.
func isCertificate(err error) bool {
	var verify *tls.CertificateVerificationError
	var op *net.OpError // "remote error": what the peer says is wrong with us
	return errors.As(err, &verify) || errors.As(err, &op) && op.Op == "remote error"
}

func (c *Coordinator) where() string { return strings.Join(c.opt.Endpoints, ", ") }

// isRefusal reports whether etcd does not accept our user or certificate. A certificate that
// is refused looks like a broken connection, but for the text.
func isRefusal(err error) bool {
	for _, e := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrUserNotFound, rpctypes.ErrAuthNotEnabled, rpctypes.ErrInvalidAuthMgmt,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	}
	text := err.Error()
	return strings.Contains(text, "authentication handshake failed") || strings.Contains(text, "remote error: tls")
}

// isLeaseGone reports whether etcd does not have a lease.
func isLeaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
