package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/taskstore"
)

// mostPlanned is how many documents a dry run opens; figures for more are scaled and
// marked as estimates.
const mostPlanned = 100

// measuredDocuments is how many of the newest documents of a type are used to
// estimate the chunks per unit.
const measuredDocuments = 200

// Price is what the operator charges; zero means free.
type Price struct {
	Currency             string
	PerThousandPages     float64 // parsed
	PerMillionTokens     float64 // embedded
	PerMillionChatTokens float64 // of questions to a language model and its answers
}

// PlanPreview is a plan that is not carried out.
type PlanPreview struct {
	DocumentID string          `json:"document_id,omitempty"`
	Name       string          `json:"name"`
	MediaType  string          `json:"media_type"`
	Parser     string          `json:"parser,omitempty"`
	Unit       sheaf.Unit      `json:"unit,omitempty"`
	Units      int             `json:"units"`
	Ranges     []PlannedRange  `json:"ranges" nullable:"false"`
	Reused     sheaf.Reused    `json:"reused"`
	Chunks     Expected        `json:"chunks" doc:"chunks of the document, including reused ones"`
	Tokens     Expected        `json:"tokens" doc:"tokens of the document, including reused ones"`
	Warnings   []sheaf.Warning `json:"warnings,omitempty"`
	Failure    *sheaf.Failure  `json:"failure,omitempty"`
	// Flow is how the flow runs, nil for the standard pipeline.
	Flow *sheaf.FlowDecision `json:"flow,omitempty" doc:"how the flow would run; absent for the standard pipeline"`
	// Nodes are those that have tasks of their own.
	Nodes []PlannedNode `json:"nodes,omitempty" doc:"nodes with their own tasks"`
}

// PlannedNode is a node of a flow in a preview.
type PlannedNode struct {
	Node   string `json:"node"`
	Reused int    `json:"reused" doc:"ranges whose output is reused"`
	Run    int    `json:"run" doc:"ranges it would process; 1 for a node over the whole document"`
	// Only for a node that calls a language model.
	Tokens  *Expected    `json:"tokens,omitempty" doc:"tokens of calls to the language model, including stored answers, which cost nothing; absent for a node that calls none"`
	Seconds *float64     `json:"seconds,omitempty" doc:"total duration of its tasks, as measured; absent without measurements"`
	Price   *PriceAnswer `json:"price,omitempty" doc:"price of the tokens, if configured"`
	units   int          // of the ranges it would run for
}

// countNode counts the task of a node.
func (p *PlanPreview) countNode(t *sheaf.NewTask) {
	i := slices.IndexFunc(p.Nodes, func(n PlannedNode) bool { return n.Node == t.Node })
	if i < 0 {
		i = len(p.Nodes)
		p.Nodes = append(p.Nodes, PlannedNode{Node: t.Node})
	}
	var payload taskstore.ParsePayload
	if t.Done != nil || json.Unmarshal(t.Payload, &payload) == nil && payload.Reuse != nil {
		p.Nodes[i].Reused++
	} else {
		p.Nodes[i].Run++
		p.Nodes[i].units += t.Range.Len()
	}
}

// questionTokens is about what a question about a chunk costs besides its text: the
// instruction and the answer.
const questionTokens = 200

// priceNodes estimates the cost of the nodes that would run. In the mode whole, the
// task of a range runs all of them.
func (s *Service) priceNodes(ctx context.Context, doc *sheaf.Document, config sheaf.ParseConfig, p *PlanPreview, known measures) error {
	if p.Flow == nil {
		return nil
	}
	for _, id := range p.Flow.Last {
		p.Nodes = append(p.Nodes, PlannedNode{Node: id, Run: 1, units: p.units()})
	}
	if p.Flow.Mode == "whole" {
		for _, id := range p.Flow.Asks {
			if slices.Contains(p.Flow.Last, id) {
				continue
			}
			n := PlannedNode{Node: id}
			for _, r := range p.Ranges {
				if r.Work != WorkAll {
					n.Reused++
					continue
				}
				n.Run, n.units = n.Run+1, n.units+r.Range.Len()
			}
			p.Nodes = append(p.Nodes, n)
		}
	}
	times, err := s.Catalog.StageTimes(ctx, doc.TenantID)
	if err != nil {
		return fmt.Errorf("measuring nodes: %w", err)
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		at := slices.Index(p.Flow.Nodes, n.Node)
		if at >= 0 && at < len(p.Flow.Kinds) { // a stage is named after its node's kind
			if took, ok := times[p.Flow.Kinds[at]]; ok && n.Run > 0 {
				seconds := took.Seconds() * float64(n.Run)
				n.Seconds = &seconds
			}
		}
		if !slices.Contains(p.Flow.Asks, n.Node) {
			continue
		}
		tokens := exactly(0)
		if n.units > 0 {
			chunks, text, err := s.expect(ctx, doc, config, n.units, known)
			if err != nil {
				return err
			}
			if tokens = (Expected{Estimated: true}); chunks.Count != nil && text.Count != nil {
				tokens = about(float64(*text.Count+questionTokens**chunks.Count), text.Basis+fmt.Sprintf(", and %d tokens for the question and the answer about a chunk", questionTokens))
			}
		}
		n.Tokens = &tokens
		if s.Price.PerMillionChatTokens > 0 && tokens.Count != nil {
			n.Price = &PriceAnswer{Currency: s.Price.Currency, Amount: s.Price.PerMillionChatTokens * float64(*tokens.Count) / 1e6, Estimated: tokens.Estimated}
		}
	}
	return nil
}

// units is the total of all ranges.
func (p *PlanPreview) units() (n int) {
	for _, r := range p.Ranges {
		n += r.Range.Len()
	}
	return n
}

// PlannedRange is one task of a preview.
type PlannedRange struct {
	Range  sheaf.Range `json:"range"`
	Cost   int         `json:"cost"`
	Reused bool        `json:"reused" doc:"earlier parse results are reused"`
	Work   Work        `json:"work" enum:"all,embed,index,none" doc:"all: every stage; embed: new vectors for stored chunks; index: stored chunks and vectors are written to the index; none: the stored result is kept"`
}

// Work is the set of stages that run for a range.
type Work string

const (
	WorkAll   Work = "all"
	WorkEmbed Work = "embed"
	WorkIndex Work = "index"
	WorkNone  Work = "none"
)

// stages lists the executor's stages that a task of that kind spends its time on;
// nil means all.
func (w Work) stages() []string {
	switch w {
	case WorkEmbed:
		return []string{"fetch", "embed", "artifact", "index"}
	case WorkIndex:
		return []string{"fetch", "artifact", "index"}
	}
	return nil
}

// workOf returns what a planned task runs, and the stored result it reuses.
func workOf(t *sheaf.NewTask) (Work, *sheaf.TaskResult) {
	if t.Done != nil {
		return WorkNone, t.Done
	}
	var payload taskstore.ParsePayload
	if t.Kind != sheaf.KindIndex || json.Unmarshal(t.Payload, &payload) != nil || payload.Reuse == nil {
		return WorkAll, nil
	}
	if payload.Embed {
		return WorkEmbed, payload.Reuse
	}
	return WorkIndex, payload.Reuse
}

// Expected is a number that may be unknown before the work is done.
type Expected struct {
	Count     *int   `json:"count" doc:"null: nothing similar has been measured yet"`
	Estimated bool   `json:"estimated" doc:"true unless the number is exact"`
	Basis     string `json:"basis,omitempty" doc:"basis of the estimate"`
}

func exactly(n int) Expected { return Expected{Count: &n} }

func about(n float64, basis string) Expected {
	rounded := int(math.Round(n))
	return Expected{Count: &rounded, Estimated: true, Basis: basis}
}

func (e Expected) plus(o Expected) Expected {
	out := Expected{Estimated: e.Estimated || o.Estimated, Basis: cmp.Or(o.Basis, e.Basis)}
	if e.Count != nil && o.Count != nil {
		n := *e.Count + *o.Count
		out.Count = &n
	}
	return out
}

// Forecast summarizes what a batch action would do.
type Forecast struct {
	Documents int           `json:"documents" doc:"documents that the action would change"`
	Skipped   int           `json:"skipped" doc:"selected, but unchanged because of their state"`
	Planned   int           `json:"planned" doc:"documents opened for this response; the figures of the others are extrapolated"`
	Unplanned int           `json:"unplanned" doc:"of those, documents that cannot be planned; their plan says why"`
	Estimated bool          `json:"estimated" doc:"units, ranges and reuse are extrapolated from the opened documents"`
	Units     int           `json:"units"`
	Unit      sheaf.Unit    `json:"unit,omitempty" doc:"unit; absent if documents differ, or not all were opened"`
	Ranges    int           `json:"ranges"`
	Reused    sheaf.Reused  `json:"reused"`
	Chunks    Expected      `json:"chunks"`
	Tokens    Expected      `json:"tokens"`
	Seconds   sheaf.ETA     `json:"seconds" doc:"including tasks ahead; null if no speed has been measured"`
	Price     *PriceAnswer  `json:"price,omitempty" doc:"price, if configured"`
	Removed   *Removal      `json:"removed,omitempty" doc:"only for a delete"`
	Stopped   *StoppedTasks `json:"stopped,omitempty" doc:"only for a cancel"`
}

// PriceAnswer is the price of the work.
type PriceAnswer struct {
	Currency  string  `json:"currency"`
	Amount    float64 `json:"amount"`
	Estimated bool    `json:"estimated"`
}

// Removal is what a delete would remove.
type Removal struct {
	Generations int   `json:"generations"`
	Chunks      int   `json:"chunks" doc:"searchable chunks"`
	Bytes       int64 `json:"bytes" doc:"bytes of originals"`
}

// StoppedTasks is what a cancel would stop, as it is now.
type StoppedTasks struct {
	Queued  int `json:"queued"`
	Running int `json:"running"`
}

// preview plans a document with the given settings, without running the plan.
func (s *Service) preview(ctx context.Context, doc *sheaf.Document, config sheaf.ParseConfig, ask taskstore.PlanPayload, known measures) (*PlanPreview, error) {
	if s.Planner == nil {
		return nil, fmt.Errorf("%w: this process cannot open files; ask one that runs executors", sheaf.ErrUnavailable)
	}
	d := *doc
	d.Generation++
	d.ParseConfig = config
	out := &PlanPreview{DocumentID: doc.ID, Name: doc.Name, MediaType: doc.MediaType, Ranges: []PlannedRange{}}
	plan, err := s.Planner.DryRun(ctx, &d, ask)
	if err != nil {
		return nil, err
	}
	tasks := plan.Spawn
	out.Parser, out.Unit, out.Units, out.Warnings = plan.Plan.Parser, plan.Plan.Unit, plan.Plan.Units, plan.Plan.Warnings
	out.Flow = plan.Plan.Flow
	left, chunks, tokens := 0, 0, 0 // units to read; contents of the others
	for i := range tasks {
		t := &tasks[i]
		if t.Kind == sheaf.KindDataflow {
			out.countNode(t)
			continue
		}
		work, stored := workOf(t)
		out.Ranges = append(out.Ranges, PlannedRange{Range: t.Range, Cost: t.Cost, Reused: stored != nil, Work: work})
		if stored == nil {
			left += t.Range.Len()
			continue
		}
		chunks, tokens = chunks+stored.Chunks, tokens+stored.Tokens
		out.Reused.Ranges++
		out.Reused.Pages += t.Cost
		out.Reused.Chunks += stored.Chunks
		if work != WorkEmbed { // otherwise they are embedded again
			out.Reused.Tokens += stored.Tokens
		}
	}
	out.Chunks, out.Tokens = exactly(chunks), exactly(tokens)
	if left > 0 {
		chunks, tokens, err := s.expect(ctx, doc, config, left, known)
		if err != nil {
			return nil, err
		}
		out.Chunks, out.Tokens = out.Chunks.plus(chunks), out.Tokens.plus(tokens)
	}
	return out, s.priceNodes(ctx, doc, config, out, known)
}

// measures caches measurements of a dry run, by dataset and type, so that a batch
// queries each once.
type measures map[string]*measure

// measure sums up the finished documents of one type.
type measure struct {
	documents, units, tokens int
	fill                     float64 // chunks per token, times the configured chunk size
}

// expect estimates the contents of a document's units: from the document itself if
// it was read before, otherwise from documents of its type in the dataset. Tokens
// are those of the text, regardless of chunking; the number of chunks depends on
// their size.
func (s *Service) expect(ctx context.Context, doc *sheaf.Document, config sheaf.ParseConfig, units int, known measures) (chunks, tokens Expected, err error) {
	m, basis := &measure{}, "the current version"
	if doc.LiveGeneration > 0 {
		m.add(doc)
	}
	if m.units == 0 {
		key := doc.DatasetID + "/" + doc.MediaType
		if m = known[key]; m == nil {
			if m, err = s.measure(ctx, doc); err != nil {
				return chunks, tokens, err
			}
			known[key] = m
		}
		if basis = fmt.Sprintf("%d documents of its type in this dataset", m.documents); m.documents == 1 {
			basis = "one document of its type in this dataset"
		}
	}
	if m.units == 0 {
		return Expected{Estimated: true}, Expected{Estimated: true}, nil
	}
	n := float64(m.tokens) / float64(m.units) * float64(units)
	size := float64(settings.WithDefaults(config).ChunkTokenNum.V)
	return about(max(n*m.fill/size, 1), basis), about(n, basis), nil
}

func (s *Service) measure(ctx context.Context, doc *sheaf.Document) (*measure, error) {
	docs, _, err := s.Catalog.Documents(ctx, doc.TenantID, taskstore.DocumentFilter{
		DatasetID: doc.DatasetID, MediaTypes: []string{doc.MediaType}, States: []sheaf.DocumentState{sheaf.DocSucceeded, sheaf.DocPartiallySucceeded},
	}, taskstore.Page{Limit: measuredDocuments})
	if err != nil {
		return nil, fmt.Errorf("measuring documents of type %s: %w", doc.MediaType, err)
	}
	m := &measure{}
	for i := range docs {
		m.add(&docs[i])
	}
	return m, nil
}

// add counts the contents of a live document. It assumes the settings last
// requested; a new version still in progress does not count.
func (m *measure) add(d *sheaf.Document) {
	read := d.Ledger.OK + d.Ledger.OCR + d.Ledger.Blank
	if d.LiveGeneration == 0 || read == 0 || d.Tokens == 0 {
		return
	}
	size := float64(settings.WithDefaults(d.ParseConfig).ChunkTokenNum.V)
	m.fill = (m.fill*float64(m.tokens) + float64(d.Chunks)*size) / float64(m.tokens+d.Tokens)
	m.documents++
	m.units += read
	m.tokens += d.Tokens
}

// forecast sums the plans of a batch. total documents were selected for a change,
// and the first of them were planned.
func (s *Service) forecast(ctx context.Context, tenantID string, plans []PlanPreview, total int) (*Forecast, error) {
	out := &Forecast{Documents: total, Planned: len(plans), Chunks: exactly(0), Tokens: exactly(0)}
	loads, planned := map[load]amount{}, 0
	units := map[sheaf.Unit]bool{}
	for _, p := range plans {
		if p.Failure != nil {
			out.Unplanned++
			continue
		}
		planned++
		out.Units += p.Units
		units[p.Unit] = true
		out.Ranges += len(p.Ranges)
		out.Reused.Ranges += p.Reused.Ranges
		out.Reused.Pages += p.Reused.Pages
		out.Reused.Chunks += p.Reused.Chunks
		out.Reused.Tokens += p.Reused.Tokens
		out.Chunks, out.Tokens = out.Chunks.plus(p.Chunks), out.Tokens.plus(p.Tokens)
		for _, r := range p.Ranges {
			if l := (load{r.Work, p.MediaType}); l.Work != WorkNone {
				loads[l] = amount{loads[l].cost + r.Cost, loads[l].tasks + 1}
			}
		}
	}
	if len(units) == 1 && total == len(plans) {
		for u := range units {
			out.Unit = u
		}
	}
	if total > len(plans) && planned > 0 {
		out.Estimated = true
		by := float64(total) / float64(len(plans))
		scaled := func(n int) int { return int(math.Round(float64(n) * by)) }
		for _, n := range []*int{&out.Units, &out.Ranges, &out.Reused.Ranges, &out.Reused.Pages, &out.Reused.Chunks, &out.Reused.Tokens} {
			*n = scaled(*n)
		}
		for l, n := range loads {
			loads[l] = amount{scaled(n.cost), scaled(n.tasks)}
		}
		for _, e := range []*Expected{&out.Chunks, &out.Tokens} {
			if e.Count != nil {
				*e = about(float64(*e.Count)*by, strings.TrimPrefix(e.Basis+", and the first documents of the selection", ", and "))
			}
		}
	}
	var err error
	if out.Seconds, err = s.expectTime(ctx, tenantID, loads); err != nil {
		return nil, err
	}
	full := 0
	for l, n := range loads {
		if l.Work == WorkAll {
			full += n.cost
		}
	}
	out.Price = s.charge(full, out)
	return out, nil
}

// load is work on documents of one media type.
type load struct {
	Work
	mediaType string
}

// amount is how much of a load there is.
type amount struct{ cost, tasks int }

// expectTime is how long work of those costs will take, each kind at the measured
// speed of its stages on documents of the type, after the tenant's waiting work. It is
// zero for no work, and unknown while nothing like most of it has been measured.
func (s *Service) expectTime(ctx context.Context, tenantID string, loads map[load]amount) (sheaf.ETA, error) {
	var p50, p90 float64
	add := func(n amount, pace taskstore.Pace) (known bool) {
		e := estimate(taskstore.Remaining{Own: n.cost, Tasks: n.tasks, Like: pace})
		if e.P50 != nil {
			p50, p90 = p50+*e.P50, p90+*e.P90
		}
		return e.P50 != nil
	}
	speed := func(stages ...string) (map[string]taskstore.Pace, error) {
		paces, err := s.Catalog.Speed(ctx, stages...)
		if err != nil {
			return nil, fmt.Errorf("measuring the speed: %w", err)
		}
		return paces, nil
	}
	own, measured := 0, 0
	for _, w := range []Work{WorkAll, WorkEmbed, WorkIndex} {
		var paces map[string]taskstore.Pace // read once, where there is such work
		for l, n := range loads {
			if l.Work != w || n.cost == 0 {
				continue
			}
			if paces == nil {
				var err error
				if paces, err = speed(w.stages()...); err != nil {
					return sheaf.ETA{}, err
				}
			}
			if own += n.cost; add(n, paces[l.mediaType]) {
				measured += n.cost
			}
		}
	}
	if own == 0 {
		return sheaf.ETA{P50: &p50, P90: &p90}, nil
	}
	if measured < (own+1)/2 {
		return sheaf.ETA{}, nil
	}
	rest := float64(own) / float64(measured)
	p50, p90 = p50*rest, p90*rest
	queue, err := s.Catalog.Queue(ctx, tenantID)
	if err != nil {
		return sheaf.ETA{}, fmt.Errorf("measuring what waits: %w", err)
	}
	var ahead amount
	for _, l := range queue.Lanes {
		if l.Lane <= sheaf.LaneNormal {
			ahead = amount{ahead.cost + l.Cost, ahead.tasks + l.Pending}
		}
	}
	paces, err := speed()
	if err != nil {
		return sheaf.ETA{}, err
	}
	add(ahead, paces[""])
	return sheaf.ETA{P50: &p50, P90: &p90}, nil
}

// charge is nil when no price is configured, or when its inputs are unknown.
func (s *Service) charge(cost int, f *Forecast) *PriceAnswer {
	p := s.Price
	if p.PerThousandPages == 0 && p.PerMillionTokens == 0 {
		return nil
	}
	out := &PriceAnswer{Currency: p.Currency, Amount: p.PerThousandPages * float64(cost) / 1000, Estimated: f.Estimated}
	if p.PerMillionTokens > 0 {
		if f.Tokens.Count == nil {
			return nil
		}
		out.Amount += p.PerMillionTokens * float64(max(*f.Tokens.Count-f.Reused.Tokens, 0)) / 1e6
		out.Estimated = out.Estimated || f.Tokens.Estimated
	}
	return out
}

// previewAll plans the first of the documents that decide accepts.
func (s *Service) previewAll(ctx context.Context, tenantID string, docs documentPages, decide decision) ([]PlanPreview, *Forecast, error) {
	known := measures{}
	var plans []PlanPreview
	total, skipped := 0, 0
	if err := docs(ctx, func(some []sheaf.Document) error {
		for i := range some {
			config, ask, ok := decide(&some[i])
			if !ok {
				skipped++
				continue
			}
			if total++; total > mostPlanned {
				continue
			}
			p, err := s.previewOne(ctx, tenantID, &some[i], config, ask, known)
			if err != nil {
				return err
			}
			plans = append(plans, *p)
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	f, err := s.forecast(ctx, tenantID, plans, total)
	if f != nil {
		f.Skipped = skipped
	}
	return plans, f, err
}

// previewOne plans a document whose settings are valid for its type. If planning
// fails, the preview contains the failure.
func (s *Service) previewOne(ctx context.Context, tenantID string, d *sheaf.Document, config sheaf.ParseConfig, ask taskstore.PlanPayload, known measures) (*PlanPreview, error) {
	found, err := s.findType(ctx, d, config)
	if err != nil {
		return nil, err
	}
	d.MediaType = cmp.Or(found, d.MediaType)
	if err := s.CheckConfig(config, d.MediaType); err != nil {
		return nil, err
	}
	if err := s.CheckNamed(ctx, tenantID, config); err != nil {
		return nil, err
	}
	p, err := s.preview(ctx, d, config, ask, known)
	if err != nil {
		p = &PlanPreview{DocumentID: d.ID, Name: d.Name, MediaType: d.MediaType, Ranges: []PlannedRange{}, Failure: sheaf.AsFailure(err, "plan")}
	}
	return p, nil
}

// DryRunStaged previews files that are not documents yet.
func (s *Service) DryRunStaged(ctx context.Context, dataset *sheaf.Dataset, staged []*Staged) ([]PlanPreview, *Forecast, error) {
	docs := make([]sheaf.Document, len(staged))
	for i, st := range staged {
		docs[i] = st.Document
	}
	plans, f, err := s.previewAll(ctx, dataset.TenantID, these(docs), ReparseRequest{}.decision(dataset))
	for i := range plans {
		plans[i].DocumentID = "" // a new id will be assigned
	}
	return plans, f, err
}

// DryRunReparse previews a re-parse.
func (s *Service) DryRunReparse(ctx context.Context, dataset *sheaf.Dataset, r ReparseRequest) ([]PlanPreview, *Forecast, error) {
	return s.previewAll(ctx, dataset.TenantID, s.selected(dataset, r.Filter), r.decision(dataset))
}

// DryRunRetry previews a retry, limited to some units if only names any.
func (s *Service) DryRunRetry(ctx context.Context, dataset *sheaf.Dataset, filter taskstore.DocumentFilter, scope RetryScope, only taskstore.RetryOnly) ([]PlanPreview, *Forecast, error) {
	if !only.Empty() {
		docs, decide, err := s.unitsOf(ctx, dataset, filter, only)
		if err != nil {
			return nil, nil, err
		}
		return s.previewAll(ctx, dataset.TenantID, these(docs), decide)
	}
	decide, err := retryOf(scope)
	if err != nil {
		return nil, nil, err
	}
	return s.previewAll(ctx, dataset.TenantID, s.selected(dataset, filter), decide)
}

// DryRunRetryJob previews a retry of what a job made.
func (s *Service) DryRunRetryJob(ctx context.Context, tenantID, jobID string, scope RetryScope) ([]PlanPreview, *Forecast, error) {
	decide, err := retryOf(scope)
	if err != nil {
		return nil, nil, err
	}
	return s.previewAll(ctx, tenantID, s.ofJob(tenantID, jobID), decide)
}

// DryRunCancel reports what a cancel would stop.
func (s *Service) DryRunCancel(ctx context.Context, dataset *sheaf.Dataset, filter taskstore.DocumentFilter) (*Forecast, error) {
	return s.stopped(ctx, dataset.TenantID, s.withMembers(dataset, filter), func(d *sheaf.Document) bool { return !d.State.Terminal() })
}

// DryRunCancelJob reports what CancelJob would stop, however many documents the job
// has.
func (s *Service) DryRunCancelJob(ctx context.Context, tenantID, jobID string) (*Forecast, error) {
	return s.stopped(ctx, tenantID, s.ofJob(tenantID, jobID), func(d *sheaf.Document) bool { return stopsWith(d, jobID) })
}

func (s *Service) stopped(ctx context.Context, tenantID string, docs documentPages, stops func(*sheaf.Document) bool) (*Forecast, error) {
	out := &Forecast{Stopped: &StoppedTasks{}}
	err := docs(ctx, func(some []sheaf.Document) error {
		var ids []string
		for i := range some {
			if stops(&some[i]) {
				ids = append(ids, some[i].ID)
			}
		}
		queued, running, err := s.Catalog.OpenTasks(ctx, tenantID, ids)
		out.Documents += len(ids)
		out.Skipped += len(some) - len(ids)
		out.Stopped.Queued += queued
		out.Stopped.Running += running
		return err
	})
	return out, err
}

// DryRunDelete reports what a delete would remove.
func (s *Service) DryRunDelete(ctx context.Context, dataset *sheaf.Dataset, filter taskstore.DocumentFilter) (*Forecast, error) {
	return removed(ctx, s.withMembers(dataset, filter))
}

// DryRunDeleteDataset reports what DeleteDataset would remove, however many
// documents there are.
func (s *Service) DryRunDeleteDataset(ctx context.Context, dataset *sheaf.Dataset) (*Forecast, error) {
	return removed(ctx, s.selected(dataset, taskstore.DocumentFilter{}))
}

func removed(ctx context.Context, docs documentPages) (*Forecast, error) {
	out := &Forecast{Removed: &Removal{}}
	return out, docs(ctx, func(some []sheaf.Document) error {
		out.remove(some)
		return nil
	})
}

func (f *Forecast) remove(docs []sheaf.Document) {
	f.Documents += len(docs)
	for _, d := range docs {
		f.Units += d.Units
		f.Removed.Generations += d.Generation
		f.Removed.Chunks += d.Chunks
		f.Removed.Bytes += d.Size
	}
}

// withMembers passes on what a filter selects, and the members of the archives among
// it, each once: cancel and delete include them.
func (s *Service) withMembers(dataset *sheaf.Dataset, f taskstore.DocumentFilter) documentPages {
	return func(ctx context.Context, each func([]sheaf.Document) error) error {
		seen := map[string]bool{}
		var pass func([]sheaf.Document) error
		pass = func(docs []sheaf.Document) error {
			docs = slices.DeleteFunc(docs, func(d sheaf.Document) bool {
				again := seen[d.ID]
				seen[d.ID] = true
				return again
			})
			if len(seen) > maxIDs {
				return tooMany(maxIDs)
			}
			if err := each(docs); err != nil {
				return err
			}
			for _, d := range docs {
				format, ok := s.Formats.ByMediaType(cmp.Or(d.ParseConfig.MediaType.V, d.MediaType))
				if _, holds := format.(parser.Container); !ok || !holds {
					continue
				}
				if err := s.selected(dataset, taskstore.DocumentFilter{ParentID: d.ID})(ctx, pass); err != nil {
					return err
				}
			}
			return nil
		}
		return s.selected(dataset, f)(ctx, pass)
	}
}
