package memcached

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// errDetached: the server has no cluster.
var errDetached = errors.New("memcached: not a member of a cluster")

// A which is one of the two stores.
type which uint8

const (
	items   which = iota
	control       // says which items count
)

// A home is a cluster that the server is attached to, with the stores.
type home struct {
	o       *Options
	flushes *item.Flushes
	cluster *declock.Cluster
	cfg     declock.StoreConfig // of items
	stores  atomic.Pointer[[2]*declock.Store]
	inUse   sync.RWMutex // operations have it in common

	mu   sync.Mutex
	done objstore.Stats // of stores that were dropped
}

// openTimeout bounds the opening of the stores.
const openTimeout = 10 * time.Second

// open opens the stores; if they are open, those anew that have been dropped.
func (h *home) open() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	var opened [2]*declock.Store
	for i, cfg := range []declock.StoreConfig{items: h.cfg, control: item.ControlConfig} {
		name := h.o.Store
		if which(i) == control {
			name += item.ControlSuffix
		}
		var err error
		if opened[i], err = h.cluster.Store(ctx, name, cfg); err != nil {
			return fmt.Errorf("memcached: store %q: %w", name, err)
		}
	}
	if most := opened[items].MaxValue(); most < min(h.o.MaxItem, objstore.MaxValueBytes) {
		return fmt.Errorf("memcached: store %q takes values to %d B, fewer than items of %d B need: %w", h.o.Store, most, h.o.MaxItem, objstore.ErrGeometry)
	}
	if before := h.stores.Load(); before != nil && before[control] != opened[control] {
		h.flushes.Forget()
	}
	if before := h.stores.Swap(&opened); before != nil && before[items] != opened[items] {
		h.done.Add(new(before[items].Stats()))
	}
	return nil
}

// stats returns what operations on items have counted.
func (h *home) stats() objstore.Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := h.done
	sum.Add(new(h.stores.Load()[items].Stats()))
	return sum
}

// leaveWait is how long leave waits for operations.
const leaveWait = 5 * time.Second

// leave waits until no operation is under way any more, or for leaveWait: the rest is left to the cluster's Close.
func (h *home) leave() {
	for limit := time.Now().Add(leaveWait); !h.inUse.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return
		}
	}
	h.inUse.Unlock()
}

// A worker does operations, one at a time.
type worker struct {
	*Server
	req   request
	apply func(*objstore.Object) objstore.Change // of req
	item  entry                                  // of get
	buf   []byte                                 // for values that are made of others
}

func (s *Server) worker() *worker {
	w := &worker{Server: s}
	w.apply = w.applyStore
	return w
}

// do calls f with a client of a store, and again if memory was lost, of which operations are notified.
func (s *Server) do(of which, f func(k *objstore.Client) error) error {
	h := s.home.Load()
	if h == nil {
		return errDetached
	}
	h.inUse.RLock()
	defer h.inUse.RUnlock()
	use := func() error {
		return h.stores.Load()[of].Use(context.Background(), func(k *objstore.Client) error {
			if d := s.moved.Load(); d != 0 {
				k.SetNow(0)
				k.SetNow(uint32(int64(k.Now()) + d))
			}
			return f(k)
		})
	}
	err := use()
	if err == nil || errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	for limit := s.clock() + time.Second; errors.Is(err, declock.ErrMemoryLost) && s.clock() < limit; err = use() { // the store is being made anew
		time.Sleep(time.Millisecond)
	}
	if errors.Is(err, objstore.ErrDropped) {
		if again := h.open(); again != nil { // for the next operation
			s.o.Log.Warn("memcached: cannot open the store anew", "error", again.Error())
		}
	}
	return err
}

// useControl lends f a client of the store with the record of flushes.
func (s *Server) useControl(_ context.Context, f func(*objstore.Client) error) error {
	return s.do(control, func(k *objstore.Client) error {
		s.second.Store(k.Now())
		return f(k)
	})
}

// now returns the second of the store's clock.
func (w *worker) now() (now uint32, err error) {
	err = w.do(items, func(k *objstore.Client) error {
		now = k.Now()
		return nil
	})
	return now, err
}

// over reports whether an error says that the server's membership of the cluster, or its store, is of no more use.
func over(err error) bool {
	return errors.Is(err, fabric.ErrClosed) || errors.Is(err, fabric.ErrFenced) || errors.Is(err, objstore.ErrDropped)
}
