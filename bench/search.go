package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/internal/search"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// The searched collection: 500 documents of 20 ranges of 10 chunks.
const (
	searchDocuments = 500
	searchRanges    = 20
	searchEach      = 10
)

// search fills the store and the index of a data folder with 100,000 chunks and
// sends typical queries to the real service, over HTTP.
func (b *bench) search(ctx context.Context) error {
	data := filepath.Join(b.tmp, "search")
	queries, err := fill(ctx, data)
	if err != nil {
		return fmt.Errorf("filling the collection: %w", err)
	}
	begun := time.Now()
	s, err := b.start(ctx, data)
	if err != nil {
		return err
	}
	defer s.discard()
	ask := func(query string) (int, error) {
		var answer search.Response
		err := s.call(ctx, http.MethodPost, "/v1/search", search.Request{Query: query, Limit: 10}, &answer)
		return len(answer.Hits), err
	}
	if n, err := ask(queries[0]); err != nil || n == 0 {
		return fmt.Errorf("the first search found %d chunks: %w", n, err)
	}
	cold := time.Since(begun)

	for _, q := range queries[:50] { // warm up connections and caches
		if _, err := ask(q); err != nil {
			return err
		}
	}
	var took []time.Duration
	cpu, empty := cpuTime(s.pid()), 0
	for _, q := range queries {
		begun := time.Now()
		n, err := ask(q)
		if err != nil {
			return err
		}
		if n == 0 {
			empty++
		}
		took = append(took, time.Since(begun))
	}
	cpu = cpuTime(s.pid()) - cpu
	note := fmt.Sprintf("%d hybrid searches over %d chunks by HTTP, %d without a hit, load %s", len(took), searchDocuments*searchRanges*searchEach, empty, load())
	b.atMost("search.p50", quantile(took, 0.5).Seconds()*1e3, "ms", 15, note)
	b.atMost("search.p95", quantile(took, 0.95).Seconds()*1e3, "ms", 40, "")
	b.atMost("search.cold", cold.Seconds(), "s", 1, "from starting the service to its first answer")
	b.tell("search.cpu", cpu.Seconds()/float64(len(took))*1e3, "CPU-ms/search", "")
	b.tell("search.memory", megabytes(resident(tree(s.pid())...)), "MB", "the service with the collection loaded")
	return nil
}

// fill writes the collection as executors would have and returns 1,000 queries.
func fill(ctx context.Context, data string) (queries []string, err error) {
	store, err := openStore(ctx, sqlstore.Config{Driver: "sqlite", DSN: filepath.Join(data, "sheaf.db")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: sheaf.LocalTenant, Name: "Local", Weight: 1, Cap: 8}); err != nil {
		return nil, err
	}
	const dataset = "ds-bench"
	if _, err := store.CreateDataset(ctx, sheaf.Dataset{ID: dataset, TenantID: sheaf.LocalTenant, Name: "default"}); err != nil {
		return nil, err
	}
	model := static.Default()
	ix, err := embedded.Open(ctx, embedded.Config{Path: filepath.Join(data, "index.db"), ModelID: model.Model().ID, Dim: model.Model().Dim})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()

	w := newWriter()
	var topics [][]string
	for range searchDocuments {
		doc := sheaf.Document{ID: sheaf.NewID(), DatasetID: dataset, MediaType: pdfType, Size: 1}
		topic := w.topic()
		topics = append(topics, topic)
		doc.Name, doc.SHA256, doc.BlobKey = topic[0]+".pdf", doc.ID+doc.ID, "originals/"+doc.ID
		plan := sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1}
		if _, err := store.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, DatasetID: dataset, Kind: sheaf.JobIngest}, []taskstore.NewDocument{{Document: doc, Plan: plan}}, ""); err != nil {
			return nil, err
		}
		var spawn []sheaf.NewTask
		var entries []index.Entry
		var texts []string
		for r := range searchRanges {
			id := sheaf.NewID()
			at := sheaf.Range{From: r + 1, To: r + 1}
			result := sheaf.TaskResult{RangeID: sheaf.RangeID(id, 1), Chunks: searchEach, Tokens: 200 * searchEach, Ledger: sheaf.Ledger{{From: at.From, To: at.To, Status: sheaf.UnitOK}}}
			spawn = append(spawn, sheaf.NewTask{ID: id, Kind: sheaf.KindParse, Unit: sheaf.UnitPage, Range: at, Cost: 1, Digest: "0123456789abcdef", Done: &result})
			for n := range searchEach {
				c := sheaf.Chunk{ID: sheaf.ChunkID(result.RangeID, n), RangeID: result.RangeID, DocumentID: doc.ID, Generation: 1, Ordinal: n, Kind: sheaf.ChunkText,
					Text: w.text(topic), Tokens: 200, Pages: []int{at.From}, Boxes: []sheaf.Box{{Page: at.From, X0: 72, Y0: 90, X1: 523, Y1: 410}}, HeadingPath: topic[:2]}
				texts = append(texts, c.Text)
				entries = append(entries, index.Entry{Chunk: c, TenantID: sheaf.LocalTenant, DatasetID: dataset, Name: doc.Name, MediaType: doc.MediaType})
			}
		}
		t, err := store.Claim(ctx, plan.ID, "bench", time.Minute)
		if err != nil {
			return nil, err
		}
		if err := store.Complete(ctx, t.Held(), taskstore.Completion{Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: searchRanges}, Spawn: spawn}); err != nil {
			return nil, err
		}
		vectors, err := model.Embed(ctx, texts, embed.Passage)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			entries[i].Vector = vectors[i]
		}
		if err := ix.Write(ctx, entries); err != nil {
			return nil, err
		}
		if err := publish(ctx, store, doc.ID); err != nil {
			return nil, err
		}
	}
	for range 1000 {
		queries = append(queries, w.query(topics[w.r.IntN(len(topics))]))
	}
	return queries, nil
}

// publish ends the first generation of a document whose ranges are all done.
func publish(ctx context.Context, store *sqlstore.Store, documentID string) error {
	if _, _, err := store.Fold(ctx, 100, 0); err != nil {
		return err
	}
	tasks, err := store.GenerationTasks(ctx, documentID, 1)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tasks, func(t sheaf.Task) bool { return t.Kind == sheaf.KindFinalize })
	if i < 0 {
		return errors.New("the complete document has no task that ends it")
	}
	t, err := store.Claim(ctx, tasks[i].ID, "bench", time.Minute)
	if err != nil {
		return err
	}
	const chunks = searchRanges * searchEach
	return store.Complete(ctx, t.Held(), taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocSucceeded, Chunks: chunks, Tokens: 200 * chunks, Ledger: sheaf.LedgerCounts{OK: searchRanges}}})
}

// writer generates texts with the statistics of documentation: word frequencies
// fall by rank (Zipf), a document keeps to its topic's words, chunks are 80 to 240
// words long.
type writer struct {
	words []string
	r     *rand.Rand
	zipf  *rand.Zipf
}

func newWriter() *writer {
	w := &writer{r: rand.New(rand.NewPCG(1, 2))}
	w.words = strings.Fields(`the of to a and in is for that on with as this be by are or from it an can you not if when which at
		will file data use value set system default name type error user server option number list table page function`)
	starts := strings.Fields("con re in de pro com dis per sub ex trans inter pre over under out en ad un ob sur syn ana hyper")
	middles := strings.Fields("fig struct nect duc ser vol tain form press port script spec tract vert mit ject pel cap grad mov sist tend fer clud tribut pos lat")
	ends := strings.Fields("ure ion or er ing ed able ment ive al ous ance ity ate ize s ology ator ent")
	seen := map[string]bool{}
	for len(w.words) < 60_000 {
		s := starts[w.r.IntN(len(starts))] + middles[w.r.IntN(len(middles))]
		if w.r.IntN(2) == 0 {
			s += middles[w.r.IntN(len(middles))]
		}
		s += ends[w.r.IntN(len(ends))]
		if w.r.IntN(3) == 0 {
			s += fmt.Sprint(w.r.IntN(100))
		}
		if !seen[s] {
			seen[s] = true
			w.words = append(w.words, s)
		}
	}
	w.zipf = rand.NewZipf(w.r, 1.07, 3, uint64(len(w.words)-1))
	return w
}

func (w *writer) topic() []string {
	t := make([]string, 30)
	for i := range t {
		t[i] = w.words[40+w.r.IntN(len(w.words)-40)]
	}
	return t
}

func (w *writer) text(topic []string) string {
	var b strings.Builder
	for range 80 + w.r.IntN(160) {
		if w.r.IntN(4) == 0 {
			b.WriteString(topic[w.r.IntN(len(topic))])
		} else {
			b.WriteString(w.words[w.zipf.Uint64()])
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// query is like what people type: two to nine words, some from a topic, some common
// and some stop words.
func (w *writer) query(topic []string) string {
	q := slices.Clone([]string{"how", "do", "i"}[:w.r.IntN(4)])
	for range 1 + w.r.IntN(3) {
		q = append(q, topic[w.r.IntN(len(topic))])
	}
	for range 1 + w.r.IntN(3) {
		q = append(q, w.words[w.zipf.Uint64()])
	}
	return strings.Join(q, " ")
}
