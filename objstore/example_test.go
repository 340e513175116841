package objstore_test

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// A store on one memory node, used from one compute node.
func Example() {
	cluster := sim.New(sim.Config{})
	defer cluster.Close()
	mn := cluster.AddMN(16 << 20)
	port, _ := cluster.AddCN().Open()
	if err := memory.Format(port, mn, memory.Params{Size: 16 << 20, CapacityLog2: 3, VersionBits: 16}); err != nil {
		fmt.Println(err)
		return
	}
	locks := cas.Config{}
	store, err := objstore.Open(port, objstore.Config{
		Name: "sessions", Nodes: []fabric.MemID{mn}, Lock: locks.Layout(), Objects: 10_000,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := store.Client(cas.New(port, locks))
	if err != nil {
		fmt.Println(err)
		return
	}
	client.Set([]byte("visits"), []byte("41"), objstore.Options{TTL: 3600})
	n, err := client.Incr([]byte("visits"), 1)
	fmt.Println(n, err)
	item, err := client.Get([]byte("visits"))
	fmt.Printf("%s %v\n", item.Value, err)
	_, err = client.Get([]byte("nobody"))
	fmt.Println(err)
	report, _ := client.Check(objstore.CheckOptions{})
	fmt.Println(report.Nodes[0].Objects, report.Sound())
	// Output:
	// 42 <nil>
	// 42 <nil>
	// objstore: key not found
	// 1 true
}
