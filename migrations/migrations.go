// Package migrations carries the numbered SQL of every engine; sqlstore runs
// it before anything else touches the database.
package migrations

import "embed"

// FS holds one folder an engine: sqlite, mysql, postgres. The numbers agree
// across engines: migration n of one does what migration n of the others does.
//
//go:embed sqlite/*.sql mysql/*.sql postgres/*.sql
var FS embed.FS

// Former is the newest migration of the release before this one. Its code runs
// against the schema of this release, so that versions may mix during an
// upgrade; code that knows fewer migrations does not. At a release it becomes
// the number of that release's newest migration, once a newer one is added.
const Former = 6
