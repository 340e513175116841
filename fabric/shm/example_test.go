package shm_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
)

// A memory node and two compute nodes in one process.
func Example() {
	dir, err := os.MkdirTemp("", "shm-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := shm.Options{Name: "demo", Dir: dir, Size: 1 << 20}
	server, err := shm.Serve(o)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	var ports [2]fabric.Port
	for i := range ports {
		node, err := shm.Join(context.Background(), o)
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		if ports[i], err = node.Open(); err != nil {
			log.Fatal(err)
		}
	}
	p, q := ports[0], ports[1]

	// A chain: add, then read what is behind the counter.
	counter := fabric.At(0, 64)
	ops := []fabric.Op{fabric.FAA(counter, 5), fabric.Read(counter.Add(8), p.Alloc(64))}
	if err := p.Do(ops); err != nil {
		log.Fatal(err)
	}
	if err := p.Send(q.ID(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{uint64(counter)}}); err != nil {
		log.Fatal(err)
	}

	m, err := q.Recv(q.Now() + fabric.Second)
	if err != nil {
		log.Fatal(err)
	}
	ops = []fabric.Op{fabric.Load(fabric.Addr(m.Body[0]))}
	if err := q.Do(ops); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v wrote %d to %v\n", m.From, ops[0].Old, ops[0].Addr)
	// Output: cn1/1 wrote 5 to mn0+0x40
}
