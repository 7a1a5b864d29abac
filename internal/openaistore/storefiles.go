package openaistore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"

	"sheaf"
	"sheaf/internal/facade"
)

// Codes of last_error.
const (
	codeServer      = "server_error"
	codeUnsupported = "unsupported_file"
	codeInvalid     = "invalid_file"
)

// chunking is how a file is split into chunks.
type chunking struct {
	Type   string  `json:"type"`
	Static *static `json:"static,omitempty"`
}

type static struct {
	Size    int `json:"max_chunk_size_tokens"`
	Overlap int `json:"chunk_overlap_tokens"`
}

// static returns nil if our defaults apply.
func (c *chunking) static() (*static, error) {
	const param = "chunking_strategy"
	if c == nil || c.Type == "auto" {
		return nil, nil
	}
	s := c.Static
	switch {
	case c.Type != "static":
		return nil, invalid(param, "the type of chunking_strategy cannot be %q; give auto or static", c.Type)
	case s == nil || s.Size < 100 || s.Size > 4096:
		return nil, invalid(param, "max_chunk_size_tokens must be 100 to 4096")
	case s.Overlap < 0 || s.Overlap*2 > s.Size:
		return nil, invalid(param, "chunk_overlap_tokens must be 0 to half of max_chunk_size_tokens")
	}
	return s, nil
}

// settings returns the document settings for this chunking.
func (s *static) settings() map[string]any {
	if s == nil {
		return nil
	}
	return map[string]any{"chunk_token_num": s.Size, "overlapped_percent": s.Overlap * 100 / s.Size}
}

type lastError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type storeFile struct {
	ID         string         `json:"id"`
	Object     string         `json:"object"`
	CreatedAt  int64          `json:"created_at"`
	Store      string         `json:"vector_store_id"`
	Status     string         `json:"status"`
	LastError  *lastError     `json:"last_error"`
	UsageBytes int64          `json:"usage_bytes"`
	Attributes map[string]any `json:"attributes"`
	Chunking   chunking       `json:"chunking_strategy"`
}

// fileID is the file of a document in a store; one added through /v1 is its own.
func fileID(d *sheaf.Document) string {
	if m := metaOfDocument(d); m.File != "" {
		return filePrefix + m.File
	}
	return filePrefix + d.ID
}

func storeFileOf(d *sheaf.Document) *storeFile {
	m := metaOfDocument(d)
	f := &storeFile{
		ID: fileID(d), Object: "vector_store.file", CreatedAt: d.CreatedAt.Unix(), Store: storePrefix + d.DatasetID,
		Status: statusOf(d.State), UsageBytes: d.Size, Attributes: m.Attributes, Chunking: chunking{Type: "other"},
	}
	if m.Chunking != nil {
		f.Chunking = chunking{"static", m.Chunking}
	}
	if f.Attributes == nil {
		f.Attributes = map[string]any{}
	}
	if d.State == sheaf.DocFailed && d.Failure != nil {
		f.LastError = &lastError{codeServer, d.Failure.Message}
		switch d.Failure.Category {
		case sheaf.CategoryBadInput, sheaf.CategoryEncrypted, sheaf.CategoryCrash, sheaf.CategoryPolicy:
			f.LastError.Code = codeInvalid
		}
		if d.Failure.Code == "unsupported_format" || d.Failure.Code == "part_missing" {
			f.LastError.Code = codeUnsupported
		}
	}
	return f
}

// copied is the document that a store has, or would have, for a file.
func copied(ds string, file *sheaf.Document) string {
	if file.DatasetID == ds {
		return file.ID
	}
	n := 0
	metaOf(file.Attributes, copyKey+ds, &n)
	return copyID(ds, file.ID, n)
}

// copyID is the id of the document in dataset ds for a file that has been removed
// from it n times. It is deterministic, so that attaching a file twice concurrently
// creates one document. It starts like the file's id, which gives the files of a
// store their order.
func copyID(ds, file string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", ds, file, n))
	sum[0] = sum[0]&0x3f | 0x80 // like a version 7 id
	return file[:16] + hex.EncodeToString(sum[:8])
}

// renew gives a store another id for its copy of a file: the id of a removed one is
// not free until all of it is deleted.
func (c *call) renew(ctx context.Context, ds string, file *sheaf.Document) error {
	n := 0
	metaOf(file.Attributes, copyKey+ds, &n)
	return c.change(ctx, docPath(file.ID), map[string]any{copyKey + ds: n + 1}, file)
}

// taken reports whether err means that an id is in use.
func taken(err error) bool {
	e, ok := errors.AsType[*facade.Error](err)
	return ok && e.Status == http.StatusConflict
}

// storeFile finds the document of the file id in the store of the path, and the
// file. Clients poll this, so both are read in one request: the store need not be
// read if it has a copy of the file, and most files were never removed from it.
func (c *call) storeFile(ctx context.Context, id string) (d, file *sheaf.Document, err error) {
	ds, doc := inner(storePrefix, c.r.PathValue("store")), inner(filePrefix, id)
	if ds != "" && doc != "" {
		first := copyID(ds, doc, 0)
		found, err := c.named(ctx, []string{doc, first})
		if err != nil {
			return nil, nil, err
		}
		if file = found[doc]; file != nil {
			there := copied(ds, file)
			if there != doc && there != first {
				if found, err = c.named(ctx, []string{there}); err != nil {
					return nil, nil, err
				}
			}
			d = found[there]
			if d != nil && d.DatasetID != ds { // an id chosen by a user
				d = nil
			}
			if d != nil && d != file {
				return d, file, nil
			}
		}
	}
	if _, err := c.store(ctx); err != nil {
		return nil, nil, err
	}
	if d == nil {
		return nil, nil, missing("file in the vector store", id)
	}
	return d, file, nil
}

// checkAttributes rejects attributes that cannot be stored with a file.
func checkAttributes(a map[string]any) error {
	if len(a) > maxPairs {
		return invalid("attributes", "attributes has %d pairs; give at most %d", len(a), maxPairs)
	}
	for key, value := range a {
		if err := checkPair("attributes", key, value); err != nil {
			return err
		}
	}
	return nil
}

// sent is the response to an upload.
type sent struct {
	Job       sheaf.Job        `json:"job"`
	Documents []sheaf.Document `json:"documents"`
}

// copy creates documents from files in a store, in one job: new ones, and new
// versions of existing ones.
func (c *call) copy(ctx context.Context, s *store, files []batchFile) (*sent, error) {
	copies := make([]map[string]any, len(files))
	for i, f := range files {
		st, err := f.Chunking.static()
		if err != nil {
			return nil, err
		}
		m := meta{File: f.doc.ID, Attributes: f.Attributes, Chunking: st}
		copies[i] = map[string]any{"from": f.doc.ID, "id": copied(s.ID, f.doc), "attributes": map[string]any{metaKey: m}}
		if st != nil {
			copies[i]["parser_config"] = st.settings()
		}
	}
	var out sent
	return &out, c.Call(ctx, http.MethodPost, s.documents(), map[string]any{"copies": copies}, &out)
}

// describe changes what is stored with a file already in a store. The chunking
// changes only when it is read again.
func (c *call) describe(ctx context.Context, s *store, f *batchFile, there *sheaf.Document, again bool) (*sheaf.Document, error) {
	was := metaOfDocument(there)
	m := meta{File: f.doc.ID, Attributes: f.Attributes, Chunking: was.Chunking}
	if there.ID == f.doc.ID { // it is its own file
		m.File = ""
	}
	if f.Attributes == nil {
		m.Attributes = was.Attributes
	}
	if again {
		m.Chunking, _ = f.Chunking.static() // already checked
	}
	if reflect.DeepEqual(m, was) {
		return there, nil
	}
	return there, c.change(ctx, docPath(there.ID), map[string]any{metaKey: m}, there)
}

// attach adds one file to a store; an existing one is not read again.
func (c *call) attach(ctx context.Context, s *store, f *batchFile) (*sheaf.Document, error) {
	var there sheaf.Document
	err := c.Call(ctx, http.MethodGet, s.documents()+facade.Path(copied(s.ID, f.doc)), nil, &there)
	if err == nil {
		return c.describe(ctx, s, f, &there, false)
	}
	if !absent(err) {
		return nil, err
	}
	made, err := c.attachAll(ctx, s, []batchFile{*f})
	if err != nil {
		return nil, err
	}
	return &made.Documents[0], nil
}

func attachFile(ctx context.Context, c *call) (any, error) {
	var in batchFile
	if err := c.body(&in); err != nil {
		return nil, err
	}
	s, err := c.inUse(ctx)
	if err != nil {
		return nil, err
	}
	files := []batchFile{in}
	if err := c.check(ctx, files); err != nil {
		return nil, err
	}
	d, err := c.attach(ctx, s, &files[0])
	if err != nil {
		return nil, err
	}
	return storeFileOf(d), nil
}

func listStoreFiles(ctx context.Context, c *call) (any, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	return c.files(ctx, s, s.documents())
}

// files lists the files of a store or a batch, at path.
func (c *call) files(ctx context.Context, s *store, path string) (any, error) {
	p, err := c.page(20, 100)
	if err != nil {
		return nil, err
	}
	filter := c.r.URL.Query().Get("filter")
	if filter != "" && statesOf(filter) == nil {
		return nil, invalid("filter", "filter cannot be %q; give in_progress, completed, failed or cancelled", filter)
	}
	l := listing[sheaf.Document]{path: path, keep: func(d *sheaf.Document) bool {
		return d.ParentID == "" && (filter == "" || statusOf(d.State) == filter)
	}}
	if filter != "" && path == s.documents() {
		l.query = url.Values{"state": statesOf(filter)}
	}
	cursor := ""
	if id := p.after + p.before; id != "" {
		d, _, err := c.storeFile(ctx, id)
		if err != nil {
			return nil, err
		}
		cursor = d.ID
	}
	docs, more, err := l.read(ctx, c, p, cursor)
	if err != nil {
		return nil, err
	}
	out := &list{Object: "list", Data: []any{}, HasMore: more}
	for i := range docs {
		f := storeFileOf(&docs[i])
		out.add(f.ID, f)
	}
	return out, nil
}

func readStoreFile(ctx context.Context, c *call) (any, error) {
	d, _, err := c.storeFile(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	c.w.Header().Set("Openai-Poll-After-Ms", pollAfter)
	return storeFileOf(d), nil
}

func changeStoreFile(ctx context.Context, c *call) (any, error) {
	var in struct {
		Attributes map[string]any `json:"attributes"`
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := checkAttributes(in.Attributes); err != nil {
		return nil, err
	}
	d, _, err := c.storeFile(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	m := metaOfDocument(d)
	m.Attributes = in.Attributes
	if err := c.change(ctx, docPath(d.ID), map[string]any{metaKey: m}, d); err != nil {
		return nil, err
	}
	return storeFileOf(d), nil
}

// detachFile removes a file from a store; it stays in /files.
func detachFile(ctx context.Context, c *call) (any, error) {
	d, file, err := c.storeFile(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	if err := c.remove(ctx, d.ID); err != nil {
		return nil, err
	}
	if d.ID != file.ID {
		_ = c.renew(ctx, d.DatasetID, file) // otherwise attaching it again does this
	}
	return map[string]any{"id": filePrefix + file.ID, "object": "vector_store.file.deleted", "deleted": true}, nil
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// storeFileContent returns the parsed content of a file, one item per passage.
func storeFileContent(ctx context.Context, c *call) (any, error) {
	d, _, err := c.storeFile(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	chunks, err := c.Read(ctx, d.DatasetID, d.ID)
	if err != nil {
		return nil, err
	}
	data := []text{}
	for i := range chunks {
		data = append(data, text{"text", chunks[i].Text})
	}
	f := storeFileOf(d)
	return map[string]any{"object": "vector_store.file_content.page", "file_id": f.ID, "filename": d.Name, "attributes": f.Attributes, "data": data, "has_more": false, "next_page": nil}, nil
}
