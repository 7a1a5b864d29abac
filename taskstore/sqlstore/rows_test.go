package sqlstore

import (
	"reflect"
	"strings"
	"testing"

	"gorm.io/gorm/schema"
)

// TestTaskFieldsAreThoseOfTheRow: a field that lockQuery does not read would
// silently be empty in every claim.
func TestTaskFieldsAreThoseOfTheRow(t *testing.T) {
	r := &taskRow{}
	at, row := r.fields(), reflect.ValueOf(r).Elem()
	columns := strings.FieldsFunc(taskFields, func(c rune) bool { return strings.ContainsRune(", \n\t", c) })
	columns = append(columns, "now", "deleted")
	if len(at) != row.NumField() || len(columns) != row.NumField() {
		t.Fatalf("%d places and %d columns for %d fields", len(at), len(columns), row.NumField())
	}
	for i := range at {
		f := row.Type().Field(i)
		if at[i] != row.Field(i).Addr().Interface() {
			t.Errorf("place %d is not that of %s", i, f.Name)
		}
		if want := (schema.NamingStrategy{}).ColumnName("", f.Name); columns[i] != want {
			t.Errorf("column %d is %s, want %s", i, columns[i], want)
		}
		if n, known := taskColumn[columns[i]]; !known || n != i {
			t.Errorf("column %s is read into place %d, want %d", columns[i], n, i)
		}
	}
}

// TestWorkReadsAll: what folds and executors do not read would silently be empty for
// them.
func TestWorkReadsAll(t *testing.T) {
	read := map[string]bool{}
	for _, c := range strings.Split(workColumns(), ", ") {
		read[c] = true
	}
	names := schema.NamingStrategy{}
	for f := range reflect.TypeFor[documentRow]().Fields() {
		column := names.ColumnName("", f.Name)
		if f.Name == "SHA256" {
			column = "sha256"
		}
		if !read[column] {
			t.Errorf("column %s is not read", column)
		}
	}
}

func TestScriptFillsListsIn(t *testing.T) {
	var c script
	c.add("UPDATE t SET a=? WHERE id IN ? AND b=?", 1, []string{"x", "y"}, 2)
	c.insert("t", []string{"a", "b"}, [][]any{{1, raw("0")}, {2, "it's"}}, " NOOP")
	c.add("COMMIT")
	text, args := c.joined()
	if want := "UPDATE t SET a=? WHERE id IN (?, ?) AND b=?; INSERT INTO t (a, b) VALUES (?, 0), (?, ?) NOOP; COMMIT"; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if want := []any{1, "x", "y", 2, 1, 2, "it's"}; !reflect.DeepEqual(args, want) {
		t.Errorf("arguments %v, want %v", args, want)
	}
}
