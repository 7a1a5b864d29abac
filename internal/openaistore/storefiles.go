package openaistore

import (
	"context"
	"net/http"
	"net/url"

	"sheaf"
	"sheaf/internal/facade"
)

// Codes of last_error.
const (
	codeServer      = "server_error"
	codeUnsupported = "unsupported_file"
	codeInvalid     = "invalid_file"
)

// chunking says how a file is cut.
type chunking struct {
	Type   string  `json:"type"`
	Static *static `json:"static,omitempty"`
}

type static struct {
	Size    int `json:"max_chunk_size_tokens"`
	Overlap int `json:"chunk_overlap_tokens"`
}

// static is nil for what our defaults decide.
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

// settings are those of a document that is cut so.
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

// fileID is the file that a document of a store is of: one that /v1 was given is its own.
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

// copied is the document that a store has of a file, "" for none.
func copied(s *store, file *sheaf.Document) string {
	if file.DatasetID == s.ID {
		return file.ID
	}
	id := ""
	if metaOf(file.Attributes, copyKey+s.ID, &id); !sheaf.ValidID(id) {
		return ""
	}
	return id
}

// storeFile finds what a store has of a file, and the file.
func (c *call) storeFile(ctx context.Context, s *store, id string) (d, file *sheaf.Document, err error) {
	none := missing("file in the vector store", id)
	doc := inner(filePrefix, id)
	if doc == "" {
		return nil, nil, none
	}
	if file, err = c.document(ctx, doc); err != nil {
		if absent(err) {
			err = none
		}
		return nil, nil, err
	}
	if doc = copied(s, file); doc == "" {
		return nil, nil, none
	}
	var there sheaf.Document
	if err := c.Call(ctx, http.MethodGet, s.documents()+facade.Path(doc), nil, &there); err != nil {
		if absent(err) {
			err = none
		}
		return nil, nil, err
	}
	return &there, file, nil
}

// checkAttributes refuses what cannot be stored with a file of a store.
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

// sent is the answer of an upload.
type sent struct {
	Job       sheaf.Job        `json:"job"`
	Documents []sheaf.Document `json:"documents"`
}

// attach makes a document of a file in a store, in the open job that is named. One
// that is there is read again in that job; without a job it stays as it is.
func (c *call) attach(ctx context.Context, s *store, f *batchFile, job string) (*sheaf.Document, error) {
	st, err := f.Chunking.static()
	if err != nil {
		return nil, err
	}
	m := meta{File: f.doc.ID, Attributes: f.Attributes, Chunking: st}
	ask := map[string]any{"from": f.doc.ID, "attributes": map[string]any{metaKey: m}}
	if st != nil {
		ask["parser_config"] = st.settings()
	}
	q := ""
	if job != "" {
		q = "?" + url.Values{"job": {job}}.Encode()
	}
	if id := copied(s, f.doc); id != "" {
		var there sheaf.Document
		path := s.documents() + facade.Path(id)
		switch err := c.Call(ctx, http.MethodGet, path, nil, &there); {
		case absent(err): // deleted since
		case err != nil:
			return nil, err
		default:
			if id == f.doc.ID { // it is its own file
				m.File = ""
			}
			if f.Attributes == nil {
				m.Attributes = metaOfDocument(&there).Attributes
			}
			if job != "" {
				if err := c.Call(ctx, http.MethodPut, path+q, ask, nil); err != nil {
					return nil, err
				}
			} else {
				m.Chunking = metaOfDocument(&there).Chunking
			}
			err := c.change(ctx, docPath(id), map[string]any{metaKey: m}, &there)
			return &there, err
		}
	}
	var out sent
	if err := c.Call(ctx, http.MethodPost, s.documents()+q, ask, &out); err != nil {
		return nil, err
	}
	d := &out.Documents[0]
	if err := c.change(ctx, docPath(f.doc.ID), map[string]any{copyKey + s.ID: d.ID}, nil); err != nil {
		c.Drop(ctx, out.Documents) // nobody would find it by its file
		return nil, err
	}
	return d, nil
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
	d, err := c.attach(ctx, s, &files[0], "")
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

// files lists those of a store, or those of a batch, at path.
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
		d, _, err := c.storeFile(ctx, s, id)
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
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	d, _, err := c.storeFile(ctx, s, c.r.PathValue("file"))
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
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	d, _, err := c.storeFile(ctx, s, c.r.PathValue("file"))
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

// detachFile takes a file out of a store; it stays in /files.
func detachFile(ctx context.Context, c *call) (any, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	d, file, err := c.storeFile(ctx, s, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	if err := c.remove(ctx, d.ID); err != nil {
		return nil, err
	}
	if d.ID != file.ID {
		if err := c.change(ctx, docPath(file.ID), map[string]any{copyKey + s.ID: nil}, nil); err != nil && !absent(err) {
			return nil, err
		}
	}
	return map[string]any{"id": filePrefix + file.ID, "object": "vector_store.file.deleted", "deleted": true}, nil
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// storeFileContent answers what was read of a file, a passage an item.
func storeFileContent(ctx context.Context, c *call) (any, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	d, _, err := c.storeFile(ctx, s, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	chunks, err := c.Read(ctx, s.ID, d.ID)
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
