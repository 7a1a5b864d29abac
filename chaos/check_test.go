package main

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
)

// A child may be claimed once its parents are done: by an attempt, which logs it, or
// from the start, as the outputs are that a new version keeps.
func TestChildrenAreClaimedAfterTheirParents(t *testing.T) {
	i := slices.IndexFunc(statements, func(c struct{ what, query string }) bool { return strings.HasPrefix(c.what, "I12: ") })
	for _, c := range []struct {
		name, parent string
		found        bool
	}{
		{"done before", "INSERT INTO tasks VALUES ('p', 'done', 1); INSERT INTO events VALUES (1, 'p', 'done')", false},
		{"done after", "INSERT INTO tasks VALUES ('p', 'done', 1); INSERT INTO events VALUES (3, 'p', 'done')", true},
		{"not done", "INSERT INTO tasks VALUES ('p', 'running', 1)", true},
		{"done without a word", "INSERT INTO tasks VALUES ('p', 'done', 1)", true},
		{"kept", "INSERT INTO tasks VALUES ('p', 'done', 0)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/deps.db")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			if _, err := db.ExecContext(t.Context(), `CREATE TABLE tasks (id TEXT, state TEXT, epoch INTEGER); CREATE TABLE task_deps (child_id TEXT, parent_id TEXT);
				CREATE TABLE events (seq INTEGER, subject_id TEXT, kind TEXT); INSERT INTO task_deps VALUES ('c', 'p'); INSERT INTO events VALUES (2, 'c', 'claimed'); `+c.parent); err != nil {
				t.Fatal(err)
			}
			rows, err := db.QueryContext(t.Context(), statements[i].query)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			if found := rows.Next(); found != c.found {
				t.Errorf("found %v, want %v", found, c.found)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
