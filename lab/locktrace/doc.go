// Package locktrace generates the locks that transactions of TPC-C and TATP take.
//
// A [TPCC] or [TATP] is the database: which locks there are. Its Source draws the transactions of one client: for each, the locks that it takes, in the
// order of the transaction, each once.
//
// By the specification of TPC-C each row of a warehouse has a lock: of tables that grow, the rows of the last orders and payments of each district, whose locks older rows
// share. There are 67 million locks at most; of more than 216 warehouses rows share some by a hash. A transaction has a lock once, in the stronger mode of its rows. What an order has in it
// follows from its number, so that New-Order, Delivery, Order-Status and Stock-Level agree about it. Order numbers are given when a transaction is drawn, and kinds are cards of a deck of 100. Stock-Level keeps
// all that it reads, though the specification would let it release that; who is looked up by name is one customer, the one in the middle.
//
// With Artifact set, transactions are what the generator that FissLock's and ShiftLock's evaluations used makes of them, and so are the numbers of locks: 121 for each
// warehouse of TPC-C, for partitions of tables, and 680,236 for TATP with 100,000 subscribers. (ShiftLock's script counts the highest number of a lock plus 1, and
// the generator's first is 5, so that is 680,231 locks at most there. Here rows are drawn by the first seed with 680,236 in all, from 0.)
//
//   - New-Order always has 10 lines, none of another warehouse, and takes partitions of orders one after the other; by the specification
//     it has 5 to 15 lines, of each 100 one of another warehouse, and orders belong to a district. Of each 100 orders one is taken back.
//   - Delivery delivers for one district, and only reads its order lines; by the specification it is for all 10.
//   - Order-Status and Stock-Level take one lock of a table that they scan.
//   - TATP's Get-New-Destination does not ask whether the facility is active, and takes rows that end before the time asked for, not after.
//   - TATP's Insert-Call-Forwarding gives up if the row does not exist; by the specification if it does.
//   - The partitions of a client's orders, and of its payments, are counted from 0 for each client here; there, for each process.
//   - A subscriber's rows of call forwarding begin at times that follow each other, and after the last of three comes the first; there only the first two follow.
//   - Types and times are drawn as subscribers are, with the bits of another number set.
//   - New-Order's customer has bits set of a number from 0 to 1024 here, as NURand of that parameter; there, from 0 to 1023.
//   - Rows of call forwarding share locks by another hash here: the published one collides for neighbours, and its number can be negative.
//
// Source: TPC Benchmark C, revision 5.11; Telecom Application Transaction Processing Benchmark, 2011; published code
// github.com/SJTU-IPADS/fisslock (experiments/trace_gen), read for its facts; ShiftLock (FAST 2025), section 4.4, for the shares of readers.
package locktrace
