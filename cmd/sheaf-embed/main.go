// Command sheaf-embed serves an installed embedding model on /v1/embeddings. The
// service starts it where embed.driver is local. It is a program of its own, since
// it loads a native library, and the service stays free of those.
package main

import (
	"os"

	"sheaf/internal/embedserver"
)

func main() { os.Exit(embedserver.Run(os.Args[1:], os.Stdin, os.Stderr)) }
