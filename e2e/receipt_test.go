package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/internal/keeper"
	"sheaf/taskstore"
)

// shortGrace lets late writers be over in seconds. The lease outlasts the pauses of a
// machine that runs many services at once.
func shortGrace(c *config.Config) {
	c.Executor.Heartbeat, c.Executor.Lease = config.Duration(500*time.Millisecond), config.Duration(3*time.Second)
	c.Webhooks.Hosts = []string{"127.0.0.1:1"}
	c.Keeper.Grace = c.Executor.Lease
}

// collecting looks for garbage all the time.
func collecting(m *command.Main) {
	m.KeeperFunc = func(c *keeper.Config) { c.CollectEvery = 50 * time.Millisecond }
}

// places reads all that a service keeps: each value of each table of the store
// and the index, every object, and the names of files. It answers where any of
// the words is.
func (s *service) places(words ...string) (found []string) {
	s.t.Helper()
	look := func(place string, b []byte) {
		// Answers that are kept for repeated requests hold their body as base64.
		var kept struct {
			Body []byte `json:"body"`
		}
		if json.Unmarshal(b, &kept) == nil {
			b = append(slices.Clone(b), kept.Body...)
		}
		for _, w := range words {
			if bytes.Contains(bytes.ToLower(b), []byte(w)) {
				found = append(found, place)
			}
		}
	}
	for _, file := range []string{"sheaf.db", "index.db"} {
		db, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(s.path(file), " ", "%20")+"?mode=ro")
		if err != nil {
			s.t.Fatal(err)
		}
		for _, table := range column(s.t, db, "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name NOT IN ('words', 'words_data')") {
			rows, err := db.Query(fmt.Sprintf("SELECT * FROM %q", table))
			if err != nil {
				s.t.Fatal(err)
			}
			names, err := rows.Columns()
			if err != nil {
				s.t.Fatal(err)
			}
			for rows.Next() {
				values := make([]any, len(names))
				for i := range values {
					values[i] = new(sql.RawBytes)
				}
				if err := rows.Scan(values...); err != nil {
					s.t.Fatal(err)
				}
				for i, v := range values {
					look(file+" "+table+"."+names[i], *v.(*sql.RawBytes))
				}
			}
			if err := errors.Join(rows.Err(), rows.Close(), db.Ping()); err != nil {
				s.t.Fatal(err)
			}
		}
		_ = db.Close()
	}
	err := filepath.WalkDir(s.cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
		look("a file's name", []byte(d.Name()))
		if err != nil || d.IsDir() || !strings.Contains(path, "blobs") {
			return err
		}
		b, err := os.ReadFile(path)
		look("object "+filepath.Base(path), b)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func column(t *testing.T, db *sql.DB, query string) (out []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *service) completed(id string) (r taskstore.Receipt, raw []byte) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var text json.RawMessage
		s.get("/v1/receipts/"+id, &text)
		if err := json.Unmarshal(text, &r); err != nil {
			s.t.Fatal(err)
		}
		if r.State == taskstore.ReceiptCompleted {
			return r, text
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the receipt stays pending: %s", text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A deletion leaves neither the name of the document nor a word of it, in any
// table, object or index entry, and its receipt says so under a signature.
func TestDeletionLeavesNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t, shortGrace, collecting)
	words := []string{"sesamum", "whisperings", "marginalia"}
	s.post("/v1/datasets/default/webhooks", map[string]any{"url": "https://127.0.0.1:1/hook"}, nil)
	request := func(method, path, key string, body []byte) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/markdown")
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	secret := []byte("# Of whisperings\n\nNobody but us knows of the whisperings in the marginalia.\n\n## More whisperings\n\n" + strings.Repeat("These are marginalia, too. ", 200))
	upload := "/v1/datasets/default/documents?name=sesamum.md&wait=30s"
	resp := request(http.MethodPost, upload, "once", secret)
	var answer api.SubmitAnswer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Documents) != 1 {
		t.Fatalf("upload: %s, %+v, %v", resp.Status, answer, err)
	}
	s.ended(answer.Job.ID)
	id := answer.Documents[0].ID
	_, others := s.send(nil, text("plain.txt", "Everybody may read this."), text("twin.md", string(secret)))
	mustState(t, s.doc(id), sheaf.DocSucceeded)
	var batch api.DeleteAnswer
	s.post("/v1/datasets/default/documents:delete", map[string]any{"filter": map[string]any{"document_ids": []string{others[1].ID}}}, &batch)
	s.completed(batch.ReceiptID)
	var chunks api.List[api.ListedChunk]
	s.get("/v1/datasets/default/documents/"+id+"/chunks", &chunks)
	if err := s.call(t.Context(), http.MethodPatch, "/v1/datasets/default/documents/"+id+"/chunks/"+chunks.Items[0].ID, map[string]any{"text": "Edited whisperings of marginalia."}, nil); err != nil {
		t.Fatal(err)
	}
	if at := s.places(words...); len(at) < 8 {
		t.Fatalf("the document is told of in %v alone, so that the test shows little", at)
	}

	var d taskstore.DeleteReceipt
	if err := s.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+id, nil, &d); err != nil {
		t.Fatal(err)
	}
	for _, at := range s.places(words...) {
		if strings.HasPrefix(at, "sheaf.db") {
			t.Errorf("%s tells of the document when the deletion is answered", at)
		}
	}
	r, raw := s.completed(d.ReceiptID)
	if at := s.places(words...); len(at) > 0 {
		t.Errorf("the document is still told of in %v", at)
	}
	if rows := r.Removed.Rows; rows.Documents != 1 || rows.Tasks == 0 || rows.Events == 0 || rows.Messages == 0 || rows.Answers != 1 || rows.Edits != 1 || r.Removed.Objects < 2 ||
		r.Removed.ObjectBytes < int64(len(secret)) || r.Removed.Chunks == 0 || r.Removed.Vectors != r.Removed.Chunks || !slices.Equal(r.DocumentIDs, []string{id}) {
		t.Errorf("receipt %s", raw)
	}
	if bytes.Contains(raw, []byte("sesamum")) {
		t.Errorf("the receipt names the document: %s", raw)
	}
	if !s.finds("Everybody") {
		t.Error("another document is gone, too")
	}
	// A repetition of the upload is told why it has no answer.
	if resp := request(http.MethodPost, upload, "once", secret); resp.StatusCode != http.StatusGone {
		t.Errorf("the repeated upload answers %s", resp.Status)
	}

	// The signature holds for what was answered and for nothing else.
	verified := func(text []byte) (v api.Verified) {
		s.post("/v1/receipts:verify", map[string]string{"receipt": string(text)}, &v)
		return v
	}
	if v := verified(raw); !v.Valid || v.ID != r.ID || v.KeyID != r.Signature.KeyID {
		t.Errorf("the receipt is %+v", v)
	}
	if v := verified(bytes.Replace(raw, []byte(`"vectors":`), []byte(`"vectors":1`), 1)); v.Valid || !strings.Contains(v.Reason, "changed") {
		t.Errorf("a receipt that was changed is %+v", v)
	}
	file := filepath.Join(t.TempDir(), "receipt.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.cli("receipt", "verify", file); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, bytes.Replace(raw, []byte(`"completed"`), []byte(`"pending"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.cli("receipt", "verify", file); err == nil {
		t.Error("a receipt that was changed passes")
	}
	for _, args := range [][]string{{"receipt", "list"}, {"receipt", "list", "--all-datasets", "--json"}, {"receipt", "show", r.ID}} {
		if err := s.cli(args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// cli runs a command against the service.
func (s *service) cli(args ...string) error {
	m := command.Main{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	if code := m.Execute(context.Background(), append([]string{"--server", s.base}, args...)); code != 0 {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

func TestReceiptsOfADatasetOutliveIt(t *testing.T) {
	s := start(t, shortGrace, collecting)
	var ds sheaf.Dataset
	s.post("/v1/datasets", map[string]any{"name": "sesamum"}, &ds)
	if _, err := s.submitAnswer(t.Context(), "sesamum", []source{text("a.txt", "one"), text("b.txt", "two")}, nil, ""); err != nil {
		t.Fatal(err)
	}
	var d taskstore.DeleteReceipt
	if err := s.call(t.Context(), http.MethodDelete, "/v1/datasets/sesamum", nil, &d); err != nil {
		t.Fatal(err)
	}
	var pending taskstore.Receipt
	s.get("/v1/receipts/"+d.ReceiptID, &pending)
	if pending.State == taskstore.ReceiptPending && pending.Signature == nil {
		t.Error("the pending receipt is not signed")
	}
	s.completed(d.ReceiptID)
	var list api.List[taskstore.Receipt]
	s.get("/v1/datasets/"+ds.ID+"/receipts", &list)
	if len(list.Items) != 1 || list.Items[0].ID != d.ReceiptID || list.Items[0].Kind != taskstore.ReceiptDataset || list.Items[0].Documents != 2 {
		t.Errorf("receipts of the deleted dataset: %+v", list.Items)
	}
	var docs api.List[taskstore.ReceiptDocument]
	s.get("/v1/receipts/"+d.ReceiptID+"/documents?limit=1", &docs)
	if len(docs.Items) != 1 || docs.NextCursor == nil {
		t.Errorf("documents of the receipt: %+v", docs)
	}
	if err := s.call(t.Context(), http.MethodGet, "/v1/datasets/never-was/receipts", nil, nil); err == nil {
		t.Error("a dataset that never was has receipts")
	}
	if at := s.places("sesamum"); len(at) > 0 {
		t.Errorf("the dataset's name is still in %v", at)
	}
}
