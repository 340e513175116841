// Package ram is what the backends share that execute operations with the CPU (shm and the
// memory nodes of tcp): copies that tear no word, masked and 16-byte atomics, and the
// buffers of Ports for which nothing has to be registered.
package ram
