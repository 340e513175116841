// Package daemon is the work of declock-mn and declock-cn: a memory node that
// sleeps, a compute node that serves the control protocol, and a driver, which is
// a compute node without a cluster that replays against another cache.
package daemon
