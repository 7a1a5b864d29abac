package pdf

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/jpeg"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/pdf/enginetest"
	"sheaf/parser/pdf/pdfiumwasm"
)

var update = flag.Bool("update", false, "write the golden files anew")

// shared is one engine for all tests of the package: starting it takes 0.1 s.
var shared = New(Config{Engine: pdfiumwasm.New(pdfiumwasm.Config{})})

func openBytes(t testing.TB, b []byte, cfg sheaf.ParseConfig) (parser.Document, error) {
	t.Helper()
	d, err := shared.Open(context.Background(), enginetest.Write(t, b), parser.Options{Name: "fixture.pdf", MediaType: parser.MediaPDF, TempDir: t.TempDir(), Config: cfg})
	if err == nil {
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return d, err
}

func parse(t testing.TB, f enginetest.File) []sheaf.UnitResult {
	t.Helper()
	d, err := openBytes(t, f.Bytes(), sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return parseAllPages(t, d)
}

func parseAllPages(t testing.TB, d parser.Document) []sheaf.UnitResult {
	t.Helper()
	var out []sheaf.UnitResult
	err := d.Parse(context.Background(), sheaf.Range{From: 1, To: d.(*document).pages}, func(u sheaf.UnitResult) error {
		for i := range u.Blocks {
			if err := sound(&u, &u.Blocks[i]); err != nil {
				t.Errorf("page %d: %v", u.Unit, err)
			}
		}
		out = append(out, u)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// dump prints units the way the golden files hold them.
func dump(us []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range us {
		fmt.Fprintf(&b, "== page %d %q %s %s %gx%g\n", u.Unit, u.Label, u.Status, u.Code, u.Width, u.Height)
		for _, w := range u.Warnings {
			fmt.Fprintf(&b, "!! %s: %s\n", w.Code, w.Message)
		}
		for _, k := range u.Blocks {
			fmt.Fprintf(&b, "[%s %d] %s\n", k.Kind, k.Level, strings.ReplaceAll(k.Text, "\n", "\n    "))
			for _, s := range k.Spans {
				fmt.Fprintf(&b, "      %q at %.0f %.0f %.0f %.0f\n", k.Text[s.Start:s.End], s.Box.X0, s.Box.Y0, s.Box.X1, s.Box.Y1)
			}
			if k.Table != nil {
				fmt.Fprintf(&b, "      table at %.0f %.0f %.0f %.0f\n", k.Table.Box.X0, k.Table.Box.Y0, k.Table.Box.X1, k.Table.Box.Y1)
				fmt.Fprintf(&b, "      # %s\n", strings.Join(k.Table.Columns, " | "))
				for _, r := range k.Table.Rows {
					fmt.Fprintf(&b, "      | %s\n", strings.Join(r, " | "))
				}
			}
		}
	}
	return b.String()
}

func golden(t *testing.T, name string, us []sheaf.UnitResult) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	got := dump(us)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run the tests with -update", err)
	}
	if got != string(want) {
		t.Errorf("differs from %s; got:\n%s", path, got)
	}
}

// lines sets text line by line from y downwards.
func lines(font string, size, x, y, leading float64, text ...string) string {
	var b strings.Builder
	for _, s := range text {
		b.WriteString(enginetest.Text(font, size, x, y, s))
		y -= leading
	}
	return b.String()
}

var leftColumn = []string{
	"The first column holds running text that", "fills the lines from edge to edge so that a", "reader, and a program, can tell that it is",
	"prose and not a row of cells. It goes on for", "some lines more, since three lines are the", "least that makes a column, and ends here.",
}

var rightColumn = []string{
	"The second column starts at the same height", "as the first one does, which is the reason", "why a naive reader mixes the two. A reader",
	"that respects columns finishes the first one", "before it begins with this one, and then", "reads it down to its very last line.",
}

func TestColumnsAreReadOneAfterTheOther(t *testing.T) {
	golden(t, "columns", parse(t, enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F2", 20, 120, 740, "A Title Over Both Columns") +
		lines("F1", 10, 60, 690, 13, leftColumn...) + lines("F1", 10, 320, 690, 13, rightColumn...) +
		enginetest.Text("F2", 13, 60, 580, "2.1 A Section Heading That Runs Over Both") +
		lines("F1", 10, 60, 550, 13, rightColumn...) + lines("F1", 10, 320, 550, 13, leftColumn...)}}}))
}

func TestHeadingsListsParagraphsAndNotes(t *testing.T) {
	content := enginetest.Text("F2", 22, 72, 720, "1 Introduction") +
		lines("F4", 11, 72, 690, 14,
			"The opening paragraph is set in lines that reach the right margin of the page, so the next",
			"line continues it, even where a word is bro-", "ken at the end of a line, or where a well-", "known compound keeps its hyphen.") +
		lines("F4", 11, 72, 620, 14, "A second paragraph follows after a gap.") +
		enginetest.Text("F4", 11, 86, 596, "\x95 a first point of a list that is long enough to need another line, which it gets right") +
		enginetest.Text("F4", 11, 96, 582, "here under its text") +
		enginetest.Text("F4", 11, 86, 566, "\x95 a second point") +
		enginetest.Text("F4", 11, 86, 550, "1. numbered items count as well") +
		enginetest.Text("F2", 14, 72, 510, "1.1 Details") +
		lines("F3", 10, 90, 480, 12, "for i := range n {", "    total += i", "}") +
		lines("F4", 11, 72, 420, 14, "The well-known text goes on below the program and ends the page's main part here.") +
		enginetest.Text("F4", 9, 72, 100, "1 A footnote stands in small letters at the bottom of the page.")
	golden(t, "blocks", parse(t, enginetest.File{Pages: []enginetest.Page{{Content: content}}}))
}

func TestTablesWithAndWithoutRules(t *testing.T) {
	var ruled strings.Builder
	rows := [][]string{{"Name", "Amount", "Share"}, {"Apples", "1,200", "40 %"}, {"Pears and plums", "900", "30 %"}, {"Cherries", "900", "30 %"}}
	for i, r := range rows {
		y := 700 - float64(i)*20
		for c, text := range r {
			ruled.WriteString(enginetest.Text("F1", 10, 76+float64(c)*130, y-14, text))
		}
	}
	for i := range 5 {
		ruled.WriteString(enginetest.Line(72, 700-float64(i)*20, 462, 700-float64(i)*20))
	}
	for c := range 4 {
		ruled.WriteString(enginetest.Line(72+float64(c)*130, 620, 72+float64(c)*130, 700))
	}
	open := lines("F1", 10, 72, 560, 14, "A sentence stands before the table that is made of white space alone.")
	for i, r := range [][]string{{"Year", "Births", "Deaths"}, {"2019", "778,090", "939,520"}, {"2020", "773,144", "985,572"}, {"2021", "795,492", "1,023,687"}} {
		for c, text := range r {
			open += enginetest.Text("F1", 10, 72+float64(c)*120, 530-float64(i)*14, text)
		}
	}
	open += lines("F1", 10, 72, 440, 14, "And a sentence stands after it, which is not a part of the table at all.")
	golden(t, "tables", parse(t, enginetest.File{Pages: []enginetest.Page{{Content: ruled.String() + open}}}))
}

// rows sets the cells of a table, a row every 18 points down from y.
func rows(font string, y float64, xs []float64, cells ...[]string) string {
	var b strings.Builder
	for i, row := range cells {
		for c, text := range row {
			if text != "" {
				b.WriteString(enginetest.Text(font, 10, xs[c], y-18*float64(i), text))
			}
		}
	}
	return b.String()
}

func TestLinksLeadToAddressesAndPages(t *testing.T) {
	f := enginetest.File{Pages: []enginetest.Page{
		{Content: enginetest.Text("F1", 12, 72, 700, "Read the handbook online") + enginetest.Text("F1", 12, 72, 640, "or see below."), Links: []enginetest.Link{
			{Box: [4]int{92, 696, 181, 714}, URI: "https://example.org/handbook"},
			{Box: [4]int{86, 636, 150, 654}, Page: 1},
		}},
		{Content: enginetest.Text("F1", 12, 72, 700, "Below.")},
	}}
	var got []string
	for _, b := range parse(t, f)[0].Blocks {
		for _, l := range b.Links {
			got = append(got, fmt.Sprintf("%s: %s %d", b.Text[l.Start:l.End], l.URI, l.Page))
		}
	}
	if want := []string{"the handbook: https://example.org/handbook 0", "see below.:  2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLinksInTablesKnowTheirRow(t *testing.T) {
	content := ""
	for _, y := range []float64{700, 680, 660, 640} {
		content += enginetest.Line(72, y, 402, y)
	}
	for _, x := range []float64{72, 182, 402} {
		content += enginetest.Line(x, 640, x, 700)
	}
	content += rows("F1", 685, []float64{76, 190}, []string{"Name", "Page"}) + rows("F4", 665, []float64{76, 190}, []string{"Ada", "hers"}) + rows("F4", 645, []float64{76, 190}, []string{"Bob", "his"})
	blocks := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: content, Links: []enginetest.Link{{Box: [4]int{188, 642, 230, 658}, URI: "https://example.org/bob"}}}}})[0].Blocks
	if len(blocks) != 1 || blocks[0].Table == nil {
		t.Fatalf("%+v", blocks)
	}
	if got, want := blocks[0].Links, []sheaf.Link{{Start: 2, End: 3, URI: "https://example.org/bob"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// visual is the order in which a line of Hebrew or Arabic stands, from left to
// right: reversed, but for its numbers.
func visual(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	for i := 0; i < len(r); i++ {
		k := i
		for k < len(r) && r[k] >= '0' && r[k] <= '9' {
			k++
		}
		slices.Reverse(r[i:k])
		i = max(i, k-1)
	}
	return string(r)
}

func TestScriptsOfOtherDirectionsAndWithoutSpaces(t *testing.T) {
	right := func(y float64, s string) string { // against the right margin, at 540
		return enginetest.Wide(10, 540-10*float64(utf8.RuneCountInString(s)), y, visual(s))
	}
	column := func(x float64, lines ...string) (content string) { // the lines, five times
		for i := range 5 * len(lines) {
			content += enginetest.Wide(10, x, 700-14*float64(i), lines[i%len(lines)])
		}
		return content
	}
	for name, c := range map[string]struct{ content, want string }{
		"hebrew":  {right(700, "הקציר של שנת 2026 היה טוב מן הצפוי לפי הספירה") + right(686, "והעצים נשאו פרי רב"), "הקציר של שנת 2026 היה טוב מן הצפוי לפי הספירה והעצים נשאו פרי רב"},
		"arabic":  {right(700, "كان حصاد سنة 2026 افضل من المتوقع في البستان") + right(686, "وحملت الاشجار ثمرا"), "كان حصاد سنة 2026 افضل من المتوقع في البستان وحملت الاشجار ثمرا"},
		"chinese": {enginetest.Wide(10, 72, 700, "今年的木瓜收成比预期的要好得多因为春天的雨水充足而且夏天") + enginetest.Wide(10, 72, 686, "也不太热。"), "今年的木瓜收成比预期的要好得多因为春天的雨水充足而且夏天也不太热。"},
		"japanese in two columns": {column(72, "左の段の一行目はここで終わらず", "次の行に続いていくことになる。") + column(330, "右の段はその後に読まれるもので", "最後に来ることになっている文。"),
			strings.Repeat("左の段の一行目はここで終わらず次の行に続いていくことになる。", 5) + "|" + strings.Repeat("右の段はその後に読まれるもので最後に来ることになっている文。", 5)},
		"korean": {enginetest.Wide(10, 72, 700, "올해 모과 수확은 예상보다 좋았고 봄비가 충분히 내렸기") + enginetest.Wide(10, 72, 686, "때문이다."), "올해 모과 수확은 예상보다 좋았고 봄비가 충분히 내렸기 때문이다."},
	} {
		var got []string
		for _, b := range parse(t, enginetest.File{Pages: []enginetest.Page{{Content: c.content}}})[0].Blocks {
			got = append(got, b.Text)
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, s, c.want)
		}
	}
}

func TestFiguresStandBesideTheirCaptions(t *testing.T) {
	u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F4", 11, 72, 720, "A paragraph stands over the figure.") +
		enginetest.Image(72, 480, 200, 200) + enginetest.Text("F4", 10, 72, 460, "Figure 3: What the paragraph speaks of.") +
		enginetest.Text("F4", 11, 72, 400, "Another one follows it.")}}})[0]
	var kinds []sheaf.BlockKind
	for _, b := range u.Blocks {
		kinds = append(kinds, b.Kind)
	}
	if want := []sheaf.BlockKind{sheaf.BlockParagraph, sheaf.BlockImage, sheaf.BlockCaption, sheaf.BlockParagraph}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("got %s, want %v", dump([]sheaf.UnitResult{u}), want)
	}
}

func TestRuledCellsMaySpanOthers(t *testing.T) {
	content := ""
	for _, y := range []float64{700, 664, 646, 628, 610} {
		content += enginetest.Line(72, y, 402, y)
	}
	content += enginetest.Line(182, 682, 402, 682) // parts the group's name from the names under it
	for _, x := range []float64{72, 182, 402} {
		content += enginetest.Line(x, 610, x, 700)
	}
	content += enginetest.Line(292, 610, 292, 682)
	content += enginetest.Text("F1", 10, 240, 687, "Number of people") + enginetest.Text("F1", 10, 76, 678, "Country") +
		rows("F1", 669, []float64{76, 190, 300}, []string{"", "men", "women"}, []string{"Austria", "4,400", "4,500"}, []string{"Belgium", "5,700", "5,800"}, []string{"Croatia", "1,900", "2,000"})
	u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: content}}})[0]
	if len(u.Blocks) != 1 || u.Blocks[0].Table == nil {
		t.Fatalf("got %s", dump([]sheaf.UnitResult{u}))
	}
	got := u.Blocks[0].Table
	all := append([][]string{got.Columns}, got.Rows...)
	want := [][]string{{"Country", "Number of people / men", "Number of people / women"}, {"Austria", "4,400", "4,500"}, {"Belgium", "5,700", "5,800"}, {"Croatia", "1,900", "2,000"}}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("cells %q, want %q", all, want)
	}
	if got.Spans != nil || len(got.RowBoxes) != 3 {
		t.Errorf("spans %+v, %d boxes of rows", got.Spans, len(got.RowBoxes))
	}
}

func TestTwoRowsAreAHeaderOnlyWhereOneGroupsTheOther(t *testing.T) {
	over := sheaf.TableSpan{Row: 0, Column: 1, Rows: 1, Columns: 2}
	for name, c := range map[string]struct {
		table table
		want  []string
	}{
		"years over kinds":        {table{rows: [][]string{{"", "2024", ""}, {"", "plan", "actual"}, {"Oak", "1", "2"}, {"Elm", "3", "4"}}, spans: []sheaf.TableSpan{over}}, []string{"", "2024 / plan", "2024 / actual"}},
		"a name under nothing":    {table{rows: [][]string{{"", "Count", ""}, {"Tree", "plan", "actual"}, {"Oak", "1", "2"}}, spans: []sheaf.TableSpan{over}, header: true}, []string{"Tree", "Count / plan", "Count / actual"}},
		"rows of text":            {table{rows: [][]string{{"", "Contact", ""}, {"Ann", "mail", "Bonn"}, {"Bob", "post", "Köln"}}, spans: []sheaf.TableSpan{over}, header: true}, nil},
		"one column filled twice": {table{rows: [][]string{{"Name", "Contact", ""}, {"Ann", "mail", "Bonn"}, {"Bob", "post", "Köln"}}, spans: []sheaf.TableSpan{over}, header: true}, nil},
		"figures under the group": {table{rows: [][]string{{"Tree", "Count", ""}, {"", "1", "2"}, {"Oak", "3", "4"}}, spans: []sheaf.TableSpan{over}, header: true}, nil},
		"a title over all":        {table{rows: [][]string{{"Trees", "", ""}, {"Tree", "plan", "actual"}, {"Oak", "1", "2"}}, spans: []sheaf.TableSpan{{Columns: 3, Rows: 1}}}, nil},
	} {
		if got := c.table.grouped(); got != (c.want != nil) || got && !slices.Equal(c.table.groupedColumns(), c.want) {
			t.Errorf("%s: %v, %q", name, got, c.table.groupedColumns())
		}
	}
}

func TestTablesWithHorizontalRulesOnly(t *testing.T) {
	xs := []float64{72, 250}
	content := lines("F1", 11, 72, 740, 14, "A sentence of some length stands over the table that has three rules, and it", "goes on for another line.")
	for _, y := range []float64{700, 680, 590} { // above and below the header, and at the foot
		content += enginetest.Line(72, y, 420, y)
	}
	content += enginetest.Text("F1", 10, 72, 687, "Task") + enginetest.Text("F1", 10, 250, 687, "What it is for") +
		rows("F1", 667, xs, []string{"convert", "turns a document into another format"}, []string{"", ""}, []string{"compare", "shows in which places two"}) +
		enginetest.Text("F1", 10, 250, 619, "documents differ") + enginetest.Text("F1", 10, 72, 596, "repair") + enginetest.Text("F1", 10, 250, 596, "mends what is damaged")
	content += lines("F1", 11, 72, 560, 14, "A sentence stands under it. Two rules alone, with prose between them, are no table:")
	content += enginetest.Line(72, 540, 420, 540) + lines("F1", 11, 72, 520, 14, "this is a remark that somebody wanted to set", "apart from the text around it.") + enginetest.Line(72, 495, 420, 495) + enginetest.Line(72, 450, 420, 450)
	golden(t, "bands", parse(t, enginetest.File{Pages: []enginetest.Page{{Content: content}}}))
}

func TestListsAndStretchedLinesAreNoTables(t *testing.T) {
	content := ""
	for i, item := range []string{"the first point", "the second one", "a third", "and the last of them"} {
		y := 700 - float64(i)*14
		content += enginetest.Text("F1", 11, 72, y, "\x95") + enginetest.Text("F1", 11, 100, y, item)
	}
	for i, line := range [][]string{{"words that were stretched", "over the whole width of it"}, {"so that a wide gap comes", "to stand in most of its rows"}, {"as bad typesetters make", "them where a line is short"}, {"and more of the same here", "which ends with this one"}} {
		y := 600 - float64(i)*14
		content += enginetest.Text("F3", 11, 72, y, line[0]) + enginetest.Text("F3", 11, 500-6.6*float64(len(line[1])), y, line[1])
	}
	for _, b := range parse(t, enginetest.File{Pages: []enginetest.Page{{Content: content}}})[0].Blocks {
		if b.Table != nil {
			t.Errorf("a table was found: %q %q", b.Table.Columns, b.Table.Rows)
		}
	}
}

func TestRunningLinesAreRemovedAndBodyTextIsNot(t *testing.T) {
	f := enginetest.File{}
	for n := 1; n <= 6; n++ {
		head := "Annual Report"
		if n%2 == 0 {
			head = "Chapter on Repetition"
		}
		f.Pages = append(f.Pages, enginetest.Page{Content: enginetest.Text("F1", 9, 72, 760, head) + enginetest.Text("F1", 9, 300, 30, fmt.Sprint(n)) +
			enginetest.Text("F1", 11, 72, 700, "Every page repeats this sentence in its body.") +
			enginetest.Text("F1", 11, 72, 660, fmt.Sprintf("This one, about item %c, it does not repeat.", 'a'+n))})
	}
	us := parse(t, f)
	for _, u := range us {
		got := dump([]sheaf.UnitResult{u})
		if strings.Contains(got, "Annual") || strings.Contains(got, "Chapter") || strings.Count(got, "Every page repeats this sentence in its body.") == 0 || !strings.Contains(got, "This one") {
			t.Errorf("page %d: %s", u.Unit, got)
		}
	}
	if w := us[5].Warnings; len(w) != 1 || w[0].Code != "running_lines_removed" || !strings.HasPrefix(w[0].Message, "Running headers and footers (12) ") {
		t.Errorf("warnings: %+v", w)
	}
	if r := us[1].Running; len(r) != 2 || r[0] != "Chapter on Repetition" || r[1] != "2" {
		t.Errorf("running lines of page 2: %q", r)
	}
	// Two pages are not enough to tell.
	for _, u := range parse(t, enginetest.File{Pages: f.Pages[:2]}) {
		if !strings.Contains(dump([]sheaf.UnitResult{u}), map[int]string{1: "Annual", 2: "Chapter"}[u.Unit]) {
			t.Errorf("a header was removed on the evidence of two pages: %+v", u)
		}
	}
}

func TestTextDrawnTwiceIsReadOnce(t *testing.T) {
	bold := ""
	for _, shift := range []float64{0, 0.3} { // letters made fat by drawing a line twice
		bold += lines("F1", 12, 72+shift, 700, 16, "A fat line stands here", "and another follows it")
	}
	got := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: bold + enginetest.Text("F1", 12, 72, 640, "had had is said twice")}}})[0]
	text := ""
	for _, b := range got.Blocks {
		text += b.Text + " "
	}
	if want := "A fat line stands here and another follows it had had is said twice"; strings.TrimSpace(text) != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestRaisedNumbersAreNoPartOfAWord(t *testing.T) {
	raised := func(x, y float64, word, number, rest string) string {
		return fmt.Sprintf("BT /F1 12 Tf %g %g Td (%s) Tj /F1 7 Tf 5 Ts (%s) Tj /F1 12 Tf 0 Ts (%s) Tj ET\n", x, y, word, number, rest)
	}
	got := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: raised(72, 700, "the tongue of Spain", "3", " is old") +
		raised(72, 660, "an area of 20 km", "2", " in all") + raised(72, 620, "about 10", "6", " people") + raised(72, 200, "", "17", "Some remark")}}})[0]
	text := ""
	for _, b := range got.Blocks {
		text += b.Text + "\n"
	}
	for _, want := range []string{"Spain 3 is", "km2 in", "10 6 people", "17 Some remark"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %q", want, text)
		}
	}
}

func TestBoxesAreThoseOfTheDisplayedPage(t *testing.T) {
	body := enginetest.Text("F1", 12, 100, 500, "Somewhere on the page stands this line")
	upright := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: body}}})[0]
	b := upright.Blocks[0].Spans[0].Box
	if b.X0 < 98 || b.X0 > 102 || b.Y0 < 275 || b.Y1 > 300 || b.Y1-b.Y0 > 18 {
		t.Fatalf("upright: %+v", b)
	}
	for _, c := range []struct {
		rotate         int
		x0, y0, x1, y1 float64
	}{
		{90, 792 - b.Y1, b.X0, 792 - b.Y0, b.X1},
		{180, 612 - b.X1, 792 - b.Y1, 612 - b.X0, 792 - b.Y0},
		{270, b.Y0, 612 - b.X1, b.Y1, 612 - b.X0},
	} {
		u := parse(t, enginetest.File{Pages: []enginetest.Page{{Content: body, Rotate: c.rotate}}})[0]
		if len(u.Blocks) != 1 || u.Blocks[0].Text != upright.Blocks[0].Text {
			t.Fatalf("turned by %d: %s", c.rotate, dump([]sheaf.UnitResult{u}))
		}
		g := u.Blocks[0].Spans[0].Box
		const slack = 0.05
		if abs(g.X0-c.x0) > slack || abs(g.Y0-c.y0) > slack || abs(g.X1-c.x1) > slack || abs(g.Y1-c.y1) > slack {
			t.Errorf("turned by %d: %+v, want %+v", c.rotate, g, c)
		}
	}
}

func abs(v float64) float64 { return max(v, -v) }

func TestTextInAnotherDirectionIsKeptApart(t *testing.T) {
	golden(t, "directions", parse(t, enginetest.File{Pages: []enginetest.Page{
		{Content: enginetest.Text("F1", 12, 100, 500, "The page reads like this.") + "BT /F1 12 Tf 0 1 -1 0 30 300 Tm (A stamp up the margin) Tj ET\n"},
		{Content: "BT /F1 12 Tf 0 1 -1 0 200 100 Tm (A landscape page) Tj ET\nBT /F1 12 Tf 0 1 -1 0 216 100 Tm (is read as it was meant.) Tj ET\n"},
	}}))
}

func TestPagesWithoutTextAreVerdicts(t *testing.T) {
	us := parse(t, enginetest.File{Labels: "0 << /S /r >>", Pages: []enginetest.Page{
		{},
		{Content: enginetest.Image(0, 0, 612, 792)},
		{Content: enginetest.Image(0, 0, 612, 792) + enginetest.Text("F1", 12, 72, 700, "Received")},
		{Content: enginetest.Image(72, 300, 200, 200) + enginetest.Text("F1", 12, 72, 700, "A page with a figure and its text")},
		{Content: enginetest.Text("F1", 12, 720, 700, "Off the page")},
		{Content: strings.Repeat(enginetest.Line(10, 10, 500, 400), 20)},
	}})
	if w := us[4].Warnings; len(w) != 1 || w[0].Code != "text_off_page" {
		t.Errorf("text outside of the page: %+v", us[4])
	}
	for i, want := range []string{"blank ", "skipped needs_ocr", "skipped needs_ocr", "ok ", "blank ", "skipped needs_ocr"} {
		if got := string(us[i].Status) + " " + us[i].Code; got != want {
			t.Errorf("page %d: %s, want %s", i+1, got, want)
		}
		if us[i].Status == sheaf.UnitSkipped && us[i].Message == "" {
			t.Errorf("page %d is skipped without a sentence", i+1)
		}
	}
	if us[0].Label != "i" || us[3].Label != "iv" {
		t.Errorf("labels %q and %q", us[0].Label, us[3].Label)
	}
	if !strings.Contains(dump(us[2:3]), "Received") {
		t.Error("the stamp on the scan was lost")
	}
	if k := us[3].Blocks; len(k) != 2 || k[1].Kind != sheaf.BlockImage || k[1].Spans[0].Box != (sheaf.Box{Page: 4, X0: 72, Y0: 292, X1: 272, Y1: 492}) {
		t.Errorf("figure: %+v", k)
	}
}

// What courts, fax machines and signing services print along the edges of a scan is
// not the text of the page; a caption, or text in the middle of a picture, is.
func TestStampsAreNotTheTextOfAScan(t *testing.T) {
	scan := enginetest.Image(0, 0, 612, 792)
	court := enginetest.Text("F1", 9, 72, 775, "Case 2:19-cv-04817-QNC  Document 112-3  Filed 05/06/20  Page 5 of 10  PageID 4711")
	bates := enginetest.Text("F1", 9, 500, 20, "QUINCE-0004711") + "BT /F1 9 Tf 0 1 -1 0 20 300 Tm (CONFIDENTIAL - ATTORNEYS' EYES ONLY) Tj ET\n"
	us := parse(t, enginetest.File{Pages: []enginetest.Page{
		{Content: scan + court},
		{Content: scan + court + bates},
		{Content: court + bates},
		{Content: scan + court + enginetest.Text("F1", 12, 100, 400, "A slide with a picture behind its text")},
		{Content: enginetest.Image(60, 200, 480, 500) + enginetest.Text("F1", 9, 72, 775, "Appendix B, a plan of the orchard and its surroundings")},
	}})
	for i, want := range []string{"skipped needs_ocr", "skipped needs_ocr", "ok ", "ok ", "ok "} {
		if got := string(us[i].Status) + " " + us[i].Code; got != want {
			t.Errorf("page %d: %s, want %s", i+1, got, want)
		}
	}
	if text := dump(us[1:2]); !strings.Contains(text, "QUINCE-0004711") || !strings.Contains(text, "CONFIDENTIAL") {
		t.Errorf("the stamps were lost: %s", text)
	}
}

func failed(t *testing.T, err error, code string, category sheaf.Category) {
	t.Helper()
	f, ok := err.(*sheaf.Failure)
	if !ok || f.Code != code || f.Category != category || f.Retryable || !strings.HasSuffix(f.Message, ".") {
		t.Errorf("got %v, want %s (%s) with a sentence", err, code, category)
	}
}

func TestFilesThatDoNotOpen(t *testing.T) {
	good := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "Secret")}}}.Bytes()
	locked := enginetest.Encrypt(t, good, "sesame")
	_, err := openBytes(t, locked, sheaf.ParseConfig{})
	failed(t, err, "encrypted", sheaf.CategoryEncrypted)
	_, err = openBytes(t, locked, sheaf.ParseConfig{Password: sheaf.Set("wrong")})
	failed(t, err, "encrypted", sheaf.CategoryEncrypted)
	_, err = openBytes(t, []byte("%PDF-1.7\nnothing of use\n"), sheaf.ParseConfig{})
	failed(t, err, "invalid_pdf", sheaf.CategoryBadInput)
	_, err = openBytes(t, nil, sheaf.ParseConfig{})
	failed(t, err, "empty_file", sheaf.CategoryBadInput)
	_, err = openBytes(t, enginetest.File{}.Bytes(), sheaf.ParseConfig{})
	failed(t, err, "invalid_pdf", sheaf.CategoryBadInput)

	d, err := openBytes(t, locked, sheaf.ParseConfig{Password: sheaf.Set("sesame")})
	if err != nil {
		t.Fatal(err)
	}
	if got := dump(parseAllPages(t, d)); !strings.Contains(got, "Secret") {
		t.Errorf("with the password: %s", got)
	}
	plan, err := d.Plan(context.Background())
	if err != nil || plan.Metadata["permissions"] != "none" || len(plan.Fingerprints) != 1 {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if err := d.Parse(context.Background(), sheaf.Range{From: 1, To: 2}, nil); err == nil {
		t.Error("a page past the end was accepted")
	}
}

func TestDamagedFilesAreRepaired(t *testing.T) {
	good := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "Mended")}}}.Bytes()
	for title, b := range map[string][]byte{
		"junk in front":      append(bytes.Repeat([]byte("x\n"), 2500), good...),
		"cut before the end": good[:bytes.LastIndex(good, []byte("xref\n0"))],
	} {
		d, err := openBytes(t, b, sheaf.ParseConfig{})
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		if got := dump(parseAllPages(t, d)); !strings.Contains(got, "Mended") {
			t.Errorf("%s: %s", title, got)
		}
		p, err := d.Plan(context.Background())
		if err != nil || len(p.Warnings) != 1 || p.Warnings[0].Code != "repaired" || len(p.Fingerprints) != 1 {
			t.Errorf("%s: plan %+v, %v", title, p, err)
		}
		copies := d.(*document).repaired.Name()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(copies); !os.IsNotExist(err) {
			t.Errorf("%s: the repaired copy is still there: %v", title, err)
		}
	}
}

func TestPlan(t *testing.T) {
	f := enginetest.File{
		Info:    map[string]string{"Title": "On Sheaves", "Author": "A. Uthor", "CreationDate": "D:20240229123456+01'30'"},
		Outline: []enginetest.Mark{{Level: 1, Title: "One", Page: 0}, {Level: 2, Title: "Part", Page: 2}},
	}
	for n := range 30 {
		f.Pages = append(f.Pages, enginetest.Page{Content: enginetest.Text("F1", 12, 72, 700, fmt.Sprintf("Page number %d", n))})
	}
	plan := func(f enginetest.File) *parser.Plan {
		d, err := openBytes(t, f.Bytes(), sheaf.ParseConfig{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Plan(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan(f)
	if p.Unit != sheaf.UnitPage || p.Units != 30 || p.RangeSize != 12 || p.Ranges != nil || len(p.Warnings) != 0 {
		t.Errorf("%+v", p)
	}
	if m := p.Metadata; m["title"] != "On Sheaves" || m["author"] != "A. Uthor" || m["created"] != "2024-02-29T12:34:56+01:30" || m["pdf_version"] != "1.7" {
		t.Errorf("metadata %v", m)
	}
	if len(p.Outline) != 2 || p.Outline[1] != (sheaf.Heading{Level: 2, Title: "Part", Page: 3}) {
		t.Errorf("outline %+v", p.Outline)
	}
	seen := map[uint64]int{}
	for i, h := range p.Fingerprints {
		if j, dup := seen[h]; dup {
			t.Errorf("pages %d and %d differ and have one fingerprint", j+1, i+1)
		}
		seen[h] = i
	}

	// A changed page changes its own fingerprint only; a page in front, which
	// shifts every object's number, changes none.
	f.Pages[9].Content = enginetest.Text("F1", 12, 72, 700, "Page number nine, changed")
	for i, h := range plan(f).Fingerprints {
		if (h == p.Fingerprints[i]) != (i != 9) {
			t.Errorf("page %d after page 10 changed: same %v", i+1, h == p.Fingerprints[i])
		}
	}
	f.Pages[9].Content = enginetest.Text("F1", 12, 72, 700, "Page number 9")
	f.Pages = append([]enginetest.Page{{Content: "new"}}, f.Pages...)
	for i, h := range plan(f).Fingerprints[1:] {
		if h != p.Fingerprints[i] {
			t.Errorf("page %d has another fingerprint behind a new page", i+1)
		}
	}
	f.Pages[3].Rotate, f.Pages[4].MediaBox = 90, [4]int{0, 0, 500, 500}
	for i, h := range plan(f).Fingerprints[1:] {
		if (h == p.Fingerprints[i]) != (i != 2 && i != 3) {
			t.Errorf("page %d after turning one and cutting another: same %v", i+1, h == p.Fingerprints[i])
		}
	}
}

func TestRenderIsBounded(t *testing.T) {
	d, err := openBytes(t, enginetest.File{Pages: []enginetest.Page{
		{Content: enginetest.Text("F1", 12, 72, 700, "x")},
		{Content: enginetest.Text("F1", 12, 72, 700, "x"), MediaBox: [4]int{0, 0, 14000, 14000}},
	}}.Bytes(), sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r := d.(parser.Renderer)
	for _, c := range []struct{ page, dpi, w, h int }{{1, 72, 612, 792}, {1, 5000, 2550, 3300}, {1, -1, 85, 110}} {
		b, mt, err := r.Render(context.Background(), c.page, c.dpi, nil)
		if err != nil || mt != "image/jpeg" {
			t.Fatalf("%+v: %s %v", c, mt, err)
		}
		img, err := jpeg.DecodeConfig(bytes.NewReader(b))
		if err != nil || img.Width != c.w || img.Height != c.h {
			t.Errorf("%+v: %d × %d, %v", c, img.Width, img.Height, err)
		}
	}
	b, _, err := r.Render(context.Background(), 2, 300, nil)
	if err != nil {
		t.Fatal(err)
	}
	if img, err := jpeg.DecodeConfig(bytes.NewReader(b)); err != nil || img.Width*img.Height > maxPixels*101/100 {
		t.Errorf("a huge page: %d × %d, %v", img.Width, img.Height, err)
	}
	if _, _, err := r.Render(context.Background(), 3, 72, nil); err == nil {
		t.Error("a page that does not exist was drawn")
	}
}

// FuzzPDF holds that no bytes make the format panic or emit unsound blocks.
// The engine's own traps are errors, not panics.
func FuzzPDF(f *testing.F) {
	f.Add(enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "Seed") + enginetest.Line(10, 10, 200, 10)}}}.Bytes())
	f.Add(enginetest.File{Labels: "0 << /S /r >>", Outline: []enginetest.Mark{{Level: 1, Title: "x", Page: 0}}, Pages: []enginetest.Page{{Content: enginetest.Image(0, 0, 600, 700), Rotate: 90}}}.Bytes())
	f.Add([]byte("%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[2 0 R]/Count 1>>endobj trailer<</Root 1 0 R>>"))
	form := filledForm("Maud")
	f.Add(form.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := openBytes(t, b, sheaf.ParseConfig{})
		if err != nil {
			if f, ok := err.(*sheaf.Failure); !ok || f.Code == "" || !strings.HasSuffix(f.Message, ".") {
				t.Errorf("no verdict: %v", err)
			}
			return
		}
		plan, err := d.Plan(context.Background())
		if err != nil {
			return
		}
		d.(*document).options.Beside = plan.Beside
		pages := min(d.(*document).pages, 4)
		next := 1
		err = d.Parse(context.Background(), sheaf.Range{From: 1, To: pages}, func(u sheaf.UnitResult) error {
			if u.Unit != next {
				t.Errorf("page %d where %d was due", u.Unit, next)
			}
			next++
			for i := range u.Blocks {
				if err := sound(&u, &u.Blocks[i]); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		if err == nil && next != pages+1 {
			t.Errorf("%d of %d pages", next-1, pages)
		}
	})
}

func TestHeadingsAreFoundWithoutBookmarks(t *testing.T) {
	file := enginetest.File{}
	for n := range 60 { // more than are laid out together
		content := enginetest.Text("F1", 10, 72, 640, "A line of the body of this page that says nothing new.") + enginetest.Text("F1", 10, 72, 626, "And another one, so that the body is known to be small.")
		if n%20 == 0 {
			content += enginetest.Text("F2", 20, 72, 700, fmt.Sprintf("Chapter %d", n/20))
		}
		if n%20 == 7 {
			content += enginetest.Text("F2", 13, 72, 700, fmt.Sprintf("Section of chapter %d", n/20))
		}
		file.Pages = append(file.Pages, enginetest.Page{Content: content})
	}
	d, err := openBytes(t, file.Bytes(), sheaf.ParseConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var headings []sheaf.Heading
	for _, r := range []sheaf.Range{{From: 1, To: 50}, {From: 51, To: 60}} {
		err := d.Parse(context.Background(), r, func(u sheaf.UnitResult) error {
			for _, b := range u.Blocks {
				if b.Kind == sheaf.BlockHeading {
					headings = append(headings, sheaf.Heading{Level: b.Level, Title: b.Text, Page: u.Unit})
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const want = "[{1 Chapter 0 1} {3 Section of chapter 0 8} {1 Chapter 1 21} {3 Section of chapter 1 28} {1 Chapter 2 41} {3 Section of chapter 2 48}]"
	if got := fmt.Sprint(headings); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
