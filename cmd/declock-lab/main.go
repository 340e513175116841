// Command declock-lab compares locks and looks for bugs in them: see "declock-lab --help".
package main

import (
	"os"
	"runtime/debug"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/lab"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // a simulated cluster is much garbage for little that lives: experiments and seeds take up to a quarter less time
	}
	os.Exit(command.Main(lab.Lab, os.Args))
}
