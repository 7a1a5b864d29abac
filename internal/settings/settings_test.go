package settings

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sheaf"
)

var update = flag.Bool("update", false, "write the tables of docs/handbook.md")

// table replaces the rows below the header line, or returns them.
func replaceTable(t *testing.T, doc, header string, rows []string) string {
	t.Helper()
	head, rest, ok := strings.Cut(doc, header+"\n")
	if !ok {
		t.Fatalf("the handbook has no table %q", header)
	}
	rule, rest, _ := strings.Cut(rest, "\n")
	for strings.HasPrefix(rest, "|") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return head + header + "\n" + rule + "\n" + strings.Join(rows, "\n") + "\n" + rest
}

// TestHandbookTables keeps the handbook's tables of settings and methods equal
// to the code: go test ./internal/settings -run HandbookTables -update writes them.
func TestHandbookTables(t *testing.T) {
	const path, chapter = "../../docs/handbook.md", "## Parse settings\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, doc, ok := strings.Cut(string(b), chapter)
	if !ok {
		t.Fatalf("%s has no chapter %q", path, chapter)
	}
	var settings, methods []string
	for _, s := range Table {
		meaning := s.Meaning
		if s.Max > 0 {
			meaning += fmt.Sprintf(", from %d to %d", s.Min, s.Max)
		}
		settings = append(settings, fmt.Sprintf("| %s | %s | %s |", s.Name, s.Default(), meaning))
	}
	for _, m := range Methods {
		takes := "every format"
		if m.Takes != nil {
			var names []string
			for _, f := range m.Takes {
				names = append(names, string(f))
			}
			takes = strings.Join(names, "; ")
		}
		methods = append(methods, fmt.Sprintf("| %s | %s | %s | %s |", m.Name, takes, m.Ranges, m.Meaning))
	}
	doc = replaceTable(t, doc, "| Setting | Default | Meaning |", settings)
	doc = replaceTable(t, doc, "| Method | Takes | A task covers | Meaning |", methods)
	want := before + chapter + doc
	if want == string(b) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; run go test ./internal/settings -run HandbookTables -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFieldOfTheConfigIsASetting(t *testing.T) {
	fields, names := slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(DatasetNames()))
	if !slices.Equal(fields, names) {
		t.Errorf("fields %v\nsettings %v", fields, names)
	}
	for _, s := range Table {
		for _, m := range s.Methods {
			if _, ok := MethodByName(m); !ok {
				t.Errorf("%s names the method %q, which does not exist", s.Name, m)
			}
		}
		if s.Default() == "" {
			t.Errorf("%s says nothing about its default", s.Name)
		}
	}
}

func TestMethodsHaveTheirOwnDefaults(t *testing.T) {
	for method, pages := range map[string]int{"general": 12, "paper": 22, "one": 1000} {
		if got := WithDefaults(sheaf.ParseConfig{ChunkMethod: sheaf.Set(method)}).TaskPageSize.V; got != pages {
			t.Errorf("%s: %d pages a task, want %d", method, got, pages)
		}
	}
	if got := WithDefaults(sheaf.ParseConfig{}).TaskPageSize.V; got != 12 {
		t.Errorf("no method: %d pages a task, want 12", got)
	}
	if got := WithDefaults(sheaf.ParseConfig{ChunkMethod: sheaf.Set("paper"), TaskPageSize: sheaf.Set(5)}).TaskPageSize.V; got != 5 {
		t.Errorf("what was asked for is overridden: %d", got)
	}
}

func TestRunsAreOfDatasets(t *testing.T) {
	c := sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64), Raptor: sheaf.Set(sheaf.RunConfig{"use_raptor": true, "max_token": 128})}
	options, byItself := Runs[0].In(c)
	if string(options) != `{"max_token":128}` || !byItself || c.Raptor.V["use_raptor"] != true {
		t.Errorf("%s %v, of %v", options, byItself, c.Raptor.V)
	}
	c.Raptor.V["budget"] = map[string]any{"max_tokens": 5000.0}
	if options, _ := Runs[0].In(c); string(options) != `{"max_token":128}` {
		t.Errorf("with a budget the options are %s", options)
	}
	if b, err := Runs[0].BudgetIn(c); err != nil || b != (Budget{MaxTokens: 5000}) {
		t.Errorf("the budget is %+v, %v", b, err)
	}
	for _, wrong := range []any{"5000", map[string]any{}, map[string]any{"max_token": 5}, map[string]any{"max_tokens": -1}, map[string]any{"max_tokens": 1.5}, map[string]any{"max_price": -2}, []any{}} {
		if b, err := Runs[0].BudgetIn(sheaf.ParseConfig{Raptor: sheaf.Set(sheaf.RunConfig{"budget": wrong})}); err == nil {
			t.Errorf("the budget %v is read as %+v", wrong, b)
		}
	}
	if options, byItself := Runs[1].In(c); options != nil || byItself {
		t.Errorf("graphrag: %s %v", options, byItself)
	}
	if CheckDocument(c) == nil {
		t.Error("a document takes what datasets alone have")
	}
	if d := OfDocument(c); d.Raptor.IsSet() || d.ChunkTokenNum.V != 64 || CheckDocument(d) != nil {
		t.Errorf("a document has %+v", d)
	}
}
