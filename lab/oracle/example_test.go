package oracle_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// Two writers at once.
func Example() {
	court := oracle.NewCourt(oracle.NewExclusion(), oracle.NewTokens())
	for i := range 2 {
		e := oracle.Event{Time: fabric.Time(10 + 3*i), Kind: oracle.Requested, Client: fabric.Client(fabric.CNID(i+1), 1), Lock: fabric.At(0, 0x40), Mode: lock.Exclusive}
		court.Event(&e)
		e.Time, e.Kind, e.Token = e.Time+2, oracle.Granted, lock.Token(0x10000*(i+1))
		court.Event(&e)
	}
	court.End()
	for _, v := range court.Violations() {
		fmt.Println(v)
	}
	// Output:
	// exclusion at 15 ns: [15 cn2/1 holds mn0+0x40 exclusive token=0x20000 value=0] while [12 cn1/1 holds mn0+0x40 exclusive token=0x10000 value=0]
}
