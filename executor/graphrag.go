package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/embed"
	"sheaf/internal/graph"
	"sheaf/taskstore"
)

// GraphRAG is the kind of run in which a language model extracts the entities and
// relations of each chunk and, on request, decides which entities are the same and
// reports on the communities they form. Each document has one result with the
// answers about its chunks, from which package graph builds the graph; it is deleted
// with the document. A report, or a decision that two entities are the same, is a
// result of the documents whose text the model read for it. None of it is indexed: a
// graph search returns chunks.
type GraphRAG struct{}

// graphVersion changes when this code asks something else about the same chunks.
const graphVersion = 1

const (
	graphAnswer  = 2048   // tokens of an answer about a chunk
	reportAnswer = 1024   // tokens of a report
	graphText    = 24_000 // characters of a chunk that the model reads
	maxReports   = 5000   // per dataset, for the communities of the highest rank
	maxTogether  = 8      // passages in a call
	answerMost   = 4096   // tokens of an answer about several passages
	maxPairs     = 2000   // entity pairs a run considers: those with the most similar names
	verdict      = 32     // tokens of an answer about a pair
)

const (
	graphInstruction = `You extract a knowledge graph from text. Answer with one JSON object alone: {"entities": [{"name": "", "type": "", "description": ""}], "relations": [{"source": "", "target": "", "description": ""}]}. ` +
		`Types are: %s. Names are as the text writes them; source and target are names of entities. A description is one sentence of what the text says, in its language. Where the text names nothing, both lists are empty.`
	nerInstruction    = `You name the entities of a text. Answer with one JSON object alone: {"entities": [{"name": "", "type": ""}]}. Types are: %s. Names are as the text writes them. Where the text names nothing, the list is empty.`
	reportInstruction = `You report on a community of entities of a knowledge graph. Say nothing that the lists do not say. Answer in their language, with one JSON object alone: ` +
		`{"title": "", "summary": "", "rating": 0, "rating_explanation": "", "findings": [{"summary": "", "explanation": ""}]}. rating is 0 to 10: how much the community matters.`
	togetherInstruction = `The text is passages of one document, each below its number in brackets. Answer with one JSON object alone: {"passages": [{"passage": 1, …}, {"passage": 2, …}]}. It has an element for each passage, in their order, which says what that passage alone says, with its number and the fields that are asked for below in place of the dots.` + "\n\n"
	sameInstruction     = `You decide whether two entities of a knowledge graph are one and the same thing in the world under different names. Things that belong together, or are of one kind, are not the same. Answer with one JSON object alone: {"same": true} or {"same": false}. Where it is not certain, answer false.`
	graphAgain          = "\n\n(Your answer before was not the JSON object that was asked for. Answer with that object alone.)"
)

// GraphResult is the outcome of a graphrag run.
type GraphResult struct {
	Method      string   `json:"method"`
	Documents   int      `json:"documents"` // whose chunks the model has read
	Made        int      `json:"made"`      // of these, in this attempt
	Kept        int      `json:"kept"`
	Chunks      int      `json:"chunks"` // read in this attempt
	Entities    int      `json:"entities,omitempty"`
	Relations   int      `json:"relations,omitempty"`
	Communities int      `json:"communities,omitempty"` // of the finest level, with two or more entities
	Reports     int      `json:"reports,omitempty"`
	Pairs       int      `json:"pairs,omitempty"`   // of entities with similar names, with resolution
	Merged      int      `json:"merged,omitempty"`  // entities merged into others because of these
	Gone        int      `json:"gone,omitempty"`    // documents deleted or changed meanwhile
	Failed      int      `json:"failed,omitempty"`  // chunks, handled by rules for now, and reports
	Reasons     troubles `json:"reasons,omitempty"` // of some of them
}

// graphRun is a run in progress.
type graphRun struct {
	*DatasetRun
	opt  graph.RunOptions
	salt string
	all  []graph.Contribution // the model's answers, for reports only
	from map[string]taskstore.RunDocument
	out  GraphResult
}

// Run implements RunKind.
func (GraphRAG) Run(ctx context.Context, r *DatasetRun) (end taskstore.RunEnd, err error) {
	w, err := beginGraph(r)
	if err != nil {
		return end, err
	}
	err = w.run(ctx)
	end.Result, _ = json.Marshal(w.out) // strings and numbers always encode
	if err == nil && w.out.Failed > 0 {
		end.State = taskstore.RunPartial
		end.Cause = fmt.Sprintf("The model gave no usable answer to %d questions; rules read these chunks for now, and entities stay apart. Resume the run to ask again.", w.out.Failed)
	}
	return end, err
}

// RunDocument implements DocumentKind.
func (GraphRAG) RunDocument(ctx context.Context, r *DatasetRun, d taskstore.RunDocument) (left DocumentResult, err error) {
	w, err := beginGraph(r)
	if err != nil || w.opt.Method == graph.MethodCooccurrence { // for which nothing is stored
		return left, err
	}
	_, _, err = w.document(ctx, d, w.name(d), nil)
	left = DocumentResult{Chunks: w.out.Chunks, Reasons: w.out.Reasons}
	if w.out.Failed > 0 {
		left.Failed = fmt.Sprintf("The model gave no usable answer about %d chunks; rules read these for now. A run of graphrag over the dataset asks again.", w.out.Failed)
	}
	return left, err
}

func beginGraph(r *DatasetRun) (*graphRun, error) {
	opt, err := graph.ReadRunOptions(r.Options.Config)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "bad_options", "%s", sheaf.AsFailure(err, "").Message)
	}
	switch {
	case opt.Method == "" && r.Asks() == "":
		opt.Method = graph.MethodCooccurrence
	case opt.Method == "":
		opt.Method = graph.MethodLight
	case opt.Method != graph.MethodCooccurrence && r.Asks() == "":
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "no_model", "The method %s asks a language model and none is configured. Set chat.url, or begin a run with the method cooccurrence.", opt.Method)
	}
	// light and general ask the same about a chunk.
	b, _ := json.Marshal([]any{graphVersion, opt.Method == graph.MethodNER, opt.EntityTypes, r.Asks()}) // always encodes
	return &graphRun{DatasetRun: r, opt: opt, salt: string(b), from: map[string]taskstore.RunDocument{}, out: GraphResult{Method: opt.Method}}, nil
}

// name identifies the result of a document.
func (w *graphRun) name(d taskstore.RunDocument) string {
	return name32("graph", w.salt, d.ID, strconv.Itoa(d.Generation), strconv.Itoa(d.Version))
}

func (w *graphRun) run(ctx context.Context) error {
	if w.opt.Method == graph.MethodCooccurrence { // for which nothing is stored
		there, err := w.Results(ctx)
		if err != nil {
			return err
		}
		return w.dropOthers(ctx, &results{there: there})
	}
	var docs []taskstore.RunDocument
	var read []taskstore.RunResult
	all, gone, err := w.eachDocument(ctx, w.name, w.document, func(d taskstore.RunDocument, res taskstore.RunResult, kept bool) {
		if w.out.Documents++; kept {
			w.out.Kept++
		} else {
			w.out.Made++
		}
		docs, read = append(docs, d), append(read, res)
	})
	w.out.Gone = gone
	if err != nil {
		return err
	}
	if w.opt.Reports() || w.opt.Resolves() {
		names, err := w.e.cfg.RunStore.SplitNames(ctx, w.TenantID, w.DatasetID)
		if err != nil {
			return err
		}
		splits := graph.NewSplits(names)
		for i, d := range docs {
			stored, _, err := w.Result(ctx, read[i])
			if errors.Is(err, ErrDocumentGone) {
				w.out.Gone++
				continue
			}
			if err != nil {
				return err
			}
			said, err := graph.Unpack(stored, splits)
			if err != nil {
				return err
			}
			w.from[d.ID], w.all = d, append(w.all, said...)
		}
		var same []graph.Same
		if w.opt.Resolves() {
			if same, err = w.resolve(ctx, all, splits); err != nil {
				return err
			}
		}
		if w.opt.Reports() {
			if err := w.reports(ctx, all, graph.Options{Splits: splits, Same: same}); err != nil {
				return err
			}
		}
	}
	return w.dropOthers(ctx, all)
}

// readBy reports whether a model reads a chunk: code and chunks that repeat others
// are skipped.
func readBy(c *sheaf.Chunk) bool {
	return (c.Role == "" || c.Role == sheaf.RoleChild) && c.Kind != sheaf.ChunkCode && c.Kind != sheaf.ChunkSummary && strings.TrimSpace(c.Text) != ""
}

// passage is text of a chunk that the model reads in one piece: the whole chunk,
// unless it has more tokens than a call may have.
type passage struct {
	chunk   int
	tokens  int
	q       Question
	said    graph.Said
	read    bool
	trouble *RunTrouble
}

// document has the model read the chunks of a document, and stores what it said.
func (w *graphRun) document(ctx context.Context, d taskstore.RunDocument, name string, instead []string) (res taskstore.RunResult, made bool, err error) {
	chunks, _, err := w.Chunks(ctx, d)
	if err != nil {
		return res, false, err
	}
	chunks = slices.DeleteFunc(chunks, func(c sheaf.Chunk) bool { return !readBy(&c) })
	passages := w.passages(d.ID, chunks)
	if err := w.readTogether(ctx, d.ID, passages); err != nil {
		return res, false, err
	}
	if err := askAll(len(passages), func(i int) (err error) {
		if p := passages[i]; !p.read {
			p.trouble, err = w.ask(ctx, p.q, RunTrouble{DocumentID: d.ID, ChunkID: chunks[p.chunk].ID})
		}
		return err
	}); err != nil {
		return res, false, err
	}
	said, trouble := make([]graph.Said, len(chunks)), make([]*RunTrouble, len(chunks))
	for _, p := range passages {
		said[p.chunk].Add(p.said)
		if trouble[p.chunk] == nil {
			trouble[p.chunk] = p.trouble
		}
	}
	var out []sheaf.Chunk
	for i := range chunks {
		if trouble[i] != nil {
			w.out.Failed++
			w.out.Reasons.add(*trouble[i])
			continue
		}
		w.out.Chunks++
		if w.opt.Method == graph.MethodNER {
			said[i].Relate(chunks[i].Text, chunks[i].Kind == sheaf.ChunkTable)
		}
		c := graph.Pack(said[i], &chunks[i])
		c.Ordinal = len(out)
		out = append(out, c)
	}
	if len(out) < len(chunks) {
		name += failedMark
	}
	res, err = w.put(ctx, d, taskstore.RunResult{Name: name, Sources: []taskstore.RunSource{{DocumentID: d.ID, Generation: d.Generation, Version: d.Version}}}, out, instead, false)
	return res, err == nil, err
}

// passages returns what the model reads of chunks, each with the question about it
// alone. However passages are batched, an answer is cached under that question, so
// that neither a changed neighbour nor another batch size invalidates it.
func (w *graphRun) passages(documentID string, chunks []sheaf.Chunk) (out []*passage) {
	for i := range chunks {
		for _, text := range cutTokens(clipText(chunks[i].Text, graphText), w.opt.BatchTokens) {
			p := &passage{chunk: i, tokens: chunker.CountTokens(text)}
			p.q = Question{Documents: []string{documentID}, Instruction: w.instruction(), Text: text, MaxTokens: graphAnswer, Version: graphVersion,
				Check: func(answer string) (err error) {
					p.said, err = graph.ReadSaid(answer, w.opt.EntityTypes)
					return err
				}}
			out = append(out, p)
		}
	}
	return out
}

func (w *graphRun) instruction() string {
	instruction := graphInstruction
	if w.opt.Method == graph.MethodNER {
		instruction = nerInstruction
	}
	return fmt.Sprintf(instruction, strings.Join(w.opt.EntityTypes, ", "))
}

// cutTokens cuts a text into parts of at most most tokens, between words, or within
// a word when there is no space for long.
func cutTokens(text string, most int) (parts []string) {
	for chunker.CountTokens(text) > most {
		// Binary search for the longest part that fits: a part of one rune always does.
		at, high := 0, len(text)
		for low := 1; low < high; {
			middle := (low + high) / 2
			end := middle
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end++
			}
			if chunker.CountTokens(text[:end]) <= most {
				at, low = end, max(end, middle+1)
			} else {
				high = middle
			}
		}
		if space := strings.LastIndexFunc(text[:at], unicode.IsSpace); space > at/2 {
			at = space
		}
		if at == 0 {
			break
		}
		parts, text = append(parts, text[:at]), strings.TrimLeftFunc(text[at:], unicode.IsSpace)
	}
	if text != "" {
		parts = append(parts, text)
	}
	return parts
}

// readTogether has the model read the passages of a document that have no cached
// answer, several per call as far as their tokens allow. Those the answers omit stay
// unread.
func (w *graphRun) readTogether(ctx context.Context, documentID string, passages []*passage) error {
	known := make([]bool, len(passages))
	if err := askAll(len(passages), func(i int) (err error) {
		known[i], err = w.answered(ctx, passages[i].q)
		return err
	}); err != nil {
		return err
	}
	var calls [][]*passage
	var call []*passage
	tokens, texts := 0, map[string]bool{}
	for i, p := range passages {
		if known[i] || texts[p.q.Text] { // ask once per distinct text
			continue
		}
		texts[p.q.Text] = true
		if len(call) == maxTogether || tokens+p.tokens > w.opt.BatchTokens {
			calls, call, tokens = append(calls, call), nil, 0
		}
		call, tokens = append(call, p), tokens+p.tokens
	}
	calls = slices.DeleteFunc(append(calls, call), func(c []*passage) bool { return len(c) < 2 })
	return askAll(len(calls), func(i int) error {
		b := together{Document: documentID, Instruction: togetherInstruction + w.instruction(), MaxTokens: min(len(calls[i])*graphAnswer, answerMost),
			Split: func(answer string) []string { return graph.SplitSaid(answer, len(calls[i])) }}
		var text strings.Builder
		for k, p := range calls[i] {
			b.Questions = append(b.Questions, p.q)
			fmt.Fprintf(&text, "[%d]\n%s\n\n", k+1, p.q.Text)
		}
		b.Text = strings.TrimSpace(text.String())
		answers, err := w.askTogether(ctx, b)
		if err != nil && !unusable(err) {
			return err
		}
		for k, answer := range answers {
			calls[i][k].read = answer != ""
		}
		return nil
	})
}

// ask asks until the answer is usable or the attempts are used up. Running out of
// attempts is a trouble, not an error.
func (w *graphRun) ask(ctx context.Context, q Question, of RunTrouble) (trouble *RunTrouble, err error) {
	for range 1 + w.opt.RetryAttempts {
		if _, err = w.Ask(ctx, q); err == nil {
			return nil, nil
		}
		if !unusable(err) {
			return nil, err
		}
		f := sheaf.AsFailure(err, "")
		of.Code, of.Message = f.Code, f.Message
		if errors.Is(err, sheaf.ErrInvalid) { // the text itself is refused
			break
		}
		q.Again = graphAgain
	}
	return &of, nil
}

// reports has the model report on the communities of the finest level.
func (w *graphRun) reports(ctx context.Context, all *results, o graph.Options) error {
	g := graph.Build(w.all, o)
	w.out.Entities, w.out.Relations = len(g.Entities), len(g.Relations)
	var communities []int32
	for i, c := range g.Communities {
		if c.Level == 0 && len(c.Entities) > 1 {
			communities = append(communities, int32(i))
		}
	}
	w.out.Communities = len(communities)
	if len(communities) > maxReports {
		slices.SortStableFunc(communities, func(a, b int32) int { return int(g.Communities[a].Entities[0] - g.Communities[b].Entities[0]) })
		w.out.Reasons.add(RunTrouble{Code: "too_many_communities", Message: fmt.Sprintf("Reports are made of the %d communities of the highest rank; there are %d.", maxReports, len(communities))})
		communities = communities[:maxReports]
	}
	done := 0
	for some := range slices.Chunk(communities, runAsks) {
		if err := w.Turn(); err != nil {
			return err
		}
		made, trouble := make([]*report, len(some)), make([]*RunTrouble, len(some))
		if err := askAll(len(some), func(i int) (err error) {
			made[i], trouble[i], err = w.report(ctx, g, some[i], all)
			return err
		}); err != nil {
			return err
		}
		for i, r := range made {
			if trouble[i] != nil {
				w.out.Failed++
				w.out.Reasons.add(*trouble[i])
			}
			if r == nil {
				continue
			}
			if r.kept == "" {
				res, err := w.put(ctx, r.anchor, r.result, r.chunks, nil, false)
				if errors.Is(err, ErrDocumentGone) { // the next run handles it
					w.out.Gone++
					continue
				}
				if err != nil {
					return err
				}
				r.kept = res.RangeID
			}
			all.keep[r.kept] = true
			w.out.Reports++
		}
		done += len(some)
		if err := w.Report(ctx, "reports", done, len(communities)); err != nil {
			return err
		}
	}
	return nil
}

// report is a report to be stored, or one that exists.
type report struct {
	kept   string // its range if it exists
	anchor taskstore.RunDocument
	result taskstore.RunResult
	chunks []sheaf.Chunk
}

// report has the model report on one community; nil when one of its documents was
// deleted.
func (w *graphRun) report(ctx context.Context, g *graph.Graph, community int32, all *results) (*report, *RunTrouble, error) {
	text, of := g.ReportText(community)
	var said graph.Report
	documents, chunks := cited(g, of)
	parts := append([]string{"report", w.salt, text}, chunks...)
	members := make([]string, 0, len(g.Communities[community].Entities))
	for _, e := range g.Communities[community].Entities {
		members = append(members, g.Entities[e].Key)
	}
	slices.Sort(members)
	name := name32(append(parts, members...)...)
	if res, have := all.byName[name]; have {
		return &report{kept: res.RangeID}, nil, nil
	}
	trouble, err := w.ask(ctx, Question{Documents: documents, Instruction: reportInstruction, Text: text, MaxTokens: reportAnswer, Version: graphVersion,
		Check: func(answer string) (err error) {
			said, err = graph.ReadReport(answer)
			return err
		}}, RunTrouble{DocumentID: documents[0], Layer: graph.LayerReport})
	switch {
	case errors.Is(err, ErrDocumentGone):
		return nil, nil, nil
	case err != nil || trouble != nil:
		return nil, trouble, err
	}
	r := &report{anchor: w.from[documents[0]], result: taskstore.RunResult{Name: name, Layer: graph.LayerReport, Sources: w.sources(documents)}}
	said.Entities = members
	for _, at := range of {
		said.Sources = append(said.Sources, g.Sources[at])
	}
	b, err := json.Marshal(said)
	r.chunks = []sheaf.Chunk{{Kind: sheaf.ChunkText, Text: string(b), Layer: graph.LayerReport}}
	return r, nil, err
}

// cited returns the distinct documents and the chunks of sources.
func cited(g *graph.Graph, of []int32) (documents, chunks []string) {
	for _, at := range of {
		src := g.Sources[at]
		chunks = append(chunks, src.ChunkID)
		if !slices.Contains(documents, src.DocumentID) {
			documents = append(documents, src.DocumentID)
		}
	}
	return documents, chunks
}

func (w *graphRun) sources(documents []string) (out []taskstore.RunSource) {
	for _, id := range documents {
		d := w.from[id]
		out = append(out, taskstore.RunSource{DocumentID: d.ID, Generation: d.Generation, Version: d.Version})
	}
	return out
}

// resolve decides which entities with similar names are the same: those with the
// same letters and digits are, and for the others the model decides. Each merge is a
// result of the documents whose text was read for it.
func (w *graphRun) resolve(ctx context.Context, all *results, splits *graph.Splits) ([]graph.Same, error) {
	g := graph.Build(w.all, graph.Options{Splits: splits})
	pairs, err := w.alike(ctx, g)
	if err != nil {
		return nil, err
	}
	w.out.Pairs = len(pairs)
	same := make([]bool, len(pairs))
	for from := 0; from < len(pairs); from += runAsks {
		if err := w.Turn(); err != nil {
			return nil, err
		}
		some := pairs[from:min(from+runAsks, len(pairs))]
		trouble := make([]*RunTrouble, len(some))
		if err := askAll(len(some), func(i int) (err error) {
			same[from+i], trouble[i], err = w.isSame(ctx, g, some[i])
			return err
		}); err != nil {
			return nil, err
		}
		w.out.Failed += w.out.Reasons.addAll(trouble)
		if err := w.Report(ctx, "resolution", from+len(some), len(pairs)); err != nil {
			return nil, err
		}
	}
	var out []graph.Same
	for _, m := range g.Merge(pairs, same) {
		s := graph.Same{Key: g.Entities[m.Entity].Key, Into: g.Entities[m.Into].Key, Reason: graph.SameModel}
		if m.By == 1 {
			s.Reason = graph.SameSpelling
		}
		there, err := w.putSame(ctx, g, m, s, all)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, s)
		}
	}
	w.out.Merged = len(out)
	return out, nil
}

// alike finds the pairs to consider, by spelling and by meaning.
func (w *graphRun) alike(ctx context.Context, g *graph.Graph) ([]graph.Pair, error) {
	var vectors [][]float32
	if w.e.cfg.Embedder != nil && len(g.Entities) > 0 {
		names := make([]string, min(len(g.Entities), graph.MaxNear))
		for i := range names {
			names[i] = g.Entities[i].Name
		}
		var err error
		if vectors, err = w.e.vectors(ctx, names, embed.Passage); err != nil {
			return nil, fmt.Errorf("embedding the names of entities: %w", err)
		}
	}
	return g.Alike(vectors, maxPairs), nil
}

// isSame decides about a pair; false when one of its documents was deleted.
func (w *graphRun) isSame(ctx context.Context, g *graph.Graph, p graph.Pair) (same bool, trouble *RunTrouble, err error) {
	if p.Score == 1 {
		return true, nil, nil
	}
	text, of := g.PairText(p.A, p.B)
	documents, _ := cited(g, of)
	trouble, err = w.ask(ctx, Question{Documents: documents, Instruction: sameInstruction, Text: text, MaxTokens: verdict, Version: graphVersion,
		Check: func(answer string) (err error) {
			same, err = graph.ReadVerdict(answer)
			return err
		}}, RunTrouble{DocumentID: documents[0], Layer: graph.LayerSame})
	if errors.Is(err, ErrDocumentGone) {
		return false, nil, nil
	}
	return same && trouble == nil, trouble, err
}

// putSame stores that an entity is the same as another, unless that is stored
// already; false when a document it is based on was deleted.
func (w *graphRun) putSame(ctx context.Context, g *graph.Graph, m graph.Merged, s graph.Same, all *results) (bool, error) {
	_, of := g.PairText(m.Entity, m.Into)
	documents, chunks := cited(g, of)
	name := name32(append([]string{"same", w.salt, s.Key, s.Into, s.Reason}, chunks...)...)
	res, have := all.byName[name]
	if !have {
		var err error
		res, err = w.put(ctx, w.from[documents[0]], taskstore.RunResult{Name: name, Layer: graph.LayerSame, Sources: w.sources(documents)}, []sheaf.Chunk{graph.PackSame(s)}, nil, false)
		if errors.Is(err, ErrDocumentGone) { // the next run handles it
			w.out.Gone++
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	all.keep[res.RangeID] = true
	return true, nil
}
