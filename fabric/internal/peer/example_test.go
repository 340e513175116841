package peer_test

import (
	"fmt"

	"github.com/declock/declock/fabric/internal/peer"
)

// What a member says of itself through the coordinator: where it is reached, and the common name of its certificate.
func ExampleParseContact() {
	c := peer.ParseContact("10.0.0.1:7490#mn-host-1;rack 7")
	fmt.Println(c.HostPort, c.Name, c.Note)
	// Output: 10.0.0.1:7490 mn-host-1 rack 7
}
