package embedded

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/index"
)

// written is what a model of the index holds.
type written struct {
	entry  index.Entry
	fields [index.Fields]map[string][]int // positions of each term
	length [index.Fields]int
}

func analyzed(e index.Entry) written {
	w := written{entry: e}
	for f, values := range e.Analyze() {
		w.fields[f] = make(map[string][]int)
		position := 0
		for i, v := range values {
			if i > 0 {
				position += index.ValueGap
			}
			for _, term := range strings.Fields(v) {
				w.fields[f][term] = append(w.fields[f][term], position)
				position++
				w.length[f]++
			}
		}
	}
	return w
}

func (w *written) hasPhrase(terms []string) bool {
	for _, field := range w.fields {
		for _, start := range field[terms[0]] {
			all := true
			for i, t := range terms {
				all = all && slices.Contains(field[t], start+i)
			}
			if all {
				return true
			}
		}
	}
	return false
}

// score is BM25 over all fields, with the frequencies that the index has.
func (w *written) score(stats *wordIndex, words index.Words) float64 {
	sum := 0.0
	for _, t := range words.Terms {
		for f := range index.Field(index.Fields) {
			if t.Name && f != index.FieldName {
				continue
			}
			if t.Prefix {
				for term := range w.fields[f] {
					if strings.HasPrefix(term, t.Text) {
						sum += index.Weights[f] * t.Weight
						break
					}
				}
				continue
			}
			times := float64(len(w.fields[f][t.Text]))
			if times == 0 {
				continue
			}
			rows := 0
			for _, p := range stats.parts {
				rows += p.lookup(f, t).rows
			}
			average := float64(stats.stats[f].terms) / float64(stats.stats[f].rows)
			length := float64(index.Length(index.LengthCode(w.length[f])))
			sum += index.Weights[f] * t.Weight * index.IDF(rows, stats.stats[f].rows) * (index.K1 + 1) * times / (times + index.K1*(1-index.B+index.B*length/average))
		}
	}
	return sum
}

// The k best by words are those of scoring every chunk, whatever was written,
// deleted, merged, and reopened before.
func TestWordsAreRankedExactly(t *testing.T) {
	vocabulary := strings.Fields(`alpha beta gamma delta the Report FY2018 2018 cash-flow Coca-Cola COCACOLA X-200 flows 密码 设置 straße e`)
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(tempDir(t), "index.db")
		open := func() *Index {
			x, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		x := open()
		defer func() { _ = x.Close() }()
		model := make(map[string]written)
		text := func(label string, most int) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, most).Draw(t, label), " ")
		}
		check := func(purged bool) {
			query := text("query", 5)
			if rapid.IntRange(0, 3).Draw(t, "quoted") == 0 {
				query += ` "` + text("phrase", 3) + `"`
			}
			q := index.Query{TenantID: "t", Text: query, K: rapid.IntRange(1, 30).Draw(t, "k")}
			if rapid.Bool().Draw(t, "filtered") {
				q.DocumentIDs = []string{"doc1", "doc2"}
			}
			words := index.ParseWords(query)
			var at *wordIndex
			var want []float64
			var scores map[string]float64
			var got index.Candidates
			for at != x.words.Load() { // deleted rows are taken out at any time
				at, want, scores = x.words.Load(), nil, make(map[string]float64)
				for id, w := range model {
					if q.DocumentIDs != nil && !slices.Contains(q.DocumentIDs, w.entry.Chunk.DocumentID) {
						continue
					}
					if slices.ContainsFunc(words.Groups, func(g index.Group) bool { return g.Quoted && !g.Prefix && !w.hasPhrase(g.Terms) }) {
						continue
					}
					if s := w.score(at, words); s > 0 {
						scores[id] = s
						want = append(want, s)
					}
				}
				slices.SortFunc(want, func(a, b float64) int { return cmp.Compare(b, a) })
				want = want[:min(len(want), q.K)]
				var err error
				if got, err = x.Search(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			if len(got.Text) != len(want) {
				t.Fatalf("%q: %d hits, want %d", query, len(got.Text), len(want))
			}
			for i, h := range got.Text {
				if math.Abs(h.Score-want[i]) > 1e-4*want[i] || math.Abs(h.Score-scores[h.Chunk.ID]) > 1e-4*want[i] {
					t.Fatalf("%q: hit %d is %s with %g, which scores %g; want %g", query, i, h.Chunk.ID, h.Score, scores[h.Chunk.ID], want[i])
				}
			}
			if !purged {
				return
			}
			var living [index.Fields]fieldStats
			for _, w := range model {
				for f, n := range w.length {
					if n > 0 {
						living[f].rows++
						living[f].terms += n
					}
				}
			}
			if have := x.words.Load().stats; have != living {
				t.Fatalf("statistics %v, want %v", have, living)
			}
		}
		next := 0
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step < 6:
				var batch []index.Entry
				for range rapid.IntRange(1, 12).Draw(t, "chunks") {
					doc := fmt.Sprint("doc", rapid.IntRange(0, 5).Draw(t, "document"))
					e := index.Entry{TenantID: "t", DatasetID: "d", Name: text("name", 2), Chunk: sheaf.Chunk{
						ID: fmt.Sprint("chunk", next), RangeID: fmt.Sprint(doc, "-r", next%3), DocumentID: doc, Text: text("text", 60), HeadingPath: []string{text("heading", 2)}}}
					next++
					batch = append(batch, e)
					model[e.Chunk.ID] = analyzed(e)
				}
				if err := x.Write(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
			case step < 8:
				doc := fmt.Sprint("doc", rapid.IntRange(0, 5).Draw(t, "deleted"))
				if err := x.DeleteDocument(t.Context(), "t", doc); err != nil {
					t.Fatal(err)
				}
				for id, w := range model {
					if w.entry.Chunk.DocumentID == doc {
						delete(model, id)
					}
				}
			default:
				check(false)
				if err := x.Close(); err != nil { // takes deleted rows out
					t.Fatal(err)
				}
				x = open()
				check(true)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		x = open()
		for range 5 {
			check(true)
		}
	})
}

func tempDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "words-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
