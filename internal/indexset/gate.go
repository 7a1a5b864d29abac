package indexset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

const (
	gateSamples = 60   // results whose sentences are asked for
	gateHits    = 5    // among which the answer is to be
	maxLoss     = 0.05 // of recall: three of sixty samples
	minWords    = 5    // of a sentence
	maxWords    = 20
)

// Sample is a question whose answer is known: a chunk, or a page of the
// document where ChunkID is "".
type Sample struct {
	TenantID   string
	Datasets   []string // nil for all
	Query      string
	DocumentID string
	ChunkID    string
	Page       int
}

// Sampler gives questions to the gate.
type Sampler func(ctx context.Context) ([]Sample, error)

// answered reports whether a hit is what a sample asks for.
func (q *Sample) answered(h *search.Hit) bool {
	if h.Document.ID != q.DocumentID {
		return false
	}
	if h.Chunk.ID == q.ChunkID || q.ChunkID == "" && q.Page == 0 {
		return true
	}
	for _, p := range h.Chunk.Pages {
		if p == q.Page && q.Page > 0 {
			return true
		}
	}
	return false
}

// sampled is an even sample of the results that a pass has seen.
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

// gate compares the index that is filled with the one that is searched. Where
// both are of one model only what is missing counts.
func (s *Set) gate(ctx context.Context, st *State, beside *Member) (*Gate, error) {
	g := &Gate{Missing: st.Fill.Failed, MaxLoss: maxLoss}
	v := s.View()
	if !st.Live.same(*st.Beside) {
		samples, err := s.sentences(ctx)
		if err != nil {
			return nil, err
		}
		for _, sampler := range s.cfg.Samplers {
			more, err := sampler(ctx)
			if err != nil {
				return nil, err
			}
			samples = append(samples, more...)
		}
		if g.Samples = len(samples); g.Samples > 0 {
			g.MaxLoss = max(maxLoss, 1.01/float64(g.Samples)) // one answer of a few decides nothing
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
	}
	switch {
	case g.Missing > 0:
		g.Reason = fmt.Sprintf("%d ranges cannot be read from the blob store: parse their documents again, then resume; or switch with force", g.Missing)
	case g.Recall < g.RecallLive-g.MaxLoss:
		g.Reason = fmt.Sprintf("of %d questions the new index answers %.0f %% and the old one %.0f %%: check model, prefixes, weight and floor, then cancel or resume; or switch with force", g.Samples, 100*g.Recall, 100*g.RecallLive)
	case g.Vector < g.VectorLive/2:
		g.Reason = fmt.Sprintf("by its vectors alone the new index answers %.0f %% of %d questions and the old one %.0f %%: check model and prefixes, then cancel or resume; or switch with force", 100*g.Vector, g.Samples, 100*g.VectorLive)
	default:
		g.Passed = true
	}
	return g, nil
}

// recall is the share of samples whose answer is among the first hits.
func (s *Set) recall(ctx context.Context, m *Member, samples []Sample, mode search.Mode) (float64, error) {
	searcher := &search.Searcher{Index: m.Index, Embedder: m.Embedder, Visibility: s.cfg.Store}
	found := 0
	for i := range samples {
		q := &samples[i]
		answer, err := searcher.Search(ctx, q.TenantID, search.Request{Query: q.Query, Datasets: q.Datasets, Mode: mode, Limit: gateHits})
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

// sentences are what the documents themselves say, each asked of its own dataset.
func (s *Set) sentences(ctx context.Context) ([]Sample, error) {
	s.sample.mu.Lock()
	have := s.sample.have
	s.sample.mu.Unlock()
	var out []Sample
	for _, r := range have {
		stored, err := artifact.Load(ctx, s.cfg.Blobs, r.ArtifactKey)
		if err != nil {
			continue // counted as missing where it is
		}
		for _, i := range rand.Perm(len(stored.Chunks)) {
			c := stored.Chunks[i]
			if q := sentence(c); q != "" {
				page := 0
				if len(c.Pages) > 0 {
					page = c.Pages[0]
				}
				out = append(out, Sample{TenantID: r.TenantID, Datasets: []string{r.DatasetID}, Query: q, DocumentID: r.DocumentID, ChunkID: c.ID, Page: page})
				break
			}
		}
	}
	return out, nil
}

// sentence is one of a chunk's sentences, cut at maxWords; "" where all are short.
func sentence(c sheaf.Chunk) string {
	all := strings.FieldsFunc(c.Text, func(r rune) bool { return strings.ContainsRune(".!?\n。！？", r) })
	for _, i := range rand.Perm(len(all)) {
		if words := strings.Fields(all[i]); len(words) >= minWords {
			return strings.ReplaceAll(strings.Join(words[:min(len(words), maxWords)], " "), `"`, " ")
		}
	}
	return ""
}
