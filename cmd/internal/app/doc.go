// Package app is the command line: the applications declock, declock-mn and
// declock-cn as urfave/cli apps, over packages daemon, fleet and report.
//
// Results go to standard output; errors, progress and what children say go to
// standard error. Every error leaves through [Main], which prints it in one piece
// and returns its code: see package exit. Nothing here prints a Go stack for bad input.
package app
