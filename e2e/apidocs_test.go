package e2e

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/taskstore"
)

// Every example of /docs is a request that the service takes.
func TestExamplesOfTheReferenceRun(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Webhooks.Hosts = true, []string{"hooks.example.com", "hooks.invalid"}
	})
	s.tenant("acme", "read", sheaf.Quota{})
	v := newVictim(s)
	admin := s.withKey("alpha", "admin")
	_, page := admin.ask(http.MethodGet, "/docs", "", nil)
	found := regexp.MustCompile(`(?s)<details class="op" id="([a-z-]+)"><summary><span class="method [a-z]+">[A-Z]+</span> <code>([^<]+)</code>.*?<pre tabindex="0"><code>(.*?)</code>`).FindAllStringSubmatch(page, -1)
	if len(found) < 100 {
		t.Fatalf("only %d examples", len(found))
	}
	type example struct{ id, path, command string }
	var all []example
	for _, f := range found {
		all = append(all, example{f[1], html.UnescapeString(f[2]), strings.ReplaceAll(html.UnescapeString(f[3]), "\\\n", "")})
	}
	// What another example needs goes last.
	last := []string{"complete-upload", "submit-uploads", "delete-chunk", "delete-query", "delete-split", "delete-flow", "delete-webhook", "revoke-key", "delete-upload", "put-document", "delete-document", "delete-dataset"}
	slices.SortStableFunc(all, func(a, b example) int { return slices.Index(last, a.id) - slices.Index(last, b.id) })
	// The ids of the examples are those of things that are there.
	keys, _, err := s.store.Keys(t.Context(), "acme", taskstore.Page{})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{"doc": v.document, "job": v.job, "task": v.task, "range": v.rangeID, "upload": v.upload, "webhook": v.webhook, "receipt": v.receipt, "chunk": v.chunk, "edit": v.edit, "query": v.query, "evaluation": v.evaluation, "run": v.run, "split": v.split, "key": keys[0].ID}
	replace := []string{"/datasets/default", "/datasets/vault", `"default"`, `"vault"`, "/flows/scans", "/flows/" + v.flow, "/nodes/cut", "/nodes/parse"}
	_, routes := s.routes()
	for _, r := range routes {
		for _, p := range r.op.Parameters {
			if id := own[p.Name]; p.In == "path" && id != "" {
				replace = append(replace, fmt.Sprint(p.Example), id)
			}
		}
	}
	names := strings.NewReplacer(replace...)
	// Examples that nothing here can answer.
	refused := map[string]string{
		"presign-upload": "no_direct_upload", "complete-upload": "no_direct_upload", // files are on this machine's disk
		"get-page-image": "no_page_image", "get-picture": "no_picture", // the format of the test has none
		"patch-upload": "5 bytes are stored", // the example that sends them by POST was before it
		"cancel-task":  "is done already", "change-index-migration": "already holds vectors of", "get-task-of-tenant": "There is no task",
		// The victim's runs are over, and the ones that an example began may not be.
		"cancel-run": "is over", "resume-run": "run", "resume-document": "is not being made", "delete-raptor": "run_open", "delete-mindmap": "run_open",
		"create-graphrag": "no_model", // the test has no chat model
		"create-split":    "no entity of the name IT",
	}
	for _, e := range all {
		status, answer := admin.runExample(names.Replace(e.command))
		if want := refused[e.id]; status >= 400 && (want == "" || !strings.Contains(answer, want)) {
			t.Errorf("%s answers %d %.400s to\n%s", e.id, status, answer, e.command)
		}
	}
}

// runExample sends what a curl command would.
func (s *service) runExample(command string) (int, string) {
	s.t.Helper()
	method, url := http.MethodGet, ""
	var body []byte
	head := http.Header{"Authorization": {"Bearer " + s.key}}
	words := shellWord.FindAllString(command, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	for i := 1; i < len(words); i++ {
		arg := func() string { i++; return words[i] }
		switch words[i] {
		case "-X":
			method = arg()
		case "--head":
			method = http.MethodHead
		case "-H":
			k, v, _ := strings.Cut(arg(), ": ")
			head.Set(k, v)
		case "-d":
			body = []byte(arg())
		case "--data-binary":
			i++
			body = []byte("hello")
		case "-F":
			i++
			var form bytes.Buffer
			w := multipart.NewWriter(&form)
			file, err := w.CreateFormFile("file", "report.txt")
			if err != nil {
				s.t.Fatal(err)
			}
			fmt.Fprint(file, "The lease ends in May.")
			if err := w.Close(); err != nil {
				s.t.Fatal(err)
			}
			body = form.Bytes()
			head.Set("Content-Type", w.FormDataContentType())
		default:
			url = words[i]
		}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = head
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// The reference has the look of the page, reads in a narrow window and without
// a pointer, and finds operations.
func TestReferenceIsReadInABrowser(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	shoot := func(name string) {
		if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
			b.shoot(filepath.Join(dir, name))
		}
	}
	for _, dark := range []bool{false, true} {
		b.look(1280, 800, dark)
		b.open("/docs#create-tenant")
		b.wait("the operation of the address", `document.querySelector("#create-tenant").open && document.querySelector("#create-tenant table").checkVisibility()`)
		b.checkAccess(script, fmt.Sprintf("/docs dark=%v", dark))
		shoot(fmt.Sprintf("docs-dark-%v.png", dark))
	}
	b.run(evaluate(`const f = document.querySelector("#api-filter"); f.value = "RETRY job"; f.dispatchEvent(new Event("input"))`))
	b.wait("one operation", `[...document.querySelectorAll(".api-index li a")].filter(a => a.checkVisibility()).map(a => a.hash).join() === "#retry-job"`)
	b.run(evaluate(`document.querySelector('.api-index a[href="#retry-job"]').click()`))
	b.wait("the operation that was chosen", `document.querySelector("#retry-job").open`)
	b.run(evaluate(`document.querySelector("#retry-job .copy").click()`))
	b.wait("that it was copied", `/Copied|Selected/.test(document.querySelector("#retry-job .copy").textContent)`)
	b.run(evaluate(`location.hash = "create-dataset"`))
	b.wait("the form of an operation", `document.querySelector("#create-dataset .try textarea")?.value.includes("contracts")`)
	b.checkAccess(script, "the form of an operation")
	b.run(evaluate(`document.querySelector("#create-dataset .try button").click()`))
	b.sees("#create-dataset .try pre", "201")
	b.run(evaluate(`location.hash = "get-dataset"`))
	b.wait("the form of another", `document.querySelector("#get-dataset .try input")`)
	b.run(evaluate(`document.querySelector("#get-dataset .try input").value = "contracts"; document.querySelector("#get-dataset .try button").click()`))
	b.sees("#get-dataset .try pre", `"chunk_method": "laws"`)
	shoot("docs-try.png")
	b.look(360, 740, false)
	b.open("/docs")
	b.run(evaluate(`for (const d of document.querySelectorAll("details")) d.open = true`))
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("/docs is %d pixels wide in a window of 360", wide)
	}
	shoot("docs-narrow.png")
	b.noErrors()
}

// shellWord matches one word, with its quotes.
var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
