// Package reclaim finds what compute nodes had taken of the memory of a store or tree when they died, while the others
// go on working: mark and sweep over what several processes change at once.
//
// A compute node keeps free pieces of memory in its lists, and has some in hand while an operation is under way; what
// it has is known to it alone. So a piece is a dead node's if nothing reaches it, and no living node has it. That is found
// in a round, in which all who have the store or tree open take part ([Member.Tend]); one of them leads it:
//
//  1. Everybody begins to remember which pieces pass through his hands ([Tracker.Touch]), waits for the operations that
//     were under way, and answers.
//  2. When all have answered, the leader marks what is reachable: from the index, and in the memory nodes' free lists. Pieces
//     that it does not reach are candidates.
//  3. It publishes the candidates, a batch at a time. Everybody looks at his lists, waits for the operations that are under way then, strikes out what was
//     in the lists or has passed through his hands since 1, and answers.
//  4. When all have answered, what is left of the batch is garbage of the dead, and the leader puts it into free lists.
//
// Why a piece that is left at 4 is nobody's: no living node has touched it between 1 and its answer at 3. So it has been in one
// place from before the marking until after it. In the index or a free list, it would have been marked. In a
// list of a living node, it would have been there when he looked at his lists. In the hand of an operation, that would have begun after
// 1 and have touched it, at the latest when it was waited for at 3; had it begun before 1, it would have ended before 1, and the piece would have been elsewhere since. The dead have changed nothing: they
// are shut out before anyone sees them dead (fabric.View).
//
// # Members
//
// Who opens a store or tree registers in its memory before he takes anything ([Join]), and only then looks whether a round is
// under way, whose leader looks at the registrations only after he has begun it: at least one sees the other. Who closes ends the round first ([Member.Leave]):
// what he remembers goes with him. If a member dies in a round, the round ends, and another is begun. A leader who
// dies leaves what it has found where it was: the next leader begins anew.
//
// A store or tree may be dropped at any time, and its memory is something else when all members have closed it ([InUse]). So whoever registers looks
// whether it is still there after reading the record, and changes that by a CAS; the words of records are such as are found nowhere else.
//
// Members that nobody tends do not answer. Then nothing is found, and nothing is lost but time.
//
// All is straight-line code over a fabric.Port; nothing here waits.
package reclaim
