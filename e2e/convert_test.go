package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// Programs that speak the protocols of Tika, Open WebUI and Dify read files and
// ask datasets. Nothing of what they read stays, unless they name a dataset.
func TestOtherProgramsReadAndAsk(t *testing.T) {
	t.Parallel()
	python := filepath.Join(clients(t), "python")
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"tika", "openwebui", "dify"}
	})
	writer := s.tenant("alpha", "write", sheaf.Quota{})
	reader, stranger := s.withKey("alpha", "read"), s.tenant("beta", "write", sheaf.Quota{})
	writer.newDataset("papers", false)
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "handbook.pdf")
	if err := os.WriteFile(file, pdf, 0o600); err != nil {
		t.Fatal(err)
	}
	documents := func(dataset string) []sheaf.Document {
		t.Helper()
		var list struct{ Items []sheaf.Document }
		writer.get("/v1/datasets/"+dataset+"/documents", &list)
		return list.Items
	}
	gone := func(after string) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); len(documents("conversions")) > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %s stays %+v", after, documents("conversions"))
			}
		}
	}

	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join("testdata", "clients.py"), s.base, writer.key, "wrong", file)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+python, "TIKA_CLIENT_ONLY=True", "TIKA_LOG_PATH="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	gone("the clients")

	put := func(who *service, path, media, body string) (int, string) {
		t.Helper()
		resp, answer := who.ask(http.MethodPut, path, media, []byte(body))
		return resp.StatusCode, answer
	}
	if status, answer := put(reader, "/tika", "text/plain", "Herons wait."); status != http.StatusForbidden {
		t.Errorf("a key that may read converts: %d %s", status, answer)
	}
	if status, answer := put(writer, "/tika?dataset=nowhere", "text/plain", "Herons wait."); status != http.StatusNotFound {
		t.Errorf("an unknown dataset: %d %s", status, answer)
	}
	if status, answer := put(writer, "/tika?dataset=papers", "text/plain", "Herons wait in the shallow water."); status != 200 || answer != "Herons wait in the shallow water." || len(documents("papers")) != 1 {
		t.Errorf("a kept conversion: %d %s, %d documents", status, answer, len(documents("papers")))
	}
	if status, answer := put(stranger, "/tika?dataset="+documents("papers")[0].DatasetID, "text/plain", "x"); status != http.StatusNotFound {
		t.Errorf("the dataset of another tenant: %d %s", status, answer)
	}

	asksDify(t, writer, reader, stranger)
}

// asksDify sends what Dify sends.
func asksDify(t *testing.T, writer, reader, stranger *service) {
	t.Helper()
	for name, year := range map[string]string{"early.txt": "1843", "late.txt": "1953"} {
		files := []source{text(name, "The heron "+name+" waits in the shallow water.")}
		if _, err := writer.submitAnswer(t.Context(), "papers", files, map[string]string{"metadata": `{"year":"` + year + `"}`}, "?wait=60s"); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(who *service, body string) (status int, titles []string, code int) {
		t.Helper()
		resp, answer := who.ask(http.MethodPost, "/retrieval", "application/json", []byte(body))
		var out struct {
			Records []struct {
				Content, Title string
				Score          float64
				Metadata       map[string]any
			}
			Code    int    `json:"error_code"`
			Message string `json:"error_msg"`
		}
		if err := json.Unmarshal([]byte(answer), &out); err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		for _, r := range out.Records {
			if r.Content == "" || r.Score < 0 || r.Score > 1 || r.Metadata == nil {
				t.Errorf("a record is %+v", r)
			}
			titles = append(titles, r.Title)
		}
		if (resp.StatusCode == 200) != (out.Code == 0) || out.Code != 0 && out.Message == "" {
			t.Errorf("%s answers %d %s", body, resp.StatusCode, answer)
		}
		slices.Sort(titles)
		return resp.StatusCode, titles, out.Code
	}
	const about = `{"knowledge_id":"papers","query":"where does the heron wait","retrieval_setting":{"top_k":%d,"score_threshold":%v}%s}`
	if _, titles, _ := ask(reader, fmt.Sprintf(about, 10, 0.0, "")); !slices.Contains(titles, "early.txt") || !slices.Contains(titles, "late.txt") {
		t.Errorf("Dify finds %v", titles)
	}
	if _, titles, _ := ask(reader, fmt.Sprintf(about, 1, 0.0, "")); len(titles) != 1 {
		t.Errorf("top_k 1 finds %v", titles)
	}
	if _, titles, _ := ask(reader, fmt.Sprintf(about, 10, 1.0, "")); len(titles) > 1 {
		t.Errorf("a threshold of 1 lets %v pass", titles)
	}
	for condition, want := range map[string]string{
		`{"name":["year"],"comparison_operator":"is","value":"1843"}`:               "early.txt",
		`{"name":"year","comparison_operator":">","value":1900}`:                    "late.txt",
		`{"name":"document_name","comparison_operator":"start with","value":"ear"}`: "early.txt",
	} {
		if _, titles, _ := ask(reader, fmt.Sprintf(about, 10, 0.0, `,"metadata_condition":{"logical_operator":"and","conditions":[`+condition+`]}`)); !slices.Equal(titles, []string{want}) {
			t.Errorf("%s finds %v", condition, titles)
		}
	}
	anonymous, wrong := &service{client: newClient(writer.base, ""), t: t}, &service{client: newClient(writer.base, "wrong"), t: t}
	for name, c := range map[string]struct {
		who    *service
		body   string
		status int
		code   int
	}{
		"no key":                {anonymous, fmt.Sprintf(about, 1, 0.0, ""), 401, 1001},
		"a wrong key":           {wrong, fmt.Sprintf(about, 1, 0.0, ""), 401, 1002},
		"a wrong key, no JSON":  {wrong, `{`, 401, 1002},
		"no key, no dataset":    {anonymous, `{}`, 401, 1001},
		"no such dataset":       {reader, `{"knowledge_id":"nowhere","query":"x"}`, 404, 2001},
		"a dataset of another":  {stranger, fmt.Sprintf(about, 1, 0.0, ""), 404, 2001},
		"no JSON":               {reader, `{`, 400, 400},
		"ten thousand":          {reader, fmt.Sprintf(about, 10_000, 0.0, ""), 400, 400},
		"an operator":           {reader, fmt.Sprintf(about, 1, 0.0, `,"metadata_condition":{"conditions":[{"name":"year","comparison_operator":"like","value":"1"}]}`), 400, 400},
		"no query":              {reader, `{"knowledge_id":"papers"}`, 400, 400},
		"more than a megabyte":  {reader, `{"knowledge_id":"papers","query":"` + strings.Repeat("x", 1<<20) + `"}`, 413, 400},
		"ten thousand operands": {reader, fmt.Sprintf(about, 1, 0.0, `,"metadata_condition":{"conditions":[`+strings.TrimSuffix(strings.Repeat(`{"name":"year","comparison_operator":"is","value":"1"},`, 10_000), ",")+`]}`), 400, 400},
	} {
		if status, _, code := ask(c.who, c.body); status != c.status || code != c.code {
			t.Errorf("%s: %d with code %d, want %d with %d", name, status, code, c.status, c.code)
		}
	}
}
