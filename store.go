package declock

import (
	"context"
	"sync"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// A Store is an object store of the cluster that this compute node has open: a cache with memcached's operations.
// Any number of goroutines may use it: each operation takes a session from a pool (WithSessions), and gives it back before it returns. The end of ctx ends
// the wait for a session, and what the operation itself waits for, as [Session.Do] says. Results are the caller's own memory.
//
// ErrMemoryLost: memory of the store has been lost. One operation returns it after a loss, and those that were under way.
type Store struct {
	*objstore.Store
	shared  shared[*objstore.Client]
	counted struct { // by clients of the pool
		sync.Mutex
		sum objstore.Stats
	}
}

// Store opens the object store with a name, and makes it if there is none.
// A store that this Cluster has open already is returned as it is.
func (c *Cluster) Store(ctx context.Context, name string, how StoreConfig) (*Store, error) {
	cfg, err := how.of(c, name)
	if err != nil {
		return nil, err
	}
	return openCollection(ctx, c, collectionKey{memory.KindStore, name}, func(port fabric.Port, all []fabric.MemID) (_ *Store, err error) {
		if cfg.Nodes, err = nodesOf(cfg.Nodes, all, port, name, objstore.Stores.Find); err != nil {
			return nil, err
		}
		opened, err := objstore.Open(port, cfg)
		if err != nil {
			return nil, err
		}
		st := &Store{Store: opened}
		st.shared.share(c, opened.Losses, st.Client)
		st.shared.trim = (*objstore.Client).Trim
		st.shared.count = st.count
		return st, nil
	})
}

// DropStore removes the object store with a name, with all that is in it. The name is free at once. In this process the store is objstore.ErrDropped from then on.
// Other processes that have it open notice within about a second; until then they work on the dropped store. Each process lets go of the memory
// some seconds later, when no operation on the store is under way there, and the last one gives it back. The next drop, or the next Open, passes over processes that have crashed.
func (c *Cluster) DropStore(ctx context.Context, name string) error {
	return c.dropCollection(ctx, collectionKey{memory.KindStore, name}, objstore.Stores.Drop)
}

// Use calls f with a client of the store that no other goroutine uses meanwhile: for several operations in a row, and for results that are not copied, which are good until
// the client's next operation, or until f returns. f must not wait for others that use the cluster, nor use it by other ways.
func (st *Store) Use(ctx context.Context, f func(c *objstore.Client) error) error {
	return st.shared.do(ctx, f)
}

// Stats returns what the operations of this Store have counted, those with clients of sessions not among them. What is under way is counted later.
func (st *Store) Stats() objstore.Stats {
	p := &st.shared.c.work
	p.mu.Lock()
	for _, w := range p.free {
		if k, ok := w.clients[st.shared.number]; ok {
			k.count()
		}
	}
	p.mu.Unlock()
	st.counted.Lock()
	defer st.counted.Unlock()
	return st.counted.sum
}

// count adds the counters of a client, which is not in use and counts anew, to those of the store.
func (st *Store) count(c *objstore.Client) {
	st.counted.Lock()
	defer st.counted.Unlock()
	st.counted.sum.Add(c.Stats())
	*c.Stats() = objstore.Stats{}
}

// Client returns the store for the use of a session: an objstore.Cache, of which results need no copy. Like the session it
// is used by one goroutine at a time. Its waits for locks are bounded by
// StoreConfig.LockTimeout, or by a context with Session.Do. ErrMemoryLost: memory of the store
// has been lost since the last client was opened, or since the store was; the next call succeeds.
func (st *Store) Client(s *Session) (*objstore.Client, error) {
	return clientOf(s, &st.shared.notified, st.Losses, "objects of the store", st.Store.Client)
}

func (st *Store) opened(l lock.Locker) (collectionClient, error) { return st.Store.Client(l) }
