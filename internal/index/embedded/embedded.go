// Package embedded is the default index: one SQLite file with word postings and
// int8 vectors, which are held in memory and searched by brute force. It needs no
// service and handles about a million chunks; beyond that, use Elasticsearch.
//
// One process has the file open at a time. A commit survives the death of the
// process at any moment (WAL); a power failure may lose the last commits, which is
// detected by counting before a generation is published.
package embedded

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"golang.org/x/sync/errgroup"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sheaf"
	"sheaf/internal/index"
)

// Config locates the index and names the model whose vectors it holds.
type Config struct {
	Path    string // of the SQLite file; its folder is created if missing
	ModelID string // embedding model of all vectors; "" with Dim 0 for an index without vectors
	Dim     int    // values in a vector, 0–4096
	// Owner of the chunks: a file of another owner is rejected; "" accepts any.
	Owner    string
	Existing bool // do not create a missing file
}

// MaxSearches is how many searches run at the same time; more wait.
const MaxSearches = 8

const (
	format       = "2" // of the file; 1 is migrated, any other is rejected
	maxDim       = 4096
	cacheKiB     = 8 << 10 // per connection
	mapBytes     = 1 << 30 // of the file that readers may map instead of copying
	queuedWrites = 64      // calls that wait for the writer; more wait to be queued
)

const schema = `
CREATE TABLE IF NOT EXISTS properties (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
	n INTEGER PRIMARY KEY, tenant TEXT NOT NULL, dataset TEXT NOT NULL, id TEXT NOT NULL,
	name TEXT NOT NULL, media_type TEXT NOT NULL, metadata TEXT NOT NULL, language TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS documents_id ON documents (tenant, id);
CREATE TABLE IF NOT EXISTS entries (
	n INTEGER PRIMARY KEY, document INTEGER NOT NULL, page_from INTEGER NOT NULL, page_to INTEGER NOT NULL,
	gaps TEXT, vector BLOB, range_id TEXT NOT NULL, id TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS entries_id ON entries (id);
CREATE INDEX IF NOT EXISTS entries_range ON entries (range_id);
CREATE INDEX IF NOT EXISTS entries_document ON entries (document);
CREATE TABLE IF NOT EXISTS labels (label TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (label, n)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS labels_n ON labels (n);
CREATE TABLE IF NOT EXISTS chunks (n INTEGER PRIMARY KEY, json BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS parts (n INTEGER PRIMARY KEY, first INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS positions (n INTEGER PRIMARY KEY, data BLOB NOT NULL); -- n is the part's, shifted by 16 bits, and the piece's
`

// Index implements index.Index.
type Index struct {
	config  Config
	dim     int // of the rows in memory: Dim rounded up to laneWidth
	release func()
	opened  os.FileInfo // of the file
	write   *sql.DB     // one connection, the writer's
	read    *sql.DB     // MaxSearches connections

	directory directory
	mu        sync.RWMutex // guards the maps
	segments  map[string]map[string]*segment
	documents map[documentKey]*document
	count     atomic.Int64 // chunks in the index

	words    atomic.Pointer[wordIndex]
	searches chan struct{} // in progress

	operations chan *operation
	closing    chan struct{}
	closeOnce  sync.Once
	closeErr   error
	done       sync.WaitGroup

	// Used only by the writer.
	nextRow, nextDocument int64
	nextPart              int64
	deadSince             time.Time // when parts started to have deleted rows; zero if none has
	purgeAfter            time.Time // when deleted rows may be removed from the next part
	insert                [len(inserts)]*sql.Stmt
}

var _ index.Index = (*Index)(nil)

// Open opens or creates the index. An index of another model or format, a damaged
// file, or one opened by another process is a *sheaf.Failure that says what to do.
func Open(ctx context.Context, config Config) (*Index, error) {
	if config.Dim < 0 || config.Dim > maxDim {
		return nil, fmt.Errorf("%w: an index of vectors with %d values: at most %d", sheaf.ErrInvalid, config.Dim, maxDim)
	}
	if err := os.MkdirAll(filepath.Dir(config.Path), 0o700); err != nil {
		return nil, openFailure(config.Path, err)
	}
	if _, err := os.Stat(config.Path); config.Existing && errors.Is(err, fs.ErrNotExist) {
		return nil, missing(config.Path)
	}
	release, err := lock(config.Path + ".lock")
	if err != nil {
		return nil, openFailure(config.Path, err)
	}
	x := &Index{
		config:     config,
		dim:        (config.Dim + laneWidth - 1) / laneWidth * laneWidth,
		release:    release,
		segments:   make(map[string]map[string]*segment),
		documents:  make(map[documentKey]*document),
		searches:   make(chan struct{}, MaxSearches),
		operations: make(chan *operation, queuedWrites),
		closing:    make(chan struct{}),
	}
	if err := x.open(ctx); err != nil {
		err = openFailure(config.Path, err)
		_ = x.shut()
		return nil, err
	}
	if x.opened, err = os.Stat(config.Path); err != nil {
		_ = x.shut()
		return nil, openFailure(config.Path, err)
	}
	x.done.Go(x.writeLoop)
	return x, nil
}

func missing(path string) error {
	return fmt.Errorf("%w: %w", sheaf.ErrUnavailable, sheaf.FailRetryable(sheaf.CategoryTarget, "index_missing",
		"The index %s is gone: it is being rebuilt from the artifacts.", path))
}

// Verify checks that the file is still the one that was opened.
func (x *Index) Verify(ctx context.Context) error {
	now, err := os.Stat(x.config.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, x.opened) {
		return missing(x.config.Path)
	}
	return x.Ping(ctx)
}

// Drop closes the index and removes its file.
func (x *Index) Drop(context.Context) error { return errors.Join(x.Close(), Remove(x.config.Path)) }

// Remove deletes the files of an index that is not open. Missing ones are not an
// error.
func Remove(path string) error {
	var errs []error
	for _, end := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ModelOf reads which model's vectors a file holds; "" if it cannot be read. It
// modifies nothing.
func ModelOf(ctx context.Context, path string) (id string, dim int) {
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: absolute(path), RawQuery: "mode=ro&_pragma=busy_timeout(10000)"}).String())
	if err != nil {
		return "", 0
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRowContext(ctx, `SELECT m.value, CAST(d.value AS INTEGER) FROM properties m JOIN properties d ON d.name = 'dim' WHERE m.name = 'model'`).Scan(&id, &dim)
	if err != nil {
		return "", 0
	}
	return id, dim
}

func (x *Index) open(ctx context.Context) error {
	connect := func(pragmas ...string) (*sql.DB, error) {
		v := url.Values{"_pragma": append(pragmas, "busy_timeout(10000)", "cache_size(-"+strconv.Itoa(cacheKiB)+")", "temp_store(2)")}
		return sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: absolute(x.config.Path), RawQuery: v.Encode()}).String())
	}
	var err error
	if x.write, err = connect("journal_mode(WAL)", "synchronous(NORMAL)", "journal_size_limit(67108864)"); err != nil {
		return err
	}
	x.write.SetMaxOpenConns(1)
	if err := x.prepare(ctx); err != nil {
		return err
	}
	for i, q := range inserts {
		if x.insert[i], err = x.write.PrepareContext(ctx, q); err != nil {
			return err
		}
	}
	if x.read, err = connect("query_only(1)", "mmap_size("+strconv.Itoa(mapBytes)+")"); err != nil {
		return err
	}
	x.read.SetMaxOpenConns(MaxSearches + 2) // counts and scans in addition to searches
	x.read.SetMaxIdleConns(MaxSearches + 2)
	return x.load(ctx)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.ToSlash(path)
}

// prepare creates the tables of a new file and checks those of an existing one.
func (x *Index) prepare(ctx context.Context) error {
	if _, err := x.write.ExecContext(ctx, schema); err != nil {
		return err
	}
	tx, err := x.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for name, want := range map[string]string{"format": format, "model": x.config.ModelID, "dim": strconv.Itoa(x.config.Dim)} {
		if _, err := tx.ExecContext(ctx, `INSERT INTO properties (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING`, name, want); err != nil {
			return err
		}
	}
	// Files of earlier versions have no languages: their content matches language
	// and label filters only once it is indexed again.
	var languages int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_info('documents') WHERE name = 'language'`).Scan(&languages); err != nil {
		return err
	}
	if languages == 0 {
		if _, err := tx.ExecContext(ctx, `ALTER TABLE documents ADD COLUMN language TEXT NOT NULL DEFAULT ''`); err != nil {
			return err
		}
	}
	have := make(map[string]string)
	rows, err := tx.QueryContext(ctx, `SELECT name, value FROM properties`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		have[name] = value
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if have["format"] == "1" && have["model"] == x.config.ModelID && have["dim"] == strconv.Itoa(x.config.Dim) {
		if err := x.migrateWords(ctx, tx); err != nil {
			return err
		}
		have["format"] = format
	}
	if have["format"] != format && have["format"] != "1" {
		return sheaf.Fail(sheaf.CategoryPolicy, "index_format",
			"The index %s has format %s and this version writes format %s: it is being rebuilt from the artifacts.", x.config.Path, have["format"], format)
	}
	if own := x.config.Owner; own != "" && have["owner"] != own {
		if have["owner"] != "" || x.config.Existing {
			return sheaf.Fail(sheaf.CategoryPolicy, "index_foreign", "The index %s holds the chunks of another store: it is being rebuilt from the artifacts.", x.config.Path)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO properties (name, value) VALUES ('owner', ?)`, own); err != nil {
			return err
		}
	}
	if have["model"] != x.config.ModelID || have["dim"] != strconv.Itoa(x.config.Dim) {
		return sheaf.Fail(sheaf.CategoryPolicy, "index_model_mismatch",
			"The index %s holds vectors of model %q with %s values, but the configured model is %q with %d: set the model back, or rebuild the index in its place from the artifacts.",
			x.config.Path, have["model"], have["dim"], x.config.ModelID, x.config.Dim)
	}
	return tx.Commit()
}

// load reads documents, pages and vectors into memory, several runs of rows
// concurrently (measured: 100,000 chunks of 256 values in 0.3 s on two cores).
func (x *Index) load(ctx context.Context) error {
	if _, err := x.write.ExecContext(ctx, `DELETE FROM documents WHERE n NOT IN (SELECT document FROM entries)`); err != nil {
		return err
	}
	byNumber := make(map[int64]*document)
	rows, err := x.read.QueryContext(ctx, `SELECT n, tenant, dataset, id, name, media_type, metadata, language FROM documents`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n int64
		var o origin
		if err := rows.Scan(&n, &o.tenant, &o.dataset, &o.id, &o.name, &o.mediaType, &o.metadata, &o.language); err != nil {
			return err
		}
		d, err := x.newDocument(n, &o, o.key())
		if err != nil {
			return err
		}
		byNumber[n] = d
		x.documents[d.key] = d
		x.nextDocument = max(x.nextDocument, n)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var last sql.NullInt64
	if err := x.read.QueryRowContext(ctx, `SELECT max(n) FROM entries`).Scan(&last); err != nil {
		return err
	}
	if err := x.loadParts(ctx); err != nil {
		return err
	}
	x.nextRow = max(x.nextRow, last.Int64)
	if x.nextRow >= math.MaxUint32 {
		return sheaf.Fail(sheaf.CategoryCapacity, "index_full", "The index %s has used up its row numbers: delete that file and rebuild the index.", x.config.Path)
	}

	// Rows are read in parallel and added in order, so a segment's rows ascend.
	const run = 8192
	type loaded struct {
		row      uint32
		document int64
		from, to int64
		gaps     sql.NullString
		vector   []byte
	}
	workers := min(runtime.GOMAXPROCS(0), 4)
	for start := int64(0); start < x.nextRow; start += int64(run * workers) {
		parts := make([][]loaded, workers)
		var g errgroup.Group
		for w := range workers {
			g.Go(func() error {
				from := start + int64(w*run)
				rows, err := x.read.QueryContext(ctx, `SELECT n, document, page_from, page_to, gaps, vector FROM entries WHERE n > ? AND n <= ? ORDER BY n`, from, from+run)
				if err != nil {
					return err
				}
				defer func() { _ = rows.Close() }()
				for rows.Next() {
					var l loaded
					if err := rows.Scan(&l.row, &l.document, &l.from, &l.to, &l.gaps, &l.vector); err != nil {
						return err
					}
					parts[w] = append(parts[w], l)
				}
				return rows.Err()
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for _, part := range parts {
			for _, l := range part {
				d := byNumber[l.document]
				if d == nil || l.vector != nil && len(l.vector) != x.config.Dim {
					return errDamaged
				}
				s := staged{row: l.row, document: d, from: uint32(l.from), to: uint32(l.to)}
				if l.gaps.Valid && json.Unmarshal([]byte(l.gaps.String), &s.gaps) != nil {
					return errDamaged
				}
				if l.vector != nil {
					s.values = make([]int8, x.dim)
					for i, b := range l.vector {
						s.values[i] = int8(b)
					}
					s.inverse = inverseLength(s.values)
				}
				x.publish(s)
			}
		}
	}
	x.countDead()
	return nil
}

// errDamaged is a file whose parts are inconsistent.
var errDamaged = errors.New("the index is damaged")

// newDocument links a row of documents to its segment.
func (x *Index) newDocument(n int64, o *origin, key documentKey) (*document, error) {
	d := &document{key: key, n: n, id: o.id, mediaType: unique.Make(o.mediaType).Value(), language: unique.Make(o.language).Value()}
	if err := json.Unmarshal([]byte(o.metadata), &d.metadata); err != nil {
		return nil, errDamaged
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	d.segment = x.segments[o.tenant][o.dataset]
	if d.segment == nil {
		if x.segments[o.tenant] == nil {
			x.segments[o.tenant] = make(map[string]*segment)
		}
		d.segment = &segment{tenant: o.tenant, dataset: o.dataset}
		x.segments[o.tenant][o.dataset] = d.segment
	}
	return d, nil
}

// staged is a chunk to publish in memory after the commit.
type staged struct {
	row      uint32
	document *document
	from, to uint32
	gaps     []int
	values   []int8 // nil without vector
	inverse  float32
}

func (x *Index) publish(s staged) {
	e := x.directory.put(s.row)
	e.from, e.to = s.from, s.to
	if len(s.gaps) > 0 {
		x.directory.gaps.Store(s.row, s.gaps)
		e.to |= gapped
	}
	e.document.Store(s.document)
	s.document.chunks++
	x.count.Add(1)
	if s.inverse != 0 {
		s.document.segment.add(s.row, s.values, s.inverse)
	}
}

// Refresh is a no-op: a write is visible when it returns.
func (x *Index) Refresh(ctx context.Context) error {
	if x.closed() {
		return errClosed
	}
	return ctx.Err()
}

// Ping reads from the file.
func (x *Index) Ping(ctx context.Context) error {
	if x.closed() {
		return errClosed
	}
	var n int
	return x.failure(x.read.QueryRowContext(ctx, `SELECT count(*) FROM properties`).Scan(&n))
}

// Close waits for writes in progress. Later calls fail with ErrUnavailable.
func (x *Index) Close() error {
	x.closeOnce.Do(func() {
		close(x.closing)
		x.done.Wait()
		x.closeErr = x.shut()
	})
	return x.closeErr
}

func (x *Index) shut() error {
	var err error
	if x.read != nil {
		err = x.read.Close()
	}
	for _, stmt := range x.insert {
		if stmt != nil {
			err = errors.Join(err, stmt.Close())
		}
	}
	if x.write != nil {
		err = errors.Join(err, x.write.Close())
	}
	x.release()
	return err
}

var errClosed = fmt.Errorf("%w: the index is closed", sheaf.ErrUnavailable)

func (x *Index) closed() bool {
	select {
	case <-x.closing:
		return true
	default:
		return false
	}
}

// Count returns how many entries each range has.
func (x *Index) Count(ctx context.Context, tenantID string, rangeIDs []string) (map[string]int, error) {
	if x.closed() {
		return nil, errClosed
	}
	counts := make(map[string]int, len(rangeIDs))
	for part := range slices.Chunk(rangeIDs, 1000) {
		list, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		// A range belongs to one document, so one of its rows gives the tenant, and
		// the rest is counted in the index of ranges without reading rows.
		rows, err := x.read.QueryContext(ctx, `SELECT r.value, (SELECT count(*) FROM entries WHERE range_id = r.value) FROM json_each(?) r
			WHERE (SELECT d.tenant FROM entries e JOIN documents d ON d.n = e.document WHERE e.range_id = r.value LIMIT 1) = ?`, string(list), tenantID)
		if err != nil {
			return nil, x.failure(err)
		}
		for rows.Next() {
			var id string
			var n int
			if err := rows.Scan(&id, &n); err != nil {
				_ = rows.Close()
				return nil, x.failure(err)
			}
			counts[id] = n
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, x.failure(err)
		}
	}
	return counts, nil
}

// CountDocument returns how many entries a document has and how many of them
// have a vector.
func (x *Index) CountDocument(ctx context.Context, tenantID, documentID string) (chunks, vectors int, err error) {
	if x.closed() {
		return 0, 0, errClosed
	}
	err = x.read.QueryRowContext(ctx, `SELECT count(*), count(e.vector) FROM documents d JOIN entries e ON e.document = d.n WHERE d.tenant = ? AND d.id = ?`,
		tenantID, documentID).Scan(&chunks, &vectors)
	if err != nil {
		err = x.failure(err)
	}
	return chunks, vectors, err
}

// Scan pages through the file by row number, so that it holds no lock while each
// runs.
func (x *Index) Scan(ctx context.Context, tenantID string, each func(chunkID, rangeID, documentID string) bool) error {
	const pageRows = 1000
	type ids struct{ chunk, rng, document string }
	for after := int64(0); ; {
		if x.closed() {
			return errClosed
		}
		rows, err := x.read.QueryContext(ctx, `SELECT e.n, e.id, e.range_id, d.id FROM entries e JOIN documents d ON d.n = e.document
			WHERE e.n > ? AND (? = '' OR d.tenant = ?) ORDER BY e.n LIMIT ?`, after, tenantID, tenantID, pageRows)
		if err != nil {
			return x.failure(err)
		}
		var part []ids
		for rows.Next() {
			var i ids
			if err := rows.Scan(&after, &i.chunk, &i.rng, &i.document); err != nil {
				_ = rows.Close()
				return x.failure(err)
			}
			part = append(part, i)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return x.failure(err)
		}
		for _, i := range part {
			if !each(i.chunk, i.rng, i.document) {
				return nil
			}
		}
		if len(part) < pageRows {
			return nil
		}
	}
}

// failure maps an SQLite error to one of the contract.
func (x *Index) failure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, sheaf.ErrInvalid) || errors.Is(err, sheaf.ErrUnavailable) {
		return err
	}
	if x.closed() {
		return errClosed
	}
	return openFailure(x.config.Path, err)
}

// openFailure describes what is wrong with the file at path.
func openFailure(path string, err error) error {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f
	}
	code := 0
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		code = e.Code() & 0xff // without the extended part
	}
	switch {
	case errors.Is(err, errDamaged), code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		return sheaf.Fail(sheaf.CategoryInternal, "index_damaged",
			"The index %s is damaged or is not an index: delete that file (and those beside it that end in -wal and -shm) and rebuild the index from the artifacts.", path)
	case errors.Is(err, errLocked):
		return sheaf.FailRetryable(sheaf.CategoryTarget, "index_in_use",
			"The index %s is open in another process: stop that one first, or ask it over the API.", path)
	case code == sqlite3.SQLITE_FULL, code == sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: %w", sheaf.ErrReadOnly, sheaf.FailRetryable(sheaf.CategoryCapacity, "index_read_only",
			"The index %s cannot be written to (%v): free disk space or make the folder writable.", path, err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), code == sqlite3.SQLITE_CANTOPEN, code == sqlite3.SQLITE_PERM:
		return fmt.Errorf("%w: %w", sheaf.ErrReadOnly, sheaf.Fail(sheaf.CategoryTarget, "index_not_accessible",
			"The index %s cannot be opened (%v): check that its folder exists and is writable.", path, err))
	case code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_LOCKED, code == sqlite3.SQLITE_IOERR:
		return fmt.Errorf("%w: index %s: %w", sheaf.ErrUnavailable, path, err)
	}
	return fmt.Errorf("index %s: %w", path, err)
}
