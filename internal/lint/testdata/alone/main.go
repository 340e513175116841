// Command alone is a program that uses a cluster over shared memory, and nothing else: TestSizeAlone builds it.
package main

import (
	"context"
	"log"

	"github.com/declock/declock"
)

func main() {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	locks, err := c.Locks(ctx, "locks", 10)
	if err != nil {
		log.Fatal(err)
	}
	g, err := c.Lock(ctx, locks.Key([]byte("key")))
	if err != nil {
		log.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		log.Fatal(err)
	}
}
