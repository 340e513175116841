// Command declock runs and examines DecLock clusters: see "declock --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/app"
)

func main() { os.Exit(app.Main(app.Declock, os.Args)) }
