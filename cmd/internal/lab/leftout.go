//go:build noetcdserver

package lab

import (
	"context"

	"github.com/declock/declock/fabric/member"
)

// An etcdMembers is an etcd of some members, which is left out of this program.
type etcdMembers struct{ endpoints []string }

func startMembers(context.Context, string, int, bool) (etcdMembers, error) {
	return etcdMembers{}, member.ErrLeftOut
}

func (etcdMembers) stop() {}
