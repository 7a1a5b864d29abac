// Command answers measures whether search finds the page that answers a question:
// over the documents of a stopped service's data folder, with questions from a file
// or generated from the documents.
//
//	go run ./bench/answers -data FOLDER [-questions FILE] [-make N] [-model NAME]
//
// Each line of the file is {"question": …, "document": NAME, "pages": [N, …]}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/local"
	"sheaf/internal/embed/static"
	"sheaf/internal/eval"
	"sheaf/internal/index/embedded"
	"sheaf/internal/models"
	"sheaf/internal/search"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// question is a question and the pages of a document that answer it.
type question struct {
	Question string `json:"question"`
	Document string `json:"document"` // name, without extension
	Pages    []int  `json:"pages"`
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "answers:", err)
		os.Exit(1)
	}
}

// collection is what is searched.
type collection struct {
	searcher *search.Searcher
	ids      map[string]string // of documents, by name
}

func run(ctx context.Context) error {
	data := flag.String("data", "", "data folder of a service that is stopped")
	file := flag.String("questions", "", "file with questions")
	verbose := flag.Bool("v", false, "print the rank of each")
	weight := flag.Float64("weight", -1, "of the vector side; default the model's")
	mode := flag.String("mode", "", "of the search")
	number := flag.Int("make", 0, "make this many questions from the documents and write them to the file")
	name := flag.String("model", "", "the installed model that made the vectors; default the built-in one")
	program := flag.String("program", "bin/sheaf-embed", "that runs it, made by `make build`")
	learn := flag.Bool("train", false, "fit the weights of the ranker to the questions and print them")
	flag.Parse()
	var model embed.Embedder = static.Default()
	if *name != "" {
		installed := &models.Store{Dir: filepath.Join(*data, "models")}
		m, err := installed.Find(*name)
		if err != nil {
			return err
		}
		child, err := local.Open(ctx, local.Config{Store: installed, Model: m, Program: *program, Log: slog.Default()})
		if err != nil {
			return err
		}
		defer child.Close()
		model = child
	}
	x, err := embedded.Open(ctx, embedded.Config{Path: filepath.Join(*data, "index.db"), ModelID: model.Model().ID, Dim: model.Model().Dim})
	if err != nil {
		return err
	}
	defer func() { _ = x.Close() }()
	store, err := sqlstore.Open(ctx, sqlstore.Config{Driver: "sqlite", DSN: filepath.Join(*data, "sheaf.db")})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	c := &collection{searcher: &search.Searcher{Index: x, Embedder: model, Visibility: store}, ids: map[string]string{}}
	var ranges []string
	seen := map[string]bool{}
	if err := x.Scan(ctx, sheaf.LocalTenant, func(_, r, _ string) bool {
		if !seen[r] {
			seen[r] = true
			ranges = append(ranges, r)
		}
		return true
	}); err != nil {
		return err
	}
	for part := range slices.Chunk(ranges, 500) {
		live, err := store.Visible(ctx, sheaf.LocalTenant, part)
		if err != nil {
			return err
		}
		for _, v := range live {
			c.ids[strings.TrimSuffix(v.Name, filepath.Ext(v.Name))] = v.DocumentID
		}
	}
	if *number > 0 {
		return makeQuestions(ctx, filepath.Join(*data, "index.db"), *file, *number)
	}
	f, err := os.Open(*file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var questions []question
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		questions = append(questions, q)
	}
	if *learn {
		return c.train(ctx, questions)
	}
	var everywhere, inside []int
	var took []time.Duration
	for _, q := range questions {
		r := search.Request{Query: q.Question, Limit: 100, Mode: search.Mode(*mode)}
		if *weight >= 0 {
			r.VectorWeight = weight
		}
		begun := time.Now()
		a, err := c.rank(ctx, q, r)
		if err != nil {
			return err
		}
		took = append(took, time.Since(begun))
		r.Filter.DocumentIDs = search.List{c.ids[q.Document]}
		b, err := c.rank(ctx, q, r)
		if err != nil {
			return err
		}
		everywhere, inside = append(everywhere, a), append(inside, b)
		if *verbose {
			fmt.Printf("%4d %4d %s: %.100s\n", a, b, q.Document, q.Question)
		}
	}
	slices.Sort(took)
	fmt.Printf("%-12s %s\n%-12s %s   p50 %.1f ms\n", "everywhere", summary(everywhere), "in document", summary(inside), took[len(took)/2].Seconds()*1e3)
	return lines.Err()
}

// rank returns the rank of the first page that answers q, 0 for none.
func (c *collection) rank(ctx context.Context, q question, r search.Request) (int, error) {
	answer, err := c.searcher.Search(ctx, sheaf.LocalTenant, r)
	if err != nil {
		return 0, err
	}
	var expected []taskstore.ExpectedAnswer
	if id := c.ids[q.Document]; id != "" {
		for _, p := range q.Pages {
			expected = append(expected, taskstore.ExpectedAnswer{DocumentID: id, From: p})
		}
	}
	return eval.Score(answer.Hits, expected).Rank, nil
}

// summary formats hit@1, hit@5, hit@10 and the mean reciprocal rank.
func summary(ranks []int) string {
	results := make([]taskstore.QueryResult, len(ranks))
	for i, r := range ranks {
		results[i].Rank = r
	}
	m := eval.Measure(results)
	return fmt.Sprintf("hit@1 %.3f  hit@5 %.3f  hit@10 %.3f  MRR %.3f", m.Hit1, m.Hit5, m.Hit10, m.MRR)
}
