package memcached

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/objstore"
)

// errDetached: the server has no cluster.
var errDetached = errors.New("memcached: not a member of a cluster")

// A pool has the workers of one membership of the cluster. The one given back last is the next to be taken: its memory is in the processor's caches.
type pool struct {
	srv     *Server
	cluster *declock.Cluster
	cfg     objstore.Config // of the store
	most    int             // workers

	mu     sync.Mutex
	back   sync.Cond // a worker has come back, or has been given up
	all    []*worker
	free   []*worker // of all
	open   int       // of all, and those that are being opened
	closed bool
	done   objstore.Stats // of workers that are gone
}

func newPool(s *Server, c *declock.Cluster, cfg objstore.Config) *pool {
	p := &pool{srv: s, cluster: c, cfg: cfg, most: s.o.Sessions}
	p.back.L = &p.mu
	return p
}

// take returns a worker for the caller alone, and waits until there is one.
func (p *pool) take() (*worker, error) {
	p.mu.Lock()
	for {
		if p.closed {
			p.mu.Unlock()
			return nil, errDetached
		}
		if n := len(p.free); n > 0 {
			w := p.free[n-1]
			p.free = p.free[:n-1]
			p.mu.Unlock()
			return w, nil
		}
		if p.open < p.most {
			break
		}
		p.back.Wait()
	}
	p.open++
	p.mu.Unlock()
	w, err := p.openWorker()
	p.mu.Lock()
	if err == nil {
		p.all = append(p.all, w)
		p.mu.Unlock()
		return w, nil
	}
	p.open--
	if p.open > 0 && (errors.Is(err, fabric.ErrTooManyClients) || errors.Is(err, cn.ErrTooManySessions)) {
		p.most = p.open // there is no room for more
		p.mu.Unlock()
		return p.take()
	}
	p.back.Signal()
	p.mu.Unlock()
	return nil, err
}

// give takes a worker back. One whose session is over is given up.
func (p *pool) give(w *worker) {
	if w.broken {
		w.close()
		p.mu.Lock()
		stats.Add(&p.done, w.items.Stats())
		p.all = slices.DeleteFunc(p.all, func(o *worker) bool { return o == w })
		p.open--
		p.back.Broadcast()
		p.mu.Unlock()
		return
	}
	p.mu.Lock()
	p.free = append(p.free, w)
	p.back.Signal()
	p.mu.Unlock()
}

// closeWait is how long close waits for workers that are in use.
const closeWait = 5 * time.Second

// close closes all workers, when they are not in use any more. Those that do not come back are left to the cluster's Close.
func (p *pool) close() {
	late := time.AfterFunc(closeWait, func() {
		p.mu.Lock()
		p.open = 0
		p.back.Broadcast()
		p.mu.Unlock()
	})
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.back.Broadcast()
	for {
		for _, w := range p.free {
			w.close()
			p.open--
		}
		p.free = nil
		if p.open <= 0 {
			return
		}
		p.back.Wait()
	}
}

// A worker is a session, with a client of the items' store and one of the store that says which items count.
type worker struct {
	*Server
	home    *pool
	session *declock.Session
	items   *objstore.Client
	control *objstore.Client
	broken  bool           // to be given up
	shown   objstore.Stats // of items, when the worker was not in use; guarded by home.mu

	counters counters
	req      request
	apply    func(*objstore.Object) objstore.Change // of req
	buf      []byte                                 // for values that are made of others
}

// openWorker opens the stores, if they are not open, and a session.
func (p *pool) openWorker() (w *worker, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	items, err := p.cluster.Store(ctx, p.srv.o.Store, p.cfg)
	if err != nil {
		return nil, fmt.Errorf("memcached: store %q: %w", p.srv.o.Store, err)
	}
	if most := items.MaxValue(); most < min(p.srv.o.MaxItem, objstore.MaxValueBytes) {
		return nil, fmt.Errorf("memcached: store %q takes values to %d B, fewer than items of %d B need: %w", p.srv.o.Store, most, p.srv.o.MaxItem, objstore.ErrGeometry)
	}
	control, err := p.cluster.Store(ctx, p.srv.o.Store+controlSuffix, objstore.Config{Objects: 1, MaxValue: 1 << 10, NoEvict: true})
	if err != nil {
		return nil, fmt.Errorf("memcached: store %q: %w", p.srv.o.Store+controlSuffix, err)
	}
	s, err := p.cluster.Session()
	if err != nil {
		return nil, err
	}
	w = &worker{Server: p.srv, home: p, session: s}
	w.apply = w.applyStore
	if w.items, err = clientOf(items, s); err == nil {
		w.control, err = clientOf(control, s)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	p.srv.counted.add(&w.counters)
	return w, nil
}

// storeStats returns the counters of the store that workers have shown last: those of workers in use belong to others.
func (p *pool) storeStats() objstore.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.free {
		w.shown = *w.items.Stats()
	}
	sum := p.done
	for _, w := range p.all {
		stats.Add(&sum, &w.shown)
	}
	return sum
}

// openTimeout bounds the opening of a worker.
const openTimeout = 10 * time.Second

// clientOf opens a client of a store. Memory that was lost before is none that the client had anything in.
func clientOf(st *declock.Store, s *declock.Session) (c *objstore.Client, err error) {
	for limit := time.Now().Add(openTimeout); ; time.Sleep(time.Millisecond) {
		c, err = st.Client(s)
		if !errors.Is(err, declock.ErrMemoryLost) || time.Now().After(limit) {
			return c, err
		}
	}
}

// close ends the worker. It is not in use.
func (w *worker) close() {
	w.Server.counted.remove(&w.counters)
	for _, c := range []*objstore.Client{w.items, w.control} {
		if c != nil {
			c.Close()
		}
	}
	_ = w.session.Close() // no locks are held between operations
}

// over reports whether an error says that the worker's session, or its store, is of no more use.
func over(err error) bool {
	return errors.Is(err, fabric.ErrClosed) || errors.Is(err, fabric.ErrFenced) || errors.Is(err, objstore.ErrDropped)
}
