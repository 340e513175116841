// Package btree is a B+tree index on disaggregated memory: nodes on memory nodes,
// which clients on compute nodes read and write by one-sided operations. It is Sherman's
// design (SIGMOD'22) with what that lacks: deletion, scans that are right during splits, keys and
// values of any size, and no state that a crash could break.
//
// [Open] opens a tree by name, once on each compute node; [Tree.Client] makes a
// [Client] from a lock.Locker, any mechanism's. Each operation on a key is linearizable.
//
// # Readers take no lock
//
// A node is one READ. Its first word holds the length and the checksum of what counts behind it, so a
// READ that was torn is noticed, and repeated. Records are only ever appended behind those that are there,
// and the word is stored last: a writer does not disturb readers, and a WRITE that a
// crash cut short is behind the end of what counts. (Sherman's two versions around a node
// do not detect all torn reads: SIGMOD'23, doi 10.1145/3589276.)
//
// Every node knows the range of its keys (fences), its right neighbour (link) and its own name
// with an incarnation. So a client with an old copy of the tree notices, and finds the way: to the right if the node has been
// split, from the left if it is gone. A slot that stays half written is taken for one whose node is gone: no node of the tree stays so.
//
// # The index cache
//
// Each compute node keeps copies of inner nodes, shared by its clients. With them a search is one
// READ. They are not invalidated: the node that they lead to reports whether they are old.
//
// # Costs
//
// Chains (round trips) and operations on memory nodes with the index cached and no contention, with a
// lock that takes one operation to acquire and one to release (TestRoundTrips counts them):
//
//	operation                      chains  operations
//	get                               1        1      READ leaf
//	get of a large value              2        2      READ leaf, READ value
//	put, insert, delete               2        5      lock + READ leaf, WRITE record + store word + unlock
//	put of a large value              3        6      WRITE value before
//	put that makes room               2        7      lock + READ leaf, WRITE shadow + store + WRITE node + store + unlock
//	put that splits                   2        8      WRITE new node before the shadow; 3 chains if it goes to another memory node
//	  and its separator             + 3      + 6      lock + READ inner node, READ new node, WRITE record + store word + unlock
//	scan                      1 per leaf    1 per leaf
//
// docs/btree.md has the layout, the states of a node, and why a tree survives a crash at any point; docs/walks.md the way of a put
// through the code.
//
// Source: Q. Wang, Y. Lu, J. Shu, "Sherman", SIGMOD'22; P. Lehman, S. Yao, "Efficient Locking
// for Concurrent Operations on B-Trees", TODS 1981; DecLock, Fig. 17.
package btree
