package embedded

import "time"

// Options of a server.
type Options struct {
	// Dir is where sockets and data are; it is made if it is not there. A Unix socket's path has 107 bytes at most.
	Dir string
	// Listen is a URL to listen on instead of the socket: http://host:port. Any program that
	// reaches it can read and change the cluster's membership.
	Listen string
	// CA, Cert and Key are files: with them Listen is https://host:port, and clients need a certificate that CA has signed.
	CA, Cert, Key string
	// Election is how long the server waits before it elects itself; shorter than
	// an etcd of several machines, 100 ms by default. Leases last one and a half times as long at least, in whole seconds.
	Election time.Duration
	// Durable makes each change survive a loss of power. Else it survives the process only, and is faster.
	Durable bool
}
