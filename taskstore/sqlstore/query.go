package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// Lists are cut to this many rows, and are this long when nobody says.
const (
	maxPage     = 1000
	defaultPage = 50
)

func pageLimit(p taskstore.Page) int {
	if p.Limit <= 0 {
		return defaultPage
	}
	return min(p.Limit, maxPage)
}

// where collects the conditions of a query.
type where struct {
	conds []string
	args  []any
}

func (w *where) add(cond string, args ...any) {
	w.conds = append(w.conds, cond)
	w.args = append(w.args, args...)
}

// page makes the condition go on after the cursor, and returns the rest of the
// statement. It asks for one row more than the page holds: that there is one
// says that there is a next page. A cursor is the last id that was listed, so
// rows that come or go in between shift nothing.
func (w *where) page(column string, p taskstore.Page) (suffix string, limit int) {
	op, order := "<", "DESC"
	if p.Ascending {
		op, order = ">", "ASC"
	}
	if p.Cursor != "" {
		w.add(column+op+"?", p.Cursor)
	}
	limit = pageLimit(p)
	return fmt.Sprintf(" ORDER BY %s %s LIMIT %d", column, order, limit+1), limit
}

func (w *where) String() string { return " WHERE " + strings.Join(w.conds, " AND ") }

// cut drops the extra row of a page and answers the cursor of the next.
func cut[T any](rows []T, limit int, id func(T) string) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], id(rows[limit-1])
}

// checkText refuses text that not every engine can store: PostgreSQL takes no
// NUL, and both servers nothing but UTF-8 up to the column's width.
func checkText(field, s string, maxRunes int) error {
	var f *sheaf.Failure
	switch {
	case !utf8.ValidString(s):
		f = sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "%s is not UTF-8; send it as UTF-8", field)
	case strings.ContainsRune(s, 0):
		f = sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "%s holds a NUL character; leave it out", field)
	case utf8.RuneCountInString(s) > maxRunes:
		f = sheaf.Fail(sheaf.CategoryBadInput, "text_too_long", "%s has %d characters; shorten it to at most %d", field, utf8.RuneCountInString(s), maxRunes)
	default:
		return nil
	}
	return fmt.Errorf("%w: %w", sheaf.ErrInvalid, f)
}

func checkTexts(fields ...any) error {
	for i := 0; i+2 < len(fields); i += 3 {
		if err := checkText(fields[i].(string), fields[i+1].(string), fields[i+2].(int)); err != nil {
			return err
		}
	}
	return nil
}

func notFound(what, id string) error {
	return fmt.Errorf("%w: %s %s", sheaf.ErrNotFound, what, clip(id, 64))
}

// changed turns the outcome of an update of one row into an error.
func changed(res *gorm.DB, what, id string) error {
	if res.Error != nil {
		return translate(res.Error)
	}
	if res.RowsAffected == 0 {
		return notFound(what, id)
	}
	return nil
}

// chunks cuts ids into lists that a statement can take.
func chunks[T any](ids []T) func(yield func([]T) bool) { return slices.Chunk(ids, 500) }

func sortedUnique(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
