package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/metrics"
)

const (
	// lookEvery is how often a compute node looks whether its memory nodes answer.
	lookEvery = 2 * time.Second
	// lookFor is how long they may take to answer.
	lookFor = 5 * time.Second
)

// watch looks after the compute node until ctx ends: it logs which nodes come and go, keeps readiness, and ends with errAnew
// when the cluster has declared this node dead.
func (d *CN) watch(ctx context.Context) error {
	probe := metrics.NewProbe(d.cluster)
	defer probe.Wait()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var gone <-chan struct{} // closed when this node has been declared dead, if the fabric notices: no need to wait for a look
	f, notices := d.cluster.Node().Fabric().(interface{ Fenced() <-chan struct{} })
	if notices {
		gone = f.Fenced()
	}
	looks := make(chan looked, 1)
	var looking sync.WaitGroup
	defer looking.Wait()
	var before fabric.View
	memory := map[fabric.MemID]string{}
	for {
		before = d.logView(before)
		looking.Go(func() {
			list, fenced, err := probe.Look(lookFor)
			looks <- looked{list, fenced, err}
		})
		var seen looked
		select {
		case seen = <-looks:
		case <-gone:
			seen.fenced = true
		}
		if seen.fenced {
			d.fenced++
			if e, ok := f.(interface{ Err() error }); ok && e.Err() != nil {
				return fmt.Errorf("%w: %w", errAnew, e.Err())
			}
			return fmt.Errorf("%w: %v: %w", errAnew, d.cluster.Node().Fabric().ID(), fabric.ErrFenced)
		}
		for _, m := range seen.memory {
			if errors.Is(m.Err, cn.ErrMemoryLost) {
				return fmt.Errorf("%w: %w", errAnew, m.Err) // it cannot go on with the memory as it is now
			}
		}
		d.readiness.set(errors.Join(seen.err, d.logMemory(seen.memory, memory)))
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
		case <-t.C:
		}
	}
}

// looked is what a look at the memory nodes has found.
type looked struct {
	memory []metrics.MemoryState
	fenced bool
	err    error // why memory could not be looked at
}

// logView logs changes of the set of live nodes, and returns the new view.
func (d *CN) logView(before fabric.View) fabric.View {
	now := d.cluster.Node().Fabric().View()
	if now.Live == before.Live && now.Lost == before.Lost {
		return now
	}
	if before.Epoch != 0 {
		was, is := nodeNames(before), nodeNames(now)
		gone := slices.DeleteFunc(slices.Clone(was), func(n string) bool { return slices.Contains(is, n) })
		came := slices.DeleteFunc(slices.Clone(is), func(n string) bool { return slices.Contains(was, n) })
		d.cfg.Log.Info("compute nodes changed", "joined", strings.Join(came, ","), "gone", strings.Join(gone, ","),
			"died", now.Lost-before.Lost, "live", now.Live.Len(), "view", now.Epoch)
	}
	return now
}

// logMemory logs changes of what memory nodes say, and returns why they cannot all be used.
func (d *CN) logMemory(list []metrics.MemoryState, before map[fabric.MemID]string) (why error) {
	for _, m := range list {
		text := ""
		if m.Err != nil {
			text = m.Err.Error()
			why = errors.Join(why, fmt.Errorf("memory node %v: %w", m.ID, m.Err))
		}
		if was, known := before[m.ID]; text != was || !known {
			if text != "" {
				d.cfg.Log.Warn("memory node cannot be used", "memory", m.ID.String(), "error", text)
			} else if known {
				d.cfg.Log.Info("memory node can be used again", "memory", m.ID.String(), "epoch", m.Epoch)
			}
			before[m.ID] = text
		}
	}
	return why
}
