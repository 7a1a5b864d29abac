// Command sheaf-embed serves an installed embedding model on /v1/embeddings. The
// service starts it when embed.driver is local. It is a separate program because it
// loads a native library, which the service itself avoids.
package main

import (
	"os"

	"sheaf/internal/embedserver"
)

func main() { os.Exit(embedserver.Run(os.Args[1:], os.Stdin, os.Stderr)) }
