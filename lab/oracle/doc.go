// Package oracle judges histories of locks and of the object store. It shares
// no code with what it judges: what it knows of the protocol is what
// docs/protocol.md says, decoded anew.
//
// A history is what clients report ([Event]: they requested, were granted, release
// a lock) and what memory saw ([Effect]: an atomic on a lock's header). A [Court]
// takes both in the order in which they happened, and passes them to its judges:
//
//   - [Exclusion]: no two holders of which one is exclusive;
//   - [Tokens]: fencing tokens grow with every exclusive grant;
//   - [QueueOrder]: places of the queue are granted in the order of their FAAs;
//   - [TrainOrder]: a ticket is overtaken by readers of its own train only;
//   - [LocalOrder]: clients of one compute node are granted in the order of their requests;
//   - [Overtaking]: no request is passed by more than so many later ones;
//   - [LostGrants]: at the end, no client waits;
//   - [Cells]: what a holder reads of the protected data is what the last one wrote.
//
// [CheckHeader] judges a header at rest, and a [StoreHistory] whether operations on the
// object store were linearizable.
//
// A hold ends when its client calls Release. The hold of a compute node that crashes ends when
// the node is fenced: until then no other client may hold the lock, for its
// late operations may still arrive.
package oracle
