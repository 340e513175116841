// Package app is the applications declock, declock-mn and declock-cn, as urfave/cli apps over packages daemon, fleet and
// report.
//
// Results go to standard output; errors, progress and what children say go to standard error.
package app
