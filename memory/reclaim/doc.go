// Package reclaim finds the memory of a store or tree that crashed compute nodes have leaked, while the others
// go on working: mark and sweep over memory that several processes change at once.
//
// A compute node keeps free blocks of memory in its lists, and an operation that is under way has some in hand. No other node knows of these. So a block
// is leaked if nothing reaches it, and no living node has it. The members, the compute nodes that have the store or tree open, find that in a
// round, in which all take part ([Member.ReclaimStep]). One of them, the leader, runs it:
//
//  1. Each member begins to remember which blocks pass through its hands ([Tracker.Touch]), waits for the operations that
//     were under way, and answers.
//  2. When all have answered, the leader marks what is reachable: from the index, and in the memory nodes' free lists. Blocks
//     that it does not reach are candidates.
//  3. The leader publishes the candidates, a batch at a time. Each member looks at its lists, waits for the operations that are under way then, strikes out what was
//     in the lists or has passed through its hands since 1, and answers.
//  4. When all have answered, what is left of the batch is leaked, and the leader puts it into free lists.
//
// Why no living node has a block that is left at 4: none has touched it between 1 and its answer at 3. So the block has been in one
// place from before the marking until after it. In the index or a free list, it would have been marked. In a
// list of a living node, it would have been there when that node looked at its lists. In the hand of an operation, that operation would have begun after
// 1 and have touched it, at the latest when the node waited for it at 3; had it begun before 1, it would have ended before 1, and the block would have been elsewhere since. Crashed
// nodes have changed nothing: they are fenced before any view shows them dead (fabric.View).
//
// # Members
//
// The record of a member says which step it has answered last. In replicated memory records are at the backups, and the word of the round is not: after a promotion rounds are counted anew. So who
// begins one reads the records in the same chain, and takes the next number if a member has answered that one before.
//
// A compute node that opens a store or tree registers in its memory before it takes anything ([Join]), and looks only then whether a round is
// under way. A leader looks at the registrations only after it has begun the round: so at least one of the two sees the other. A member that leaves ends the round first
// ([Member.Leave]): what it remembers goes with it. If a member crashes in a round, the round ends, and another is begun. A leader that
// crashes leaves what it has found where it was: the next leader begins anew.
//
// A store or tree may be dropped at any time, and its memory is something else when all members have closed it ([InUse]). So a compute node that registers looks
// whether the store or tree is still there after it has read its record, and changes the record by a CAS. The words of records are found nowhere else.
//
// A member on which no client calls ReclaimStep does not answer. Then nothing is found, and nothing is lost but time.
//
// docs/failures.md (Memory leaked by crashed nodes) has the same from a user's side.
//
// All is straight-line code over a fabric.Port; nothing here waits.
package reclaim
