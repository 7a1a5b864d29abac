package embedded

import (
	"context"
	"database/sql"
	"errors"
	"hash/crc32"
	"slices"
	"sort"
	"time"

	"sheaf/internal/index"
)

// mergeWidth is how many parts of similar size become one: a row is rewritten once
// per power of it, and a search reads at most mergeWidth parts of each size.
const mergeWidth = 8

// purgeShare bounds the time spent on rewriting parts with deleted rows while the
// index is in use: a twentieth.
const purgeShare = 20

// purgeDelay is how long a few deleted rows stay in parts: a new version deletes
// those of the previous one in several steps, and one pass handles all of them.
const purgeDelay = 2 * time.Second

var checksums = crc32.MakeTable(crc32.Castagnoli)

// queryer is a connection or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readPositions reads chunks first to last of a part's positions.
func readPositions(ctx context.Context, q queryer, part, first, last int64) ([]byte, error) {
	rows, err := q.QueryContext(ctx, `SELECT data FROM positions WHERE n BETWEEN ? AND ? ORDER BY n`, part<<16|first, part<<16|last)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []byte
	for rows.Next() {
		var b sql.RawBytes
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, rows.Err()
}

// loadParts reads all parts into memory.
func (x *Index) loadParts(ctx context.Context) error {
	rows, err := x.read.QueryContext(ctx, `SELECT n, checksum, data FROM parts ORDER BY first`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var parts []*part
	for rows.Next() {
		var n int64
		var sum uint32
		var data []byte
		if err := rows.Scan(&n, &sum, &data); err != nil {
			return err
		}
		if crc32.Checksum(data, checksums) != sum {
			return errDamaged
		}
		p, err := parsePart(n, data)
		if err != nil {
			return err
		}
		parts = append(parts, p)
		x.nextPart = max(x.nextPart, n)
		x.nextRow = max(x.nextRow, int64(p.end())-1)
	}
	x.words.Store(newWordIndex(parts))
	return rows.Err()
}

// countDead counts the deleted rows of each part at startup.
func (x *Index) countDead() {
	for _, p := range x.words.Load().parts {
		for i, code := range p.lengths[index.FieldText] {
			if code != 0 && !x.directory.alive(p.first+uint32(i)) {
				p.dead++
			}
		}
	}
}

// died counts a deleted row.
func (x *Index) died(row uint32) {
	parts := x.words.Load().parts
	i := sort.Search(len(parts), func(i int) bool { return parts[i].end() > row })
	if i < len(parts) && parts[i].first <= row {
		parts[i].dead++
	}
}

// insertPart stores a part within a transaction.
func (x *Index) insertPart(ctx context.Context, tx *sql.Tx, id int64, b *partBuilder) (*part, error) {
	data, positions := b.encode()
	if _, err := tx.ExecContext(ctx, `INSERT INTO parts (n, first, checksum, data) VALUES (?, ?, ?, ?)`, id, b.first, crc32.Checksum(data, checksums), data); err != nil {
		return nil, err
	}
	n := id << 16
	for piece := range slices.Chunk(positions, positionsBytes) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO positions (n, data) VALUES (?, ?)`, n, piece); err != nil {
			return nil, err
		}
		n++
	}
	return parsePart(id, data)
}

// maintain merges parts and removes deleted rows from them. It returns how long to
// wait before the next call, 0 for until something changes. Only the writer calls
// it. Failures are retried after the next write.
func (x *Index) maintain(ctx context.Context, all bool) time.Duration {
	for {
		parts := x.words.Load().parts
		if from, to := mergeable(parts); to > from {
			if x.rewrite(ctx, from, to) != nil {
				return 0
			}
			continue
		}
		worst := -1
		for i, p := range parts {
			if p.dead > 0 && (worst < 0 || p.dead > parts[worst].dead) {
				worst = i
			}
		}
		if worst < 0 {
			x.deadSince = time.Time{}
			return 0
		}
		if x.deadSince.IsZero() {
			x.deadSince = time.Now()
		}
		if wait := max(time.Until(x.purgeAfter), time.Until(x.deadSince.Add(purgeDelay))); wait > 0 && !all && parts[worst].dead*4 < int(parts[worst].rows) {
			return wait
		}
		begun := time.Now()
		if x.rewrite(ctx, worst, worst+1) != nil {
			return 0
		}
		x.purgeAfter = time.Now().Add(purgeShare * time.Since(begun))
	}
}

// mergeable finds mergeWidth or more adjacent parts of similar size at the end of
// the list whose total is not too large. A part larger than the others together is
// left alone: rewriting it costs more than one part less saves.
func mergeable(parts []*part) (from, to int) {
	for size := uint32(mergeWidth); size <= maxPartRows; size *= mergeWidth {
		from := len(parts)
		for from > 0 && parts[from-1].rows <= size {
			from--
		}
		for len(parts)-from >= mergeWidth {
			largest, all := from, uint32(0)
			for i := from; i < len(parts); i++ {
				if all += parts[i].rows; parts[i].rows > parts[largest].rows {
					largest = i
				}
			}
			if parts[largest].rows <= all-parts[largest].rows {
				break
			}
			from = largest + 1
		}
		if len(parts)-from < mergeWidth {
			continue
		}
		to := from + 1
		for to < len(parts) && parts[to].end()-parts[from].first <= maxPartRows {
			to++
		}
		if to-from > 1 {
			return from, to
		}
	}
	return 0, 0
}

// rewrite merges the live rows of adjacent parts into one part.
func (x *Index) rewrite(ctx context.Context, from, to int) error {
	have := x.words.Load().parts
	tx, err := x.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	b := newPartBuilder(have[from].first)
	for _, p := range have[from:to] {
		positions, err := readPositions(ctx, tx, p.id, 0, 1<<16-1)
		if err != nil {
			return err
		}
		b.merge(p, positions, x.directory.alive)
		if _, err := tx.ExecContext(ctx, `DELETE FROM positions WHERE n BETWEEN ? AND ?`, p.id<<16, p.id<<16|(1<<16-1)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM parts WHERE n = ?`, p.id); err != nil {
			return err
		}
	}
	parts := slices.Clone(have[:from])
	if len(b.lists) > 0 {
		p, err := x.insertPart(ctx, tx, x.nextPart+1, b)
		if err != nil {
			return err
		}
		parts = append(parts, p)
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	x.nextPart++
	x.words.Store(newWordIndex(append(parts, have[to:]...)))
	return nil
}

// migrateWords builds the parts of a format 1 file, whose words were in an FTS5
// table, from its chunks, and drops that table.
func (x *Index) migrateWords(ctx context.Context, tx *sql.Tx) error {
	for after := int64(0); ; {
		rows, err := tx.QueryContext(ctx, `SELECT e.n, d.name, c.json FROM entries e JOIN documents d ON d.n = e.document JOIN chunks c ON c.n = e.n
			WHERE e.n > ? AND e.n <= ? ORDER BY e.n`, after, after+maxPartRows)
		if err != nil {
			return err
		}
		var numbers []int64
		var names []string
		var texts [][]byte
		for rows.Next() {
			var n int64
			var name string
			var text []byte
			if err := errors.Join(rows.Scan(&n, &name, &text)); err != nil {
				_ = rows.Close()
				return err
			}
			numbers, names, texts = append(numbers, n), append(names, name), append(texts, text)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		analyzed := make([]index.Analyzed, len(texts))
		if err := onAllCores(len(texts), 16, func(i int) error {
			e := index.Entry{Name: names[i]}
			if err := decodeChunk(texts[i], &e.Chunk); err != nil {
				return err
			}
			analyzed[i] = e.Analyze()
			return nil
		}); err != nil {
			return err
		}
		if len(numbers) > 0 {
			b := newPartBuilder(uint32(numbers[0]))
			for i := range numbers {
				b.add(uint32(numbers[i]), &analyzed[i])
			}
			x.nextPart++
			if _, err := x.insertPart(ctx, tx, x.nextPart, b); err != nil {
				return err
			}
		}
		after += maxPartRows
		var more int
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM entries WHERE n > ?)`, after).Scan(&more); err != nil {
			return err
		}
		if more == 0 {
			break
		}
	}
	for _, q := range []string{`DROP TABLE IF EXISTS vocabulary`, `DROP TABLE IF EXISTS words`, `UPDATE properties SET value = '` + format + `' WHERE name = 'format'`} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}
