package executor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/index"
	"sheaf/internal/settings"
	"sheaf/internal/worker"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// Limits on document metadata copied to each chunk as a filter.
const (
	maxMetadataPairs = 32
	maxMetadataValue = 256 // bytes
)

// processParse processes a range: bytes → units → chunks → vectors → artifact →
// index. Each stage has its own slots, so that one task can parse while another
// embeds. The artifact is written before the index, so the index can always be
// rebuilt.
func (e *Executor) processParse(ctx context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
	payload, err := parsePayload(t)
	if err != nil {
		return done, err
	}
	doc, err := e.recent.document(ctx, t)
	if err != nil {
		return done, err
	}
	run := e.newRun(t)
	if e.model != nil && enrich.Fingerprint(payload.Config, e.cfg.Chat.Model()) != "" {
		if err := e.breakers.chat.TurnBack(); err != nil {
			return done, err
		}
	}

	if payload.Flow != nil && len(payload.Flow.From) > 0 {
		made, result, err := e.nodeOutputs(ctx, run, t, payload)
		if err != nil {
			return done, err
		}
		if made != nil {
			return e.finishRange(ctx, run, doc, payload, made, result)
		}
	}
	chunks, result, err := e.readRange(ctx, run, doc, payload)
	if err != nil {
		return done, err
	}
	var warnings []sheaf.Warning
	if payload.Flow == nil {
		warnings, err = e.enrichChunks(ctx, run, doc, chunks, payload.Config)
	} else {
		chunks, warnings, err = e.runFlow(ctx, run, doc, chunks, result.Outline, payload)
	}
	if err != nil {
		return done, err
	}
	result.Warnings = append(result.Warnings, warnings...)
	return e.finishRange(ctx, run, doc, payload, chunks, result)
}

// readRange parses the task's range and cuts it into chunks.
func (e *Executor) readRange(ctx context.Context, run *run, doc *sheaf.Document, payload *taskstore.ParsePayload) (chunks []sheaf.Chunk, result sheaf.TaskResult, err error) {
	t := run.task
	told := func([]sheaf.Heading, bool) {}
	if payload.Continues {
		told = e.outlines.begin(t)
		defer told(nil, false)
	}
	units, free, err := e.parseUnits(ctx, run, doc, payload)
	if err != nil {
		return nil, result, err
	}
	defer free()
	result = sheaf.TaskResult{RangeID: run.rangeID, Ledger: ledgerOf(units), Warnings: warningsOf(units), Layout: layoutOf(units)}

	headings := payload.Headings
	if mode := payload.Config.PII.V; mode == "find" || mode == "redact" {
		headings = slices.Clone(headings)
		found, err := enrich.PersonalData(ctx, units, headings, mode == "redact")
		if err != nil {
			return nil, result, err
		}
		result.Warnings = append(result.Warnings, found...)
	}

	err = run.stage(ctx, "chunk", func(ctx context.Context) error {
		headings, levels := headings, payload.HeadingLevels
		if payload.Continues { // the headings before it are prepended below
			result.Outline, headings, levels = &sheaf.RangeOutline{}, nil, nil
		}
		in := chunker.Input{
			Outline:    result.Outline,
			Embed:      func(texts []string) ([][]float32, error) { return e.vectors(ctx, texts, embed.Passage) },
			DocumentID: doc.ID, Generation: t.Generation, RangeID: run.rangeID, Range: t.Range,
			Headings: headings, HeadingLevels: levels, Units: units, Config: payload.Config,
		}
		if e.model != nil {
			in.Summarise = func(sections []string, maxTokens int) ([]string, error) {
				return e.model.Summaries(ctx, sections, maxTokens)
			}
		}
		chunks, err = chunksOf(ctx, in)
		return err
	})
	if err != nil {
		return nil, result, err
	}
	units = nil // the blocks are in the chunks now; embedding may wait long
	free()
	if o := result.Outline; o != nil {
		told(o.Headings, true)
		stack := under(payload)
		if !payload.Stitch {
			stack = e.outlines.before(ctx, t)
		}
		restack(chunks, o, stack)
		o.Under = stack
	}
	if len(chunks) > e.cfg.MaxChunksTask {
		return nil, result, sheaf.Fail(sheaf.CategoryPolicy, "too_many_chunks", "Units %s yield %d chunks, more than the %d a task may; lower task_page_size or raise chunk_token_num.", t.Range, len(chunks), e.cfg.MaxChunksTask)
	}
	return chunks, result, nil
}

// finishRange embeds chunks and writes them to the artifact and the index.
func (e *Executor) finishRange(ctx context.Context, run *run, doc *sheaf.Document, payload *taskstore.ParsePayload, chunks []sheaf.Chunk, result sheaf.TaskResult) (done taskstore.Completion, err error) {
	t := run.task
	metadata := chunkMetadata(doc, payload.Config)
	for i := range chunks {
		if payload.Config.PII.V == "redact" {
			for _, k := range []string{sheaf.MetadataLinks, sheaf.MetadataLabels} {
				if v := chunks[i].Metadata[k]; v != "" {
					chunks[i].Metadata[k] = enrich.Redact(v, map[string]int{})
				}
			}
		}
		chunks[i].Metadata = mergeMetadata(metadata, chunks[i].Metadata)
		result.Tokens += chunks[i].Tokens
	}
	result.Chunks = len(chunks)

	vectors, embedded, err := e.embedChunks(ctx, run, doc, chunks, payload.Config)
	if err != nil {
		return done, err
	}
	if err := e.tagChunks(ctx, run, chunks, vectors, payload); err != nil {
		return done, err
	}
	result.Usage = usageOf(result, doc, t)
	result.Usage.EmbeddedTokens = embedded
	result.ArtifactKey, err = e.store(ctx, run, doc, chunks, vectors, t.Digest)
	if err != nil {
		return done, err
	}
	e.writeBeside(ctx, doc, &result)
	if run.asked != nil || run.about != nil { // by nodes that ran in this task
		if result.Output == nil {
			result.Output = &sheaf.NodeOutput{}
		}
		result.Output.Asked, result.Output.Metadata = run.asked, run.about
	}
	result.Stages = run.times
	return taskstore.Completion{Result: result}, nil
}

// processIndex writes a stored result, of another document or an older generation,
// under the new range id. Nothing is parsed, and nothing is embedded unless the task
// asks for it.
func (e *Executor) processIndex(ctx context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
	payload, err := parsePayload(t)
	if err != nil {
		return done, err
	}
	if payload.Reuse == nil {
		return e.processParse(ctx, t)
	}
	run := e.newRun(t)
	var stored *artifact.Result
	err = run.stage(ctx, "fetch", func(ctx context.Context) error {
		stored, err = artifact.LoadFor(ctx, e.cfg.Blobs, payload.Reuse.ArtifactKey, e.cfg.Embedder.Model().ID)
		return err
	})
	if errors.Is(err, sheaf.ErrNotFound) || errors.Is(err, sheaf.ErrInvalid) || err == nil && !payload.Embed && stored.Header.ModelID != e.cfg.Embedder.Model().ID {
		// The source document was deleted or re-parsed meanwhile, or the model changed:
		// fall back to parsing.
		return e.processParse(ctx, t)
	}
	if err != nil {
		return done, err
	}
	doc, err := e.cfg.Store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return done, fmt.Errorf("reading document %s: %w", t.DocumentID, err)
	}
	if payload.Config.PII.V != "redact" {
		run.kept, _ = stored.Header.Readings() // damaged ones are read again
	}
	metadata := chunkMetadata(doc, payload.Config)
	for i := range stored.Chunks {
		c := &stored.Chunks[i]
		if c.DocumentID != doc.ID { // document metadata is replaced; the chunk's own stays
			own := map[string]string{}
			for _, k := range append(strings.Fields(c.Metadata[sheaf.MetadataAdded]), ownMetadata...) {
				if v := c.Metadata[k]; v != "" {
					own[k] = v
				}
			}
			c.Metadata = mergeMetadata(metadata, own)
		}
		c.ID, c.RangeID, c.DocumentID, c.Generation = sheaf.ChunkID(run.rangeID, i), run.rangeID, doc.ID, t.Generation
	}
	from := payload.Reuse
	result := sheaf.TaskResult{
		RangeID: run.rangeID, Chunks: from.Chunks, Tokens: from.Tokens, Ledger: from.Ledger, Warnings: from.Warnings,
		Reused: from.Reused && !payload.Embed, Outline: from.Outline, Layout: from.Layout,
	}
	again := []int{} // chunks to embed again; nil for all
	if payload.Stitch && from.Outline != nil {
		result.Usage = from.Usage
		outline := *from.Outline
		again = append(again, restack(stored.Chunks, &outline, under(payload))...)
		outline.Under = under(payload)
		result.Outline = &outline
	}
	if payload.Embed || len(again) > 0 && payload.Config.ChunkMethod.V == settings.MethodLate {
		again = nil // all: windows may have changed
	}
	tokens, err := e.embedAgain(ctx, run, doc, stored, again, payload)
	if err != nil {
		return done, err
	}
	result.Usage.EmbeddedTokens += tokens
	result.ArtifactKey, err = e.store(ctx, run, doc, stored.Chunks, stored.Vectors, t.Digest)
	if err != nil {
		return done, err
	}
	e.writeBeside(ctx, doc, &result)
	result.Stages = run.times
	return taskstore.Completion{Result: result}, nil
}

// run is one attempt's bookkeeping.
type run struct {
	e       *Executor
	task    *sheaf.Task
	rangeID string
	begun   time.Time
	times   []sheaf.StageTime
	told    time.Time         // when progress was last written
	kept    artifact.Readings // to store with the result
	asked   *sheaf.Asked      // requests of nodes to a language model
	about   map[string]string // what nodes found out about the document
}

func (e *Executor) newRun(t *sheaf.Task) *run {
	return &run{e: e, task: t, rangeID: sheaf.RangeID(t.ID, t.Epoch), begun: time.Now()}
}

// stage runs f and records its duration; an error carries the stage's name.
func (r *run) stage(ctx context.Context, name string, f func(ctx context.Context) error) error {
	from := time.Now()
	ctx, endSpan := r.e.cfg.Trace.Stage(ctx, name)
	err := f(ctx)
	endSpan(err)
	took := time.Since(from)
	r.times = append(r.times, sheaf.StageTime{Name: name, StartMS: from.Sub(r.begun).Milliseconds(), MS: took.Milliseconds()})
	r.e.cfg.Observe.Stage(r.task.Kind, name, took)
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Phase == "" {
		own := *f // tasks whose texts shared one request share its error
		own.Phase = name
		return &stageError{&own, err}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// stageError is an error whose failure knows its stage.
type stageError struct {
	failure *sheaf.Failure
	err     error
}

func (e *stageError) Error() string   { return e.err.Error() }
func (e *stageError) Unwrap() []error { return []error{e.failure, e.err} }

// progress logs how far a stage is, at most once a second. Tasks of less than a
// second emit no progress events; completion implies them.
func (r *run) progress(ctx context.Context, stage string, done, total int) {
	if now := time.Now(); now.Sub(r.begun) > time.Second && now.Sub(r.told) > time.Second {
		r.told = now
		detail, _ := json.Marshal(sheaf.Progress{Stage: stage, Done: done, Total: total})
		if err := r.e.cfg.Store.AppendEvents(ctx, r.task.Held(), []sheaf.Event{{Kind: sheaf.EventProgress, Detail: detail}}); err != nil {
			r.e.cfg.Log.DebugContext(ctx, "progress was not written", "error", err)
		}
	}
}

// largeRange is the size in bytes from which a range keeps its parse slot until it
// is chunked, so that memory is bounded by parse slots, not by workers.
const largeRange = 32 << 20

// weight is a unit's approximate size in memory, in bytes.
func weight(u *sheaf.UnitResult) (bytes int) {
	for i := range u.Blocks {
		b := &u.Blocks[i]
		bytes += len(b.Text) + 200 + 60*len(b.Spans)
		if b.Table != nil {
			for _, row := range b.Table.Rows {
				for _, c := range row {
					bytes += len(c) + 16
				}
			}
		}
	}
	return bytes
}

// parseUnits fetches the file and parses the task's range of it. Call free, which
// may be called twice, when the units are no longer needed.
func (e *Executor) parseUnits(ctx context.Context, run *run, doc *sheaf.Document, p *taskstore.ParsePayload) (units []sheaf.UnitResult, free func(), err error) {
	var path string
	var fill blob.Fill
	release := func() {}
	err = run.stage(ctx, "fetch", func(ctx context.Context) error {
		if e.sparse(p) {
			path, fill, release, err = e.cfg.Files.FetchBlocks(ctx, p.SourceKey, p.SHA256, p.Size)
		} else {
			path, release, err = e.cfg.Files.Fetch(ctx, p.SourceKey, p.SHA256, p.Size)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer release()

	// Not the named result: a return of nil would overwrite what is deferred.
	giveBack, err := e.parse.Enter(ctx, run.task.TenantID, run.task.Lane)
	if err != nil {
		return nil, nil, err
	}
	bytes := 0
	defer func() {
		if err != nil || bytes < largeRange {
			giveBack()
		}
	}()
	t := run.task
	src := child.Source{
		Path: path, Fill: fill, Format: p.Format,
		Key:     doc.ID + "/" + fmt.Sprint(t.Generation) + "/" + p.SourceKey,
		Options: parser.Options{Name: doc.Name, MediaType: p.MediaType, Config: p.Config, Hint: p.Hint, Beside: p.Beside},
	}
	redact := p.Config.PII.V == "redact"
	kept := e.readingsOf(ctx, run, doc, p)
	src.Readings = kept
	costOf := func(n int) int { return max(1, (t.Cost*n+t.Range.Len()-1)/max(1, t.Range.Len())) }
	deadline := func(n int) time.Duration {
		return e.cfg.ParseTimeout + time.Duration(costOf(n))*e.cfg.UnitTimeout
	}
	var output []sheaf.Event
	err = run.stage(ctx, "parse", func(ctx context.Context) error {
		return e.cfg.Parser.ParseIsolating(ctx, src, t.Range, deadline, func(u sheaf.UnitResult) error {
			if u.Detail != "" && len(output) < maxOutputs {
				output = append(output, outputOf(u, redact))
			}
			units = append(units, u)
			bytes += weight(&u)
			run.progress(ctx, "parse", max(u.Unit, u.LastUnit)-t.Range.From+1, t.Range.Len())
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, nil, err
	}
	if !redact { // they hold the text as it was read
		run.kept = kept.now
	}
	// A task never fails because its diagnostics could not be stored.
	if err := e.cfg.Store.AppendEvents(ctx, t.Held(), output); err != nil {
		e.cfg.Log.WarnContext(ctx, "could not write the parser's last lines", "task", t.ID, "error", err)
	}
	if missing := ledgerOf(units).Missing([]sheaf.Range{t.Range}); len(missing) > 0 {
		return nil, nil, sheaf.FailRetryable(sheaf.CategoryInternal, "units_missing", "The %s parser said nothing about units %v; please report the file.", p.Format, missing)
	}
	return units, giveBack, nil
}

// sparse reports whether only parts of the task's file are read.
func (e *Executor) sparse(p *taskstore.ParsePayload) bool {
	if e.cfg.Formats == nil {
		return false
	}
	f, _ := e.cfg.Formats.ByID(p.Format) // always set by the plan
	_, ok := f.(parser.Sparse)
	return ok
}

// maxOutputs bounds the units of one attempt whose parser output is logged, at up to
// 4 KB each.
const maxOutputs = 32

// outputOf makes the event with the parser's last output. Personal data in it is
// redacted if the settings ask for that.
func outputOf(u sheaf.UnitResult, redact bool) sheaf.Event {
	lines := u.Detail
	if redact {
		lines = enrich.Redact(lines, map[string]int{})
	}
	detail, _ := json.Marshal(sheaf.UnitOutput{From: u.Unit, To: max(u.Unit, u.LastUnit), Code: u.Code, Lines: lines})
	return sheaf.Event{Kind: sheaf.EventOutput, Level: "error", Text: u.Message, Detail: detail}
}

// embedChunks returns one vector per chunk, and the number of tokens embedded. Like
// the indexed text, the embedded text starts with the document's name and heading
// path.
func (e *Executor) embedChunks(ctx context.Context, run *run, doc *sheaf.Document, chunks []sheaf.Chunk, c sheaf.ParseConfig) (vectors [][]float32, tokens int, err error) {
	if len(chunks) == 0 {
		return nil, 0, nil
	}
	err = run.stage(ctx, "embed", func(ctx context.Context) error {
		if c.ChunkMethod.V == settings.MethodLate {
			vectors, tokens, err = e.embedWindows(ctx, run, doc, chunks, true)
			return err
		}
		vectors, tokens, err = e.embedMissing(ctx, run, doc, chunks)
		return err
	})
	return vectors, tokens, err
}

// embedMissing embeds the chunks that embeddedBefore finds no vectors for.
func (e *Executor) embedMissing(ctx context.Context, run *run, doc *sheaf.Document, chunks []sheaf.Chunk) (vectors [][]float32, tokens int, err error) {
	texts := embeddingTexts(doc.Name, chunks)
	vectors = e.embeddedBefore(ctx, run.task, doc, texts)
	var missing []string
	var at []int
	for i := range texts {
		if vectors[i] == nil {
			missing, at = append(missing, texts[i]), append(at, i)
			tokens += chunks[i].Tokens
		}
	}
	if len(missing) == 0 {
		return vectors, 0, nil
	}
	made, err := e.vectors(ctx, missing, embed.Passage)
	if err != nil {
		return nil, 0, err
	}
	for k, i := range at {
		vectors[i] = made[k]
	}
	return vectors, tokens, nil
}

// embedAgain recomputes the vectors and tags of the listed stored chunks, or of all
// when the list is nil. It returns the number of tokens embedded.
func (e *Executor) embedAgain(ctx context.Context, run *run, doc *sheaf.Document, stored *artifact.Result, which []int, p *taskstore.ParsePayload) (tokens int, err error) {
	if which == nil {
		which = make([]int, len(stored.Chunks))
		for i := range which {
			which[i] = i
		}
	}
	if len(which) == 0 {
		return 0, nil
	}
	chunks, vectors := make([]sheaf.Chunk, len(which)), [][]float32(nil)
	for k, i := range which {
		chunks[k] = stored.Chunks[i]
		tokens += chunks[k].Tokens
	}
	err = run.stage(ctx, "embed", func(ctx context.Context) error {
		if p.Config.ChunkMethod.V == settings.MethodLate {
			vectors, _, err = e.embedWindows(ctx, run, doc, chunks, false)
			return err
		}
		if !p.Embed && !p.Reuse.Reused { // the live generation may have them under other headings
			vectors, tokens, err = e.embedMissing(ctx, run, doc, chunks)
			return err
		}
		vectors, err = e.vectors(ctx, embeddingTexts(doc.Name, chunks), embed.Passage)
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := e.tagChunks(ctx, run, chunks, vectors, p); err != nil {
		return 0, err
	}
	for k, i := range which {
		stored.Chunks[i], stored.Vectors[i] = chunks[k], vectors[k]
	}
	return tokens, nil
}

// vectors embeds texts, holding a slot of the embed stage. Waiting for a server keeps
// no worker.
func (e *Executor) vectors(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if e.cfg.EmbedRemote {
		worker.Yield(ctx)
	}
	t := cmp.Or(taskOf(ctx), &sheaf.Task{})
	leave, err := e.embed.Enter(ctx, t.TenantID, t.Lane)
	if err != nil {
		return nil, err
	}
	defer leave()
	return embed.Each(ctx, e.cfg.Embedder, texts, purpose)
}

func embeddingTexts(name string, chunks []sheaf.Chunk) []string {
	texts := make([]string, len(chunks))
	for i, c := range chunks {
		texts[i] = EmbeddingText(name, c)
	}
	return texts
}

// EmbeddingText is the text embedded for a chunk: its position (file name, document
// title, headings), its context, its text, its keywords, and the questions it
// answers.
func EmbeddingText(name string, c sheaf.Chunk) string {
	return locationLine(name, c) + bodyText(c)
}

// locationLine describes a chunk's position.
func locationLine(name string, c sheaf.Chunk) string {
	return strings.Join(append([]string{name}, c.Place(name)...), " > ") + "\n"
}

// bodyText is the embedded text without the chunk's position.
func bodyText(c sheaf.Chunk) string {
	var b strings.Builder
	if c.Context != "" {
		b.WriteString(c.Context)
		b.WriteByte('\n')
	}
	b.WriteString(c.Text)
	if len(c.Keywords) > 0 {
		b.WriteByte('\n')
		b.WriteString(strings.Join(c.Keywords, ", "))
	}
	for _, q := range c.Questions {
		b.WriteByte('\n')
		b.WriteString(q)
	}
	return b.String()
}

// store writes the range result: artifact first, then index.
func (e *Executor) store(ctx context.Context, run *run, doc *sheaf.Document, chunks []sheaf.Chunk, vectors [][]float32, digest string) (key string, err error) {
	if err := enter(ctx, e.index); err != nil {
		return "", err
	}
	leave := sync.OnceFunc(func() { e.index.Release(1) })
	defer leave()
	t := run.task
	key = sheaf.ArtifactKey(t.TenantID, doc.ID, run.rangeID)
	err = run.stage(ctx, "artifact", func(ctx context.Context) error {
		var buf bytes.Buffer
		model := e.cfg.Embedder.Model()
		err := artifact.Encode(&buf, artifact.Header{
			DocumentID: doc.ID, Generation: t.Generation, RangeID: run.rangeID, Range: t.Range,
			ModelID: model.ID, Dim: model.Dim, Digest: digest, Created: time.Now().UTC(), Name: doc.Name,
		}.WithReadings(run.kept), chunks, vectors)
		if err != nil {
			return err
		}
		size := int64(buf.Len())
		_, err = e.cfg.Blobs.Put(ctx, key, &buf, size)
		return err
	})
	if err != nil {
		return "", err
	}
	return key, run.stage(ctx, "index", func(ctx context.Context) error {
		ctx = index.WithWaiting(ctx, func() {
			if worker.YieldBriefly(ctx) {
				leave()
			}
		})
		return e.cfg.Index.Write(index.WithConcurrency(ctx, int(e.running.Load())), entriesOf(t.TenantID, doc, chunks, vectors))
	})
}

// ownMetadata are the keys of a chunk's own metadata, beside its document's.
var ownMetadata = []string{sheaf.MetadataLinks, sheaf.MetadataLabels, sheaf.MetadataFigures, sheaf.MetadataPictures, sheaf.MetadataPersonal, sheaf.MetadataAdded}

// Limits on the labels of a chunk.
const (
	maxLabels     = 16
	maxLabelBytes = 200 // per label
)

// labelChunks adds the document's own names of their pages or parts to chunks.
func labelChunks(chunks []sheaf.Chunk, units []sheaf.UnitResult) {
	labels := map[int]string{}
	for _, u := range units {
		if u.Label != "" && len(u.Label) <= maxLabelBytes {
			labels[u.Unit] = u.Label
		}
	}
	if len(labels) == 0 {
		return
	}
	for i := range chunks {
		c := &chunks[i]
		var lines []string
		for _, p := range c.Pages {
			if l := labels[p]; l != "" && len(lines) < maxLabels {
				lines = append(lines, l)
			}
		}
		if len(lines) > 0 {
			c.Metadata = mergeMetadata(c.Metadata, map[string]string{sheaf.MetadataLabels: strings.Join(lines, "\n")})
		}
	}
}

// maxFigures bounds the figures of a chunk.
const maxFigures = 16

// placeFigures adds the positions of figures to the chunks that hold their captions.
// A figure without a caption belongs to the text before it on its page, or after it
// if there is none before. The error is ctx's.
func placeFigures(ctx context.Context, chunks []sheaf.Chunk, units []sheaf.UnitResult) error {
	onPage := map[int][]int{} // the chunks on each page
	for k := range chunks {
		for n, b := range chunks[k].Boxes {
			if on := onPage[b.Page]; n == 0 || len(on) == 0 || on[len(on)-1] != k {
				onPage[b.Page] = append(on, k)
			}
		}
	}
	for _, u := range units {
		var texts texts // found when the first picture needs them
		for i, b := range u.Blocks {
			if b.Kind != sheaf.BlockImage || len(b.Spans) == 0 || b.Text != "" || b.Picture != "" { // text was read from it, or it is inside the file
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			figure := b.Spans[0].Box
			at, found := sheaf.Box{}, false
			if caption := captionBeside(u.Blocks, i); caption != nil {
				for _, s := range caption.Spans {
					figure.X0, figure.Y0 = min(figure.X0, s.Box.X0), min(figure.Y0, s.Box.Y0)
					figure.X1, figure.Y1 = max(figure.X1, s.Box.X1), max(figure.Y1, s.Box.Y1)
				}
				at, found = caption.Spans[0].Box, true
			} else {
				if texts.ends == nil {
					texts = textsOf(u.Blocks)
				}
				at, found = texts.beside(u.Blocks, i)
			}
			if !found {
				continue
			}
			line := fmt.Sprintf("%d:%.1f,%.1f,%.1f,%.1f", figure.Page, max(figure.X0, 0), max(figure.Y0, 0), figure.X1, figure.Y1)
			for _, k := range onPage[at.Page] {
				c := &chunks[k]
				if !slices.ContainsFunc(c.Boxes, func(o sheaf.Box) bool { return o.Page == at.Page && holdsCentre(o, at) }) {
					continue
				}
				lines := c.Metadata[sheaf.MetadataFigures]
				if strings.Count(lines, "\n")+1 < maxFigures {
					c.Metadata = mergeMetadata(c.Metadata, map[string]string{sheaf.MetadataFigures: strings.TrimPrefix(lines+"\n"+line, "\n")})
				}
			}
		}
	}
	return nil
}

// captionBeside returns the caption of the picture blocks[i] on its page, or nil:
// below by convention, otherwise above.
func captionBeside(blocks []sheaf.Block, i int) *sheaf.Block {
	for _, k := range []int{i + 1, i - 1} {
		if k >= 0 && k < len(blocks) && blocks[k].Kind == sheaf.BlockCaption && len(blocks[k].Spans) > 0 && blocks[k].Spans[0].Box.Page == blocks[i].Spans[0].Box.Page {
			return &blocks[k]
		}
	}
	return nil
}

// texts indexes a unit's blocks with text by the pages on which they end and begin.
type texts struct{ ends, begins map[int][]int }

func textsOf(blocks []sheaf.Block) texts {
	t := texts{map[int][]int{}, map[int][]int{}}
	for k := range blocks {
		if boxes := textBoxes(&blocks[k]); len(boxes) > 0 {
			first, last := boxes[0].Page, boxes[len(boxes)-1].Page
			t.begins[first], t.ends[last] = append(t.begins[first], k), append(t.ends[last], k)
		}
	}
	return t
}

// beside locates the text nearest to the picture blocks[i], in reading order: the
// end of the text before it on its page, otherwise the start of the text after it.
func (t texts) beside(blocks []sheaf.Block, i int) (at sheaf.Box, found bool) {
	page := blocks[i].Spans[0].Box.Page
	if k, _ := slices.BinarySearch(t.ends[page], i); k > 0 {
		boxes := textBoxes(&blocks[t.ends[page][k-1]])
		return boxes[len(boxes)-1], true
	}
	if k, _ := slices.BinarySearch(t.begins[page], i+1); k < len(t.begins[page]) {
		return textBoxes(&blocks[t.begins[page][k]])[0], true
	}
	return sheaf.Box{}, false
}

// textBoxes returns the boxes of a block's text, in reading order.
func textBoxes(b *sheaf.Block) []sheaf.Box {
	if b.Table != nil && len(b.Table.RowBoxes) > 0 {
		return b.Table.RowBoxes
	}
	if b.Text == "" {
		return nil
	}
	boxes := make([]sheaf.Box, len(b.Spans))
	for i, s := range b.Spans {
		boxes[i] = s.Box
	}
	return boxes
}

func holdsCentre(o, b sheaf.Box) bool {
	x, y := (b.X0+b.X1)/2, (b.Y0+b.Y1)/2
	return o.X0 <= x && x <= o.X1 && o.Y0 <= y && y <= o.Y1
}

func entriesOf(tenantID string, doc *sheaf.Document, chunks []sheaf.Chunk, vectors [][]float32) []index.Entry {
	of := index.Entry{TenantID: tenantID, DatasetID: doc.DatasetID, Name: doc.Name, MediaType: doc.MediaType}
	return index.Entries(of, chunks, vectors)
}

func parsePayload(t *sheaf.Task) (*taskstore.ParsePayload, error) {
	var p taskstore.ParsePayload
	if err := json.Unmarshal(t.Payload, &p); err != nil {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "bad_payload", "The task's payload cannot be read (%v); re-parse the document.", err)
	}
	return &p, nil
}

func ledgerOf(units []sheaf.UnitResult) sheaf.Ledger {
	var l sheaf.Ledger
	for _, u := range units {
		l = l.Add(sheaf.LedgerRun{From: u.Unit, To: max(u.Unit, u.LastUnit), Status: u.Status, Code: u.Code, Message: u.Message})
	}
	return l
}

// maxLayout bounds a range's layout data: about 100 bytes for each page within two
// dozen of its ends, and for each page that broke the parser.
const maxLayout = 256 << 10

// layoutOf concatenates the units' layout data; nil if it is too large.
func layoutOf(units []sheaf.UnitResult) (all []byte) {
	for _, u := range units {
		if all = append(all, u.Layout...); len(all) > maxLayout {
			return nil
		}
	}
	return all
}

// Limits of the warnings of a document, and of those that one task adds.
const (
	maxDocumentWarnings = 300
	maxWarnings         = 100
)

func warningsOf(units []sheaf.UnitResult) []sheaf.Warning {
	var ws []sheaf.Warning
	for _, u := range units {
		ws = append(ws, u.Warnings...)
		if len(ws) >= maxWarnings {
			return ws[:maxWarnings]
		}
	}
	return ws
}

// usageOf is what a range consumed. Its bytes are its units' share of the
// document's, so that a document's ranges add up to its size.
func usageOf(r sheaf.TaskResult, doc *sheaf.Document, t *sheaf.Task) sheaf.Usage {
	counts := r.Ledger.Counts()
	u := sheaf.Usage{Pages: counts.Total(), OCRPages: counts.OCR, Tokens: r.Tokens, EmbeddedTokens: r.Tokens, Bytes: doc.Size}
	if n := int64(doc.Units); n > 0 && t.Range.From > 0 {
		u.Bytes = doc.Size*int64(t.Range.To)/n - doc.Size*int64(t.Range.From-1)/n
	}
	if t.Unit == sheaf.UnitRow {
		u.Pages = t.Cost // a page's worth of rows, as fairness counts them
	}
	return u
}

// chunkMetadata is the document metadata copied to its chunks, with personal data
// redacted if the settings ask for that.
func chunkMetadata(doc *sheaf.Document, c sheaf.ParseConfig) map[string]string {
	m := filterMetadata(saidMetadata(doc))
	if c.PII.V == "redact" {
		for k, v := range m {
			m[k] = enrich.Redact(v, map[string]int{})
		}
	}
	return m
}

// saidMetadata is the document's metadata without what flow nodes found in an
// earlier version: they find it again, or it no longer applies.
func saidMetadata(doc *sheaf.Document) map[string]string {
	added := doc.Metadata[sheaf.MetadataAdded]
	if added == "" {
		return doc.Metadata
	}
	m := maps.Clone(doc.Metadata)
	for _, name := range append(strings.Fields(added), sheaf.MetadataAdded) {
		delete(m, name)
	}
	return m
}

func filterMetadata(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if len(out) == maxMetadataPairs {
			break
		}
		if v := m[k]; v != "" && len(v) <= maxMetadataValue {
			out[k] = v
		}
	}
	return out
}

func mergeMetadata(base, own map[string]string) map[string]string {
	if len(own) == 0 {
		return base
	}
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, own)
	return out
}
