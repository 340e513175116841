// Command declock-lab compares locks and looks for bugs in them: see "declock-lab --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/lab"
)

func main() { os.Exit(command.Main(lab.Lab, os.Args)) }
