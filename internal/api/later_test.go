package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// Uploads, re-parses and retries may be asked for later. What is past is now,
// and what is not a time, or too far ahead, is refused before a byte is kept.
func TestWorkMayBeAskedForLater(t *testing.T) {
	k := newKeyedServer(t)
	at := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Second)
	later := func(t time.Time) string { return "not_before=" + url.QueryEscape(t.Format(time.RFC3339)) }
	var a SubmitAnswer
	k.send("POST", "/v1/datasets/files/documents?name=a.txt&"+later(at), "text", 202, &a)
	if !a.Job.NotBefore.Equal(at) || !a.Documents[0].NotBefore.Equal(at) || a.Documents[0].State != sheaf.DocQueued {
		t.Errorf("an upload for %s: job %s, document %+v", at, a.Job.NotBefore, a.Documents[0])
	}
	if p := a.Job.Queue.ETASeconds.P50; p != nil && *p < 3*3600-60 {
		t.Errorf("the job ends in %v s, which is before it begins", *p)
	}
	var b BatchAnswer
	k.send("POST", "/v1/datasets/files/documents:reparse?"+later(at.Add(time.Hour)), `{"all": true}`, 202, &b)
	if !b.Job.NotBefore.Equal(at.Add(time.Hour)) {
		t.Errorf("a re-parse for an hour later: %+v", b.Job)
	}
	k.send("POST", "/v1/datasets/files/documents:cancel", `{"all": true}`, 200, nil)
	if _, _, err := k.store.Fold(t.Context(), 10, 0); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{"/v1/datasets/files/documents:retry": `{"all": true}`, "/v1/jobs/" + b.Job.ID + ":retry": `{}`} {
		var r BatchAnswer
		k.send("POST", path+"?"+later(at), body, 202, &r)
		if r.Job == nil || !r.Job.NotBefore.Equal(at) {
			t.Errorf("%s for later: %+v", path, r.Job)
		}
		k.send("POST", "/v1/datasets/files/documents:cancel", `{"all": true}`, 200, nil)
		if _, _, err := k.store.Fold(t.Context(), 10, 0); err != nil {
			t.Fatal(err)
		}
	}
	var now BatchAnswer
	k.send("POST", "/v1/datasets/files/documents:reparse?"+later(at.Add(-24*time.Hour)), `{"all": true}`, 202, &now)
	if !now.Job.NotBefore.IsZero() {
		t.Errorf("what is past is for %s", now.Job.NotBefore)
	}

	stored := fmt.Sprint(k.originals())
	for _, path := range []string{"/v1/datasets/files/documents?name=b.txt&", "/v1/datasets/files/documents:reparse?", "/v1/datasets/files/documents:retry?", "/v1/jobs/" + b.Job.ID + ":retry?", "/v1/datasets/files/uploads:submit?"} {
		for value, says := range map[string]string{later(at.AddDate(2, 0, 0)): "more than a year", "not_before=tonight": "not_before"} {
			body := map[bool]string{true: `{"ids": ["x"]}`, false: `{"all": true}`}[strings.Contains(path, "submit")]
			if strings.Contains(path, "/jobs/") {
				body = "{}"
			}
			status, _, answer := k.post(path+value, "", "application/json", body)
			if status != 400 || !strings.Contains(string(answer), says) {
				t.Errorf("%s%s: %d %s, want 400 that says %q", path, value, status, answer, says)
			}
		}
	}
	if got := fmt.Sprint(k.originals()); got != stored {
		t.Errorf("refused uploads left %s of %s", got, stored)
	}
}
