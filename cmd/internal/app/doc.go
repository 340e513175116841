// Package app is the application declock, over packages node, fleet and report.
//
// Results go to standard output; errors, progress and what children say go to standard error.
package app
