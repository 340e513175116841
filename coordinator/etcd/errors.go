package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors of this implementation, besides those of package member.
var (
	// ErrOptions: options that make no sense.
	ErrOptions = errors.New("etcd: bad options")
	// ErrFormat: another version of this program has made the cluster.
	ErrFormat = errors.New("etcd: the cluster was made by another version")
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
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.Unavailable, status.Code(err) == codes.DeadlineExceeded:
		return fmt.Errorf("%w: etcd at %s: %v", member.ErrUnreachable, c.where(), err)
	}
	var e rpctypes.EtcdError
	if errors.As(err, &e) && (e.Code() == codes.Unavailable || e.Code() == codes.DeadlineExceeded) {
		return fmt.Errorf("%w: etcd at %s: %v", member.ErrUnreachable, c.where(), err)
	}
	return fmt.Errorf("etcd at %s: %w", c.where(), err)
}

func (c *Coordinator) where() string { return strings.Join(c.opt.Endpoints, ", ") }

// isRefusal tells whether etcd does not accept who we are. A certificate that
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

// errLeaseGone is what etcd says of a lease that is not there.
var errLeaseGone = rpctypes.ErrLeaseNotFound

func isLeaseGone(err error) bool { return errors.Is(err, errLeaseGone) }
