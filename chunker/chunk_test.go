package chunker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sheaf/internal/settings"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"sheaf"
)

var update = flag.Bool("update", false, "write the golden files anew")

// one unit after the other, as a parser would give them
func input(c sheaf.ParseConfig, pages ...[]sheaf.Block) Input {
	in := Input{DocumentID: "doc", Generation: 1, RangeID: "r", Range: sheaf.Range{From: 1, To: len(pages)}, Config: c, Embed: wordVectors}
	for i, blocks := range pages {
		for k := range blocks {
			blocks[k].Page = i + 1
		}
		in.Units = append(in.Units, sheaf.UnitResult{Unit: i + 1, Status: sheaf.UnitOK, Blocks: blocks})
	}
	return in
}

// wordVectors is a bag of words: enough of a model to tell texts apart.
func wordVectors(texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = make([]float32, 64)
		for w := range strings.FieldsSeq(strings.ToLower(text)) {
			out[i][xxhash.Sum64String(strings.Trim(w, ".,"))%64]++
		}
	}
	return out, nil
}

func mustChunk(t testing.TB, in Input) []sheaf.Chunk {
	t.Helper()
	out, err := Chunk(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func texts(chunks []sheaf.Chunk) []string {
	var out []string
	for _, c := range chunks {
		out = append(out, c.Text)
	}
	return out
}

func heading(level int, s string) sheaf.Block {
	return sheaf.Block{Kind: sheaf.BlockHeading, Level: level, Text: s}
}
func para(s string) sheaf.Block    { return sheaf.Block{Kind: sheaf.BlockParagraph, Text: s} }
func item(s string) sheaf.Block    { return sheaf.Block{Kind: sheaf.BlockListItem, Level: 1, Text: s} }
func caption(s string) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockCaption, Text: s} }

// prose makes n sentences of words that differ with the seed.
func prose(seed uint64, n int) string {
	words := strings.Fields("river stone paper engine window garden signal copper market winter bridge letter forest harbor mirror candle valley thunder ribbon anchor meadow lantern compass velvet")
	r := rand.New(rand.NewPCG(seed, 7))
	var out []string
	for range n {
		k := 6 + r.IntN(10)
		var s []string
		for range k {
			s = append(s, words[r.IntN(len(words))])
		}
		out = append(out, strings.ToUpper(s[0][:1])+s[0][1:]+" "+strings.Join(s[1:], " ")+".")
	}
	return strings.Join(out, " ")
}

func TestGolden(t *testing.T) {
	wide := &sheaf.Table{Columns: []string{"Key", "Note"}, Rows: [][]string{{"a", "short"}, {"b", prose(3, 9)}, {"c", "short again"}}}
	long := &sheaf.Table{Name: "Limits", Columns: []string{"Setting", "Default", "Unit"}, Types: []string{"text", "integer", "text"}}
	for i := range 14 {
		long.Rows = append(long.Rows, []string{fmt.Sprintf("limit_%02d", i), fmt.Sprint(i * 7), "seconds|minutes"})
		long.RowBoxes = append(long.RowBoxes, sheaf.Box{Page: 2, X0: 72, Y0: float64(100 + 12*i), X1: 400, Y1: float64(111 + 12*i)})
	}
	lined := para("First line of the\nparagraph goes on here.\nSecond sentence stands\nby itself.")
	at := 0
	for i, l := range strings.SplitAfter(lined.Text, "\n") {
		lined.Spans = append(lined.Spans, sheaf.Span{Start: at, End: at + len(l), Box: sheaf.Box{Page: 1, X0: 72, Y0: float64(100 + 14*i), X1: 300, Y1: float64(112 + 14*i)}})
		at += len(l)
	}
	code := sheaf.Block{Kind: sheaf.BlockCode, Lang: "go", Text: "func one() {\n\treturn\n}\n\nfunc two() {\n\treturn\n}\n\nfunc three() {\n\tfor {\n\t\tbreak\n\t}\n}\n"}

	cases := map[string]Input{
		"sections": input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64)},
			[]sheaf.Block{heading(1, "Manual"), heading(2, "Start"), lined, para(prose(1, 3)), para("It needs:"), item("a disk"), item("a clock")},
			[]sheaf.Block{heading(2, "Tables"), caption("Table 1. Limits"), {Kind: sheaf.BlockTable, Table: long}, para("After the table."), heading(3, "Deep"), para(prose(2, 6)), heading(1, "Last heading without text")}),
		"wide_row": input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(48)}, []sheaf.Block{heading(1, "Notes"), {Kind: sheaf.BlockTable, Table: wide}}),
		"code":     input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(32)}, []sheaf.Block{para("Three functions follow."), code}),
		"overlap":  input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(48), OverlappedPercent: sheaf.Set(40)}, []sheaf.Block{para(prose(4, 9))}),
		"delimiter": input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64), Delimiter: sheaf.Set("`##`;")},
			[]sheaf.Block{para("alpha ## beta; gamma ## delta")}),
		"cjk": input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(24)},
			[]sheaf.Block{heading(1, "导言"), para("第一句话在这里。第二句话比较长，它有一个逗号；后面还有。第三句是问题吗？是的！最后一句没有结束")}),
		"image": input(sheaf.ParseConfig{}, []sheaf.Block{{Kind: sheaf.BlockImage, Text: "A red bridge over a river"}, caption("Figure 1. The bridge")}),
		"one": input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("one"), ChunkTokenNum: sheaf.Set(16)},
			[]sheaf.Block{heading(1, "A"), para("One."), heading(2, "B"), {Kind: sheaf.BlockTable, Table: wide}, heading(2, "C"), para("Three.")}),
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for _, c := range mustChunk(t, in) {
				text := c.Text
				c.Text = ""
				meta, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&got, "%s\n%s\n=====\n", meta, text)
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("differs from %s (go test -update writes it anew):\n%s", path, got.String())
			}
		})
	}
}

func TestSentencesEnd(t *testing.T) {
	for text, want := range map[string][]string{
		"Dr. Smith saw it. He left.":           {"Dr. Smith saw it. ", "He left."},
		"See Fig. 3 and J. R. Hartley. Done!":  {"See Fig. 3 and J. R. Hartley. ", "Done!"},
		"It costs 3.5 M. Really? Yes.":         {"It costs 3.5 M. Really? ", "Yes."},
		"A line\nends here. Next\nsentence.":   {"A line\nends here. ", "Next\nsentence."},
		"One.\n\nTwo":                          {"One.\n", "\n", "Two"},
		"第一句。第二句！第三":                           {"第一句。", "第二句！", "第三"},
		"前半；后半。":                               {"前半；", "后半。"},
		"He said \"Stop.\" Then he went away.": {"He said \"Stop.\" ", "Then he went away."},
	} {
		var got []string
		start := 0
		for end := range sentenceEnds(text, []rune("\n。；！？"), &watch{ctx: context.Background()}) {
			got = append(got, text[start:end])
			start = end
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}

// Every cut must get on, however small the budget is and however the bytes of
// the runes fall.
func TestFittingMovesForward(t *testing.T) {
	runes := []string{"a", "é", "中", "😀", " ", "\n", "ٟ"}
	var words []string
	for _, a := range runes {
		for _, b := range runes {
			for _, c := range runes {
				words = append(words, a+b+c, strings.Repeat(a+b+c, 9))
			}
		}
	}
	for limit := range 20 {
		for _, s := range words {
			n := fitting(s, limit, &watch{ctx: t.Context()})
			if n <= 0 || n > len(s) || !utf8.ValidString(s[:n]) {
				t.Fatalf("fitting(%q, %d) = %d", s, limit, n)
			}
			if k := CountTokens(strings.TrimSpace(s[:n])); k > max(limit, 4) {
				t.Fatalf("fitting(%q, %d) takes %d tokens", s, limit, k)
			}
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []sheaf.ParseConfig{{ChunkMethod: sheaf.Set("magic")}, {ChunkTokenNum: sheaf.Set(3)}, {ChunkTokenNum: sheaf.Set(-1)}, {ChunkTokenNum: sheaf.Set(9000)}, {OverlappedPercent: sheaf.Set(51)}, {OverlappedPercent: sheaf.Set(-1)}} {
		_, err := Chunk(context.Background(), Input{Config: c})
		f, ok := errors.AsType[*sheaf.Failure](err)
		if !ok || f.Category != sheaf.CategoryBadInput || f.Retryable {
			t.Errorf("%+v: got %v, want a failure for good", c, err)
		}
	}
}

func TestSentenceIsCutOnlyWhenLongerThanAChunk(t *testing.T) {
	in := input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64)}, []sheaf.Block{para(prose(11, 60))})
	for _, s := range texts(mustChunk(t, in)) {
		if !strings.HasSuffix(s, ".") || !unicode.IsUpper(rune(s[0])) {
			t.Errorf("chunk does not hold whole sentences: %q", s)
		}
	}
	long := strings.TrimSuffix(strings.Repeat("word after ", 200), " ")
	for _, s := range texts(mustChunk(t, input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64)}, []sheaf.Block{para(long)}))) {
		for w := range strings.FieldsSeq(s) {
			if w != "word" && w != "after" {
				t.Fatalf("a word was cut: %q", w)
			}
		}
	}
}

func TestEveryTableChunkRepeatsTheHeaderAndKeepsRowsWhole(t *testing.T) {
	table := &sheaf.Table{Columns: []string{"id", "name"}, FirstRow: 1}
	for i := range 3000 {
		table.Rows = append(table.Rows, []string{fmt.Sprint(i), fmt.Sprintf("row number %d", i)})
	}
	in := input(sheaf.ParseConfig{}, []sheaf.Block{{Kind: sheaf.BlockTable, Table: table}})
	n := 0
	for _, c := range mustChunk(t, in) {
		lines := strings.Split(c.Text, "\n")
		if c.Kind != sheaf.ChunkTable || lines[0] != "| id | name |" || lines[1] != "| --- | --- |" {
			t.Fatalf("no header in chunk %s:\n%s", c.ID, c.Text)
		}
		for k, l := range lines[2:] {
			if l != fmt.Sprintf("| %d | row number %d |", n, n) {
				t.Fatalf("row %d reads %q", n, l)
			}
			if n++; c.Pages[k] != n {
				t.Fatalf("row %d is said to be unit %d", n, c.Pages[k])
			}
		}
	}
	if n != 3000 {
		t.Fatalf("%d of 3000 rows", n)
	}
}

// A paragraph inserted into a 300-page document must leave almost all chunks
// as they are, with headings and without.
func TestInsertedParagraphChangesOnlyTheChunksAround(t *testing.T) {
	for _, every := range []int{3, 1 << 30} {
		pages := make([][]sheaf.Block, 300)
		seed := uint64(1000)
		for i := range pages {
			if i%every == 0 {
				pages[i] = append(pages[i], heading(1, fmt.Sprintf("Section %d", i)))
			}
			for range 6 {
				seed++
				pages[i] = append(pages[i], para(prose(seed, 2+int(seed%7))))
			}
		}
		config := sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(256)}
		before := texts(mustChunk(t, input(config, pages...)))
		for _, at := range []int{0, 77, 150, 299} {
			changed := slices.Clone(pages)
			changed[at] = slices.Insert(slices.Clone(pages[at]), 3, para(prose(5, 5)))
			after := texts(mustChunk(t, input(config, changed...)))
			old := map[string]bool{}
			for _, s := range before {
				old[s] = true
			}
			n := 0
			for _, s := range after {
				if !old[s] {
					n++
				}
			}
			if n == 0 || n*100 > 3*len(after) {
				t.Errorf("headings every %d pages, insert on page %d: %d of %d chunks changed", every, at+1, n, len(after))
			}
			t.Logf("headings every %d pages, insert on page %d: %d of %d chunks changed", every, at+1, n, len(after))
		}
	}
}

func drawBlocks(t *rapid.T) []sheaf.Block {
	word := rapid.OneOf(rapid.SampledFrom(strings.Fields("a the it. Dr. end! why? 中文。 标点； x:y | `## ## ``` 3.14 \u00a0 é 😀 antidisestablishmentarianism")), rapid.StringN(1, 8, 24))
	text := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(1, 60).Draw(t, "words") {
			b.WriteString(word.Draw(t, "word"))
			b.WriteString(rapid.SampledFrom([]string{" ", " ", " ", "\n", "", "\n\n"}).Draw(t, "gap"))
		}
		return b.String()
	})
	block := rapid.Custom(func(t *rapid.T) sheaf.Block {
		b := sheaf.Block{Kind: rapid.SampledFrom([]sheaf.BlockKind{"heading", "paragraph", "paragraph", "list_item", "table", "code", "quote", "image", "caption", "footnote"}).Draw(t, "kind")}
		if b.Kind == sheaf.BlockTable {
			cols := rapid.IntRange(1, 5).Draw(t, "cols")
			b.Table = &sheaf.Table{Name: rapid.SampledFrom([]string{"", "Sheet 1"}).Draw(t, "name")}
			if rapid.Bool().Draw(t, "header") {
				b.Table.Columns = rapid.SliceOfN(word, cols, cols).Draw(t, "columns")
			}
			b.Table.Rows = rapid.SliceOfN(rapid.SliceOfN(rapid.OneOf(word, word, text), cols, cols), 0, 12).Draw(t, "rows")
			if rapid.Bool().Draw(t, "boxed") {
				for i := range b.Table.Rows {
					b.Table.RowBoxes = append(b.Table.RowBoxes, sheaf.Box{X0: 1, Y0: float64(i * 10), X1: 5, Y1: float64(i*10 + 9)})
				}
			}
			return b
		}
		b.Text = text.Draw(t, "text")
		b.Level = rapid.IntRange(0, 6).Draw(t, "level")
		b.Lang = rapid.SampledFrom([]string{"", "go"}).Draw(t, "lang")
		if rapid.Bool().Draw(t, "spans") {
			for at, i := 0, 0; at < len(b.Text); i++ {
				end := min(at+20, len(b.Text))
				b.Spans = append(b.Spans, sheaf.Span{Start: at, End: end, Box: sheaf.Box{X0: float64(i % 3), Y0: float64(10 * i), X1: 100, Y1: float64(10*i + 9)}})
				at = end
			}
		}
		return b
	})
	return rapid.SliceOfN(block, 0, 25).Draw(t, "blocks")
}

// drawn is a setting that is left out at zero.
func drawn[T comparable](v T) (o sheaf.Opt[T]) {
	if v != *new(T) {
		o = sheaf.Set(v)
	}
	return o
}

func drawConfig(t *rapid.T) sheaf.ParseConfig {
	return sheaf.ParseConfig{
		ChunkMethod:       drawn(rapid.SampledFrom(slices.Sorted(maps.Keys(strategies))).Draw(t, "method")),
		ChildrenDelimiter: drawn(rapid.SampledFrom([]string{"", "", "\n.", "`the`"}).Draw(t, "children")),
		HTML4Excel:        drawn(rapid.SampledFrom([]bool{false, false, true}).Draw(t, "html")),
		TOCExtraction:     drawn(rapid.SampledFrom([]bool{false, false, true}).Draw(t, "toc")),
		ImageContextSize:  drawn(rapid.SampledFrom([]int{0, 40}).Draw(t, "image context")),
		TableContextSize:  drawn(rapid.SampledFrom([]int{0, 40}).Draw(t, "table context")),
		ChunkTokenNum:     drawn(rapid.SampledFrom([]int{16, 17, 32, 100, 512}).Draw(t, "tokens")),
		OverlappedPercent: drawn(rapid.SampledFrom([]int{0, 0, 10, 50}).Draw(t, "overlap")),
		Delimiter:         drawn(rapid.SampledFrom([]string{"", "`##`", "\n.", "`a` `the`!"}).Draw(t, "delimiter")),
	}
}

// page gives the blocks pages, three to a page, and their boxes the same.
func page(blocks []sheaf.Block) [][]sheaf.Block {
	pages := [][]sheaf.Block{nil}
	for i, b := range blocks {
		if i%3 == 2 {
			pages = append(pages, nil)
		}
		n := len(pages)
		for k := range b.Spans {
			b.Spans[k].Box.Page = n
		}
		if b.Table != nil {
			for k := range b.Table.RowBoxes {
				b.Table.RowBoxes[k].Page = n
			}
		}
		pages[n-1] = append(pages[n-1], b)
	}
	return pages
}

func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '`' || r == '|' || r == '\\' {
			return -1
		}
		return r
	}, s)
}

func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, in Input) {
	t.Helper()
	chunks, err := Chunk(context.Background(), in)
	if err != nil {
		t.Fatalf("%v", err)
	}
	again, _ := Chunk(context.Background(), in)
	if !reflect.DeepEqual(chunks, again) {
		t.Fatalf("not deterministic")
	}
	limit := in.Config.ChunkTokenNum.V
	st := strategies[cmp.Or(in.Config.ChunkMethod.V, "general")]
	if method, _ := settings.MethodByName(in.Config.ChunkMethod.V); st.whole || st.uncut != nil || !method.Reads("chunk_token_num") {
		limit = maxTokens
	}
	boxes := map[int][]sheaf.Box{}
	var text strings.Builder
	tables, codes := false, false
	for _, u := range in.Units {
		for _, b := range u.Blocks {
			tables = tables || b.Table != nil
			codes = codes || b.Kind == sheaf.BlockCode
			text.WriteString(valid(b.Text))
			for _, s := range b.Spans {
				boxes[s.Box.Page] = append(boxes[s.Box.Page], s.Box)
			}
			if b.Table != nil {
				for _, box := range b.Table.RowBoxes {
					boxes[box.Page] = append(boxes[box.Page], box)
				}
			}
		}
	}
	var got strings.Builder
	for i, c := range chunks {
		switch {
		case !utf8.ValidString(c.Text):
			t.Fatalf("chunk %d is not UTF-8: %q", i, c.Text)
		case strings.TrimSpace(c.Text) == "":
			t.Fatalf("chunk %d is empty", i)
		case c.Tokens != CountTokens(c.Text):
			t.Fatalf("chunk %d counts %d tokens, has %d", i, c.Tokens, CountTokens(c.Text))
		case c.Tokens > limit:
			t.Fatalf("chunk %d has %d tokens, limit %d: %q", i, c.Tokens, limit, c.Text)
		case len(c.Pages) == 0 || !slices.IsSorted(c.Pages):
			t.Fatalf("chunk %d: pages %v", i, c.Pages)
		case c.ID != sheaf.ChunkID(in.RangeID, i) || c.Ordinal != sheaf.OrdinalBase(in.Range.From)+i:
			t.Fatalf("chunk %d: id %s, ordinal %d", i, c.ID, c.Ordinal)
		}
		if c.Role == sheaf.RoleContents || c.Role == sheaf.RoleSummary {
			continue // they repeat text
		}
		if c.Role == sheaf.RoleChild && !strings.Contains(squeeze(c.Parent), squeeze(c.Text)) && c.Kind == sheaf.ChunkText && !tables && !codes {
			t.Fatalf("chunk %d is no part of its parent: %q in %q", i, c.Text, c.Parent)
		}
		if c.Kind != sheaf.ChunkTable && c.Kind != sheaf.ChunkImage && c.Context != "" {
			t.Fatalf("chunk %d has a context: %q", i, c.Context)
		}
		got.WriteString(c.Text)
		if in.Config.ChunkMethod.V == "tag" {
			got.WriteString(strings.Join(c.Keywords, "")) // the second cell
		}
		if len(c.Boxes) > max(maxBoxes, len(c.Pages)) {
			t.Fatalf("chunk %d has %d boxes", i, len(c.Boxes))
		}
		for _, b := range c.Boxes {
			edges := [4]bool{}
			for _, o := range boxes[b.Page] {
				edges[0] = edges[0] || o.X0 == b.X0
				edges[1] = edges[1] || o.Y0 == b.Y0
				edges[2] = edges[2] || o.X1 == b.X1
				edges[3] = edges[3] || o.Y1 == b.Y1
			}
			if edges != [4]bool{true, true, true, true} {
				t.Fatalf("chunk %d: box %+v is no hull of lines", i, b)
			}
		}
	}
	if !tables && !codes && !st.contents && in.Config.OverlappedPercent.V == 0 {
		if want, got := squeeze(text.String()), squeeze(got.String()); want != got {
			t.Fatalf("text is lost or repeated:\n got %q\nwant %q", got, want)
		}
	}
	if tables {
		squeeze := squeeze
		if in.Config.ChunkMethod.V == "tag" {
			plain := squeeze
			squeeze = func(s string) string {
				return strings.NewReplacer(",", "", "，", "", ";", "", "；", "", "、", "").Replace(plain(s))
			}
		}
		all := squeeze(html.UnescapeString(got.String()))
		for _, u := range in.Units {
			for _, b := range u.Blocks {
				if b.Table == nil {
					continue
				}
				for _, row := range b.Table.Rows {
					for _, c := range row {
						if s := squeeze(valid(c)); len(s) < 12 && !strings.Contains(all, s) {
							t.Fatalf("cell %q of %q is lost in %q", c, row, all)
						}
					}
				}
			}
		}
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		check(t, input(drawConfig(t), page(drawBlocks(t))...))
	})
}

// A document cut into ranges where a heading stands gives the chunks of the
// whole document.
func TestRangesThatMeetAtAHeadingGiveTheSameChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.ChunkMethod, c.TOCExtraction, c.ImageContextSize, c.TableContextSize = sheaf.Set("general"), sheaf.Opt[bool]{}, sheaf.Opt[int]{}, sheaf.Opt[int]{}
		left := append(drawBlocks(t), para("An end."))
		right := append([]sheaf.Block{heading(rapid.IntRange(1, 3).Draw(t, "level"), "A new start")}, drawBlocks(t)...)
		type essence struct {
			text string
			kind sheaf.ChunkKind
			path string
		}
		run := func(path []string, blocks []sheaf.Block) (out []essence, end []string) {
			in := input(c, blocks)
			in.Headings = path
			chunks, err := Chunk(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			end = path
			for _, k := range chunks {
				out = append(out, essence{k.Text, k.Kind, strings.Join(k.HeadingPath, "/")})
				end = k.HeadingPath
			}
			return out, end
		}
		// levels of a path handed over count from 1, so use those that do
		for i, k := 0, 0; i < len(left); i++ {
			if left[i].Kind == sheaf.BlockHeading && strings.TrimSpace(left[i].Text) != "" {
				left[i].Level = min(max(left[i].Level, 1), k+1)
				k = left[i].Level
			}
		}
		whole, _ := run(nil, slices.Concat(left, right))
		a, path := run(nil, left)
		b, _ := run(path, right)
		if parts := slices.Concat(a, b); !slices.Equal(whole, parts) {
			t.Fatalf("whole: %q\nparts: %q", whole, parts)
		}
	})
}

func FuzzChunk(f *testing.F) {
	f.Add("First sentence. Second one!\n\nNext paragraph", "a,b;c,d", uint16(64), uint8(10), "`##`;", uint8(0))
	f.Add("中文句子。没有空格的很长的文字", "x", uint16(16), uint8(50), "", uint8(1))
	f.Add(strings.Repeat("a", 5000), strings.Repeat("b", 3000), uint16(20), uint8(0), "", uint8(2))
	f.Add("\xff\xfe broken", "\x80", uint16(16), uint8(0), "\xff`", uint8(3))
	f.Fuzz(func(t *testing.T, text, cells string, tokens uint16, overlap uint8, delimiter string, flags uint8) {
		var blocks []sheaf.Block
		kinds := []sheaf.BlockKind{sheaf.BlockParagraph, sheaf.BlockHeading, sheaf.BlockCode, sheaf.BlockListItem, sheaf.BlockCaption, sheaf.BlockImage}
		for i, s := range strings.Split(text, "\n\n") {
			blocks = append(blocks, sheaf.Block{Kind: kinds[(i*int(flags|1))%len(kinds)], Level: i % 7, Text: s})
		}
		table := &sheaf.Table{}
		for row := range strings.SplitSeq(cells, ";") {
			table.Rows = append(table.Rows, strings.Split(row, ","))
		}
		if flags&1 != 0 {
			table.Columns, table.Rows = table.Rows[0], table.Rows[1:]
		}
		blocks = append(blocks, sheaf.Block{Kind: sheaf.BlockTable, Table: table})
		c := sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(minTokens + int(tokens)%600), OverlappedPercent: sheaf.Set(int(overlap) % 51), Delimiter: sheaf.Set(delimiter)}
		if flags&8 != 0 {
			c.ChunkMethod = sheaf.Set("one")
		}
		check(t, input(c, blocks))
	})
}

func BenchmarkChunk(b *testing.B) {
	var pages [][]sheaf.Block
	for i := range 300 {
		pages = append(pages, []sheaf.Block{heading(2, fmt.Sprint("Section ", i)), para(prose(uint64(i), 12)), para(prose(uint64(i+500), 25))})
	}
	for _, overlap := range []int{0, 10} {
		b.Run(fmt.Sprint("overlap", overlap), func(b *testing.B) {
			in := input(sheaf.ParseConfig{OverlappedPercent: sheaf.Set(overlap)}, pages...)
			for b.Loop() {
				mustChunk(b, in)
			}
			b.ReportMetric(300*float64(b.N)/b.Elapsed().Seconds(), "pages/s")
		})
	}
}

func TestChunksCarryTheAddressesTheyLeadTo(t *testing.T) {
	text := para(prose(1, 30))
	text.Links = []sheaf.Link{{Start: 0, End: 5, URI: "https://example.org/first"}, {Start: 6, End: 9, Page: 3}, {Start: len(text.Text) - 5, End: len(text.Text), URI: "https://example.org/last"}}
	table := sheaf.Block{Kind: sheaf.BlockTable, Table: &sheaf.Table{Columns: []string{"Name", "Note"}}}
	for i := range 40 {
		table.Table.Rows = append(table.Table.Rows, []string{fmt.Sprintf("row %d", i), "some words of a note"})
		table.Table.RowBoxes = append(table.Table.RowBoxes, sheaf.Box{Page: 1, Y0: float64(10 * i), X1: 100, Y1: float64(10*i + 9)})
	}
	table.Links = []sheaf.Link{{Start: 1, End: 2, URI: "https://example.org/row0"}, {Start: 40, End: 41, URI: "https://example.org/row39"}}
	bare := table // a web page's, whose rows have no place
	bare.Table = &sheaf.Table{Columns: table.Table.Columns, Rows: table.Table.Rows}
	bare.Links = append([]sheaf.Link{{End: 1, URI: "https://example.org/row0"}}, table.Links...) // in the header, too
	for name, b := range map[string]sheaf.Block{"text": text, "table": table, "bare": bare} {
		chunks, err := Chunk(t.Context(), input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64)}, []sheaf.Block{b}))
		if err != nil {
			t.Fatal(err)
		}
		first, last := map[string]string{"text": "https://example.org/first", "table": "https://example.org/row0", "bare": "https://example.org/row0"}[name], map[string]string{"text": "https://example.org/last", "table": "https://example.org/row39", "bare": "https://example.org/row39"}[name]
		if len(chunks) < 3 {
			t.Fatalf("%s: %d chunks", name, len(chunks))
		}
		for i, c := range chunks {
			want := ""
			switch i {
			case 0:
				want = first
			case len(chunks) - 1:
				want = last
			}
			if got := c.Metadata[sheaf.MetadataLinks]; got != want {
				t.Errorf("%s: chunk %d carries %q, not %q", name, i, got, want)
			}
		}
	}
	// Where each row is a chunk, it has its own.
	for _, method := range []string{"table", "qa", "tag"} {
		chunks, err := Chunk(t.Context(), input(sheaf.ParseConfig{ChunkMethod: sheaf.Set(method)}, []sheaf.Block{bare}))
		if err != nil {
			t.Fatal(err)
		}
		with := 0
		for _, c := range chunks {
			if c.Metadata[sheaf.MetadataLinks] != "" {
				with++
			}
		}
		// The header's go with the first row, and with a chunk of its own where it may be a pair.
		if want := map[string]int{"table": 2, "qa": 3, "tag": 3}[method]; len(chunks) < 40 || with != want {
			t.Errorf("%s: %d of %d chunks carry links", method, with, len(chunks))
		}
	}
	many := para("word")
	for i := range 100 {
		many.Links = append(many.Links, sheaf.Link{End: 4, URI: fmt.Sprintf("https://example.org/%d", i%50)})
	}
	chunks, err := Chunk(t.Context(), input(sheaf.ParseConfig{ChunkTokenNum: sheaf.Set(64)}, []sheaf.Block{many}))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(chunks[0].Metadata[sheaf.MetadataLinks], "\n")
	if len(got) != maxLinks || slices.Contains(got[1:], got[0]) {
		t.Errorf("%q", got)
	}
}
