package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestKilledInsideARequest kills the API process that is at work on a keyed
// upload, once before it has all bytes and once after the commit, and sends
// the same again: one document each, within the lease of the key.
func TestKilledInsideARequest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	ctx, tr := begin(t, config{seed: 1}, shortTimes...)
	// A busy machine may take long to store and parse: that the repetition is
	// answered once is at stake here, not how soon.
	tr.l.timeout, tr.l.patience = 90*time.Second, 2*time.Minute
	t.Cleanup(func() {
		if t.Failed() {
			tr.e.logTransactions(t)
		}
	})
	api := tr.f.of("serve")[0]
	path := "/v1/datasets/" + dataset + "/documents?parser_config=%7B%22media_type%22%3A%22" + "application%2Fx-scan" + "%22%7D&name="

	for _, c := range []struct {
		name     string
		sent     int    // bytes of the body until the kill
		query    string // of the request
		underway string // what is in the database when the process is killed
	}{
		{"before-the-bytes", 20, "", "SELECT COUNT(*) FROM idempotency WHERE k=? AND answer=''"},
		// It waits for the job, whose pages are slow.
		{"after-the-commit", -1, "&wait=60s", "SELECT COUNT(*) FROM documents WHERE name=?"},
	} {
		body := bytes.Repeat([]byte("SLOW a page of text.\n"), 40)
		if c.sent < 0 {
			c.sent = len(body)
		}
		pr, pw := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.url+path+c.name+c.query, pr)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = int64(len(body))
		req.Header.Set("Authorization", "Bearer "+tr.l.keys[tenants[0]])
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Idempotency-Key", c.name)
		first := make(chan error, 1)
		go func() {
			resp, err := tr.l.http.Do(req)
			if err == nil {
				_ = resp.Body.Close()
				err = fmt.Errorf("the killed process answered %s", resp.Status)
			} else {
				err = nil
			}
			first <- err
		}()
		if _, err := pw.Write(body[:c.sent]); err != nil {
			t.Fatal(err)
		}
		if err := until(ctx, 60*time.Second, "a request at work", func() error {
			var n int
			if err := tr.e.db.QueryRowContext(ctx, c.underway, c.name).Scan(&n); err != nil || n != 1 {
				return fmt.Errorf("%d rows, %v", n, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		_, done := api.signal(syscall.SIGKILL)
		<-done
		killed := time.Now()
		_ = pw.CloseWithError(io.ErrClosedPipe)
		if err := <-first; err != nil {
			t.Fatal(err)
		}

		var a answer
		if err := tr.l.call(ctx, tenants[0], http.MethodPost, path+c.name+c.query, "application/octet-stream", c.name, body, &a); err != nil {
			t.Fatalf("%s: the repetition: %v", c.name, err)
		}
		took := time.Since(killed)
		t.Logf("%s: answered %.1f s after the kill", c.name, took.Seconds())
		var documents, jobs, generations int
		if err := tr.e.db.QueryRowContext(ctx, `SELECT COUNT(*), COUNT(DISTINCT job_id), MAX(gen) FROM documents WHERE name=?`, c.name).Scan(&documents, &jobs, &generations); err != nil {
			t.Fatal(err)
		}
		if documents != 1 || jobs != 1 || generations != 1 || len(a.Documents) != 1 {
			t.Errorf("%s: %d documents of %d jobs at generation %d, %d in the answer; want one of each", c.name, documents, jobs, generations, len(a.Documents))
		}
		var again answer
		if err := tr.l.call(ctx, tenants[0], http.MethodPost, path+c.name+c.query, "application/octet-stream", c.name, body, &again); err != nil || again.Job.ID != a.Job.ID {
			t.Errorf("%s: a third try was answered with job %s (%v), want %s", c.name, again.Job.ID, err, a.Job.ID)
		}
	}
}
