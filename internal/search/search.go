// Package search answers queries: it embeds the query, gets candidates from both
// sides of the index, drops those that are not visible, and fuses the rest into one
// list. It is the last step of the pipeline, behind the API and the command line.
package search

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/index"
	"sheaf/internal/queue"
	"sheaf/internal/rerank"
	"sheaf/internal/settings"
	"sheaf/internal/tagset"
	"sheaf/taskstore"
)

// Visibility is the authority on what may be seen: of the given ranges, those that
// a live generation lists. The index may hold more (results of losing attempts,
// generations in progress, deleted documents), and such chunks must never be
// returned.
type Visibility interface {
	Visible(ctx context.Context, tenantID string, rangeIDs []string) (map[string]taskstore.VisibleRange, error)
}

// Mode selects the sides of a search.
type Mode string

const (
	Hybrid Mode = "hybrid"
	Text   Mode = "text"
	Vector Mode = "vector"
)

// GroupBy keeps the best GroupSize hits of each group.
type GroupBy string

const (
	GroupByDocument GroupBy = "document"
	GroupByPage     GroupBy = "page"
	GroupByText     GroupBy = "text" // identical passages, as in copies of a document
)

// group is comparable: hits of one group have equal ones.
type group struct {
	document string
	page     int
	text     string
}

// of returns the group of a chunk.
func (g GroupBy) of(documentID string, c *sheaf.Chunk) group {
	switch {
	case g == GroupByText:
		return group{text: strings.Join(strings.Fields(c.Text), " ")}
	case g == GroupByPage && len(c.Pages) > 0:
		return group{document: documentID, page: c.Pages[0]}
	}
	return group{document: documentID}
}

// surplus returns a function that is called with the hits in order, and reports
// whether the group of a hit is full. Chunks without text are no group: they are not
// the same.
func (r *Request) surplus() func(documentID string, c *sheaf.Chunk) bool {
	if r.GroupBy == "" {
		return func(string, *sheaf.Chunk) bool { return false }
	}
	seen := map[group]int{}
	return func(documentID string, c *sheaf.Chunk) bool {
		g := r.GroupBy.of(documentID, c)
		seen[g]++
		return g != group{} && seen[g] > max(r.GroupSize, 1)
	}
}

// Request is the body of a search.
type Request struct {
	Query        string   `json:"query"`
	Datasets     List     `json:"datasets,omitempty"`                       // ids; nil means all of the tenant's
	Limit        int      `json:"limit,omitempty"`                          // 1–1,000, 0 means 10
	Mode         Mode     `json:"mode,omitempty" enum:"hybrid,text,vector"` // "" means hybrid
	VectorWeight *float64 `json:"vector_weight,omitempty"`
	Threshold    *float64 `json:"threshold,omitempty"` // 0–1: hits that score less are dropped
	Filter       Filter   `json:"filter,omitzero"`
	Highlight    bool     `json:"highlight,omitempty"`
	Explain      bool     `json:"explain,omitempty"` // return what each score is made of
	GroupBy      GroupBy  `json:"group_by,omitempty" enum:"document,page,text"`
	GroupSize    int      `json:"group_size,omitempty"` // 1–100 best hits per group, 0 means 1
	// Kinds are the kinds searched, text and summary. nil means both, with
	// summaries limited to a third of the hits.
	Kinds List `json:"kinds,omitempty" enum:"text,summary" doc:"what to search: text, summary, or both. Absent: both, with at most a third of the hits being summaries"`
	// Graph searches the graph of one dataset: from the entities in the query
	// (local), from its communities (global), or from entities combined with words
	// and vectors (mix). "" does not.
	Graph GraphMode `json:"graph,omitempty" enum:"local,global,mix" doc:"search the graph of one dataset: from entities in the query (local), from its communities (global), or local combined with words and vectors (mix)"`
	// TagSets tag the query, up to TopNTags; hits that share its tags rank higher.
	TagSets  []string `json:"-"`
	TopNTags int      `json:"-"`
}

// TagsOf tags the query the way a dataset with these settings tags its chunks.
func (r *Request) TagsOf(c sheaf.ParseConfig) {
	for _, id := range c.TagKBIDs.V {
		if !slices.Contains(r.TagSets, id) {
			r.TagSets = append(r.TagSets, id)
		}
	}
	r.TopNTags = max(r.TopNTags, settings.WithDefaults(c).TopNTags.V)
}

// MaxTagSets bounds the tag sets used for a search over all datasets.
const MaxTagSets = 8

// List restricts a search to any of its items. nil means no restriction; an empty
// list matches nothing.
type List []string

// UnmarshalJSON implements json.Unmarshaler: null counts as an empty list.
func (l *List) UnmarshalJSON(b []byte) error {
	all := []string{}
	if string(b) != "null" {
		if err := json.Unmarshal(b, &all); err != nil {
			return err
		}
	}
	*l = all
	return nil
}

// none reports whether a given list is empty.
func (r *Request) none() bool {
	return slices.ContainsFunc([]List{r.Kinds, r.Datasets, r.Filter.DocumentIDs, r.Filter.MediaTypes, r.Filter.Languages, r.Filter.Keywords, r.Filter.Tags},
		func(l List) bool { return l != nil && len(l) == 0 })
}

// Values of Request.Kinds.
const (
	KindText    = "text"
	KindSummary = "summary"
)

// summaries maps Kinds to what the index searches.
func (r *Request) summaries() index.Summaries {
	switch {
	case r.Kinds == nil && (r.GroupBy == GroupByDocument || r.GroupBy == GroupByPage): // a summary represents no page, and hides none
		return index.NoSummaries
	case len(r.Kinds) == 0 || slices.Contains(r.Kinds, KindSummary) && slices.Contains(r.Kinds, KindText):
		return index.WithSummaries
	case slices.Contains(r.Kinds, KindSummary):
		return index.OnlySummaries
	}
	return index.NoSummaries
}

// fewSummaries drops summaries beyond a third of the hits unless they were
// requested explicitly, keeping the best.
func (r *Request) fewSummaries(ranked []candidate) []candidate {
	if r.Kinds != nil {
		return ranked
	}
	is := func(c candidate) bool { return c.Chunk.Kind == sheaf.ChunkSummary }
	texts := 0
	for _, c := range ranked {
		if !is(c) {
			texts++
		}
	}
	left := min(r.Limit/3, texts/2)
	return slices.DeleteFunc(ranked, func(c candidate) bool {
		if is(c) {
			left--
		}
		return is(c) && left < 0
	})
}

// Filter restricts a search; every field that is set must match.
type Filter struct {
	DocumentIDs List              `json:"document_ids,omitempty"`
	MediaTypes  List              `json:"media_types,omitempty"`
	Pages       Pages             `json:"pages,omitzero"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Languages   List              `json:"languages,omitempty"` // ISO 639-1, such as en: any of them is the chunk's
	Keywords    List              `json:"keywords,omitempty"`  // any of them is among the chunk's, ignoring case
	Tags        List              `json:"tags,omitempty"`      // any of them is among the chunk's, ignoring case
}

// Pages is an inclusive, 1-based range of units; 0 means no bound.
type Pages struct {
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
}

// Response is the answer to a search.
type Response struct {
	Hits     []Hit           `json:"hits"`
	TookMS   float64         `json:"took_ms"`
	Index    IndexInfo       `json:"index"`
	Graph    *GraphInfo      `json:"graph,omitempty" doc:"graph results; absent unless requested"`
	Rerank   *RerankInfo     `json:"rerank,omitempty"` // absent if no server is configured or nothing was found
	Warnings []sheaf.Warning `json:"warnings,omitempty"`
}

// IndexInfo names the vector space that was searched.
type IndexInfo struct {
	Model string `json:"model"`
	Stale bool   `json:"stale"` // the index is incomplete or the vector side was unavailable: see the warnings
}

// RerankInfo reports whether a server reranked the best hits.
type RerankInfo struct {
	// Outcome is used, or why the hits kept their order: budget (it took too long),
	// breaker (not called, since it had failed before) or error.
	Outcome    rerank.Outcome `json:"outcome" enum:"used,budget,breaker,error"`
	Reason     string         `json:"reason,omitempty"` // code of the failure, such as rerank_timeout
	Model      string         `json:"model,omitempty"`
	Candidates int            `json:"candidates"` // hits that were, or would have been, sent
	TookMS     float64        `json:"took_ms"`
}

// Hit is a visible chunk. Score is 0–1 and orders the hits of one response: the
// cosine in mode vector, otherwise relative to the best hit; if Rerank.Outcome is
// used, it is the server's relevance.
type Hit struct {
	Score     float64 `json:"score"`
	Scores    Scores  `json:"scores"`
	Highlight string  `json:"highlight,omitempty"` // HTML: escaped text, matched words in <mark>
	// Explanation lists the features that make up the score, if Explain is set.
	Explanation []Part      `json:"explanation,omitempty"`
	Document    Document    `json:"document"`
	Chunk       sheaf.Chunk `json:"chunk"`
}

// Scores are the scores of each side: BM25 and cosine. 0 means not found by it.
type Scores struct {
	Text   float64 `json:"text"`
	Vector float64 `json:"vector"`
	Graph  float64 `json:"graph,omitempty" doc:"score in the graph, relative to the best, 0–1; 0: not found there"`
	Tags   float64 `json:"tags,omitempty"` // similarity of its tags to the query's, 0–1; a fifth of the score if the query has tags
}

// Document is the document of a hit.
type Document struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	DatasetID string `json:"dataset_id"`
	MediaType string `json:"media_type"`
}

const (
	defaultLimit  = 10
	maxLimit      = 1000
	maxGroupSize  = 100
	maxQueryBytes = 16 << 10
	embedTimeout  = 5 * time.Second // after which a hybrid search continues without the vector side
)

// depths are the candidates requested per side. Fusion needs a hundred (measured:
// fifty cost 0.01 nDCG@10); more are requested only if more hits are wanted, or if
// hidden or grouped ones leave too few.
var depths = [...]int{100, 300, 1000}

// Searcher is safe for concurrent use.
type Searcher struct {
	Index      index.Index
	Embedder   embed.Embedder // of the index's model; nil for an index without vectors
	Visibility Visibility
	// Source returns what to search now for a tenant, instead of Index and Embedder.
	// May be nil.
	Source func(ctx context.Context, tenantID string) (Source, error)
	// Verify checks, before returning no hits, that the index is still the one that
	// was filled. May be nil.
	Verify   func(ctx context.Context) error
	Tags     Tagger         // may be nil
	Graphs   Grapher        // may be nil
	Reranker *rerank.Client // may be nil
	// Slots share the index between tenants: a tenant that asks thousands of questions
	// at once leaves the others theirs. Nil for no limit.
	Slots *queue.Slots
	// Searched is called for each search that succeeded. May be nil.
	Searched func(mode string, took time.Duration)
}

// Source is what one search uses.
type Source struct {
	Index    index.Index
	Embedder embed.Embedder // of the index's model
	Stale    *sheaf.Failure // why the index is incomplete for the tenant; nil if it is not
}

// Tagger finds the tags of a query in tag sets.
type Tagger interface {
	Tags(ctx context.Context, tenantID string, datasetIDs []string, vector []float32, n int) ([]sheaf.Tag, error)
}

// tagShare is the share of tags in a hit's score if the query has tags.
const tagShare = 0.2

// Search runs r for the tenant. It returns sheaf.ErrInvalid for a bad request, and
// sheaf.ErrUnavailable if the index, the database or, in mode vector, the embedder
// is unavailable.
func (s *Searcher) Search(ctx context.Context, tenantID string, r Request) (*Response, error) {
	started := time.Now()
	find := s.search
	if r.Graph != "" {
		find = s.searchGraph
	}
	answer, err := find(ctx, tenantID, r, started)
	if err == nil && s.Searched != nil {
		s.Searched(string(cmp.Or(r.Mode, "hybrid")), time.Since(started))
	}
	return answer, err
}

// find searches the index in a slot. Other servers, such as those that embed or rerank,
// are asked outside of it: their time is not the index's.
func (s *Searcher) find(ctx context.Context, q index.Query) (index.Candidates, error) {
	if s.Slots != nil {
		// guard: fairness: searches wait for their tenant's turn
		leave, err := s.Slots.Enter(ctx, q.TenantID, sheaf.LaneInteractive)
		if err != nil {
			return index.Candidates{}, err
		}
		defer leave()
	}
	return s.Index.Search(ctx, q)
}

func (s *Searcher) search(ctx context.Context, tenantID string, r Request, started time.Time) (*Response, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	answer := &Response{Hits: []Hit{}}
	if r.none() {
		return answer, nil
	}
	if s.Source != nil {
		src, err := s.Source(ctx, tenantID)
		if err != nil {
			return nil, err
		}
		now := *s
		now.Index, now.Embedder = src.Index, src.Embedder
		s = &now
		if src.Stale != nil {
			answer.Index.Stale = true
			answer.warn(src.Stale.Code, src.Stale.Message)
		}
	}
	fusion := index.Fusion{Weight: -1}
	if s.Embedder != nil {
		m := s.Embedder.Model()
		answer.Index.Model = m.ID
		fusion = index.Fusion{Weight: m.Weight, Floor: m.Floor}
	}
	if r.VectorWeight != nil {
		fusion.Weight = *r.VectorWeight
	}
	q := index.Query{
		TenantID: tenantID, DatasetIDs: r.Datasets, DocumentIDs: r.Filter.DocumentIDs, MediaTypes: r.Filter.MediaTypes,
		PageFrom: r.Filter.Pages.From, PageTo: r.Filter.Pages.To, Metadata: r.Filter.Metadata, Highlight: r.Highlight,
		Languages: r.Filter.Languages, Keywords: r.Filter.Keywords, Tags: r.Filter.Tags, Summaries: r.summaries(),
	}
	if r.Mode != Vector {
		q.Text = r.Query
	}
	if r.Mode != Text {
		vector, err := s.embed(ctx, r.Query)
		switch {
		case err == nil:
			q.Vector = vector
			if vector == nil && r.Mode == Vector {
				answer.warn("query_unknown_to_model", "The embedding model knows no word of the query: search in mode text, or configure a model for its language.")
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case r.Mode == Vector:
			return nil, fmt.Errorf("embed the query: %w", err)
		default:
			answer.Index.Stale = true
			answer.warn("vector_search_unavailable", "The query could not be embedded ("+sheaf.AsFailure(err, "").Message+"): these hits were found by words alone. Try again later, or check the embedder.")
		}
	}

	var tags []sheaf.Tag
	if len(r.TagSets) > 0 && q.Vector != nil && s.Tags != nil {
		var err error
		if tags, err = s.Tags.Tags(ctx, tenantID, r.TagSets, q.Vector, r.TopNTags); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			answer.warn("tags_unavailable", "The tags of the query could not be found ("+sheaf.AsFailure(err, "").Message+"): these hits are ranked without them.")
		}
	}

	// Request more candidates only while too few of them are visible.
	for i, depth := range depths {
		if depth < r.Limit && i+1 < len(depths) {
			continue // cannot be enough
		}
		q.K = depth
		c, err := s.find(ctx, q)
		if err == nil && len(c.Text) == 0 && len(c.IDF) > 0 && !q.Similar && !strings.ContainsAny(q.Text, "\"“”„") {
			q.Similar = true // no chunk has the words: perhaps they are misspelled
			c, err = s.find(ctx, q)
		}
		if err != nil {
			return nil, err
		}
		visible, err := s.visible(ctx, tenantID, c)
		if err != nil {
			return nil, err
		}
		answer.Hits = hits(c, visible, fusion, &r)
		if c.NoMore || len(answer.Hits) >= r.Limit {
			break
		}
	}
	if len(answer.Hits) == 0 && s.Verify != nil {
		if err := s.Verify(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.rerank(ctx, answer, &r); err != nil {
		return nil, err
	}
	answer.Hits = byTags(answer.Hits, tags)
	if r.Threshold != nil {
		answer.Hits = slices.DeleteFunc(answer.Hits, func(h Hit) bool { return h.Score < *r.Threshold })
	}
	answer.Hits = answer.Hits[:min(len(answer.Hits), r.Limit)]
	if r.Highlight && r.Mode != Vector {
		words := index.ParseWords(r.Query)
		for i := range answer.Hits {
			if h := &answer.Hits[i]; h.Highlight == "" {
				h.Highlight = words.Highlight(h.Chunk.Text) // found by meaning alone, but a word may still match
			}
		}
	}
	answer.TookMS = math.Round(time.Since(started).Seconds()*1e5) / 100
	return answer, nil
}

func (r *Response) warn(code, message string) {
	r.Warnings = append(r.Warnings, sheaf.Warning{Code: code, Message: message})
}

// rerank has the best hits reranked and records the outcome. It fails only if the
// context was canceled.
func (s *Searcher) rerank(ctx context.Context, answer *Response, r *Request) error {
	if s.Reranker == nil || len(answer.Hits) == 0 {
		return nil
	}
	best := answer.Hits[:min(len(answer.Hits), s.Reranker.Candidates)]
	texts := make([]string, len(best))
	for i, h := range best {
		texts[i] = strings.Join(append(append([]string{h.Document.Name}, h.Chunk.Place(h.Document.Name)...), h.Chunk.Text), "\n")
	}
	scores, result := s.Reranker.Rerank(ctx, r.Query, texts)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answer.Rerank = &RerankInfo{Outcome: result.Outcome, Reason: result.Reason, Model: s.Reranker.Model, Candidates: len(best), TookMS: math.Round(result.Took.Seconds()*1e5) / 100}
	if result.Outcome != rerank.Used {
		return nil
	}
	for i := range best {
		best[i].score("rerank", scores[i], r.Explain)
	}
	slices.SortStableFunc(best, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	least := best[len(best)-1].Score
	for i := len(best); i < len(answer.Hits); i++ {
		if h := &answer.Hits[i]; h.Score > least {
			h.score("candidate", least, r.Explain)
		}
	}
	return nil
}

// score sets a score that consists of one feature.
func (h *Hit) score(feature string, value float64, explain bool) {
	h.Score = value
	if explain {
		h.Explanation = []Part{{feature, value, value}}
	}
}

// check fills in defaults and rejects invalid requests.
func (r *Request) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", sheaf.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if strings.TrimSpace(r.Query) == "" {
		return invalid("query is empty: say what to look for")
	}
	if len(r.Query) > maxQueryBytes {
		return invalid("query has %d bytes and at most %d are searched for", len(r.Query), maxQueryBytes)
	}
	if r.Limit == 0 {
		r.Limit = defaultLimit
	}
	if r.Limit < 1 || r.Limit > maxLimit {
		return invalid("limit is %d: it must be 1 to %d", r.Limit, maxLimit)
	}
	switch r.Mode {
	case "":
		r.Mode = Hybrid
	case Hybrid, Text, Vector:
	default:
		return invalid("mode is %q: it must be hybrid, text or vector", r.Mode)
	}
	for _, k := range r.Kinds {
		if k != KindText && k != KindSummary {
			return invalid("kinds names %q: it may hold text and summary", k)
		}
	}
	switch r.GroupBy {
	case "", GroupByDocument, GroupByPage, GroupByText:
	default:
		return invalid("group_by is %q: it must be document, page or text", r.GroupBy)
	}
	if r.GroupSize < 0 || r.GroupSize > maxGroupSize {
		return invalid("group_size is %d: it must be 1 to %d", r.GroupSize, maxGroupSize)
	}
	if r.GroupSize != 0 && r.GroupBy == "" {
		return invalid("group_size does nothing without group_by: name document, page or text, or leave it out")
	}
	if r.VectorWeight != nil && r.Mode != Hybrid {
		return invalid("vector_weight weighs the two sides of mode hybrid and does nothing in mode %s: leave it out", r.Mode)
	}
	for name, v := range map[string]*float64{"vector_weight": r.VectorWeight, "threshold": r.Threshold} {
		if v != nil && !(*v >= 0 && *v <= 1) {
			return invalid("%s is %g: it must be 0 to 1", name, *v)
		}
	}
	return nil
}

// embed returns nil if the model knows nothing in the query.
func (s *Searcher) embed(ctx context.Context, query string) ([]float32, error) {
	if s.Embedder == nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "no_embedder", "No embedding model is configured: set one and rebuild the index, or search in mode text.")
	}
	ctx, cancel := context.WithTimeout(ctx, embedTimeout)
	defer cancel()
	vectors, err := s.Embedder.Embed(ctx, []string{query}, embed.Query)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: the embedder did not answer within %s", sheaf.ErrUnavailable, embedTimeout)
		}
		return nil, err
	}
	if len(vectors) != 1 {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "embedder_broken", "The embedder answered one text with %d vectors: check its configuration.", len(vectors))
	}
	if index.NoVector(vectors[0]) {
		return nil, nil
	}
	return vectors[0], nil
}

// visibleAtOnce bounds the ranges per database query.
const visibleAtOnce = 500

func (s *Searcher) visible(ctx context.Context, tenantID string, c index.Candidates) (map[string]taskstore.VisibleRange, error) {
	var ranges []string
	for _, side := range [][]index.Hit{c.Text, c.Vector} {
		for _, h := range side {
			ranges = append(ranges, h.Chunk.RangeID)
		}
	}
	slices.Sort(ranges)
	all := make(map[string]taskstore.VisibleRange)
	for part := range slices.Chunk(slices.Compact(ranges), visibleAtOnce) {
		seen, err := s.Visibility.Visible(ctx, tenantID, part)
		if err != nil {
			return nil, err
		}
		for id, v := range seen {
			all[id] = v
		}
	}
	return all, nil
}

// byTags ranks hits higher that share the query's tags. Like a rank feature, the
// similarity of the tags is a share of the score.
func byTags(hits []Hit, tags []sheaf.Tag) []Hit {
	if len(tags) == 0 {
		return hits
	}
	for i := range hits {
		hits[i].Scores.Tags = tagset.Alike(tags, hits[i].Chunk.Tags)
		hits[i].Score = (1-tagShare)*hits[i].Score + tagShare*hits[i].Scores.Tags
		if hits[i].Explanation != nil {
			for n := range hits[i].Explanation {
				hits[i].Explanation[n].Score *= 1 - tagShare
			}
			hits[i].Explanation = append(hits[i].Explanation, Part{"tags", hits[i].Scores.Tags, tagShare * hits[i].Scores.Tags})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits
}

// hits fuses the visible candidates, best first, up to GroupSize per group.
func hits(c index.Candidates, visible map[string]taskstore.VisibleRange, fusion index.Fusion, r *Request) []Hit {
	// Before fusion: scores are relative to the best hit returned.
	hidden := func(h index.Hit) bool {
		v, ok := visible[h.Chunk.RangeID]
		// guard: post-filter: the database decides what is seen
		return !ok || v.DocumentID != h.Chunk.DocumentID || len(r.Datasets) > 0 && !slices.Contains(r.Datasets, v.DatasetID) || v.Hidden[h.Chunk.ID]
	}
	c.Text, c.Vector = slices.DeleteFunc(c.Text, hidden), slices.DeleteFunc(c.Vector, hidden)
	surplus := r.surplus()
	ranked := r.fewSummaries(rank(c, visible, fusion, r))
	out := make([]Hit, 0, len(ranked))
	for _, f := range ranked {
		v := visible[f.Chunk.RangeID]
		if surplus(v.DocumentID, &f.Chunk) {
			continue
		}
		h := Hit{
			Explanation: f.parts,
			Score:       f.Score, Scores: Scores{Text: f.Text, Vector: f.Vector}, Highlight: f.Highlight, Chunk: f.Chunk,
			Document: Document{ID: v.DocumentID, Name: v.Name, DatasetID: v.DatasetID, MediaType: v.MediaType},
		}
		if r.Mode == Vector {
			h.Score = max(0, f.Vector)
			h.Explanation = nil
			if r.Explain {
				h.Explanation = []Part{{"vector", h.Score, h.Score}}
			}
		}
		// A range taken over by a later generation now belongs to that one.
		h.Chunk.Generation = v.Generation
		if v.Edited != nil {
			h.Chunk.ID, h.Chunk.RangeID = v.Edited.ChunkID, cmp.Or(v.Edited.RangeID, h.Chunk.RangeID)
		}
		out = append(out, h)
	}
	return out
}
