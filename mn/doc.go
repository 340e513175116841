// Package mn is a memory node: it registers memory on a fabric, has it
// formatted as a region, and says that it exists. Nothing on the data path needs its
// CPU: a memory node that is stopped with SIGSTOP serves as fast as before.
package mn
