package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// upload sends one file with settings and waits for its end.
func (s *service) upload(name, mediaType, settings, body string) sheaf.Document {
	s.t.Helper()
	resp, b := s.request("POST", "/v1/datasets/default/documents?wait=60s&name="+url.QueryEscape(name)+"&parser_config="+url.QueryEscape(settings), body, "Content-Type", mediaType)
	if resp.StatusCode != 202 {
		s.t.Fatalf("%s: %s", resp.Status, b)
	}
	return decodeAs[api.SubmitAnswer](s.t, b).Documents[0]
}

func (s *service) chunks(documentID string) []sheaf.Chunk {
	s.t.Helper()
	var list struct {
		Items []sheaf.Chunk `json:"items"`
	}
	s.get("/v1/datasets/default/documents/"+documentID+"/chunks?limit=1000", &list)
	return list.Items
}

func TestSettingsThatCannotBeObeyedAreRefusedAtUpload(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Executor.Workers = 1 })
	for settings, says := range map[string]string{
		`{"chunk_method": "magic"}`:                                  "presentation",       // what there is
		`{"chunk_method": "paper"}`:                                  "use one of general", // what takes Markdown
		`{"chunk_methods": "general"}`:                               "children_delimiter", // what keys there are
		`{"chunk_method": "general", "chunk_token_num": 9000}`:       "16 to 8191",         // within what
		`{"chunk_method": "general", "table_context_size": -3}`:      "table_context_size", // which
		`{"chunk_method": "general", "pages": [[3, 1]]}`:             "both ends included", // how
		`{"chunk_method": "picture", "media_type": "text/markdown"}`: "takes images",       // what it takes
	} {
		resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.md&parser_config="+url.QueryEscape(settings), "# A", "Content-Type", "text/markdown")
		if resp.StatusCode/100 != 4 || !strings.Contains(string(b), says) {
			t.Errorf("%s: %s, want a 4xx that says %q: %s", settings, resp.Status, says, b)
		}
	}
	if n := s.blobs("originals/"); n != 0 {
		t.Errorf("%d files of refused uploads are stored", n)
	}
}

// The type of a column is one for the whole document, whatever a task sees.
func TestColumnsAreTypedOncePerDocument(t *testing.T) {
	s := start(t, nil)
	var csv strings.Builder
	csv.WriteString("code,count\n")
	for i := range 60 {
		code := fmt.Sprint(i)
		if i == 59 {
			code = "n59" // in the last of the tasks
		}
		fmt.Fprintf(&csv, "%s,%d\n", code, i)
	}
	d := s.upload("codes.csv", "text/csv", `{"chunk_method": "table", "table_rows": 10}`, csv.String())
	mustState(t, d, sheaf.DocSucceeded)
	chunks := s.chunks(d.ID)
	if len(chunks) != 60 {
		t.Fatalf("%d chunks of 60 rows", len(chunks))
	}
	for i, c := range chunks {
		if _, ok := c.Columns["code"].(string); !ok {
			t.Errorf("row %d: code is %T", i, c.Columns["code"])
		}
		if c.Columns["count"] != float64(i) { // as JSON gives numbers
			t.Errorf("row %d: count is %v", i, c.Columns["count"])
		}
	}
	var tasks struct {
		Items []sheaf.Task `json:"items"`
	}
	s.get("/v1/datasets/default/documents/"+d.ID+"/tasks?limit=100", &tasks)
	if n := len(slices.DeleteFunc(tasks.Items, func(t sheaf.Task) bool { return t.Kind != sheaf.KindParse })); n < 6 {
		t.Errorf("%d tasks: the test shows nothing", n)
	}
}
