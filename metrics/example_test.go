package metrics_test

import (
	"context"
	"fmt"
	"log"

	"github.com/declock/declock"
	"github.com/declock/declock/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// A program with the library exports what it does itself, as the daemons do.
func ExampleComputeNode() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	m := metrics.ComputeNode(c, nil) // or a function that returns Store.Stats
	defer m.Wait()
	reg := prometheus.NewRegistry() // which promhttp serves
	reg.MustRegister(m)

	locks, err := c.Locks(ctx, "locks", 1)
	if err != nil {
		log.Fatal(err)
	}
	g, err := c.Lock(ctx, locks.At(0))
	if err != nil {
		log.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		log.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "declock_lock_acquires_total" {
			fmt.Println(f.GetName(), "is there")
		}
	}
	// Output: declock_lock_acquires_total is there
}
