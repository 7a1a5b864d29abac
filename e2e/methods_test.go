package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/parser"
	"sheaf/parser/pdf/enginetest"
)

// upload sends one file with settings and waits for its end.
func (s *service) upload(name, mediaType, settings, body string) sheaf.Document {
	s.t.Helper()
	resp, b := s.request("POST", "/v1/datasets/default/documents?wait=60s&name="+url.QueryEscape(name)+"&parser_config="+url.QueryEscape(settings), body, "Content-Type", mediaType)
	if resp.StatusCode != 202 {
		s.t.Fatalf("%s: %s", resp.Status, b)
	}
	return decodeAs[api.SubmitAnswer](s.t, b).Documents[0]
}

func (s *service) chunks(documentID string) []sheaf.Chunk {
	s.t.Helper()
	var list struct {
		Items []sheaf.Chunk `json:"items"`
	}
	s.get("/v1/datasets/default/documents/"+documentID+"/chunks?limit=1000", &list)
	return list.Items
}

func TestSettingsThatCannotBeObeyedAreRefusedAtUpload(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Executor.Workers = 1 })
	for settings, says := range map[string]string{
		`{"chunk_method": "magic"}`:                                  "presentation",       // what there is
		`{"chunk_method": "paper"}`:                                  "use one of general", // what takes Markdown
		`{"chunk_methods": "general"}`:                               "children_delimiter", // what keys there are
		`{"chunk_method": "general", "chunk_token_num": 9000}`:       "16 to 8191",         // within what
		`{"chunk_method": "general", "table_context_size": -3}`:      "table_context_size", // which
		`{"chunk_method": "general", "pages": [[3, 1]]}`:             "both ends included", // how
		`{"chunk_method": "picture", "media_type": "text/markdown"}`: "takes images",       // what it takes
	} {
		resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.md&parser_config="+url.QueryEscape(settings), "# A", "Content-Type", "text/markdown")
		if resp.StatusCode/100 != 4 || !strings.Contains(string(b), says) {
			t.Errorf("%s: %s, want a 4xx that says %q: %s", settings, resp.Status, says, b)
		}
	}
	if n := s.blobs("originals/"); n != 0 {
		t.Errorf("%d files of refused uploads are stored", n)
	}
}

// The type of a column is one for the whole document, whatever a task sees.
func TestColumnsAreTypedOncePerDocument(t *testing.T) {
	s := start(t, nil)
	var csv strings.Builder
	csv.WriteString("code,count\n")
	for i := range 60 {
		code := fmt.Sprint(i)
		if i == 59 {
			code = "n59" // in the last of the tasks
		}
		fmt.Fprintf(&csv, "%s,%d\n", code, i)
	}
	d := s.upload("codes.csv", "text/csv", `{"chunk_method": "table", "table_rows": 10}`, csv.String())
	mustState(t, d, sheaf.DocSucceeded)
	chunks := s.chunks(d.ID)
	if len(chunks) != 60 {
		t.Fatalf("%d chunks of 60 rows", len(chunks))
	}
	for i, c := range chunks {
		if _, ok := c.Columns["code"].(string); !ok {
			t.Errorf("row %d: code is %T", i, c.Columns["code"])
		}
		if c.Columns["count"] != float64(i) { // as JSON gives numbers
			t.Errorf("row %d: count is %v", i, c.Columns["count"])
		}
	}
	var tasks struct {
		Items []sheaf.Task `json:"items"`
	}
	s.get("/v1/datasets/default/documents/"+d.ID+"/tasks", &tasks)
	if n := len(slices.DeleteFunc(tasks.Items, func(t sheaf.Task) bool { return t.Kind != sheaf.KindParse })); n < 6 {
		t.Errorf("%d tasks: the test shows nothing", n)
	}
}

// vectorServer answers /v1/embeddings with vectors made of the texts, and
// counts the texts.
func vectorServer(t *testing.T) (address string, count func() int) {
	t.Helper()
	var embedded atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		type vector struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		}
		var answer struct {
			Data []vector `json:"data"`
		}
		for i, text := range ask.Input {
			embedded.Add(1)
			v := make([]float32, 16)
			for w := range strings.FieldsSeq(text) {
				v[xxhash.Sum64String(w)%16]++
			}
			answer.Data = append(answer.Data, vector{i, v})
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1", func() int { return int(embedded.Load()) }
}

// A page inserted into a long document moves all behind it, over the borders
// of tasks, and yet hardly anything is embedded again.
func TestInsertedPageEmbedsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	address, embedded := vectorServer(t)
	s := start(t, func(c *config.Config) { c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", address, "words" })
	words := strings.Fields("river stone paper engine window garden signal copper market winter bridge letter forest harbor mirror candle valley thunder ribbon anchor")
	random := rand.New(rand.NewPCG(7, 7))
	page := func(mark string) string {
		var b strings.Builder
		for n := range 30 {
			fmt.Fprintf(&b, "Sentence %d of %s", n, mark)
			for range 12 {
				b.WriteString(" " + words[random.IntN(len(words))])
			}
			b.WriteString(". ")
		}
		return b.String()
	}
	pages := []string{"PRINTS " + page("the first page")}
	for n := range 299 {
		pages = append(pages, page(fmt.Sprintf("page %d", n)))
	}
	put := func(id string) sheaf.Document {
		resp, b := s.request("PUT", "/v1/datasets/default/documents/"+id+"?wait=120s&name=long.trial&parser_config="+url.QueryEscape(`{"media_type": "`+trialMedia+`"}`), strings.Join(pages, "\n"), "Content-Type", trialMedia)
		if resp.StatusCode != 202 {
			t.Fatalf("%s: %s", resp.Status, b)
		}
		d := decodeAs[api.SubmitAnswer](t, b).Documents[0]
		mustState(t, d, sheaf.DocSucceeded)
		return d
	}
	id := sheaf.NewID()
	first := put(id)
	before := embedded()
	if before < first.Chunks {
		t.Fatalf("%d texts were embedded for %d chunks", before, first.Chunks)
	}
	pages = slices.Insert(pages, 140, page("a page that is new"))
	second := put(id)
	again := embedded() - before
	t.Logf("%d of %d chunks were embedded again", again, second.Chunks)
	if again == 0 || again*100 > 3*second.Chunks {
		t.Errorf("%d of %d chunks were embedded again, more than 3 in 100", again, second.Chunks)
	}
	if second.Units != 301 || second.Chunks <= first.Chunks {
		t.Errorf("%d units, %d chunks after %d", second.Units, second.Chunks, first.Chunks)
	}
}

func TestPersonalDataIsReplacedBeforeAnythingIsStored(t *testing.T) {
	s := start(t, nil)
	body := "# Ask ada@example.org\n\nThe notice of termination goes to ada@example.org or to the landlord, who keeps the garden of the house in order.\n"
	d := s.upload("a.md", "text/markdown", `{"pii": "redact", "auto_keywords": 3}`, body)
	mustState(t, d, sheaf.DocSucceeded)
	chunks := s.chunks(d.ID)
	if len(chunks) != 1 || chunks[0].Language != "en" || len(chunks[0].Keywords) != 3 {
		t.Fatalf("%+v", chunks)
	}
	if all := fmt.Sprintf("%+v", chunks); strings.Contains(all, "ada@") || !strings.Contains(chunks[0].Text, "[EMAIL") {
		t.Errorf("it is still there: %s", all)
	}
	if all := fmt.Sprint(s.doc(d.ID).Warnings); !strings.Contains(all, "2 × EMAIL") {
		t.Errorf("warnings: %s", all)
	}
}

// A form's values are found where they stand; personal data in them is replaced before
// anything is stored.
func TestValuesOfFormsAreFound(t *testing.T) {
	s := start(t, nil)
	form := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 11, 72, 740, "Application for a plot in the orchard."), Annots: []string{
		"/Subtype /Widget /FT /Tx /T (f_1) /TU (Applicant) /V (Maud Quince, maud@example.org) /Rect [100 700 300 720]",
		"/Subtype /FreeText /Contents (Granted in May) /Rect [100 600 300 620]",
	}}}}
	for _, c := range []struct{ settings, name, want string }{
		{`{"pii": "redact"}`, "redacted.pdf", "Applicant: Maud Quince, [EMAIL"},
		{`{}`, "plain.pdf", "Applicant: Maud Quince, maud@example.org\nGranted in May"},
	} {
		d := s.upload(c.name, "application/pdf", c.settings, string(form.Bytes()))
		mustState(t, d, sheaf.DocSucceeded)
		chunks := s.chunks(d.ID)
		if len(chunks) != 1 || !strings.Contains(chunks[0].Text, c.want) {
			t.Fatalf("%s: %+v", c.name, chunks)
		}
		if boxes := chunks[0].Boxes; !slices.ContainsFunc(boxes, func(b sheaf.Box) bool { return b.X1 >= 300 && b.Y1 >= 92 }) {
			t.Errorf("%s: boxes %+v", c.name, boxes)
		}
		if c.settings == `{}` {
			continue
		}
		for _, file := range []string{"sheaf.db", "sheaf.db-wal", "index.db", "index.db-wal"} {
			if b, err := os.ReadFile(s.path(file)); err != nil || bytes.Contains(b, []byte("maud@example.org")) {
				t.Errorf("%s: %v, or the address is still there", file, err)
			}
		}
	}
}

// The clauses of a contract are cut and cited by the numbers that Word shows and does
// not store; a chunk leads where its text does, and redaction reaches that, too.
func TestClausesOfAWordFileAreFound(t *testing.T) {
	s := start(t, nil)
	p := func(level int, text string) string {
		return fmt.Sprintf(`<w:p><w:pPr><w:numPr><w:ilvl w:val="%d"/><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>%s</w:t></w:r></w:p>`, level, text)
	}
	lvl := func(level int, text string) string {
		return fmt.Sprintf(`<w:lvl w:ilvl="%d"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%s"/></w:lvl>`, level, text)
	}
	rel := func(id, target string) string {
		return `<Relationship Id="` + id + `" Type="x/hyperlink" TargetMode="External" Target="` + target + `"/>`
	}
	contract := zipOf(t, "[Content_Types].xml", "<Types/>",
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="n" Type="x/numbering" Target="numbering.xml"/>`+rel("a", "https://example.org/rates")+rel("m", "mailto:maud@example.org")+`</Relationships>`,
		"word/numbering.xml", `<w:numbering><w:abstractNum w:abstractNumId="7">`+lvl(0, "Article %1.")+lvl(1, "%1.%2")+`</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num></w:numbering>`,
		"word/document.xml", `<w:document><w:body>`+p(0, "Subject")+p(1, "The orchard is leased for a year.")+p(0, "Rent")+p(1, "The rent is due each quarter.")+
			`<w:p><w:hyperlink r:id="a"><w:r><w:t>The rates</w:t></w:r></w:hyperlink><w:r><w:t> are public; </w:t></w:r><w:hyperlink r:id="m"><w:r><w:t>ask us</w:t></w:r></w:hyperlink></w:p></w:body></w:document>`)
	d := s.upload("lease.docx", parser.MediaDOCX, `{"chunk_method": "laws", "pii": "redact"}`, contract)
	mustState(t, d, sheaf.DocSucceeded)
	chunks := s.chunks(d.ID)
	if len(chunks) != 2 || strings.Join(chunks[1].HeadingPath, " > ") != "Article 2. Rent" || !strings.Contains(chunks[1].Text, "2.1 The rent is due each quarter.") {
		t.Fatalf("%+v", chunks)
	}
	if links := chunks[1].Metadata[sheaf.MetadataLinks]; !strings.HasPrefix(links, "https://example.org/rates\n") || strings.Contains(links, "maud@") {
		t.Errorf("links %q", links)
	}
}

// What a chunk carries beside its text narrows a search, over the API and on
// the command line.
func TestSearchIsFilteredByLanguageKeywordAndTag(t *testing.T) {
	s := start(t, nil)
	mustState(t, s.upload("garden.txt", "text/plain", `{"auto_keywords": 3}`, "The old gate of the garden does not close any more, and the landlord pays for what has to be done about it."), sheaf.DocSucceeded)
	mustState(t, s.upload("garten.txt", "text/plain", `{"auto_keywords": 3}`, "Das alte Tor am Garten (garden gate) ist nicht mehr zu schließen, und der Vermieter zahlt für das, was zu tun ist."), sheaf.DocSucceeded)
	mustState(t, s.upload("tags.csv", "text/csv", `{"chunk_method": "tag"}`, "content,tags\nThe garden gate is broken,\"Repair, Urgent\"\nThe garden needs water,Plants\n"), sheaf.DocSucceeded)
	for filter, want := range map[string][]string{
		`{}`:                             {"garden.txt", "garten.txt", "tags.csv", "tags.csv"},
		`{"languages": ["de"]}`:          {"garten.txt"},
		`{"languages": ["DE", "en"]}`:    {"garden.txt", "garten.txt"},
		`{"tags": ["urgent", "plants"]}`: {"tags.csv", "tags.csv"},
		`{"tags": ["Repair"], "languages": ["de"]}`:        {},
		`{"keywords": ["LANDLORD PAYS", "no such thing"]}`: {"garden.txt"},
	} {
		var f map[string]any
		if err := json.Unmarshal([]byte(filter), &f); err != nil {
			t.Fatal(err)
		}
		r, err := s.search(t.Context(), defaultDataset, map[string]any{"query": "garden gate", "limit": 50, "filter": f})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, h := range r.Hits {
			got = append(got, h.Document.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("filter %s finds %q, want %q", filter, got, want)
		}
	}
	if out := s.must("search", "--tag", "urgent", "--tag", "no such thing", "garden", "gate").out; strings.Count(out, "tags.csv") != 1 || strings.Contains(out, "garten") || !strings.Contains(out, "tags Repair, Urgent") {
		t.Errorf("the command prints %q", out)
	}
	resp, b := s.request("POST", "/v1/search", `{"query": "gate", "filter": {"tags": [" "]}}`, "Content-Type", "application/json")
	if resp.StatusCode != 422 && resp.StatusCode != 400 || !strings.Contains(string(b), "empty") {
		t.Errorf("an empty tag: %s %s", resp.Status, b)
	}
}

// What planning warns of concerns the whole document, and stays on it when it is
// published, parsed again, and made of what was read before.
func TestWarningsOfAPlanStayOnTheDocument(t *testing.T) {
	s := start(t, nil)
	d := s.upload("rows.csv", "text/csv", `{}`, "crop,tons\nquince,2\npear,3,4\nplum\n")
	for version := 1; ; version++ {
		if d = s.doc(d.ID); d.Generation != version || d.State != sheaf.DocSucceeded || len(d.Warnings) != 1 || d.Warnings[0].Code != "ragged_rows" {
			t.Errorf("version %d is %s with the warnings %+v", d.Generation, d.State, d.Warnings)
		}
		if version == 3 {
			break
		}
		s.reparse("default")
	}
}
