package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/internal/index/indextest"
)

func open(t testing.TB, path string) *embedded.Index {
	t.Helper()
	x, err := embedded.Open(t.Context(), embedded.Config{Path: path, ModelID: "test@1", Dim: indextest.Dim})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func TestContract(t *testing.T) {
	paths := make(map[index.Index]string)
	indextest.Run(t, indextest.Engine{
		New: func(t *testing.T) index.Index {
			path := filepath.Join(t.TempDir(), "a folder with spaces ü?#%", "index.db")
			x := open(t, path)
			paths[x] = path
			return x
		},
		Reopen: func(t *testing.T, x index.Index) index.Index {
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, paths[x])
		},
	})
}

func entries(doc string, n int) []index.Entry {
	var all []index.Entry
	for i := range n {
		all = append(all, index.Entry{
			Chunk:    sheaf.Chunk{ID: fmt.Sprintf("%s-%d", doc, i), RangeID: doc + "-r", DocumentID: doc, Text: fmt.Sprintf("paragraph %d of %s", i, doc), Pages: []int{1}},
			TenantID: "t", DatasetID: "d", Vector: indextest.Vector(uint64(i)),
		})
	}
	return all
}

// A file that was made before chunks had labels takes those of new chunks, and
// keeps what it has.
func TestFileWithoutLabelsGetsThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := open(t, path)
	if err := x.Write(t.Context(), entries("old", 3)); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`DROP TABLE labels`, `ALTER TABLE documents DROP COLUMN language`} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	x = open(t, path)
	next := entries("next", 1)
	next[0].Chunk.Language, next[0].Chunk.Keywords = "en", []string{"Valve"}
	if err := x.Write(t.Context(), append(next, entries("old", 1)...)); err != nil {
		t.Fatal(err)
	}
	for n, q := range map[int]index.Query{4: {}, 1: {Languages: []string{"en"}, Keywords: []string{"valve"}}} {
		q.TenantID, q.Text, q.K = "t", "paragraph", 10
		if got, err := x.Search(t.Context(), q); err != nil || len(got.Text) != n {
			t.Errorf("%+v: %d hits, %v, want %d", q, len(got.Text), err, n)
		}
	}
}

// A file of format 1 had its words in a table of FTS5: they are found, and
// exact phrases too, after it was opened.
func TestFileOfFormat1IsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := open(t, path)
	all := entries("old", 20)
	for i := range all {
		all[i].Name = "Yearbook.pdf"
	}
	if err := errors.Join(x.Write(t.Context(), all), x.DeleteRanges(t.Context(), "t", []string{"none"}), x.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`DROP TABLE parts`, `DROP TABLE positions`, `UPDATE properties SET value = '1' WHERE name = 'format'`, `DELETE FROM entries WHERE n < 4`,
		`CREATE VIRTUAL TABLE words USING fts5 (body, content='', contentless_delete=1, tokenize='ascii')`, `CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'row')`} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		x = open(t, path)
		for q, n := range map[string]int{"yearbook": 17, `"paragraph 7 of"`: 1, `"of paragraph"`: 0} {
			if got, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: q, K: 100}); err != nil || len(got.Text) != n {
				t.Errorf("%s: %d hits, %v, want %d", q, len(got.Text), err, n)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func failure(t *testing.T, err error, code string) *sheaf.Failure {
	t.Helper()
	f, ok := errors.AsType[*sheaf.Failure](err)
	if !ok || f.Code != code {
		t.Fatalf("error %v, want failure %s", err, code)
	}
	if !strings.HasSuffix(f.Message, ".") {
		t.Errorf("%q is no sentence", f.Message)
	}
	return f
}

func TestIndexOfAnotherModelIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []embedded.Config{
		{Path: path, ModelID: "other@1", Dim: indextest.Dim},
		{Path: path, ModelID: "test@1", Dim: indextest.Dim + 1},
		{Path: path},
	} {
		_, err := embedded.Open(t.Context(), c)
		if f := failure(t, err, "index_model_mismatch"); !strings.Contains(f.Message, "rebuild") || !strings.Contains(f.Message, path) || f.Retryable {
			t.Errorf("failure %+v does not say what to do", f)
		}
	}
	open(t, path) // the refusals did no harm
}

func TestAnIndexIsOpenedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := open(t, path)
	_, err := embedded.Open(t.Context(), embedded.Config{Path: path, ModelID: "test@1", Dim: indextest.Dim})
	failure(t, err, "index_in_use")
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if err := x.Write(t.Context(), entries("a", 1)); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a write after the end: %v", err)
	}
	if _, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "x", K: 1}); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a search after the end: %v", err)
	}
	open(t, path)
}

func TestWhatIsNoIndexIsRefused(t *testing.T) {
	dir := t.TempDir()
	noise := filepath.Join(dir, "noise.db")
	if err := os.WriteFile(noise, bytes.Repeat([]byte("no database\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	config := embedded.Config{Path: noise, ModelID: "test@1", Dim: indextest.Dim}
	_, err := embedded.Open(t.Context(), config)
	failure(t, err, "index_damaged")

	config.Path = filepath.Join(noise, "below-a-file", "index.db")
	if _, err = embedded.Open(t.Context(), config); err == nil {
		t.Error("a folder below a file was made")
	}
	config.Path = dir // a folder
	_, err = embedded.Open(t.Context(), config)
	failure(t, err, "index_not_accessible")

	truncated := filepath.Join(dir, "truncated.db")
	x := open(t, truncated)
	if err := errors.Join(x.Write(t.Context(), entries("a", 2000)), x.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(truncated, 40000); err != nil {
		t.Fatal(err)
	}
	config.Path = truncated
	_, err = embedded.Open(t.Context(), config)
	failure(t, err, "index_damaged")
}

func TestIndexWithoutVectors(t *testing.T) {
	x, err := embedded.Open(t.Context(), embedded.Config{Path: filepath.Join(t.TempDir(), "index.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Close() }()
	e := entries("a", 1)
	if err := x.Write(t.Context(), e); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("a vector was taken: %v", err)
	}
	e[0].Vector = nil
	if err := x.Write(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if c, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "paragraph", K: 5}); err != nil || len(c.Text) != 1 {
		t.Errorf("found %v, %v", c.Text, err)
	}
}

// TestKilledWriterLosesNothingAcknowledged kills a process that writes and
// looks whether every document it reported is whole, and no other is in parts.
func TestKilledWriterLosesNothingAcknowledged(t *testing.T) {
	if path := os.Getenv("EMBEDDED_TEST_WRITER"); path != "" {
		x := open(t, path)
		for i := 0; ; i++ {
			doc := fmt.Sprintf("doc%s-%d", os.Getenv("EMBEDDED_TEST_ROUND"), i)
			if err := x.Write(t.Context(), entries(doc, 8)); err != nil {
				t.Fatal(err)
			}
			fmt.Println("WROTE", doc)
		}
	}
	path := filepath.Join(t.TempDir(), "index.db")
	acknowledged := make(map[string]bool)
	for round := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledWriterLosesNothingAcknowledged$")
		cmd.Env = append(os.Environ(), "EMBEDDED_TEST_WRITER="+path, fmt.Sprintf("EMBEDDED_TEST_ROUND=%d", round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 60+20*round && lines.Scan(); {
			if doc, ok := strings.CutPrefix(lines.Text(), "WROTE "); ok {
				acknowledged[doc] = true
				n++
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what was acknowledged until the end
			if doc, ok := strings.CutPrefix(lines.Text(), "WROTE "); ok {
				acknowledged[doc] = true
			}
		}
		_ = cmd.Wait()

		x := open(t, path)
		found := make(map[string]int)
		if err := x.Scan(t.Context(), "t", func(_, _, doc string) bool { found[doc]++; return true }); err != nil {
			t.Fatal(err)
		}
		for doc := range acknowledged {
			if found[doc] != 8 {
				t.Errorf("round %d: %d of 8 chunks of %s are left", round, found[doc], doc)
			}
		}
		for doc, n := range found {
			if n != 8 {
				t.Errorf("round %d: half a document: %d chunks of %s", round, n, doc)
			}
		}
		c, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "paragraph", Vector: indextest.Vector(3), K: 1000, DocumentIDs: []string{"doc0-0"}})
		if err != nil || len(c.Text) != 8 || len(c.Vector) != 8 {
			t.Errorf("round %d: %d and %d hits, %v", round, len(c.Text), len(c.Vector), err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acknowledged) < 180 {
		t.Errorf("the writers acknowledged %d documents only", len(acknowledged))
	}
}

// BenchmarkSmallWrites reports how many one-document writes of eight chunks a
// second are committed, from one caller and from many.
func BenchmarkSmallWrites(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			x := open(b, filepath.Join(b.TempDir(), "index.db"))
			var n atomic.Int64
			b.SetParallelism(callers)
			if callers == 1 {
				for b.Loop() {
					if err := x.Write(b.Context(), entries(fmt.Sprint("doc", n.Add(1)), 8)); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := x.Write(context.Background(), entries(fmt.Sprint("doc", n.Add(1)), 8)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "documents/s")
		})
	}
}

// What a deleted document was called and said is in no row of the file, also
// while the index stays open.
func TestDeletedDocumentLeavesNothingBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := open(t, path)
	for range 3 {
		kept, gone := entries("kept", 3), entries("gone", 3)
		for i := range gone {
			gone[i].Name = "secretname.pdf"
			gone[i].Chunk.Text = "unspeakable"
			gone[i].Chunk.Metadata = map[string]string{"title": "hushed"}
			gone[i].Chunk.Keywords = []string{"whispered"}
		}
		again := gone[:1:1]
		if err := x.Write(t.Context(), append(kept, gone...)); err != nil {
			t.Fatal(err)
		}
		again[0].Name = "secretname, renamed.pdf" // a document without an entry of its own
		if err := x.Write(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if err := x.DeleteDocument(t.Context(), "t", "gone"); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Write(t.Context(), entries("gone", 2)); err != nil {
		t.Fatal(err)
	}
	if chunks, _, err := x.CountDocument(t.Context(), "t", "gone"); err != nil || chunks != 2 {
		t.Fatalf("a document that came back has %d chunks: %v", chunks, err)
	}
	c, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "paragraph", DocumentIDs: []string{"gone"}, K: 10})
	if err != nil || len(c.Text) != 2 {
		t.Fatalf("%d hits in a document that came back, want 2: %v", len(c.Text), err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, word := range []string{"secretname", "unspeakable", "hushed", "whispered"} {
		for table, column := range map[string]string{"documents": "name || metadata", "chunks": "CAST(json AS TEXT)", "labels": "label", "parts": "data"} {
			var n int
			query := "SELECT count(*) FROM " + table + " WHERE instr(CAST(" + column + " AS BLOB), CAST(? AS BLOB)) > 0"
			for deadline := time.Now().Add(30 * time.Second); ; {
				if err := db.QueryRowContext(t.Context(), query, word).Scan(&n); err != nil {
					t.Fatal(err)
				}
				if n == 0 || table != "parts" || time.Now().After(deadline) {
					break // parts are rewritten when the writer has nothing else to do
				}
				time.Sleep(10 * time.Millisecond)
			}
			if n > 0 {
				t.Errorf("%q is in %d rows of %s", word, n, table)
			}
		}
	}
}
