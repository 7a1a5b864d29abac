package api

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/doctor"
	"sheaf/internal/index/embedded"
	"sheaf/internal/indexset"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/internal/search"
	"sheaf/parser"
	"sheaf/parser/text"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// testServer is a server on an empty SQLite store and a folder, with nobody
// who runs tasks, so that what it stores stays as the test left it.
type testServer struct {
	t     *testing.T
	url   string
	api   *Server
	store *sqlstore.Store
	blobs blob.Store
	file  string // of the database
}

// newTestServer starts a server; change may alter its parts before.
// untouched is an index that no request of a test may change.
type untouched struct{ t *testing.T }

func (untouched) Status(context.Context) (*indexset.Status, error) { return &indexset.Status{}, nil }

func (u untouched) Move(_ context.Context, _ indexset.Action, _ string, _ int, _ bool) (*indexset.Status, error) {
	u.t.Error("a refused request reached the index")
	return &indexset.Status{}, nil
}

func (u untouched) Act(_ context.Context, a indexset.Action, _, _ bool) (*indexset.Status, *indexset.Estimate, error) {
	u.t.Errorf("the index was told to %s", a)
	return &indexset.Status{}, nil, nil
}

func newTestServer(t *testing.T, change func(*Config)) *testServer {
	t.Helper()
	ctx := t.Context()
	at := storetest.Migrated(t, "sqlite")
	store, err := sqlstore.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: sheaf.LocalTenant, Name: "Local"}); err != nil {
		t.Fatal(err)
	}
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	index, err := embedded.Open(ctx, embedded.Config{Path: filepath.Join(t.TempDir(), "index.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = index.Close() })
	log := slog.New(slog.DiscardHandler)
	q := sqlqueue.New(store, sqlqueue.Config{})
	cfg := Config{
		Catalog: store, Blobs: blobs, Queue: q, Log: log, WebhookHosts: []string{"hooks.invalid"},
		Ingest:  &ingest.Service{Catalog: store, Blobs: blobs, Queue: q, Formats: parser.NewRegistry(text.New()), Log: log},
		Search:  &search.Searcher{Index: index, Visibility: store},
		Indexes: untouched{t},
		Doctor:  func(context.Context, bool) (*doctor.Report, error) { return &doctor.Report{}, nil },
		Page:    aPage(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "the page") }),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "metrics") }),
	}
	if change != nil {
		change(&cfg)
	}
	s := New(cfg)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return &testServer{t, srv.URL, s, store, blobs, at.DSN}
}

// ask sends a request as it is written, and answers its status and body.
// headers are pairs of a name and a value.
func (s *testServer) ask(method, path, body string, headers ...string) (int, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // a redirect is an answer too
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, b
}

// must is ask for what has to work; out, if not nil, gets the answer.
func (s *testServer) must(out any, method, path, body string, headers ...string) {
	s.t.Helper()
	status, b := s.ask(method, path, body, headers...)
	if status >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, status, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, b)
		}
	}
}

// problem reads an error answer, which has to have all its parts.
func (s *testServer) problem(what string, b []byte) Problem {
	s.t.Helper()
	var p Problem
	if err := json.Unmarshal(b, &p); err != nil {
		s.t.Errorf("%s answers no problem: %s", what, b)
		return p
	}
	if p.Code == "" || p.RequestID == "" || p.Title == "" || len(strings.Fields(p.Detail)) < 4 {
		s.t.Errorf("%s lacks a code, a request id or a sentence: %s", what, b)
	}
	if !bytes.HasPrefix([]byte(p.Detail), []byte(capital(p.Detail))) {
		s.t.Errorf("%s: a sentence begins with a small letter: %s", what, p.Detail)
	}
	return p
}

// dump is all that the tables of the database hold.
func (s *testServer) dump() string {
	s.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(s.file)+"?mode=ro")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	read := func(query string) (lines []string) {
		rows, err := db.QueryContext(s.t.Context(), query)
		if err != nil {
			s.t.Fatal(err)
		}
		defer rows.Close()
		cols, _ := rows.Columns()
		vals := make([]any, len(cols))
		for i := range vals {
			vals[i] = new(any)
		}
		for rows.Next() {
			if err := rows.Scan(vals...); err != nil {
				s.t.Fatal(err)
			}
			line := ""
			for i, v := range vals {
				line += fmt.Sprintf(" %s=%v", cols[i], *v.(*any))
			}
			lines = append(lines, line)
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
		return lines
	}
	var out strings.Builder
	for _, line := range read("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name") {
		table := strings.TrimPrefix(line, " name=")
		for _, row := range read("SELECT * FROM " + table + " ORDER BY 1, 2") {
			fmt.Fprintf(&out, "%s:%s\n", table, row)
		}
	}
	return out.String()
}

// difference lists the lines that only one of two dumps has.
func difference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// blobKeys lists what the blob store holds.
func (s *testServer) blobKeys() (keys []string) {
	s.t.Helper()
	if err := s.blobs.List(s.t.Context(), "", func(i blob.Info) bool {
		keys = append(keys, i.Key)
		return true
	}); err != nil {
		s.t.Fatal(err)
	}
	return keys
}

const asJSON = "application/json"

// things are ids that a test server holds, by the names of path parameters.
type things map[string]string

// fillIn makes one of everything that an address may name.
func (s *testServer) fillIn(headers ...string) things {
	s.t.Helper()
	with := func(more ...string) []string { return append(more, headers...) }
	ids := things{"n": "1", "picture": "a.png", "range": "none", "tenant": sheaf.LocalTenant}
	var ds sheaf.Dataset
	s.must(&ds, "POST", "/v1/datasets", `{"name": "files"}`, with("Content-Type", asJSON)...)
	ids["ds"] = ds.ID
	var a SubmitAnswer
	s.must(&a, "POST", "/v1/datasets/files/documents?name=a.txt", "Some words.", with("Content-Type", "text/plain")...)
	ids["doc"], ids["job"] = a.Documents[0].ID, a.Job.ID
	var tasks List[Task]
	s.must(&tasks, "GET", "/v1/datasets/files/documents/"+ids["doc"]+"/tasks", "", headers...)
	ids["task"] = tasks.Items[0].ID
	var hook taskstore.Webhook
	s.must(&hook, "POST", "/v1/datasets/files/webhooks", `{"url": "https://hooks.invalid/a"}`, with("Content-Type", asJSON)...)
	ids["webhook"] = hook.ID
	var up UploadStatus
	s.must(&up, "POST", "/v1/datasets/files/uploads", "", with("Tus-Resumable", tusVersion, "Upload-Length", "5", "Upload-Metadata", "filename YS50eHQ=,hold dHJ1ZQ==")...)
	ids["upload"] = up.ID
	ids["key"] = sheaf.NewID()
	if err := s.store.CreateKey(s.t.Context(), sheaf.Key{ID: ids["key"], TenantID: sheaf.LocalTenant, Name: "ci", Scopes: []string{"write"}}, HashKey(ids["key"])); err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// fill puts ids into a path of the description.
func (ids things) fill(path string) string {
	for name, id := range ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	return path
}

// aPage stands for what people watch, at every address.
type aPage func(http.ResponseWriter, *http.Request)

func (f aPage) ServeHTTP(w http.ResponseWriter, r *http.Request) { f(w, r) }
func (aPage) Has(string) bool                                    { return true }
