package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/taskstore"
)

func source(id, name string, chunks ...sheaf.Chunk) Source {
	return Source{Document: sheaf.Document{ID: id, Name: name}, Chunks: chunks}
}

func under(pages []int, headings ...string) sheaf.Chunk {
	return sheaf.Chunk{HeadingPath: headings, Pages: pages}
}

// A heading is asked for where it stands once, with its document where several
// have it, and not where its section is wide or it says nothing.
func TestQuestionsOfHeadings(t *testing.T) {
	sources := []Source{
		source("a", "reports/north.pdf",
			under([]int{1}, "Annual report of the year", "Cash flow statement"), under([]int{2, 3}, "Annual report of the year", "Cash flow statement"),
			under([]int{9}, "Annual report of the year", "Notes"), under([]int{4}, "Twice in it"), under([]int{6}, "Part two of it", "twice  in it")),
		source("b", "south.pdf", under([]int{5}, "Cash flow statement"), under(nil, "所得税について"), under([]int{7}, "12.4 %")),
	}
	got := func(taken map[string]bool, limit int) (out []string) {
		for _, q := range FromHeadings(sources, taken, limit) {
			if q.Source != taskstore.SourceHeadings || len(q.Expected) != 1 {
				t.Fatalf("a generated query is %+v", q)
			}
			e := q.Expected[0]
			out = append(out, fmt.Sprintf("%s = %s %d-%d", q.Question, e.DocumentID, e.From, e.To))
		}
		return out
	}
	all := strings.Join(got(map[string]bool{}, 100), "\n")
	for _, want := range []string{"Cash flow statement, north = a 1-3", "Cash flow statement, south = b 5-0", "所得税について = b 0-0", "Part two of it = a 6-0"} {
		if !strings.Contains(all, want) {
			t.Errorf("no question %q among\n%s", want, all)
		}
	}
	// Nine pages lie between the first and the last of the report.
	for _, none := range []string{"Annual report", "Notes", "wice in it", "12.4"} {
		if strings.Contains(all, none) {
			t.Errorf("a question %q among\n%s", none, all)
		}
	}
	if again := strings.Join(got(map[string]bool{}, 100), "\n"); again != all {
		t.Errorf("the second time\n%s\nnot\n%s", again, all)
	}
	// Documents take turns, and what is there is not made again.
	two := strings.Join(got(map[string]bool{}, 2), "\n")
	if strings.Count(two, "\n") != 1 || !strings.Contains(two, "= a ") || !strings.Contains(two, "= b ") {
		t.Errorf("two questions are\n%s", two)
	}
	if rest := got(map[string]bool{"Cash flow statement, south": true}, 100); len(rest) != strings.Count(all, "\n") {
		t.Errorf("beside one that is there: %v", rest)
	}
}

// asker answers by what the passage begins with.
type asker map[string]string

func (a asker) Ask(_ context.Context, _, text string, _ int) (string, error) {
	said, ok := a[strings.Fields(text)[0]]
	if !ok {
		return "", errors.New("the server is away")
	}
	return said, nil
}

func TestQuestionsOfPassages(t *testing.T) {
	passage := func(id, text string, tokens int, pages ...int) sheaf.Chunk {
		return sheaf.Chunk{ID: id, Text: text, Tokens: tokens, Pages: pages, Kind: sheaf.ChunkText}
	}
	summary := passage("s", "summary of it", 100, 1)
	summary.Role = sheaf.RoleSummary
	chunks := []sheaf.Chunk{passage("1", "one text", 80, 3, 4), passage("2", "two text", 80, 5), passage("3", "three", 10, 6), summary, passage("4", "four text", 90), passage("5", "five text", 90, 8)}
	kept := Keep(chunks, taskstore.SourceChunks, 10, 1)
	passages := Passages([]Source{source("a", "a.pdf", kept...)}, 10)
	if len(passages) != 4 {
		t.Fatalf("%d passages can be asked about, not 4", len(passages))
	}
	model := asker{"one": "\"What is one?\"\nIt is the first.", "two": strings.Repeat("long ", 200), "four": "What is four?"}
	made, failed, err := FromPassages(t.Context(), model, passages, map[string]bool{"What is four?": true})
	if err == nil || failed != 2 {
		t.Errorf("%d failed, for %v; not those of the wordy answer and of the server that is away", failed, err)
	}
	if len(made) != 1 || made[0].Question != "What is one?" || made[0].Source != taskstore.SourceChunks || made[0].Expected[0] != (taskstore.ExpectedAnswer{DocumentID: "a", From: 3, To: 4}) {
		t.Errorf("made %+v", made)
	}
}

// What is kept of many documents has a bound.
func TestKeptChunksAreBounded(t *testing.T) {
	var chunks []sheaf.Chunk
	for i := range 2000 {
		chunks = append(chunks, sheaf.Chunk{ID: fmt.Sprint(i), Text: "text", Tokens: 100, HeadingPath: []string{"A heading"}, Pages: []int{i}})
	}
	if got := Keep(append([]sheaf.Chunk(nil), chunks...), taskstore.SourceHeadings, 50, 200); len(got) != 2000 || got[0].Text != "" || got[0].Pages[0] != 0 {
		t.Errorf("of %d chunks with headings the first is %+v", len(got), got[0])
	}
	if got := len(Keep(chunks, taskstore.SourceChunks, 50, 200)); got > 10 {
		t.Errorf("%d chunks of one of 200 documents are kept for 50 questions", got)
	}
	var docs []sheaf.Document
	for i := range 1000 {
		docs = append(docs, sheaf.Document{ID: fmt.Sprint("doc-", i)})
	}
	first := Sample(append([]sheaf.Document(nil), docs...))
	same := 0
	for i, d := range Sample(docs[:990]) {
		if d.ID == first[i].ID {
			same++
		}
	}
	if len(first) != MaxDocuments || same == 0 {
		t.Errorf("%d documents, %d of them where they were", len(first), same)
	}
}
