package openaistore

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"sheaf"
	"sheaf/internal/facade"
)

// maxBatch bounds the files per batch.
const maxBatch = 2000

// batchFile is a file to attach to a store.
type batchFile struct {
	ID         string         `json:"file_id"`
	Attributes map[string]any `json:"attributes"`
	Chunking   *chunking      `json:"chunking_strategy"`
	doc        *sheaf.Document
}

// idsAtOnce bounds the ids in one /v1 list.
const idsAtOnce = 500

// named reads the existing documents among the ids, in any dataset.
func (c *call) named(ctx context.Context, ids []string) (map[string]*sheaf.Document, error) {
	found := make(map[string]*sheaf.Document, len(ids))
	for some := range slices.Chunk(ids, idsAtOnce) {
		var list facade.List[sheaf.Document]
		if err := c.Call(ctx, http.MethodGet, facade.Path("v1", "datasets", "-", "documents")+"?"+url.Values{"limit": {"1000"}, "id": some}.Encode(), nil, &list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			found[list.Items[i].ID] = &list.Items[i]
		}
	}
	return found, nil
}

// check rejects files that cannot be attached, and finds the others' documents.
func (c *call) check(ctx context.Context, files []batchFile) error {
	if len(files) > maxBatch {
		return invalid("file_ids", "%d files are given; give at most %d at once", len(files), maxBatch)
	}
	ids := make([]string, len(files))
	for i, f := range files {
		if ids[i] = inner(filePrefix, f.ID); ids[i] == "" {
			return missing("file", f.ID)
		}
	}
	found, err := c.named(ctx, ids)
	if err != nil {
		return err
	}
	for i := range files {
		f := &files[i]
		if err := checkAttributes(f.Attributes); err != nil {
			return err
		}
		if _, err := f.Chunking.static(); err != nil {
			return err
		}
		if f.doc = found[ids[i]]; f.doc == nil || !isFile(f.doc) {
			return missing("file", f.ID)
		}
	}
	return nil
}

// attachAll creates one job for the checked files, all or none. Files already in
// the store are read again.
func (c *call) attachAll(ctx context.Context, s *store, files []batchFile) (*sent, error) {
	var once []batchFile
	var ids []string
	seen := map[string]bool{}
	for _, f := range files {
		if !seen[f.doc.ID] {
			seen[f.doc.ID] = true
			once, ids = append(once, f), append(ids, copied(s.ID, f.doc))
		}
	}
	there, err := c.named(ctx, ids)
	if err != nil {
		return nil, err
	}
	var made *sent
	for range 3 {
		if made, err = c.copy(ctx, s, once); !taken(err) {
			break
		}
		now, err := c.named(ctx, ids)
		if err != nil {
			return nil, err
		}
		// Unless another request attached some of them concurrently, some were
		// removed a moment ago.
		for i := range once {
			if len(now) == len(there) && now[ids[i]] == nil {
				if err := c.renew(ctx, s.ID, once[i].doc); err != nil {
					return nil, err
				}
				ids[i] = copied(s.ID, once[i].doc)
			}
		}
		there = now
	}
	if err != nil {
		return nil, err
	}
	for i := range once { // existing ones keep their attributes when they are read again
		if d := there[ids[i]]; d != nil {
			if _, err := c.describe(ctx, s, &once[i], d, true); err != nil {
				return nil, err
			}
		}
	}
	return made, nil
}

type batchObject struct {
	ID         string     `json:"id"`
	Object     string     `json:"object"`
	CreatedAt  int64      `json:"created_at"`
	Store      string     `json:"vector_store_id"`
	Status     string     `json:"status"`
	FileCounts fileCounts `json:"file_counts"`
}

func batchOf(j *sheaf.Job) *batchObject {
	b := &batchObject{ID: batchPrefix + j.ID, Object: "vector_store.files_batch", CreatedAt: j.CreatedAt.Unix(), Store: storePrefix + j.DatasetID}
	for state, n := range j.Documents.ByState {
		b.FileCounts.add(state, n)
	}
	switch {
	case b.FileCounts.InProgress > 0 || !j.OpenUntil.IsZero():
		b.Status = statusProgress
	case b.FileCounts.Cancelled > 0:
		b.Status = statusCancelled
	case b.FileCounts.Failed > 0 && b.FileCounts.Failed == b.FileCounts.Total:
		b.Status = statusFailed
	default:
		b.Status = statusCompleted
	}
	return b
}

func createBatch(ctx context.Context, c *call) (any, error) {
	var in struct {
		FileIDs    []string       `json:"file_ids"`
		Files      []batchFile    `json:"files"`
		Attributes map[string]any `json:"attributes"`
		Chunking   *chunking      `json:"chunking_strategy"`
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if (len(in.FileIDs) == 0) == (len(in.Files) == 0) {
		return nil, invalid("file_ids", "Give either file_ids or files, with 1 to %d files", maxBatch)
	}
	s, err := c.inUse(ctx)
	if err != nil {
		return nil, err
	}
	files := in.Files
	for _, id := range in.FileIDs {
		files = append(files, batchFile{ID: id, Attributes: in.Attributes, Chunking: in.Chunking})
	}
	if err := c.check(ctx, files); err != nil {
		return nil, err
	}
	made, err := c.attachAll(ctx, s, files)
	if err != nil {
		return nil, err
	}
	return batchOf(&made.Job), nil
}

// batch finds the job of the batch in the path, and its store.
func (c *call) batch(ctx context.Context) (*store, *sheaf.Job, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, nil, err
	}
	id := c.r.PathValue("batch")
	none := missing("file batch in the vector store", id)
	job := inner(batchPrefix, id)
	if job == "" {
		return nil, nil, none
	}
	var j sheaf.Job
	err = c.Call(ctx, http.MethodGet, facade.Path("v1", "jobs", job), nil, &j)
	if absent(err) || err == nil && j.DatasetID != s.ID {
		err = none
	}
	return s, &j, err
}

func readBatch(ctx context.Context, c *call) (any, error) {
	_, j, err := c.batch(ctx)
	if err != nil {
		return nil, err
	}
	c.w.Header().Set("Openai-Poll-After-Ms", pollAfter)
	return batchOf(j), nil
}

func cancelBatch(ctx context.Context, c *call) (any, error) {
	_, j, err := c.batch(ctx)
	if err != nil {
		return nil, err
	}
	path := facade.Path("v1", "jobs", j.ID)
	if err := c.Call(ctx, http.MethodPost, path+":cancel", nil, nil); err != nil {
		return nil, err
	}
	if err := c.Call(ctx, http.MethodGet, path, nil, j); err != nil {
		return nil, err
	}
	return batchOf(j), nil
}

func listBatchFiles(ctx context.Context, c *call) (any, error) {
	s, j, err := c.batch(ctx)
	if err != nil {
		return nil, err
	}
	return c.files(ctx, s, facade.Path("v1", "jobs", j.ID, "documents"))
}
