// Package oververbs reaches clusters over RDMA: imported, it lets declock.Open take addresses of clusters whose nodes use RDMA NICs (fabric/verbs) and whose
// membership is in etcd (coordinator/etcd).
//
//	import _ "github.com/declock/declock/oververbs"
//
//	c, err := declock.Open(ctx, "verbs://10.0.0.1:2379,10.0.0.2:2379/demo?secret-file=/etc/declock/secret")
//
// An address is verbs://, the endpoints of etcd, or the path of its Unix socket, a slash and the name of the cluster. What else is to be said comes behind a question mark, with
// the names that the flags of the commands have: those of package overtcp, and
//
//	secret-file    a file with the secret that all nodes share; or tls-ca, tls-cert and tls-key, or both, or insecure=true
//	device, port   the name of the device, and the number of its port
//	gid            the index or IP address of its GID
//	queue-pairs    connections to each memory node
//
// It is a package of its own because it is linked with cgo, and with etcd's client.
//
// docs/rdma.md sets up a cluster over RDMA.
package oververbs
