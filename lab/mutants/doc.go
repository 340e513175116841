// Package mutants holds the planted bugs: small patches to the product, each of which breaks one promise. A check that
// cannot see its planted bug does not check that promise.
//
// # Patches
//
// Each planted bug is a file patches/NAME.patch: a head, then hunks of a unified diff.
//
//	breaks: the borrow of -1 in qsize runs on into qhead
//	classes: cancel net
//
//	--- cql/layout.go
//	@@ Layout.releaseDelta @@
//	-	d := uint64(1)<<y.headShift() - 1<<y.sizeShift()
//	+	d := uint64(1)<<y.headShift() | y.countMask()<<y.sizeShift()
//
// A hunk is anchored on the declaration that it changes, not on line numbers: a function, a method with its type, or
// the first name of a const, var or type declaration. Its lines (all but the added ones) must follow each other exactly
// once in that declaration; indentation does not count. So a patch survives whatever happens to the rest of the file,
// and [Mutant.Apply] names the declaration and the line if the patch no longer applies.
//
// The head has these keys; "breaks" and one that says how the bug is caught are needed:
//
//	breaks:   what the bug breaks, in one sentence
//	classes:  the classes of fault scenarios that may catch it
//	explore:  it is caught by exploring the programs whose description contains this
//	test:     a package and a test of it that catches it
//
// [Run] does not touch the source: the go command is told to use other files in place of the patched ones (-overlay).
// [Mutant.Plant] does, on request, and [Mutant.Remove] brings it back.
//
// docs/mutants.md has the runs, docs/changing.md how to add a planted bug.
package mutants
