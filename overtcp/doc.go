// Package overtcp reaches clusters over any network: imported, it lets declock.Open take addresses of
// clusters whose nodes use TCP (fabric/tcp) and whose membership is in etcd (coordinator/etcd).
//
//	import _ "github.com/declock/declock/overtcp"
//
//	c, err := declock.Open(ctx, "tcp://10.0.0.1:2379,10.0.0.2:2379/demo?tls-ca=ca.pem&tls-cert=node.pem&tls-key=node.key")
//
// An address is tcp://, the endpoints of etcd, a slash and the name of the cluster. Where etcd listens on a
// Unix socket, as that of "declock up --fabric tcp" does, the socket's path stands in the place of the endpoints:
// tcp:///run/user/1000/declock/up-demo/etcd.sock/demo. What else is to be said comes behind
// a question mark, with the names that the flags of the commands have:
//
//	tls-ca, tls-cert, tls-key        files for mutual TLS with other nodes; see package fabric/tcp for what certificates must say
//	insecure=true                    instead: let any program in that can reach this process
//	listen, advertise                HOST:PORT at which other nodes reach this one; any port of all addresses by default, and with
//	                                 insecure=true of the loopback
//	etcd-ca, etcd-cert, etcd-key     files for https to etcd
//	etcd-user, etcd-password-file    if etcd has authentication enabled
//	dead-after                       how long the failure of a node takes to be detected, 5s by default
//	silent-after                     when a memory node with replicas is suspected that does not answer; without it when it is dead
//	local=true                       execute operations on the memory of memory nodes of this machine that lend it: docs/local.md
//
// It is a package of its own because of what it brings along: etcd's client is large.
//
// docs/operations.md sets up a cluster over TCP, docs/tcp.md says how the fabric works.
package overtcp
