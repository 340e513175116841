package declock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/hier"
)

// What a lock protects in the memory of the process is ordered by it, also for the race detector, when the process is several compute nodes.
func TestTwoOpensShareAVariable(t *testing.T) {
	ctx := context.Background()
	for _, policy := range hier.PolicyNames() {
		cs := cluster(t, 2, declock.WithPolicy(policy))
		var n int
		var wg sync.WaitGroup
		for i := range 4 {
			c := cs[i%2]
			l, err := c.Locks(ctx, "l", 1)
			if err != nil {
				t.Fatal(err)
			}
			s := session(t, c)
			wg.Go(func() {
				for j := range 300 {
					acquire := s.Lock
					if j%3 == 0 {
						acquire = s.RLock
					}
					g, err := acquire(ctx, l.At(0))
					if err != nil {
						t.Error(err)
						return
					}
					if j%3 == 0 {
						_ = n
					} else {
						n++
					}
					if err := g.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n != 4*200 {
			t.Errorf("%s: %d", policy, n)
		}
	}
}
