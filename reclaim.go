package declock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/objstore"
)

const (
	viewEvery   = 50 * time.Millisecond // how often a reclaimer compares the view of live nodes, which takes no remote operation
	idleEvery   = time.Second           // between rounds while no node crashes
	busyEvery   = time.Millisecond      // between rounds while there is something to do
	failedEvery = 5 * time.Second       // after a round that failed
)

// A reclaimer gives back memory of the stores and trees that this compute node has open: memory leaked by crashed nodes (package
// memory/reclaim), and what has been dropped. It is one goroutine, from the first store or tree on until Close.
type reclaimer struct {
	c       *Cluster
	s       *cn.Session
	stop    context.CancelFunc
	done    sync.WaitGroup
	clients map[collection]collectionClient
}

// startReclaimer starts the reclaimer, unless it runs. It fails once Close has begun: nothing would stop it. c.opening is held.
func (c *Cluster) startReclaimer() error {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return ErrClosed
	}
	if c.reclaimer != nil {
		return nil
	}
	s, err := c.node.Helper()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &reclaimer{c: c, s: s, stop: stop, clients: map[collection]collectionClient{}}
	c.reclaimer = r
	r.done.Go(func() { r.run(ctx) })
	return nil
}

// reclaimHalfMade starts the reclaimer if a call has left a name half made, and could not free it.
func (c *Cluster) reclaimHalfMade() error {
	if !slices.ContainsFunc(c.node.Regions(), func(r *memory.Region) bool { return c.creating.Left(r.Memory()) }) {
		return nil
	}
	select {
	case c.opening <- struct{}{}:
		defer func() { <-c.opening }()
		return c.startReclaimer()
	default:
		return nil // the call that opens or drops a store or tree now has started it
	}
}

// stopReclaimer stops the reclaimer, if it runs. The end of ctx interrupts it.
func (c *Cluster) stopReclaimer(ctx context.Context) error {
	c.opening <- struct{}{}
	defer func() { <-c.opening }()
	r := c.reclaimer
	if c.reclaimer = nil; r == nil {
		return nil
	}
	r.stop()
	defer context.AfterFunc(ctx, r.s.Port().Interrupt)()
	r.done.Wait()
	for _, k := range r.clients {
		k.Close()
	}
	return r.s.Close()
}

// markCrashed marks in all stores and trees that the compute node which had this one's number before has crashed, if it had them open: others
// would wait for this one to reclaim what that had.
func (c *Cluster) markCrashed() error {
	s, err := c.node.Helper()
	if err != nil {
		return err
	}
	dropped, err := markCrashed(s, &c.creating)
	if err == nil && dropped {
		err = handle.FreeDropped(s.Port(), c.memory(), c.node.Fabric().View)
		if errors.Is(err, fabric.ErrNodeDown) {
			err = nil // the next drop does it
		}
	}
	return errors.Join(err, s.Close())
}

// markCrashed reports whether a dropped store or tree has memory still.
func markCrashed(s *cn.Session, creating *memory.Creating) (dropped bool, err error) {
	for _, r := range s.Node().Regions() {
		list, err := r.List(s.Port())
		if err == nil && r.Replicated() {
			err = r.FreeAbandoned(s.Port(), nil, creating) // a copy to a new backup would wait for it
		}
		if errors.Is(err, fabric.ErrNodeDown) {
			continue // nothing there can be opened now: its mark stays
		}
		if err != nil {
			return false, err
		}
		retired, err := r.Retired(s.Port()) // dropped, and not given back while a node has it open
		if err != nil {
			return false, err
		}
		dropped = dropped || len(retired) > 0
		list = append(list, retired...)
		for i := range list {
			if err := errors.Join(objstore.Stores.MarkCrashed(s.Port(), r, &list[i]), btree.Trees.MarkCrashed(s.Port(), r, &list[i])); err != nil {
				return false, err
			}
		}
	}
	return dropped, nil
}

func (r *reclaimer) run(ctx context.Context) {
	view := r.c.node.Fabric().View
	seen, next := view().Epoch, time.Now()
	for {
		wait := viewEvery
		if now := time.Now(); view().Epoch != seen || !now.Before(next) {
			seen = view().Epoch
			switch busy, again, err := r.round(view); {
			case errors.Is(err, fabric.ErrFenced) || errors.Is(err, fabric.ErrClosed):
				return
			case err != nil:
				next = now.Add(failedEvery)
			case busy:
				next, wait = now, busyEvery
			case again:
				next = now.Add(viewEvery)
			default:
				next = now.Add(idleEvery)
			}
		}
		r.stepEpochs(view)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// stepEpochs steps the epochs of stores in which sets wait for one. The next round returns what fails.
func (r *reclaimer) stepEpochs(view func() fabric.View) {
	for _, k := range r.clients {
		if k, ok := k.(*objstore.Client); ok && k.EpochsAwaited() {
			_ = k.StepEpochs(view)
		}
	}
}

// dropped reports whether an error says that a store or tree has been dropped.
func dropped(err error) bool {
	return errors.Is(err, objstore.ErrDropped) || errors.Is(err, btree.ErrDropped)
}

// round works on each store and tree once. busy: there is more to do at once; again: something is being let go, which takes a while.
func (r *reclaimer) round(view func() fabric.View) (busy, again bool, err error) {
	var errs []error
	for _, x := range r.c.collections() {
		more := false
		k, err := r.client(x)
		if err == nil {
			more, err = k.ReclaimStep(view)
		}
		if dropped(err) {
			more, again, err = false, true, r.letGo(x)
		}
		busy = busy || more
		if err != nil && !errors.Is(err, fabric.ErrNodeDown) && r.c.report != nil {
			r.c.report(err)
		}
		errs = append(errs, err)
	}
	errs = append(errs, r.freeHalfMade())
	return busy, again, errors.Join(errs...)
}

// client returns the reclaimer's client of a store or tree.
func (r *reclaimer) client(x collection) (collectionClient, error) {
	if k := r.clients[x]; k != nil {
		return k, nil
	}
	k, err := x.opened(r.s.Locker())
	if err != nil {
		return nil, err
	}
	r.clients[x] = k
	return k, nil
}

// letGo lets a dropped store or tree go, so that its memory comes back while this process runs, and forgets it then. The reclaimer may have
// no client of it: none is opened of what is known to have been dropped.
func (r *reclaimer) letGo(x collection) error {
	done, err := x.LetGo(r.s.Locker(), r.c.node.Fabric().View)
	if !done || err != nil {
		return err
	}
	if k := r.clients[x]; k != nil {
		k.Close()
		delete(r.clients, x)
	}
	r.c.changes.Add(1) // sessions of pools give up their clients
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	maps.DeleteFunc(r.c.open, func(_ collectionKey, y collection) bool { return y == x })
	r.c.dropped = slices.DeleteFunc(r.c.dropped, func(y collection) bool { return y == x })
	return nil
}

// freeHalfMade frees names that calls of this process have failed to make, and to free: while this process runs no other one can make them.
func (r *reclaimer) freeHalfMade() error {
	var errs []error
	for _, region := range r.c.node.Regions() {
		if mn := region.Memory(); r.c.creating.Left(mn) {
			err := lock.Renew(r.s.Locker(), mn)
			if err == nil {
				err = region.FreeLeft(r.s.Port(), &r.c.creating)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
