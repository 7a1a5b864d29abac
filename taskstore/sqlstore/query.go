package sqlstore

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

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
	w.when(p.Cursor != "", column+op+"?", p.Cursor)
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

// checkDocument refuses a document whose row not every engine can store.
func checkDocument(d *sheaf.Document) error {
	return checkTexts("the document's id", d.ID, 64, "the document's name", d.Name, 512, "the path", d.Path, 512, "the media type", d.MediaType, 255, "the blob key", d.BlobKey, 512,
		"the SHA-256", d.SHA256, 64, "the metadata", encode(d.Metadata), 4<<20, "the parser_config", encode(d.ParseConfig), 4<<20)
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

// padded is a list of ids whose last is repeated until their number is a power of
// two: a condition that holds for one of them holds all the same, and engines that
// keep prepared statements meet few of them instead of one for each number.
func padded[T any](ids []T) []T {
	if len(ids) == 0 {
		return ids
	}
	n := 1 << bits.Len(uint(len(ids)-1))
	return append(slices.Clip(ids), slices.Repeat(ids[len(ids)-1:], n-len(ids))...)
}

func sortedUnique(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// when adds a condition that holds only sometimes.
func (w *where) when(applies bool, cond string, args ...any) {
	if applies {
		w.add(cond, args...)
	}
}

// all reads the rows of a query.
func all[R any](db *gorm.DB, q string, args ...any) (rows []R, err error) {
	err = scan(db.Raw(q, args...), &rows)
	taskstore.RowsRead(db.Statement.Context, len(rows))
	return rows, translate(err)
}

// scan is db.Scan without the copy of the statement, arguments and all, that it
// writes for a log, also where there is none. dest stays as it is where there are
// no rows.
func scan(db *gorm.DB, dest any) error {
	rows, err := db.Rows()
	if err != nil {
		return err
	}
	if rows.Next() {
		err = db.ScanRows(rows, dest)
	}
	return cmp.Or(err, rows.Err(), rows.Close())
}

// one reads the first row of a query. Without one it fails with ErrNotFound,
// which names what was looked for.
func one[R any](db *gorm.DB, what, id, q string, args ...any) (*R, error) {
	row, err := first[R](db, q, args...)
	if err == nil && row == nil {
		err = notFound(what, id)
	}
	return row, err
}

// page reads a page of a list, and the cursor of the next.
func page[R, D any](db *gorm.DB, from string, w where, column string, p taskstore.Page, id func(R) string, toDomain func(R) D) ([]D, string, error) {
	suffix, limit := w.page(column, p)
	rows, err := all[R](db, from+w.String()+suffix, w.args...)
	if err != nil {
		return nil, "", err
	}
	rows, next := cut(rows, limit, id)
	return mapped(rows, toDomain), next, nil
}

// byIDs reads rows by ids of any number, in their order. The first argument of
// the query is a list of ids.
func byIDs[R any](db *gorm.DB, ids []string, q string, args ...any) ([]R, error) {
	var out []R
	for batch := range chunks(ids) {
		rows, err := all[R](db, q, append([]any{padded(batch)}, args...)...)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// mapped is f of each element.
func mapped[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// setOf holds the elements of a list.
func setOf(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, v := range list {
		out[v] = true
	}
	return out
}

// get finds a row of the catalog by conditions, as what callers know it by.
// Without one it fails with ErrNotFound, which names what was looked for.
func get[R, D any](db *gorm.DB, what, id string, toDomain func(R) D, conds string, args ...any) (*D, error) {
	var row R
	err := db.Where(conds, args...).Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, notFound(what, id)
	}
	if err != nil {
		return nil, translate(err)
	}
	d := toDomain(row)
	return &d, nil
}

// locked locks the rows that a query of the ORM reads, but on SQLite, which has
// one writer.
func locked(tx *gorm.DB) *gorm.DB {
	return tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
}

// columns are the values of a row that is made, by column.
type columns = map[string]any

// stmt is a statement for run.
func stmt(text string, args ...any) statement { return statement{text, args} }

// run makes the statements one after the other.
func run(db *gorm.DB, statements ...statement) error { return translate(script(statements).exec(db)) }

// execByIDs makes a statement for ids of any number; their list is the last of
// its arguments.
func execByIDs[T any](db *gorm.DB, ids []T, q string, args ...any) (changed int, err error) {
	for batch := range chunks(ids) {
		res := db.Exec(q, append(slices.Clone(args), padded(batch))...)
		if res.Error != nil {
			return changed, translate(res.Error)
		}
		changed += int(res.RowsAffected)
	}
	return changed, nil
}

// exec makes a statement and says how many rows it matched.
func exec(db *gorm.DB, q string, args ...any) (int, error) {
	res := db.Exec(q, args...)
	return int(res.RowsAffected), translate(res.Error)
}

// first reads the first row of a query, nil where there is none.
func first[R any](db *gorm.DB, q string, args ...any) (*R, error) {
	rows, err := all[R](db, q, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}
