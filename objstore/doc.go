// Package objstore is an object store on disaggregated memory: a hash index and
// objects on memory nodes, which clients on compute nodes read and write by
// one-sided operations under locks, with the operations of memcached ([Cache]).
// Each operation on a key is linearizable.
//
// [Open] opens a store by name, once on each compute node; [Store.Client] makes a
// [Client] from a lock.Locker, any mechanism's: the store sees only the
// contract of package lock, and the size of the lock's memory.
//
// # Layout
//
// The hash of a key picks a memory node and a bucket there, where all there is
// of the key stays. A bucket is a lock, some slots of 8 bytes and a link to an
// overflow block. A slot holds a fingerprint of the key and where the object is.
// An object is a header, the key and the value in a chunk of a size class. All bits are in layout.go.
//
//	store's header    bucket                            chunk
//	+-----------+     +------+------+-----+------+      +--------+-----+-------+
//	| words,    |     | lock | slot | ... | link |      | header | key | value |
//	| lines of  |     +------+--|---+-----+--|---+      +--------+-----+-------+
//	| classes   |               +------------|----------^
//	+-----------+                            +---> 15 more slots and a link
//	| buckets   |
//	+-----------+
//
// # How an operation works
//
// A get READs the object, where the location cache of the compute node says it was last,
// the slots, which say whether that was right, and a word of the object that says
// whether it is whole: without the lock (unlocked.go has the proof), unless something
// is not as expected. All else acquires the bucket's lock, and READs slots and object
// in the same chain. A change is made in the chain of the
// release: WRITE the new object to a free chunk, CAS the slot, release.
//
// The CAS is the commit. A compute node that crashes between any two operations has made
// no change, or all of it. The CAS also refuses a client that has lost the lock (its node
// was declared dead and comes back): the word is not as it was, and the client
// gets lock.ErrLost; the slot's tag sees to it that the same word does not come
// back soon. That does not hold for a slot that was empty: there only the fabric's fencing keeps a
// late CAS out. Only one word is ever changed in place, that of expiry and access time.
//
// Round trips (chains) and operations on the memory node without contention, with a
// lock that takes one operation to acquire and one to release, as DecLock's default policy does (TestRoundTrips
// counts them; docs/objstore.md says what other policies add; lab/locks/cas with tokens has one operation more in the first chain):
//
//	operation                     chains  operations
//	get                              1        3       READ object + READ slots + READ word
//	get, not in location cache       2        6       READ slots, READ word + READ slot + READ object + READ slot + READ word
//	get, miss                        1        1       READ slots
//	get with Config.Paper            2        4       lock + READ slots + READ object, unlock
//	  not in location cache          3        4       lock + READ slots, READ object, unlock
//	  miss                           2        3       lock + READ slots, unlock
//	set of a new key                 2        5       lock + READ slots, WRITE object + CAS slot + unlock
//	set, replace, cas                2        6       lock + READ slots + READ header and key, WRITE + CAS + unlock
//	add of a key that is there,
//	cas of a changed object          2        4       lock + READ slots + READ header and key, unlock
//	append, prepend, incr, decr      2        6       lock + READ slots + READ object, WRITE + CAS + unlock
//	delete                           2        5       lock + READ slots + READ header and key, CAS + unlock
//	delete, miss                     1        1       READ slots
//	touch                            2        5       lock + READ slots + READ header and key, WRITE word + unlock
//	update that puts                 2        6       as set, with as much of the value as is asked for
//
// A key that the location cache does not know costs one chain more where an
// object is read, each overflow block of a bucket one more. A get of an object
// that was not used for a while takes the lock, and has one WRITE more in its last chain.
// A client that waited for the lock within its compute node gets a handoff from the holder before, in place of its first chain (handoff.go).
// What changes an object that is there looks for one that the location cache does not know without the lock: if
// it is not there, that was all, else the lock's chain READs it at once.
//
// # Memory
//
// heap.go: chunks of 120 size classes from lists of the compute node,
// from what is free on the memory node, from runs of pages of the region (package memory/slab). When there is no more, evict.go
// evicts by sampled LRU: an expired object or else the one with the oldest access time of up to 16 from
// four random places. Access times are in seconds, and a get writes one only
// if it is older than Config.AccessRefreshS. If no object has a chunk that fits, a run of another class
// is taken: what is in use of it is evicted, and its pages go to the class that needs them. With Config.NoEvict
// what is in use is moved to other runs (move.go), and ErrNoSpace comes when nothing can be.
//
// What a compute node has in its lists when it crashes, at most 256 KiB (or a 512th of the region) or 2 chunks of each class and the rest of its last
// runs, the others find while they work: reclaim.go, if each of them calls [Client.ReclaimStep] now and then. Package memory/reclaim says how, and
// why no block is taken that a client has.
//
// # Uniques
//
// Item.CAS is unique to a version of an object in the whole store: each client gets
// an incarnation by one FAA when it is made, and counts from there. It does not
// depend on the lock's tokens, which a mechanism may not have, and does not grow with time.
//
// # What is not checked
//
// Headers and keys are validated at every read: damage there is ErrCorrupt or a
// miss, with the address. Values have no checksum. Check needs a store at rest.
//
// docs/objstore.md has the costs with DecLock, sizes and limits; docs/walks.md the way of a get and of a set through the code.
//
// Source: DecLock, "DM Application Performance" (object store), Fig. 17.
package objstore
