// Command declock-mn is a memory node: see "declock-mn --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
)

func main() { os.Exit(command.Main(app.MN, os.Args)) }
