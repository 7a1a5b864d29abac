package e2e

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// A data folder of each release is served by this version: what was in it is
// found, what waited is done, what broke off goes on.
func TestReleasedDataFoldersOpen(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("testdata/released/*.tar.gz")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no data folder of a release: %v", err)
	}
	for _, folder := range folders {
		t.Run(strings.TrimSuffix(filepath.Base(folder), ".tar.gz"), func(t *testing.T) {
			cfg := config.Default()
			shortGrace(&cfg)
			cfg.DataDir = filepath.Join(t.TempDir(), "data")
			unpack(t, folder, cfg.DataDir)
			releasedJustNow(t, filepath.Join(cfg.DataDir, "sheaf.db"))
			s := startWith(t, cfg, collecting)
			goesOn(t, s)
			if open, shown := readable(t, cfg.DataDir, releasedSecret, "kept-password"); len(open) > 0 || len(shown) > 0 {
				t.Errorf("open to others: %v\nreadable: %v", open, shown)
			}
			s.stop()
			if again := startWith(t, cfg, collecting); !again.finds("All about curlews") || again.finds("Herons wait") {
				t.Error("another start serves something else")
			}
		})
	}
}

// timeColumn matches the columns of the store that hold times.
var timeColumn = regexp.MustCompile(`^(at|place|.*_at|.*_until|until_at|not_before)$`)

// releasedJustNow moves all times in a released store so that it was written just now,
// whatever the clock says: nothing has expired, and nothing lies ahead.
func releasedJustNow(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(q string, args ...any) {
		t.Helper()
		if _, err := db.Exec(q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	var kept int64
	if err := db.QueryRow("SELECT MAX(at) FROM events").Scan(&kept); err != nil {
		t.Fatal(err)
	}
	by, moved := time.Now().UnixMilli()-kept, 0
	for _, table := range column(t, db, "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%'") {
		for _, name := range column(t, db, "SELECT name FROM pragma_table_info('"+table+"') WHERE type LIKE '%INT%'") {
			if timeColumn.MatchString(name) {
				// 0 is never, and the largest number is for ever.
				exec("UPDATE "+table+" SET "+name+"="+name+"+? WHERE "+name+">0 AND "+name+"<1000000000000000", by)
				moved++
			}
		}
	}
	exec("UPDATE queue_meta SET v=CAST(CAST(v AS INTEGER)+? AS TEXT) WHERE k='clock'", by)
	if moved < 20 {
		t.Fatalf("only %d columns hold times", moved)
	}
}

func goesOn(t *testing.T, s *service) {
	t.Helper()
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents", &list)
	docs := map[string]sheaf.Document{}
	for _, d := range list.Items {
		docs[d.Name] = d
	}
	for name, want := range map[string]sheaf.DocumentState{"herons.md": sheaf.DocSucceeded, "report.pdf": sheaf.DocSucceeded, "broken.pdf": sheaf.DocFailed, "waits.md": sheaf.DocSucceeded} {
		s.ended(docs[name].JobID)
		mustState(t, s.doc(docs[name].ID), want)
	}
	for _, words := range []string{"Herons wait in shallow water", "Moisture", "Kingfishers wait for the next release"} {
		if !s.finds(words) {
			t.Errorf("%q is not found", words)
		}
	}
	near, err := s.search(t.Context(), defaultDataset, map[string]any{"query": "birds that stand in a lake", "mode": "vector"})
	if err != nil || !slices.ContainsFunc(near.Hits, func(h search.Hit) bool { return h.Document.Name == "herons.md" }) {
		t.Errorf("by its vector the document is not found: %v", err)
	}
	contracts, err := s.store.Dataset(t.Context(), sheaf.LocalTenant, "contracts")
	if err != nil || contracts.ParseConfig.Password.V != "kept-password" {
		t.Errorf("the password of the dataset is %q: %v", contracts.ParseConfig.Password.V, err)
	}
	var hooks api.List[taskstore.Webhook]
	s.get("/v1/datasets/default/webhooks", &hooks)
	if len(hooks.Items) != 1 {
		t.Fatalf("webhooks: %+v", hooks.Items)
	}
	if w, err := s.store.Webhook(t.Context(), sheaf.LocalTenant, hooks.Items[0].DatasetID, hooks.Items[0].ID); err != nil || w.Secret != releasedSecret {
		t.Errorf("the webhook's secret is %q: %v", w.Secret, err)
	}

	// The answer to a request is repeated across the upgrade.
	send := func(body string) (*http.Response, []byte) {
		return s.request(http.MethodPost, "/v1/datasets/default/documents?name=herons.md&wait=30s", body, "Content-Type", "text/markdown", "Idempotency-Key", "kept-upload")
	}
	resp, b := send(releasedHerons)
	if a := decodeAs[api.SubmitAnswer](t, b); resp.Header.Get("Idempotent-Replayed") != "true" || len(a.Documents) != 1 || a.Documents[0].ID != docs["herons.md"].ID {
		t.Errorf("the repeated upload answers %s: %s", resp.Status, b)
	}
	if resp, b := send(releasedHerons + "More."); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("the key with another body: %s: %s", resp.Status, b)
	}

	// The upload that broke off goes on where it was.
	var uploads struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	s.get("/v1/datasets/default/uploads", &uploads)
	if len(uploads.Items) != 1 {
		t.Fatalf("uploads: %+v", uploads.Items)
	}
	path := "/v1/datasets/default/uploads/" + uploads.Items[0].ID
	if at := s.offset(path); at != releasedFirst {
		t.Fatalf("%d bytes of the upload are there", at)
	}
	if resp, b := s.patch(path, releasedFirst, []byte(releasedLate[releasedFirst:])); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	s.ended(s.submitUploads("", path).Job.ID)
	s.send(nil, text("new.md", "# Curlews\n\nAll about curlews.\n"))
	if !s.finds(releasedLate) || !s.finds("All about curlews") {
		t.Error("what came after the upgrade is not found")
	}

	// What was parsed before is not parsed again, as long as its parser is the same.
	job := s.again("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{docs["herons.md"].ID, docs["report.pdf"].ID}}})
	sameParsers := true
	for _, name := range []string{"herons.md", "report.pdf"} {
		after := s.doc(docs[name].ID)
		if mustState(t, after, sheaf.DocSucceeded); after.LiveGeneration != 2 || after.Chunks != docs[name].Chunks {
			t.Errorf("parsed again, %s has generation %d and %d chunks of %d", name, after.LiveGeneration, after.Chunks, docs[name].Chunks)
		}
		sameParsers = sameParsers && after.Parser == docs[name].Parser
	}
	if sameParsers && (job.Reused.Chunks != docs["herons.md"].Chunks+docs["report.pdf"].Chunks || job.Usage.EmbeddedTokens != 0) {
		t.Errorf("parsed again: reused %+v, usage %+v", job.Reused, job.Usage)
	}

	var deleted taskstore.DeleteReceipt
	if err := s.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+docs["herons.md"].ID, nil, &deleted); err != nil {
		t.Fatal(err)
	}
	if r, raw := s.completed(deleted.ReceiptID); r.Removed.Chunks == 0 || r.Removed.Objects < 2 || r.Removed.Rows.Answers != 1 || s.finds("Herons wait") {
		t.Errorf("receipt %s", raw)
	}
	if at := s.places("herons"); len(at) > 0 {
		t.Errorf("the deleted document is still told of in %v", at)
	}
	if !s.finds("Moisture") {
		t.Error("another document is gone, too")
	}
}
