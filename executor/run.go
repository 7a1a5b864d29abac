package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/artifact"
	"sheaf/internal/edits"
	"sheaf/internal/embed"
	"sheaf/internal/index"
	"sheaf/taskstore"
)

// A run works on all documents of a dataset that were live when it began. It is one
// task, held, retried and canceled like any other, and belongs to no document: it
// reads documents' results and changes none of them. Model answers are cached by
// question, so that a run that was killed, canceled or stopped at its budget resumes
// without paying again.

// RunKind implements one kind of run. Run may be called again for the same run after
// an interruption at any point, and finds the answers it already had. Errors of
// DatasetRun's methods must be returned unchanged.
type RunKind interface {
	Run(ctx context.Context, r *DatasetRun) (taskstore.RunEnd, error)
}

// RunStore is what runs read and write.
type RunStore interface {
	HeldRun(ctx context.Context, c sheaf.Claim) (*taskstore.DatasetRun, error)
	ReportRun(ctx context.Context, c sheaf.Claim, p taskstore.RunProgress) error
	RunDocuments(ctx context.Context, runID, after string, limit int) ([]taskstore.RunDocument, error)
	RunItems(ctx context.Context, tenantID, name, documentID string) (keys []string, err error)
	NoteRunItem(ctx context.Context, tenantID, name, blobKey string, documentIDs []string) error
	RunResults(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, documentID, after string, limit int) ([]taskstore.RunResult, error)
	PutRunResult(ctx context.Context, c sheaf.Claim, r taskstore.RunResult, instead []string) error
	PutNodeResult(ctx context.Context, c sheaf.Claim, r taskstore.RunResult) error
	DropRunResults(ctx context.Context, c sheaf.Claim, rangeIDs []string) error
	SplitNames(ctx context.Context, tenantID, datasetID string) ([][]string, error)
	edits.Reserver
}

const (
	runSlice       = 10 * time.Minute // per attempt: below the time limit of a task
	runReportEvery = time.Second      // between progress reports without new cost
	runDocuments   = 200              // read per page
	runAsks        = 4                // concurrent questions
	maxItemBytes   = 2 << 20          // of a cached answer: more than a model may say
)

// Errors of DatasetRun.Ask, besides failures of the model and the store.
var (
	// ErrNoModel: no language model is configured; the kind works without.
	ErrNoModel = errors.New("no language model is configured")
	// ErrDocumentGone: a document of the question was deleted meanwhile; the kind
	// continues without it.
	ErrDocumentGone = errors.New("a document of the question was deleted")

	errBudget = errors.New("the run is at its budget")
	errSlice  = errors.New("the run goes on in another attempt")
)

// DatasetRun is a run in progress. It is safe for concurrent use.
type DatasetRun struct {
	taskstore.DatasetRun
	e     *Executor
	claim sheaf.Claim
	until time.Time // when the attempt yields to others

	mu       sync.Mutex
	progress taskstore.RunProgress
	reserved int64         // tokens that pending questions may cost
	freed    chan struct{} // closed when some are released; nil while no one waits
	asked    bool          // whether a model was called in this attempt
	reported time.Time     // when progress was last written

	node bool // not a run: a flow node asks through it, and leaves its document's result
}

// processRun runs a run task's kind, and writes the outcome.
func (e *Executor) processRun(ctx context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
	// It asks a model for hours. What it holds in memory and computes is limited by the
	// number of runs.
	leave, err := admit(ctx, e.runs, sheaf.FailRetryable(sheaf.CategoryCapacity, "runs_busy", "This executor is busy with other runs over datasets. The run begins when one of them pauses or ends."))
	if err != nil {
		return done, err
	}
	defer leave()

	kind := e.cfg.Runs[t.Kind]
	held, err := e.cfg.RunStore.HeldRun(ctx, t.Held())
	if errors.Is(err, sheaf.ErrStale) {
		return done, sheaf.Fail(sheaf.CategoryCanceled, "run_superseded", "A newer run of the kind has followed this one, so this one was stopped. No action is needed.")
	}
	if err != nil {
		return done, fmt.Errorf("reading the run of task %s: %w", t.ID, err)
	}
	r := &DatasetRun{DatasetRun: *held, e: e, claim: t.Held(), until: time.Now().Add(runSlice), progress: held.Progress}
	r.progress.Cached = 0
	end, err := kind.Run(ctx, r)
	switch {
	case ctx.Err() != nil: // regardless of what the kind returned
		r.save(context.WithoutCancel(ctx))
		return done, context.Cause(ctx)
	case errors.Is(err, errBudget):
		end.State, end.Cause = taskstore.RunParked, fmt.Sprintf("The budget of %d tokens does not suffice for the next question; %d are spent. Resume the run with a higher one: what was paid for is kept.", held.Options.Tokens(), r.Progress().Tokens)
	case errors.Is(err, errSlice):
		r.save(ctx)
		return done, &sheaf.RateLimited{After: time.Second}
	case err != nil:
		r.save(ctx)
		return done, err
	}
	if end.State == "" {
		end.State = taskstore.RunSucceeded
	}
	end.Progress = r.Progress()
	done.Result.Tokens = int(min(end.Progress.Tokens, math.MaxInt32))
	done.Run = &end
	return done, nil
}

// Documents calls each, in id order, for the run's documents that are still live in
// the version they had when it began.
func (r *DatasetRun) Documents(ctx context.Context, each func(taskstore.RunDocument) error) error {
	for after := ""; ; {
		docs, err := r.e.cfg.RunStore.RunDocuments(ctx, r.ID, after, runDocuments)
		if err != nil {
			return fmt.Errorf("reading the documents of run %s: %w", r.ID, err)
		}
		for _, d := range docs {
			if err := each(d); err != nil {
				return err
			}
			after = d.ID
		}
		if len(docs) < runDocuments {
			return nil
		}
	}
}

// Chunks reads a document's chunks in order, with their vectors from the current
// model, nil for those without. It returns ErrDocumentGone when the document was
// deleted or replaced meanwhile.
func (r *DatasetRun) Chunks(ctx context.Context, d taskstore.RunDocument) (chunks []sheaf.Chunk, vectors [][]float32, err error) {
	model := ""
	if r.e.cfg.Embedder != nil {
		model = r.e.cfg.Embedder.Model().ID
	}
	for _, part := range d.Ranges {
		made, err := artifact.LoadFor(ctx, r.e.cfg.Blobs, part.ArtifactKey, model)
		if errors.Is(err, sheaf.ErrNotFound) {
			return nil, nil, ErrDocumentGone
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading units %s of document %s: %w", part.Range, d.ID, err)
		}
		for i := range made.Chunks {
			var v []float32
			if i < len(made.Vectors) && made.Header.ModelID == model {
				v = made.Vectors[i]
			}
			chunks, vectors = append(chunks, made.Chunks[i]), append(vectors, v)
		}
	}
	return r.edited(ctx, d, model, chunks, vectors)
}

// edited replaces chunks by users' edits of them.
func (r *DatasetRun) edited(ctx context.Context, d taskstore.RunDocument, model string, chunks []sheaf.Chunk, vectors [][]float32) ([]sheaf.Chunk, [][]float32, error) {
	for _, e := range d.Edited {
		at := slices.IndexFunc(chunks, func(c sheaf.Chunk) bool { return c.ID == e.ChunkID })
		if !e.Added && at >= 0 {
			chunks, vectors = slices.Delete(chunks, at, at+1), slices.Delete(vectors, at, at+1)
			at--
		}
		if e.RangeID == "" {
			continue
		}
		made, err := artifact.LoadFor(ctx, r.e.cfg.Blobs, sheaf.ArtifactKey(r.TenantID, d.ID, e.RangeID), model)
		if errors.Is(err, sheaf.ErrNotFound) {
			return nil, nil, ErrDocumentGone
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading an edited chunk of document %s: %w", d.ID, err)
		}
		for i, c := range made.Chunks {
			if !e.Added && e.ChunkID != "" {
				c.ID = e.ChunkID // as search shows it
			}
			var v []float32
			if i < len(made.Vectors) && made.Header.ModelID == model {
				v = made.Vectors[i]
			}
			to := at + 1
			if to == 0 && (e.Added || e.ChunkID == "") {
				to = len(chunks)
			}
			chunks, vectors = slices.Insert(chunks, to, c), slices.Insert(vectors, to, v)
		}
	}
	return chunks, vectors, nil
}

// Model is the id of the model used for search, "" for none.
func (r *DatasetRun) Model() string {
	if r.e.cfg.Embedder == nil {
		return ""
	}
	return r.e.cfg.Embedder.Model().ID
}

// Asks is the name of the language model that Ask calls, "" for none.
func (r *DatasetRun) Asks() string {
	if r.e.cfg.Chat == nil {
		return ""
	}
	return r.e.cfg.Chat.Model()
}

// Turn fails when the attempt's time is up: between two stored results, the task
// yields to others.
func (r *DatasetRun) Turn() error {
	if time.Now().After(r.until) {
		return errSlice
	}
	return nil
}

// Results lists the visible results of runs of the kind over the dataset.
func (r *DatasetRun) Results(ctx context.Context) ([]taskstore.RunResult, error) {
	var all []taskstore.RunResult
	for after := ""; ; {
		some, err := r.e.cfg.RunStore.RunResults(ctx, r.TenantID, r.DatasetID, r.Kind, "", after, runResults)
		if err != nil {
			return nil, fmt.Errorf("reading the results of runs: %w", err)
		}
		all = append(all, some...)
		if len(some) < runResults {
			return all, nil
		}
		after = some[len(some)-1].RangeID
	}
}

const runResults = 1000 // read per page

// Result reads the chunks of a result with their vectors, nil for those without. It
// returns ErrDocumentGone when the result was deleted meanwhile.
func (r *DatasetRun) Result(ctx context.Context, of taskstore.RunResult) ([]sheaf.Chunk, [][]float32, error) {
	made, err := artifact.LoadFor(ctx, r.e.cfg.Blobs, sheaf.ArtifactKey(r.TenantID, of.DocumentID, of.RangeID), r.Model())
	switch {
	case errors.Is(err, sheaf.ErrNotFound):
		return nil, nil, ErrDocumentGone
	case err != nil:
		return nil, nil, fmt.Errorf("reading the result %s: %w", of.RangeID, err)
	}
	if made.Header.ModelID != r.Model() || len(made.Vectors) < len(made.Chunks) {
		made.Vectors = make([][]float32, len(made.Chunks))
	}
	return made.Chunks, made.Vectors, nil
}

// results are the results that runs of a kind left for a dataset, and which of them
// to keep.
type results struct {
	byName map[string]taskstore.RunResult
	keep   map[string]bool // by range
	there  []taskstore.RunResult
	docs   map[string]bool // documents this run considered; nil for all
}

// eachDocument ensures that each document has its result: an existing one, found by
// a name derived from all its inputs, or one that makes puts in place of the
// document's others, unless it skips the document. done is called for each. gone
// counts the documents deleted or changed since the run began.
func (r *DatasetRun) eachDocument(ctx context.Context, name func(taskstore.RunDocument) string,
	makes func(ctx context.Context, d taskstore.RunDocument, name string, instead []string) (res taskstore.RunResult, made bool, err error),
	done func(d taskstore.RunDocument, res taskstore.RunResult, kept bool)) (all *results, gone int, err error) {
	all = &results{byName: map[string]taskstore.RunResult{}, keep: map[string]bool{}, docs: map[string]bool{}}
	if all.there, err = r.Results(ctx); err != nil {
		return nil, 0, err
	}
	byDocument := map[string][]string{}
	for _, res := range all.there {
		all.byName[res.Name] = res
		if res.Layer == 0 {
			byDocument[res.DocumentID] = append(byDocument[res.DocumentID], res.RangeID)
		}
	}
	var docs []taskstore.RunDocument
	if err := r.Documents(ctx, func(d taskstore.RunDocument) error { docs = append(docs, d); return nil }); err != nil {
		return nil, 0, err
	}
	gone = r.DatasetRun.Documents - len(docs)
	for i, d := range docs {
		all.docs[d.ID] = true
		is := name(d)
		res, kept := all.byName[is]
		if !kept {
			if err := r.Turn(); err != nil {
				return nil, gone, err
			}
			var made bool
			res, made, err = makes(ctx, d, is, byDocument[d.ID])
			switch {
			case errors.Is(err, ErrDocumentGone):
				gone++
				continue
			case err != nil:
				return nil, gone, err
			case !made:
				continue
			}
		}
		all.keep[res.RangeID] = true
		done(d, res, kept)
		if err := r.Report(ctx, "documents", i+1, len(docs)); err != nil {
			return nil, gone, err
		}
	}
	return all, gone, nil
}

// dropOthers removes from search the results not kept, except those that flow nodes
// left with documents published since the run began.
func (r *DatasetRun) dropOthers(ctx context.Context, all *results) error {
	var others []string
	for _, res := range all.there {
		if !all.keep[res.RangeID] && (res.Layer > 0 || all.docs == nil || all.docs[res.DocumentID]) {
			others = append(others, res.RangeID)
		}
	}
	return r.Drop(ctx, others)
}

// RunTrouble says why something has no result.
type RunTrouble struct {
	DocumentID string `json:"document_id"`
	ChunkID    string `json:"chunk_id,omitempty"`
	Layer      int    `json:"layer,omitempty"`
	Code       string `json:"code"`
	Message    string `json:"message"`
}

// troubles are the first maxTroubles of a run.
type troubles []RunTrouble

const maxTroubles = 20

func (t *troubles) add(one RunTrouble) {
	if len(*t) < maxTroubles {
		one.Message = clipText(one.Message, 300)
		*t = append(*t, one)
	}
}

// addAll adds those that are not nil and returns their number.
func (t *troubles) addAll(all []*RunTrouble) (n int) {
	for _, one := range all {
		if one != nil {
			t.add(*one)
			n++
		}
	}
	return n
}

// Put stores chunks as a result of the document d, and shows it in place of others.
// It fills in the chunks' ids, document, range and tokens. Children of the form "#3"
// refer to chunks of the result itself. It returns ErrDocumentGone when a source was
// deleted or changed meanwhile.
func (r *DatasetRun) Put(ctx context.Context, d taskstore.RunDocument, res taskstore.RunResult, chunks []sheaf.Chunk, instead []string) (taskstore.RunResult, error) {
	return r.put(ctx, d, res, chunks, instead, true)
}

// put is Put for chunks that are searchable only if found is set.
func (r *DatasetRun) put(ctx context.Context, d taskstore.RunDocument, res taskstore.RunResult, chunks []sheaf.Chunk, instead []string, found bool) (taskstore.RunResult, error) {
	res.RangeID, res.Kind, res.DocumentID = sheaf.RunRangePrefix+sheaf.NewID(), r.Kind, d.ID
	if found {
		res.Chunks = len(chunks)
	}
	for i := range chunks {
		c := &chunks[i]
		c.ID, c.RangeID, c.DocumentID, c.Generation = sheaf.ChunkID(res.RangeID, i), res.RangeID, d.ID, d.Generation
		for k, child := range c.Children {
			if n, own := strings.CutPrefix(child, "#"); own {
				at, _ := strconv.Atoi(n) // written by the maker of the chunk
				c.Children[k] = sheaf.ChunkID(res.RangeID, at)
			}
		}
		res.Tokens += c.Tokens
	}
	header := artifact.Header{DocumentID: d.ID, Generation: d.Generation, RangeID: res.RangeID, Created: time.Now().UTC(), Name: d.Name}
	var vectors [][]float32
	var err error
	if r.e.cfg.Embedder != nil && res.Chunks > 0 {
		model := r.e.cfg.Embedder.Model()
		header.ModelID, header.Dim = model.ID, model.Dim
		if vectors, err = r.e.vectors(ctx, embeddingTexts(d.Name, chunks), embed.Passage); err != nil {
			return res, fmt.Errorf("embedding a result: %w", err)
		}
	}
	gone := func(err error) error {
		if errors.Is(err, sheaf.ErrNotFound) {
			return ErrDocumentGone
		}
		return err
	}
	if err := r.e.cfg.RunStore.ReserveRanges(ctx, r.TenantID, d.ID, []string{res.RangeID}); err != nil {
		return res, gone(err)
	}
	var buf bytes.Buffer
	if err := artifact.Encode(&buf, header, chunks, vectors); err != nil {
		return res, err
	}
	key := sheaf.ArtifactKey(r.TenantID, d.ID, res.RangeID)
	if _, err := r.e.cfg.Blobs.Put(ctx, key, &buf, int64(buf.Len())); err != nil {
		return res, fmt.Errorf("storing a result: %w", err)
	}
	if r.e.cfg.Index != nil && res.Chunks > 0 {
		doc := &sheaf.Document{ID: d.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, Name: d.Name, MediaType: d.MediaType}
		if err := r.e.cfg.Index.Write(index.WithConcurrency(ctx, 1), entriesOf(r.TenantID, doc, chunks, vectors)); err != nil {
			return res, fmt.Errorf("indexing a result: %w", err)
		}
		r.e.writeBeside(ctx, doc, &sheaf.TaskResult{RangeID: res.RangeID, ArtifactKey: key, Chunks: len(chunks)})
	}
	if r.node {
		return res, gone(r.e.cfg.RunStore.PutNodeResult(ctx, r.claim, res))
	}
	return res, gone(r.e.cfg.RunStore.PutRunResult(ctx, r.claim, res, instead))
}

// Drop removes results from search.
func (r *DatasetRun) Drop(ctx context.Context, rangeIDs []string) error {
	if len(rangeIDs) == 0 {
		return nil
	}
	return r.e.cfg.RunStore.DropRunResults(ctx, r.claim, rangeIDs)
}

// Refresh makes everything stored so far searchable.
func (r *DatasetRun) Refresh(ctx context.Context) error {
	if r.e.cfg.Index == nil {
		return nil
	}
	return r.e.cfg.Index.Refresh(ctx)
}

// Question is a question to a model about the text of documents.
type Question struct {
	Documents   []string // whose text it is about, at least one: the answer is deleted with the first of them
	Instruction string
	Text        string
	MaxTokens   int // of the answer
	Version     int // of the code that asks: another version asks again

	// Check, if set, rejects unusable answers. Such an answer is paid for but not
	// cached: the failure has the code chat_bad_answer, and asking again calls the
	// model.
	Check func(answer string) error
	Again string // appended to Text when it is asked again; the question's name stays the same
}

// bad returns the failure for an unusable answer; nil for a usable one.
func (q Question) bad(answer string) error {
	if q.Check == nil {
		return nil
	}
	if err := q.Check(answer); err != nil {
		return sheaf.Fail(sheaf.CategoryTarget, "chat_bad_answer", "The model gave no usable answer: %s", strings.TrimPrefix(err.Error(), sheaf.ErrInvalid.Error()+": "))
	}
	return nil
}

// item is a cached answer, or the answers to questions asked in one call.
type item struct {
	Answer  string            `json:"answer"`
	Answers map[string]string `json:"answers,omitempty"` // by question name
}

// of returns the answer to a question.
func (it item) of(name string) (answer string, ok bool) {
	if it.Answers != nil {
		answer, ok = it.Answers[name]
		return answer, ok
	}
	return it.Answer, true
}

// Ask asks the language model, unless the tenant has a cached answer to the same
// question, which is returned at no cost.
func (r *DatasetRun) Ask(ctx context.Context, q Question) (string, error) {
	if r.e.cfg.Chat == nil {
		return "", ErrNoModel
	}
	if len(q.Documents) == 0 {
		return "", sheaf.Fail(sheaf.CategoryInternal, "bad_question", "A question of the run %s names no document; report this.", r.ID)
	}
	name := q.name(r.Kind, r.e.cfg.Chat.Model())
	key := r.itemKey(q.Documents[0], name)
	kept, from, err := r.kept(ctx, name, q.Documents[0])
	if err != nil {
		return "", err
	}
	if from != "" && q.bad(kept) != nil {
		from = ""
	}
	if r.own(q.Documents[0], from) {
		r.count(func(p *taskstore.RunProgress) { p.Cached++ })
		return kept, nil
	}
	// Noted before it is stored, so that it is deleted with the documents whatever
	// happens in between.
	if err := r.noteItem(ctx, name, key, q.Documents); err != nil {
		return "", err
	}
	if from != "" { // another document's: copied, so that it survives that one's deletion
		r.count(func(p *taskstore.RunProgress) { p.Cached++ })
		return kept, r.keep(ctx, name, key, q.Documents[0], item{Answer: kept})
	}
	answer := ""
	err = r.pay(ctx, q.Instruction, q.Text+q.Again, q.MaxTokens, func(ctx context.Context, said string) error {
		if err := q.bad(said); err != nil {
			return errors.Join(err, r.report(ctx, true))
		}
		if err := r.keep(ctx, name, key, q.Documents[0], item{Answer: said}); err != nil {
			return err
		}
		answer = said
		return r.report(ctx, true)
	})
	return answer, err
}

// together is a set of questions about one document put to the model in one call.
type together struct {
	Document    string
	Questions   []Question
	Instruction string
	Text        string
	MaxTokens   int                          // of the answer
	Split       func(answer string) []string // the answer to each question, as if asked alone; "" if unusable
}

// askTogether asks several questions in one call. Each answer is cached under its
// own question, all in one blob, so that an interrupted run pays for all of them or
// none. A question without a usable answer has "".
func (r *DatasetRun) askTogether(ctx context.Context, b together) (answers []string, err error) {
	names := make([]string, len(b.Questions))
	for i, q := range b.Questions {
		names[i] = q.name(r.Kind, r.e.cfg.Chat.Model())
	}
	key := r.itemKey(b.Document, name32(names...))
	for _, name := range names {
		if err := r.noteItem(ctx, name, key, []string{b.Document}); err != nil {
			return nil, err
		}
	}
	err = r.pay(ctx, b.Instruction, b.Text, b.MaxTokens, func(ctx context.Context, said string) error {
		answers = b.Split(said)
		it := item{Answers: map[string]string{}}
		for i, answer := range answers {
			if answer == "" || b.Questions[i].bad(answer) != nil {
				answers[i] = ""
				continue
			}
			it.Answers[names[i]] = answer
		}
		if len(it.Answers) > 0 {
			if err := r.keep(ctx, names[0], key, b.Document, it); err != nil {
				return err
			}
		}
		return r.report(ctx, true)
	})
	return answers, err
}

// answered reports whether Ask would answer without calling the model.
func (r *DatasetRun) answered(ctx context.Context, q Question) (bool, error) {
	kept, from, err := r.kept(ctx, q.name(r.Kind, r.e.cfg.Chat.Model()), q.Documents[0])
	return from != "" && q.bad(kept) == nil, err
}

// pay asks the model within the budget, and counts the cost. then stores what was
// paid for, even when the run is canceled meanwhile.
func (r *DatasetRun) pay(ctx context.Context, instruction, text string, maxTokens int, then func(ctx context.Context, answer string) error) error {
	prompt := int64(chunker.CountTokens(instruction) + chunker.CountTokens(text))
	release, err := r.reserve(ctx, prompt+int64(maxTokens))
	if err != nil {
		return err
	}
	defer release()
	answer, err := r.e.cfg.Chat.Ask(ctx, instruction, text, maxTokens)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r.count(func(p *taskstore.RunProgress) {
		r.asked = true
		p.Calls++
		p.Tokens += prompt + int64(chunker.CountTokens(answer))
	})
	return then(ctx, answer)
}

// itemKey is the blob key of the cached answer to a question about a document.
func (r *DatasetRun) itemKey(document, name string) string {
	return r.items(document) + name + ".json"
}

func (r *DatasetRun) items(document string) string {
	return sheaf.ArtifactPrefix(r.TenantID, document) + "items/"
}

// own reports whether a blob is deleted with the document.
func (r *DatasetRun) own(document, key string) bool {
	return strings.HasPrefix(key, r.items(document))
}

// noteItem records where an answer will be stored. It returns ErrDocumentGone when
// one of its documents was deleted.
func (r *DatasetRun) noteItem(ctx context.Context, name, key string, documents []string) error {
	err := r.e.cfg.RunStore.NoteRunItem(ctx, r.TenantID, name, key, documents)
	if errors.Is(err, sheaf.ErrNotFound) {
		return ErrDocumentGone
	}
	if err != nil {
		return fmt.Errorf("noting a question: %w", err)
	}
	return nil
}

func (r *DatasetRun) count(change func(p *taskstore.RunProgress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.progress)
}

// name identifies an answer by everything that determines it: 32 hex.
func (q Question) name(kind sheaf.TaskKind, model string) string {
	b, _ := json.Marshal([]any{"item", kind, q.Version, model, q.Instruction, q.Text, q.MaxTokens}) // strings always encode
	return hash32(b)
}

// reserve takes tokens from the budget until release, so that concurrent questions
// do not exceed it together. Reservations exceed actual spending, so the budget is
// spent only when none is outstanding.
func (r *DatasetRun) reserve(ctx context.Context, tokens int64) (release func(), err error) {
	for {
		wait, err := r.tryReserve(tokens)
		if err != nil {
			return nil, err
		}
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.reserved -= tokens; r.freed != nil {
			close(r.freed)
			r.freed = nil
		}
	}, nil
}

// tryReserve takes tokens from the budget, or returns a channel that is closed when
// some are released.
func (r *DatasetRun) tryReserve(tokens int64) (wait <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch most := r.Options.Tokens(); {
	case r.asked && time.Now().After(r.until):
		return nil, errSlice
	case most == 0 || r.progress.Tokens+r.reserved+tokens <= most:
		r.reserved += tokens
		return nil, nil
	case r.reserved == 0:
		return nil, errBudget
	}
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed, nil
}

// kept finds a cached answer and its blob; "" for none.
func (r *DatasetRun) kept(ctx context.Context, name, document string) (answer, key string, err error) {
	keys, err := r.e.cfg.RunStore.RunItems(ctx, r.TenantID, name, document)
	if err != nil {
		return "", "", err
	}
	for _, key := range keys {
		b, err := r.e.cfg.Blobs.Open(ctx, key, 0, -1)
		if errors.Is(err, sheaf.ErrNotFound) { // noted but never answered, or being deleted
			continue
		}
		if err != nil {
			return "", "", fmt.Errorf("reading a kept answer: %w", err)
		}
		body, err := io.ReadAll(io.LimitReader(b, maxItemBytes))
		_ = b.Close() // what was read is complete, or does not decode
		if err != nil {
			return "", "", fmt.Errorf("reading a kept answer: %w", err)
		}
		var it item
		if json.Unmarshal(body, &it) == nil {
			if answer, ok := it.of(name); ok {
				return answer, key, nil
			}
		} // damaged: it is asked again and overwritten
	}
	return "", "", nil
}

// keep stores a noted answer, unless one of its documents was deleted meanwhile.
func (r *DatasetRun) keep(ctx context.Context, name, key, document string, it item) error {
	body, err := json.Marshal(it)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	if _, err := r.e.cfg.Blobs.Put(ctx, key, bytes.NewReader(body), int64(len(body))); err != nil {
		return fmt.Errorf("keeping an answer: %w", err)
	}
	noted, err := r.e.cfg.RunStore.RunItems(ctx, r.TenantID, name, document)
	if err != nil || len(noted) > 0 && noted[0] == key {
		return err
	}
	if err := r.e.cfg.Blobs.Delete(ctx, key); err != nil {
		return fmt.Errorf("removing an answer about a deleted document: %w", err)
	}
	return ErrDocumentGone
}

// askAll calls ask n times, a few concurrently. After a failure no more are started;
// those already paid for are awaited.
func askAll(n int, ask func(i int) error) error {
	var stop atomic.Bool
	var g errgroup.Group
	g.SetLimit(runAsks)
	for i := range n {
		g.Go(func() error {
			if stop.Load() {
				return nil
			}
			err := ask(i)
			if err != nil {
				stop.Store(true)
			}
			return err
		})
	}
	return g.Wait()
}

// Report sets the run's progress, which is written periodically.
func (r *DatasetRun) Report(ctx context.Context, phase string, done, total int) error {
	r.mu.Lock()
	changed := r.progress.Phase != phase
	r.progress.Phase, r.progress.Done, r.progress.Total = phase, done, total
	r.mu.Unlock()
	return r.report(ctx, changed)
}

// report writes progress, unless it was just written.
func (r *DatasetRun) report(ctx context.Context, now bool) error {
	if r.node {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock() // held during the write, so that writes stay in order
	if !now && time.Since(r.reported) < runReportEvery {
		return nil
	}
	if err := r.e.cfg.RunStore.ReportRun(ctx, r.claim, r.progress); err != nil {
		return fmt.Errorf("reporting the run %s: %w", r.ID, err)
	}
	r.reported = time.Now()
	return nil
}

// save writes progress at the end of an attempt. On failure the next attempt writes
// it, or it was written when it was spent.
func (r *DatasetRun) save(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := r.report(ctx, true); err != nil {
		r.e.cfg.Log.DebugContext(ctx, "the progress of a run was not written", "run", r.ID, "error", err)
	}
}

// Progress is the run's progress and spending.
func (r *DatasetRun) Progress() taskstore.RunProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress
}
