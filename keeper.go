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
	"github.com/declock/declock/objstore"
)

// How often a keeper looks who lives, which costs nothing remote; how often it looks after each store and tree when nobody has died, when
// there is something to do, and when that fails.
const (
	keeperLooks = 50 * time.Millisecond
	keeperIdle  = time.Second
	keeperBusy  = time.Millisecond
	keeperFails = 5 * time.Second
)

// A keeper looks after the memory of the stores and trees that a compute node has open: what others had of it
// when they died is found and used again (package memory/reclaim). It is one goroutine, from the first store or tree on until Close.
type keeper struct {
	c    *Cluster
	s    *cn.Session
	stop context.CancelFunc
	done sync.WaitGroup
	kept map[collection]collectionClient
}

// startKeeper starts the keeper, unless there is one. Once Close has begun it fails: nobody would end the keeper, and what is opened now nobody
// would give back.
func (c *Cluster) startKeeper() error {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return ErrClosed
	}
	if c.keeper != nil {
		return nil
	}
	s, err := c.node.Helper()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &keeper{c: c, s: s, stop: stop, kept: map[collection]collectionClient{}}
	c.keeper = k
	k.done.Go(func() { k.run(ctx) })
	return nil
}

// keepLeft has the keeper free what a call has left half made, and could not free.
func (c *Cluster) keepLeft() error {
	if !slices.ContainsFunc(c.node.Regions(), func(r *memory.Region) bool { return c.creating.Left(r.Memory()) }) {
		return nil
	}
	select {
	case c.opening <- struct{}{}:
	default:
		return nil // whoever opens or drops a store or tree now has started it
	}
	defer func() { <-c.opening }()
	return c.startKeeper()
}

// endKeeper ends the keeper, if there is one.
func (c *Cluster) endKeeper() error {
	c.opening <- struct{}{}
	defer func() { <-c.opening }()
	k := c.keeper
	if c.keeper = nil; k == nil {
		return nil
	}
	return k.close()
}

// markCrashed notes in all stores and trees that a compute node with this one's number has crashed, if it had them open: else others would take this
// one for it, and wait until it looks after them.
func (c *Cluster) markCrashed() error {
	s, err := c.node.Helper()
	if err != nil {
		return err
	}
	dropped, err := markCrashed(s)
	if err == nil && dropped {
		err = objstore.FreeDropped(s.Port(), c.memory(), c.node.Fabric().View)
		if errors.Is(err, fabric.ErrNodeDown) {
			err = nil // the next drop does it
		}
	}
	return errors.Join(err, s.Close())
}

// markCrashed reports whether there is something that has been dropped.
func markCrashed(s *cn.Session) (dropped bool, err error) {
	for _, r := range s.Node().Regions() {
		list, err := r.List(s.Port())
		if errors.Is(err, fabric.ErrNodeDown) {
			continue // what is there cannot be opened now; it will be found open
		}
		if err != nil {
			return false, err
		}
		retired, err := r.Retired(s.Port()) // what has been dropped is given back when nobody has it open
		if err != nil {
			return false, err
		}
		dropped = dropped || len(retired) > 0
		list = append(list, retired...)
		for i := range list {
			if err := errors.Join(objstore.MarkCrashed(s.Port(), r, &list[i]), btree.MarkCrashed(s.Port(), r, &list[i])); err != nil {
				return false, err
			}
		}
	}
	return dropped, nil
}

// close ends the keeper.
func (k *keeper) close() error {
	k.stop()
	k.done.Wait()
	for _, t := range k.kept {
		t.Close()
	}
	return k.s.Close()
}

func (k *keeper) run(ctx context.Context) {
	view := k.c.node.Fabric().View
	seen, next := view().Epoch, time.Now()
	for {
		wait := keeperLooks
		if now := time.Now(); view().Epoch != seen || !now.Before(next) {
			seen = view().Epoch
			switch busy, again, err := k.tend(view); {
			case errors.Is(err, fabric.ErrFenced) || errors.Is(err, fabric.ErrClosed):
				return
			case err != nil:
				next = now.Add(keeperFails)
			case busy:
				next, wait = now, keeperBusy
			case again:
				next = now.Add(keeperLooks)
			default:
				next = now.Add(keeperIdle)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// dropped reports whether somebody has dropped a store or tree.
func dropped(err error) bool {
	return errors.Is(err, objstore.ErrDropped) || errors.Is(err, btree.ErrDropped)
}

// letGo lets a dropped store or tree go, so that its memory comes back while this process lives, and forgets it then. The keeper may have no
// client of it: none is opened of what is known to have been dropped.
func (k *keeper) letGo(x collection) error {
	done, err := x.LetGo(k.s.Locker(), k.c.node.Fabric().View)
	if !done || err != nil {
		return err
	}
	if t := k.kept[x]; t != nil {
		t.Close()
		delete(k.kept, x)
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	maps.DeleteFunc(k.c.open, func(_ collectionKey, y collection) bool { return y == x })
	k.c.dropped = slices.DeleteFunc(k.c.dropped, func(y collection) bool { return y == x })
	return nil
}

// tend looks after each store and tree once; again: soon again, for something is being let go.
func (k *keeper) tend(view func() fabric.View) (busy, again bool, err error) {
	var errs []error
	for _, x := range k.c.collections() {
		more := false
		t, err := k.client(x)
		if err == nil {
			more, err = t.Tend(view)
		}
		if dropped(err) {
			more, again, err = false, true, k.letGo(x)
		}
		busy = busy || more
		if err != nil && !errors.Is(err, fabric.ErrNodeDown) && k.c.report != nil {
			k.c.report(err)
		}
		errs = append(errs, err)
	}
	errs = append(errs, k.freeLeft())
	return busy, again, errors.Join(errs...)
}

// freeLeft frees the names that calls of this process have failed to make, and to free: others could not make them as long as this process lives.
func (k *keeper) freeLeft() error {
	var errs []error
	for _, r := range k.c.node.Regions() {
		mn := r.Memory()
		if !k.c.creating.Left(mn) {
			continue
		}
		err := lock.Renew(k.s.Locker(), mn)
		if err == nil {
			err = r.FreeLeft(k.s.Port(), &k.c.creating)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// client returns the keeper's client of a store or tree.
func (k *keeper) client(x collection) (collectionClient, error) {
	if t := k.kept[x]; t != nil {
		return t, nil
	}
	t, err := x.opened(k.s.Locker())
	if err != nil {
		return nil, err
	}
	k.kept[x] = t
	return t, nil
}
