// Package baseline is what the baseline locks (lab/locks) have in common.
//
// [Client] is embedded in each Locker: it posts the chains of one goroutine. Locks of one word have a second one for
// fencing tokens ([Layout]), unless they are as published.
//
// [Tickets] are a client's tickets in queues. When the client gives up, it leaves its ticket, and the client ID under which
// others know it, to the agent of its compute node ([Agent]; [Tasks] are what any agent looks after). The agent retires the ID after its last ticket.
package baseline
