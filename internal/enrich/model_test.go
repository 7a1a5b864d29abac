package enrich

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sheaf"
)

// reply is a model that says the same to everything, after some failures.
type reply struct {
	answer string
	fails  int32 // calls that fail before
	calls  atomic.Int32
}

func (r *reply) Model() string { return "tiny" }

func (r *reply) Ask(context.Context, string, string, int) (string, error) {
	if r.calls.Add(1) <= r.fails {
		return "", fmt.Errorf("%w: the server is gone", sheaf.ErrUnavailable)
	}
	return r.answer, nil
}

func TestAnswersAreTakenAsModelsWriteThem(t *testing.T) {
	settings := sheaf.ParseConfig{AutoKeywords: sheaf.Set(2), AutoQuestions: sheaf.Set(1), AutoContext: sheaf.Set(true)}
	for answer, want := range map[string]sheaf.Chunk{
		"```json\n{\"passages\":[{\"n\":1,\"keywords\":[\" \\\"Otters\\\"\",\"Otters\",\"holding\\nhands\",\"more\"],\"questions\":[\"Why?\",\"When?\"],\"context\":\"From a book\\non otters.\"}]}\n```": {Keywords: []string{"Otters", "holding hands"}, Questions: []string{"Why?"}, Context: "From a book on otters.\nbefore"},
		`Sure! {"passages": [{"n": 1}]}`:                       {Context: "before"},
		`{"passages": [{"n": 2, "keywords": ["of another"]}]}`: {Context: "before"},
		`no JSON at all`:             {Context: "before"},
		`} upside down {`:            {Context: "before"},
		`{"passages": "not a list"}`: {Context: "before"},
	} {
		chunks := []sheaf.Chunk{{Kind: sheaf.ChunkText, Text: "Otters hold hands.", Context: "before"}}
		warnings, err := NewModel(&reply{answer: answer}, 1).Chunks(t.Context(), chunks, "otters.md", settings, func(int) bool { return false })
		c := chunks[0]
		if err != nil || !slices.Equal(c.Keywords, want.Keywords) || !slices.Equal(c.Questions, want.Questions) || c.Context != want.Context || c.Text != "Otters hold hands." {
			t.Errorf("%s: %+v %v", answer, c, err)
		}
		useful := strings.Contains(strings.ReplaceAll(answer, " ", ""), `"n":1`)
		if warned := len(warnings) == 1; warned == useful {
			t.Errorf("%s: warnings %v", answer, warnings)
		}
	}
}

// What was answered before a failure is not asked again by the next try.
func TestAnswersOutliveAFailure(t *testing.T) {
	chunks := make([]sheaf.Chunk, 40)
	for i := range chunks {
		chunks[i] = sheaf.Chunk{Text: fmt.Sprint("text ", i)}
	}
	r := &reply{answer: `{"passages": [{"n": 1, "questions": ["Why?"]}]}`, fails: 5}
	m := NewModel(r, 1)
	tries := 0
	for ; ; tries++ {
		_, err := m.Chunks(t.Context(), chunks, "x", sheaf.ParseConfig{AutoQuestions: sheaf.Set(1)}, func(int) bool { return false })
		if err == nil {
			break
		}
		if tries > 5 {
			t.Fatal(err)
		}
	}
	if n := r.calls.Load(); tries == 0 || n != 45 {
		t.Errorf("%d calls for 40 texts and 5 failures, in %d tries", n, tries+1)
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	chunks := []sheaf.Chunk{{Text: strings.Repeat("ä", 1<<20)}, {Text: "short"}, {Text: strings.Repeat("b", 1<<20)}, {Role: sheaf.RoleContents, Text: "1 Otters"}}
	for i := range chunks[:3] {
		if text := passageText(chunks, []int{i}, "x", wanted{context: true}); len(text) > maxPassageBytes+4*neighbourBytes {
			t.Errorf("the question about chunk %d has %d bytes", i, len(text))
		}
	}
	r := &reply{answer: `{"passages": [{"n": 1}, {"n": 2}, {"n": 3}]}`}
	if _, err := NewModel(r, 100).Chunks(t.Context(), chunks, "x", sheaf.ParseConfig{AutoQuestions: sheaf.Set(1)}, func(int) bool { return false }); err != nil || r.calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, r.calls.Load())
	}
}
