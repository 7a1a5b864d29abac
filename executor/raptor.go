package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/embed"
	"sheaf/internal/raptor"
	"sheaf/taskstore"
)

// Raptor is the kind of run that summarizes documents, layer over layer, and on
// request the documents of a dataset together. Each document has one result with its
// summaries; above the documents, each summary is a result. Existing results are
// kept: a document's by its generation, edits and the options, those above by what
// they summarize.
type Raptor struct {
	Sentences embed.Embedder // for the sentences of summaries made without a model
}

// raptorVersion changes when this code makes something else of the same chunks.
const raptorVersion = 1

const (
	raptorTries    = 3   // of a question without a usable answer
	maxSummaryBox  = 100 // maximum boxes of a summary
	maxSummaryPage = 1000
	maxRoots       = 20_000 // maximum documents summarized together
	failedMark     = "!"    // ends the name of a result with summaries to retry
)

// structuredCode marks a document that is skipped because it contains only tables.
const structuredCode = "structured"

const raptorInstruction = "You write summaries for search. Answer in the language of the passages, with the summary alone."

// RaptorResult is the outcome of a raptor run.
type RaptorResult struct {
	Documents int      `json:"documents"`         // that have their summaries
	Made      int      `json:"made"`              // summaries made in this attempt
	Kept      int      `json:"kept"`              // documents whose summaries existed
	Summaries int      `json:"summaries"`         // current total
	Skipped   int      `json:"skipped,omitempty"` // documents skipped: see Reasons
	Gone      int      `json:"gone,omitempty"`    // documents deleted or changed meanwhile
	Failed    int      `json:"failed,omitempty"`  // summaries the model failed at, which are sentences of the text for now
	Reasons   troubles `json:"reasons,omitempty"` // for some of the failed or skipped
}

// summary is a node being built, or a chunk that one is built from.
type summary struct {
	id     string // of the chunk, or "#n" of the nth summary of its document
	text   string
	tokens int
	vector []float32
	pages  []int
	boxes  []sheaf.Box
}

// raptorRun is a run in progress.
type raptorRun struct {
	*DatasetRun
	Raptor
	opt  raptor.Options
	salt string
	out  RaptorResult
}

// Run implements RunKind.
func (k Raptor) Run(ctx context.Context, r *DatasetRun) (end taskstore.RunEnd, err error) {
	w, err := k.begin(r)
	if err != nil {
		return end, err
	}
	err = w.run(ctx)
	if ctx.Err() == nil {
		if refreshErr := r.Refresh(ctx); err == nil {
			err = refreshErr
		}
	}
	end.Result, _ = json.Marshal(w.out) // strings and numbers always encode
	if err == nil && w.out.Failed > 0 {
		end.State = taskstore.RunPartial
		end.Cause = fmt.Sprintf("The model gave no usable summary of %d nodes; sentences of the text stand in for them. Resume the run to ask again.", w.out.Failed)
	}
	return end, err
}

// RunDocument implements DocumentKind.
func (k Raptor) RunDocument(ctx context.Context, r *DatasetRun, d taskstore.RunDocument) (left DocumentResult, err error) {
	w, err := k.begin(r)
	if err != nil {
		return left, err
	}
	res, _, err := w.document(ctx, d, w.name(d), nil)
	left = DocumentResult{Chunks: res.Chunks, Reasons: w.out.Reasons}
	if w.out.Failed > 0 {
		left.Failed = fmt.Sprintf("The model gave no usable summary of %d nodes; sentences of the text stand in for them. A run of raptor over the dataset asks again.", w.out.Failed)
	}
	return left, err
}

func (k Raptor) begin(r *DatasetRun) (*raptorRun, error) {
	opt, err := raptor.ReadOptions(r.Options.Config)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "bad_options", "%s", sheaf.AsFailure(err, "").Message)
	}
	b, _ := json.Marshal([]any{raptorVersion, opt.Prompt, opt.MaxToken, opt.ClusteringThreshold, opt.ClusteringRatio, opt.MaxCluster, opt.AutoDisable, r.Asks(), r.Model()}) // always encodes
	return &raptorRun{DatasetRun: r, Raptor: k, opt: opt, salt: string(b)}, nil
}

func (w *raptorRun) run(ctx context.Context) error {
	var roots []taskstore.RunResult
	var of []taskstore.RunDocument
	all, gone, err := w.eachDocument(ctx, w.name, w.document, func(d taskstore.RunDocument, res taskstore.RunResult, kept bool) {
		if kept {
			w.out.Kept++
		}
		w.out.Documents++
		w.out.Summaries += res.Chunks
		roots, of = append(roots, res), append(of, d)
	})
	w.out.Gone = gone
	if err != nil {
		return err
	}
	if w.opt.Scope == raptor.ScopeDataset {
		if err := w.dataset(ctx, of, roots, all); err != nil {
			return err
		}
	}
	return w.dropOthers(ctx, all)
}

// name identifies the result of a document.
func (w *raptorRun) name(d taskstore.RunDocument) string {
	return name32("document", w.salt, d.ID, strconv.Itoa(d.Generation), strconv.Itoa(d.Version))
}

// name32 hashes strings to a name: 32 hex.
func name32(parts ...string) string {
	b, _ := json.Marshal(parts) // strings always encode
	return hash32(b)
}

// structured reports whether a document holds data rather than text.
func structured(chunks []sheaf.Chunk) bool {
	return len(chunks) > 0 && !slices.ContainsFunc(chunks, func(c sheaf.Chunk) bool { return c.Kind != sheaf.ChunkTable })
}

// document makes and stores the summaries of one document. made is false when it is
// skipped.
func (w *raptorRun) document(ctx context.Context, d taskstore.RunDocument, name string, instead []string) (res taskstore.RunResult, made bool, err error) {
	chunks, vectors, err := w.Chunks(ctx, d)
	if err != nil {
		return res, false, err
	}
	if w.opt.AutoDisable && structured(chunks) {
		w.out.Skipped++
		w.out.Reasons.add(RunTrouble{DocumentID: d.ID, Code: structuredCode, Message: "The document holds nothing but tables; auto_disable_for_structured_data leaves it out."})
		return res, false, nil
	}
	var level []*summary
	var items []raptor.Item
	var path []string
	for i := range chunks {
		c := &chunks[i]
		if c.Role != "" && c.Role != sheaf.RoleChild || strings.TrimSpace(c.Text) == "" {
			continue
		}
		level = append(level, &summary{id: c.ID, text: c.Text, tokens: max(c.Tokens, 1), vector: vectors[i], pages: c.Pages, boxes: c.Boxes})
		items = append(items, raptor.Item{Name: name32(c.Text), Tokens: max(c.Tokens, 1), Vector: vectors[i], Heading: len(items) > 0 && !slices.Equal(path, c.HeadingPath)})
		path = c.HeadingPath
	}
	common := commonMetadata(chunks)
	cfg := w.opt.Layers(w.salt)
	var out []sheaf.Chunk
	failed := w.out.Failed
	for layer := 1; layer <= raptor.MaxLayers && len(level) > 1; layer++ {
		nodes, alone := raptor.Layer(items, layer, cfg)
		if len(nodes) == 0 {
			break
		}
		groups := make([][]*summary, len(nodes))
		for i, n := range nodes {
			for _, at := range n.Children {
				groups[i] = append(groups[i], level[at])
			}
		}
		made, err := w.summarise(ctx, []string{d.ID}, groups, layer)
		if err != nil {
			return res, false, err
		}
		var next []*summary
		var above []raptor.Item
		for n, a := 0, 0; n < len(nodes) || a < len(alone); {
			if a < len(alone) && (n == len(nodes) || alone[a] < nodes[n].Children[0]) {
				next, above = append(next, level[alone[a]]), append(above, items[alone[a]])
				a++
				continue
			}
			s := made[n]
			s.id = "#" + strconv.Itoa(len(out))
			out = append(out, w.chunk(s, groups[n], layer, common, len(out)))
			next = append(next, s)
			above = append(above, raptor.Item{Name: nodes[n].Name, Tokens: s.tokens, Vector: s.vector, Heading: items[nodes[n].Children[0]].Heading})
			n++
		}
		level, items = next, above
	}
	if w.out.Failed > failed {
		name += failedMark
	}
	res, err = w.Put(ctx, d, taskstore.RunResult{Name: name, Sources: []taskstore.RunSource{{DocumentID: d.ID, Generation: d.Generation, Version: d.Version}}}, out, instead)
	w.out.Made += len(out)
	return res, err == nil, err
}

// chunk returns a summary as stored.
func (w *raptorRun) chunk(s *summary, children []*summary, layer int, common map[string]string, n int) sheaf.Chunk {
	metadata := maps.Clone(common)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[sheaf.MetadataLayer] = strconv.Itoa(layer)
	c := sheaf.Chunk{Kind: sheaf.ChunkSummary, Role: sheaf.RoleSummary, Text: s.text, Tokens: s.tokens, Pages: s.pages, Boxes: s.boxes, Ordinal: n, Layer: layer, Metadata: metadata}
	for _, child := range children {
		c.Children = append(c.Children, child.id)
	}
	return c
}

// commonMetadata is the metadata common to all chunks of a document.
func commonMetadata(chunks []sheaf.Chunk) map[string]string {
	var common map[string]string
	for i, c := range chunks {
		if i == 0 {
			common = maps.Clone(c.Metadata)
		}
		maps.DeleteFunc(common, func(k, v string) bool { return c.Metadata[k] != v || slices.Contains(ownMetadata, k) })
	}
	return common
}

// summarise writes the summaries of groups in one layer.
func (w *raptorRun) summarise(ctx context.Context, documents []string, groups [][]*summary, layer int) ([]*summary, error) {
	made, trouble := make([]*summary, len(groups)), make([]*RunTrouble, len(groups))
	if err := askAll(len(groups), func(i int) (err error) {
		made[i], trouble[i], err = w.sumUp(ctx, documents, groups[i], layer)
		return err
	}); err != nil {
		return nil, err
	}
	w.out.Failed += w.out.Reasons.addAll(trouble)
	return made, nil
}

// sumUp writes one summary: by the model, or from sentences when there is no model
// or it fails.
func (w *raptorRun) sumUp(ctx context.Context, documents []string, group []*summary, layer int) (*summary, *RunTrouble, error) {
	texts, vectors := make([]string, len(group)), make([][]float32, len(group))
	s := &summary{}
	for i, child := range group {
		texts[i], vectors[i] = child.text, child.vector
		s.pages = append(s.pages, child.pages...)
	}
	slices.Sort(s.pages)
	s.pages = slices.Compact(s.pages)
	s.pages = s.pages[:min(len(s.pages), maxSummaryPage)]
	s.vector = raptor.Mean(vectors...)
	var failure *RunTrouble
	sources := make([]bool, len(group)) // whose boxes are cited
	text, err := w.ask(ctx, documents, strings.Join(texts, "\n\n"))
	switch {
	case errors.Is(err, ErrNoModel):
	case err != nil && unusable(err):
		f := sheaf.AsFailure(err, "")
		failure = &RunTrouble{DocumentID: documents[0], Layer: layer, Code: f.Code, Message: f.Message}
	case err != nil:
		return nil, nil, err
	default:
		for i := range sources {
			sources[i] = true
		}
	}
	if text == "" {
		said, err := raptor.Extract(texts, w.opt.MaxToken, chunker.CountTokens, func(sentences []string) ([][]float32, error) {
			return w.Sentences.Embed(ctx, sentences, embed.Passage)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("embedding sentences: %w", err)
		}
		var lines []string
		for _, sentence := range said {
			lines = append(lines, sentence.Text)
			sources[sentence.Source] = true
		}
		if text = strings.Join(lines, " "); text == "" { // no sentence is short enough: use the beginnings
			text, sources[0] = clipText(strings.Join(texts, "\n"), 4*w.opt.MaxToken), true
		}
	}
	s.text, s.tokens = text, max(chunker.CountTokens(text), 1)
	for i, child := range group {
		if sources[i] && len(s.boxes) < maxSummaryBox {
			s.boxes = append(s.boxes, child.boxes[:min(len(child.boxes), maxSummaryBox-len(s.boxes))]...)
		}
	}
	return s, failure, nil
}

// saysSomething rejects a blank answer, which is not cached.
func saysSomething(answer string) error {
	if strings.TrimSpace(answer) == "" {
		return errors.New("it is empty")
	}
	return nil
}

// unusable reports whether the model cannot give a usable answer.
func unusable(err error) bool {
	f, ok := errors.AsType[*sheaf.Failure](err)
	return ok && (f.Code == "chat_bad_answer" || f.Code == "chat_refused" && errors.Is(err, sheaf.ErrInvalid))
}

func (w *raptorRun) ask(ctx context.Context, documents []string, text string) (answer string, err error) {
	prompt := strings.ReplaceAll(w.opt.Prompt, raptor.Content, text)
	for range raptorTries {
		answer, err = w.Ask(ctx, Question{Documents: documents, Instruction: raptorInstruction, Text: prompt, MaxTokens: w.opt.MaxToken, Version: raptorVersion, Check: saysSomething})
		if err == nil || !unusable(err) || errors.Is(err, sheaf.ErrInvalid) {
			break
		}
	}
	return answer, err
}

// root represents a document, or a summary of several.
type root struct {
	summary
	item   raptor.Item
	anchor taskstore.RunDocument // whose pages are cited
	from   []taskstore.RunSource
}

// dataset summarizes the documents' top summaries, until one summary is left.
func (w *raptorRun) dataset(ctx context.Context, docs []taskstore.RunDocument, summed []taskstore.RunResult, all *results) error {
	if len(docs) > maxRoots {
		w.out.Skipped += len(docs) - maxRoots
		w.out.Reasons.add(RunTrouble{Code: "too_many_documents", Message: fmt.Sprintf("Summaries above the documents are made of %d documents at most; those of each document are there.", maxRoots)})
		docs, summed = docs[:maxRoots], summed[:maxRoots]
	}
	var level []*root
	for i, d := range docs {
		tops, err := w.tops(ctx, d, summed[i])
		if errors.Is(err, ErrDocumentGone) {
			continue
		}
		if err != nil {
			return err
		}
		for n, top := range tops {
			level = append(level, &root{summary: *top, anchor: d, from: []taskstore.RunSource{{DocumentID: d.ID, Generation: d.Generation, Version: d.Version}},
				item: raptor.Item{Name: d.ID + "/" + strconv.Itoa(n), Tokens: top.tokens, Vector: top.vector}})
		}
	}
	cfg := w.opt.Layers(w.salt)
	for layer := 1; layer <= raptor.MaxLayers && len(level) > 1; layer++ {
		items := make([]raptor.Item, len(level))
		for i, at := range level {
			items[i] = at.item
		}
		var next []*root
		groups := raptor.Clusters(items, w.opt.RandomSeed+int64(layer), cfg)
		for i, group := range groups {
			if err := w.Report(ctx, "dataset", i, len(groups)); err != nil {
				return err
			}
			children := make([]*root, len(group))
			for k, at := range group {
				children[k] = level[at]
			}
			top, err := w.above(ctx, children, layer, all)
			if errors.Is(err, ErrDocumentGone) { // the next run handles it
				w.out.Gone++
				continue
			}
			if err != nil {
				return err
			}
			next = append(next, top...)
		}
		if len(next) >= len(level) {
			break
		}
		level = next
	}
	return nil
}

// tops returns a document's topmost summaries, or its first chunk if it has none.
func (w *raptorRun) tops(ctx context.Context, d taskstore.RunDocument, res taskstore.RunResult) (tops []*summary, err error) {
	var chunks []sheaf.Chunk
	var vectors [][]float32
	if res.Chunks > 0 {
		chunks, vectors, err = w.Result(ctx, res)
	} else {
		chunks, vectors, err = w.Chunks(ctx, d)
		chunks = chunks[:min(len(chunks), 1)]
	}
	if err != nil {
		return nil, err
	}
	below := map[string]bool{}
	for _, c := range chunks {
		for _, child := range c.Children {
			below[child] = true
		}
	}
	for i, c := range chunks {
		if !below[c.ID] && (c.Role == "" || c.Role == sheaf.RoleChild || c.Kind == sheaf.ChunkSummary) {
			tops = append(tops, &summary{id: c.ID, text: c.Text, tokens: max(c.Tokens, 1), vector: vectors[i], pages: c.Pages, boxes: c.Boxes})
		}
	}
	return tops[:min(len(tops), raptor.MaxLayers)], nil
}

// above makes, or finds, the summary of a group. A group of one, or of too many
// documents, is returned unchanged.
func (w *raptorRun) above(ctx context.Context, children []*root, layer int, all *results) ([]*root, error) {
	from := map[string]taskstore.RunSource{}
	var documents []string
	parts := []string{"dataset", w.salt, strconv.FormatInt(w.opt.RandomSeed, 10)}
	vectors := make([][]float32, len(children))
	group := make([]*summary, len(children))
	for i, c := range children {
		vectors[i], group[i] = c.vector, &c.summary
		parts = append(parts, c.id, name32(c.text))
		for _, s := range c.from {
			if _, ok := from[s.DocumentID]; !ok {
				from[s.DocumentID] = s
				documents = append(documents, s.DocumentID)
			}
		}
	}
	if len(children) < 2 || len(documents) > taskstore.MaxRunSources {
		return children, nil
	}
	// The child nearest to the mean of all represents them.
	mean := raptor.Mean(vectors...)
	best := slices.MaxFunc(children, func(a, b *root) int {
		return cmp.Or(cmp.Compare(dot(a.vector, mean), dot(b.vector, mean)), cmp.Compare(b.item.Name, a.item.Name))
	})
	name := name32(parts...)
	slices.Sort(documents)
	out := &root{anchor: best.anchor, item: raptor.Item{Name: slices.MinFunc(children, func(a, b *root) int { return cmp.Compare(a.item.Name, b.item.Name) }).item.Name}}
	for _, id := range documents {
		out.from = append(out.from, from[id])
	}
	res, have := all.byName[name]
	if !have {
		if err := w.Turn(); err != nil {
			return nil, err
		}
		failed := w.out.Failed
		made, err := w.summarise(ctx, documents, [][]*summary{group}, layer)
		if err != nil {
			return nil, err
		}
		if w.out.Failed > failed {
			name += failedMark
		}
		s := made[0]
		s.pages, s.boxes = best.pages, best.boxes
		c := w.chunk(s, group, layer, nil, 0)
		if res, err = w.Put(ctx, best.anchor, taskstore.RunResult{Name: name, Layer: layer, Sources: out.from}, []sheaf.Chunk{c}, nil); err != nil {
			return nil, err
		}
		w.out.Made++
	}
	chunks, made, err := w.Result(ctx, res)
	if err != nil {
		return nil, err
	}
	if len(chunks) != 1 {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "bad_result", "The summary %s has %d chunks; wipe the summaries and run again.", res.RangeID, len(chunks))
	}
	all.keep[res.RangeID] = true
	w.out.Summaries++
	c := chunks[0]
	out.summary = summary{id: c.ID, text: c.Text, tokens: max(c.Tokens, 1), vector: made[0], pages: c.Pages, boxes: c.Boxes}
	out.item.Tokens, out.item.Vector = out.tokens, out.vector
	return []*root{out}, nil
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
