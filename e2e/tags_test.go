package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/internal/search"
)

const topics = "content,tags\n" +
	"The gate of the garden does not close and must be repaired,\"Repair, Garden\"\n" +
	"The invoice of the landlord is too high and must be paid,Billing\n" +
	"The kettle in the kitchen boils water for tea,Kitchen\n"

// tagsOf lists the names of each chunk's tags.
func tagsOf(chunks []sheaf.Chunk) [][]string {
	out := make([][]string, len(chunks))
	for i, c := range chunks {
		for _, t := range c.Tags {
			out[i] = append(out[i], t.Name)
		}
	}
	return out
}

// putIn uploads a file under an id into a dataset and waits for its end.
func (s *service) putIn(dataset, id, name, mediaType, body string) sheaf.Document {
	s.t.Helper()
	resp, b := s.request("PUT", "/v1/datasets/"+dataset+"/documents/"+id+"?wait=60s&name="+url.QueryEscape(name), body, "Content-Type", mediaType)
	if resp.StatusCode != 202 {
		s.t.Fatalf("%s: %s", resp.Status, b)
	}
	return decodeAs[api.SubmitAnswer](s.t, b).Documents[0]
}

func (s *service) reparse(dataset string) *sheaf.Job {
	s.t.Helper()
	var again api.BatchAnswer
	s.post("/v1/datasets/"+dataset+"/documents:reparse", map[string]any{"all": true}, &again)
	job := s.ended(again.Job.ID)
	if job.State != sheaf.DocSucceeded {
		s.t.Fatalf("parsing again ended %s", job.State)
	}
	return job
}

func TestChunksGetTheTagsOfTheRowsNearestToThem(t *testing.T) {
	address, embedded := vectorServer(t)
	s := start(t, func(c *config.Config) { c.Embed.Driver, c.Embed.URL, c.Embed.Model = "openai", address, "words" })
	var set, cases sheaf.Dataset
	s.post("/v1/datasets", map[string]any{"name": "topics", "parser_config": map[string]any{"chunk_method": "tag"}}, &set)
	table := sheaf.NewID()
	mustState(t, s.putIn("topics", table, "topics.csv", "text/csv", topics), sheaf.DocSucceeded)
	s.post("/v1/datasets", map[string]any{"name": "cases", "parser_config": map[string]any{"tag_kb_ids": []string{set.ID}, "topn_tags": 2}}, &cases)
	doc := sheaf.NewID()
	body := "# One\n\nMy gate of the garden does not close and must be repaired soon.\n\n# Two\n\nThis invoice of the landlord is too high and must be paid late.\n\n# Three\n\nSomething else altogether, zebras quokkas wombats.\n"
	mustState(t, s.putIn("cases", doc, "cases.md", "text/markdown", body), sheaf.DocSucceeded)
	chunks := func() []sheaf.Chunk {
		var list struct{ Items []sheaf.Chunk }
		s.get("/v1/datasets/cases/documents/"+doc+"/chunks", &list)
		return list.Items
	}
	got := chunks()
	if len(got) != 3 {
		t.Fatalf("%d chunks", len(got))
	}
	names := tagsOf(got)
	if len(names[0]) != 2 || !slices.Equal(slices.Sorted(slices.Values(names[0])), []string{"Garden", "Repair"}) || names[1] == nil || names[1][0] != "Billing" || len(names[1]) > 2 || slices.Contains(names[2], "Repair") && got[2].Tags[0].Weight >= got[0].Tags[0].Weight {
		t.Errorf("tags %v of %+v", names, got)
	}
	for _, c := range got {
		if strings.Contains(c.Text, "Repair") || len(c.Keywords) > 0 {
			t.Errorf("a tag became part of a chunk: %+v", c)
		}
	}
	find := func(filter map[string]any) []string {
		r, err := s.search(t.Context(), "cases", map[string]any{"query": "must be repaired paid gate", "filter": filter})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, h := range r.Hits {
			out = append(out, h.Chunk.HeadingPath[0])
		}
		return out
	}
	if got := find(map[string]any{"tags": []string{"billing"}}); !slices.Contains(got, "Two") || slices.Contains(got, "One") {
		t.Errorf("by tag: %q", got)
	}

	before := embedded()
	if job := s.reparse("cases"); job.Reused.Ranges != 1 || embedded() != before {
		t.Errorf("parsing again by an unchanged tag set: %+v, %d texts embedded", job.Reused, embedded()-before)
	}
	// Another tag set tags anew, and embeds nothing of the document again.
	mustState(t, s.putIn("topics", table, "topics.csv", "text/csv", strings.ReplaceAll(topics, "Billing", "Money")), sheaf.DocSucceeded)
	before = embedded()
	if job := s.reparse("cases"); job.Reused.Ranges != 0 || embedded() != before {
		t.Errorf("parsing again by a changed tag set: %+v, %d texts embedded", job.Reused, embedded()-before)
	}
	if names := tagsOf(chunks()); names[1] == nil || names[1][0] != "Money" {
		t.Errorf("tags after the change: %v", names)
	}
	if got := find(map[string]any{"tags": []string{"money"}}); !slices.Contains(got, "Two") {
		t.Errorf("by the new tag: %q", got)
	}
	if got := find(map[string]any{"tags": []string{"billing"}}); len(got) != 0 {
		t.Errorf("by the old tag: %q", got)
	}
}

// A query is tagged as chunks are, and hits that share its tags rank higher.
func TestHitsThatShareTheTagsOfTheQueryRankHigher(t *testing.T) {
	s := start(t, nil)
	var set sheaf.Dataset
	s.post("/v1/datasets", map[string]any{"name": "topics", "parser_config": map[string]any{"chunk_method": "tag"}}, &set)
	mustState(t, s.putIn("topics", sheaf.NewID(), "topics.csv", "text/csv", topics), sheaf.DocSucceeded)
	s.post("/v1/datasets", map[string]any{"name": "cases", "parser_config": map[string]any{"tag_kb_ids": []string{set.ID}, "topn_tags": 1}}, nil)
	mustState(t, s.putIn("cases", sheaf.NewID(), "a.txt", "text/plain", "The gate of the garden does not close."), sheaf.DocSucceeded)
	mustState(t, s.putIn("cases", sheaf.NewID(), "b.txt", "text/plain", "The invoice of the landlord is too high."), sheaf.DocSucceeded)
	r, err := s.search(t.Context(), "cases", map[string]any{"query": "repair the garden gate"})
	if err != nil || len(r.Hits) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	first, second := r.Hits[0], r.Hits[1]
	if first.Document.Name != "a.txt" || first.Scores.Tags != 1 || second.Scores.Tags != 0 || first.Score <= second.Score || len(r.Warnings) > 0 {
		t.Errorf("%+v\n%+v\n%v", first, second, r.Warnings)
	}
	// A search in all datasets tags the query, too.
	var everywhere search.Response
	s.post("/v1/search", map[string]any{"query": "repair the garden gate"}, &everywhere)
	i := slices.IndexFunc(everywhere.Hits, func(h search.Hit) bool { return h.Document.Name == "a.txt" })
	if i < 0 || everywhere.Hits[i].Scores.Tags != 1 {
		t.Errorf("in all datasets: %+v", everywhere.Hits)
	}
	// With the tag set gone the search goes on without it, and says so.
	if resp, b := s.request("DELETE", "/v1/datasets/topics", ""); resp.StatusCode != 200 {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	r, err = s.search(t.Context(), "cases", map[string]any{"query": "repair the garden gate"})
	if err != nil || len(r.Hits) != 2 || r.Hits[0].Scores.Tags != 0 || !strings.Contains(fmt.Sprint(r.Warnings), "tags_unavailable") {
		t.Errorf("without the tag set: %+v, %v", r, err)
	}
}

func TestTagSetsAreCheckedAtSubmit(t *testing.T) {
	s := start(t, nil)
	var set, plain sheaf.Dataset
	s.post("/v1/datasets", map[string]any{"name": "topics", "parser_config": map[string]any{"chunk_method": "tag"}}, &set)
	s.post("/v1/datasets", map[string]any{"name": "plain"}, &plain)
	for settings, says := range map[string]string{
		`{"tag_kb_ids": ["` + sheaf.NewID() + `"]}`:                           "no dataset with the id",
		`{"tag_kb_ids": ["topics"]}`:                                          "no dataset with the id",
		`{"tag_kb_ids": ["` + plain.ID + `"]}`:                                "is no tag set",
		`{"tag_kb_ids": ["` + set.ID + `"], "topn_tags": 33}`:                 "1 to 32",
		`{"tag_kb_ids": ["` + set.ID + `"], "chunk_method": "tag"}`:           "leave one of the two out",
		`{"tag_kb_ids": [` + strings.Repeat(`"x",`, 8) + `"` + set.ID + `"]}`: "at most 8",
	} {
		for path, body := range map[string]string{
			"/v1/datasets": `{"name": "other", "parser_config": ` + settings + `}`,
			"/v1/datasets/default/documents?name=a.csv&parser_config=" + url.QueryEscape(settings): "a,b\n1,2\n",
		} {
			contentType := "application/json"
			if strings.Contains(path, "documents") {
				contentType = "text/csv"
			}
			resp, b := s.request("POST", path, body, "Content-Type", contentType)
			if resp.StatusCode/100 != 4 || !strings.Contains(string(b), says) {
				t.Errorf("%s %s: %s, want a 4xx that says %q: %s", path, settings, resp.Status, says, b)
			}
		}
	}
	if n := s.blobs("originals/"); n != 0 {
		t.Errorf("%d files of refused uploads are stored", n)
	}
	// An empty tag set is named, and nothing is tagged by chance.
	resp, b := s.request("POST", "/v1/datasets/default/documents?dry_run=true&name=a.txt&parser_config="+url.QueryEscape(`{"tag_kb_ids": ["`+set.ID+`"]}`), "A text.", "Content-Type", "text/plain")
	if resp.StatusCode != 200 || !strings.Contains(string(b), "tag_set_empty") {
		t.Errorf("an empty tag set: %s %s", resp.Status, b)
	}
}
