package memcached_test

import (
	"fmt"

	"github.com/declock/declock/traces/memcached"
)

func ExampleParseTarget() {
	fmt.Println(memcached.ParseTarget("memcached://10.0.0.7"))
	fmt.Println(memcached.ParseTarget("memcached:///run/memcached.sock"))
	_, _, err := memcached.ParseTarget("10.0.0.7:11211")
	fmt.Println(err)
	// Output:
	// tcp 10.0.0.7:11211 <nil>
	// unix /run/memcached.sock <nil>
	// memcached: bad target: "10.0.0.7:11211": write memcached://HOST:PORT, or memcached:///PATH of a unix socket
}
