package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// Tree limits what an uploaded archive expands to. Zero fields are as in
// DefaultTree.
type Tree struct {
	Depth     int   // maximum archives around a document
	Documents int   // from one upload, including nested archives
	Bytes     int64 // of all of them together
}

// DefaultTree is generous for what users upload.
var DefaultTree = Tree{Depth: 3, Documents: 10_000, Bytes: 16 << 30}

func (t Tree) withDefaults() Tree {
	t.Depth = cmp.Or(t.Depth, DefaultTree.Depth)
	t.Documents = cmp.Or(t.Documents, DefaultTree.Documents)
	t.Bytes = cmp.Or(t.Bytes, DefaultTree.Bytes)
	return t
}

const (
	// memberBatch is the number of files that become documents per transaction.
	memberBatch = 50
	// queueFull is how long an archive waits for headroom in the tenant's queue.
	queueFull = 15 * time.Second
	// memberWarnings bounds the warnings that unreadable files add to the archive's.
	memberWarnings = 50
)

// metadataMembers is the archive's own metadata key: the number of its files.
const metadataMembers = "members"

// unpacking is one attempt at turning an archive's files into documents.
type unpacking struct {
	p       *Planner
	task    *sheaf.Task
	archive *sheaf.Document
	tree    Tree
	keep    bool // leave existing documents alone
	fresh   bool
	there   map[string]sheaf.Document // by path
	wanted  []sheaf.Range
	full    *sheaf.Failure // the quota failure, once a file was refused
	result  sheaf.TaskResult
	units   int
	general int // files that the chosen chunk method does not accept
}

// unpack makes documents of the files in an archive, a few at a time. Each id is
// derived from the archive, its generation and the path, so that an attempt after a
// lost one continues from what exists. The archive itself only gets a verdict per
// file: it has no ranges to read.
func (p *Planner) unpack(ctx context.Context, doc *sheaf.Document, format parser.Format, ask taskstore.PlanPayload, t *sheaf.Task) (done taskstore.Completion, err error) {
	u := &unpacking{p: p, tree: p.Tree.withDefaults(), task: t, archive: doc, keep: ask.Continues(), fresh: ask.Fresh, there: map[string]sheaf.Document{}}
	config := settings.WithDefaults(doc.ParseConfig)
	if u.wanted, err = sheaf.SelectUnits(config.Pages.V, u.tree.Documents); err != nil {
		return done, sheaf.Fail(sheaf.CategoryBadInput, "bad_pages", "%v", err)
	}
	known, err := p.Store.Members(ctx, doc.ID)
	if err != nil {
		return done, fmt.Errorf("listing the files of %s: %w", doc.Name, err)
	}
	for _, d := range known {
		u.there[d.Path] = d
	}
	path, release, err := p.Files.Fetch(ctx, doc.BlobKey, doc.SHA256, doc.Size)
	if err != nil {
		return done, fmt.Errorf("fetching %s: %w", doc.Name, err)
	}
	defer release()
	src := child.Source{
		Path: path, Format: format.ID(), Key: doc.ID + "/" + fmt.Sprint(doc.Generation) + "/" + doc.BlobKey,
		Options: parser.Options{Name: doc.Name, MediaType: doc.MediaType, Config: config},
	}
	for from := 1; from > 0; {
		if from, err = u.step(ctx, src, from); err != nil {
			return done, err
		}
	}
	if u.general > 0 {
		u.warn("method_not_for_type", fmt.Sprintf("chunk_method %s does not take %d of the files; they are cut by general.", config.ChunkMethod.V, u.general))
	}
	if _, err := sheaf.SelectUnits(config.Pages.V, u.units); err != nil {
		return done, sheaf.Fail(sheaf.CategoryBadInput, "bad_pages", "%v", err)
	}
	return taskstore.Completion{
		Plan: &sheaf.PlanResult{
			Parser: fmt.Sprintf("%s/%d", format.ID(), format.Version()), Unit: sheaf.UnitPart, Units: u.units,
			Metadata: map[string]string{metadataMembers: fmt.Sprint(u.units)}, Warnings: u.result.Warnings,
		},
		Spawn: []sheaf.NewTask{{ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: sheaf.UnitPart, Range: sheaf.Range{From: 1, To: u.units}, Cost: 1, Done: &u.result}},
	}, nil
}

// step unpacks a run of files and submits them. It returns where to continue, 0 at
// the end.
func (u *unpacking) step(ctx context.Context, src child.Source, from int) (next int, err error) {
	leave, err := enterSlots(ctx)
	if err != nil {
		return 0, err
	}
	run, dir, cleanup, err := u.p.Parser.Unpack(ctx, src, from)
	leave()
	if err != nil {
		return 0, err
	}
	defer cleanup()
	if len(run.Members) == 0 || run.Members[0].N != from || run.Next != 0 && run.Next != from+len(run.Members) {
		return 0, sheaf.FailRetryable(sheaf.CategoryInternal, "members_missing", "The archive's files from number %d on were not unpacked; please report the file.", from)
	}
	for _, w := range run.Warnings {
		u.warn(w.Code, w.Message)
	}
	for batch := range slices.Chunk(run.Members, memberBatch) {
		if err := u.submit(ctx, dir, batch); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
	}
	return run.Next, nil
}

// submit makes documents of a few files, after storing their bytes.
func (u *unpacking) submit(ctx context.Context, dir string, files []parser.Member) error {
	verdicts := make([]sheaf.LedgerRun, len(files))
	var batch []taskstore.NewDocument
	var at []int        // indexes of batch in files
	var stored []string // by this attempt; "" when the bytes existed
	for i, m := range files {
		u.units = m.N
		verdicts[i] = sheaf.LedgerRun{From: m.N, To: m.N, Status: m.Status, Code: m.Code, Message: m.Message}
		if m.Status != "" || !slices.ContainsFunc(u.wanted, func(r sheaf.Range) bool { return r.Contains(m.N) }) {
			continue
		}
		n, refusal, err := u.document(m, dir)
		if err != nil {
			return err
		}
		old, known := u.there[m.Path]
		if refusal == nil && !known && u.full != nil {
			refusal = u.full
		}
		if refusal != nil {
			verdicts[i].Status, verdicts[i].Code, verdicts[i].Message = statusOf(refusal), refusal.Code, m.Path+": "+refusal.Message
			continue
		}
		key := ""
		if known && old.SHA256 == m.SHA256 {
			n.Document.BlobKey = old.BlobKey
		} else {
			key = sheaf.MemberKey(u.task.TenantID, u.archive.ID, u.archive.Generation, u.task.Epoch, n.Document.ID)
			n.Document.BlobKey = key
			if err := u.p.put(ctx, key, dir, m); err != nil {
				return fmt.Errorf("storing %s: %w", m.Path, err)
			}
		}
		batch, at, stored = append(batch, n), append(at, i), append(stored, key)
	}
	if len(batch) > 0 {
		outcomes, err := u.p.Store.CreateMembers(ctx, u.task.Held(), taskstore.NewMembers{Files: batch, Keep: u.keep, MaxDocuments: u.tree.Documents, MaxBytes: u.tree.Bytes})
		if err != nil {
			return err
		}
		for k, o := range outcomes {
			v := &verdicts[at[k]]
			if v.Status = sheaf.UnitOK; o.Failure != nil {
				v.Status, v.Code, v.Message = statusOf(o.Failure), o.Failure.Code, batch[k].Document.Path+": "+o.Failure.Message
				if o.Failure.Code == sheaf.CodeLimit {
					u.full = o.Failure
				}
			}
			if stored[k] != "" && !o.Stored {
				// This attempt alone writes under this key: see MemberKey.
				if err := u.p.Blobs.Delete(ctx, stored[k]); err != nil {
					return fmt.Errorf("removing the bytes of %s, which became no document: %w", batch[k].Document.Path, err)
				}
			}
		}
		if slices.ContainsFunc(outcomes, func(o taskstore.MemberOutcome) bool { return o.Wait }) {
			return errors.Join(&sheaf.RateLimited{After: queueFull}, sheaf.FailRetryable(sheaf.CategoryCapacity, sheaf.CodeLimit, "the tenant's queue is full; the rest of the archive waits for its turn"))
		}
	}
	for _, v := range verdicts {
		if v.Status == "" {
			continue // not requested
		}
		u.result.Ledger = u.result.Ledger.Add(v)
		if v.Status == sheaf.UnitOK {
			u.result.Documents++
		}
	}
	return nil
}

// statusOf is the verdict for a refusal: failed if it could work another time,
// otherwise skipped.
func statusOf(f *sheaf.Failure) sheaf.UnitStatus {
	if f.Category == sheaf.CategoryCapacity {
		return sheaf.UnitFailed
	}
	return sheaf.UnitSkipped
}

// document describes the document that a file becomes, or says why it is refused.
func (u *unpacking) document(m parser.Member, dir string) (n taskstore.NewDocument, refusal *sheaf.Failure, err error) {
	mediaType, err := u.p.sniffFile(dir, m)
	if err != nil {
		return n, nil, err
	}
	format, ok := u.p.Formats.ByMediaType(mediaType)
	if !ok {
		return n, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "it is %s, which cannot be read; convert it and upload it by itself", mediaType), nil
	}
	if err := parser.Available(format); err != nil {
		return n, sheaf.AsFailure(err, ""), nil
	}
	if _, inner := format.(parser.Container); inner && u.archive.Depth+1 >= u.tree.Depth {
		return n, sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "it lies %d archives deep and is one itself; upload it by itself", u.archive.Depth+1), nil
	}
	config := u.archive.ParseConfig
	config.Pages, config.MediaType = sheaf.Opt[[]sheaf.Range]{}, sheaf.Opt[string]{} // these are the archive's
	if u.p.Formats.Check(config, mediaType) != nil {
		config.ChunkMethod = settings.Default.ChunkMethod
		u.general++
	}
	metadata := maps.Clone(u.archive.Metadata)
	delete(metadata, metadataMembers)
	d := sheaf.Document{
		ID: sheaf.DerivedID(u.archive.CreatedAt, m.N, u.archive.ID, fmt.Sprint(u.archive.Generation), m.Path), Path: m.Path,
		Name: sheaf.ClipName(u.archive.Name + "/" + m.Path), MediaType: mediaType, Size: m.Size, SHA256: m.SHA256, ParseConfig: config, Metadata: metadata,
	}
	if old, known := u.there[m.Path]; known {
		d.ID = old.ID
	}
	return taskstore.NewDocument{Document: d, Plan: taskstore.PlanTask(taskstore.PlanPayload{Fresh: u.fresh})}, nil, nil
}

func (u *unpacking) warn(code, message string) {
	if len(u.result.Warnings) < memberWarnings {
		u.result.Warnings = append(u.result.Warnings, sheaf.Warning{Code: code, Message: message})
	}
}

// sniffFile detects an unpacked file's media type.
func (p *Planner) sniffFile(dir string, m parser.Member) (string, error) {
	f, err := openWritten(dir, m.File)
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", m.Path, err)
	}
	defer f.Close()
	return p.Formats.Sniff(f, m.Size, m.Path), nil
}

// put stores an unpacked file.
func (p *Planner) put(ctx context.Context, key, dir string, m parser.Member) error {
	f, err := openWritten(dir, m.File)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = p.Blobs.Put(ctx, key, f, m.Size)
	return err
}

// openWritten opens a file that a parser's child wrote into its folder. The child
// has read untrusted input: neither the name it gives nor a link it left may lead
// elsewhere.
func openWritten(dir, name string) (*os.File, error) {
	return os.OpenInRoot(dir, filepath.FromSlash(name))
}
