package chunker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
)

func TestEveryMethodHasAStrategy(t *testing.T) {
	for _, m := range settings.Methods {
		if _, ok := strategies[m.Name]; !ok {
			t.Errorf("%s has no strategy", m.Name)
		}
	}
	if len(strategies) != len(settings.Methods) {
		t.Errorf("%d strategies for %d methods", len(strategies), len(settings.Methods))
	}
}

// lines chunks blocks, all on one page, and writes each chunk as "path | text".
func lines(t *testing.T, c sheaf.ParseConfig, pages ...[]sheaf.Block) []string {
	t.Helper()
	var out []string
	for _, c := range mustChunk(t, input(c, pages...)) {
		out = append(out, strings.Join(c.HeadingPath, "/")+" | "+strings.ReplaceAll(c.Text, "\n", "⏎"))
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func table(b sheaf.Table) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockTable, Table: &b} }

func TestQuestionsAndAnswersStayTogether(t *testing.T) {
	c := sheaf.ParseConfig{ChunkMethod: sheaf.Set("qa"), ChunkTokenNum: sheaf.Set(16)}
	expect(t, lines(t, c, []sheaf.Block{table(sheaf.Table{Columns: []string{"Question", "Answer"}, Rows: [][]string{{"Who?", "Me."}, {"", "", ""}, {"What?", "", "This."}}})}),
		" | Question: Who?⏎Answer: Me.", " | Question: What?⏎Answer: This.")
	// a first row that names nothing is a pair itself, once though it heads every block
	rows := sheaf.Table{Columns: []string{"Who?", "Me."}, Rows: [][]string{{"When?", "Now."}}}
	expect(t, lines(t, c, []sheaf.Block{table(rows), table(rows)}),
		" | Question: Who?⏎Answer: Me.", " | Question: When?⏎Answer: Now.", " | Question: When?⏎Answer: Now.")
	long := prose(1, 8) // far more than 16 tokens
	expect(t, lines(t, c, []sheaf.Block{heading(1, "How does it work?"), para(long), heading(1, "Is it free?"), para("Yes.")}),
		"How does it work? | How does it work?⏎⏎"+long, "Is it free? | Is it free?⏎⏎Yes.")
	expect(t, lines(t, c, []sheaf.Block{para("Q: Where?\nA: Here.\nAnd there.\nQ: Why?\nA: Because.")}),
		"Q: Where? | Q: Where?⏎⏎A: Here.⏎And there.", "Q: Why? | Q: Why?⏎⏎A: Because.")
	chunks := mustChunk(t, input(c, []sheaf.Block{heading(1, "Where?"), para("Here.")}, []sheaf.Block{table(sheaf.Table{Rows: [][]string{{"Who?", "Me."}}})}))
	if !slices.Equal(chunks[0].Questions, []string{"Where?"}) || !slices.Equal(chunks[1].Questions, []string{"Who?"}) {
		t.Errorf("questions %q %q", chunks[0].Questions, chunks[1].Questions)
	}
}

func TestTableRowsCarryTypedValues(t *testing.T) {
	in := input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("table")}, []sheaf.Block{table(sheaf.Table{
		Columns: []string{"City", "People", "Share", "Capital", "Founded", ""}, Types: []string{"text", "integer", "number", "boolean", "date", "text"},
		FirstRow: 2, Rows: [][]string{{"Köln", "1085664", "0.5", "no", "0050-01-01", "x"}, {"Bonn", "", "n/a", "yes", "", ""}},
	})})
	chunks := mustChunk(t, in)
	if len(chunks) != 2 {
		t.Fatalf("%d chunks", len(chunks))
	}
	if got := fmt.Sprint(chunks[0].Columns); got != "map[Capital:false City:Köln Founded:0050-01-01 People:1085664 Share:0.5 column_6:x]" {
		t.Error(got)
	}
	if _, ok := chunks[0].Columns["People"].(int64); !ok {
		t.Errorf("People is %T", chunks[0].Columns["People"])
	}
	if got := fmt.Sprint(chunks[1].Columns); got != "map[Capital:true City:Bonn Share:n/a]" {
		t.Error(got)
	}
	if chunks[1].Text != "City: Bonn\nShare: n/a\nCapital: yes" || !slices.Equal(chunks[1].Pages, []int{3}) {
		t.Errorf("%q on %v", chunks[1].Text, chunks[1].Pages)
	}
}

func TestTagsAreKeywords(t *testing.T) {
	chunks := mustChunk(t, input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("tag")}, []sheaf.Block{heading(1, "Sheet"), table(sheaf.Table{
		Columns: []string{"description", "tags"}, Rows: [][]string{{"A red bridge", "bridge, red；river"}, {"Alone", ""}},
	})}))
	if len(chunks) != 2 || !slices.Equal(chunks[0].Keywords, []string{"bridge", "red", "river"}) || chunks[1].Text != "Alone" || chunks[1].Keywords != nil {
		t.Errorf("%+v", chunks)
	}
}

func TestPaperKeepsTheAbstractWhole(t *testing.T) {
	long := prose(5, 12)
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("paper"), ChunkTokenNum: sheaf.Set(100)},
		[]sheaf.Block{heading(1, "A Paper"), para("Abstract"), para(long), para("1 Introduction"), para("We begin."), para("1.1 Related work"), para("Others did."), para("2 apples were eaten.")}),
		"Abstract | A Paper⏎⏎Abstract⏎⏎"+long, "1 Introduction | 1 Introduction⏎⏎We begin.",
		"1 Introduction/1.1 Related work | 1.1 Related work⏎⏎Others did.⏎⏎2 apples were eaten.")
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("paper")}, []sheaf.Block{para("Abstract—We show it.")}), "Abstract— | Abstract—⏎⏎We show it.")
}

func TestBookIsCutByChapters(t *testing.T) {
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("book")},
		[]sheaf.Block{para("Contents"), para("Part I ........ 1\nChapter 1. The Sea ..... 3"), para("Chapter 2 . . . . . 17")},
		[]sheaf.Block{para("Part I"), para("Chapter 1. The Sea"), para("Chapter by chapter it grew. Then 5 ... 6 came."), para("第二章 海"), para("第三章里没有标题，只是正文。")}),
		" | Contents", "Part I/Chapter 1. The Sea | Part I⏎⏎Chapter 1. The Sea⏎⏎Chapter by chapter it grew. Then 5 ... 6 came.",
		"Part I/第二章 海 | 第二章 海⏎⏎第三章里没有标题，只是正文。")
}

func TestLawsAreCutByArticles(t *testing.T) {
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("laws")},
		[]sheaf.Block{heading(1, "Treaty"), para("CHAPTER II\nArticle 5 Lawfulness\nProcessing shall be lawful.\nArticle 5 of the other treaty is not meant.\nArticle 6. Each Member State shall do what it must under this rule, and no Member State may do otherwise than it must."), para("§ 7\nDie Würde.")}),
		"Treaty/CHAPTER II/Article 5 Lawfulness | Treaty⏎⏎CHAPTER II⏎⏎Article 5 Lawfulness⏎⏎Processing shall be lawful.⏎Article 5 of the other treaty is not meant.",
		"Treaty/CHAPTER II/Article 6. | Article 6.⏎⏎Each Member State shall do what it must under this rule, and no Member State may do otherwise than it must.",
		"Treaty/CHAPTER II/§ 7 | § 7⏎⏎Die Würde.")
}

func TestManualGathersShortSubsections(t *testing.T) {
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("manual")},
		[]sheaf.Block{para("1 Pump"), para("1.1 Start"), para("Turn on."), para("1.1.1 Cold"), para("Wait."), para("1.1.2 Warm"), para("Go."), para("1.2 Stop"), para("Turn off.")}),
		"1 Pump/1.1 Start | 1 Pump⏎⏎1.1 Start⏎⏎Turn on.⏎⏎1.1.1 Cold⏎⏎Wait.⏎⏎1.1.2 Warm⏎⏎Go.",
		"1 Pump/1.2 Stop | 1.2 Stop⏎⏎Turn off.")
}

func TestSlideIsAChunk(t *testing.T) {
	got := mustChunk(t, input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("presentation")},
		[]sheaf.Block{heading(1, "One"), item("a"), item("b"), table(sheaf.Table{Rows: [][]string{{"x", "y"}}}), heading(2, "Two"), para("c")}, nil, []sheaf.Block{heading(1, "Three")}, []sheaf.Block{para("Four")}))
	if len(got) != 3 || !slices.Equal(got[0].Pages, []int{1}) || !slices.Equal(got[1].Pages, []int{3}) || !slices.Equal(got[2].Pages, []int{4}) || got[1].Text != "Three" {
		t.Errorf("%+v", got)
	}
}

func TestQuotedMailStandsApart(t *testing.T) {
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("email")}, []sheaf.Block{para("I agree.\n> Shall we?\n> Or not?\nRegards")}, []sheaf.Block{para("Attachment.")}),
		" | I agree.", " | > Shall we?⏎> Or not?", " | Regards", " | Attachment.")
}

func TestResumeIsCutBySections(t *testing.T) {
	expect(t, lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("resume")}, []sheaf.Block{heading(1, "Ada Lovelace"), para("London\nWORK EXPERIENCE:\nEngines, 1842.\nEducation\nAt home.")}),
		"Ada Lovelace | Ada Lovelace⏎⏎London", "Ada Lovelace/WORK EXPERIENCE: | WORK EXPERIENCE:⏎⏎Engines, 1842.", "Ada Lovelace/Education | Education⏎⏎At home.")
}

func TestChildrenKnowTheirParent(t *testing.T) {
	c := sheaf.ParseConfig{ChildrenDelimiter: sheaf.Set("\\n;")}
	b := para("first line\nsecond; third")
	b.Spans = []sheaf.Span{{Start: 0, End: 11, Box: sheaf.Box{Page: 1, Y0: 1, X1: 9, Y1: 2}}, {Start: 11, End: len(b.Text), Box: sheaf.Box{Page: 1, Y0: 3, X1: 9, Y1: 4}}}
	got := mustChunk(t, input(c, []sheaf.Block{heading(1, "H"), b}))
	var texts []string
	for i, k := range got {
		texts = append(texts, k.Text)
		if k.Parent != "H\n\nfirst line\nsecond; third" || k.Role != sheaf.RoleChild || k.Ordinal != sheaf.OrdinalBase(1)+i {
			t.Errorf("child %+v", k)
		}
	}
	expect(t, texts, "H\n\nfirst line", "second;", "third")
	if got[0].Boxes[0].Y0 != 1 || got[2].Boxes[0].Y0 != 3 {
		t.Errorf("boxes %v %v", got[0].Boxes, got[2].Boxes)
	}
}

func TestTablesAsHTML(t *testing.T) {
	expect(t, lines(t, sheaf.ParseConfig{HTML4Excel: sheaf.Set(true)}, []sheaf.Block{table(sheaf.Table{Name: "T", Columns: []string{"a", "b"}, Rows: [][]string{{"1", "<x>"}}})}),
		" | <table>⏎<caption>T</caption>⏎<tr><th>a</th><th>b</th></tr>⏎<tr><td>1</td><td>&lt;x&gt;</td></tr>⏎</table>")
}

func TestContextOfTablesAndImages(t *testing.T) {
	got := mustChunk(t, input(sheaf.ParseConfig{TableContextSize: sheaf.Set(12), ImageContextSize: sheaf.Set(6)},
		[]sheaf.Block{para("Far away. Sales rose in spring."), table(sheaf.Table{Rows: [][]string{{"x", "1"}}}), para("They fell in autumn. The end is long and says nothing at all here.")}))
	if got[1].Context != "Far away. Sales rose in spring.\nThey fell in autumn." {
		t.Errorf("%q", got[1].Context)
	}
	if strings.Contains(got[1].Text, "Sales") || got[0].Context != "" {
		t.Errorf("the context is part of the text: %+v", got)
	}
}

func TestContentsOfARange(t *testing.T) {
	got := mustChunk(t, input(sheaf.ParseConfig{TOCExtraction: sheaf.Set(true)}, []sheaf.Block{heading(1, "One"), para("a")}, []sheaf.Block{heading(2, "Two"), para("b")}))
	last := got[len(got)-1]
	if last.Role != sheaf.RoleContents || last.Text != "One (1)\n  Two (2)" || !slices.Equal(last.Pages, []int{1, 2}) || len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

const goSource = `// Package p is small.
package p

import "fmt"

// Limit of all.
const limit = 7

// T counts.
type T struct{ n int }

// Add adds. It has a comment
// of two lines.
func (t *T) Add(n int) {
	t.n += n
}

func free() { fmt.Println(limit) }
`

func TestGoIsCutByItsSyntaxTree(t *testing.T) {
	code := func(limit int, lang, text string) []string {
		return lines(t, sheaf.ParseConfig{ChunkMethod: sheaf.Set("code"), ChunkTokenNum: sheaf.Set(limit)}, []sheaf.Block{{Kind: sheaf.BlockCode, Lang: lang, Text: text}})
	}
	expect(t, code(36, "go", goSource), // neighbours that fit share a chunk, under the name that they share
		" | ```go⏎// Package p is small.⏎package p⏎⏎import \"fmt\"⏎⏎// Limit of all.⏎const limit = 7⏎```",
		"type T | ```go⏎// T counts.⏎type T struct{ n int }⏎```",
		"func T.Add | ```go⏎// Add adds. It has a comment⏎// of two lines.⏎func (t *T) Add(n int) {⏎\tt.n += n⏎}⏎```",
		"func free | ```go⏎func free() { fmt.Println(limit) }⏎```")
	python := "import os\n\n# A box.\nclass Box:\n    def __init__(self, side):\n        self.side = side\n        self.area = side * side\n\n    def grow(self, by):\n        if by:\n            self.side += by\n        else:\n            pass\n\ndef main():\n    print(Box(3).area)\n"
	expect(t, code(44, "python", python),
		" | ```python⏎import os⏎⏎# A box.⏎class Box:⏎    def __init__(self, side):⏎        self.side = side⏎        self.area = side * side⏎```",
		" | ```python⏎    def grow(self, by):⏎        if by:⏎            self.side += by⏎        else:⏎            pass⏎⏎def main():⏎    print(Box(3).area)⏎```")
}

func TestSemanticCutsWhereTheSubjectChanges(t *testing.T) {
	sea, sky := "The sea wave met the ship on the sea. ", "A star in the sky shone on the moon. "
	text := strings.Repeat(sea, 9) + strings.Repeat(sky, 9)
	got := mustChunk(t, input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("semantic")}, []sheaf.Block{para(strings.TrimSpace(text))}))
	if len(got) != 2 || got[0].Text != strings.TrimSpace(strings.Repeat(sea, 9)) {
		t.Errorf("%q", texts(got))
	}
	in := input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("semantic")}, []sheaf.Block{para(text)})
	in.Embed = nil
	if _, err := Chunk(t.Context(), in); err == nil || !strings.Contains(err.Error(), "embedding model") {
		t.Errorf("without a model: %v", err)
	}
}

func TestHierarchyHasParentsAndSummary(t *testing.T) {
	text := prose(3, 40)
	got := mustChunk(t, input(sheaf.ParseConfig{ChunkMethod: sheaf.Set("hierarchical"), ChunkTokenNum: sheaf.Set(64)}, []sheaf.Block{heading(1, "H"), para(text)}))
	last := got[len(got)-1]
	if last.Role != sheaf.RoleSummary || last.Tokens > 64 || last.Tokens < 8 || !slices.Equal(last.HeadingPath, []string{"H"}) {
		t.Errorf("summary %+v", last)
	}
	for s := range strings.SplitSeq(last.Text, "\n") {
		if !strings.Contains(text, s) {
			t.Errorf("the summary invents %q", s)
		}
	}
	for _, c := range got[:len(got)-1] {
		if c.Role != sheaf.RoleChild || !strings.Contains(c.Parent, c.Text) || CountTokens(c.Parent) > 4*64+8 || c.Parent == c.Text {
			t.Errorf("child %q of %q", c.Text, c.Parent)
		}
	}
}
