// Package ram is what backends share that has to do with memory: the buffers of Ports, and the check of chains that use them; and where
// operations are executed by the CPU (shm, the memory nodes of tcp), copies that tear no word, masked and 16-byte atomics.
package ram
