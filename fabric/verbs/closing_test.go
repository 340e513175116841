//go:build linux && cgo

package verbs

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// A node may be closed while its clients are at work: they get an error, and nothing that they use is
// taken away under their hands.
func TestNodeClosesUnderItsClients(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	for range 10 {
		c.join()
		n := c.nodes[len(c.nodes)-1]
		begun := make(chan bool, 6)
		for k := range 6 {
			p, err := n.Open()
			if err != nil {
				t.Fatal(err)
			}
			c.Go(p, func(p fabric.Port) {
				ops := []fabric.Op{fabric.FAA(counter, 1), fabric.Load(counter)}
				for i := 0; ; i++ {
					var err error
					switch k % 3 {
					case 0:
						err = p.Do(ops)
					case 1:
						var pending fabric.Pending
						if pending, err = p.Post(ops); err == nil {
							err = p.Wait(pending)
						}
					case 2:
						if _, err = p.Recv(p.Now() + 20*fabric.Microsecond); errors.Is(err, fabric.ErrDeadline) {
							err = nil
						}
					}
					if i == 3 {
						begun <- true
					}
					if err != nil {
						if !errors.Is(err, fabric.ErrClosed) && !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrUnknownOutcome) {
							t.Errorf("client %d: %v", k, err)
						}
						return
					}
				}
			})
		}
		for range 6 {
			<-begun
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		c.Wait()
	}
}
