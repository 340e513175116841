package tcp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
)

// A memory node and two compute nodes in one process. Between machines, the coordinator is etcd
// (package coordinator/etcd), and TLS takes the place of Insecure.
func Example() {
	ctx := context.Background()
	o := tcp.Options{Members: coordinator.NewMemory(fabric.MaxCN), Insecure: true, Listen: "127.0.0.1:0", Size: 1 << 30}
	server, err := tcp.Serve(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	var ports [2]fabric.Port
	for i := range ports {
		node, err := tcp.Join(ctx, o)
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		if ports[i], err = node.Open(); err != nil {
			log.Fatal(err)
		}
	}
	for _, p := range ports {
		ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
		if err := p.Do(ops); err != nil {
			log.Fatal(err)
		}
		fmt.Println("the counter was", ops[0].Old)
	}
	if err := ports[0].Send(ports[1].ID(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{42}}); err != nil {
		log.Fatal(err)
	}
	m, err := ports[1].Recv(fabric.Forever)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.From, "says", m.Body[0])
	// Output:
	// the counter was 0
	// the counter was 1
	// cn1/1 says 42
}
