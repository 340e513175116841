package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/overtcp"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What stores are measured with: small values, so that the cost is that of the operation.
const (
	storeKeys  = 10_000
	storeValue = 100 // bytes
)

// stores connects what "declock-lab bench replicas" compares: object stores with two copies and one, Redis with a replica, of which each SET waits, and an etcd of some members.
func stores(ctx context.Context, o *options) (peers []*peer, err error) {
	type cluster struct{ name, address string }
	clusters := []cluster{{"declock, 2 copies", o.cluster}, {"declock, 1 copy", o.single}}
	if o.local {
		for _, c := range clusters {
			clusters = append(clusters, cluster{c.name + ", local access", c.address + "&local=true"})
		}
	}
	for _, c := range clusters {
		p, err := declockStore(ctx, c.name, c.address)
		if err != nil {
			return peers, fmt.Errorf("%s: %w", c.name, err)
		}
		peers = append(peers, p...)
	}
	replica, err := startRedis(ctx, "--replicaof", strings.Replace(o.redis, ":", " ", 1))
	if err != nil {
		return peers, err
	}
	ways := []redisWay{{"redis", "tcp", o.redis}}
	if o.local && o.unix != "" {
		ways = append(ways, redisWay{"redis, unix socket", "unix", o.unix})
	}
	for i, w := range ways {
		r, err := redisStore(ctx, o, w)
		if i == 0 {
			r[0].close = replica.stop
		}
		peers = append(peers, r...)
		if err != nil {
			return peers, err
		}
	}
	for _, e := range strings.Split(o.etcd, ";") {
		name, endpoints, _ := strings.Cut(e, "=")
		p, err := etcdStore(name, strings.Split(endpoints, ","))
		if err != nil {
			return peers, err
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// storePeer is a peer of which each client does one operation on a key of its own, anew each time.
func storePeer(name string, one func(ctx context.Context, key string, value []byte) error) *peer {
	return &peer{name: name, close: func() {}, open: func(_ context.Context, i int) (client, error) { return storeClient(i, one), nil }}
}

// storeClient is the i-th client of such a peer.
func storeClient(i int, one func(ctx context.Context, key string, value []byte) error) client {
	n, value := i*7919, make([]byte, storeValue)
	lock := func(ctx context.Context) error {
		n++
		return one(ctx, fmt.Sprintf("key%d", n%storeKeys), value)
	}
	return client{lock: lock, unlock: func(context.Context) error { return nil }, close: func() {}}
}

func declockStore(ctx context.Context, name, address string) ([]*peer, error) {
	c, err := declock.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	o, err := overtcp.Parse(strings.TrimPrefix(address, "tcp:"))
	if err != nil {
		return nil, err
	}
	for whole := false; !whole; time.Sleep(20 * time.Millisecond) { // what is made before has no copies
		st, err := o.Members(ctx)
		if err != nil {
			return nil, err
		}
		whole = true
		for _, g := range st.Groups {
			whole = whole && len(g.Replicas) == g.Factor && g.Replicas[g.Factor-1].Phase == member.InSync
		}
	}
	s, err := c.Store(ctx, "peers", declock.StoreConfig{Objects: 4 * storeKeys, MaxValue: 1024})
	if err != nil {
		return nil, err
	}
	for i := range storeKeys {
		if err := s.Set(ctx, fmt.Appendf(nil, "key%d", i), make([]byte, storeValue), declock.SetOptions{}); err != nil {
			return nil, err
		}
	}
	set := storePeer(name+": set", func(ctx context.Context, key string, value []byte) error {
		return s.Set(ctx, []byte(key), value, declock.SetOptions{})
	})
	set.close = func() { _ = c.Close() }
	return []*peer{set, storePeer(name+": get", func(ctx context.Context, key string, value []byte) error {
		_, err := s.Get(ctx, []byte(key), value[:0])
		return err
	})}, nil
}

// A redisWay is a way to the Redis server.
type redisWay struct{ name, network, address string }

// redisStore is SET and WAIT 1 in one round trip, with a connection for each client: WAIT is of the connection's own changes. Beside it, SET alone. Clients reach the server by TCP or by its unix
// socket; its replica always by TCP, over the loopback: Redis knows no other way.
func redisStore(ctx context.Context, o *options, w redisWay) ([]*peer, error) {
	pool := redis.NewClient(&redis.Options{Network: w.network, Addr: w.address, PoolSize: o.clients + 1, MinIdleConns: o.clients})
	wait := redisPeer(w.name+", WAIT 1: set", pool, func(ctx context.Context, c *redis.Conn, key string, value []byte) error {
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, key, value, 0)
			p.Do(ctx, "WAIT", 1, 0)
			return nil
		})
		if err != nil {
			return err
		}
		if n, err := cmds[1].(*redis.Cmd).Int(); err != nil || n < 1 {
			return errors.Join(err, fmt.Errorf("%d replicas have it", n))
		}
		return nil
	})
	alone := redisPeer(w.name+": set", pool, func(ctx context.Context, c *redis.Conn, key string, value []byte) error {
		return c.Set(ctx, key, value, 0).Err()
	})
	alone.close = func() { _ = pool.Close() }
	for { // the replica has a first copy
		n, err := pool.Do(ctx, "WAIT", 1, 100).Int()
		if err != nil || n == 1 {
			return []*peer{wait, alone}, err
		}
	}
}

// redisPeer is a peer of which each client has a connection.
func redisPeer(name string, pool *redis.Client, one func(ctx context.Context, c *redis.Conn, key string, value []byte) error) *peer {
	return &peer{name: name, close: func() {}, open: func(_ context.Context, i int) (client, error) {
		conn := pool.Conn()
		k := storeClient(i, func(ctx context.Context, key string, value []byte) error { return one(ctx, conn, key, value) })
		k.close = func() { _ = conn.Close() }
		return k, nil
	}}
}

func etcdStore(name string, endpoints []string) (*peer, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	p := storePeer(name+": put", func(ctx context.Context, key string, value []byte) error {
		_, err := c.Put(ctx, key, string(value))
		return err
	})
	p.close = func() { _ = c.Close() }
	return p, nil
}
