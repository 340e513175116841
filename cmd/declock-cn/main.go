// Command declock-cn is a compute node: see "declock-cn --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/node"
)

func main() { os.Exit(command.Main(node.CN, os.Args)) }
