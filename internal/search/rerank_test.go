package search_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/rerank"
	"sheaf/internal/search"
	"sheaf/internal/worker"
)

// newReranker asks a server of TEI's protocol whose scores are those of score.
func newReranker(t *testing.T, candidates int, handle http.HandlerFunc) *rerank.Client {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	log := slog.New(slog.DiscardHandler)
	c, err := rerank.Open(rerank.Config{URL: srv.URL + "/rerank", Budget: time.Minute, Candidates: candidates, Breaker: worker.NewBreaker("rerank server", log, nil), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// likes scores a text with the first of the words that it has.
func likes(words map[string]float64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Texts []string }
		_ = json.NewDecoder(r.Body).Decode(&ask)
		var answer []string
		for i, text := range ask.Texts {
			score := 0.0
			for word, s := range words {
				if strings.Contains(text, word) {
					score = s
				}
			}
			answer = append(answer, fmt.Sprintf(`{"index":%d,"score":%g}`, i, score))
		}
		_, _ = fmt.Fprintf(w, "[%s]", strings.Join(answer, ","))
	}
}

func TestServerRanksTheBestHitsAnew(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r,
		chunk("three", "The valve, the valve: a valve closes the pipe."), chunk("two", "A valve of the pump, and its spring."),
		chunk("one", "Somewhere in this long sentence about the weather of last week stands a valve, and nothing else of interest.", func(e *entryOf) {
			e.Name, e.Chunk.HeadingPath = "Quokka.pdf", []string{"Wombat"}
		}))
	query := search.Request{Query: "valve", Mode: search.Text, Explain: true}
	plain := ask(t, s, query)
	if !slices.Equal(documents(plain), []string{"three", "two", "one"}) || plain.Rerank != nil {
		t.Fatalf("%v %+v", documents(plain), plain.Rerank)
	}
	check := func(name string, answer *search.Response, outcome rerank.Outcome, candidates int, want ...string) {
		t.Helper()
		if !slices.Equal(documents(answer), want) || answer.Rerank == nil || answer.Rerank.Outcome != outcome || answer.Rerank.Candidates != candidates || answer.Rerank.TookMS < 0 {
			t.Errorf("%s: %v %+v", name, documents(answer), answer.Rerank)
		}
		for i, h := range answer.Hits {
			sum := 0.0
			for _, p := range h.Explanation {
				sum += p.Score
			}
			if math.Abs(sum-h.Score) > 1e-9 || i > 0 && h.Score > answer.Hits[i-1].Score {
				t.Errorf("%s: score %g of %s, its parts %+v", name, h.Score, h.Document.ID, h.Explanation)
			}
		}
	}
	s.Reranker = newReranker(t, 50, likes(map[string]float64{"Quokka.pdf\nWombat\nSomewhere": .9, "spring": .6, "closes": .2}))
	answer := ask(t, s, query)
	check("all", answer, rerank.Used, 3, "one", "two", "three")
	if h := answer.Hits[0]; h.Score != .9 || len(h.Explanation) != 1 || h.Explanation[0].Feature != "rerank" || h.Scores.Text == 0 {
		t.Errorf("%+v", h)
	}
	for _, mode := range []search.Mode{search.Hybrid, search.Vector} {
		check(string(mode), ask(t, s, search.Request{Query: "valve", Mode: mode, Explain: true}), rerank.Used, 3, "one", "two", "three")
	}
	limited := query
	limited.Limit = 1
	check("limit", ask(t, s, limited), rerank.Used, 3, "one") // what the limit leaves out is ranked too
	least := .5
	cut := query
	cut.Threshold = &least
	check("threshold", ask(t, s, cut), rerank.Used, 3, "one", "two")

	s.Reranker = newReranker(t, 2, likes(map[string]float64{"spring": .3, "closes": .1}))
	answer = ask(t, s, query)
	check("the best two", answer, rerank.Used, 2, "two", "three", "one")
	if h := answer.Hits[2]; h.Score > .1 {
		t.Errorf("a hit that was not sent scores %g", h.Score)
	}
	if answer := ask(t, s, search.Request{Query: `"no such phrase"`}); len(answer.Hits) != 0 || answer.Rerank != nil {
		t.Errorf("%v %+v", documents(answer), answer.Rerank)
	}

	asked := atomic.Int64{}
	s.Reranker = newReranker(t, 50, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "out of memory", http.StatusInternalServerError)
	})
	for n := range 5 {
		answer := ask(t, s, query)
		outcome, reason := rerank.Failed, "rerank_unavailable"
		if n >= 3 {
			outcome, reason = rerank.TurnedBack, ""
		}
		check("a server that fails", answer, outcome, 3, "three", "two", "one")
		if answer.Rerank.Reason != reason || answer.Hits[0].Score != plain.Hits[0].Score || len(answer.Warnings) != 0 {
			t.Errorf("search %d: %+v, score %g, warnings %v", n, answer.Rerank, answer.Hits[0].Score, answer.Warnings)
		}
	}
	if asked.Load() != 3 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
}

// tagger finds the same tags for every query.
type tagger []sheaf.Tag

func (t tagger) Tags(context.Context, string, []string, []float32, int) ([]sheaf.Tag, error) {
	return t, nil
}

func TestTagsCountAfterTheServer(t *testing.T) {
	s, r := newSearcher(t)
	add(t, s, r, chunk("plain", "A valve of the pump."), chunk("tagged", "A valve of the boiler.", func(e *entryOf) {
		e.Chunk.Tags = []sheaf.Tag{{Name: "repair", Weight: 1}}
	}))
	s.Tags = tagger{{Name: "repair", Weight: 1}}
	s.Reranker = newReranker(t, 50, likes(map[string]float64{"pump": .6, "boiler": .5}))
	answer := ask(t, s, search.Request{Query: "valve", TagSets: []string{"set"}, TopNTags: 1})
	if !slices.Equal(documents(answer), []string{"tagged", "plain"}) || math.Abs(answer.Hits[0].Score-(.8*.5+.2)) > 1e-9 {
		t.Errorf("%v %+v", documents(answer), answer.Hits)
	}
}
