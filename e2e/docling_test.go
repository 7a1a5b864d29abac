package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// doclingForm is what clients of docling-serve send: files and options.
func doclingForm(t *testing.T, files map[string]string, options ...string) (media string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for i := 0; i < len(options); i += 2 {
		_ = form.WriteField(options[i], options[i+1])
	}
	for name, content := range files {
		part, err := form.CreateFormFile("files", name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, content)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return form.FormDataContentType(), b.Bytes()
}

// The official client of docling-serve converts, follows and cuts into chunks;
// what is not valid is refused with a reason; a deleted task is canceled.
func TestDoclingClients(t *testing.T) {
	t.Parallel()
	python := filepath.Join(clients(t), "python")
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces, c.Server.AllowURLs = true, []string{"docling"}, []string{"127.0.0.1"}
		c.Parser.UnitTimeout = config.Duration(time.Minute)
	})
	writer := s.tenant("alpha", "write", sheaf.Quota{})
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{"handbook.pdf": pdf, "broken.pdf": []byte("%PDF-1.7 and nothing more")} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := httptest.NewServer(http.FileServer(http.Dir(folder)))
	defer files.Close()
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join("testdata", "docling_client.py"), s.base, writer.key, "wrong", filepath.Join(folder, "handbook.pdf"), files.URL+"/handbook.pdf", filepath.Join(folder, "broken.pdf"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refusesDocling(t, writer, s.withKey("alpha", "read"))
	cancelsDocling(t, writer, s.tenant("beta", "write", sheaf.Quota{}))
}

// refusesDocling sends what is not valid.
func refusesDocling(t *testing.T, writer, reader *service) {
	t.Helper()
	wrong := &service{client: newClient(writer.base, "wrong"), t: t}
	one := `{"kind":"file","filename":"a.md","base64_string":"` + base64.StdEncoding.EncodeToString([]byte("Herons wait.")) + `"}`
	many := `{"sources":[` + strings.TrimSuffix(strings.Repeat(one+",", 10_000), ",") + `]}`
	const unknown = "/docling/v1/result/01a20a15c96e70009778f913b1690c7a.convert.md."
	for name, c := range map[string]struct {
		who          *service
		method, path string
		body, says   string
		status       int
	}{
		"a wrong key":            {wrong, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `]}`, "key", 401},
		"a wrong key, no prefix": {wrong, "POST", "/v1/convert/source", `{"sources":[` + one + `]}`, "key", 401},
		"a key that may read":    {reader, "POST", "/docling/v1/convert/source/async", `{"sources":[` + one + `]}`, "write", 403},
		"no JSON":                {writer, "POST", "/docling/v1/convert/source", `{`, "cannot be read", 422},
		"no source":              {writer, "POST", "/docling/v1/convert/source", `{"sources":[]}`, "no file", 422},
		"ten thousand sources":   {writer, "POST", "/docling/v1/convert/source", many, "1000 are allowed", 422},
		"no base64":              {writer, "POST", "/docling/v1/convert/source", `{"sources":[{"kind":"file","filename":"a","base64_string":"?"}]}`, "base64", 422},
		"another source":         {writer, "POST", "/docling/v1/convert/source", `{"sources":[{"kind":"s3","bucket":"b"}]}`, "s3", 422},
		"a host not allowed":     {writer, "POST", "/docling/v1/convert/source", `{"sources":[{"kind":"http","url":"http://10.0.0.1/a.pdf"}]}`, "allow_urls", 403},
		"presigned":              {writer, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `],"target":{"kind":"presigned_url"}}`, "artifact storage to be configured", 422},
		"another target":         {writer, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `],"target":{"kind":"put","url":"http://x"}}`, "inbody", 422},
		"a batch in the body":    {writer, "POST", "/docling/v1/convert/source/batch", `{"sources":[` + one + `],"target":{"kind":"inbody"}}`, "presigned_url", 422},
		"a callback":             {writer, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `],"callbacks":[{"url":"http://x"}]}`, "callbacks", 422},
		"another output":         {writer, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `],"options":{"to_formats":["doctags"]}}`, "to_formats", 422},
		"another input":          {writer, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `],"options":{"from_formats":["pdf"]}}`, "from_formats", 422},
		"a range of pages":       {writer, "POST", "/docling/v1/convert/source", `{"sources":[` + one + `],"options":{"page_range":[2,1]}}`, "page_range", 422},
		"a size of chunks":       {writer, "POST", "/docling/v1/chunk/hybrid/source", `{"sources":[` + one + `],"chunking_options":{"max_tokens":100000}}`, "max_tokens", 422},
		"another chunker":        {writer, "POST", "/docling/v1/chunk/magic/source", `{"sources":[` + one + `]}`, "hierarchical", 404},
		"no form":                {writer, "POST", "/docling/v1/convert/file", `{}`, "multipart/form-data", 422},
		"an unknown task":        {writer, "GET", unknown, "", "Task not found.", 404},
		"a task that is none":    {writer, "GET", "/docling/v1/status/poll/x", "", "Task not found.", 404},
		"an unknown task to end": {writer, "DELETE", unknown, "", "Task not found.", 404},
		"a wait that is none":    {writer, "GET", "/docling/v1/status/poll/" + strings.TrimPrefix(unknown, "/docling/v1/result/") + "?wait=NaN", "", "wait", 422},
	} {
		resp, answer := c.who.ask(c.method, c.path, "application/json", []byte(c.body))
		var said struct{ Detail string }
		if err := json.Unmarshal([]byte(answer), &said); err != nil || resp.StatusCode != c.status || !strings.Contains(said.Detail, c.says) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, answer)
		}
	}

	// Options nobody knows are named, and files may come before options.
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, _ := form.CreateFormFile("files", "a.md")
	_, _ = io.WriteString(part, "Herons wait.")
	_ = form.WriteField("do_magic", "true")
	_ = form.WriteField("to_formats", "text")
	_ = form.Close()
	resp, answer := writer.ask("POST", "/docling/v1/convert/file", form.FormDataContentType(), b.Bytes())
	if resp.StatusCode != 200 || !strings.Contains(answer, "The option do_magic is not supported") || !strings.Contains(answer, `"text_content":"Herons wait."`) {
		t.Errorf("an unknown option: %d %s", resp.StatusCode, answer)
	}
	files := map[string]string{}
	for i := range 1100 {
		files[fmt.Sprintf("%d.md", i)] = "x"
	}
	media, body := doclingForm(t, files)
	if resp, answer := writer.ask("POST", "/docling/v1/convert/file", media, body); resp.StatusCode != 413 && resp.StatusCode != 422 {
		t.Errorf("1,100 files: %d %.300s", resp.StatusCode, answer)
	}
	media, body = doclingForm(t, map[string]string{"a.md": "Herons wait."})
	if resp, answer := writer.ask("POST", "/docling/v1/convert/file", media, body[:len(body)-20]); resp.StatusCode != 422 || !strings.Contains(answer, "send it again") {
		t.Errorf("half a body: %d %s", resp.StatusCode, answer)
	}
}

// cancelsDocling follows tasks that do not end, and ends them.
func cancelsDocling(t *testing.T, writer, stranger *service) {
	t.Helper()
	documents := func() (ids []string) {
		var list struct{ Items []sheaf.Document }
		writer.get("/v1/datasets/conversions/documents?limit=100", &list)
		for _, d := range list.Items {
			ids = append(ids, d.ID)
		}
		return ids
	}
	writer.post("/v1/datasets/conversions:pause", nil, nil)
	before := documents()
	submit := func(path string, options ...string) (int, string) {
		media, body := doclingForm(t, map[string]string{"a.md": "Herons wait.", "b.md": "Bitterns wait."}, options...)
		resp, answer := writer.ask("POST", "/docling"+path, media, body)
		return resp.StatusCode, answer
	}
	taskOf := func(answer string) string {
		var out struct {
			Task string `json:"task_id"`
		}
		_ = json.Unmarshal([]byte(answer), &out)
		return out.Task
	}
	// A call that waited long enough names its task, which goes on.
	status, answer := submit("/v1/convert/file", "document_timeout", "0.05")
	task := taskOf(answer)
	if status != http.StatusGatewayTimeout || task == "" {
		t.Fatalf("a call that waits: %d %s", status, answer)
	}
	_, answer = writer.ask("GET", "/docling/v1/status/poll/"+task+"?wait=0.01", "", nil)
	if !strings.Contains(answer, `"task_status":"pending"`) || !strings.Contains(answer, `"num_docs":2`) {
		t.Errorf("a task that waits: %s", answer)
	}
	if resp, answer := writer.ask("GET", "/docling/v1/result/"+task, "", nil); resp.StatusCode != 404 || !strings.Contains(answer, "Task result not found") {
		t.Errorf("no result yet: %d %s", resp.StatusCode, answer)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if resp, answer := stranger.ask(method, "/docling/v1/result/"+task, "", nil); resp.StatusCode != 404 || !strings.Contains(answer, "Task not found.") {
			t.Errorf("%s by a stranger: %d %s", method, resp.StatusCode, answer)
		}
	}
	// Somebody follows it, with the key where browsers have it, when it is deleted.
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(writer.base, "http")+"/docling/v1/status/ws/"+task+"?api_key="+writer.key, "", writer.base)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	said := ""
	if err := websocket.Message.Receive(conn, &said); err != nil || !strings.Contains(said, `"message":"connection"`) || !strings.Contains(said, task) {
		t.Fatalf("following: %s, %v", said, err)
	}
	if resp, answer := writer.ask("DELETE", "/docling/v1/task/"+task, "", nil); resp.StatusCode != 200 {
		t.Errorf("deleting a task: %d %s", resp.StatusCode, answer)
	}
	if now := documents(); !slices.Equal(now, before) {
		t.Errorf("after it was deleted there are %v, before there were %v", now, before)
	}
	// Its last message says so, or that it was canceled, which comes first.
	for !strings.Contains(said, "Task not found.") && !strings.Contains(said, "The task was canceled") {
		if err := websocket.Message.Receive(conn, &said); err != nil {
			t.Fatalf("after %s: %v", said, err)
		}
	}
	// A client that hangs up while it waits.
	media, body := doclingForm(t, map[string]string{"a.md": "Herons wait."})
	raw, err := net.Dial("tcp", strings.TrimPrefix(writer.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(raw, "POST /docling/v1/convert/file HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", strings.TrimPrefix(writer.base, "http://"), writer.key, media, len(body), body)
	until := func(what string, done func() bool) {
		for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: there are %v", what, documents())
			}
		}
	}
	until("the call did not begin", func() bool { return len(documents()) > len(before) })
	raw.Close()
	until("a call that hung up", func() bool { return slices.Equal(documents(), before) })
}
