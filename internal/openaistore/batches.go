package openaistore

import (
	"context"
	"net/http"
	"net/url"

	"sheaf"
	"sheaf/internal/facade"
)

// maxBatch files are taken at once.
const maxBatch = 2000

// batchFile is a file on its way into a store.
type batchFile struct {
	ID         string         `json:"file_id"`
	Attributes map[string]any `json:"attributes"`
	Chunking   *chunking      `json:"chunking_strategy"`
	doc        *sheaf.Document
}

// check refuses files that could not be attached, and finds the documents of the others.
func (c *call) check(ctx context.Context, files []batchFile) error {
	if len(files) > maxBatch {
		return invalid("file_ids", "%d files are given; give at most %d at once", len(files), maxBatch)
	}
	found := map[string]*sheaf.Document{}
	for from := 0; from < len(files); from += 500 {
		q := url.Values{"limit": {"1000"}}
		for _, f := range files[from:min(from+500, len(files))] {
			id := inner(filePrefix, f.ID)
			if id == "" {
				return missing("file", f.ID)
			}
			q.Add("id", id)
		}
		var list facade.List[sheaf.Document]
		if err := c.Call(ctx, http.MethodGet, facade.Path("v1", "datasets", filesDataset, "documents")+"?"+q.Encode(), nil, &list); err != nil && !absent(err) {
			return err
		}
		for i := range list.Items {
			if d := &list.Items[i]; isFile(d) {
				found[d.ID] = d
			}
		}
	}
	for i := range files {
		f := &files[i]
		if err := checkAttributes(f.Attributes); err != nil {
			return err
		}
		if _, err := f.Chunking.static(); err != nil {
			return err
		}
		if f.doc = found[inner(filePrefix, f.ID)]; f.doc == nil {
			var err error
			if f.doc, err = c.file(ctx, f.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// attachAll makes one job of files that were checked.
func (c *call) attachAll(ctx context.Context, s *store, files []batchFile) (*sheaf.Job, error) {
	var job sheaf.Job
	if err := c.Call(ctx, http.MethodPost, facade.Path("v1", "datasets", s.ID, "jobs"), map[string]string{}, &job); err != nil {
		return nil, err
	}
	path := facade.Path("v1", "jobs", job.ID)
	seen := map[string]bool{}
	for i := range files {
		if seen[files[i].doc.ID] {
			continue
		}
		seen[files[i].doc.ID] = true
		if _, err := c.attach(ctx, s, &files[i], job.ID); err != nil {
			ctx := context.WithoutCancel(ctx)
			_ = c.Call(ctx, http.MethodPost, path+":close", nil, nil) // it closes by itself later
			_ = c.Call(ctx, http.MethodPost, path+":cancel", nil, nil)
			return nil, err
		}
	}
	err := c.Call(ctx, http.MethodPost, path+":close", nil, &job)
	return &job, err
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
	job, err := c.attachAll(ctx, s, files)
	if err != nil {
		return nil, err
	}
	return batchOf(job), nil
}

// batch finds the job of the path's batch, and its store.
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
