package replay_test

import (
	"context"
	"fmt"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

// Four clients replay a generated trace of cluster14, verified, against a warm cache.
func ExampleRun() {
	preset, err := traces.FindPreset("cluster14")
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := traces.NewGenerator(traces.GenConfig{Preset: preset, Seed: 1, Keys: 1000, Requests: 20000, Clients: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	caches, end, err := caches(4) // or memcached
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	var loads []replay.Load
	for i, c := range caches {
		loads = append(loads, replay.Load{Cache: c, Warm: g.Keys(i, 4), Stream: g.Stream(i)})
	}
	res, err := replay.Run(context.Background(), replay.Options{Verify: true, FillOnMiss: true}, loads)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := res.Summary()
	fmt.Println(s.Ops, "operations,", s.Warmed, "keys warmed,", s.Errors, "errors,", s.VerifyFailures, "verification failures")
	fmt.Println("sensible hit ratio:", s.HitRatio > 0.7)
	// Output:
	// 20000 operations, 1000 keys warmed, 0 errors, 0 verification failures
	// sensible hit ratio: true
}

// A trace file is read once and dealt to the clients; by key, so that each key's order is the trace's.
func ExampleDeal() {
	trace, err := traces.Open("../testdata/sample.csv", traces.ReaderOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trace.Close()
	d, err := replay.Deal(trace, replay.ByKey, 0, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	caches, end, err := caches(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	res, err := replay.Run(context.Background(), replay.Options{TTL: replay.TTLNone}, []replay.Load{
		{Cache: caches[0], Stream: d.Source(0)},
		{Cache: caches[1], Stream: d.Source(1)},
	})
	d.Close()
	<-d.Finished() // now the trace may be closed
	fmt.Println(res.Summary().Ops, err)
	// Output:
	// 13 <nil>
}

// caches returns clients of an object store in a cluster of this process alone.
func caches(clients int) (list []objstore.Cache, end func() error, err error) {
	cluster, err := declock.Open(context.Background(), "shm:")
	if err != nil {
		return nil, nil, err
	}
	store, err := cluster.Store(context.Background(), "cache", declock.StoreConfig{})
	for len(list) < clients && err == nil {
		var s *declock.Session
		if s, err = cluster.Session(); err == nil {
			var c *objstore.Client
			c, err = store.Client(s)
			list = append(list, c)
		}
	}
	return list, cluster.Close, err
}
