// Package bench measures locks as the DecLock paper does, and says beside each
// figure what the paper has.
//
// [Micro] is the paper's microbenchmark (section 6.2): clients on compute nodes
// acquire locks drawn by Zipf, do some data operations on the memory node, and release.
// It runs in virtual time on a simulated cluster, where a seed determines every
// figure, and on fabrics that run in real time.
//
// An [Experiment] is a figure of the paper: points to be measured, rows that
// come out, claims that the rows are judged by, plots. Experiments register
// themselves ([Register]); one file each. [Run] runs them, several points at a time;
// results do not depend on how many.
//
// Figures of the simulator are figures of a model whose constants were fitted to the
// paper (see fabric/sim.NIC): ratios between locks say something about the
// protocols, absolute values and what the fit was made for say nothing.
package bench
