// Package check looks for bugs in the very code that runs on NICs, in the
// simulator: with seeds, and with all schedules of small programs.
//
// # Seeds
//
// A [Scenario] is a run, whole: the cluster, the policy, the layout of the locks, the NIC model, the
// work, the faults. It prints as one line and is read from it. [Draw] draws it from one
// seed and a list of classes; [Run] runs it: first with the faults of its plan, then without, until all clients are
// done and every live compute node has acquired every lock once more. The judges of
// package oracle follow the history; what is left in memory is checked at the end. [Faults] does so
// for many seeds, and makes of each failure a [Failure]: its seed and line, the command that runs it again,
// and a smaller scenario that fails in the same way, with the last operations of each client.
//
// Classes ([Classes]) say what may go wrong in a scenario, and so what must hold. No seed is known that fails.
// Scenarios that fail today are in testdata/known.txt (none); those that failed once in testdata/regressions.txt.
//
// # Schedules
//
// [Explore] tries every schedule of a small program ([Explorations]) with the same judges: two or
// three clients on one lock in each mix of modes, with a queue that wraps, with one cancellation or one crash at any point.
//
// # Planted bugs
//
// Package lab/mutants plants bugs in the code, and shows which of them this package finds.
//
// # Writers that starve
//
// [Starve] shows one node that writes beside seven that read, under the policies of the
// paper and under ours.
//
// docs/verification.md has the figures, docs/promises.md which class of seeds checks which promise.
//
// Source: DecLock, section 4 and 5.
package check
