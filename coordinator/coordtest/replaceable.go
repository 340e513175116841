package coordtest

import (
	"context"
	"sync/atomic"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A Replaceable is a coordinator in this process that can lose all that it knows, and can keep memory nodes from joining.
type Replaceable struct {
	maxCN fabric.CNID
	now   atomic.Pointer[coordinator.Memory]
	gate  atomic.Pointer[chan struct{}] // joins of memory nodes wait for it
}

// NewReplaceable returns a coordinator for up to maxCN compute nodes.
func NewReplaceable(maxCN fabric.CNID) *Replaceable {
	r := &Replaceable{maxCN: maxCN}
	r.Replace()
	return r
}

// Now returns the coordinator that nodes join at present.
func (r *Replaceable) Now() *coordinator.Memory { return r.now.Load() }

// Replace puts a coordinator that knows nothing in the place of the present one.
func (r *Replaceable) Replace() { r.now.Store(coordinator.NewMemory(r.maxCN)) }

// Hold lets no memory node join until the function that it returns is called.
func (r *Replaceable) Hold() (release func()) {
	gate := make(chan struct{})
	r.gate.Store(&gate)
	return func() {
		r.gate.Store(nil)
		close(gate)
	}
}

// JoinCN is member.Service.JoinCN.
func (r *Replaceable) JoinCN(ctx context.Context, addr string, ready func(member.Member)) (member.Member, error) {
	return r.Now().JoinCN(ctx, addr, ready)
}

// JoinMN is member.Service.JoinMN.
func (r *Replaceable) JoinMN(ctx context.Context, mn member.MN, ready func(member.Member)) (member.Member, error) {
	if gate := r.gate.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r.Now().JoinMN(ctx, mn, ready)
}

// ForgetMN is member.Service.ForgetMN.
func (r *Replaceable) ForgetMN(ctx context.Context, id fabric.MemID) error {
	return r.Now().ForgetMN(ctx, id)
}

// Change is member.Service.Change.
func (r *Replaceable) Change(ctx context.Context, c member.Change) error {
	return r.Now().Change(ctx, c)
}

// Watch is member.Service.Watch.
func (r *Replaceable) Watch(ctx context.Context) (member.Watcher, error) { return r.Now().Watch(ctx) }
