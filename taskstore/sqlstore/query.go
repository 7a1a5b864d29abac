package sqlstore

import (
	"cmp"
	"database/sql"
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

// Maximum and default page size of lists.
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

// page makes the condition continue after the cursor, and returns the rest of the
// statement. It reads one row more than the page holds: if that row exists, there is
// a next page. A cursor is the last id listed, so rows inserted or deleted in
// between shift nothing.
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

// cut drops the extra row of a page and returns the cursor of the next page.
func cut[T any](rows []T, limit int, id func(T) string) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], id(rows[limit-1])
}

// checkText rejects text that some engine cannot store: PostgreSQL takes no NUL, and
// both servers only UTF-8 up to the column's width.
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

// checkDocument rejects a document whose row some engine cannot store.
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

// chunks splits ids into lists that fit into a statement.
func chunks[T any](ids []T) func(yield func([]T) bool) { return slices.Chunk(ids, 500) }

// padded repeats the last id until the list's length is a power of two. That does
// not change the result of a condition, and engines that cache prepared statements
// see few of them instead of one per length.
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

// when adds a condition if it applies.
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

// scan is db.Scan without the copy of the statement and its arguments that gorm
// makes for a log, even if there is no log. It leaves dest unchanged if there are no
// rows. The most common lists are read without gorm, which looks up each column by
// name for each row: that is most of the time of a claim in this process.
func scan(db *gorm.DB, dest any) error {
	rows, err := db.Rows()
	if err != nil {
		return err
	}
	switch to := dest.(type) {
	case *[]taskRow:
		err = scanTasks(rows, to)
	case *[]string:
		err = scanValues(rows, to)
	case *[]int:
		err = scanValues(rows, to)
	default:
		if rows.Next() {
			err = db.ScanRows(rows, dest)
		}
	}
	return cmp.Or(err, rows.Err(), rows.Close())
}

// scanTasks appends the task of each row.
func scanTasks(rows *sql.Rows, to *[]taskRow) error {
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var r taskRow
	fields, at := r.fields(), make([]any, len(columns))
	for i, c := range columns {
		if n, known := taskColumn[c]; known {
			at[i] = fields[n]
		} else { // a newer version's
			at[i] = new(any)
		}
	}
	for rows.Next() {
		if err := rows.Scan(at...); err != nil {
			return err
		}
		*to = append(*to, r)
	}
	return rows.Err()
}

// scanValues appends the value of each row, which has one column. NULL is the zero
// value.
func scanValues[V any](rows *sql.Rows, to *[]V) error {
	for rows.Next() {
		var v *V
		if err := rows.Scan(&v); err != nil {
			return err
		}
		*to = append(*to, value(v))
	}
	return rows.Err()
}

// one reads the first row of a query. If there is none it fails with ErrNotFound,
// naming what was looked for.
func one[R any](db *gorm.DB, what, id, q string, args ...any) (*R, error) {
	row, err := first[R](db, q, args...)
	if err == nil && row == nil {
		err = notFound(what, id)
	}
	return row, err
}

// page reads a page of a list, and returns the cursor of the next page.
func page[R, D any](db *gorm.DB, from string, w where, column string, p taskstore.Page, id func(R) string, toDomain func(R) D) ([]D, string, error) {
	suffix, limit := w.page(column, p)
	rows, err := all[R](db, from+w.String()+suffix, w.args...)
	if err != nil {
		return nil, "", err
	}
	rows, next := cut(rows, limit, id)
	return mapped(rows, toDomain), next, nil
}

// byIDs reads rows by any number of ids, in their order. The query's first argument
// is the list of ids.
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

// mapped returns f of each element.
func mapped[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// setOf returns the elements of a list as a set.
func setOf(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, v := range list {
		out[v] = true
	}
	return out
}

// get finds a row of the catalog and converts it to the domain type. If there is
// none it fails with ErrNotFound, naming what was looked for.
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

// locked locks the rows that an ORM query reads, except on SQLite, which has one
// writer.
func locked(tx *gorm.DB) *gorm.DB {
	return tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
}

// columns are the values of a new row, by column.
type columns = map[string]any

// stmt is a statement for run.
func stmt(text string, args ...any) statement { return statement{text, args} }

// run executes the statements in order.
func run(db *gorm.DB, statements ...statement) error { return translate(script(statements).exec(db)) }

// execByIDs executes a statement for any number of ids; their list is its last
// argument.
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

// exec executes a statement and returns how many rows it matched.
func exec(db *gorm.DB, q string, args ...any) (int, error) {
	res := db.Exec(q, args...)
	return int(res.RowsAffected), translate(res.Error)
}

// first reads the first row of a query, nil if there is none.
func first[R any](db *gorm.DB, q string, args ...any) (*R, error) {
	rows, err := all[R](db, q, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}
