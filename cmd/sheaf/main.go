// Command sheaf is the entire service and its client in one binary: `sheaf up` runs
// everything with nothing else installed; `serve`, `executor` and `keeper` are the
// parts of a fleet; the other commands talk to a running server.
package main

import (
	"os"

	"sheaf/internal/command"
)

func main() { os.Exit(command.Main{}.Run(os.Args[1:])) }
