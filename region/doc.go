// Package region is the layout of a memory node's memory: a superblock that
// says what this memory is, a few words that clients share, a bump allocator,
// and a root directory in which stores, lock spaces and trees are found by
// name.
//
// A region begins at offset 0 of a memory node:
//
//	offset  bytes  what
//	0x0000   4096  superblock: identity, state, timesync, brk
//	0x1000  12288  root directory: 96 entries of 128 bytes
//	0x4000         heap: handed out by Alloc, never taken back
//
// Everything here is done by one-sided operations, by any number of compute
// nodes at once, and without a lock: who formats and who creates an entry is
// decided by a CAS on an 8-byte claim word that names the compute node, and
// the same word is what publishes the result. A creator that dies halfway
// leaves a claim that names it. Openers that find one wait until a deadline and
// then say so ([ErrHalfFormatted], [ErrHalfCreated]); whoever knows that the
// node is dead and fenced passes it in Dead, and the claim is taken over.
//
// The heap must be zero when a region is formatted: locks and stores rely on
// memory from [Region.Alloc] being zero.
package region
