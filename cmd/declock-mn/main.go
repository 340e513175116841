// Command declock-mn is a memory node: see "declock-mn --help".
package main

import (
	"os"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/node"
)

func main() { os.Exit(command.Main(node.MN, os.Args)) }
