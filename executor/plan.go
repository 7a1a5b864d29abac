package executor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/flow"
	"sheaf/internal/settings"
	"sheaf/internal/tagset"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// rowsPerPage is how many table rows count as one page for fairness, progress and
// usage: about as many as fit on a printed page.
const rowsPerPage = 50

// Planner runs plan tasks: it opens the file, counts and fingerprints its units, and
// writes the tasks that will read them, with reusable ones already done.
type Planner struct {
	Store   PlanStore
	Files   Files
	Blobs   blob.Store
	Parser  PlanParser
	Formats *parser.Registry
	Model   func() embed.Model // the current embedding model, for the digest; nil for none
	Chat    string             // the chat model, for the digest; "" for none
	Tree    Tree               // bounds of archives
	Tags    tagset.Limits
}

// PlanStore is what planning reads, and where it creates the documents of archive
// files.
type PlanStore interface {
	DocumentByID(ctx context.Context, documentID string) (*sheaf.Document, error)
	GenerationTasks(ctx context.Context, documentID string, generation int) ([]sheaf.Task, error)
	LiveRanges(ctx context.Context, tenantID, documentID string) ([]taskstore.ReusableRange, error)
	ReusableRanges(ctx context.Context, tenantID, prefer string, keys []string) (map[string]taskstore.ReusableRange, error)
	Documents(ctx context.Context, tenantID string, f taskstore.DocumentFilter, p taskstore.Page) ([]sheaf.Document, string, error) // for tag sets
	Flow(ctx context.Context, tenantID, name string, version int) (*taskstore.FlowVersion, error)
	StageTimes(ctx context.Context, tenantID string) (map[string]time.Duration, error)
	Members(ctx context.Context, archiveID string) ([]sheaf.Document, error)
	CreateMembers(ctx context.Context, c sheaf.Claim, ask taskstore.NewMembers) ([]taskstore.MemberOutcome, error)
}

// PlanParser opens documents in a child process.
type PlanParser interface {
	Plan(ctx context.Context, src child.Source) (p *parser.Plan, shardDir string, cleanup func(), err error)
	Unpack(ctx context.Context, src child.Source, from int) (u *parser.Unpacked, dir string, cleanup func(), err error)
}

// Process plans the task's document.
func (p *Planner) Process(ctx context.Context, t *sheaf.Task, doc *sheaf.Document) (done taskstore.Completion, err error) {
	var ask taskstore.PlanPayload
	if len(t.Payload) > 0 {
		if err := json.Unmarshal(t.Payload, &ask); err != nil {
			return done, sheaf.Fail(sheaf.CategoryInternal, "bad_payload", "The plan's payload cannot be read: %v", err)
		}
	}
	if format, ok := p.Formats.ByMediaType(cmp.Or(doc.ParseConfig.MediaType.V, doc.MediaType)); ok {
		if _, holds := format.(parser.Container); holds {
			return p.unpack(ctx, doc, format, ask, t)
		}
	}
	if ask.Continues() {
		return p.planFailed(ctx, doc, ask)
	}
	plan, err := p.plan(ctx, doc, ask, t)
	if err != nil {
		return done, err
	}
	return plan.completion(), nil
}

// DryRun returns the outcome of planning the document. Nothing is stored.
func (p *Planner) DryRun(ctx context.Context, doc *sheaf.Document, ask taskstore.PlanPayload) (taskstore.Completion, error) {
	if ask.Continues() {
		return p.planFailed(ctx, doc, ask)
	}
	plan, err := p.plan(ctx, doc, ask, nil)
	if err != nil {
		return taskstore.Completion{}, err
	}
	return plan.completion(), nil
}

// DocumentPlan is the outcome of planning.
type DocumentPlan struct {
	Result sheaf.PlanResult
	Tasks  []sheaf.NewTask
	Reused sheaf.Reused
}

// completion ends the plan task. Its own result keeps the warnings: publication
// replaces those on the document, and adds them to those of the ranges.
func (p *DocumentPlan) completion() taskstore.Completion {
	return taskstore.Completion{
		Plan: &p.Result, Spawn: p.Tasks,
		Result: sheaf.TaskResult{Warnings: p.Result.Warnings[:min(len(p.Result.Warnings), maxWarnings)]},
	}
}

// plan opens the document and cuts it. t is the task that shards are stored for; nil
// means a dry run, which stores nothing.
func (p *Planner) plan(ctx context.Context, doc *sheaf.Document, ask taskstore.PlanPayload, t *sheaf.Task) (*DocumentPlan, error) {
	program, err := p.program(ctx, doc)
	if err != nil {
		return nil, err
	}
	config := settings.WithDefaults(program.settings(doc.ParseConfig))
	mediaType := doc.MediaType
	if config.MediaType.V != "" {
		mediaType = config.MediaType.V
	}
	format, ok := p.Formats.ByMediaType(mediaType)
	if !ok {
		return nil, parser.Unsupported(doc.Name, mediaType)
	}
	if program != nil {
		if err := p.Formats.Check(config, mediaType); err != nil {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "flow_unfit", "The flow %s does not fit this document: %v.", program.ref, err)
		}
	}
	digest := p.fingerprint(format, config, program.inputs(doc)).Digest() // of what is known before the file is opened
	var tagSet []string
	if len(config.TagKBIDs.V) > 0 {
		if tagSet, err = tagset.Artifacts(ctx, p.Store, p.Tags, doc.TenantID, config.TagKBIDs.V); err != nil {
			return nil, err
		}
	}
	tags := tagsOf(config, tagSet, p.Tags)
	keep := planKey(doc, digest+tags, config)
	// A stored plan holds its settings in plaintext.
	keeps := config.Password.V == ""
	_, calls := format.(parser.Optional) // a program or a service, whose answer may be another now
	if keeps && doc.Generation > 1 && !(ask.Fresh && calls) {
		// The same bytes are cut by the same rules: no need to open the file.
		if out := p.storedPlan(ctx, keep); out != nil {
			if ask.Fresh {
				return out, afresh(out.Tasks)
			}
			live, err := p.live(ctx, doc)
			if err != nil {
				return nil, err
			}
			return out, p.reuse(ctx, doc, out, live)
		}
	}

	var before *openedPlan
	kept := openedKey(doc, format, mediaType, config)
	if calls && keeps && doc.Generation > 1 && !ask.Fresh {
		before = p.openedBefore(ctx, kept)
	}
	var opened *parser.Plan
	var took time.Duration
	shards := ""
	if before != nil {
		opened = before.Plan
	} else {
		var cleanup func()
		if opened, shards, took, cleanup, err = p.open(ctx, doc, format, parser.Options{Name: doc.Name, MediaType: mediaType, Config: config}); err != nil {
			return nil, err
		}
		defer cleanup()
	}
	if opened.Units < 1 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_document", "%s opens but has no pages or rows; check that you uploaded the right file.", doc.Name)
	}

	if err := boundTasks(opened, config, doc.Size); err != nil {
		return nil, err
	}
	if calls && keeps && before == nil && t != nil {
		if before, err = p.keepOpened(ctx, kept, doc, opened, shards); err != nil {
			return nil, err
		}
	}
	pieces, err := cut(opened, config)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "bad_pages", "%v", err)
	}

	// Opening the file takes long enough for ranges read before it to become garbage.
	live, err := p.live(ctx, doc)
	if err != nil {
		return nil, err
	}
	if earlier := earlierCut(live, opened, pieces); earlier != nil {
		pieces = earlier
	}

	// The headings the ranges start under are not known yet.
	continues := len(opened.Outline) == 0 && len(pieces) > 1 && opened.Unit == sheaf.UnitPage && opened.Ranges == nil

	if config.PII.V == "redact" {
		for i := range opened.Outline {
			opened.Outline[i].Title = enrich.Redact(opened.Outline[i].Title, map[string]int{})
		}
		for _, blocks := range opened.Beside {
			for i := range blocks {
				blocks[i].Text = enrich.Redact(blocks[i].Text, map[string]int{})
			}
		}
	}

	out := &DocumentPlan{Result: sheaf.PlanResult{
		Parser: fmt.Sprintf("%s/%d", format.ID(), format.Version()), Unit: opened.Unit, Units: opened.Units,
		Metadata: opened.Metadata, Warnings: opened.Warnings,
	}}
	flowRun, err := p.decide(ctx, program, doc, opened, t)
	if err != nil {
		return nil, err
	}
	if flowRun != nil {
		digest = p.fingerprint(format, config, flowRun.Names).Digest()
	}
	nodes := false
	if flowRun != nil {
		var times map[string]time.Duration
		if program.Mode == flow.ModeAuto {
			if times, err = p.Store.StageTimes(ctx, doc.TenantID); err != nil {
				return nil, fmt.Errorf("measuring nodes: %w", err)
			}
		}
		nodes = out.decided(program, flowRun, times) == flow.ModeNodes
	}
	var graph []sheaf.NewTask // of all nodes of all pieces, in the mode nodes
	for _, piece := range pieces {
		headings, levels := headingsAt(opened.Outline, piece.Range.From)
		payload := taskstore.ParsePayload{
			Format: format.ID(), MediaType: mediaType, SourceKey: doc.BlobKey, SHA256: doc.SHA256, Size: doc.Size,
			Hint: piece.Hint, Beside: besideOf(opened.Beside, piece.Range), Config: config, Headings: headings, HeadingLevels: levels, Continues: continues, TagSet: tagSet, Flow: flowRun,
			Slow: opened.Slow || config.OCRPictures.V,
		}
		if flowRun != nil && flowRun.Warnings != nil {
			flowRun = &taskstore.FlowRun{Ref: flowRun.Ref, Key: flowRun.Key, Skipped: flowRun.Skipped, Names: flowRun.Names, Last: flowRun.Last}
		}
		content := piece.Fingerprint
		if content == 0 {
			content = contentOf(opened.Fingerprints, piece.Range, doc.SHA256)
		}
		key := reuseKey(digest, piece.Range, content, headings, levels, continues, tags)
		if piece.Shard != "" && t != nil {
			stored, ok := before.shard(piece)
			if !ok {
				if stored, err = p.keepShard(ctx, doc, shards, piece); err != nil {
					return nil, err
				}
			}
			of, ok := p.Formats.ByMediaType(piece.MediaType)
			if !ok {
				return nil, fmt.Errorf("no format for shards of type %q", piece.MediaType)
			}
			payload.Format, payload.MediaType = of.ID(), piece.MediaType
			payload.SourceKey, payload.SHA256, payload.Size = stored.Key, stored.SHA256, stored.Size
		}
		raw, err := json.Marshal(payload)
		if err != nil {
			return nil, fmt.Errorf("encoding the payload of units %s: %w", piece.Range, err)
		}
		out.Tasks = append(out.Tasks, sheaf.NewTask{
			ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: opened.Unit, Range: piece.Range, Cost: costOf(piece, opened.Unit),
			ReuseKey: key, Digest: digest, Payload: raw,
		})
		if nodes {
			base := reuseKey(p.fingerprint(format, config, "").Digest(), piece.Range, content, headings, levels, continues, "")
			of, err := program.nodeTasks(out.Tasks[len(out.Tasks)-1], payload, base)
			if errors.Is(err, errLargePayload) && slices.ContainsFunc(program.Nodes, func(n flow.Node) bool { return flow.Writes(n.Kind) }) {
				return nil, sheaf.Fail(sheaf.CategoryPolicy, "flow_unfit", "What describes units %s is larger than a task of a node may carry, and the flow %s has a node that needs one; take the node out.", piece.Range, program.ref)
			} else if errors.Is(err, errLargePayload) {
				nodes, out.Result.Flow.Mode, out.Result.Flow.Tasks = false, string(flow.ModeWhole), flowRun.Last
				out.Result.Flow.Reason = fmt.Sprintf("What describes units %s is larger than a task of a node may carry.", piece.Range)
			} else if err != nil {
				return nil, err
			}
			graph = append(graph, of...)
		}
	}
	if nodes {
		out.Tasks = graph
	}
	// A flow's decisions from measured times may change.
	if keeps && (flowRun != nil || !planQuick(format, took)) && t != nil {
		if err := p.keepPlan(ctx, keep, out); err != nil {
			return nil, err
		}
	}
	if ask.Fresh {
		return out, afresh(out.Tasks)
	}
	return out, p.reuse(ctx, doc, out, live)
}

// afresh has the tasks recognize the text in pictures again.
func afresh(tasks []sheaf.NewTask) error {
	for i := range tasks {
		t := &tasks[i]
		var payload taskstore.ParsePayload
		if err := json.Unmarshal(t.Payload, &payload); err != nil {
			return fmt.Errorf("decoding the payload of units %s: %w", t.Range, err)
		}
		payload.Fresh = true
		var err error
		if t.Payload, err = json.Marshal(payload); err != nil {
			return fmt.Errorf("encoding the payload of units %s: %w", t.Range, err)
		}
	}
	return nil
}

// open has a child process plan the document. Its shards are in a folder that exists
// until cleanup. It took that long, without the wait for a parse slot, which says
// nothing about the document.
func (p *Planner) open(ctx context.Context, doc *sheaf.Document, format parser.Format, options parser.Options) (plan *parser.Plan, shards string, took time.Duration, cleanup func(), err error) {
	if caller, ok := format.(parser.Caller); ok && caller.Calls() {
		leave, err := enterCalls(ctx)
		if err != nil {
			return nil, "", 0, nil, err
		}
		defer leave()
		ctx = withoutSlots(ctx)
	}
	began := time.Now()
	var path string
	var fill blob.Fill
	var release func()
	if _, sparse := format.(parser.Sparse); sparse {
		path, fill, release, err = p.Files.FetchBlocks(ctx, doc.BlobKey, doc.SHA256, doc.Size)
	} else {
		path, release, err = p.Files.Fetch(ctx, doc.BlobKey, doc.SHA256, doc.Size)
	}
	if err != nil {
		return nil, "", 0, nil, fmt.Errorf("fetching %s: %w", doc.Name, err)
	}
	defer release()
	fetched := time.Since(began)
	leave, err := enterSlots(ctx)
	if err != nil {
		return nil, "", 0, nil, err
	}
	defer leave()
	began = time.Now()
	plan, shards, cleanup, err = p.Parser.Plan(ctx, child.Source{
		Path: path, Fill: fill, Format: format.ID(), Key: doc.ID + "/" + fmt.Sprint(doc.Generation) + "/" + doc.BlobKey,
		Options:   options,
		PlanLimit: planLimit(format, doc.Size),
	})
	return plan, shards, fetched + time.Since(began), cleanup, err
}

// quickPlan is what planning takes at most, the fetch of the file included, for a
// plan that is not stored.
const quickPlan = 100 * time.Millisecond

// planQuick reports whether a document that took so long to plan is planned again
// for each version. Most documents are: the next version seldom has the same
// settings, and an object costs its store more than such a plan.
func planQuick(f parser.Format, took time.Duration) bool {
	_, calls := f.(parser.Optional) // a program or a service
	return took <= quickPlan && !calls
}

// A file that takes longer to plan than planTime and planTimePerMB is hostile:
// planning takes seconds, and a minute for a workbook of 100 MB.
const (
	planTime      = 2 * time.Minute
	planTimePerMB = 10 * time.Second
)

// planLimit is how long planning a file of that many bytes may take. Formats that
// need a program or a service have their own timeouts.
func planLimit(f parser.Format, bytes int64) time.Duration {
	if _, ok := f.(parser.Optional); ok {
		return 0
	}
	return planTime + time.Duration(bytes>>20)*planTimePerMB
}

// fingerprint is the Fingerprint of a document in this format; flow is
// FlowRun.Names, "" without a flow.
func (p *Planner) fingerprint(format parser.Format, config sheaf.ParseConfig, flow string) Fingerprint {
	model, window := "", 0
	if p.Model != nil {
		m := p.Model()
		model, window = m.ID, m.Window
	}
	if config.ChunkMethod.V == settings.MethodLate {
		model += fmt.Sprintf(" late/%d", window) // other windows, other vectors
	}
	return Fingerprint{
		Parser: format.ID(), ParserVersion: format.Version(), Chunker: chunker.ID(), ChunkerVersion: chunker.Version(),
		Options: append(slices.Clone(format.Options()), chunker.Options(config.ChunkMethod.V)...), Config: config, Model: model,
		Chat: enrich.Fingerprint(config, p.Chat), Flow: flow,
	}
}

// planKey is the blob key of the plan of these bytes under these rules.
func planKey(doc *sheaf.Document, digest string, config sheaf.ParseConfig) string {
	c, _ := json.Marshal(config) // plain fields always encode
	h := xxhash.Sum64String(doc.BlobKey + "\x00" + doc.SHA256 + "\x00" + digest + "\x00" + string(c))
	return fmt.Sprintf("%s%016x.json", sheaf.PlanPrefix(doc.TenantID, doc.ID, doc.BlobKey), h)
}

// keepPlan stores a plan as it is before reuse is applied.
func (p *Planner) keepPlan(ctx context.Context, key string, plan *DocumentPlan) error {
	b, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("encoding the plan: %w", err)
	}
	_, err = p.Blobs.Put(ctx, key, bytes.NewReader(b), int64(len(b)))
	return err
}

// maxPlanBytes bounds a stored plan: a million rows make one of 200 KB.
const maxPlanBytes = 64 << 20

// storedPlan reads a plan, with new task ids. It returns nil on any problem: the
// document is then planned from the file.
func (p *Planner) storedPlan(ctx context.Context, key string) *DocumentPlan {
	var plan DocumentPlan
	if !p.decode(ctx, key, &plan) || len(plan.Tasks) == 0 {
		return nil
	}
	renewIDs(plan.Tasks)
	return &plan
}

// decode reads a stored plan into v and reports whether it could.
func (p *Planner) decode(ctx context.Context, key string, v any) bool {
	r, err := p.Blobs.Open(ctx, key, 0, -1)
	if err != nil {
		return false
	}
	defer r.Close()
	return json.NewDecoder(io.LimitReader(r, maxPlanBytes)).Decode(v) == nil
}

// live lists the stored ranges of the document's live version.
func (p *Planner) live(ctx context.Context, doc *sheaf.Document) ([]taskstore.ReusableRange, error) {
	if doc.LiveGeneration < 1 {
		return nil, nil
	}
	live, err := p.Store.LiveRanges(ctx, doc.TenantID, doc.ID)
	if err != nil {
		return nil, fmt.Errorf("reading the ranges of the live version: %w", err)
	}
	return live, nil
}

// reuse turns tasks whose result exists into ones that list it (if it is this
// document's) or copy it (if it is another document's of the tenant).
func (p *Planner) reuse(ctx context.Context, doc *sheaf.Document, out *DocumentPlan, live []taskstore.ReusableRange) error {
	missing := map[string]bool{}
	for _, t := range out.Tasks {
		missing[t.ReuseKey] = t.ReuseKey != ""
	}
	found := map[string]taskstore.ReusableRange{}
	for _, r := range slices.Backward(live) { // the newest of a key
		if missing[r.ReuseKey] && (r.Result.Output == nil || !r.Result.Output.Incomplete) {
			found[r.ReuseKey] = r
			delete(missing, r.ReuseKey)
		}
	}
	more, err := p.Store.ReusableRanges(ctx, doc.TenantID, doc.ID, slices.Collect(maps.Keys(missing)))
	if err != nil {
		return fmt.Errorf("looking for reusable ranges: %w", err)
	}
	maps.Copy(found, more)
	if err := p.dropLost(ctx, doc, found); err != nil {
		return err
	}
	for i := range out.Tasks {
		t := &out.Tasks[i]
		old, ok := found[t.ReuseKey]
		if !ok || old.Range != t.Range || old.Result.Output != nil && old.Result.Output.Incomplete {
			continue
		}
		if t.Kind != sheaf.KindDataflow {
			out.Reused.Ranges++
			out.Reused.Pages += t.Cost
			out.Reused.Chunks += old.Result.Chunks
			out.Reused.Tokens += old.Result.Tokens
		}
		result := old.Result
		result.Reused, result.Usage, result.Stages = true, sheaf.Usage{}, nil
		if old.DocumentID == doc.ID {
			t.Done = &result
			continue
		}
		var payload taskstore.ParsePayload
		if err := json.Unmarshal(t.Payload, &payload); err != nil {
			return fmt.Errorf("decoding the payload of units %s: %w", t.Range, err)
		}
		payload.Reuse = &result
		if t.Kind == sheaf.KindParse {
			t.Kind = sheaf.KindIndex
		}
		if t.Payload, err = json.Marshal(payload); err != nil {
			return fmt.Errorf("encoding the payload of units %s: %w", t.Range, err)
		}
	}
	out.Tasks = needed(out.Tasks)
	return nil
}

// dropLost discards results of the document itself whose blobs are gone: they would
// be listed again without being read. Results of other documents are read by a task
// that falls back to parsing.
func (p *Planner) dropLost(ctx context.Context, doc *sheaf.Document, found map[string]taskstore.ReusableRange) error {
	folder := sheaf.ArtifactPrefix(doc.TenantID, doc.ID)
	own := func(old taskstore.ReusableRange) bool {
		return old.DocumentID == doc.ID && strings.HasPrefix(old.Result.ArtifactKey, folder)
	}
	want := map[string]bool{}
	for _, old := range found {
		if own(old) {
			want[old.Result.ArtifactKey] = true
		}
	}
	if len(want) == 0 {
		return nil
	}
	if err := p.Blobs.Children(ctx, folder, func(key string) bool {
		delete(want, key)
		return len(want) > 0
	}); err != nil {
		return fmt.Errorf("looking for the stored results of %s: %w", doc.ID, err)
	}
	maps.DeleteFunc(found, func(_ string, old taskstore.ReusableRange) bool { return own(old) && want[old.Result.ArtifactKey] })
	return nil
}

// planFailed makes a generation that lists everything that generation Base could
// read, or repeats a stage of it, and parses only the unreadable units again.
func (p *Planner) planFailed(ctx context.Context, doc *sheaf.Document, ask taskstore.PlanPayload) (done taskstore.Completion, err error) {
	old, err := p.Store.GenerationTasks(ctx, doc.ID, ask.Base)
	if err != nil {
		return done, err
	}
	result := sheaf.PlanResult{Parser: doc.Parser, Unit: doc.Unit, Units: doc.Units}
	var ledgers []sheaf.Ledger
	for _, t := range old {
		switch {
		case t.State != sheaf.TaskDone:
		case covers(t):
			ledgers = append(ledgers, t.Result.Ledger)
		case t.Kind == sheaf.KindPlan: // the file is not opened again
			result.Warnings = append(result.Warnings, t.Result.Warnings...)
		}
	}
	read := sheaf.MergeLedgers(ledgers...)
	var only []sheaf.Range // the units to retry; nil for all
	if ask.Only != nil {
		only = ask.Only.Select(failedUnits(old))
	}
	for _, t := range old {
		if !covers(t) || t.State == sheaf.TaskSuperseded {
			continue
		}
		if t.State == sheaf.TaskDone {
			r := t.Result
			r.Reused, r.Usage, r.Stages = true, sheaf.Usage{}, nil
			again := sheaf.NewTask{
				ID: sheaf.NewID(), Kind: t.Kind, Unit: t.Unit, Range: t.Range, Cost: t.Cost,
				ReuseKey: t.ReuseKey, Digest: t.Digest, Payload: t.Payload, Done: &r,
			}
			if ask.Stage != "" {
				if err := p.repeatStage(&again, ask.Stage); err != nil {
					return done, err
				}
			}
			done.Spawn = append(done.Spawn, again)
		}
		again := unread(t, read)
		if ask.Only != nil {
			if rest := without(again, only); t.State == sheaf.TaskDead || t.State == sheaf.TaskCanceled {
				done.Spawn = append(done.Spawn, keepFailed(t, rest)...)
			}
			again = sheaf.Overlaps(again, only)
		}
		for _, r := range again {
			if r == t.Range && t.State == sheaf.TaskDone {
				// The same key as the listed task would collide with it: list nothing,
				// read again.
				done.Spawn = done.Spawn[:len(done.Spawn)-1]
			}
			done.Spawn = append(done.Spawn, sheaf.NewTask{
				ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: t.Unit, Range: r, Cost: costShare(t, r),
				Digest: t.Digest, Payload: t.Payload,
			})
		}
	}
	if len(done.Spawn) == 0 {
		// The file was never opened: planning from the start is the only retry.
		plan, err := p.plan(ctx, doc, taskstore.PlanPayload{}, &sheaf.Task{TenantID: doc.TenantID, DocumentID: doc.ID})
		if err != nil {
			return done, err
		}
		return plan.completion(), nil
	}
	return (&DocumentPlan{Result: result, Tasks: done.Spawn}).completion(), nil
}

// repeatStage turns a task that would list a stored result into one that takes its
// chunks, and its vectors unless the stage makes those, and writes them again under
// a range of its own.
func (p *Planner) repeatStage(t *sheaf.NewTask, stage string) error {
	var payload taskstore.ParsePayload
	if err := json.Unmarshal(t.Payload, &payload); err != nil {
		return fmt.Errorf("decoding the payload of units %s: %w", t.Range, err)
	}
	t.Kind, payload.Reuse, t.Done = sheaf.KindIndex, t.Done, nil
	format, known := p.Formats.ByMediaType(payload.MediaType)
	if payload.Embed = stage == taskstore.StageEmbed; payload.Embed && known && t.ReuseKey != "" {
		// The vectors will come from the model configured now.
		flow := ""
		if payload.Flow != nil {
			flow = payload.Flow.Names
		}
		digest := p.fingerprint(format, payload.Config, flow).Digest()
		t.ReuseKey, t.Digest = strings.TrimSuffix(t.ReuseKey, t.Digest)+digest, digest
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("encoding the payload of units %s: %w", t.Range, err)
	}
	t.Payload = raw
	return nil
}

func covers(t sheaf.Task) bool { return t.Kind == sheaf.KindParse || t.Kind == sheaf.KindIndex }

// unread lists the units of a task's range that no result could read.
func unread(t sheaf.Task, read sheaf.Ledger) []sheaf.Range {
	var known sheaf.Ledger
	for _, r := range read {
		if r.Status != sheaf.UnitFailed {
			known = append(known, r)
		}
	}
	return known.Missing([]sheaf.Range{t.Range})
}

// cut decides the ranges: those the format prepared, or pieces of the requested
// units. The pieces partition the request.
func cut(plan *parser.Plan, config sheaf.ParseConfig) ([]parser.PlannedRange, error) {
	wanted, err := sheaf.SelectUnits(config.Pages.V, plan.Units)
	if err != nil {
		return nil, err
	}
	if plan.Ranges == nil {
		size := rangeSize(plan, config, 0)
		var out []parser.PlannedRange
		for _, r := range cutByContent(wanted, size, plan.Fingerprints) {
			out = append(out, parser.PlannedRange{Range: r})
		}
		return out, nil
	}
	var out []parser.PlannedRange
	for _, piece := range plan.Ranges {
		for _, w := range wanted {
			if from, to := max(w.From, piece.Range.From), min(w.To, piece.Range.To); from <= to {
				part := piece
				if part.Range = (sheaf.Range{From: from, To: to}); part.Range != piece.Range {
					part.Cost = max(1, piece.Cost*part.Range.Len()/piece.Range.Len())
				}
				out = append(out, part)
			}
		}
	}
	return out, nil
}

// earlierCut returns the live generation's ranges, if they cover the same units in
// about as many ranges: pages edited in place then change only the range they are
// in. Otherwise it returns nil.
func earlierCut(live []taskstore.ReusableRange, plan *parser.Plan, pieces []parser.PlannedRange) []parser.PlannedRange {
	if plan.Ranges != nil || len(plan.Fingerprints) == 0 || len(pieces) < 2 || len(live) == 0 {
		return nil
	}
	var out []parser.PlannedRange
	for _, r := range live {
		if r.Unit == plan.Unit && covers(sheaf.Task{Kind: r.Kind}) {
			out = append(out, parser.PlannedRange{Range: r.Range})
		}
	}
	slices.SortStableFunc(out, func(a, b parser.PlannedRange) int { return a.Range.From - b.Range.From })
	longest := func(cut []parser.PlannedRange) (n int) {
		for _, c := range cut {
			n = max(n, c.Range.Len())
		}
		return n
	}
	most := longest(pieces) + 1
	byFormat := slices.EqualFunc(pieces, sheaf.CutRanges(runs(pieces), plan.RangeSize), func(p parser.PlannedRange, r sheaf.Range) bool { return p.Range == r })
	if plan.RangeSize > 0 && byFormat {
		most = max(most, formerRange)
	}
	if len(out) > len(pieces)+len(pieces)/4+1 || longest(out) > most || !slices.Equal(runs(out), runs(pieces)) {
		return nil
	}
	return out
}

// formerRange is the number of pages per range that the previous release cut scans
// into. What it recognized is used on.
const formerRange = 12

// runs joins adjacent ranges.
func runs(cut []parser.PlannedRange) []sheaf.Range {
	var out []sheaf.Range
	for _, c := range cut {
		if n := len(out); n > 0 && out[n-1].To+1 == c.Range.From {
			out[n-1].To = c.Range.To
			continue
		}
		out = append(out, c.Range)
	}
	return out
}

// A small file yields few tasks, whatever it declares: beyond freeTasks, each task
// needs at least bytesPerTask of the file. A dozen blank pages take that much.
const (
	freeTasks    = 256
	bytesPerTask = 64
)

// boundTasks refuses, before the tasks are made, a plan with more tasks than a file
// of that many bytes may have.
func boundTasks(plan *parser.Plan, config sheaf.ParseConfig, bytes int64) error {
	tasks := int64(len(plan.Ranges))
	if plan.Ranges == nil {
		wanted, err := sheaf.SelectUnits(config.Pages.V, plan.Units)
		if err != nil {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_pages", "%v", err)
		}
		for _, r := range wanted {
			tasks += int64((r.Len()-1)/max(1, rangeSize(plan, config, r.Len()))) + 1
		}
	}
	if most := freeTasks + bytes/bytesPerTask; tasks > most {
		return sheaf.Fail(sheaf.CategoryPolicy, "too_many_tasks", "The document would be cut into %d tasks, and a file of %d bytes has at most %d. Raise task_page_size or table_rows, or check where the file comes from.", tasks, bytes, most)
	}
	return nil
}

// rangeSize is the maximum number of units per task; all when the format cannot
// split. The default of task_page_size leaves a format that wants fewer pages to it.
func rangeSize(plan *parser.Plan, config sheaf.ParseConfig, all int) int {
	pages := config.TaskPageSize.V
	switch {
	case plan.RangeSize < 1:
		return all
	case plan.Unit != sheaf.UnitPage || pages < 1:
		return plan.RangeSize
	case pages == settings.Default.TaskPageSize.V:
		return min(pages, plan.RangeSize)
	}
	return pages
}

// cutByContent cuts runs into ranges of at most size units. When the units have
// fingerprints, a range ends within the last third of its size, before the unit with
// the smallest one: after an insertion, later ranges soon cover the same units again
// and so hold the same chunks.
func cutByContent(runs []sheaf.Range, size int, prints []uint64) []sheaf.Range {
	if size < 3 || len(prints) == 0 {
		return sheaf.CutRanges(runs, size)
	}
	var out []sheaf.Range
	for _, r := range runs {
		for from := r.From; from <= r.To; {
			to := min(from+size-1, r.To)
			if to < r.To && to < len(prints) {
				best := to
				for end := from + size - 1 - size/3; end < to; end++ {
					if prints[end] < prints[best] { // of the unit after end
						best = end
					}
				}
				to = best
			}
			out = append(out, sheaf.Range{From: from, To: to})
			from = to + 1
		}
	}
	return out
}

func costOf(piece parser.PlannedRange, unit sheaf.Unit) int {
	switch {
	case piece.Cost > 0:
		return piece.Cost
	case unit == sheaf.UnitRow:
		return (piece.Range.Len() + rowsPerPage - 1) / rowsPerPage
	}
	return piece.Range.Len()
}

// besideOf selects the blocks of a range's units.
func besideOf(all map[int][]sheaf.Block, r sheaf.Range) (out map[int][]sheaf.Block) {
	for unit, blocks := range all {
		if unit >= r.From && unit <= r.To {
			if out == nil {
				out = map[int][]sheaf.Block{}
			}
			out[unit] = blocks
		}
	}
	return out
}

// headingsAt returns the heading path in force at the start of a unit, by the
// document's outline. levels is nil when they are 1, 2, 3 …
func headingsAt(outline []sheaf.Heading, unit int) (titles []string, levels []int) {
	var path []sheaf.Heading
	for _, h := range outline {
		if h.Page >= unit {
			// A heading on the unit itself will appear there as a block.
			break
		}
		for len(path) > 0 && path[len(path)-1].Level >= h.Level {
			path = path[:len(path)-1]
		}
		path = append(path, h)
	}
	plain := true
	for i, h := range path {
		titles, levels = append(titles, h.Title), append(levels, h.Level)
		plain = plain && h.Level == i+1
	}
	if plain {
		levels = nil
	}
	return titles, levels
}

// keepShard stores the part of the file that one range needs, so that its task reads
// only that. The key is derived from the source and the content, so that a repeated
// plan writes the same object and none overwrites what an earlier version needs.
func (p *Planner) keepShard(ctx context.Context, doc *sheaf.Document, dir string, piece parser.PlannedRange) (shard, error) {
	f, err := openWritten(dir, piece.Shard)
	if err != nil {
		return shard{}, fmt.Errorf("opening a shard: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return shard{}, fmt.Errorf("opening a shard: %w", err)
	}
	h := xxhash.New()
	fmt.Fprintf(h, "%s/", piece.Range)
	if _, err := io.Copy(h, f); err != nil {
		return shard{}, fmt.Errorf("reading a shard: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return shard{}, fmt.Errorf("reading a shard: %w", err)
	}
	name := fmt.Sprintf("%016x", h.Sum64())
	stored, err := p.Blobs.Put(ctx, sheaf.PlanPrefix(doc.TenantID, doc.ID, doc.BlobKey)+"shards/"+name, f, info.Size())
	if err != nil {
		return shard{}, fmt.Errorf("storing a shard: %w", err)
	}
	return shard{stored.Key, stored.SHA256, stored.Size}, nil
}
