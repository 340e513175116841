package memcached

import (
	"testing"

	"github.com/declock/declock/front/internal/idletest"
)

// Ten thousand idle connections, each of which has sent a request, cost some KiB each and no session; the next ones are served as before.
func TestIdleConnections(t *testing.T) {
	const answer = "VALUE k 0 1\r\n1\r\nEND\r\n"
	idletest.Run(t, "get k\r\n", answer, func() (address string, serves func()) {
		_, address = startServer(t, openCluster(t), Options{MaxConns: idletest.Clients + 10})
		dial(t, address).want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
		return address, func() { dial(t, address).want("get k\r\n", answer) }
	})
}
