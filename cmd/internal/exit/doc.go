// Package exit is the table of exit codes of the commands, and of which
// code an error gets. It is the only place where codes are given; the text of
// "declock exit-codes" and the documentation follow it.
package exit
