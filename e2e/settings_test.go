package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"image"
	"image/png"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/pdf/enginetest"
	"sheaf/samples"
)

// An element of the documents that the settings are tried on.
type element struct{ kind, text string }

// settingsElements holds something for every setting: sentences with soft and
// hard delimiters, headings, a table and an image with text around it.
func settingsElements() []element {
	sentences := func(from, n int) string {
		var b strings.Builder
		for i := from; i < from+n; i++ {
			fmt.Fprintf(&b, "Roses number %d grow beside the gate; tulips of row %d follow them in June. ", i, i)
		}
		return strings.TrimSpace(b.String())
	}
	return []element{
		{"p", "An opening sentence with a mark §§ and another sentence behind the mark."},
		{"p", sentences(1, 12)},
		{"h1", "Experience"},
		{"p", sentences(20, 6)},
		{"table", "Plant|Height\nOak|30\nBirch|20\nHazel|5"},
		{"p", sentences(30, 6)},
		{"image", "Figure 1: A rose by the gate"},
		{"p", sentences(40, 6)},
		{"h2", "Education"},
		{"p", sentences(50, 4)},
	}
}

func settingsMarkdown() string {
	var b strings.Builder
	for _, e := range settingsElements() {
		switch e.kind {
		case "h1":
			b.WriteString("# " + e.text)
		case "h2":
			b.WriteString("## " + e.text)
		case "table":
			for i, row := range strings.Split(e.text, "\n") {
				b.WriteString("| " + strings.ReplaceAll(row, "|", " | ") + " |\n")
				if i == 0 {
					b.WriteString("| --- | --- |\n")
				}
			}
		case "image":
			b.WriteString("![" + e.text + "](rose.png)")
		default:
			b.WriteString(e.text)
		}
		b.WriteString("\n\n")
	}
	return b.String()
}

func settingsMail() string {
	var b strings.Builder
	for _, e := range settingsElements() {
		switch e.kind {
		case "table":
			b.WriteString("<table>")
			for i, row := range strings.Split(e.text, "\n") {
				tag := "td"
				if i == 0 {
					tag = "th"
				}
				b.WriteString("<tr><" + tag + ">" + strings.ReplaceAll(row, "|", "</"+tag+"><"+tag+">") + "</" + tag + "></tr>")
			}
			b.WriteString("</table>")
		case "image":
			b.WriteString(`<img src="cid:rose" alt="` + html.EscapeString(e.text) + `">`)
		default:
			b.WriteString("<" + e.kind + ">" + html.EscapeString(e.text) + "</" + e.kind + ">")
		}
		b.WriteString("\r\n")
	}
	return "From: Ann <ann@example.org>\r\nTo: bob@example.org\r\nSubject: Roses\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<html><body>" + b.String() + "</body></html>\r\n"
}

func settingsPDF() string {
	var file enginetest.File
	var page strings.Builder
	y := 740.0
	line := func(font string, size float64, text string) {
		page.WriteString(enginetest.Text(font, size, 60, y, text))
		y -= 1.2 * size
	}
	for _, e := range settingsElements() {
		switch e.kind {
		case "h1":
			line("F2", 20, e.text)
		case "h2":
			line("F2", 15, e.text)
		case "table":
			top, rows := y, strings.Split(e.text, "\n")
			for i := range len(rows) + 1 {
				page.WriteString(enginetest.Line(60, top-20*float64(i), 300, top-20*float64(i)))
			}
			for _, x := range []float64{60, 180, 300} {
				page.WriteString(enginetest.Line(x, top, x, top-20*float64(len(rows))))
			}
			for i, row := range rows {
				font := "F1"
				if i == 0 {
					font = "F2"
				}
				for k, c := range strings.Split(row, "|") {
					page.WriteString(enginetest.Text(font, 10, 65+120*float64(k), top-14-20*float64(i), c))
				}
			}
			y = top - 20*float64(len(rows)) - 14
		case "image":
			page.WriteString(enginetest.Image(60, y-90, 120, 90))
			y -= 105
			line("F1", 10, e.text+".")
		default:
			for _, text := range wrapped(strings.ReplaceAll(e.text, "§§", `\247\247`)) {
				line("F1", 10, text)
			}
		}
		y -= 10
		if y < 160 {
			file.Pages = append(file.Pages, enginetest.Page{Content: page.String()})
			page.Reset()
			y = 740
		}
	}
	file.Pages = append(file.Pages, enginetest.Page{Content: page.String()})
	// Text escapes its backslashes: the mark's code is wanted as one.
	return strings.ReplaceAll(string(file.Bytes()), `\\247\\247`, `  \247\247`)
}

func settingsSubtitles() string {
	var b strings.Builder
	n := 0
	for _, e := range settingsElements() {
		if e.kind != "p" {
			continue
		}
		for said := range slices.Chunk(strings.SplitAfter(e.text, ". "), 3) {
			n++
			fmt.Fprintf(&b, "%d\n00:00:%02d,000 --> 00:00:%02d,900\n%s\n\n", n, n, n, strings.TrimSpace(strings.Join(said, "")))
		}
	}
	return b.String()
}

func settingsNotebook() string {
	var code strings.Builder
	for i := range 12 {
		fmt.Fprintf(&code, "def rose_%d(gate, tulips):\n    \"\"\"Count the roses of row %d.\"\"\"\n    return gate * tulips + %d\n\n\n", i, i, i)
	}
	cell := func(kind, source string) map[string]any {
		return map[string]any{"cell_type": kind, "metadata": map[string]any{}, "source": source, "outputs": []any{}}
	}
	b, _ := json.Marshal(map[string]any{"nbformat": 4, "nbformat_minor": 5, "metadata": map[string]any{"language_info": map[string]any{"name": "python"}},
		"cells": []any{cell("markdown", settingsMarkdown()), cell("code", code.String())}})
	return string(b)
}

// sent is a document to upload.
type sent struct{ name, mediaType, body string }

// settingsFile is a document that a method takes and that every setting of the
// method has something to do in.
func settingsFile(method string) sent {
	switch method {
	case "paper":
		return sent{"roses.pdf", "application/pdf", settingsPDF()}
	case "email":
		return sent{"roses.eml", "message/rfc822", settingsMail()}
	case "audio":
		return sent{"roses.srt", "application/x-subrip", settingsSubtitles()}
	case "code":
		return sent{"roses.ipynb", "application/x-ipynb+json", settingsNotebook()}
	}
	return sent{"roses.md", "text/markdown", settingsMarkdown()}
}

// outcome is what became of a document.
type outcome struct {
	document sheaf.Document
	chunks   []sheaf.Chunk
	ranges   []sheaf.Range
}

func (o outcome) texts() string {
	var b strings.Builder
	for _, c := range o.chunks {
		b.WriteString(c.Text + "\n----\n")
	}
	return b.String()
}

func (s *service) outcomeOf(f sent, settings map[string]any) outcome {
	s.t.Helper()
	b, err := json.Marshal(settings)
	if err != nil {
		s.t.Fatal(err)
	}
	o := outcome{document: s.upload(f.name, f.mediaType, string(b), f.body)}
	o.document = s.doc(o.document.ID) // with its warnings
	if o.document.State == sheaf.DocSucceeded {
		o.chunks = s.chunks(o.document.ID)
	}
	var tasks struct{ Items []sheaf.Task }
	s.get("/v1/datasets/default/documents/"+o.document.ID+"/tasks", &tasks)
	for _, t := range tasks.Items {
		if t.Kind == sheaf.KindParse || t.Kind == sheaf.KindIndex {
			o.ranges = append(o.ranges, t.Range)
		}
	}
	slices.SortFunc(o.ranges, func(a, b sheaf.Range) int { return a.From - b.From })
	return o
}

// A settingCase shows what one value of a setting does.
type settingCase struct {
	key    string
	value  any
	base   map[string]any // the settings beside it
	method string         // "" is every method that reads the setting, or the default one where all do
	file   *sent          // nil is that of the method
	// says tells what is wrong, "" for nothing.
	says func(before, after outcome) string
}

func anyChunk(chunks []sheaf.Chunk, is func(c sheaf.Chunk) bool) bool {
	return slices.ContainsFunc(chunks, is)
}

func allChunks(chunks []sheaf.Chunk, is func(c sheaf.Chunk) bool) bool {
	return len(chunks) > 0 && !slices.ContainsFunc(chunks, func(c sheaf.Chunk) bool { return !is(c) })
}

func expectThat(holds bool, otherwise string) string {
	if holds {
		return ""
	}
	return otherwise
}

// Every setting does what its description says, in every method that reads it.
func TestEverySettingChangesWhatItSays(t *testing.T) {
	chat, late := newChatServer(t), newLateServer(t)
	s := start(t, func(c *config.Config) {
		chat.use(c)
		c.Embed.Driver, c.Embed.URL, c.Embed.Model, c.Embed.LateWindow = "openai", late.address, "words", 2000
	})
	s.post("/v1/flows", map[string]any{"toml": strings.Replace(victimsFlow("chapters"), `from = ["read"]`, `from = ["read"], config = { chunk_token_num = 16, delimiter = "`+"`# `"+`" }`, 1)}, nil)
	var set sheaf.Dataset
	s.post("/v1/datasets", map[string]any{"name": "topics", "parser_config": map[string]any{"chunk_method": "tag"}}, &set)
	mustState(t, s.putIn("topics", sheaf.NewID(), "topics.csv", "text/csv", "content,tags\nRoses grow beside the gate,\"Roses, Gate, Garden, June\"\n"), sheaf.DocSucceeded)

	plain := func(name, body string) *sent { return &sent{name, "text/plain", body} }
	rows := "name,number\n"
	for i := range 25 {
		rows += fmt.Sprintf("plant %d,%d\n", i, i)
	}
	pages := sent{"pages.trial", trialMedia, "One page of roses.\nTwo pages of tulips.\nThree pages of oaks.\nFour pages of birches.\n"}
	personal := plain("personal.txt", "Ask ada@example.org about the roses in the garden of the house.\n\n"+strings.Repeat("Nobody is named in this sentence about the garden. ", 12))
	cases := []settingCase{
		{key: "chunk_method", value: "one", method: "general", says: func(before, after outcome) string {
			return expectThat(len(before.chunks) > 3 && len(after.chunks) == 1, "the document is not one chunk")
		}},
		{key: "chunk_token_num", value: 48, says: func(before, after outcome) string {
			return expectThat(len(after.chunks) > len(before.chunks) && allChunks(after.chunks, func(c sheaf.Chunk) bool {
				// An answer, and the heading with it, stays whole.
				return c.Tokens <= 48 || after.document.ParseConfig.ChunkMethod.V == "qa" && len(c.HeadingPath) > 0
			}), "there are not more chunks, or one is longer")
		}},
		{key: "delimiter", value: "`§§`", says: func(before, after outcome) string {
			ends := func(c sheaf.Chunk) bool { return strings.HasSuffix(c.Text, "mark §§") }
			return expectThat(!anyChunk(before.chunks, ends) && anyChunk(after.chunks, ends), "no chunk ends at the hard delimiter")
		}},
		{key: "delimiter", value: ";", base: map[string]any{"chunk_token_num": 16}, says: func(before, after outcome) string {
			ends := func(c sheaf.Chunk) bool { return strings.HasSuffix(strings.TrimRight(c.Text, "`\n"), ";") }
			return expectThat(!anyChunk(before.chunks, ends) && anyChunk(after.chunks, ends), "no chunk ends at the soft delimiter")
		}},
		{key: "overlapped_percent", value: 50, base: map[string]any{"chunk_token_num": 64}, says: func(before, after outcome) string {
			repeats := func(chunks []sheaf.Chunk) (n int) {
				for i := 1; i < len(chunks); i++ {
					first, _, _ := strings.Cut(chunks[i].Text, ". ")
					if strings.HasPrefix(first, "Roses number") && strings.Contains(strings.Join(strings.Fields(chunks[i-1].Text), " "), strings.Join(strings.Fields(first), " ")) {
						n++
					}
				}
				return n
			}
			return expectThat(repeats(before.chunks) == 0 && repeats(after.chunks) > 1, "no chunk begins with the end of the one before")
		}},
		{key: "children_delimiter", value: ";", says: func(before, after outcome) string {
			return expectThat(!anyChunk(before.chunks, func(c sheaf.Chunk) bool { return c.Role == sheaf.RoleChild }) && anyChunk(after.chunks, func(c sheaf.Chunk) bool {
				return c.Role == sheaf.RoleChild && strings.HasSuffix(c.Text, ";") && strings.Contains(c.Parent, c.Text) && len(c.Parent) > len(c.Text)
			}), "there are no children")
		}},
		{key: "html4excel", value: true, says: func(before, after outcome) string {
			return expectThat(strings.Contains(before.texts(), "| Oak |") && strings.Contains(after.texts(), "<td>Oak</td>"), "the table is not HTML")
		}},
		{key: "toc_extraction", value: true, says: func(before, after outcome) string {
			is := func(c sheaf.Chunk) bool {
				return c.Role == sheaf.RoleContents && strings.Contains(c.Text, "Experience") && strings.Contains(c.Text, "Education")
			}
			return expectThat(!anyChunk(before.chunks, is) && anyChunk(after.chunks, is), "no chunk lists the headings")
		}},
		{key: "image_context_size", value: 60, says: func(before, after outcome) string {
			is := func(c sheaf.Chunk) bool {
				return c.Kind == sheaf.ChunkImage && strings.Contains(c.Text, "A rose by the gate") && strings.Contains(c.Context, "Roses number 35") && strings.Contains(c.Context, "Roses number 40")
			}
			return expectThat(!anyChunk(before.chunks, is) && anyChunk(after.chunks, is), "the image has no text around it")
		}},
		{key: "table_context_size", value: 60, says: func(before, after outcome) string {
			is := func(c sheaf.Chunk) bool {
				return c.Kind == sheaf.ChunkTable && strings.Contains(c.Context, "Roses number 25") && strings.Contains(c.Context, "Roses number 30")
			}
			return expectThat(!anyChunk(before.chunks, is) && anyChunk(after.chunks, is), "the table has no text around it")
		}},
		{key: "ocr_pictures", value: true, file: &sent{"report.docx", parser.MediaDOCX, illustrated(t)["report.docx"]}, says: func(before, after outcome) string {
			program(t, "tesseract")
			return expectThat(!strings.Contains(before.texts(), "every sheaf") && strings.Contains(after.texts(), "every sheaf"), "the text in the picture is not read")
		}},
		{key: "auto_keywords", value: 2, says: func(before, after outcome) string {
			return expectThat(!anyChunk(before.chunks, func(c sheaf.Chunk) bool { return len(c.Keywords) > 0 }) && allChunks(after.chunks, func(c sheaf.Chunk) bool { return len(c.Keywords) == 1 || len(c.Keywords) == 2 }), "there are no keywords")
		}},
		{key: "auto_questions", value: 1, says: func(before, after outcome) string {
			return expectThat(!anyChunk(before.chunks, func(c sheaf.Chunk) bool { return len(c.Questions) > 0 }) && allChunks(after.chunks, func(c sheaf.Chunk) bool { return len(c.Questions) == 1 }), "there are no questions")
		}},
		{key: "auto_context", value: true, says: func(before, after outcome) string {
			is := func(c sheaf.Chunk) bool { return strings.Contains(c.Context, "platypus") }
			return expectThat(!anyChunk(before.chunks, is) && allChunks(after.chunks, is), "there is no context")
		}},
		{key: "pii", value: "find", base: map[string]any{"chunk_token_num": 64}, file: personal, says: func(before, after outcome) string {
			kinds := func(o outcome) (marked, bare int) {
				for _, c := range o.chunks {
					switch c.Metadata[sheaf.MetadataPersonal] {
					case "EMAIL":
						marked++
					case "":
						bare++
					}
				}
				return marked, bare
			}
			was, _ := kinds(before)
			marked, bare := kinds(after)
			return expectThat(was == 0 && marked == 1 && bare > 0 && strings.Contains(after.texts(), "ada@example.org") && strings.Contains(fmt.Sprint(after.document.Warnings), "1 × EMAIL"), "the chunk with the address, and it alone, is not marked")
		}},
		{key: "pii", value: "redact", base: map[string]any{"chunk_token_num": 64}, file: personal, says: func(before, after outcome) string {
			return expectThat(strings.Contains(before.texts(), "ada@") && !strings.Contains(fmt.Sprintf("%+v", after.chunks), "ada@") && anyChunk(after.chunks, func(c sheaf.Chunk) bool { return c.Metadata[sheaf.MetadataPersonal] == "EMAIL" }), "the address is still there")
		}},
		{key: "tag_kb_ids", value: []string{set.ID}, says: func(before, after outcome) string {
			return expectThat(!anyChunk(before.chunks, func(c sheaf.Chunk) bool { return len(c.Tags) > 0 }) && anyChunk(after.chunks, func(c sheaf.Chunk) bool { return len(c.Tags) == 3 }), "there are no tags")
		}},
		{key: "topn_tags", value: 1, base: map[string]any{"tag_kb_ids": []string{set.ID}}, says: func(before, after outcome) string {
			return expectThat(anyChunk(before.chunks, func(c sheaf.Chunk) bool { return len(c.Tags) == 3 }) && !anyChunk(after.chunks, func(c sheaf.Chunk) bool { return len(c.Tags) > 1 }), "chunks have more tags")
		}},
		{key: "flow", value: "chapters", file: plain("notes.txt", "# Oak\n\nAcorns fall.\n\n# Elm\n\nSeeds fly.\n"), says: func(before, after outcome) string {
			return expectThat(len(before.chunks) > 0 && len(before.chunks) < len(after.chunks), "the settings of the flow's chunk node are not those of the document")
		}},
		{key: "task_page_size", value: 2, base: map[string]any{"media_type": trialMedia}, file: &pages, says: func(before, after outcome) string {
			return expectThat(len(before.ranges) == 1 && slices.Equal(after.ranges, []sheaf.Range{{From: 1, To: 2}, {From: 3, To: 4}}), "tasks cover other pages")
		}},
		{key: "pages", value: [][2]int{{1, 1}, {3, 3}}, base: map[string]any{"media_type": trialMedia}, file: &pages, says: func(before, after outcome) string {
			return expectThat(strings.Contains(before.texts(), "tulips") && strings.Contains(after.texts(), "oaks") && !strings.Contains(after.texts(), "tulips") && !strings.Contains(after.texts(), "birches"), "other pages were read")
		}},
		{key: "table_rows", value: 10, file: &sent{"plants.csv", "text/csv", rows}, says: func(before, after outcome) string {
			return expectThat(len(before.ranges) == 1 && len(after.ranges) == 3 && after.ranges[0].Len() == 10, "tasks cover other rows")
		}},
		{key: "encoding", value: "iso-8859-5", file: plain("words.txt", "caf\xb0\xe2\xd3"), says: func(before, after outcome) string {
			return expectThat(!strings.Contains(before.texts(), "cafАтг") && strings.Contains(after.texts(), "cafАтг"), "the text is read in another encoding")
		}},
		{key: "media_type", value: "text/markdown", file: plain("notes.txt", "# Heading\n\nSome *text* below.\n"), says: func(before, after outcome) string {
			return expectThat(strings.Contains(before.texts(), "# Heading") && !strings.Contains(after.texts(), "*"), "it is read as another type")
		}},
		{key: "password", value: "sesame", file: &sent{"locked.xlsx", "", lockedBook(t, "sesame")}, says: func(before, after outcome) string {
			return expectThat(before.document.State == sheaf.DocFailed && before.document.Failure.Code == "encrypted" && strings.Contains(after.texts(), "Hidden oak"), "it does not open")
		}},
	}

	shown := map[string]map[string]bool{} // settings by method
	for _, c := range cases {
		methods := []string{c.method}
		if i := slices.IndexFunc(settings.Table, func(s settings.Setting) bool { return s.Name == c.key }); c.method == "" {
			if methods = settings.Table[i].Methods; methods == nil {
				methods = []string{"general"}
			}
		}
		if shown[c.key] == nil {
			shown[c.key] = map[string]bool{}
		}
		for _, method := range methods {
			shown[c.key][method] = true
			t.Run(fmt.Sprintf("%s/%v/%s", c.key, c.value, method), func(t *testing.T) {
				f := settingsFile(method)
				if c.file != nil {
					f = *c.file
				}
				settings := map[string]any{"chunk_method": method}
				maps.Copy(settings, c.base)
				before := s.outcomeOf(f, settings)
				settings[c.key] = c.value
				after := s.outcomeOf(f, settings)
				mustState(t, after.document, sheaf.DocSucceeded)
				if wrong := c.says(before, after); wrong != "" {
					t.Errorf("%s. Before:\n%s\nAfter:\n%s", wrong, before.texts(), after.texts())
				}
			})
		}
	}
	for _, setting := range settings.Table {
		for _, m := range settings.Methods {
			if setting.Methods != nil && m.Name != "naive" && m.Reads(setting.Name) != shown[setting.Name][m.Name] {
				t.Errorf("no case shows what %s does in method %s", setting.Name, m.Name)
			}
		}
		if len(shown[setting.Name]) == 0 {
			t.Errorf("no case shows what %s does", setting.Name)
		}
	}
}

// lockedBook is a spreadsheet that a password opens.
func lockedBook(t *testing.T, password string) string {
	t.Helper()
	f := excelize.NewFile()
	defer f.Close()
	for i := range 200 { // the library writes short streams wrong
		if err := f.SetSheetRow("Sheet1", fmt.Sprintf("A%d", i+1), &[]any{fmt.Sprintf("Hidden oak %d", i*7919), i}); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := f.Write(&b, excelize.Options{Password: password}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every method cuts a file of every family that it takes.
func TestEveryMethodCutsEachOfItsTypes(t *testing.T) {
	late := newLateServer(t)
	s := start(t, func(c *config.Config) {
		c.Embed.Driver, c.Embed.URL, c.Embed.Model, c.Embed.LateWindow = "openai", late.address, "words", 2000
	})
	prose := "<h1>Article 1. The Garden</h1><p>Roses grow beside the gate.</p><h1>Article 2. The House</h1><p>Nobody lives in it.</p>"
	sheet := "question,answer\nWhat grows there?,Roses\nWho lives there?,Nobody\n"
	families := map[sheaf.FileFamily][]sent{
		sheaf.FamilyPDF:          {{"roses.pdf", parser.MediaPDF, settingsPDF()}},
		sheaf.FamilyDocument:     {{"roses.docx", parser.MediaDOCX, reportDOCX(t, []int{0}, []string{"Article 1. The Garden", "Roses grow beside the gate."})}},
		sheaf.FamilySpreadsheet:  {{"roses.csv", "text/csv", sheet}, {"roses.xlsx", parser.MediaXLSX, sampleFile(t, "handbook.xlsx")}},
		sheaf.FamilyPresentation: {{"roses.pptx", parser.MediaPPTX, slidesPPTX(t, "Roses grow beside the gate.", "Nobody lives in the house.")}},
		sheaf.FamilyText:         {{"roses.txt", "text/plain", "Article 1. The Garden\n\nRoses grow beside the gate.\n"}, {"roses.md", "text/markdown", settingsMarkdown()}},
		sheaf.FamilyWeb:          {{"roses.html", "text/html", "<!DOCTYPE html><html><body>" + prose + "</body></html>"}},
		sheaf.FamilyEbook:        {{"roses.epub", parser.MediaEPUB, bookEPUB(t, []string{prose, "<h1>Chapter 2</h1><p>Tulips follow in June.</p>"})}},
		sheaf.FamilyMail:         {{"roses.eml", parser.MediaEML, settingsMail()}, {"roses.mbox", parser.MediaMBOX, "From ann@example.org Thu Jan  1 00:00:00 2026\n" + strings.ReplaceAll(settingsMail(), "\r\n", "\n") + "\n"}},
		sheaf.FamilyImage:        {{"roses.png", "image/png", drawnPNG(t, "HELL", "FILE TILE")}},
		sheaf.FamilyAudio:        {{"roses.srt", "application/x-subrip", settingsSubtitles()}, {"roses.vtt", "text/vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nRoses grow beside the gate.\n"}},
		sheaf.FamilyCode:         {{"roses.go", "text/x-go", "package roses\n\n// Grow tells where roses grow.\nfunc Grow() string { return \"beside the gate\" }\n"}, {"roses.ipynb", "application/x-ipynb+json", settingsNotebook()}},
	}
	for _, m := range settings.Methods {
		takes := m.Takes
		if takes == nil {
			takes = slices.Sorted(maps.Keys(families))
		}
		for _, family := range takes {
			files := families[family]
			if len(files) == 0 {
				t.Errorf("no file of %s", family)
			}
			for _, f := range files {
				t.Run(m.Name+"/"+f.name, func(t *testing.T) {
					if family == sheaf.FamilyImage {
						program(t, "tesseract")
					}
					o := s.outcomeOf(f, map[string]any{"chunk_method": m.Name})
					mustState(t, o.document, sheaf.DocSucceeded)
					if o.document.ParseConfig.ChunkMethod.V != m.Name || len(o.chunks) == 0 || allChunks(o.chunks, func(c sheaf.Chunk) bool { return strings.TrimSpace(c.Text) == "" }) {
						t.Errorf("%d chunks by %s", len(o.chunks), o.document.ParseConfig.ChunkMethod.V)
					}
				})
			}
		}
	}
	// A type that a method does not take is refused where it is sent, in words.
	resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.png&parser_config="+url.QueryEscape(`{"chunk_method": "laws"}`), "\x89PNG\r\n\x1a\n", "Content-Type", "image/png")
	if resp.StatusCode/100 != 4 || !strings.Contains(string(b), "use one of") {
		t.Errorf("%s: %s", resp.Status, b)
	}
}

func sampleFile(t *testing.T, name string) string {
	t.Helper()
	b, err := samples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// program skips a test whose program is not installed.
func program(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed and SHEAF_TEST_REQUIRE asks for it", name)
		}
		t.Skipf("%s is not installed", name)
	}
}

// zipped packs parts, given as name and content in turn.
func zipped(t *testing.T, parts ...string) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i+1 < len(parts); i += 2 {
		w, err := z.Create(parts[i])
		if err == nil {
			_, err = w.Write([]byte(parts[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// slidesPPTX is a presentation with a text on each slide.
func slidesPPTX(t *testing.T, texts ...string) string {
	t.Helper()
	ids, rels := "", ""
	parts := []string{"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`}
	for i, text := range texts {
		ids += fmt.Sprintf(`<p:sldId id="%d" r:id="s%d"/>`, 256+i, i)
		rels += fmt.Sprintf(`<Relationship Id="s%d" Type="x/slide" Target="slides/slide%d.xml"/>`, i, i+1)
		parts = append(parts, fmt.Sprintf("ppt/slides/slide%d.xml", i+1), `<p:sld><p:sp><p:txBody><a:p><a:r><a:t>`+text+`</a:t></a:r></a:p></p:txBody></p:sp></p:sld>`)
	}
	return zipped(t, append(parts, "ppt/_rels/presentation.xml.rels", "<Relationships>"+rels+"</Relationships>",
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst>`+ids+`</p:sldIdLst></p:presentation>`)...)
}

// bookEPUB is a book whose chapters are the bodies of HTML pages.
func bookEPUB(t *testing.T, chapters []string) string {
	t.Helper()
	manifest, spine := "", ""
	var pages []string
	for i, body := range chapters {
		manifest += fmt.Sprintf(`<item id="c%d" href="c%d.xhtml" media-type="application/xhtml+xml"/>`, i, i)
		spine += fmt.Sprintf(`<itemref idref="c%d"/>`, i)
		pages = append(pages, fmt.Sprintf("OEBPS/c%d.xhtml", i), "<html><head><title/></head><body>"+body+"</body></html>")
	}
	return zipped(t, append([]string{
		"mimetype", "application/epub+zip",
		"META-INF/container.xml", `<container><rootfiles><rootfile full-path="OEBPS/content.opf"/></rootfiles></container>`,
		"OEBPS/content.opf", `<package><metadata><dc:title>Book</dc:title></metadata><manifest>` + manifest + `</manifest><spine>` + spine + `</spine></package>`,
	}, pages...)...)
}

// drawnPNG writes words of the letters EFHILT, a line each, black on white.
func drawnPNG(t *testing.T, lines ...string) string {
	t.Helper()
	glyphs := map[rune]string{
		'H': "#...##...##...#######...##...##...#", 'E': "#####" + "#...." + "#...." + "####." + "#...." + "#...." + "#####",
		'L': "#....#....#....#....#....#....#####", 'F': "#####" + "#...." + "#...." + "####." + "#...." + "#...." + "#....",
		'T': "#####..#....#....#....#....#....#..", 'I': ".###." + "..#.." + "..#.." + "..#.." + "..#.." + "..#.." + ".###.",
	}
	const dot, margin = 6, 60
	m := image.NewGray(image.Rect(0, 0, 900, 2*margin+len(lines)*14*dot))
	for i := range m.Pix {
		m.Pix[i] = 255
	}
	for n, l := range lines {
		for k, r := range l {
			for at, c := range glyphs[r] {
				for i := range dot * dot {
					if c == '#' {
						m.Pix[m.PixOffset(margin+(k*7+at%5)*dot+i%dot, margin+(n*14+at/5)*dot+i/dot)] = 0
					}
				}
			}
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A zero that is said at the upload or the re-parse is what the text is cut
// by, whatever the dataset says; null is the dataset again; the plan of a dry
// run knows as much.
func TestSettingsGoBackToZero(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.request("PATCH", "/v1/datasets/default", `{"parser_config":{"chunk_token_num":64,"overlapped_percent":50,"auto_keywords":3}}`, "Content-Type", "application/json")
	f := settingsFile("general")
	cut := func(id string) string {
		var b strings.Builder
		for _, c := range s.chunks(id) {
			fmt.Fprintf(&b, "%s\n%d keywords\n----\n", c.Text, len(c.Keywords))
		}
		return b.String()
	}
	as := s.outcomeOf(f, map[string]any{})
	zero := s.outcomeOf(f, map[string]any{"overlapped_percent": 0, "auto_keywords": 0})
	overlapping, apart := cut(as.document.ID), cut(zero.document.ID)
	if overlapping == apart || !strings.Contains(overlapping, "3 keywords") || strings.Count(apart, "\n0 keywords\n") != strings.Count(apart, "\n----\n") {
		t.Fatalf("the upload's zeros do not count:\n%s", apart)
	}
	for _, step := range []struct {
		settings map[string]any
		want     string // "" for anything
		stored   bool   // a live document was made by these settings
	}{
		{map[string]any{"overlapped_percent": 0, "auto_keywords": 0}, apart, true},
		{map[string]any{"chunk_token_num": 64}, apart, true}, // nothing new is said
		{map[string]any{"overlapped_percent": nil, "auto_keywords": nil}, overlapping, false},
		{map[string]any{"delimiter": "", "overlapped_percent": 0}, "", false},
	} {
		body := map[string]any{"filter": map[string]any{"document_ids": []string{as.document.ID}}, "parser_config": step.settings}
		forecast := s.forecast("reparse", body)
		s.again("reparse", body)
		after := cut(as.document.ID)
		if step.want != "" && after != step.want {
			t.Errorf("after %v:\n%s\nwant\n%s", step.settings, after, step.want)
		}
		if stored := forecast.Reused.Ranges == forecast.Ranges; stored != step.stored {
			t.Errorf("%v: the dry run reuses %d of %d ranges", step.settings, forecast.Reused.Ranges, forecast.Ranges)
		}
	}
	if d := s.doc(as.document.ID); strings.Contains(cut(d.ID), "\n0 keywords\n----") {
		t.Error("a setting that the last re-parse did not name was lost")
	}
}
