package oracle_test

import (
	"fmt"
	"strings"

	"github.com/declock/declock/lab/oracle"
)

// Two writers at once.
func Example() {
	history := `10 cn1/1 requests mn0+0x40 exclusive
12 cn1/1 holds mn0+0x40 exclusive token=0x10000 value=0
13 cn2/1 requests mn0+0x40 exclusive
15 cn2/1 holds mn0+0x40 exclusive token=0x20000 value=0`
	court := oracle.NewCourt(oracle.NewExclusion(), oracle.NewTokens())
	for line := range strings.Lines(history) {
		e, err := oracle.ParseEvent(strings.TrimSpace(line))
		if err != nil {
			panic(err)
		}
		court.Event(&e)
	}
	court.End()
	for _, v := range court.Violations() {
		fmt.Println(v)
	}
	// Output:
	// exclusion at 15 ns: [15 cn2/1 holds mn0+0x40 exclusive token=0x20000 value=0] while [12 cn1/1 holds mn0+0x40 exclusive token=0x10000 value=0]
}
