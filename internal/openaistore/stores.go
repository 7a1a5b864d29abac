package openaistore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/facade"
)

// Bounds of what is stored with a store or its files.
const (
	maxPairs      = 16
	maxKeyRunes   = 64
	maxValueRunes = 512
	maxNameRunes  = 200 // of a dataset named like its store
)

// activeStep is the precision of a store's last use, which limits the writes.
const activeStep = time.Hour

// storeMeta is what is stored with a dataset.
type storeMeta struct {
	Name         *string           `json:"name,omitempty"`
	Description  *string           `json:"description,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	ExpiresAfter *expiresAfter     `json:"expires_after,omitempty"`
}

type expiresAfter struct {
	Anchor string `json:"anchor"`
	Days   int    `json:"days"`
}

type fileCounts struct {
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	Total      int `json:"total"`
}

func (c *fileCounts) add(state sheaf.DocumentState, n int) {
	c.Total += n
	switch statusOf(state) {
	case statusCompleted:
		c.Completed += n
	case statusFailed:
		c.Failed += n
	case statusCancelled:
		c.Cancelled += n
	default:
		c.InProgress += n
	}
}

type storeObject struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	CreatedAt    int64             `json:"created_at"`
	Name         string            `json:"name"`
	Description  *string           `json:"description"`
	UsageBytes   int64             `json:"usage_bytes"`
	FileCounts   fileCounts        `json:"file_counts"`
	Status       string            `json:"status"`
	ExpiresAfter *expiresAfter     `json:"expires_after"`
	ExpiresAt    *int64            `json:"expires_at"`
	LastActiveAt int64             `json:"last_active_at"`
	Metadata     map[string]string `json:"metadata"`
}

// store is a dataset with what is stored for it.
type store struct {
	sheaf.Dataset
	meta   storeMeta
	active int64
}

func storeOf(d *sheaf.Dataset) *store {
	s := &store{Dataset: *d, active: d.CreatedAt.Unix()}
	metaOf(d.Attributes, metaKey, &s.meta)
	metaOf(d.Attributes, activeKey, &s.active)
	return s
}

// expiresAt returns 0 for never.
func (s *store) expiresAt() int64 {
	if s.meta.ExpiresAfter == nil {
		return 0
	}
	return s.active + int64(s.meta.ExpiresAfter.Days)*24*3600
}

func (s *store) expired() bool { at := s.expiresAt(); return at != 0 && at <= time.Now().Unix() }

func (s *store) documents() string { return facade.Path("v1", "datasets", s.ID, "documents") }

// isStore excludes the datasets that hold files and conversions.
func isStore(d *sheaf.Dataset) bool { return d.Name != filesDataset && d.Name != facade.Conversions }

// store finds the store of the path.
func (c *call) store(ctx context.Context) (*store, error) {
	id := c.r.PathValue("store")
	ds := inner(storePrefix, id)
	if ds == "" {
		return nil, missing("vector store", id)
	}
	var d sheaf.Dataset
	err := c.Call(ctx, http.MethodGet, facade.Path("v1", "datasets", ds), nil, &d)
	if absent(err) || err == nil && !isStore(&d) {
		return nil, missing("vector store", id)
	}
	if err != nil {
		return nil, err
	}
	return storeOf(&d), nil
}

// inUse is store for operations that an expired store rejects. It records the use.
func (c *call) inUse(ctx context.Context) (*store, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	if s.expired() {
		return nil, &refusal{&facade.Error{Status: http.StatusBadRequest, Code: "vector_store_expired", Detail: "The vector store has expired; change its expires_after, or make a new one"}, ""}
	}
	if now := time.Now(); s.meta.ExpiresAfter != nil && now.Sub(time.Unix(s.active, 0)) > activeStep {
		// A read-only key cannot write it; such a use is not counted.
		_ = c.change(ctx, facade.Path("v1", "datasets", s.ID), map[string]any{activeKey: now.Unix()}, nil)
	}
	return s, nil
}

// each reads the documents of a store, except those from archives.
func (c *call) each(ctx context.Context, s *store, fields string, f func(*sheaf.Document)) error {
	l := listing[sheaf.Document]{path: s.documents(), query: url.Values{"fields": {fields + ",parent_id"}}, keep: func(d *sheaf.Document) bool {
		if d.ParentID == "" {
			f(d)
		}
		return false
	}}
	_, _, err := l.read(ctx, c, asked{limit: 1000}, "")
	return err
}

func (c *call) object(ctx context.Context, s *store) (*storeObject, error) {
	o := &storeObject{
		ID: storePrefix + s.ID, Object: "vector_store", CreatedAt: s.CreatedAt.Unix(), Name: s.Name, Description: s.meta.Description,
		Status: statusCompleted, ExpiresAfter: s.meta.ExpiresAfter, LastActiveAt: s.active, Metadata: s.meta.Metadata,
	}
	if s.meta.Name != nil {
		o.Name = *s.meta.Name
	}
	if o.Metadata == nil {
		o.Metadata = map[string]string{}
	}
	if at := s.expiresAt(); at != 0 {
		o.ExpiresAt = &at
	}
	err := c.each(ctx, s, "state,size", func(d *sheaf.Document) {
		o.FileCounts.add(d.State, 1)
		o.UsageBytes += d.Size
	})
	switch {
	case s.expired():
		o.Status = "expired"
	case o.FileCounts.InProgress > 0:
		o.Status = statusProgress
	}
	return o, err
}

// storeChange is the body that creates or changes a store.
type storeChange struct {
	Name         *string           `json:"name"`
	Description  *string           `json:"description"`
	Metadata     map[string]string `json:"metadata"`
	ExpiresAfter json.RawMessage   `json:"expires_after"`
	FileIDs      []string          `json:"file_ids"`
	Chunking     *chunking         `json:"chunking_strategy"`
}

// apply applies a change to what is stored.
func (in *storeChange) apply(m *storeMeta) error {
	if in.Name != nil {
		m.Name = in.Name
	}
	if in.Description != nil {
		m.Description = in.Description
	}
	if in.Metadata != nil {
		if len(in.Metadata) > maxPairs {
			return invalid("metadata", "metadata has %d pairs; give at most %d", len(in.Metadata), maxPairs)
		}
		for key, value := range in.Metadata {
			if err := checkPair("metadata", key, value); err != nil {
				return err
			}
		}
		m.Metadata = in.Metadata
	}
	switch {
	case len(in.ExpiresAfter) == 0:
	case bytes.Equal(in.ExpiresAfter, []byte("null")):
		m.ExpiresAfter = nil
	default:
		var e expiresAfter
		if json.Unmarshal(in.ExpiresAfter, &e) != nil || e.Anchor != "last_active_at" || e.Days < 1 || e.Days > 365 {
			return invalid("expires_after", "expires_after needs the anchor last_active_at and 1 to 365 days")
		}
		m.ExpiresAfter = &e
	}
	return nil
}

func checkPair(param, key string, value any) error {
	if n := utf8.RuneCountInString(key); n == 0 || n > maxKeyRunes {
		return invalid(param, "a key of %s has %d characters; give 1 to %d", param, n, maxKeyRunes)
	}
	switch v := value.(type) {
	case string:
		if n := utf8.RuneCountInString(v); n > maxValueRunes {
			return invalid(param, "the value of %s in %s has %d characters; give at most %d", key, param, n, maxValueRunes)
		}
	case bool, float64:
	default:
		return invalid(param, "the value of %s in %s is neither a text, a number, true nor false", key, param)
	}
	return nil
}

// datasetName converts a store's name to one a dataset can have.
func datasetName(name string) string {
	name = strings.TrimSpace(strings.Map(func(c rune) rune {
		if c == '/' || c < ' ' {
			return ' '
		}
		return c
	}, name))
	if r := []rune(name); len(r) > maxNameRunes {
		name = string(r[:maxNameRunes])
	}
	if name == "" || name == filesDataset || name == facade.Conversions || sheaf.ValidID(name) {
		name = strings.TrimSpace("vector store " + name)
	}
	return name
}

func createStore(ctx context.Context, c *call) (any, error) {
	var in storeChange
	if err := c.body(&in); err != nil {
		return nil, err
	}
	var m storeMeta
	if err := in.apply(&m); err != nil {
		return nil, err
	}
	var files []batchFile
	for _, id := range in.FileIDs {
		files = append(files, batchFile{ID: id, Chunking: in.Chunking})
	}
	if len(files) > 0 {
		if err := c.check(ctx, files); err != nil {
			return nil, err
		}
	}
	name := ""
	if m.Name != nil {
		name = *m.Name
	}
	name = datasetName(name)
	var d sheaf.Dataset
	ask := map[string]any{"name": name, "attributes": map[string]any{metaKey: m, activeKey: time.Now().Unix()}}
	err := c.Call(ctx, http.MethodPost, "/v1/datasets", ask, &d)
	if err != nil {
		if facade.AsError(err).Status != http.StatusConflict {
			return nil, err
		}
		ask["name"] = fmt.Sprintf("%s (%s)", name, sheaf.NewID()) // stores may share a name, datasets may not
		if err := c.Call(ctx, http.MethodPost, "/v1/datasets", ask, &d); err != nil {
			return nil, err
		}
	}
	s := storeOf(&d)
	if len(files) > 0 {
		if _, err := c.attachAll(ctx, s, files); err != nil {
			_ = c.Call(context.WithoutCancel(ctx), http.MethodDelete, facade.Path("v1", "datasets", d.ID), nil, nil) // no one knows of it
			return nil, err
		}
	}
	return c.object(ctx, s)
}

func listStores(ctx context.Context, c *call) (any, error) {
	p, err := c.page(20, 100)
	if err != nil {
		return nil, err
	}
	cursor := ""
	if id := p.after + p.before; id != "" {
		if cursor = inner(storePrefix, id); cursor == "" {
			return nil, missing("vector store", id)
		}
	}
	l := listing[sheaf.Dataset]{path: "/v1/datasets", keep: isStore}
	found, more, err := l.read(ctx, c, p, cursor)
	if err != nil {
		return nil, err
	}
	out := &list{Object: "list", Data: []any{}, HasMore: more}
	for i := range found {
		o, err := c.object(ctx, storeOf(&found[i]))
		if err != nil {
			return nil, err
		}
		out.add(o.ID, o)
	}
	return out, nil
}

func readStore(ctx context.Context, c *call) (any, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	return c.object(ctx, s)
}

func changeStore(ctx context.Context, c *call) (any, error) {
	var in storeChange
	if err := c.body(&in); err != nil {
		return nil, err
	}
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	if err := in.apply(&s.meta); err != nil {
		return nil, err
	}
	set := map[string]any{metaKey: s.meta}
	if len(in.ExpiresAfter) > 0 { // the period restarts, even for an expired store
		set[activeKey] = time.Now().Unix()
	}
	var d sheaf.Dataset
	if err := c.change(ctx, facade.Path("v1", "datasets", s.ID), set, &d); err != nil {
		return nil, err
	}
	return c.object(ctx, storeOf(&d))
}

// deleteStore deletes a store. Its files stay in /files.
func deleteStore(ctx context.Context, c *call) (any, error) {
	s, err := c.store(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Call(ctx, http.MethodDelete, facade.Path("v1", "datasets", s.ID), nil, nil); err != nil {
		return nil, err
	}
	return map[string]any{"id": storePrefix + s.ID, "object": "vector_store.deleted", "deleted": true}, nil
}

// Statuses of files, batches and stores.
const (
	statusProgress  = "in_progress"
	statusCompleted = "completed"
	statusFailed    = "failed"
	statusCancelled = "cancelled"
)

func statusOf(s sheaf.DocumentState) string {
	switch s {
	case sheaf.DocSucceeded, sheaf.DocPartiallySucceeded:
		return statusCompleted
	case sheaf.DocFailed:
		return statusFailed
	case sheaf.DocCanceled:
		return statusCancelled
	}
	return statusProgress
}

// statesOf returns the states that a status covers.
func statesOf(status string) []string {
	var out []string
	for _, s := range []sheaf.DocumentState{sheaf.DocUnstarted, sheaf.DocQueued, sheaf.DocRunning, sheaf.DocFinalizing, sheaf.DocSucceeded, sheaf.DocPartiallySucceeded, sheaf.DocFailed, sheaf.DocCanceling, sheaf.DocCanceled} {
		if statusOf(s) == status {
			out = append(out, string(s))
		}
	}
	return slices.Clip(out)
}
