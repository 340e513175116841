// Package handle is what an object store and a B+tree have in common as a compute node has them open. Both call it a collection here: each owns
// memory on several memory nodes, under one name. A collection has an index and records of its own; what is here does not know them.
//
//	Kind         all stores, or all trees: their root entries, how one is found by its name, and dropped   kind.go
//	Collection   one of them, as long as this compute node has it open: losses of memory, the drop         collection.go, drop.go
//	Handle       the collection as it was opened once: its parts, this compute node's registration         handle.go
//	Part         its memory on one memory node                                                             handle.go, missing.go
//	Session      what clients do besides operations: reclaim memory, catch up with a drop, leave           session.go
//	             On replicated memory: operations outlast a promotion, walks compare backups                outlast.go, walk.go
//	CopyNumber   copies to a new backup what is on a memory-node number                                    copy.go
//
// # Losses of memory
//
// A memory node may come back without its memory. The collection is then opened anew ([Reopened]), by the first client that needs it: a compute node has
// a new Handle after each loss, and nothing that it has kept of the memory that is gone comes into the next one: no free block, no cached address.
// A client goes from one handle to the next at the beginning of an operation ([Session.CatchUp]), and tells its user what is gone. In the middle of one it cannot get
// into the new memory: its addresses are those of the old (lock.Attacher).
//
// # Missing parts
//
// A collection can be opened while memory nodes of it are down ([Handle.Survey] finds what there is). Of such a missing part only the memory node is known. When
// the memory node is up again, the first operation that needs the part opens it ([Session.Ready], [Session.TakeIn]), or the next ReclaimStep does: all clients of the
// compute node have the part then. Since the compute node has seen nothing of a missing part, it reports nothing of it as lost.
//
// The first part is special: the compute nodes that have the collection open are registered there (package memory/reclaim). Without it, this compute node changes nothing.
//
// # Drop
//
// [Kind.Drop] marks each part, and takes the name away. The memory stays what it is until each compute node that has the collection open has
// seen the mark ([Session.ReclaimStep]), has nothing under way there any more, and has ended its registration ([Collection.LetGo], [Session.Leave]): the last one gives the memory back.
//
// docs/restarts.md (Without its memory) and docs/limits.md (Dropped stores and trees) say what users see of this.
package handle
