package oracle_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/lab/oracle"
)

// A crowd is a sequential object that many clients use at once: each operation takes effect at some moment between its begin and
// its end, and the answers of some are lost.
type crowd struct {
	r       *rand.Rand
	h       oracle.StoreHistory
	there   bool
	value   string
	unique  uint64
	version uint64
}

// act makes o take effect.
func (c *crowd) act(o *oracle.StoreOp) {
	store := func(v string) {
		c.version++
		c.there, c.value, c.unique = true, v, c.version
	}
	o.Result = oracle.Done
	switch {
	case o.Method == "set":
		store(o.Arg)
	case o.Method == "add" && c.there:
		o.Result = oracle.Exists
	case o.Method == "add":
		store(o.Arg)
	case !c.there:
		o.Result = oracle.NotFound
	case o.Method == "get":
		o.Value, o.CAS = c.value, c.unique
	case o.Method == "append":
		store(c.value + o.Arg)
	case o.Method == "delete":
		c.there = false
	}
}

// run has so many clients on one key do so many operations in all. Answers to lost percent of those that change it are lost,
// half of these before they have taken effect.
func (c *crowd) run(clients, operations, lost int) {
	type running struct {
		o     *oracle.StoreOp
		acted bool
	}
	methods := []string{"get", "get", "set", "add", "append", "delete"}
	at := make([]running, clients)
	for done := 0; done < operations; {
		x := &at[c.r.IntN(clients)]
		switch {
		case x.o == nil:
			o := oracle.StoreOp{Client: done, Method: methods[c.r.IntN(len(methods))], Key: "k"}
			if o.Method != "get" && o.Method != "delete" {
				o.Arg = fmt.Sprintf("%d", done)
			}
			*x = running{o: c.h.Begin(o)}
			done++
		case x.o.Method != "get" && c.r.IntN(100) < lost:
			x.o.Result, x.o.Value = oracle.Unknown, ""
			c.h.End(x.o)
			*x = running{}
		case !x.acted:
			c.act(x.o)
			x.acted = true
		default:
			c.h.End(x.o)
			*x = running{}
		}
	}
}

// Many clients on one key, with operations of unknown outcome, are what makes the search long. It ends all the same.
func TestCrowdedHistoriesAreJudged(t *testing.T) {
	for seed := range uint64(8) {
		c := crowd{r: rand.New(rand.NewPCG(seed, 0))}
		c.run(16, 120, 4)
		if wrong, undecided := c.h.Check(time.Minute); len(wrong) > 0 || undecided > 0 {
			t.Errorf("seed %d: %d undecided %s", seed, undecided, strings.Join(wrong, "\n"))
		}
	}
}
