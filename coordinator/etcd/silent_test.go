//go:build !shmonly

package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric/member"
)

// etcd falls silent at some step of a join: it returns when its context ends, not when requests to etcd are given up. When etcd is back
// the node leaves, and is not taken for dead.
func TestJoinEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := start(t)
	well := connect(t, options(s.Endpoint(), "test"))
	a := joinCN(t, well)
	for name, shutIn := range map[string]func(p *proxy, ready func(member.Member)) func(member.Member){
		"from the start": func(p *proxy, ready func(member.Member)) func(member.Member) {
			p.gate.set(true)
			return ready
		},
		"when it publishes": func(p *proxy, ready func(member.Member)) func(member.Member) {
			return func(m member.Member) {
				ready(m)
				p.gate.set(true)
			}
		},
		"when it waits for others": func(p *proxy, _ func(member.Member)) func(member.Member) {
			return func(m member.Member) { // which never acknowledges
				go func() {
					for {
						s, changed := m.State()
						if s.Has(m.CN().Incarnation) {
							p.gate.set(true)
							return
						}
						<-changed
					}
				}()
			}
		},
	} {
		p := startProxy(t, s.Endpoint())
		o := options(p.endpoint(), "test")
		o.Timeout = 8 * time.Second
		c := connect(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := c.JoinCN(ctx, "b", shutIn(p, acknowledge))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		end, _ := ctx.Deadline()
		if late := time.Since(end); late > 3*time.Second { // far less than the Timeout
			t.Errorf("%s: it returns %v after the end of its context", name, late)
		}
		p.gate.set(false)
		st := await(t, a, "b gone", func(s *member.State) bool { return len(s.CNs) == 1 && len(s.Fencing) == 0 })
		if st.Lost != 0 {
			t.Errorf("%s: it is taken for dead", name)
		}
	}
}
