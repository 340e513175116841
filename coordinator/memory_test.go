package coordinator_test

import (
	"testing"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric/member"
)

func TestMemory(t *testing.T) {
	coordtest.Run(t, func(t *testing.T) coordtest.Cluster {
		m := coordinator.NewMemory(coordtest.MaxCN)
		kill := func(n member.Member) { m.Kill(max(n.CN().Incarnation, n.MN().Incarnation)) }
		return coordtest.Cluster{Service: m, Kill: kill, SetAway: m.SetAway}
	})
}
