package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/internal/telemetry"
)

// traced starts a service whose spans the test can read.
func traced(t *testing.T) (*service, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	return start(t, func(c *config.Config) { c.Trace.Endpoint = "http://127.0.0.1:1" }, func(m *command.Main) {
		m.TracerFunc = func(ctx context.Context, c telemetry.TraceConfig) (*telemetry.Tracer, error) {
			c.Exporter = spansAfterShutdown{spans}
			return telemetry.NewTracer(ctx, c)
		}
	}), spans
}

// spansAfterShutdown can still be read when the tracer is closed.
type spansAfterShutdown struct{ *tracetest.InMemoryExporter }

func (spansAfterShutdown) Shutdown(context.Context) error { return nil }

func attributeOf(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// The way of an upload is one trace, from the caller's span through the queue
// to the index.
func TestOneTraceFromUploadToIndex(t *testing.T) {
	parent := map[string]string{
		"task plan": "submit", "task parse": "submit", "task finalize": "submit",
		"fetch": "task parse", "parse": "task parse", "chunk": "task parse", "embed": "task parse", "artifact": "task parse", "index": "task parse", "verify": "task finalize",
	}
	traceOfUpload(t, "a.pdf", string(report(12, "Herons")), parent, "task parse", "1-12")
}

// A small document is read by its plan.
func TestTraceOfASmallDocument(t *testing.T) {
	parent := map[string]string{"task plan": "submit"}
	for _, stage := range []string{"fetch", "parse", "chunk", "embed", "artifact", "index", "verify"} {
		parent[stage] = "task plan"
	}
	traceOfUpload(t, "a.md", "# Title\n\nSome words about herons.\n", parent, "task plan", "")
}

// traceOfUpload checks the trace of a document: which spans belong to which, and the
// attributes of one of them.
func traceOfUpload(t *testing.T, name, content string, parent map[string]string, of, ofRange string) {
	t.Helper()
	s, exporter := traced(t)
	const callersTrace, callersSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/v1/datasets/default/documents?name="+name+"&wait=50s", strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", "00-"+callersTrace+"-"+callersSpan+"-01")
	req.Header.Set("X-Request-Id", "my-request")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer api.SubmitAnswer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Job == nil || answer.Job.State != sheaf.DocSucceeded {
		t.Fatalf("%s, %v, %+v", resp.Status, err, answer)
	}
	s.stop() // all spans have ended

	byName := map[string]tracetest.SpanStub{}
	byID := map[string]tracetest.SpanStub{}
	for _, sp := range exporter.GetSpans() {
		if sp.SpanContext.TraceID().String() == callersTrace {
			byName[sp.Name] = sp
			byID[sp.SpanContext.SpanID().String()] = sp
		}
	}
	parent["store"], parent["submit"] = "POST /v1/datasets/{ds}/documents", "POST /v1/datasets/{ds}/documents"
	for child, want := range parent {
		sp, ok := byName[child]
		if !ok {
			t.Errorf("there is no span %q in the trace", child)
		} else if got := byID[sp.Parent.SpanID().String()].Name; got != want {
			t.Errorf("span %q belongs to %q, want %q", child, got, want)
		}
	}
	server := byName["POST /v1/datasets/{ds}/documents"]
	if got := server.Parent.SpanID().String(); got != callersSpan {
		t.Errorf("the server's span belongs to %s, want the caller's", got)
	}
	for key, want := range map[string]string{"sheaf.request": "my-request", "sheaf.tenant": "local", "sheaf.job": answer.Job.ID, "http.response.status_code": "202"} {
		if got := attributeOf(server, key); got != want {
			t.Errorf("the server's span has %s=%q, want %q", key, got, want)
		}
	}
	for key, want := range map[string]string{"sheaf.document": answer.Documents[0].ID, "sheaf.job": answer.Job.ID, "sheaf.tenant": "local", "sheaf.epoch": "1", "sheaf.range": ofRange} {
		if got := attributeOf(byName[of], key); got != want {
			t.Errorf("the task's span has %s=%q, want %q", key, got, want)
		}
	}
}

// A request that carries no trace begins one, and an action behind a colon is
// a route of its own.
func TestRequestsBeginTraces(t *testing.T) {
	s, exporter := traced(t)
	if err := s.call(t.Context(), http.MethodPost, "/v1/jobs/00000000000000000000000000000000:cancel", nil, nil); err == nil {
		t.Fatal("a job that does not exist was canceled")
	}
	waitFor(t, "the request's span", func() bool {
		for _, sp := range exporter.GetSpans() {
			if sp.Name == "POST /v1/jobs/{job}:cancel" && attributeOf(sp, "http.response.status_code") == "404" && !sp.Parent.IsValid() {
				return true
			}
		}
		return false
	})
	if resp, err := http.Get(s.base + "/healthz"); err != nil {
		t.Fatal(err)
	} else {
		_ = resp.Body.Close()
	}
	s.stop()
	for _, sp := range exporter.GetSpans() {
		if strings.Contains(sp.Name, "healthz") {
			t.Error("a probe made a span")
		}
	}
}

// safeBuffer is a log that goroutines share.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) lines(t *testing.T) (out []map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range bytes.Lines(s.b.Bytes()) {
		m := map[string]any{}
		if err := json.Unmarshal(l, &m); err != nil {
			t.Fatalf("a line of the log is no JSON: %s", l)
		}
		out = append(out, m)
	}
	return out
}

// Every line about a request or a task says which.
func TestLogLinesSayWhoseTheyAre(t *testing.T) {
	var buf safeBuffer
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	s := startLogging(t, cfg, "debug", &buf)
	job, docs := s.send(nil, text("a.md", "# Title\n\nSome words.\n"))
	s.stop()
	must := func(msg string, keys ...string) {
		found := false
		for _, l := range buf.lines(t) {
			if l["msg"] != msg {
				continue
			}
			found = true
			for _, k := range keys {
				if v, _ := l[k].(string); v == "" {
					t.Errorf("a line %q has no %s: %v", msg, k, l)
				}
			}
			if j, ok := l["job"]; ok && j != job.ID {
				t.Errorf("a line %q names the job %v, want %s", msg, j, job.ID)
			}
			if d, ok := l["document"]; ok && d != docs[0].ID {
				t.Errorf("a line %q names the document %v", msg, d)
			}
		}
		if !found {
			t.Errorf("nothing logged %q", msg)
		}
	}
	must("submitted", "request", "tenant", "job")
	must("request", "request", "tenant")
	must("task ended", "task", "job", "document", "tenant", "kind")
}
