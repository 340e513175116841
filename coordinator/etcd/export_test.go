package etcd

import (
	"context"

	"github.com/declock/declock/fabric/member"
)

// Silence stops the keepalives of a member's lease, as if they did not get through.
func Silence(m member.Member) { m.(*membership).stop() }

// Expire ends a member's lease in etcd, as if its time had run out.
func Expire(c *Coordinator, m member.Member) {
	Silence(m)
	life := max(m.CN().Life, m.MN().Life)
	if err := c.revoke(context.Background(), life); err != nil {
		panic(err)
	}
}
