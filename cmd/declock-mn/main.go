// Command declock-mn is a memory node: see "declock-mn --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/app"
)

func main() { os.Exit(app.Main(app.MN, os.Args)) }
