package explore_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/explore"
)

// Two clients add 1 to a word by READ and WRITE: in some schedule, one of the updates is lost.
func Example() {
	program := func(c *explore.Cluster) {
		word := fabric.At(c.AddMN(4096), 64)
		for range 2 {
			c.Go(c.AddCN(), "client", func(p fabric.Port) {
				ops := []fabric.Op{fabric.Load(word)}
				_ = p.Do(ops)
				_ = p.Do([]fabric.Op{fabric.Store(word, ops[0].Old+1)})
			})
		}
		c.AtEnd(func() error {
			if v := c.PeekWord(word); v != 2 {
				return fmt.Errorf("the word is %d", v)
			}
			return nil
		})
	}
	r := explore.Explore(explore.Config{}, program)
	fmt.Println(r.Failure.Err)
	fmt.Println(explore.Replay(explore.Config{}, r.Failure.Schedule, program).Err)
	// Output:
	// the word is 1
	// the word is 1
}
