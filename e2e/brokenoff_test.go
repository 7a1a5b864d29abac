package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// half sends the head of a request and a body that ends a thousand bytes too
// early. The answer is "" where the server says nothing to who is gone.
func (s *service) half(method, path, media, body string) (status int, answer string) {
	s.t.Helper()
	base, err := url.Parse(s.base)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", base.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", method, path, base.Host, s.key, media, len(body)+1000, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Of a request that breaks off nothing is done, by whatever interface it came,
// and the answer has the form that its clients read.
func TestInterfacesDoNothingOfHalfARequest(t *testing.T) {
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"tika", "openwebui", "docling", "dify", "openai", "mcp"}
	})
	s = s.tenant("alpha", "write", sheaf.Quota{})
	s.newDataset("papers", false)
	var store, file struct{ ID string }
	s.post("/openai/v1/vector_stores", map[string]any{}, &store)
	media, whole := openaiForm(t, map[string]string{"purpose": "assistants"}, "Herons wait.")
	if _, answer := s.ask("POST", "/openai/v1/files", media, whole); json.Unmarshal([]byte(answer), &file) != nil || file.ID == "" {
		t.Fatal(answer)
	}
	names := func() (all string) { // of everything that there is
		var datasets struct{ Items []sheaf.Dataset }
		s.get("/v1/datasets", &datasets)
		for _, ds := range datasets.Items {
			var docs struct{ Items []sheaf.Document }
			s.get("/v1/datasets/"+ds.ID+"/documents", &docs)
			all += ds.Name + ": "
			for _, d := range docs.Items {
				all += d.Name + " "
			}
		}
		return all
	}
	s.newDataset("conversions", false)
	before := names()

	const (
		form   = "multipart/form-data; boundary=b"
		files  = "--b\r\nContent-Disposition: form-data; name=\"files\"; filename=\"whole.txt\"\r\n\r\nThe stork nests.\r\n--b\r\nContent-Disposition: form-data; name=\"files\"; filename=\"half.txt\"\r\n\r\nThe crane"
		js     = "application/json"
		detail = `"detail":"`
		openai = `"type":"invalid_request_error"`
	)
	encoded := base64.StdEncoding.EncodeToString([]byte("Herons wait."))
	at := "/openai/v1/vector_stores/" + store.ID
	for _, c := range []struct{ method, path, media, body, form string }{
		{"PUT", "/tika", "text/plain", "Herons", "X-TIKA:EXCEPTION:runtime"},
		{"PUT", "/tika/text", "text/plain", "Herons", `{"X-TIKA:EXCEPTION:runtime":`},
		{"PUT", "/meta", "text/plain", "Herons", `{"X-TIKA:EXCEPTION:runtime":`},
		{"PUT", "/rmeta/text", "text/plain", "Herons", `[{"X-TIKA:EXCEPTION:runtime":`},
		{"PUT", "/process", "text/plain", "Herons", detail},
		{"PUT", "/process?dataset=papers", "text/plain", "Herons", detail},
		{"POST", "/docling/v1/convert/file", form, files, detail},
		{"POST", "/docling/v1/convert/file/async", form, files, detail},
		{"POST", "/docling/v1/chunk/hybrid/file", form, files, detail},
		{"POST", "/docling/v1/convert/source", js, `{"sources":[{"kind":"file","filename":"a.txt","base64_string":"` + encoded + `"}]`, detail},
		{"POST", "/docling/v1/convert/source/batch", js, `{"sources":[{"kind":"file","filename":"a.txt","base64_string":"` + encoded + `"}]}`, detail},
		{"POST", "/retrieval", js, `{"knowledge_id":"papers","query":"heron"}`, `"error_code":400`},
		{"POST", "/mcp", js, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ingest_file","arguments":{"name":"a.txt","dataset":"papers","base64":"` + encoded + `"}}}`, ""},
		{"POST", "/openai/v1/files", media, string(whole[:len(whole)/2]), openai},
		{"POST", "/openai/v1/vector_stores", js, `{"name":"half"}`, openai},
		{"POST", at, js, `{"name":"half"}`, openai},
		{"POST", at + "/files", js, `{"file_id":"` + file.ID + `"}`, openai},
		{"POST", at + "/file_batches", js, `{"file_ids":["` + file.ID + `"]}`, openai},
		{"POST", at + "/search", js, `{"query":"heron"}`, openai},
		{"POST", "/openai/v1/embeddings", js, `{"input":"heron"}`, openai},
	} {
		want := http.StatusBadRequest
		if strings.HasPrefix(c.path, "/docling") {
			want = http.StatusUnprocessableEntity // what docling-serve answers to any body that it cannot read
		}
		status, answer := s.half(c.method, c.path, c.media, c.body)
		if status != want || !strings.Contains(answer, c.form) || c.form != "" && !strings.Contains(answer, "send it again") {
			t.Errorf("%s %s that breaks off answers %d %s", c.method, c.path, status, answer)
		}
	}
	waitFor(t, "what was sent before it broke off to be gone", func() bool { return names() == before })
}

// What programs ask of an address that nobody has is answered as they read it,
// never with the page; browsers get the page, which reads the address itself.
func TestProgramsAreNotAnsweredWithThePage(t *testing.T) {
	s := start(t, func(c *config.Config) {
		c.Server.Interfaces = []string{"tika", "docling", "openai", "ragflow"}
	})
	for path, want := range map[string]string{
		"/nonsense": `"code":"not_found"`, "/tika/html": `"code":"not_found"`, "/retrieval": `"code":"not_found"`,
		"/openai/v1/nonsense": `"message":"Unknown request URL: GET /openai/v1/nonsense.`, "/openai/v1/models/gpt-4": `"type":"invalid_request_error"`,
		"/docling/v1/nonsense": `{"detail":"Not Found: /docling/v1/nonsense"}`, "/api/v1/nonsense": `"message":"Not Found: /api/v1/nonsense"`,
	} {
		for _, accept := range []string{"", "*/*", "application/json"} {
			if resp, b := s.request("GET", path, "", "Accept", accept); resp.StatusCode != 404 || !strings.Contains(string(b), want) {
				t.Errorf("GET %s, accepting %q: %s %.200s", path, accept, resp.Status, b)
			}
		}
	}
	for _, path := range []string{"/", "/datasets/nowhere", "/style.css"} {
		if resp, b := s.request("GET", path, "", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8"); resp.StatusCode != 200 {
			t.Errorf("a browser that asks for %s: %s %.200s", path, resp.Status, b)
		}
	}
	for body, want := range map[string]string{`[]`: "the body cannot be a JSON array", `{"sources":7}`: "sources cannot be a JSON number"} {
		if _, b := s.request("POST", "/docling/v1/convert/source", body, "Content-Type", "application/json"); !strings.Contains(string(b), want) || strings.Contains(string(b), "Go ") {
			t.Errorf("%s: %s", body, b)
		}
	}
}

// Who hangs up while a file is converted leaves nothing behind. What an assistant
// ingests stays, as it was asked for.
func TestInterfacesWhoseClientsHangUp(t *testing.T) {
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"tika", "openwebui", "docling", "mcp"}
	})
	s = s.tenant("alpha", "write", sheaf.Quota{})
	s.newDataset("conversions", false)
	s.newDataset("papers", false)
	documents := func(dataset string) []sheaf.Document {
		var list struct{ Items []sheaf.Document }
		s.get("/v1/datasets/"+dataset+"/documents", &list)
		return list.Items
	}
	const part = "--b\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a.txt\"\r\n\r\nHerons wait.\r\n--b--\r\n"
	encoded := base64.StdEncoding.EncodeToString([]byte("Herons wait."))
	s.post("/v1/datasets/conversions:pause", nil, nil) // nothing is read before the client has gone
	for _, c := range []struct{ method, path, media, body string }{
		{"PUT", "/tika", "text/plain", "Herons wait."},
		{"PUT", "/tika/text", "text/plain", "Herons wait."},
		{"PUT", "/meta", "text/plain", "Herons wait."},
		{"PUT", "/rmeta/text", "text/plain", "Herons wait."},
		{"PUT", "/process", "text/plain", "Herons wait."},
		{"POST", "/docling/v1/convert/file", "multipart/form-data; boundary=b", part},
		{"POST", "/docling/v1/chunk/hierarchical/file", "multipart/form-data; boundary=b", part},
		{"POST", "/docling/v1/convert/source", "application/json", `{"sources":[{"kind":"file","filename":"a.txt","base64_string":"` + encoded + `"}]}`},
	} {
		gone := s.hangsUp(c.method, c.path, c.media, c.body, func() bool { return len(documents("conversions")) > 0 })
		if gone != nil {
			t.Errorf("%s %s: %v", c.method, c.path, gone)
		}
		waitFor(t, "what "+c.path+" converted to be gone", func() bool { return len(documents("conversions")) == 0 })
	}

	s.post("/v1/datasets/papers:pause", nil, nil)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ingest_file","arguments":{"name":"a.txt","dataset":"papers","base64":"` + encoded + `"}}}`
	if err := s.hangsUp("POST", "/mcp", "application/json", call, func() bool { return len(documents("papers")) > 0 }); err != nil {
		t.Error(err)
	}
	s.post("/v1/datasets/papers:resume", nil, nil)
	waitFor(t, "what an assistant ingested", func() bool {
		docs := documents("papers")
		return len(docs) == 1 && docs[0].State == sheaf.DocSucceeded
	})
}

// hangsUp sends a request and hangs up when it has begun. An answer is an error.
func (s *service) hangsUp(method, path, media, body string, begun func() bool) error {
	s.t.Helper()
	ctx, hangUp := context.WithCancel(s.t.Context())
	defer hangUp()
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", media)
	req.Header.Set("Accept", "application/json, text/event-stream")
	answered := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- nil
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil { // it streams, and was cut off
			answered <- nil
			return
		}
		answered <- fmt.Errorf("it was answered: %s %.300s", resp.Status, b)
	}()
	var early error
	waitFor(s.t, method+" "+path+" to begin", func() bool {
		select {
		case early = <-answered:
			return true
		default:
			return begun()
		}
	})
	if early != nil {
		return early
	}
	hangUp()
	return <-answered
}
