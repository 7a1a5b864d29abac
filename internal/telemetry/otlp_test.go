package telemetry

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector that is busy once gets the batch again, whole, with the headers.
func TestSpansReachTheCollector(t *testing.T) {
	var calls atomic.Int32
	got := make(chan *tracepb.TracesData, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(r.Body)
		data := new(tracepb.TracesData)
		if err := errors.Join(err, proto.Unmarshal(body, data)); err != nil {
			t.Error(err)
		}
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Api-Key") != "k" {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
		got <- data
	}))
	defer s.Close()
	tracer, err := NewTracer(t.Context(), TraceConfig{Endpoint: s.URL, Headers: "Api-Key=k", Service: "sheaf-executor"})
	if err != nil {
		t.Fatal(err)
	}
	_, end := tracer.Stage(t.Context(), "parse")
	end(errors.New("no pages"))
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	spans := (<-got).ResourceSpans
	if len(spans) != 1 || len(spans[0].ScopeSpans) != 1 || len(spans[0].ScopeSpans[0].Spans) != 1 {
		t.Fatalf("%v", spans)
	}
	if sp := spans[0].ScopeSpans[0].Spans[0]; sp.Name != "parse" || sp.Status.Message != "no pages" {
		t.Errorf("%v", sp)
	}
	if service := spans[0].Resource.Attributes[0].Value.GetStringValue(); service != "sheaf-executor" {
		t.Errorf("service %q", service)
	}
}

// What the collector refuses is said once, with its words, and not repeated.
func TestRefusedSpansAreNotRepeated(t *testing.T) {
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		http.Error(w, "wrong key", http.StatusUnauthorized)
	}))
	defer s.Close()
	c := &otlpClient{url: s.URL, http: s.Client()}
	err := c.UploadTraces(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "wrong key") || calls.Load() != 1 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}
