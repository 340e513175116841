package replay_test

import (
	"context"
	"fmt"

	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/internal/mapcache"
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
	cache := mapcache.New() // or the object store, or memcached
	var loads []replay.Load
	for i := range 4 {
		loads = append(loads, replay.Load{Cache: cache.Client(), Warm: g.Keys(i, 4), Stream: g.Stream(i)})
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
	cache := mapcache.New()
	res, err := replay.Run(context.Background(), replay.Options{TTL: replay.TTLNone}, []replay.Load{
		{Cache: cache.Client(), Stream: d.Source(0)},
		{Cache: cache.Client(), Stream: d.Source(1)},
	})
	d.Close()
	<-d.Finished() // now the trace may be closed
	fmt.Println(res.Summary().Ops, err)
	// Output:
	// 13 <nil>
}
