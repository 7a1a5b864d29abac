package indexset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/eval"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

const (
	gateSamples = 60   // results whose sentences are used as queries
	gateQueries = 200  // saved queries to run
	gateHits    = 5    // that must include the answer
	maxLoss     = 0.05 // of recall: three of sixty samples
	minWords    = 5    // per sentence
	maxWords    = 20
)

// question is one with a known answer. A chunk with the id also answers it.
type question struct {
	taskstore.SavedQuery
	chunkID string
}

// answered reports whether a hit answers the question.
func (q *question) answered(h *search.Hit) bool {
	return q.chunkID != "" && h.Chunk.ID == q.chunkID ||
		slices.ContainsFunc(q.Expected, func(e taskstore.ExpectedAnswer) bool { return eval.Meets(&e, h) })
}

// sampled is a uniform sample of the results that a pass has seen.
type sampled struct {
	mu   sync.Mutex
	seen int
	have []taskstore.LiveResult
}

func (s *sampled) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.have = 0, nil
}

func (s *sampled) offer(r taskstore.LiveResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if len(s.have) < gateSamples {
		s.have = append(s.have, r)
	} else if i := rand.IntN(s.seen); i < gateSamples {
		s.have[i] = r
	}
}

// gate compares the index being filled with the live one. If both have the same
// model, only missing results count.
func (s *Set) gate(ctx context.Context, st *State, beside *Member) (*Gate, error) {
	g := &Gate{Missing: st.Fill.Failed, MaxLoss: maxLoss}
	v := s.View()
	if !st.Live.same(*st.Beside) {
		samples, err := s.sentences(ctx)
		if err != nil {
			return nil, err
		}
		if g.Samples = len(samples); g.Samples > 0 {
			g.MaxLoss = lossOf(g.Samples)
			if g.RecallLive, err = s.recall(ctx, v.Live, samples, search.Hybrid); err != nil {
				return nil, fmt.Errorf("asking the index that is searched: %w", err)
			}
			if g.Recall, err = s.recall(ctx, beside, samples, search.Hybrid); err != nil {
				return nil, fmt.Errorf("asking the new index: %w", err)
			}
			if v.Live.embedErr == nil {
				if g.VectorLive, err = s.recall(ctx, v.Live, samples, search.Vector); err != nil {
					return nil, fmt.Errorf("asking the index that is searched: %w", err)
				}
				if g.Vector, err = s.recall(ctx, beside, samples, search.Vector); err != nil {
					return nil, fmt.Errorf("asking the new index: %w", err)
				}
			}
		}
		if err := s.askSaved(ctx, g, v.Live, beside); err != nil {
			return nil, err
		}
	}
	g.judge()
	return g, nil
}

// judge decides whether the measurements allow switching to the index.
func (g *Gate) judge() {
	switch {
	case g.Missing > 0:
		g.Reason = fmt.Sprintf("%d ranges cannot be read from the blob store: parse their documents again, then resume; or switch with force", g.Missing)
	case g.Recall < g.RecallLive-g.MaxLoss:
		g.Reason = fmt.Sprintf("of %d questions the new index answers %.0f %% and the old one %.0f %%: check model, prefixes, weight and floor, then cancel or resume; or switch with force", g.Samples, 100*g.Recall, 100*g.RecallLive)
	case g.SavedRecall < g.SavedRecallLive-lossOf(g.Saved):
		g.Reason = fmt.Sprintf("of %d saved queries the new index answers %.0f %% and the old one %.0f %%: check model, prefixes, weight and floor, then cancel or resume; or switch with force", g.Saved, 100*g.SavedRecall, 100*g.SavedRecallLive)
	case g.Vector < g.VectorLive/2:
		g.Reason = fmt.Sprintf("by its vectors alone the new index answers %.0f %% of %d questions and the old one %.0f %%: check model and prefixes, then cancel or resume; or switch with force", 100*g.Vector, g.Samples, 100*g.VectorLive)
	default:
		g.Passed = true
	}
}

// lossOf is the tolerated loss of recall over n questions: with few questions, a
// single answer decides nothing.
func lossOf(n int) float64 { return max(maxLoss, 1.01/float64(max(n, 1))) }

// askSaved runs saved queries on both indexes. They are counted separately: a few
// user queries say more than many sentences from documents.
func (s *Set) askSaved(ctx context.Context, g *Gate, live, beside *Member) error {
	saved, err := s.cfg.Store.SampleQueries(ctx, gateQueries)
	if err != nil {
		return err
	}
	asked := make([]question, len(saved))
	for i := range saved {
		asked[i].SavedQuery = saved[i]
	}
	if g.Saved = len(asked); g.Saved == 0 {
		return nil
	}
	if g.SavedRecallLive, err = s.recall(ctx, live, asked, search.Hybrid); err != nil {
		return fmt.Errorf("asking the index that is searched: %w", err)
	}
	if g.SavedRecall, err = s.recall(ctx, beside, asked, search.Hybrid); err != nil {
		return fmt.Errorf("asking the new index: %w", err)
	}
	return nil
}

// recall is the share of samples with the answer among the first hits.
func (s *Set) recall(ctx context.Context, m *Member, samples []question, mode search.Mode) (float64, error) {
	searcher := &search.Searcher{Index: m.Index, Embedder: m.Embedder, Visibility: s.cfg.Store}
	found := 0
	for i := range samples {
		q := &samples[i]
		answer, err := searcher.Search(ctx, q.TenantID, search.Request{Query: q.Question, Datasets: search.List{q.DatasetID}, Mode: mode, Limit: gateHits})
		if err != nil {
			return 0, err
		}
		for k := range answer.Hits {
			if q.answered(&answer.Hits[k]) {
				found++
				break
			}
		}
	}
	return float64(found) / float64(len(samples)), nil
}

// sentences samples sentences from documents, as queries to their own datasets.
func (s *Set) sentences(ctx context.Context) ([]question, error) {
	s.sample.mu.Lock()
	have := s.sample.have
	s.sample.mu.Unlock()
	var out []question
	for _, r := range have {
		stored, err := artifact.Load(ctx, s.cfg.Blobs, r.ArtifactKey)
		if err != nil {
			continue // counted as missing elsewhere
		}
		for _, i := range rand.Perm(len(stored.Chunks)) {
			c := stored.Chunks[i]
			if q := sentence(c); q != "" {
				page := 0 // without pages, a hit anywhere in the document counts
				if len(c.Pages) > 0 {
					page = c.Pages[0]
				}
				out = append(out, question{taskstore.SavedQuery{TenantID: r.TenantID, DatasetID: r.DatasetID, Question: q,
					Expected: []taskstore.ExpectedAnswer{{DocumentID: r.DocumentID, From: page}}}, c.ID})
				break
			}
		}
	}
	return out, nil
}

// sentence picks one of a chunk's sentences, cut at maxWords; "" if all are short.
func sentence(c sheaf.Chunk) string {
	all := strings.FieldsFunc(c.Text, func(r rune) bool { return strings.ContainsRune(".!?\n。！？", r) })
	for _, i := range rand.Perm(len(all)) {
		if words := strings.Fields(all[i]); len(words) >= minWords {
			return strings.ReplaceAll(strings.Join(words[:min(len(words), maxWords)], " "), `"`, " ")
		}
	}
	return ""
}
