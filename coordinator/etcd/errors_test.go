//go:build !shmonly

package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What etcd says when it has lost its quorum, or does not answer, means that it cannot be reached: a client that waits for it goes on waiting. What it
// says otherwise does not.
func TestSilenceIsUnreachable(t *testing.T) {
	c, err := New(t.Context(), Options{Endpoints: []string{"http://127.0.0.1:1"}, Cluster: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, x := range []struct {
		err         error
		unreachable bool
	}{
		{context.DeadlineExceeded, true},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), true},
		{status.Error(codes.Unknown, "context deadline exceeded"), true}, // of a member of etcd without a quorum
		{status.Error(codes.Unknown, "context canceled"), true},
		{status.Error(codes.Unavailable, "x"), true},
		{status.Error(codes.DeadlineExceeded, "x"), true},
		{rpctypes.ErrTimeout, true},
		{rpctypes.ErrNoLeader, true},
		{rpctypes.ErrTimeoutDueToLeaderFail, true},
		{rpctypes.ErrLeaderChanged, true},
		{status.Error(codes.Unknown, "x"), false},
		{rpctypes.ErrNoSpace, false},
		{rpctypes.ErrCompacted, false},
	} {
		if err := c.explain(context.Background(), x.err); errors.Is(err, member.ErrUnreachable) != x.unreachable {
			t.Errorf("%v: unreachable %v, is %v", x.err, x.unreachable, err)
		}
	}
}
