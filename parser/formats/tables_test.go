package formats

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

// handbookRows are the rows of the handbook's table of formats: types of a
// format that are cut alike share one.
func handbookRows(all []parser.Format) []string {
	var rows []string
	for _, f := range all {
		var names []string
		var last parser.FileType
		flush := func() {
			if len(names) > 0 {
				rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", strings.Join(names, ", "), last.Unit, cmp.Or(last.Ranges, "no"), last.Needs))
			}
			names = nil
		}
		for _, t := range f.Types() {
			if last.Unit != t.Unit || last.Ranges != t.Ranges {
				flush()
			}
			last = t
			if name := strings.TrimSpace(t.Name + " " + strings.Join(t.Extensions, " ")); name != "" && !slices.Contains(names, name) && (len(t.Extensions) > 0 || !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, t.Name+" ") })) {
				names = append(names, name)
			}
		}
		flush()
	}
	return rows
}

// pageNames are the lines of the page's table of names.
func pageNames(all []parser.Format) []string {
	var lines []string
	for _, f := range all {
		for _, t := range f.Types() {
			if t.Name != "" {
				lines = append(lines, fmt.Sprintf("  %q: %q,", t.MediaType, t.Name))
			}
		}
	}
	return lines
}

// tables put the lines between a heading and the first line that ends them.
var tables = []struct {
	path, head, end string
	lines           func([]parser.Format) []string
}{
	{"../../docs/handbook.md", "| Format | Unit | Split into ranges | Needs |\n| --- | --- | --- | --- |\n", "\n\n", handbookRows},
	{"../../internal/web/static/js/format.js", "export const formats = {\n", "\n};\n", pageNames},
}

// TestTables keeps the handbook's table of formats and the names on the page
// equal to what formats declare: go test ./parser/formats -run Tables -update
// writes them.
func TestTables(t *testing.T) {
	for _, table := range tables {
		b, err := os.ReadFile(table.path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(b), table.head)
		_, after, closed := strings.Cut(rest, table.end)
		if !ok || !closed {
			t.Fatalf("%s has no table under %q", table.path, table.head)
		}
		want := before + table.head + strings.Join(table.lines(All(DefaultConfig)), "\n") + table.end + after
		if want == string(b) {
			continue
		}
		if !*formattest.Update {
			t.Fatalf("%s is not what the formats declare; run go test ./parser/formats -run Tables -update", table.path)
		}
		if err := os.WriteFile(table.path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// madeUp is a format that exists in this file alone.
type madeUp struct{}

func (madeUp) ID() string        { return "madeup" }
func (madeUp) Version() int      { return 1 }
func (madeUp) Options() []string { return nil }
func (madeUp) Types() []parser.FileType {
	return []parser.FileType{
		{MediaType: "application/x-scroll", Aliases: []string{"application/scroll"}, Name: "Scroll", Extensions: []string{".scroll"}, Magic: []parser.Magic{{Bytes: "SCROLL", Offset: 2}},
			Families: []sheaf.FileFamily{sheaf.FamilyEbook}, Unit: sheaf.UnitPage, Ranges: "3 pages"},
		{MediaType: "application/x-scroll-notes", Extensions: []string{".scrl"}, Text: true, Magic: []parser.Magic{{Bytes: "#scroll"}}, Unit: sheaf.UnitFile},
		{MediaType: "application/x-scroll-box", Magic: []parser.Magic{{Entry: "scrolls/*"}, {Stream: "Scroll*"}}, Unit: sheaf.UnitFile},
	}
}
func (madeUp) Open(context.Context, *os.File, parser.Options) (parser.Document, error) {
	return nil, os.ErrInvalid
}

// A format says in one place all that sniffing, the chunk methods, the lists
// and the documents need to know of it.
func TestADeclarationIsAllThatAFormatNeeds(t *testing.T) {
	all := append(All(DefaultConfig), madeUp{})
	r := parser.NewRegistry(all...)
	for name, c := range map[string]struct{ file, body, want string }{
		"by its bytes":                           {"a", "\x01\x02SCROLL\x00\x01", "application/x-scroll"},
		"damaged, by its extension":              {"a.SCROLL", "\x00\x01\x02\x03\x00", "application/x-scroll"},
		"text, by its extension":                 {"a.scrl", "once upon a time", "application/x-scroll-notes"},
		"text, by its beginning":                 {"a", "#scroll\nonce upon a time", "application/x-scroll-notes"},
		"text, whose extension says another":     {"a.md", "#scroll\nonce upon a time", parser.MediaMarkdown},
		"by an entry of a zip":                   {"a.zip", zipOf(t, "readme", "scrolls/1"), "application/x-scroll-box"},
		"by a stream of a compound file":         {"a", oleOf("Root Entry", "Scroll 1"), "application/x-scroll-box"},
		"a zip under the name of what is no zip": {"a.scroll", zipOf(t, "readme"), parser.MediaZIP},
	} {
		if got := r.Sniff(strings.NewReader(c.body), int64(len(c.body)), c.file); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, mt := range []string{"application/x-scroll", "Application/Scroll; version=2"} {
		if f, ok := r.ByMediaType(mt); !ok || f.ID() != "madeup" {
			t.Errorf("%s is read by %v", mt, f)
		}
	}
	if got := parser.MediaTypes(madeUp{}); strings.Join(got, " ") != "application/x-scroll application/x-scroll-notes application/x-scroll-box application/scroll" {
		t.Errorf("listed as %q", got)
	}
	kind, _ := r.TypeOf("application/scroll")
	if got := settings.MethodsFor(kind.Families); !slices.Contains(got, "book") || slices.Contains(got, "paper") {
		t.Errorf("cut by %q", got)
	}
	if err := r.Check(sheaf.ParseConfig{ChunkMethod: sheaf.Set("paper")}, "application/x-scroll"); err == nil || !strings.Contains(err.Error(), "book") {
		t.Errorf("chunk method paper: %v", err)
	}
	if rows := handbookRows(all); !slices.Contains(rows, "| Scroll .scroll | page | 3 pages |  |") || !slices.Contains(rows, "| .scrl | file | no |  |") {
		t.Errorf("the handbook says\n%s", strings.Join(rows, "\n"))
	}
	if lines := pageNames(all); !slices.Contains(lines, `  "application/x-scroll": "Scroll",`) {
		t.Errorf("the page says\n%s", strings.Join(lines, "\n"))
	}
}
