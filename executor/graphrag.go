package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/internal/graph"
	"sheaf/taskstore"
)

// GraphRAG is the kind of run that has a language model read the entities and
// relations of each chunk, and where it is asked for, report on the communities
// that they form. Each document has one result with what was said of its chunks,
// from which package graphs makes the graph; it goes with the document. A report
// is a result of the documents whose words the model read for it. Nothing of it is
// indexed: what search finds in a graph are chunks.
type GraphRAG struct{}

// graphVersion changes with what this code asks of the same chunks.
const graphVersion = 1

const (
	graphAnswer  = 2048   // tokens of what is said of a chunk
	reportAnswer = 1024   // tokens of a report
	graphText    = 24_000 // bytes of a chunk that the model reads
	maxReports   = 5000   // of a dataset, for the communities of the highest rank
)

const (
	graphInstruction = `You extract a knowledge graph from text. Answer with one JSON object alone: {"entities": [{"name": "", "type": "", "description": ""}], "relations": [{"source": "", "target": "", "description": ""}]}. ` +
		`Types are: %s. Names are as the text writes them; source and target are names of entities. A description is one sentence of what the text says, in its language. Where the text names nothing, both lists are empty.`
	nerInstruction    = `You name the entities of a text. Answer with one JSON object alone: {"entities": [{"name": "", "type": ""}]}. Types are: %s. Names are as the text writes them. Where the text names nothing, the list is empty.`
	reportInstruction = `You report on a community of entities of a knowledge graph. Say nothing that the lists do not say. Answer in their language, with one JSON object alone: ` +
		`{"title": "", "summary": "", "rating": 0, "rating_explanation": "", "findings": [{"summary": "", "explanation": ""}]}. rating is 0 to 10: how much the community matters.`
	graphAgain = "\n\n(Your answer before was not the JSON object that was asked for. Answer with that object alone.)"
)

// GraphResult is what a run of graphrag came to.
type GraphResult struct {
	Method      string   `json:"method"`
	Documents   int      `json:"documents"` // whose chunks the model has read
	Made        int      `json:"made"`      // of them in this attempt
	Kept        int      `json:"kept"`
	Chunks      int      `json:"chunks"` // that this attempt had read
	Entities    int      `json:"entities,omitempty"`
	Relations   int      `json:"relations,omitempty"`
	Communities int      `json:"communities,omitempty"` // of the finest level, of two entities and more
	Reports     int      `json:"reports,omitempty"`
	Gone        int      `json:"gone,omitempty"`    // documents that went or changed meanwhile
	Failed      int      `json:"failed,omitempty"`  // chunks, which rules read for now, and reports
	Reasons     troubles `json:"reasons,omitempty"` // of some of them
}

// graphRun is one run at work.
type graphRun struct {
	*DatasetRun
	opt  graph.RunOptions
	salt string
	all  []graph.Contribution // of what the model said, for reports alone
	from map[string]taskstore.RunDocument
	out  GraphResult
}

// Run implements RunKind.
func (GraphRAG) Run(ctx context.Context, r *DatasetRun) (end taskstore.RunEnd, err error) {
	opt, err := graph.ReadRunOptions(r.Options.Config)
	if err != nil {
		return end, sheaf.Fail(sheaf.CategoryPolicy, "bad_options", "%s", sheaf.AsFailure(err, "").Message)
	}
	switch {
	case opt.Method == "" && r.Asks() == "":
		opt.Method = graph.MethodCooccurrence
	case opt.Method == "":
		opt.Method = graph.MethodLight
	case opt.Method != graph.MethodCooccurrence && r.Asks() == "":
		return end, sheaf.Fail(sheaf.CategoryPolicy, "no_model", "The method %s asks a language model and none is configured. Set chat.url, or begin a run with the method cooccurrence.", opt.Method)
	}
	// Between light and general nothing is asked otherwise of a chunk.
	b, _ := json.Marshal([]any{graphVersion, opt.Method == graph.MethodNER, opt.EntityTypes, r.Asks()}) // always encodes
	w := &graphRun{DatasetRun: r, opt: opt, salt: string(b), from: map[string]taskstore.RunDocument{}, out: GraphResult{Method: opt.Method}}
	err = w.run(ctx)
	end.Result, _ = json.Marshal(w.out) // strings and numbers always encode
	if err == nil && w.out.Failed > 0 {
		end.State = taskstore.RunPartial
		end.Cause = fmt.Sprintf("The model gave no usable answer to %d questions; rules read these chunks for now. Resume the run to ask again.", w.out.Failed)
	}
	return end, err
}

func (w *graphRun) run(ctx context.Context) error {
	if w.opt.Method == graph.MethodCooccurrence { // of which nothing is stored
		there, err := w.Results(ctx)
		if err != nil {
			return err
		}
		return w.dropOthers(ctx, &results{there: there})
	}
	name := func(d taskstore.RunDocument) string {
		return name32("graph", w.salt, d.ID, strconv.Itoa(d.Generation), strconv.Itoa(d.Version))
	}
	var docs []taskstore.RunDocument
	var read []taskstore.RunResult
	all, gone, err := w.eachDocument(ctx, name, w.document, func(d taskstore.RunDocument, res taskstore.RunResult, kept bool) {
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
	if w.opt.Reports() {
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
		if err := w.reports(ctx, all, splits); err != nil {
			return err
		}
	}
	return w.dropOthers(ctx, all)
}

// readBy reports whether a model reads a chunk: not what is code, or says once
// more what others say.
func readBy(c *sheaf.Chunk) bool {
	return (c.Role == "" || c.Role == sheaf.RoleChild) && c.Kind != sheaf.ChunkCode && c.Kind != sheaf.ChunkSummary && strings.TrimSpace(c.Text) != ""
}

// document has the model read the chunks of a document, and stores what it said.
func (w *graphRun) document(ctx context.Context, d taskstore.RunDocument, name string, instead []string) (res taskstore.RunResult, made bool, err error) {
	chunks, _, err := w.Chunks(ctx, d)
	if err != nil {
		return res, false, err
	}
	chunks = slices.DeleteFunc(chunks, func(c sheaf.Chunk) bool { return !readBy(&c) })
	said, trouble := make([]*graph.Said, len(chunks)), make([]*RunTrouble, len(chunks))
	if err := askAll(len(chunks), func(i int) (err error) {
		said[i], trouble[i], err = w.read(ctx, d.ID, &chunks[i])
		return err
	}); err != nil {
		return res, false, err
	}
	var out []sheaf.Chunk
	for i := range chunks {
		if trouble[i] != nil {
			w.out.Failed++
			w.out.Reasons.add(*trouble[i])
			continue
		}
		w.out.Chunks++
		c := graph.Pack(*said[i], &chunks[i])
		c.Ordinal = len(out)
		out = append(out, c)
	}
	if len(out) < len(chunks) {
		name += failedMark
	}
	res, err = w.put(ctx, d, taskstore.RunResult{Name: name, Sources: []taskstore.RunSource{{DocumentID: d.ID, Generation: d.Generation, Version: d.Version}}}, out, instead, false)
	return res, err == nil, err
}

// read has the model read one chunk.
func (w *graphRun) read(ctx context.Context, documentID string, c *sheaf.Chunk) (*graph.Said, *RunTrouble, error) {
	instruction := graphInstruction
	if w.opt.Method == graph.MethodNER {
		instruction = nerInstruction
	}
	var said graph.Said
	q := Question{Documents: []string{documentID}, Instruction: fmt.Sprintf(instruction, strings.Join(w.opt.EntityTypes, ", ")), Text: clipText(c.Text, graphText), MaxTokens: graphAnswer, Version: graphVersion,
		Check: func(answer string) (err error) {
			said, err = graph.ReadSaid(answer, w.opt.EntityTypes)
			return err
		}}
	trouble, err := w.ask(ctx, q, RunTrouble{DocumentID: documentID, ChunkID: c.ID})
	if err == nil && w.opt.Method == graph.MethodNER {
		said.Relate(c.Text, c.Kind == sheaf.ChunkTable)
	}
	return &said, trouble, err
}

// ask asks until the answer is of use, or it was asked as often as it may. Then
// that is a trouble, and no error.
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

// reports has the model report on the communities of each component.
func (w *graphRun) reports(ctx context.Context, all *results, splits *graph.Splits) error {
	g := graph.Build(w.all, graph.Options{Splits: splits})
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
				if errors.Is(err, ErrDocumentGone) { // the next run has it
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

// report is one that is to be stored, or that is there.
type report struct {
	kept   string // its range where it is there
	anchor taskstore.RunDocument
	result taskstore.RunResult
	chunks []sheaf.Chunk
}

// report has the model report on one community; nil where a document of it went.
func (w *graphRun) report(ctx context.Context, g *graph.Graph, community int32, all *results) (*report, *RunTrouble, error) {
	text, of := g.ReportText(community)
	var said graph.Report
	var documents []string
	parts := []string{"report", w.salt, text}
	for _, at := range of {
		src := g.Sources[at]
		parts = append(parts, src.ChunkID)
		if !slices.Contains(documents, src.DocumentID) {
			documents = append(documents, src.DocumentID)
		}
	}
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
		}}, RunTrouble{DocumentID: documents[0], Layer: 1})
	switch {
	case errors.Is(err, ErrDocumentGone):
		return nil, nil, nil
	case err != nil || trouble != nil:
		return nil, trouble, err
	}
	r := &report{anchor: w.from[documents[0]], result: taskstore.RunResult{Name: name, Layer: 1}}
	said.Entities = members
	for _, at := range of {
		said.Sources = append(said.Sources, g.Sources[at])
	}
	for _, id := range documents {
		d := w.from[id]
		r.result.Sources = append(r.result.Sources, taskstore.RunSource{DocumentID: d.ID, Generation: d.Generation, Version: d.Version})
	}
	b, err := json.Marshal(said)
	r.chunks = []sheaf.Chunk{{Kind: sheaf.ChunkText, Text: string(b), Layer: 1}}
	return r, nil, err
}
