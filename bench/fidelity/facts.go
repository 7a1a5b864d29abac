package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
)

// A fact is a small truth about a page of the corpus: what precedes what, which
// words are not adjacent, which figure is in the row of a label. Facts are
// independent of how a program splits a page into blocks. They were drawn where
// pdftotext and mutool agree; pages without a natural reading order were excluded:
// charts, diagrams, rows of check boxes, running heads in mid-sentence.
type fact struct {
	File string `json:"file"` // in the corpus
	Page int    `json:"page"`
	Fact string `json:"fact"` // before, absent, present, or left
	A    string `json:"a"`    // lower-case words, as returned by words
	B    string `json:"b,omitempty"`
}

//go:embed facts.jsonl
var factData string

// factsHold is the target share of facts that hold.
const factsHold = .97

func loadFacts() (out []fact, err error) {
	d := json.NewDecoder(strings.NewReader(factData))
	for {
		var f fact
		switch err := d.Decode(&f); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, f)
	}
}

// holds reports whether a page as read agrees with the fact.
func (f fact) holds(u sheaf.UnitResult) bool {
	var text strings.Builder
	for _, b := range u.Blocks {
		text.WriteString(" " + strings.Join(blockWords(b), " "))
	}
	for _, l := range u.Running {
		text.WriteString(" " + strings.Join(words(l), " "))
	}
	page := text.String() + " "
	at := func(s string) int { return strings.Index(page, " "+s+" ") }
	switch f.Fact {
	case "before":
		return at(f.A) >= 0 && at(f.A) < at(f.B)
	case "present":
		return at(f.A) >= 0
	case "absent":
		return at(f.A) < 0
	case "left":
		return slices.ContainsFunc(u.Blocks, func(b sheaf.Block) bool {
			if b.Table == nil {
				return inOrder(words(b.Text), f.A, f.B)
			}
			return slices.ContainsFunc(append([][]string{b.Table.Columns}, b.Table.Rows...), func(r []string) bool {
				return inOrder(words(strings.Join(r, " ")), f.A, f.B)
			})
		})
	}
	return false
}

// inOrder reports whether a row contains a and, after it, b.
func inOrder(row []string, a, b string) bool {
	_, after, ok := strings.Cut(" "+strings.Join(row, " ")+" ", " "+a+" ")
	return ok && strings.Contains(" "+after, " "+b+" ")
}

// factsSection counts the facts that hold across the corpus.
func factsSection(ctx context.Context, pool *child.Pool, corpus string, explain int) (string, error) {
	all, err := loadFacts()
	if err != nil {
		return "", err
	}
	kinds := []string{"before", "absent", "present", "left"}
	held, total := map[string]int{}, map[string]int{}
	files, missing := map[string]bool{}, map[string]bool{}
	for _, same := range byPage(all) {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		f := same[0]
		path := filepath.Join(corpus, f.File)
		if _, err := os.Stat(path); err != nil {
			missing[f.File] = true
			continue
		}
		files[f.File] = true
		var page sheaf.UnitResult
		src := child.Source{Path: path, Format: "pdf", Options: parser.Options{Name: filepath.Base(path), MediaType: parser.MediaPDF, Config: settings.Default}}
		if err := pool.Parse(ctx, src, sheaf.Range{From: f.Page, To: f.Page}, func(u sheaf.UnitResult) error { page = u; return nil }); err != nil {
			return "", fmt.Errorf("%s page %d: %w", f.File, f.Page, err)
		}
		for _, f := range same {
			total[f.Fact]++
			if f.holds(page) {
				held[f.Fact]++
			} else if explain > 0 {
				explain--
				fmt.Fprintf(os.Stderr, "  %s page %d: %s %q %q\n", f.File, f.Page, f.Fact, f.A, f.B)
			}
		}
	}
	var b strings.Builder
	b.WriteString("## Reading order\n\n| fact | number | hold | target |\n|---|---|---|---|\n")
	n, of := 0, 0
	for _, k := range kinds {
		fmt.Fprintf(&b, "| %s | %d | %.3f | – |\n", k, total[k], float64(held[k])/float64(max(total[k], 1)))
		n, of = n+held[k], of+total[k]
	}
	share := float64(n) / float64(max(of, 1))
	fmt.Fprintf(&b, "| all | %d | %.3f | %s |\n", of, share, verdict(share, factsHold))
	fmt.Fprintf(&b, "\nSmall facts about %d files of the corpus, in bench/fidelity/facts.jsonl (%d files are not here): one passage stands **before** another; words at the edges of two columns are **absent** as neighbours; a run of words is **present**; a figure stands right of the label whose **left** cell it has. They were drawn where pdftotext and mutool agree.\n", len(files), len(missing))
	return b.String(), nil
}

// byPage groups sorted facts by page.
func byPage(all []fact) [][]fact {
	var out [][]fact
	for i, f := range all {
		if i > 0 && f.File == all[i-1].File && f.Page == all[i-1].Page {
			out[len(out)-1] = append(out[len(out)-1], f)
		} else {
			out = append(out, []fact{f})
		}
	}
	return out
}
