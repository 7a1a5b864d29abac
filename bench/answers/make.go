package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"sheaf"
)

// made is a chunk from which questions are generated.
type made struct {
	document string
	chunk    sheaf.Chunk
}

// makeQuestions writes n questions, alternating between three kinds: from a
// heading, from the row labels of a table, and from words of a sentence; half of
// them name the document. The page that a question was generated from is its answer.
func makeQuestions(ctx context.Context, indexFile, to string, n int) (err error) {
	db, err := sql.Open("sqlite", "file:"+indexFile+"?mode=ro")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, `SELECT d.name, c.json FROM entries e JOIN documents d ON d.n = e.document JOIN chunks c ON c.n = e.n ORDER BY e.id`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	byDocument := make(map[string][]made)
	var names []string
	for rows.Next() {
		var name string
		var data []byte
		if err := rows.Scan(&name, &data); err != nil {
			return err
		}
		m := made{document: strings.TrimSuffix(name, filepath.Ext(name))}
		if err := json.Unmarshal(data, &m.chunk); err != nil {
			return err
		}
		if byDocument[m.document] == nil {
			names = append(names, m.document)
		}
		byDocument[m.document] = append(byDocument[m.document], m)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	slices.Sort(names)
	r := rand.New(rand.NewPCG(1, 2))
	encoder := json.NewEncoder(out)
	for tries, written := 0, 0; written < n && tries < 100*n; tries++ {
		all := byDocument[names[r.IntN(len(names))]]
		if len(all) < 10 {
			continue // nothing to choose from
		}
		c := all[r.IntN(len(all))]
		about := ""
		switch written % 3 {
		case 0:
			about = fromHeading(r, &c.chunk)
		case 1:
			about = fromTable(r, &c.chunk)
		case 2:
			about = fromSentence(r, &c.chunk)
		}
		if len(strings.Fields(about)) < 2 {
			continue
		}
		if r.IntN(2) == 0 {
			about += " " + [...]string{"in", "of", "according to"}[r.IntN(3)] + " " + strings.ReplaceAll(c.document, "_", " ")
		}
		about = fmt.Sprintf([...]string{"What is %s?", "How is %s described?", "Show me %s, please.", "%s", "Please answer by looking at the document: where does it say %s?"}[r.IntN(5)], about)
		if err := encoder.Encode(question{Question: about, Document: c.document, Pages: c.chunk.Pages}); err != nil {
			return err
		}
		written++
	}
	return nil
}

// some keeps each word with a probability of three in four.
func some(r *rand.Rand, words []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(words), func(string) bool { return r.IntN(4) == 0 }), " ")
}

func fromHeading(r *rand.Rand, c *sheaf.Chunk) string {
	if len(c.HeadingPath) == 0 {
		return ""
	}
	return some(r, strings.Fields(strings.Join(c.HeadingPath[max(0, len(c.HeadingPath)-2):], " ")))
}

// fromTable joins the labels of two rows.
func fromTable(r *rand.Rand, c *sheaf.Chunk) string {
	var labels []string
	for line := range strings.Lines(c.Text) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if label := strings.TrimSpace(cells[0]); len(cells) > 1 && len(strings.Fields(label)) > 1 && strings.ContainsFunc(label, unicode.IsLetter) {
			labels = append(labels, label)
		}
	}
	if len(labels) < 3 {
		return ""
	}
	return some(r, strings.Fields(labels[r.IntN(len(labels))]+" and "+labels[r.IntN(len(labels))]))
}

// fromSentence takes words out of a sentence.
func fromSentence(r *rand.Rand, c *sheaf.Chunk) string {
	if c.Kind != sheaf.ChunkText {
		return ""
	}
	sentences := strings.Split(c.Text, ". ")
	words := strings.Fields(sentences[r.IntN(len(sentences))])
	if len(words) < 8 {
		return ""
	}
	from := r.IntN(len(words) - 6)
	return some(r, words[from:min(len(words), from+6+r.IntN(6))])
}
