// Command declock runs and examines DecLock clusters: see "declock --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
)

func main() { os.Exit(command.Main(app.Declock, os.Args)) }
