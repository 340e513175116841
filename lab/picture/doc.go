// Package picture draws space-time pictures of runs in the simulator: a line for each client, agent and memory node, time downwards,
// operations and messages as arrows with their words decoded, what clients hold as bars, faults, and the moments at which oracles object.
//
// A [Trace] is what is drawn. It is fed with the simulator's history ([Trace.Observe]), with what clients report ([Trace.Report]) and with
// objections ([Trace.Object]). [Words] knows what is where in memory, and takes words apart. [Trace.WriteHTML] writes a page that needs
// nothing else, [Trace.WriteSVG] a picture for other pages.
//
// [Handover] is the trace of one handover of a lock of package lab/locks.
package picture
