// Command declock-cn is a compute node: see "declock-cn --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/app"
)

func main() { os.Exit(app.Main(app.CN, os.Args)) }
