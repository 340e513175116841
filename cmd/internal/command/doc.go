// Package command is what all commands share: how an application runs and ends, its habits, and the kinds of its flags.
//
// Every error leaves through [Main], which prints it in one piece and returns its code: see package exit.
// Nothing here prints a Go stack for bad input.
package command
