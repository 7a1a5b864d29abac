package ragflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/facade"
)

// attribute is the key under which the interface stores what /v1 has no field for.
const attribute = "ragflow"

// datasetRecord is what is stored for a dataset.
type datasetRecord struct {
	Name        string  `json:"name,omitempty"` // if ours cannot be the same
	Avatar      *string `json:"avatar,omitempty"`
	Description *string `json:"description,omitempty"`
	Language    string  `json:"language,omitempty"`
	Permission  string  `json:"permission,omitempty"`
	Embedding   string  `json:"embedding_model,omitempty"`
	Method      string  `json:"chunk_method,omitempty"`
	Config      object  `json:"parser_config,omitempty"`
	Runs        object  `json:"runs,omitempty"` // what was sent of raptor and graphrag: a default starts nothing
	Pagerank    int     `json:"pagerank,omitempty"`
	PipelineID  any     `json:"pipeline_id,omitempty"`
	Connectors  []any   `json:"connectors,omitempty"`
	Metadata    object  `json:"metadata,omitempty"` // its configuration
}

// dataset is one of our datasets with its record.
type dataset struct {
	sheaf.Dataset
	record datasetRecord
	sent   object // run settings that were sent, as stored
}

// read fills in the record: a dataset created elsewhere has none.
func (d *dataset) read() {
	if raw, ok := d.Attributes[attribute]; ok {
		_ = json.Unmarshal(raw, &d.record) // ignore what others wrote there
	}
	d.Attributes, d.sent = nil, d.record.Runs
	if d.record.Method == "" {
		d.record.Method = "naive"
		if m := d.ParseConfig.ChunkMethod.V; slices.Contains(methods, m) {
			d.record.Method = m
		}
	}
	if d.record.Config == nil {
		d.record.Config = wholeDefault(d.record.Method)
	}
	d.record.Name = cmp.Or(d.record.Name, d.Name)
	d.record.Permission = cmp.Or(d.record.Permission, "me")
}

// shown returns a dataset in the interface's format.
func (c *call) shown(d *dataset) object {
	r := d.record
	return object{
		"id": d.ID, "name": r.Name, "avatar": r.Avatar, "description": r.Description, "language": cmp.Or(r.Language, "English"), "tenant_id": c.tenant, "created_by": c.tenant,
		"permission": r.Permission, "embedding_model": cmp.Or(r.Embedding, c.embeddingModel()), "chunk_method": r.Method, "parser_config": r.Config, "pagerank": r.Pagerank,
		"similarity_threshold": 0.2, "vector_similarity_weight": 0.3, "document_count": d.Documents, "chunk_count": d.Chunks, "token_num": 0, "status": "1", "pipeline_id": r.PipelineID,
		"create_time": d.CreatedAt.UnixMilli(), "create_date": date(d.CreatedAt), "update_time": d.UpdatedAt.UnixMilli(), "update_date": date(d.UpdatedAt),
	}
}

func date(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// embeddingModel returns the model of the index as model@provider.
func (c *call) embeddingModel() string {
	var index struct {
		Model string `json:"model"`
	}
	if err := c.Call(c.ctx, http.MethodGet, "/v1/index", nil, &index); err != nil || index.Model == "" {
		return defaultModel
	}
	return strings.ReplaceAll(index.Model, "@", "-") + "@Builtin"
}

const defaultModel = "default@Builtin"

// dataset finds a dataset by id; if there is none, /v1's 404 is returned.
func (c *call) dataset(id string) (*dataset, error) {
	hex, ok := idOf(id)
	if !ok {
		return nil, &facade.Error{Status: http.StatusNotFound, Detail: "there is no dataset " + id}
	}
	d := &dataset{}
	if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", hex), nil, &d.Dataset); err != nil {
		return nil, err
	}
	if d.Name == picturesDataset {
		return nil, &facade.Error{Status: http.StatusNotFound, Detail: "there is no dataset " + id}
	}
	d.read()
	return d, nil
}

// owned is dataset with the error message of most routes for a missing one.
func (c *call) owned(id string) (*dataset, error) {
	d, err := c.dataset(id)
	if missing(err) {
		err = bad("You don't own the dataset %s.", id)
	}
	return d, err
}

func (c *call) noPermission(id string) error {
	return bad("User '%s' lacks permission for dataset '%s'", c.tenant, id)
}

// Bounds of what one request reads.
const (
	readAtOnce  = 1000
	maxDatasets = 100_000
)

// datasets returns all of the tenant's, newest first.
func (c *call) datasets() (out []*dataset, err error) {
	q := url.Values{"limit": {strconv.Itoa(readAtOnce)}}
	for len(out) < maxDatasets {
		var list facade.List[sheaf.Dataset]
		if err := c.Call(c.ctx, http.MethodGet, "/v1/datasets?"+q.Encode(), nil, &list); err != nil {
			return nil, err
		}
		for _, one := range list.Items {
			if one.Name == picturesDataset {
				continue
			}
			d := &dataset{Dataset: one}
			d.read()
			out = append(out, d)
		}
		if list.NextCursor == nil {
			break
		}
		q.Set("cursor", *list.NextCursor)
	}
	return out, nil
}

// avatar checks a picture sent as a data URL.
func (f *faults) avatar(v any) *string {
	if v == nil {
		return nil
	}
	s, ok := f.str("avatar", v, 0, maxText)
	if !ok || s == "" {
		return &s
	}
	head, _, comma := strings.Cut(s, ",")
	mime, data := strings.CutPrefix(head, "data:")
	mime, _, _ = strings.Cut(mime, ";")
	switch {
	case !comma:
		f.add("avatar", "missing MIME prefix. Expected format: data:<mime>;base64,<data>", s)
	case !data:
		f.add("avatar", "invalid MIME prefix format. Must start with 'data:'", s)
	case mime != "image/jpeg" && mime != "image/png":
		f.add("avatar", "Unsupported MIME type. Allowed: ['image/jpeg', 'image/png']", s)
	}
	return &s
}

// embedding checks the name of a model, "" for null.
func (f *faults) embedding(v any) string {
	if v == nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		f.add("embedding_model", "Input should be a valid string", v)
		return ""
	}
	s = strings.TrimSpace(s)
	name, provider, at := strings.Cut(s, "@")
	_, id := idOf(s)
	switch {
	case id:
	case utf8.RuneCountInString(s) > 255:
		f.add("embedding_model", "String should have at most 255 characters", v)
	case !at:
		f.add("embedding_model", "embedding model identifier must follow <model_name>@<provider> format", v)
	case strings.TrimSpace(name) == "" || strings.TrimSpace(provider) == "":
		f.add("embedding_model", "both model_name and provider must be non-empty strings", v)
	}
	return s
}

// fields are the validated fields of a dataset.
type fields struct {
	in     object
	record datasetRecord
	config object // nil: null, {} or not sent
}

var createFields = []string{"name", "avatar", "description", "embedding_model", "permission", "chunk_method", "parse_type", "pipeline_id", "parser_config", "auto_metadata_config", "ext"}

// datasetFields checks the fields of a dataset in the order errors are listed.
func datasetFields(in object, updates bool) (*fields, error) {
	f, out := &faults{}, &fields{in: in}
	has := func(key string) (any, bool) { v, ok := in[key]; return v, ok }
	if v, ok := has("name"); ok {
		if s, text := v.(string); text {
			v = strings.TrimSpace(s)
		}
		out.record.Name, _ = f.str("name", v, 1, 128)
	} else if !updates {
		f.add("name", "Field required", in)
	}
	out.record.Avatar = f.avatar(in["avatar"])
	if v := in["description"]; v != nil {
		if s, ok := f.str("description", v, 0, maxText); ok {
			out.record.Description = &s
		}
	}
	out.record.Embedding = f.embedding(in["embedding_model"])
	if v, ok := has("permission"); ok {
		out.record.Permission, _ = f.among("permission", v, []string{"me", "team"})
	}
	_, parseType := has("parse_type")
	_, pipeline := has("pipeline_id")
	parseType, pipeline = parseType && in["parse_type"] != nil, pipeline && in["pipeline_id"] != nil
	if v, ok := has("chunk_method"); ok {
		out.record.Method, _ = f.among("chunk_method", v, methods)
	}
	if parseType {
		f.integer("parse_type", in["parse_type"], 0, 64)
	}
	if pipeline {
		if s, ok := f.str("pipeline_id", in["pipeline_id"], 1, 255); ok {
			out.record.PipelineID = s
		}
	}
	_, method := has("chunk_method")
	switch {
	case method && (parseType || pipeline):
		f.add("chunk_method", "parse_type and pipeline_id go without chunk_method", in["chunk_method"])
	case parseType != pipeline:
		f.add(map[bool]string{true: "pipeline_id", false: "parse_type"}[parseType], "parse_type and pipeline_id must be given together", nil)
	}
	out.config = f.config(in["parser_config"])
	known := createFields
	for _, key := range []string{"auto_metadata_config", "ext"} {
		if v := in[key]; v != nil {
			if m, ok := f.object(key, v); ok && key == "auto_metadata_config" {
				out.record.Metadata = m
			}
		}
	}
	if updates {
		known = append(slices.Clone(known), "pagerank", "language", "connectors")
		if v, ok := has("pagerank"); ok {
			out.record.Pagerank, _ = f.integer("pagerank", v, 0, 100)
		}
		if v := in["language"]; v != nil {
			out.record.Language, _ = f.str("language", v, 1, 32)
		}
		if v := in["connectors"]; v != nil {
			list, ok := v.([]any)
			if !ok {
				f.add("connectors", "Input should be a valid list", v)
			}
			out.record.Connectors = list
		}
	}
	f.extras("", in, known...)
	return out, f.err(codeArgument)
}

// ourName converts a name to one that our datasets can have.
func ourName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, name)
}

// knownModel rejects any model but the index's.
func (c *call) knownModel(model string) error {
	if ours := c.embeddingModel(); model != "" && model != ours && model != defaultModel {
		return bad("Unsupported model: <%s>. This server embeds with <%s>; leave embedding_model out", model, ours)
	}
	return nil
}

// runsNow returns the run settings to write. What was never sent here is kept from
// /v1, and so is a budget, which RAGFlow does not have.
func (d *dataset) runsNow(runs object) object {
	for key, ours := range map[string]sheaf.RunConfig{"raptor": d.ParseConfig.Raptor.V, "graphrag": d.ParseConfig.GraphRAG.V} {
		to, now := runs[key].(object)
		if _, before := d.sent[key]; !now && !before {
			delete(runs, key)
		}
		if budget, has := ours["budget"]; has && now {
			to["budget"] = budget
		}
	}
	return runs
}

// put writes a dataset; id "" creates one. Its record has a name if ours differs.
func (c *call) put(id string, d *dataset) (*dataset, error) {
	r := d.record
	name := ourName(r.Name)
	if r.Name == name {
		r.Name = ""
	}
	config := settings(r.Method, r.Config)
	maps.Copy(config, d.runsNow(runSettings(r.Runs)))
	in := object{"parser_config": config, "attributes": object{attribute: r}}
	if name != d.Name {
		in["name"] = name
	}
	method, path := http.MethodPost, "/v1/datasets"
	if id != "" {
		method, path = http.MethodPatch, facade.Path("v1", "datasets", id)
	}
	out := &dataset{}
	if err := c.Call(c.ctx, method, path, in, &out.Dataset); err != nil {
		return nil, err
	}
	out.read()
	return out, nil
}

// maxNames is how many names are tried if a dataset's or document's is taken.
const maxNames = 1000

func createDataset(c *call) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f, err := datasetFields(in, false)
	if err != nil {
		return nil, err
	}
	if err := c.knownModel(f.record.Embedding); err != nil {
		return nil, err
	}
	d := &dataset{record: f.record}
	d.record.Method = cmp.Or(d.record.Method, "naive")
	d.record.Permission = cmp.Or(d.record.Permission, "me")
	if d.record.Config = wholeDefault(d.record.Method); f.config != nil {
		d.record.Config, d.record.Runs = completed(f.config), sentRuns(nil, f.config)
	}
	all, err := c.datasets()
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, one := range all {
		taken[strings.ToLower(one.record.Name)], taken[strings.ToLower(one.Name)] = true, true
	}
	for n := 0; n < maxNames; n++ {
		if d.record.Name = f.record.Name; n > 0 {
			d.record.Name += fmt.Sprintf("(%d)", n)
		}
		if taken[strings.ToLower(d.record.Name)] || taken[strings.ToLower(ourName(d.record.Name))] {
			continue
		}
		made, err := c.put("", d)
		if e, ok := errors.AsType[*facade.Error](err); ok && e.Status == http.StatusConflict {
			continue // another request was faster
		}
		if err != nil {
			return nil, err
		}
		return &answer{data: c.shown(made)}, nil
	}
	return nil, bad("Dataset name '%s' and %d like it exist; choose another", f.record.Name, maxNames)
}

func updateDataset(c *call) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f := &faults{}
	id, ok := idOf(c.path[0])
	if !ok {
		f.add("dataset_id", invalidID, c.path[0])
		return nil, f.err(codeArgument)
	}
	to, err := datasetFields(in, true)
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return nil, bad("no properties were modified")
	}
	d, err := c.dataset(id)
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	if err := c.knownModel(to.record.Embedding); err != nil {
		return nil, err
	}
	if err := c.apply(d, to); err != nil {
		return nil, err
	}
	made, err := c.put(id, d)
	if e, ok := errors.AsType[*facade.Error](err); ok && e.Status == http.StatusConflict {
		err = bad("Dataset name '%s' already exists", to.record.Name)
	}
	if err != nil {
		return nil, err
	}
	out := c.shown(made)
	out["connectors"] = connectors(made)
	return &answer{data: out}, nil
}

func connectors(d *dataset) []any {
	if d.record.Connectors == nil {
		return []any{}
	}
	return d.record.Connectors
}

// apply applies the fields that were sent to a dataset.
func (c *call) apply(d *dataset, to *fields) error {
	r := &d.record
	has := func(key string) bool { _, ok := to.in[key]; return ok }
	if has("name") && to.record.Name != r.Name {
		all, err := c.datasets()
		if err != nil {
			return err
		}
		for _, one := range all {
			if one.ID != d.ID && strings.EqualFold(one.record.Name, to.record.Name) {
				return bad("Dataset name '%s' already exists", to.record.Name)
			}
		}
		r.Name = to.record.Name
	}
	if has("avatar") {
		r.Avatar = to.record.Avatar
	}
	if has("description") {
		r.Description = to.record.Description
	}
	r.Embedding = cmp.Or(to.record.Embedding, r.Embedding)
	r.Permission = cmp.Or(to.record.Permission, r.Permission)
	r.Language = cmp.Or(to.record.Language, r.Language)
	if has("pagerank") {
		r.Pagerank = to.record.Pagerank
	}
	if to.in["connectors"] != nil {
		r.Connectors = to.record.Connectors
	}
	if to.in["pipeline_id"] != nil {
		r.PipelineID = to.record.PipelineID
	}
	if to.record.Metadata != nil {
		r.Metadata = to.record.Metadata
	}
	changed := to.record.Method != "" && to.record.Method != r.Method
	r.Method = cmp.Or(to.record.Method, r.Method)
	switch {
	case to.config != nil:
		r.Config, r.Runs = laid(r.Config, to.config), sentRuns(r.Runs, to.config)
	case changed:
		r.Config, r.Runs = wholeDefault(r.Method), nil
	}
	return nil
}

func readDataset(c *call) (*answer, error) {
	d, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	out := c.shown(d)
	docs, err := c.documents(d.ID, nil)
	if err != nil {
		return nil, err
	}
	var size int64
	tokens := 0
	for _, doc := range docs {
		size += doc.Size
		tokens += doc.Tokens
	}
	if out["chunk_count"], err = c.chunkCount(d, docs); err != nil {
		return nil, err
	}
	out["size"], out["token_num"], out["connectors"] = size, tokens, connectors(d)
	return &answer{data: out}, nil
}

// chunkCount is the number of chunks in a dataset, including those users added.
func (c *call) chunkCount(ds *dataset, docs []*document) (int, error) {
	n := ds.Chunks
	for _, d := range docs {
		if err := c.counted(d); err != nil {
			return 0, err
		}
		n += d.extra
	}
	return max(n, 0), nil
}

var listQuery = []string{"page", "page_size", "orderby", "desc", "id", "ids", "name", "include_parsing_status", "ext"}

// maxIDs bounds a query.
const maxIDs = 100

func listDatasets(c *call) (*answer, error) {
	q, f := c.r.URL.Query(), &faults{}
	id, ids := q.Get("id"), []string{}
	if q.Has("id") {
		hex, ok := idOf(id)
		if !ok {
			f.add("id", invalidID, id)
		}
		id = hex
	}
	for _, part := range q["ids"] {
		for _, one := range strings.Split(part, ",") {
			hex, ok := idOf(one)
			if !ok {
				f.add("ids", invalidID, one)
				continue
			}
			ids = append(ids, hex)
		}
	}
	if len(ids) > maxIDs {
		f.add("ids", fmt.Sprintf("List should have at most %d items after validation, not %d", maxIDs, len(ids)), strings.Join(ids, ","))
	}
	page := f.queryInt("page", q.Get("page"), q.Has("page"), 1, 1, unbounded)
	size := f.queryInt("page_size", q.Get("page_size"), q.Has("page_size"), defaultPage, 1, maxPage)
	orderby := cmp.Or(q.Get("orderby"), "create_time")
	if q.Has("orderby") {
		f.among("orderby", q.Get("orderby"), []string{"create_time", "update_time"})
	}
	desc := f.queryBool("desc", q.Get("desc"), q.Has("desc"), true)
	status := f.queryBool("include_parsing_status", q.Get("include_parsing_status"), q.Has("include_parsing_status"), false)
	for _, key := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(listQuery, key) {
			f.add(key, "Extra inputs are not permitted", q.Get(key))
		}
	}
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	all, err := c.datasets()
	if err != nil {
		return nil, err
	}
	name := q.Get("name")
	for _, want := range []struct {
		text  string
		holds func(*dataset) bool
	}{
		{id, func(d *dataset) bool { return d.ID == id }},
		{name, func(d *dataset) bool { return strings.EqualFold(d.record.Name, name) }},
	} {
		if want.text != "" && !slices.ContainsFunc(all, want.holds) {
			return nil, c.noPermission(want.text)
		}
	}
	all = slices.DeleteFunc(all, func(d *dataset) bool {
		return id != "" && d.ID != id || name != "" && !strings.EqualFold(d.record.Name, name) || len(ids) > 0 && !slices.Contains(ids, d.ID)
	})
	if orderby == "update_time" {
		slices.SortStableFunc(all, func(a, b *dataset) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	}
	if !desc {
		slices.Reverse(all)
	}
	from, to := span(page, size)
	out, model := []object{}, c.embeddingModel()
	for _, d := range cut(all, from, to) {
		d.record.Embedding = cmp.Or(d.record.Embedding, model)
		one := c.shown(d)
		one["nickname"], one["tenant_avatar"] = c.tenant, nil
		one["embedding_model_name"], _, _ = strings.Cut(d.record.Embedding, "@")
		if status {
			if one["parsing_status"], err = c.parsingStatus(d.ID); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return &answer{data: out, more: object{"total_datasets": len(all)}}, nil
}

// parsingStatus counts the documents of a dataset by progress.
func (c *call) parsingStatus(id string) (object, error) {
	docs, err := c.documents(id, nil)
	if err != nil {
		return nil, err
	}
	out := object{}
	counts := map[string]int{}
	for _, d := range docs {
		counts[d.run()]++
	}
	for _, run := range runs {
		out[strings.ToLower(run)+"_count"] = counts[run]
	}
	return out, nil
}

func deleteDatasets(c *call) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f := &faults{}
	ids := f.ids("ids", in["ids"])
	every := false
	if v, ok := in["delete_all"]; ok && v != nil {
		every, _ = f.boolean("delete_all", v)
	}
	f.extras("", in, "ids", "delete_all")
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	if len(ids) == 0 && !every {
		return &answer{data: object{"success_count": 0}}, nil
	}
	all, err := c.datasets()
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, d := range all {
		own[d.ID] = true
	}
	if len(ids) == 0 {
		for _, d := range all {
			ids = append(ids, d.ID)
		}
	}
	if foreign := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return own[id] }); len(foreign) > 0 {
		return nil, bad("User '%s' lacks permission for datasets: '%s'", c.tenant, strings.Join(foreign, ", "))
	}
	for _, id := range ids {
		if err := c.Call(c.ctx, http.MethodDelete, facade.Path("v1", "datasets", id), nil, nil); err != nil && !missing(err) {
			return nil, err
		}
	}
	if err := c.forgetPictures(); err != nil {
		return nil, err
	}
	return &answer{data: object{"success_count": len(ids)}}, nil
}

func ingestionSummary(c *call) (*answer, error) {
	d, err := c.owned(c.path[0])
	if err != nil {
		return nil, err
	}
	docs, err := c.documents(d.ID, nil)
	if err != nil {
		return nil, err
	}
	tokens, counts := 0, map[string]int{}
	for _, doc := range docs {
		tokens += doc.Tokens
		counts[doc.run()]++
	}
	chunks, err := c.chunkCount(d, docs)
	if err != nil {
		return nil, err
	}
	return &answer{data: object{"doc_num": len(docs), "chunk_num": chunks, "token_num": tokens, "status": counts}}, nil
}
