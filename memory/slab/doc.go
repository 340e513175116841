// Package slab is the memory of a store or tree on a memory node: blocks of fixed sizes, its classes, which any compute node takes and
// gives back by one-sided operations, and runs of pages, each of blocks of one class, which go from one class to another.
//
// # Where a block is
//
// A block is in one of three places: in use, in the hands of a compute node (in one of its lists, or in an operation), or free on the memory node.
// It is free there if its bit is set: the region has a bit for each 64 bytes, and the one at the block's begin counts. A client that wants free blocks
// reads such bits, and makes some 0 by CAS; one that gives blocks back sets theirs by FAA. A bit is 0 as long as a client has the block, so
// the FAA needs no guess and no second try.
//
// Each class has a line in the store's or tree's memory that says about how many of its blocks are free on the memory node, and where some
// are that became free lately. These are guesses, and may be wrong after a crash, until the next round of package memory/reclaim counts again.
//
// # Runs
//
// A run's word in the page table says whose it is, and of which class. A client that has taken blocks looks at it afterwards. If it says what was expected, it goes on
// saying so as long as one of the blocks is in a client's hands or in use: a run is changed only by a client that has all blocks of it. Else they were
// blocks of another class (or of another store), and get their bits back.
//
// All compute nodes take runs by changes of one word, one after another (memory/pages.go). So of the clients of a compute node one at a time takes a run, and the
// others wait for what it leaves in the list ([Heap.Grow]): not for ever, and not while there is known to be no room.
//
// A run that was just taken has no class yet: it is one block, in the hand of its taker, which clears what is left of others in it, and then gives it its class.
//
// [Heap.Collect] is how a run leaves its class. It takes all free blocks of the run, and has what is in use evicted or moved; when it has all, it gives the
// pages back to the region by one change (memory/pages.go), and any class, store or tree can have them.
//
// # Crashes
//
// Each step moves blocks from one place to another by one CAS or FAA, or a run from one owner or class to another by one CAS. So a compute node that
// crashes between two steps leaves leaked blocks, of the class that their run says, or a run without class: package memory/reclaim finds both. Clients that work in a
// round remember all blocks of a run that they collect or divide ([reclaim.Tracker]), so a run that changes in a round leaves no candidates of what it was.
//
// A rule makes rounds safe: whatever comes into a list is touched first, also if it was in that list before. A client may have blocks in hand that
// it has not touched: it has taken them out of a list to give them back, or the run that they are blocks of has just got its class. A
// leader that marks then finds them nowhere, and a compute node that is asked for them finds them in none of its lists. It waits for that client, and answers
// when the operation has ended. If the client has put the blocks into a list meanwhile, only the touch says so. [Heap.Push], [Heap.Keep] and the division of a run are the
// only ways into a list.
//
// # Errors
//
// A compute node whose operation was certainly not executed (fabric.Refused) has what it had before: blocks go into its lists, and a run that has no class
// yet is kept for its next operation that needs one. What an operation of unknown outcome may yet give back, no client gets as long as that compute node lives.
//
// docs/objstore.md (Memory goes from one size to another) has the same from the side of a store.
package slab
