package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
)

// corpus makes chunks with the statistics of documentation: word frequencies
// fall by rank (Zipf), a document keeps to its topic's words, chunks are 80 to
// 240 words long.
type corpus struct {
	words []string
	r     *rand.Rand
	zipf  *rand.Zipf
}

func newCorpus() *corpus {
	c := &corpus{r: rand.New(rand.NewPCG(1, 2))}
	common := strings.Fields(`the of to a and in is for that on with as this be by are or from it an can you not if when which at
		will file data use value set system default name type error user server option number list table page function`)
	c.words = append(c.words, common...)
	starts := strings.Fields("con re in de pro com dis per sub ex trans inter pre over under out en ad un ob sur syn ana hyper")
	middles := strings.Fields("fig struct nect duc ser vol tain form press port script spec tract vert mit ject pel cap grad mov sist tend fer clud tribut pos lat")
	ends := strings.Fields("ure ion or er ing ed able ment ive al ous ance ity ate ize s ology ator ent ance")
	seen := make(map[string]bool)
	for len(c.words) < 60000 {
		w := starts[c.r.IntN(len(starts))] + middles[c.r.IntN(len(middles))]
		if c.r.IntN(2) == 0 {
			w += middles[c.r.IntN(len(middles))]
		}
		w += ends[c.r.IntN(len(ends))]
		if c.r.IntN(3) == 0 {
			w += fmt.Sprint(c.r.IntN(100))
		}
		if !seen[w] {
			seen[w] = true
			c.words = append(c.words, w)
		}
	}
	c.zipf = rand.NewZipf(c.r, 1.07, 3, uint64(len(c.words)-1))
	return c
}

func (c *corpus) text(topic []string) string {
	var b strings.Builder
	for range 80 + c.r.IntN(160) {
		if c.r.IntN(4) == 0 {
			b.WriteString(topic[c.r.IntN(len(topic))])
		} else {
			b.WriteString(c.words[c.zipf.Uint64()])
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func (c *corpus) topic() []string {
	t := make([]string, 30)
	for i := range t {
		t[i] = c.words[40+c.r.IntN(len(c.words)-40)]
	}
	return t
}

// query is like what people type: two to six words, of which half are of a
// topic, some are common and some are glue.
func (c *corpus) query(topic []string) string {
	q := []string{"how", "do", "i"}[:c.r.IntN(4)]
	q = slices.Clone(q)
	for range 1 + c.r.IntN(3) {
		q = append(q, topic[c.r.IntN(len(topic))])
	}
	for range 1 + c.r.IntN(3) {
		q = append(q, c.words[c.zipf.Uint64()])
	}
	return strings.Join(q, " ")
}

// BenchmarkSearch100k reports how fast 100,000 chunks are written, loaded and
// searched. Run it with -benchtime 1000x or more.
func BenchmarkSearch100k(b *testing.B) {
	if testing.Short() {
		b.Skip("100,000 chunks are too many for -short")
	}
	const documents, each = 12500, 8
	path := filepath.Join(b.TempDir(), "index.db")
	model := static.Default()
	open := func() *embedded.Index {
		x, err := embedded.Open(b.Context(), embedded.Config{Path: path, ModelID: model.Model().ID, Dim: model.Model().Dim})
		if err != nil {
			b.Fatal(err)
		}
		return x
	}
	x := open()
	c := newCorpus()
	var topics [][]string
	var spent time.Duration
	for d := 0; d < documents; {
		var batch []index.Entry
		var texts []string
		for ; len(batch) < 1000; d++ {
			topic := c.topic()
			topics = append(topics, topic)
			rng := fmt.Sprintf("%032x", d)
			for n := range each {
				t := c.text(topic)
				texts = append(texts, t)
				batch = append(batch, index.Entry{
					Chunk: sheaf.Chunk{ID: sheaf.ChunkID(rng, n), RangeID: rng, DocumentID: fmt.Sprintf("doc%d", d), Generation: 1, Ordinal: n, Kind: sheaf.ChunkText,
						Text: t, Tokens: 200, Pages: []int{n + 1}, Boxes: []sheaf.Box{{Page: n + 1, X0: 72, Y0: 90, X1: 523, Y1: 410}}, HeadingPath: []string{topic[0], topic[1]}},
					TenantID: "local", DatasetID: fmt.Sprintf("set%d", d%5), Name: topic[2] + ".pdf", MediaType: "application/pdf",
				})
			}
		}
		vectors, err := model.Embed(b.Context(), texts, embed.Passage)
		if err != nil {
			b.Fatal(err)
		}
		for i := range batch {
			batch[i].Vector = vectors[i]
		}
		start := time.Now()
		if err := x.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		spent += time.Since(start)
	}
	written := float64(documents*each) / spent.Seconds()
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	queries := make([]index.Query, 500)
	for i := range queries {
		queries[i] = index.Query{TenantID: "local", K: 100, Text: c.query(topics[c.r.IntN(len(topics))])}
		v, err := model.Embed(b.Context(), []string{queries[i].Text}, embed.Query)
		if err != nil {
			b.Fatal(err)
		}
		queries[i].Vector = v[0]
	}
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	before := heap()
	start := time.Now()
	x = open()
	defer func() { _ = x.Close() }()
	if _, err := x.Search(b.Context(), queries[0]); err != nil {
		b.Fatal(err)
	}
	cold := time.Since(start)
	held := heap() - before

	run := func(name string, change func(index.Query) index.Query) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				q := change(queries[i%len(queries)])
				start := time.Now()
				if _, err := x.Search(context.Background(), q); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(took[len(took)*95/100].Seconds()*1e3, "p95-ms")
			if name == "hybrid" {
				b.ReportMetric(written, "chunks/s-written")
				b.ReportMetric(cold.Seconds()*1e3, "cold-ms")
				b.ReportMetric(held, "MB-held")
				b.ReportMetric(float64(info.Size())/1e6, "MB-file")
			}
		})
	}
	run("hybrid", func(q index.Query) index.Query { return q })
	run("words", func(q index.Query) index.Query { q.Vector = nil; return q })
	run("meaning", func(q index.Query) index.Query { q.Text = ""; return q })
	run("dataset", func(q index.Query) index.Query { q.DatasetIDs = []string{"set3"}; return q })
	run("document", func(q index.Query) index.Query { q.DocumentIDs = []string{"doc77"}; return q })
}
