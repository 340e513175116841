//go:build !shmonly

package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/declock/declock/fabric/member"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Bounds of how often anything is tried again.
const (
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second
)

// A Coordinator is a cluster in etcd. Any goroutine may use it.
type Coordinator struct {
	opt    Options
	prefix string
	client *clientv3.Client

	mu      sync.Mutex
	leaving int // nodes whose leaving goes on in the background
	closed  bool
}

// New returns the coordinator of a cluster. etcd need not be reachable yet, unless
// there is a password: then New waits for etcd, until ctx ends.
//
// Errors: ErrOptions; with a password member.ErrUnreachable and member.ErrRefused.
func New(ctx context.Context, o Options) (*Coordinator, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Coordinator{opt: o, prefix: root + o.Cluster + "/"}
	// Connections are made anew soon after etcd has come back: leases run then.
	params := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: minRetry, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRetry / 2},
		MinConnectTimeout: min(o.Timeout, DefaultTimeout), // an attempt that etcd does not answer, while it starts, is not the last
	}
	lasting, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	c.client, err = clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, TLS: o.TLS, Username: o.User, Password: o.Password, Context: lasting,
		DialTimeout: o.Timeout, DialKeepAliveTime: o.TTL, DialKeepAliveTimeout: o.TTL / patience,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(params)},
		Logger:      zap.NewNop(),
	})
	switch ended := !stop(); {
	case err != nil:
		return nil, c.explain(ctx, err)
	case ended:
		return nil, errors.Join(fmt.Errorf("etcd: %w", ctx.Err()), c.client.Close())
	}
	return c, nil
}

// Close ends the connection to etcd. Members of this Coordinator should have left. It waits for nothing: a node whose leaving still goes on,
// because its context has ended, is let leave first.
func (c *Coordinator) Close() error {
	c.mu.Lock()
	c.closed = true
	busy := c.leaving > 0
	c.mu.Unlock()
	if busy {
		return nil
	}
	return c.client.Close()
}

// grace is how much longer than its context a call lasts that cleans up.
const grace = 10 * time.Millisecond

// cleanUp calls f, which leaves no traces in etcd, and returns what it returns, or when ctx has ended and grace is over: then f goes on in the
// background, and what it returns is reported.
func (c *Coordinator) cleanUp(ctx context.Context, f func(context.Context) error) error {
	c.mu.Lock()
	c.leaving++
	c.mu.Unlock()
	done := make(chan error)
	late := make(chan struct{})
	go func() {
		err := f(context.WithoutCancel(ctx))
		c.mu.Lock()
		c.leaving--
		last := c.closed && c.leaving == 0
		c.mu.Unlock()
		if last {
			_ = c.client.Close()
		}
		select {
		case done <- err:
		case <-late:
			if err != nil {
				c.opt.Report(err)
			}
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(grace):
		close(late)
		return fmt.Errorf("etcd: leaving %q: %w", c.opt.Cluster, ctx.Err())
	}
}

// Watch is member.Service.Watch.
func (c *Coordinator) Watch(ctx context.Context) (member.Watcher, error) {
	return c.startWatch(ctx, ctx, nil)
}

// request bounds one request to etcd.
func (c *Coordinator) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.opt.Timeout)
}

// list reads all keys of the cluster.
func (c *Coordinator) list(ctx context.Context) (*view, error) {
	r, cancel := c.request(ctx)
	defer cancel()
	got, err := c.client.Get(r, c.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	v := newView()
	v.revision = got.Header.Revision
	for _, kv := range got.Kvs {
		if _, err := v.put(string(kv.Key[len(c.prefix):]), kv); err != nil {
			c.opt.Report(fmt.Errorf("etcd: %s is ignored: %w", c.prefix, err))
		}
	}
	return v, v.checkFormat()
}

// commit commits a transaction, and returns its revision. errStale: the
// comparisons do not hold (any more).
func (c *Coordinator) commit(ctx context.Context, when []clientv3.Cmp, then ...clientv3.Op) (int64, error) {
	r, cancel := c.request(ctx)
	defer cancel()
	got, err := c.client.Txn(r).If(when...).Then(then...).Commit()
	switch {
	case err != nil:
		return 0, c.explain(ctx, err)
	case !got.Succeeded:
		return got.Header.Revision, errStale
	}
	return got.Header.Revision, nil
}

// Comparisons and operations of transactions, with keys relative to the prefix.

func (c *Coordinator) absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.prefix+key), "=", 0)
}

// unchanged compares with a revision of the key's last change; 0: it is not there.
func (c *Coordinator) unchanged(key string, modified int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.prefix+key), "=", modified)
}

// since compares with a revision that a key's last change has, or is older than.
func (c *Coordinator) since(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.prefix+key), ">", revision-1)
}

func (c *Coordinator) holds(key, value string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(c.prefix+key), "=", value)
}

func (c *Coordinator) put(key, value string, lease clientv3.LeaseID) clientv3.Op {
	if lease == clientv3.NoLease {
		return clientv3.OpPut(c.prefix+key, value)
	}
	return clientv3.OpPut(c.prefix+key, value, clientv3.WithLease(lease))
}

func (c *Coordinator) delete(key string) clientv3.Op { return clientv3.OpDelete(c.prefix + key) }

// step returns the operations of a transaction that changes the State: besides those given, a new value of the history key, which is never used again.
func (c *Coordinator) step(ops ...clientv3.Op) []clientv3.Op {
	return append(ops, c.put(keyHistory, rand.Text(), clientv3.NoLease))
}

// in compares the history of the cluster with that of a view: no step has been made that the view does not show, and none is missing that it shows.
func (c *Coordinator) in(h stamp) clientv3.Cmp {
	if h.id == "" {
		return c.absent(keyHistory)
	}
	return c.holds(keyHistory, h.id)
}

// do does a chore of a view. errStale: another was faster, or the view is not what etcd has.
func (c *Coordinator) do(ctx context.Context, v *view, x chore) error {
	if x.group != nil {
		return c.putGroup(ctx, v, x.group)
	}
	key := dirNode + x.n.String()
	when := []clientv3.Cmp{c.holds(keyFormat, v.format), c.in(v.history)}
	var then []clientv3.Op
	switch {
	case !x.forget:
		dead := x.was.record
		dead.Gone = goneDied
		when = append(when, c.absent(dirLive+x.n.String()))
		then = append(then, c.put(key, dead.encode(), clientv3.NoLease))
	case x.n.cn && x.was.Gone == goneDied:
		then = append(then, c.delete(key), c.put(keyLost, count(v.lost+1), clientv3.NoLease))
	default:
		then = append(then, c.delete(key))
	}
	_, err := c.commit(ctx, when, c.step(then...)...)
	return err
}

// pause waits between attempts, longer each time. It returns false when ctx has ended.
func pause(ctx context.Context, wait *time.Duration) bool {
	*wait = min(max(2**wait, minRetry), maxRetry)
	return sleep(ctx, *wait)
}

// sleep waits. It returns false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
