// Package embedded runs an etcd server in this process: for clusters on one
// machine ("declock up") and for tests. What runs longer than one process wants an
// etcd of its own.
//
// The server listens on a Unix socket in its directory, which only its user may open, unless an address is asked
// for. Its data are in the directory too, and it finds them when it is started there again.
package embedded
