// Package migrations carries the numbered SQL of every engine; taskstore runs
// it before anything else touches the database.
package migrations

import "embed"

// FS holds one folder an engine: sqlite, mysql, postgres. The numbers agree
// across engines: migration n of one does what migration n of the others does.
//
//go:embed sqlite/*.sql mysql/*.sql postgres/*.sql
var FS embed.FS
