// Package locktrace generates the locks that transactions of TPC-C and TATP take.
//
// A [TPCC] or [TATP] is the database: which locks there are. Its Source draws the transactions of one client: for each, the locks that it takes, in the
// order of the transaction, each once.
//
// Both follow their specifications; rows are locked by partitions where the generator that FissLock's and ShiftLock's evaluations used
// does that, so that the numbers of locks are theirs: 121 for each warehouse of TPC-C, and 680,236 for TATP with 100,000 subscribers. With Artifact
// set, transactions are what that generator makes of them:
//
//   - New-Order always has 10 lines, none of another warehouse, and takes partitions of orders one after the other; by the specification
//     it has 5 to 15 lines, of each 100 one of another warehouse, and orders belong to a district.
//   - Delivery delivers for one district, and only reads its order lines; by the specification it is for all 10.
//   - Order-Status and Stock-Level take one lock of a table that they scan.
//   - TATP's Get-New-Destination does not ask whether the facility is active, and takes rows that end before the time asked for, not after.
//   - TATP's Insert-Call-Forwarding gives up if the row does not exist; by the specification if it does.
//   - Types and times are drawn as subscribers are, with the bits of another number set.
//
// Source: TPC Benchmark C, revision 5.11; Telecom Application Transaction Processing Benchmark, 2011; published code
// github.com/SJTU-IPADS/fisslock (experiments/trace_gen), read for its facts; ShiftLock (FAST 2025), section 4.4, for the shares of readers.
package locktrace
