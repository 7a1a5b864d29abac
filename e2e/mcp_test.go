package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"image/jpeg"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// withHeader adds a header to every request.
type withHeader struct{ name, value string }

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return http.DefaultTransport.RoundTrip(r)
}

// mcpClient connects the SDK's client, over HTTP or through `sheaf mcp`.
func mcpClient(t *testing.T, transport sdk.Transport, progress func(*sdk.ProgressNotificationParams)) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { progress(r.Params) },
	})
	session, err := c.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func overHTTP(s *service, name, value string) sdk.Transport {
	return &sdk.StreamableClientTransport{Endpoint: s.base + "/mcp", HTTPClient: &http.Client{Transport: withHeader{name, value}}, DisableStandaloneSSE: true}
}

// calls a tool and decodes its answer; the text of a refusal is returned.
func calls(t *testing.T, c *sdk.ClientSession, tool string, args map[string]any, out any) string {
	t.Helper()
	p := &sdk.CallToolParams{Name: tool, Arguments: args}
	p.SetProgressToken("token of " + tool)
	r, err := c.CallTool(t.Context(), p)
	if err != nil {
		return err.Error()
	}
	if r.IsError {
		return r.Content[0].(*sdk.TextContent).Text
	}
	b, _ := json.Marshal(r.StructuredContent)
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatalf("%s: %v in %s", tool, err, b)
	}
	return ""
}

func toolNames(t *testing.T, c *sdk.ClientSession) []string {
	t.Helper()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

var readingTools = []string{"job_status", "list_datasets", "list_documents", "read_pages", "search"}

// An assistant adds a file, finds a passage of it, reads its page and looks at
// the passage framed in the picture, with the SDK's client over HTTP and stdio
// and with the command line of the inspector. A key that may read sees nothing
// that changes anything.
func TestAssistantsUseMCP(t *testing.T) {
	t.Parallel()
	tools := clients(t)
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"mcp"}
	})
	writer, stranger := s.tenant("alpha", "write", sheaf.Quota{}), s.tenant("beta", "write", sheaf.Quota{})
	reader := s.withKey("alpha", "read")
	writer.newDataset("papers", false)
	stranger.newDataset("papers", false)
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}

	progress := make(chan float64, 1000)
	writes := mcpClient(t, overHTTP(s, "Authorization", "Bearer "+writer.key), func(p *sdk.ProgressNotificationParams) {
		if p.ProgressToken == "token of ingest_file" {
			progress <- p.Progress
		}
	})
	if got := toolNames(t, writes); !slices.Equal(got, append([]string{"ingest_file", "ingest_url"}, readingTools...)) {
		t.Errorf("a key that may write sees %v", got)
	}
	var job struct {
		State    string
		Ingested []string
		Progress float64
	}
	if refused := calls(t, writes, "ingest_file", map[string]any{"name": "handbook.pdf", "base64": base64.StdEncoding.EncodeToString(pdf), "dataset": "papers"}, &job); refused != "" || job.State != "succeeded" || len(job.Ingested) != 1 {
		t.Fatalf("ingest_file: %s %+v", refused, job)
	}
	for last := -1.0; last < 1; {
		select {
		case p := <-progress:
			if p <= last {
				t.Errorf("progress %v follows %v", p, last)
			}
			last = p
		case <-time.After(time.Minute):
			t.Fatal("no notification said that the job has ended")
		}
	}

	stdio := exec.Command(os.Args[0], "mcp", "--server", s.base)
	stdio.Env = append(os.Environ(), mainVar+"=1", "SHEAF_KEY="+reader.key)
	for name, c := range map[string]*sdk.ClientSession{
		"HTTP":  mcpClient(t, overHTTP(s, "X-Api-Key", reader.key), func(*sdk.ProgressNotificationParams) {}),
		"stdio": mcpClient(t, &sdk.CommandTransport{Command: stdio}, func(*sdk.ProgressNotificationParams) {}),
	} {
		if got := toolNames(t, c); !slices.Equal(got, readingTools) {
			t.Errorf("%s: a key that may read sees %v", name, got)
		}
		if refused := calls(t, c, "ingest_file", map[string]any{"name": "a.txt", "base64": "YQ=="}, nil); !strings.Contains(refused, "ingest_file") {
			t.Errorf("%s: a key that may read ingests: %q", name, refused)
		}
		readsThePassage(t, name, c, job.Ingested[0])
	}

	other := mcpClient(t, overHTTP(s, "Authorization", "Bearer "+stranger.key), func(*sdk.ProgressNotificationParams) {})
	for tool, args := range map[string]map[string]any{
		"read_pages":     {"document": job.Ingested[0], "from": 1, "to": 1},
		"job_status":     {"job": "0123456789abcdef0123456789abcdef"},
		"list_documents": {"dataset": "nowhere"},
		"search":         {"query": "x", "limit": 10000},
		"ingest_url":     {"url": "http://169.254.169.254/latest"},
		"ingest_file":    {"name": "a.txt", "base64": "%%%"},
	} {
		if refused := calls(t, other, tool, args, nil); refused == "" {
			t.Errorf("%s %v is not refused", tool, args)
		}
	}
	if refused := calls(t, other, "search", map[string]any{"query": "x", "speed": "fast"}, nil); !strings.Contains(refused, "speed") {
		t.Errorf("an option that nobody knows: %q", refused)
	}
	var found struct{ Passages []any }
	if refused := calls(t, other, "search", map[string]any{"query": "page ledger"}, &found); refused != "" || len(found.Passages) != 0 {
		t.Errorf("another tenant finds %d passages %s", len(found.Passages), refused)
	}
	for _, uri := range []string{"sheaf://documents/" + job.Ingested[0] + "/markdown", "sheaf://documents/" + job.Ingested[0] + "/pages/1", "sheaf://elsewhere"} {
		if _, err := other.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("another tenant reads %s", uri)
		}
	}

	for key, want := range map[string]int{"": 401, "wrong": 401} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("the key %q answers %s", key, resp.Status)
		}
	}

	inspector := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join(tools, "node_modules", "@modelcontextprotocol", "inspector", "cli", "build", "cli.js"), "--cli", s.base + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + reader.key}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if out := inspector("--method", "tools/call", "--tool-name", "search", "--tool-arg", "query=what is the page ledger", "--tool-arg", "dataset=papers"); !strings.Contains(out, job.Ingested[0]) || !strings.Contains(out, "structuredContent") {
		t.Errorf("the inspector finds %s", out)
	}
	if out := inspector("--method", "resources/templates/list"); !strings.Contains(out, "sheaf://documents/{document}/markdown") {
		t.Errorf("the inspector lists %s", out)
	}
}

// readsThePassage goes from a question to the picture of its answer.
func readsThePassage(t *testing.T, name string, c *sdk.ClientSession, document string) {
	t.Helper()
	var found struct {
		Passages []struct {
			Text, Document, PageImage string
			Image                     string `json:"page_image"`
			Boxes                     []sheaf.Box
			Pages                     []int
		}
	}
	if refused := calls(t, c, "search", map[string]any{"query": "what is the page ledger", "dataset": "papers", "limit": 3, "filters": map[string]any{"media_types": []string{"application/pdf"}}}, &found); refused != "" || len(found.Passages) == 0 {
		t.Fatalf("%s: search: %s %+v", name, refused, found)
	}
	hit := found.Passages[0]
	if hit.Document != document || hit.Image == "" || len(hit.Boxes) == 0 {
		t.Fatalf("%s: search finds %+v", name, hit)
	}
	var read struct {
		Markdown string
		Pages    int
	}
	if refused := calls(t, c, "read_pages", map[string]any{"document": document, "from": hit.Pages[0], "to": hit.Pages[0]}, &read); refused != "" || !strings.Contains(read.Markdown, "# ") || read.Pages < 2 {
		t.Errorf("%s: read_pages: %s %+v", name, refused, read)
	}
	for _, wrong := range [][2]int{{0, 1}, {2, 1}, {1, 10_000}, {9_999, 10_000}} {
		if refused := calls(t, c, "read_pages", map[string]any{"document": document, "from": wrong[0], "to": wrong[1]}, nil); refused == "" {
			t.Errorf("%s: pages %v are read", name, wrong)
		}
	}
	picture, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: hit.Image})
	if err != nil {
		t.Fatalf("%s: %s: %v", name, hit.Image, err)
	}
	img, err := jpeg.Decode(bytes.NewReader(picture.Contents[0].Blob))
	if err != nil {
		t.Fatal(err)
	}
	b := hit.Boxes[0]
	const scale = 96.0 / 72
	red := 0
	for y := int(b.Y0*scale) - 6; y < int(b.Y0*scale); y++ {
		if r, g, _, _ := img.At(int((b.X0+b.X1)/2*scale), y).RGBA(); r > g+0x4000 {
			red++
		}
	}
	if red == 0 {
		t.Errorf("%s: there is no frame above %+v", name, b)
	}
	text, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sheaf://documents/" + document + "/markdown"})
	if err != nil || !strings.Contains(text.Contents[0].Text, "# Concepts") {
		t.Errorf("%s: the document as Markdown: %v %.200v", name, err, text)
	}
	for _, uri := range []string{"sheaf://documents/" + document + "/pages/9999", "sheaf://documents/" + document + "/pages/1?boxes=1,2,3", "sheaf://documents/" + document + "/pages/x"} {
		if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s: %s is read", name, uri)
		}
	}
}
