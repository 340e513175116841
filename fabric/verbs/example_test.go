package verbs_test

import (
	"context"
	"fmt"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/verbs"
)

// A memory node and a compute node. The device is found by itself.
func Example() {
	secret := []byte("what all members of the cluster know")
	ctx := context.Background()
	var members member.Service // the membership: coordinator/etcd, on all nodes
	serve := func() error {    // on the memory node
		srv, err := verbs.Serve(ctx, verbs.Options{Members: members, Secret: secret, Size: 64 << 30})
		if err != nil {
			return err
		}
		defer srv.Close()
		<-ctx.Done()
		return nil
	}
	use := func() error { // on a compute node
		n, err := verbs.Join(ctx, verbs.Options{Members: members, Secret: secret})
		if err != nil {
			return err
		}
		defer n.Close()
		p, err := n.Open()
		if err != nil {
			return err
		}
		ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
		if err := p.Do(ops); err != nil {
			return err
		}
		fmt.Println("the counter was", ops[0].Old)
		return nil
	}
	_, _ = serve, use
}

// A program that uses the library over RDMA says how to join, once; then declock.Open takes such addresses.
func ExampleJoin() {
	secret := []byte("what all members of the cluster know")
	var members member.Service // the membership: coordinator/etcd
	declock.Register("verbs", func(ctx context.Context, _ string) (fabric.Node, error) {
		return verbs.Join(ctx, verbs.Options{Members: members, Secret: secret})
	})
	c, err := declock.Open(context.Background(), "verbs://10.0.0.9:2379/demo")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
}

// Devices lists what there is, and why what cannot be used cannot.
func ExampleDevices() {
	ends, err := verbs.Devices()
	if err != nil {
		fmt.Println(err)
	}
	for _, e := range ends {
		fmt.Println(e)
	}
}
