package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/logctx"
)

// lockedBuffer is a log that handlers write and a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) logger() *slog.Logger {
	return slog.New(logctx.Handler(slog.NewJSONHandler(l, nil)))
}

func TestPanicIsLoggedWithItsStackAndItsRequest(t *testing.T) {
	log := &lockedBuffer{}
	s := newTestServer(t, func(c *Config) {
		c.Log = log.logger()
		c.Page = aPage(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/half" {
				_, _ = io.WriteString(w, "half of the ans")
				_ = http.NewResponseController(w).Flush()
			}
			brokenHandler()
		})
	})
	status, b := s.ask("GET", "/whole", "", "X-Request-Id", "the-broken-one")
	p := s.problem("a panic", b)
	if status != 500 || p.Code != "internal" || p.RequestID != "the-broken-one" || strings.Contains(string(b), "nobody expects") {
		t.Errorf("%d %s", status, b)
	}
	var line struct{ Msg, Panic, Stack, Request string }
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil {
		t.Fatalf("%v in %s", err, log)
	}
	if line.Panic != "nobody expects this" || line.Request != "the-broken-one" || !strings.Contains(line.Stack, "brokenHandler") {
		t.Errorf("the log says %+v", line)
	}
	// Half an answer does not pass for a whole one.
	resp, err := http.Get(s.url + "/half")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer ended as a whole one does")
	}
}

func brokenHandler() { panic("nobody expects this") }

// driverError is an error of a package that is not ours.
type driverError = net.AddrError

func TestTextsOfDriversAndPathsStayInTheLog(t *testing.T) {
	log := &lockedBuffer{}
	s := New(Config{Log: log.logger()})
	driver := &driverError{Err: "constraint failed: UNIQUE constraint failed: datasets.name (2067)", Addr: "10.1.2.3"}
	path := &fs.PathError{Op: "write", Path: "/var/lib/sheaf/blobs/a", Err: syscall.ENOSPC}
	for status, errs := range map[int][]error{
		409: {fmt.Errorf("%w: %w", sheaf.ErrConflict, driver), fmt.Errorf("creating a dataset: %w: %w", sheaf.ErrConflict, driver)},
		404: {fmt.Errorf("%w: %w", sheaf.ErrNotFound, path), sheaf.ErrNotFound},
		400: {fmt.Errorf("%w: cannot store: a file is in the way (%w)", sheaf.ErrInvalid, path), sheaf.ErrInvalid},
		507: {fmt.Errorf("%w: cannot store: the disk is full (%w); free some space", sheaf.ErrReadOnly, path), fmt.Errorf("%w: bucket sheaf at 10.1.2.3 is full", sheaf.ErrReadOnly)},
		503: {fmt.Errorf("%w: %w", sheaf.ErrUnavailable, driver), fmt.Errorf("%w: dial 10.1.2.3: %w", sheaf.ErrUnavailable, path)},
		500: {driver, path, errors.New("the file /var/lib/sheaf/x is odd"), errors.Join(path, driver)},
	} {
		for _, err := range errs {
			p := s.problemOf(t.Context(), err)
			if p.Status != status || len(strings.Fields(p.Detail)) < 6 {
				t.Errorf("%v is answered with %d %q, want %d and a sentence", err, p.Status, p.Detail, status)
			}
			for _, secret := range []string{"/var/lib", "UNIQUE", "10.1.2.3", "constraint", "2067"} {
				if strings.Contains(p.Detail, secret) {
					t.Errorf("%v is answered with %q, which shows %s", err, p.Detail, secret)
				}
				if strings.Contains(err.Error(), secret) && !strings.Contains(log.String(), secret) {
					t.Errorf("%v is not in the log", err)
				}
			}
		}
	}
	for err, want := range map[error]string{
		fmt.Errorf("%w: job 0123", sheaf.ErrNotFound):                                                                                         "There is no job 0123",
		fmt.Errorf("%w: the dataset is paused; resume it first", sheaf.ErrConflict):                                                           "The dataset is paused; resume it first",
		fmt.Errorf("%w: %w", sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "The name is not UTF-8; send it as UTF-8")): "The name is not UTF-8; send it as UTF-8",
	} {
		if p := s.problemOf(t.Context(), err); p.Detail != want {
			t.Errorf("%v is answered with %q, want %q", err, p.Detail, want)
		}
	}
}

// fullStore is a blob store on a full disk.
type fullStore struct{ blob.Store }

func (fullStore) Put(_ context.Context, key string, r io.Reader, _ int64) (blob.Info, error) {
	_, _ = io.Copy(io.Discard, r)
	return blob.Info{}, fmt.Errorf("%w: cannot store an object: the disk or the quota is full (%w); free some space or move the data folder",
		sheaf.ErrReadOnly, &fs.PathError{Op: "write", Path: "/var/lib/sheaf/blobs/" + key, Err: syscall.ENOSPC})
}

func TestFullDiskNamesNoFolderOfTheServer(t *testing.T) {
	log := &lockedBuffer{}
	s := newTestServer(t, func(c *Config) {
		c.Log = log.logger()
		c.Blobs = fullStore{c.Blobs}
		c.Ingest.Blobs = c.Blobs
	})
	s.must(nil, "POST", "/v1/datasets", `{"name": "files"}`, "Content-Type", asJSON)
	status, b := s.ask("POST", "/v1/datasets/files/documents?name=a.txt", "text")
	p := s.problem("an upload to a full disk", b)
	if status != http.StatusInsufficientStorage || p.Code != "storage_full" || strings.Contains(string(b), "/var") || !strings.Contains(log.String(), "/var/lib/sheaf/blobs/") {
		t.Errorf("%d %s\nlog: %s", status, b, log)
	}
}

// A name that is taken says so, in a new dataset and in a change of one.
func TestTakenNameSaysSo(t *testing.T) {
	s := newTestServer(t, nil)
	for _, name := range []string{"one", "two"} {
		s.must(nil, "POST", "/v1/datasets", `{"name": "`+name+`"}`, "Content-Type", asJSON)
	}
	for _, try := range [][2]string{{"POST", "/v1/datasets"}, {"PATCH", "/v1/datasets/two"}} {
		status, b := s.ask(try[0], try[1], `{"name": "one"}`, "Content-Type", asJSON)
		if p := s.problem(try[0]+" of a taken name", b); status != 409 || p.Detail != `There is a dataset named "one" already; use that one, or choose another name` {
			t.Errorf("%s %s: %d %s", try[0], try[1], status, b)
		}
	}
}

// An empty list selects nothing on every route that takes one, as its dry run
// says, and "all": true selects everything.
func TestEmptyListSelectsNothing(t *testing.T) {
	s := newTestServer(t, nil)
	ids := s.fillIn()
	ds, hook := "/v1/datasets/files", "/v1/datasets/files/webhooks/"+ids["webhook"]
	before := s.dump()
	for _, c := range []struct{ path, body, want string }{
		{ds + "/documents:delete", `{"filter": {"document_ids": []}}`, `"documents":0`},
		{ds + "/documents:delete", `{"filter": {"state": []}}`, `"documents":0`},
		{ds + "/documents:delete", `{"filter": {"media_type": [], "q": "a"}}`, `"documents":0`},
		{ds + "/documents:delete?dry_run=true", `{"filter": {"document_ids": []}}`, `"documents":0`},
		{ds + "/documents:cancel", `{"filter": {"document_ids": []}}`, `"documents":0`},
		{ds + "/documents:cancel?dry_run=true", `{"filter": {"state": []}}`, `"documents":0`},
		{ds + "/documents:reparse", `{"filter": {"document_ids": []}}`, `"documents":0`},
		{ds + "/documents:reparse?dry_run=true", `{"filter": {"document_ids": []}}`, `"documents":0`},
		{ds + "/documents:retry", `{"filter": {"document_ids": []}}`, `"documents":0`},
		{ds + "/documents:retry", `{"filter": {"document_ids": []}, "codes": ["parse_timeout"]}`, `"documents":0`},
		{ds + "/documents:retry", `{"all": true, "units": []}`, `"documents":0`},
		{ds + "/documents:retry", `{"all": true, "codes": []}`, `"documents":0`},
		{ds + "/documents:retry?dry_run=true", `{"filter": {"state": []}}`, `"documents":0`},
		{"/v1/jobs/" + ids["job"] + ":retry", `{"scope": "failed"}`, `"skipped":1`}, // it is queued still
		{"/v1/dead-letters:retry", `{"ids": []}`, `"count":0`},
		{"/v1/dead-letters:purge", `{"ids": [], "kind": "plan"}`, `"count":0`},
		{"/v1/admin/dead-letters:purge", `{"ids": [], "tenant_id": "local"}`, `"count":0`},
		{hook + ":replay", `{"event_ids": []}`, `"deliveries":0`},
		{hook + ":replay", `{"state": []}`, `"deliveries":0`},
		{"/v1/search", `{"query": "words", "mode": "text", "datasets": []}`, `"hits":[]`},
		{"/v1/search", `{"query": "words", "mode": "text", "filter": {"document_ids": null}}`, `"hits":[]`},
	} {
		status, b := s.ask("POST", c.path, c.body, "Content-Type", asJSON)
		if status/100 != 2 || !strings.Contains(string(b), c.want) {
			t.Errorf("%s %s answers %d %s, want %s", c.path, c.body, status, b, c.want)
		}
		if after := s.dump(); after != before {
			t.Fatalf("%s %s changed something:\n%s", c.path, c.body, difference(before, after))
		}
	}
	for _, c := range []struct{ path, want string }{
		{ds + "/documents:cancel", `"documents":1`}, {ds + "/documents:reparse", `"documents":1`}, {ds + "/documents:delete", `"documents":1`},
	} {
		if status, b := s.ask("POST", c.path, `{"all": true}`, "Content-Type", asJSON); status/100 != 2 || !strings.Contains(string(b), c.want) {
			t.Errorf("%s of all answers %d %s, want %s", c.path, status, b, c.want)
		}
	}
}
