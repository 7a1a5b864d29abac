package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/parser/pdf/enginetest"
)

// longReport is some 300 printed pages: paragraphs under 30 headings, the
// paragraph named new, unless it is empty, in the middle of a section.
func longReport(added string) (headings []int, paragraphs []string) {
	words := strings.Fields("river stone paper engine window garden signal copper market winter bridge letter forest harbor mirror candle valley thunder ribbon anchor")
	random := rand.New(rand.NewPCG(7, 7))
	for n := range 1500 {
		if n%50 == 0 {
			headings = append(headings, len(paragraphs))
			paragraphs = append(paragraphs, fmt.Sprintf("Section %d", n/50))
		}
		if n == 777 && added != "" {
			paragraphs = append(paragraphs, added)
		}
		var b strings.Builder
		for k := range 6 {
			fmt.Fprintf(&b, "Sentence %d of paragraph %d", k, n)
			for range 14 {
				b.WriteString(" " + words[random.IntN(len(words))])
			}
			b.WriteString(". ")
		}
		paragraphs = append(paragraphs, b.String())
	}
	return headings, paragraphs
}

func reportMarkdown(t *testing.T, headings []int, paragraphs []string) string {
	t.Helper()
	var b strings.Builder
	for i, p := range paragraphs {
		if slices.Contains(headings, i) {
			b.WriteString("# ")
		}
		b.WriteString(p + "\n\n")
	}
	return b.String()
}

func reportHTML(t *testing.T, headings []int, paragraphs []string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!DOCTYPE html><html><head><title>Report</title></head><body>\n")
	for i, p := range paragraphs {
		tag := "p"
		if slices.Contains(headings, i) {
			tag = "h1"
		}
		fmt.Fprintf(&b, "<%s>%s</%s>\n", tag, p, tag)
	}
	return b.String() + "</body></html>\n"
}

func reportText(t *testing.T, _ []int, paragraphs []string) string {
	t.Helper()
	return strings.Join(paragraphs, "\n\n") + "\n"
}

func reportDOCX(t *testing.T, headings []int, paragraphs []string) string {
	t.Helper()
	var body strings.Builder
	body.WriteString(`<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>`)
	for i, p := range paragraphs {
		style := ""
		if slices.Contains(headings, i) {
			style = `<w:pPr><w:outlineLvl w:val="0"/></w:pPr>`
		}
		body.WriteString(`<w:p>` + style + `<w:r><w:t xml:space="preserve">` + p + `</w:t></w:r></w:p>`)
	}
	body.WriteString(`</w:body></w:document>`)
	return zipped(t,
		"[Content_Types].xml", `<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>`,
		"_rels/.rels", `<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/document.xml", body.String())
}

// reportEPUB gives each section a chapter.
func reportEPUB(t *testing.T, headings []int, paragraphs []string) string {
	t.Helper()
	var chapters []string
	for i, p := range paragraphs {
		if slices.Contains(headings, i) {
			chapters = append(chapters, "<h1>"+p+"</h1>")
			continue
		}
		chapters[len(chapters)-1] += "<p>" + p + "</p>"
	}
	return bookEPUB(t, chapters)
}

// reportPDF is the report with bookmarks.
func reportPDF(t *testing.T, headings []int, paragraphs []string) string {
	t.Helper()
	file := reportPages(headings, paragraphs)
	return string(file.Bytes())
}

// reportPlainPDF is the report without bookmarks: its headings are larger, no more.
func reportPlainPDF(t *testing.T, headings []int, paragraphs []string) string {
	t.Helper()
	file := reportPages(headings, paragraphs)
	file.Outline = nil
	for i := range file.Pages { // pages that are equal are reused from the other file
		file.Pages[i].Content = strings.ReplaceAll(file.Pages[i].Content, "(Section ", "(Chapter ")
		file.Pages[i].Content = strings.ReplaceAll(file.Pages[i].Content, "paragraph", "part")
	}
	return string(file.Bytes())
}

// reportPages sets the report in lines; each section begins on a new page and
// has a bookmark, as chapters do.
func reportPages(headings []int, paragraphs []string) enginetest.File {
	var file enginetest.File
	var page strings.Builder
	y := 0.0
	turn := func() {
		if page.Len() > 0 {
			file.Pages = append(file.Pages, enginetest.Page{Content: page.String()})
			page.Reset()
		}
		y = 740
	}
	line := func(font string, size float64, text string) {
		if y < 60 {
			turn()
		}
		page.WriteString(enginetest.Text(font, size, 60, y, text))
		y -= 1.2 * size
	}
	for i, p := range paragraphs {
		if slices.Contains(headings, i) {
			turn()
			file.Outline = append(file.Outline, enginetest.Mark{Level: 1, Title: p, Page: len(file.Pages)})
			line("F2", 20, p)
			y -= 10
			continue
		}
		for _, text := range wrapped(p) {
			line("F1", 10, text)
		}
		y -= 10
	}
	turn()
	return file
}

// A paragraph in the middle of a section of a long document moves all behind it,
// and only the chunks around it are embedded again.
func TestInsertedParagraphEmbedsOnlyWhatIsNew(t *testing.T) {
	address, embedded := vectorServer(t)
	s := start(t, func(c *config.Config) { c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", address, "words" })
	for _, format := range []struct {
		name, mediaType string
		write           func(t *testing.T, headings []int, paragraphs []string) string
	}{
		{"report.md", "text/markdown", reportMarkdown},
		{"report.html", "text/html", reportHTML},
		{"report.txt", "text/plain", reportText},
		{"report.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", reportDOCX},
		{"report.epub", "application/epub+zip", reportEPUB},
		{"report.pdf", "application/pdf", reportPDF},
		{"plain.pdf", "application/pdf", reportPlainPDF},
	} {
		t.Run(format.name, func(t *testing.T) {
			id := sheaf.NewID()
			put := func(added string) sheaf.Document {
				headings, paragraphs := longReport(added)
				resp, b := s.request("PUT", "/v1/datasets/default/documents/"+id+"?wait=120s&name="+url.QueryEscape(format.name), format.write(t, headings, paragraphs), "Content-Type", format.mediaType)
				if resp.StatusCode != 202 {
					t.Fatalf("%s: %s", resp.Status, b)
				}
				d := decodeAs[api.SubmitAnswer](t, b).Documents[0]
				mustState(t, d, sheaf.DocSucceeded)
				return d
			}
			before := embedded()
			first := put("")
			if n := embedded() - before; first.Chunks < 300 || n < first.Chunks {
				t.Fatalf("%d texts were embedded for %d chunks", n, first.Chunks)
			}
			before = embedded()
			second := put("The paragraph that is new tells of a lighthouse that nobody had seen before. " + strings.Repeat("It stood there all the same. ", 8))
			again := embedded() - before
			t.Logf("%d of %d chunks were embedded again; %d units", again, second.Chunks, second.Units)
			if again == 0 || again*100 > 3*second.Chunks {
				t.Errorf("%d of %d chunks were embedded again, more than 3 in 100", again, second.Chunks)
			}
		})
	}
}

// wrapped cuts a paragraph into lines that fit on a page.
func wrapped(paragraph string) (lines []string) {
	text := ""
	for w := range strings.FieldsSeq(paragraph) {
		if len(text)+len(w) > 95 {
			lines = append(lines, text)
			text = ""
		}
		text = strings.TrimSpace(text + " " + w)
	}
	return append(lines, text)
}
