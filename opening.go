package declock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory/handle"
)

const (
	// openOutlasts is how long opening something waits for a memory node to be replaced: as long as an operation does.
	openOutlasts = 15 * time.Second
	// openPause is how often it tries.
	openPause = 5 * time.Millisecond
)

// outlast opens or makes something, and again if that has failed because the primary of a replicated number is just being replaced (docs/replicas.md). What open has left
// half made, it finds the next time: see memory.Creating.
func (c *Cluster) outlast(ctx context.Context, open func() error) error {
	for until := time.Now().Add(openOutlasts); ; {
		err := open()
		if err == nil || !c.replaced(err) || !time.Now().Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(cn.Ended(ctx), err)
		case <-c.Done():
			return err
		case <-time.After(openPause):
		}
	}
}

// replaced reports whether an error may be that of a replicated number that another memory node is about to serve.
func (c *Cluster) replaced(err error) bool {
	return slices.ContainsFunc(c.node.Memory(), func(m fabric.Memory) bool { return m.Term != 0 }) && handle.Replaced(err)
}
