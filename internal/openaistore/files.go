package openaistore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/facade"
)

// filesDataset holds the uploaded files. None is parsed.
const filesDataset = "openai-files"

// purposes are the allowed purposes of a file.
var purposes = []string{"assistants", "batch", "fine-tune", "vision", "user_data", "evals"}

// maxFieldBytes bounds what is read of a form field.
const maxFieldBytes = 64 << 10

// meta is what is stored with a document.
type meta struct {
	Purpose    string         `json:"purpose,omitempty"`    // of a file
	ExpiresAt  int64          `json:"expires_at,omitempty"` // of a file: Unix seconds
	File       string         `json:"file,omitempty"`       // of a document in a store: the document of the file
	Attributes map[string]any `json:"attributes,omitempty"`
	Chunking   *static        `json:"chunking,omitempty"`
}

func metaOfDocument(d *sheaf.Document) meta {
	var m meta
	metaOf(d.Attributes, metaKey, &m)
	return m
}

type fileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt *int64 `json:"expires_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
}

func fileOf(d *sheaf.Document) *fileObject {
	m := metaOfDocument(d)
	f := &fileObject{filePrefix + d.ID, "file", d.Size, d.CreatedAt.Unix(), nil, d.Name, m.Purpose, "processed"}
	if f.Purpose == "" {
		f.Purpose = "assistants"
	}
	if m.ExpiresAt != 0 {
		f.ExpiresAt = &m.ExpiresAt
	}
	return f
}

// isFile reports whether a document is a file: not made of one, and not expired.
func isFile(d *sheaf.Document) bool {
	m := metaOfDocument(d)
	return m.File == "" && (m.ExpiresAt == 0 || m.ExpiresAt > time.Now().Unix())
}

// file finds the document of a file.
func (c *call) file(ctx context.Context, id string) (*sheaf.Document, error) {
	doc := inner(filePrefix, id)
	if doc == "" {
		return nil, missing("file", id)
	}
	d, err := c.document(ctx, doc)
	if absent(err) || err == nil && !isFile(d) {
		return nil, missing("file", id)
	}
	return d, err
}

var errBrokeOff = invalid("file", "The upload broke off or is no valid multipart/form-data; send it again")

// upload stores a file. The form's fields may come before or after it.
func upload(ctx context.Context, c *call) (any, error) {
	parts, err := c.r.MultipartReader()
	if err != nil {
		return nil, invalid("file", "The body is no form; send multipart/form-data with file and purpose")
	}
	var d *sheaf.Document
	fields := map[string]string{}
	stored := 0 // fields stored with the file because they came before it
	err = func() error {
		for {
			part, err := parts.NextPart()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return errBrokeOff
			}
			if part.FileName() == "" {
				b, err := io.ReadAll(io.LimitReader(part, maxFieldBytes))
				if err != nil {
					return errBrokeOff
				}
				fields[part.FormName()] = string(b)
				continue
			}
			if d != nil || part.FormName() != "file" {
				return invalid(part.FormName(), "One file is taken, in the part file; send others in requests of their own")
			}
			attributes := map[string]any{}
			if m, err := metaOfForm(fields); err == nil {
				attributes[metaKey], stored = m, len(fields)
			}
			if d, err = c.keep(ctx, part.FileName(), part.Header.Get("Content-Type"), attributes, part); err != nil {
				return err
			}
		}
	}()
	if err == nil && d == nil {
		err = invalid("file", "The form has no part file; send the file in it")
	}
	if err == nil && (stored == 0 || stored < len(fields)) {
		var m meta
		if m, err = metaOfForm(fields); err == nil {
			err = c.change(ctx, docPath(d.ID), map[string]any{metaKey: m}, d)
		}
	}
	if err != nil {
		if ctx.Err() != nil { // the connection was closed
			err = errBrokeOff
		}
		if d != nil {
			c.Drop(ctx, []sheaf.Document{*d})
		}
		return nil, err
	}
	return fileOf(d), nil
}

// metaOfForm reads the fields of an upload.
func metaOfForm(fields map[string]string) (m meta, err error) {
	m.Purpose = fields["purpose"]
	if !slices.Contains(purposes, m.Purpose) {
		return m, invalid("purpose", "purpose cannot be %q; give one of %s", m.Purpose, strings.Join(purposes, ", "))
	}
	if text, ok := fields["expires_after[seconds]"]; ok {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 3600 || n > 2592000 || fields["expires_after[anchor]"] != "created_at" {
			return m, invalid("expires_after", "expires_after needs the anchor created_at and 3600 to 2592000 seconds")
		}
		m.ExpiresAt = time.Now().Unix() + n
	}
	return m, nil
}

// keep stores a file's bytes as an unstarted document.
func (c *call) keep(ctx context.Context, name, mediaType string, attributes map[string]any, r io.Reader) (*sheaf.Document, error) {
	if err := c.EnsureDataset(ctx, filesDataset); err != nil {
		return nil, err
	}
	header := http.Header{}
	if media, _, err := mime.ParseMediaType(mediaType); err == nil && media != "application/octet-stream" && media != "multipart/form-data" {
		header.Set("Content-Type", media)
	}
	b, err := json.Marshal(attributes)
	if err != nil {
		return nil, err
	}
	q := url.Values{"hold": {"true"}, "name": {name}, "attributes": {string(b)}}
	body := &facade.Watched{Reader: r}
	resp, err := c.Do(ctx, http.MethodPost, facade.Path("v1", "datasets", filesDataset, "documents")+"?"+q.Encode(), body, header)
	if body.Err != nil {
		if err == nil {
			resp.Body.Close()
		}
		return nil, errBrokeOff
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var sent struct {
		Documents []sheaf.Document `json:"documents"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&sent); err != nil || len(sent.Documents) != 1 {
		return nil, errors.Join(errors.New("reading the answer of the upload"), err)
	}
	return &sent.Documents[0], nil
}

func listFiles(ctx context.Context, c *call) (any, error) {
	p, err := c.page(10_000, 10_000)
	if err != nil {
		return nil, err
	}
	purpose := c.r.URL.Query().Get("purpose")
	l := listing[sheaf.Document]{path: facade.Path("v1", "datasets", filesDataset, "documents")}
	l.keep = func(d *sheaf.Document) bool { return isFile(d) && (purpose == "" || fileOf(d).Purpose == purpose) }
	cursor := ""
	if id := p.after + p.before; id != "" { // it may have been deleted in the meantime
		if cursor = inner(filePrefix, id); cursor == "" {
			return nil, missing("file", id)
		}
	}
	out := &list{Object: "list", Data: []any{}}
	docs, more, err := l.read(ctx, c, p, cursor)
	if absent(err) { // nothing has been uploaded yet
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range docs {
		f := fileOf(&docs[i])
		out.add(f.ID, f)
	}
	out.HasMore = more
	return out, nil
}

func readFile(ctx context.Context, c *call) (any, error) {
	d, err := c.file(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	return fileOf(d), nil
}

// deleteFile deletes a file and its copies in stores.
func deleteFile(ctx context.Context, c *call) (any, error) {
	d, err := c.file(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	l := listing[sheaf.Dataset]{path: "/v1/datasets", query: url.Values{"fields": {"id,name"}}, keep: isStore}
	stores, _, err := l.read(ctx, c, asked{limit: maxPages * 1000}, "")
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(stores))
	for i := range stores {
		if stores[i].ID != d.DatasetID {
			ids = append(ids, copied(stores[i].ID, d))
		}
	}
	copies, err := c.named(ctx, ids)
	if err != nil {
		return nil, err
	}
	for id := range copies {
		if err := c.remove(ctx, id); err != nil {
			return nil, err
		}
	}
	if err := c.remove(ctx, d.ID); err != nil {
		return nil, err
	}
	return map[string]any{"id": filePrefix + d.ID, "object": "file", "deleted": true}, nil
}

// fileContent redirects clients to /v1, which streams.
func fileContent(ctx context.Context, c *call) (any, error) {
	d, err := c.file(ctx, c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	c.w.Header().Set("Location", docPath(d.ID)+"/content")
	c.w.WriteHeader(http.StatusTemporaryRedirect)
	return nil, nil
}
