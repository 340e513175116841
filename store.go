package declock

import (
	"context"

	"github.com/declock/declock/objstore"
)

// A Store is an object store of the cluster that this compute node has open.
// Any goroutine may use it.
type Store struct {
	*objstore.Store
}

// Store opens the object store with a name, and makes it if there is none.
// cfg says how (the zero value is good for 65536 objects of up to 1 MiB on all
// memory nodes); its Name, Lock and, unless given, Nodes are filled in.
// Opening a store again in the same process gives the same Store.
func (c *Cluster) Store(ctx context.Context, name string, cfg objstore.Config) (*Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.stores[name]; st != nil {
		return st, nil
	}
	s, err := c.Session()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	cfg.Name, cfg.Lock = name, c.node.Layout().Lock()
	if len(cfg.Nodes) == 0 {
		for _, m := range c.node.Fabric().Memory() {
			cfg.Nodes = append(cfg.Nodes, m.ID)
		}
	}
	end, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	st, err := objstore.Open(s.Port(), cfg)
	if err = s.End(ctx, end, err); err != nil {
		return nil, err
	}
	c.stores[name] = &Store{Store: st}
	return c.stores[name], nil
}

// Client returns the store for the use of a session: an objstore.Cache. Like the session it
// is used by one goroutine at a time. Its waits for locks are bounded by
// Config.LockTimeoutNs, or by a context between Session.Begin and Session.End.
func (st *Store) Client(s *Session) (*objstore.Client, error) {
	return st.Store.Client(s.Locker())
}
