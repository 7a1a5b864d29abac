package embedded

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/index"
)

// All writes go through one goroutine. Calls that arrive during a commit are joined
// into the next one, so that many small writes take few commits. Memory is updated
// after the commit, in the same order.

// groupEntries is roughly the maximum entries per commit: more would keep the first
// caller waiting.
const groupEntries = 4096

// operation is one call of Write or Delete.
type operation struct {
	ctx        context.Context
	entries    []prepared
	concurrent int // concurrent writes of the caller
	tenant     string
	ranges     []string // to delete
	doc        string   // to delete
	done       chan error
}

// prepared is an entry prepared on the caller's goroutine, so that the writer only
// writes.
type prepared struct {
	id, rangeID string
	origin      origin
	key         documentKey
	from, to    uint32
	gaps        []int
	analyzed    index.Analyzed
	labels      []string
	json        []byte
	values      []int8
	inverse     float32
}

// Write adds entries in one transaction and returns when they are committed.
func (x *Index) Write(ctx context.Context, entries []index.Entry) error {
	if len(entries) == 0 {
		return ctx.Err()
	}
	op := &operation{ctx: ctx, entries: make([]prepared, len(entries)), concurrent: index.Concurrency(ctx), done: make(chan error, 1)}
	if err := onAllCores(len(entries), 64, func(i int) (err error) {
		op.entries[i], err = x.prepareEntry(&entries[i])
		return err
	}); err != nil {
		return err
	}
	return x.submit(ctx, op)
}

// onAllCores calls f for 0 to n-1, split over the cores in shares of at least
// least. An error ends its own share; one is returned.
func onAllCores(n, least int, f func(i int) error) error {
	var g errgroup.Group
	share := max(least, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := 0; from < n; from += share {
		g.Go(func() error {
			for i := from; i < min(from+share, n); i++ {
				if err := f(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// DeleteRanges removes the entries of the tenant's ranges.
func (x *Index) DeleteRanges(ctx context.Context, tenantID string, rangeIDs []string) error {
	for part := range slices.Chunk(rangeIDs, 1000) {
		if err := x.submit(ctx, &operation{ctx: ctx, tenant: tenantID, ranges: part, done: make(chan error, 1)}); err != nil {
			return err
		}
	}
	return nil
}

// DeleteDocument removes all entries of a document, of every generation.
func (x *Index) DeleteDocument(ctx context.Context, tenantID, documentID string) error {
	return x.submit(ctx, &operation{ctx: ctx, tenant: tenantID, doc: documentID, done: make(chan error, 1)})
}

// submit hands op to the writer and waits. If ctx ends first, the write may still
// happen.
func (x *Index) submit(ctx context.Context, op *operation) error {
	if x.closed() {
		return errClosed
	}
	select {
	case x.operations <- op:
	case <-ctx.Done():
		return ctx.Err()
	case <-x.closing:
		return errClosed
	}
	index.Waiting(ctx)
	select {
	case err := <-op.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *Index) prepareEntry(e *index.Entry) (prepared, error) {
	c := &e.Chunk
	if err := e.Validate(x.config.Dim); err != nil {
		return prepared{}, err
	}
	p := prepared{id: c.ID, rangeID: c.RangeID}
	metadata, err := json.Marshal(c.Metadata) // sorted keys: equal maps give equal text
	if err != nil {
		return prepared{}, fmt.Errorf("%w: chunk %s: %w", sheaf.ErrInvalid, c.ID, err)
	}
	p.origin = origin{e.TenantID, e.DatasetID, c.DocumentID, e.Name, e.MediaType, string(metadata), index.Label(c.Language)}
	p.key = p.origin.key()
	p.from, p.to, p.gaps = pageRun(c.Pages)
	if p.json, err = json.Marshal(c); err != nil {
		return prepared{}, fmt.Errorf("%w: chunk %s cannot be stored: %w", sheaf.ErrInvalid, c.ID, err)
	}
	p.analyzed = e.Analyze()
	for _, k := range e.Keywords() {
		p.labels = append(p.labels, keywordLabel+k)
	}
	for _, t := range e.Tags() {
		p.labels = append(p.labels, tagLabel+t)
	}
	if len(e.Vector) != 0 {
		p.values = make([]int8, x.dim)
		p.inverse = quantise(p.values, e.Vector)
	}
	return p, nil
}

// pageRun returns the first and last of pages and, if there are gaps, all of them
// in order.
func pageRun(pages []int) (from, to uint32, gaps []int) {
	if len(pages) == 0 {
		return 0, 0, nil
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(pages)))
	first, last := sorted[0], sorted[len(sorted)-1]
	if last-first+1 != len(sorted) {
		gaps = sorted
	}
	return uint32(first), uint32(last), gaps
}

// commitPause is the minimum time between two commits while a caller has more
// writes in flight: a commit costs about the same for one as for a few, and makes a
// part of the word index that has to be merged later.
const commitPause = 50 * time.Millisecond

// gather joins waiting operations to op and, within commitPause of the last commit,
// those still arriving, up to the caller's concurrency.
func (x *Index) gather(op *operation, last time.Time) []*operation {
	group, size, most := []*operation{op}, len(op.entries), op.concurrent
	var over <-chan time.Time
	if wait := commitPause - time.Since(last); wait > 0 && most > 1 {
		t := time.NewTimer(wait)
		defer t.Stop()
		over = t.C
	}
	for size < groupEntries {
		if over == nil || len(group) >= most {
			select {
			case op = <-x.operations:
			default:
				return group
			}
		} else {
			select {
			case op = <-x.operations:
			case <-over:
				over = nil
				continue
			case <-x.closing:
				return group
			}
		}
		group = append(group, op)
		size += len(op.entries)
		most = min(most, op.concurrent)
	}
	return group
}

func (x *Index) writeLoop() {
	var last time.Time // of the last commit
	var purge <-chan time.Time
	maintain := func() {
		purge = nil
		if wait := x.maintain(context.Background(), false); wait > 0 {
			purge = time.After(wait)
		}
	}
	maintain()
	for {
		var op *operation
		select {
		case op = <-x.operations:
		case <-purge:
			maintain()
			continue
		case <-x.closing:
			x.maintain(context.Background(), true)
			for { // fail everything still waiting
				select {
				case op := <-x.operations:
					op.done <- errClosed
				default:
					return
				}
			}
		}
		group := x.gather(op, last)
		err := x.commit(group)
		last = time.Now()
		if err != nil && len(group) > 1 {
			// One call must not fail because of another.
			for _, op := range group {
				op.done <- x.failure(x.commit([]*operation{op}))
			}
		} else {
			for _, op := range group {
				op.done <- x.failure(err)
			}
		}
		maintain()
	}
}

// transaction collects the memory changes to make after the commit.
type transaction struct {
	*sql.Tx
	index     *Index
	documents map[documentKey]*document
	gone      map[int64]bool // rows of documents it has deleted
	changes   []func()
	words     *partBuilder // of rows not yet stored; may be nil
	parts     []*part      // stored
	row, doc  int64
	part      int64 // the last one
	insert    [len(inserts)]*sql.Stmt
}

// inserts are the writer's prepared statements.
var inserts = [...]string{
	insertDocument: `INSERT INTO documents (n, tenant, dataset, id, name, media_type, metadata, language) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
	insertEntry:    `INSERT INTO entries (n, document, page_from, page_to, gaps, vector, range_id, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
	insertChunk:    `INSERT INTO chunks (n, json) VALUES (?, ?)`,
	insertLabel:    `INSERT INTO labels (label, n) VALUES (?, ?)`,
}

const (
	insertDocument = iota
	insertEntry
	insertChunk
	insertLabel
)

func (x *Index) commit(group []*operation) error {
	// Not the callers' contexts: a commit serves several of them.
	ctx := context.Background()
	tx, err := x.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	t := &transaction{Tx: tx, index: x, documents: make(map[documentKey]*document), gone: map[int64]bool{}, row: x.nextRow, doc: x.nextDocument, part: x.nextPart}
	defer func() { _ = tx.Rollback() }()
	for i, stmt := range x.insert {
		t.insert[i] = tx.StmtContext(ctx, stmt)
		defer func() { _ = t.insert[i].Close() }()
	}
	for _, op := range group {
		if op.ctx.Err() != nil {
			continue // its caller is gone; nothing of it is written yet
		}
		for i := range op.entries {
			if err := t.add(ctx, &op.entries[i]); err != nil {
				return err
			}
		}
		if op.tenant != "" {
			if err := t.delete(ctx, op); err != nil {
				return err
			}
		}
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	x.nextRow, x.nextDocument, x.nextPart = t.row, t.doc, t.part
	x.mu.Lock()
	for k, d := range t.documents {
		x.documents[k] = d
	}
	x.mu.Unlock()
	if len(t.parts) > 0 {
		x.words.Store(newWordIndex(append(slices.Clone(x.words.Load().parts), t.parts...)))
	}
	for _, change := range t.changes {
		change()
	}
	return nil
}

// flush stores the postings of the added rows.
func (t *transaction) flush(ctx context.Context) error {
	if t.words == nil {
		return nil
	}
	t.part++
	p, err := t.index.insertPart(ctx, t.Tx, t.part, t.words)
	if err != nil {
		return err
	}
	t.words, t.parts = nil, append(t.parts, p)
	return nil
}

func (t *transaction) add(ctx context.Context, p *prepared) error {
	x := t.index
	d, err := t.document(ctx, &p.origin, p.key)
	if err != nil {
		return err
	}
	if t.row+1 >= math.MaxUint32 {
		return sheaf.Fail(sheaf.CategoryCapacity, "index_full", "The index %s has used up its row numbers: delete that file and rebuild the index.", x.config.Path)
	}
	var gaps, vector any
	if p.gaps != nil {
		list, err := json.Marshal(p.gaps)
		if err != nil {
			return err
		}
		gaps = string(list)
	}
	if p.inverse != 0 {
		b := make([]byte, x.config.Dim)
		for i := range b {
			b[i] = byte(p.values[i])
		}
		vector = b
	}
	res, err := t.insert[insertEntry].ExecContext(ctx, t.row+1, d.n, p.from, p.to, gaps, vector, p.rangeID, p.id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // it exists already
	}
	t.row++
	if _, err := t.insert[insertChunk].ExecContext(ctx, t.row, p.json); err != nil {
		return err
	}
	if t.words == nil {
		t.words = newPartBuilder(uint32(t.row))
	}
	t.words.add(uint32(t.row), &p.analyzed)
	if t.words.rows == maxPartRows {
		if err := t.flush(ctx); err != nil {
			return err
		}
	}
	for _, l := range p.labels {
		if _, err := t.insert[insertLabel].ExecContext(ctx, l, t.row); err != nil {
			return err
		}
	}
	s := staged{row: uint32(t.row), document: d, from: p.from, to: p.to, gaps: p.gaps, values: p.values, inverse: p.inverse}
	t.changes = append(t.changes, func() { x.publish(s) })
	return nil
}

// document finds or creates the row of documents.
func (t *transaction) document(ctx context.Context, o *origin, k documentKey) (*document, error) {
	if d := t.documents[k]; d != nil && !t.gone[d.n] {
		return d, nil
	}
	if d := t.index.documents[k]; d != nil && !t.gone[d.n] { // only the writer modifies the map
		return d, nil
	}
	t.doc++
	if _, err := t.insert[insertDocument].ExecContext(ctx, t.doc, o.tenant, o.dataset, o.id, o.name, o.mediaType, o.metadata, o.language); err != nil {
		return nil, err
	}
	d, err := t.index.newDocument(t.doc, o, k)
	if err != nil {
		return nil, err
	}
	t.documents[k] = d
	return d, nil
}

func (t *transaction) delete(ctx context.Context, op *operation) error {
	where, arg := `d.tenant = ? AND d.id = ?`, op.doc
	if op.ranges != nil {
		list, err := json.Marshal(op.ranges)
		if err != nil {
			return err
		}
		where, arg = `d.tenant = ? AND e.range_id IN (SELECT value FROM json_each(?))`, string(list)
	}
	rows, err := t.QueryContext(ctx, `SELECT e.n, e.document FROM entries e JOIN documents d ON d.n = e.document WHERE `+where, op.tenant, arg)
	if err != nil {
		return err
	}
	var gone []int64
	of := map[int64]bool{} // the documents they belong to
	for rows.Next() {
		var n, doc int64
		if err := rows.Scan(&n, &doc); err != nil {
			_ = rows.Close()
			return err
		}
		gone = append(gone, n)
		of[doc] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if len(gone) == 0 && op.ranges != nil {
		return nil
	}
	list, err := json.Marshal(gone)
	if err != nil {
		return err
	}
	for _, q := range []string{
		`DELETE FROM labels WHERE n IN (SELECT value FROM json_each(?))`,
		`DELETE FROM chunks WHERE n IN (SELECT value FROM json_each(?))`,
		`DELETE FROM entries WHERE n IN (SELECT value FROM json_each(?))`,
	} {
		if _, err := t.ExecContext(ctx, q, string(list)); err != nil {
			return err
		}
	}
	if err := t.deleteEmpty(ctx, op, of); err != nil {
		return err
	}
	t.changes = append(t.changes, func() {
		for _, n := range gone {
			t.index.retract(uint32(n))
		}
	})
	return nil
}

// deleteEmpty removes document rows without entries: among the given ones, and all
// of the document that op deletes. Their names and metadata must not stay in the
// file.
func (t *transaction) deleteEmpty(ctx context.Context, op *operation, of map[int64]bool) error {
	list, err := json.Marshal(slices.Collect(maps.Keys(of)))
	if err != nil {
		return err
	}
	rows, err := t.QueryContext(ctx, `DELETE FROM documents WHERE (n IN (SELECT value FROM json_each(?)) OR tenant = ? AND id = ?)
		AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.document = documents.n) RETURNING n`, string(list), op.tenant, op.doc)
	if err != nil {
		return err
	}
	unknown := false // one without entries, which no entry removes from memory
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			_ = rows.Close()
			return err
		}
		t.gone[n] = true
		unknown = unknown || !of[n]
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !unknown {
		return err
	}
	t.changes = append(t.changes, func() {
		x := t.index
		x.mu.Lock()
		defer x.mu.Unlock()
		maps.DeleteFunc(x.documents, func(_ documentKey, d *document) bool { return t.gone[d.n] && d.chunks == 0 })
	})
	return nil
}

// retract removes a deleted chunk from memory, and its document with the last one.
func (x *Index) retract(row uint32) {
	e := x.directory.at(row)
	if e == nil {
		return
	}
	d := e.document.Swap(nil)
	if d == nil {
		return
	}
	x.died(row)
	x.directory.gaps.Delete(row)
	x.count.Add(-1)
	if d.chunks--; d.chunks == 0 {
		x.mu.Lock()
		if x.documents[d.key] == d {
			delete(x.documents, d.key)
		}
		x.mu.Unlock()
	}
	d.segment.forget(x.directory.alive)
}
