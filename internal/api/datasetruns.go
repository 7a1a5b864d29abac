package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/graph"
	"sheaf/internal/mindmap"
	"sheaf/internal/raptor"
	"sheaf/internal/settings"
	"sheaf/taskstore"
)

// DatasetRun is one run of a kind over the documents that were live in a dataset
// when it started.
type DatasetRun struct {
	ID        string             `json:"id"`
	Kind      sheaf.TaskKind     `json:"kind" enum:"raptor,mindmap,graphrag"`
	State     taskstore.RunState `json:"state" enum:"queued,running,parked,succeeded,partially_succeeded,failed,canceled" doc:"parked: at its budget, with what it has; resume it with a higher one"`
	Cause     string             `json:"cause,omitempty" doc:"why it is parked, partial or failed"`
	Documents int                `json:"documents" doc:"live when it began"`
	Behind    int                `json:"behind" doc:"documents changed, added or removed since, for the next run. Counted only when a single run is read"`

	Phase    string  `json:"phase,omitempty" doc:"what it works on"`
	Done     int     `json:"done" doc:"of the phase"`
	Total    int     `json:"total" doc:"of the phase"`
	Progress float64 `json:"progress" doc:"0–1, of the phase"`
	Tokens   int64   `json:"tokens" doc:"that the chat model read and wrote"`
	Price    float64 `json:"price,omitempty" doc:"of these tokens, where a price is configured"`
	Currency string  `json:"currency,omitempty" doc:"of the price"`
	Calls    int     `json:"calls" doc:"of the chat model"`
	Cached   int     `json:"cached" doc:"answers from the cache"`

	MaxTokens  int64           `json:"max_tokens,omitempty" doc:"that the chat model may read and write; absent: no limit"`
	MaxPrice   float64         `json:"max_price,omitempty" doc:"the same as a price"`
	AutoUpdate string          `json:"auto_update,omitempty" doc:"how long after its end the next run starts automatically if documents changed"`
	Config     json.RawMessage `json:"options,omitempty" doc:"of the kind"`
	Result     json.RawMessage `json:"result,omitempty" doc:"counts, and why something failed or was skipped"`
	TaskID     string          `json:"task_id" doc:"of /v1/tasks/{task}, which has its attempts"`
	CreatedAt  time.Time       `json:"created_at"`
	StartedAt  time.Time       `json:"started_at,omitzero"`
	FinishedAt time.Time       `json:"finished_at,omitzero"`
}

// RunBudget bounds what a run may spend.
type RunBudget struct {
	MaxTokens int64   `json:"max_tokens,omitempty" minimum:"1" doc:"that the chat model may read and write; absent: no limit"`
	MaxPrice  float64 `json:"max_price,omitempty" minimum:"0" doc:"the same as a price, in the currency of price.currency"`
}

// NewRun is the body that starts a run.
type NewRun struct {
	RunBudget
	AutoUpdate string          `json:"auto_update,omitempty" format:"duration" doc:"start the next run automatically this long after this one if documents changed, such as 10m; at least 1m"`
	Options    json.RawMessage `json:"options,omitempty" doc:"of the kind; absent: those of the dataset, of the previous run, or the defaults"`
}

// RunStarted is the response to a run or a dry run.
type RunStarted struct {
	*DatasetRun
	Plan *RunPlan `json:"plan,omitempty" doc:"of a dry run"`
}

// RunPlan is an upper bound on what a run would do.
type RunPlan struct {
	Documents int     `json:"documents" doc:"that are live"`
	Current   int     `json:"current" doc:"of them already done with the same options"`
	Chunks    int64   `json:"chunks" doc:"of the others"`
	Calls     int64   `json:"calls" doc:"of the chat model at most, without community reports and entity resolution of a graph, whose number is not known in advance; cached answers cost none"`
	Tokens    int64   `json:"tokens" doc:"that it would read and write at most"`
	Price     float64 `json:"price,omitempty" doc:"of these, where a price is configured"`
	Currency  string  `json:"currency,omitempty"`
}

// Wiped reports what a wipe removed.
type Wiped struct {
	Runs int `json:"runs" doc:"deleted; what they made is gone from search"`
}

// RunPath names a run.
type RunPath struct {
	DatasetPath
	Run string `path:"run" doc:"id of the run" maxLength:"64"`
}

// runKinds are the kinds that can be started, with what they produce.
var runKinds = []struct {
	kind  sheaf.TaskKind
	makes string
}{{sheaf.KindRaptor, "summaries"}, {sheaf.KindMindmap, "mind maps"}, {sheaf.KindGraphRAG, "a language-model graph"}}

func (s *Server) shownRun(r *taskstore.DatasetRun) *DatasetRun {
	out := &DatasetRun{
		ID: r.ID, Kind: r.Kind, State: r.State, Cause: r.Cause, Documents: r.Documents, Behind: r.Behind, Phase: r.Progress.Phase, Done: r.Progress.Done, Total: r.Progress.Total,
		Tokens: r.Progress.Tokens, Calls: r.Progress.Calls, Cached: r.Progress.Cached, MaxTokens: r.Options.MaxTokens, MaxPrice: r.Options.MaxPrice, Config: r.Options.Config, Result: r.Result,
		TaskID: r.TaskID, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
	out.Price, out.Currency = s.priced(r.Progress.Tokens)
	if r.Options.AutoUpdate > 0 {
		out.AutoUpdate = r.Options.AutoUpdate.String()
	}
	switch {
	case r.State == taskstore.RunSucceeded || r.State == taskstore.RunPartial:
		out.Progress = 1
	case r.Progress.Total > 0:
		out.Progress = float64(r.Progress.Done) / float64(r.Progress.Total)
	}
	return out
}

// budget applies a budget to options.
func (s *Server) budget(b RunBudget, o *taskstore.RunOptions) error {
	o.MaxTokens, o.MaxPrice, o.Price = b.MaxTokens, b.MaxPrice, s.cfg.Prices.PerMillionTokens
	if b.MaxPrice > 0 && o.Price == 0 {
		return newProblem(400, "", "max_price needs the price of the chat model, chat.price_per_million_tokens, which is not configured; bound the run by max_tokens")
	}
	return nil
}

// leastAutoUpdate keeps a constantly changing dataset from being processed without
// a pause.
const leastAutoUpdate = time.Minute

// runOptions reads the options of a requested run. Without options of the kind,
// those of the previous run apply.
func (s *Server) runOptions(ctx context.Context, ds *sheaf.Dataset, kind sheaf.TaskKind, ask NewRun) (o taskstore.RunOptions, same bool, err error) {
	budget := ask.RunBudget
	if budget == (RunBudget{}) {
		if budget, err = budgetIn(ds.ParseConfig, kind); err != nil {
			return o, false, err
		}
	}
	if err := s.budget(budget, &o); err != nil {
		return o, false, err
	}
	if ask.AutoUpdate != "" {
		if o.AutoUpdate, err = time.ParseDuration(ask.AutoUpdate); err != nil || o.AutoUpdate < leastAutoUpdate || o.AutoUpdate > 31*24*time.Hour {
			return o, false, newProblem(400, "", "auto_update must be a duration from 1m to 744h, such as 10m")
		}
	}
	before, _, err := s.cfg.Catalog.Runs(ctx, ds.TenantID, ds.ID, kind, taskstore.Page{Limit: 1})
	if err != nil {
		return o, false, err
	}
	o.Config = ask.Options
	if string(o.Config) == "null" {
		o.Config = nil
	}
	if o.Config == nil {
		o.Config = optionsIn(ds.ParseConfig, kind)
	}
	if o.Config == nil && len(before) > 0 {
		o.Config = before[0].Options.Config
	}
	now, err := readOptions(kind, o.Config)
	if err != nil {
		return o, false, err
	}
	if m := now.graph.Method; m != "" && m != graph.MethodCooccurrence && !s.cfg.Ingest.Chat {
		return o, false, newProblem(409, "no_model", "the method "+m+" asks a language model and none is configured; set chat.url, or leave method out")
	}
	if len(before) > 0 {
		was, err := readOptions(kind, before[0].Options.Config)
		same = err == nil && was.is == now.is
	}
	return o, same, nil
}

// optionsIn returns a kind's options from a dataset's settings, or nil.
func optionsIn(c sheaf.ParseConfig, kind sheaf.TaskKind) (options json.RawMessage) {
	for _, r := range settings.Runs {
		if r.Kind == kind {
			options, _ = r.In(c)
		}
	}
	return options
}

// budgetIn returns the run budget of a kind from a dataset's settings.
func budgetIn(c sheaf.ParseConfig, kind sheaf.TaskKind) (RunBudget, error) {
	for _, r := range settings.Runs {
		if r.Kind == kind {
			b, err := r.BudgetIn(c)
			return RunBudget(b), err
		}
	}
	return RunBudget{}, nil
}

// checkRunSettings rejects run settings that no run could follow.
func (s *Server) checkRunSettings(c sheaf.ParseConfig) error {
	for _, r := range settings.Runs {
		b, err := r.BudgetIn(c)
		if err != nil {
			return newProblem(400, "", "parser_config."+err.Error())
		}
		if err := s.budget(RunBudget(b), &taskstore.RunOptions{}); err != nil {
			return err
		}
		if _, err := readOptions(r.Kind, optionsIn(c, r.Kind)); err != nil {
			return fmt.Errorf("parser_config.%s: %w", r.Name, err)
		}
	}
	return nil
}

// optionsOf holds the options of all kinds of runs.
type optionsOf struct {
	raptor raptor.Options
	graph  graph.RunOptions
	is     string // all of them encoded, for comparison
}

// readOptions validates the options of a kind and fills in defaults.
func readOptions(kind sheaf.TaskKind, config json.RawMessage) (o optionsOf, err error) {
	o.raptor = raptor.Defaults()
	switch kind {
	case sheaf.KindRaptor:
		o.raptor, err = raptor.ReadOptions(config)
	case sheaf.KindGraphRAG:
		o.graph, err = graph.ReadRunOptions(config)
	default:
		var all map[string]any
		if len(config) > 0 && (json.Unmarshal(config, &all) != nil || len(all) > 0) {
			return o, newProblem(400, "", fmt.Sprintf("a run of %s has no options; leave options out", kind))
		}
	}
	b, _ := json.Marshal([]any{o.raptor, o.graph}) // strings and numbers always encode
	o.is = string(b)
	return o, err
}

// planRun estimates the most that a run would do: the model is called once per node
// and reads everything below it.
func (s *Server) planRun(kind sheaf.TaskKind, f taskstore.RunForecast, of optionsOf) *RunPlan {
	p, o := &RunPlan{Documents: f.Documents, Current: f.Current, Chunks: f.Chunks}, of.raptor
	if !s.cfg.Ingest.Chat || of.graph.Method == graph.MethodCooccurrence {
		return p
	}
	if kind == sheaf.KindGraphRAG { // one call per chunk, if the answers are usable
		p.Calls, p.Tokens = f.Chunks, f.Tokens+f.Chunks*graphTokens
		p.Price, p.Currency = s.priced(p.Tokens)
		return p
	}
	answer, read := float64(o.MaxToken), float64(f.Tokens)
	if kind != sheaf.KindRaptor {
		answer = mindmapAnswer
	}
	overhead := float64(len(o.Prompt)/3 + 50)
	nodes := float64(f.Chunks)
	for layer := 1; nodes > 1 && layer <= raptor.MaxLayers; layer++ {
		nodes = math.Ceil(nodes * o.ClusteringRatio)
		p.Calls += int64(nodes)
		p.Tokens += int64(read + nodes*(answer+overhead))
		read = nodes * answer
		if kind != sheaf.KindRaptor { // a mind map only names the nodes of one layer
			break
		}
	}
	p.Price, p.Currency = s.priced(p.Tokens)
	return p
}

// priced returns the cost of tokens, or zero if no price is configured.
func (s *Server) priced(tokens int64) (price float64, currency string) {
	if s.cfg.Prices.PerMillionTokens == 0 {
		return 0, ""
	}
	return float64(tokens) / 1e6 * s.cfg.Prices.PerMillionTokens, s.cfg.Prices.Currency
}

// graphTokens is the maximum tokens of a prompt about a chunk and its answer,
// excluding the chunk.
const graphTokens = 2048 + 150

// mindmapAnswer is the maximum tokens in the name of a node.
const mindmapAnswer = 32

func (s *Server) datasetRunRoutes() {
	for _, k := range runKinds {
		start := post("/v1/datasets/{ds}/"+string(k.kind), "Make "+k.makes+" of a dataset")
		start.Description = "Starts a run over the documents that are live now. What an earlier run made of the same text is kept, and answers of the chat model are not paid for twice. 409 with the id of the run if one of the kind is unfinished."
		start.DefaultStatus = http.StatusAccepted
		handle(s, start, func(ctx context.Context, in *struct {
			DatasetPath
			TraceHeader
			DryRunParam
			Body NewRun
		}) (*accepted[RunStarted], error) {
			ds, err := s.dataset(ctx, in.DatasetPath)
			if err != nil {
				return nil, err
			}
			o, same, err := s.runOptions(ctx, ds, k.kind, in.Body)
			if err != nil {
				return nil, err
			}
			f, err := s.cfg.Catalog.RunForecast(ctx, ds.TenantID, ds.ID, k.kind, same)
			if err != nil {
				return nil, err
			}
			if f.Documents == 0 {
				return nil, newProblem(409, "empty_dataset", "the dataset has no document that can be searched yet; upload some, or wait for those that are being parsed")
			}
			if in.DryRun {
				kindOptions, err := readOptions(k.kind, o.Config)
				return &accepted[RunStarted]{Body: RunStarted{Plan: s.planRun(k.kind, f, kindOptions)}}, err
			}
			r, err := s.cfg.Ingest.StartRun(ctx, taskstore.DatasetRun{TenantID: ds.TenantID, DatasetID: ds.ID, Kind: k.kind, Options: o}, s.taskTrace(ctx, in.Traceparent))
			if err != nil {
				return nil, err
			}
			return &accepted[RunStarted]{Location: "/v1/datasets/" + ds.ID + "/runs/" + r.ID, Body: RunStarted{DatasetRun: s.shownRun(r)}}, nil
		})
		wipe := change(http.MethodDelete, "/v1/datasets/{ds}/"+string(k.kind), "Remove "+k.makes+" of a dataset")
		wipe.Description = "Removes what runs of the kind made, and the runs. 409 while one is unfinished. Answers of the chat model stay until their documents are deleted, so making it again costs nothing."
		handle(s, wipe, func(ctx context.Context, in *DatasetPath) (*output[Wiped], error) {
			ds, err := s.dataset(ctx, *in)
			if err != nil {
				return nil, err
			}
			n, err := s.cfg.Catalog.WipeRuns(ctx, ds.TenantID, ds.ID, k.kind)
			return &output[Wiped]{Wiped{n}}, err
		})
	}
	s.mindmapRoute()
	handle(s, get("/v1/datasets/{ds}/runs", "List runs over a dataset"), func(ctx context.Context, in *struct {
		DatasetPath
		ListInput
		Kind string `query:"kind" enum:"raptor,mindmap,graphrag" doc:"default: all"`
	}) (*output[List[DatasetRun]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		runs, next, err := s.cfg.Catalog.Runs(ctx, ds.TenantID, ds.ID, sheaf.TaskKind(in.Kind), in.page())
		items := make([]DatasetRun, len(runs))
		for i := range runs {
			items[i] = *s.shownRun(&runs[i])
		}
		return listOf(items, next), err
	})
	one := func(ctx context.Context, in RunPath) (*taskstore.DatasetRun, error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		return s.cfg.Catalog.Run(ctx, ds.TenantID, ds.ID, in.Run)
	}
	handle(s, get("/v1/datasets/{ds}/runs/{run}", "Read a run over a dataset"), func(ctx context.Context, in *RunPath) (*output[*DatasetRun], error) {
		r, err := one(ctx, *in)
		if err != nil {
			return nil, err
		}
		return &output[*DatasetRun]{s.shownRun(r)}, nil
	})
	cancel := post("/v1/datasets/{ds}/runs/{run}:cancel", "Stop a run over a dataset")
	cancel.Description = "What it made stays, and a resumed run continues with it. 409 if the run has ended."
	handle(s, cancel, func(ctx context.Context, in *RunPath) (*output[*DatasetRun], error) {
		r, err := one(ctx, *in)
		if err != nil {
			return nil, err
		}
		if _, err := s.cfg.Ingest.CancelRun(ctx, r.TenantID, r.DatasetID, r.ID); err != nil {
			return nil, err
		}
		if r, err = one(ctx, *in); err != nil {
			return nil, err
		}
		return &output[*DatasetRun]{s.shownRun(r)}, nil
	})
	resume := post("/v1/datasets/{ds}/runs/{run}:resume", "Resume a run over a dataset")
	resume.Description = "For the newest run of its kind if it is parked, partial, failed or canceled. The request sets the budget, which includes what was spent before; without one there is no limit."
	resume.DefaultStatus = http.StatusAccepted
	handle(s, resume, func(ctx context.Context, in *struct {
		RunPath
		TraceHeader
		Body RunBudget
	}) (*accepted[*DatasetRun], error) {
		r, err := one(ctx, in.RunPath)
		if err != nil {
			return nil, err
		}
		o := r.Options
		if err := s.budget(in.Body, &o); err != nil {
			return nil, err
		}
		if most := o.Tokens(); r.State == taskstore.RunParked && most > 0 && most <= r.Options.Tokens() {
			return nil, newProblem(409, "budget_spent", fmt.Sprintf("the run stopped at its budget of %d tokens, of which %d are spent; resume it with a higher one", r.Options.Tokens(), r.Progress.Tokens))
		}
		if r, err = s.cfg.Ingest.ResumeRun(ctx, r.TenantID, r.DatasetID, r.ID, o, s.taskTrace(ctx, in.Traceparent)); err != nil {
			return nil, err
		}
		return &accepted[*DatasetRun]{Location: "/v1/datasets/" + r.DatasetID + "/runs/" + r.ID, Body: s.shownRun(r)}, nil
	})
}

// mindmapFile is a mind map served as a file.
type mindmapFile struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// maxMindmaps bounds the documents shown in a dataset's mind map.
const maxMindmaps = 200

func (s *Server) mindmapRoute() {
	op := get("/v1/datasets/{ds}/mindmap", "Read the mind map of a dataset, or of a document")
	op.Description = "What a mindmap run made of the live documents: a tree of at most four levels, each node with the chunks that support it. As JSON, Markdown or SVG. 404 with the code no_mindmap until a run has made one."
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[mindmap.MapNode](), true, "MapNode")}, "text/markdown": {}, "image/svg+xml": {}}}}
	handle(s, op, func(ctx context.Context, in *struct {
		DatasetPath
		Document string `query:"document" maxLength:"64" doc:"id of a document; absent: the dataset, with up to 200 documents"`
		Format   string `query:"format" enum:"json,markdown,svg" default:"json" doc:"format of the mind map"`
	}) (*mindmapFile, error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		if in.Document != "" {
			if _, err := s.document(ctx, DocumentPath{in.DatasetPath, in.Document}); err != nil {
				return nil, err
			}
		}
		tree, err := s.mindmap(ctx, ds, in.Document)
		if err != nil {
			return nil, err
		}
		switch in.Format {
		case "markdown":
			return &mindmapFile{"text/markdown; charset=utf-8", []byte(tree.Markdown())}, nil
		case "svg":
			return &mindmapFile{"image/svg+xml", []byte(tree.SVG())}, nil
		}
		body, err := json.Marshal(tree)
		return &mindmapFile{"application/json", body}, err
	})
}

// mindmap reads the mind map of a document, or joins those of a dataset's documents
// under one root.
func (s *Server) mindmap(ctx context.Context, ds *sheaf.Dataset, document string) (*mindmap.MapNode, error) {
	results, err := s.cfg.Catalog.RunResults(ctx, ds.TenantID, ds.ID, sheaf.KindMindmap, document, "", maxMindmaps)
	if err != nil {
		return nil, err
	}
	root := &mindmap.MapNode{Label: mindmap.Label(ds.Name)}
	for _, r := range results {
		stored, err := artifact.Load(ctx, s.cfg.Blobs, sheaf.ArtifactKey(ds.TenantID, r.DocumentID, r.RangeID))
		if errors.Is(err, sheaf.ErrNotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return nil, err
		}
		tree := mindmap.Load(r.DocumentID, stored.Chunks)
		switch {
		case tree == nil:
		case document != "":
			return tree, nil
		default:
			root.Children = append(root.Children, tree)
		}
	}
	if len(root.Children) == 0 {
		return nil, newProblem(404, "no_mindmap", "no mind map has been made of it yet, or it has no text; begin a run by POST /v1/datasets/{ds}/mindmap")
	}
	return root.Cut(mindmap.Levels), nil
}
