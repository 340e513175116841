// Command declock-cn is a compute node: see "declock-cn --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
)

func main() { os.Exit(command.Main(app.CN, os.Args)) }
