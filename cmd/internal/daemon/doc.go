// Package daemon is the work of declock-mn and declock-cn: a memory node that
// sleeps, and a compute node that serves the control protocol.
package daemon
