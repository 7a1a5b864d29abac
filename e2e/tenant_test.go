package e2e

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/blob"
	"sheaf/internal/config"
	"sheaf/taskstore"
)

// openapi is what the walk needs of the description of the routes.
type openapi struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	Parameters  []parameter `json:"parameters"`
	RequestBody *struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
}

type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`

	Example any `json:"example"`
}

type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"` // a string, or a list with "null"
	Format     string             `json:"format"`
	Enum       []any              `json:"enum"`
	Minimum    *float64           `json:"minimum"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
}

// route is one operation with its path still holding {names}.
type route struct {
	method, path string
	op           operation
}

// routes lists every operation that the service describes, and the live
// streams, which answer at the addresses of three of them.
func (s *service) routes() (openapi, []route) {
	s.t.Helper()
	resp, err := http.Get(s.base + "/openapi.json")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc openapi
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		s.t.Fatal(err)
	}
	var out []route
	for path, methods := range doc.Paths {
		for method, op := range methods {
			out = append(out, route{strings.ToUpper(method), path, op})
		}
	}
	for _, path := range []string{"/v1/jobs/{job}", "/v1/jobs/{job}/events", "/v1/datasets/{ds}/documents/{doc}", "/v1/datasets/{ds}/documents/{doc}/events", "/v1/datasets/{ds}"} {
		out = append(out, route{method: "STREAM", path: path})
	}
	slices.SortFunc(out, func(a, b route) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
	if len(out) < 40 {
		s.t.Fatalf("only %d operations are described", len(out))
	}
	return doc, out
}

// example makes a value that fits a schema, naming what values names wherever
// a property asks for it.
func (d openapi) example(name string, sc *schema, values map[string]any) any {
	if v, ok := values[name]; ok {
		return v
	}
	if sc.Ref != "" {
		return d.example(name, d.Components.Schemas[sc.Ref[strings.LastIndexByte(sc.Ref, '/')+1:]], values)
	}
	if len(sc.Enum) > 0 {
		return sc.Enum[0]
	}
	kind, _ := sc.Type.(string)
	if list, ok := sc.Type.([]any); ok && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "object":
		m := map[string]any{}
		for k, p := range sc.Properties {
			if v := d.example(k, p, values); v != nil {
				m[k] = v
			}
		}
		return m
	case "array":
		return nil // optional: an empty list would select nothing
	case "string":
		if sc.Format == "date-time" {
			return "2026-01-01T00:00:00Z"
		}
		return nil // optional: nothing that would narrow what is selected
	}
	return nil
}

// everythingOf is all that a tenant has in the database, the blob store and the
// index, as text to compare.
func (s *service) everythingOf(tenant string) string {
	s.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(s.path("sheaf.db"))+"?mode=ro")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	var out strings.Builder
	for _, table := range []string{"tenants", "api_keys", "datasets", "jobs", "documents", "generations", "tasks", "events", "garbage", "idempotency", "uploads", "webhooks", "webhook_deliveries", "flows", "chunk_edits"} {
		key := "tenant_id"
		if table == "tenants" {
			key = "id"
		}
		rows, err := db.QueryContext(s.t.Context(), "SELECT * FROM "+table+" WHERE "+key+"=? ORDER BY 1, 2", tenant)
		if err != nil {
			s.t.Fatal(err)
		}
		cols, _ := rows.Columns()
		vals := make([]any, len(cols))
		for i := range vals {
			vals[i] = new(any)
		}
		for rows.Next() {
			if err := rows.Scan(vals...); err != nil {
				s.t.Fatal(err)
			}
			fmt.Fprint(&out, table)
			for i, v := range vals {
				fmt.Fprintf(&out, " %s=%v", cols[i], *v.(*any))
			}
			out.WriteByte('\n')
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
		_ = rows.Close()
	}
	for _, prefix := range []string{"originals/" + tenant + "/", "artifacts/" + tenant + "/", "uploads/" + tenant + "/"} {
		if err := s.blobStore.List(s.t.Context(), prefix, func(i blob.Info) bool {
			fmt.Fprintf(&out, "blob %s %d\n", i.Key, i.Size)
			return true
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	var entries []string
	if err := s.index.Scan(s.t.Context(), tenant, func(chunk, rangeID, doc string) bool {
		entries = append(entries, fmt.Sprintln("chunk", chunk, rangeID, doc))
		return true
	}); err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(entries)
	return out.String() + strings.Join(entries, "")
}

// tenant makes a tenant with a key and returns a client of it.
func (s *service) tenant(id, scope string, quota sheaf.Quota) *service {
	s.t.Helper()
	if _, err := s.store.CreateTenant(s.t.Context(), sheaf.Tenant{ID: id, Name: id, Weight: 1, Cap: 4, Quota: quota}); err != nil {
		s.t.Fatal(err)
	}
	return s.withKey(id, scope)
}

func (s *service) withKey(tenant, scope string) *service {
	s.t.Helper()
	secret := "sk-" + tenant + "-" + scope + "-" + sheaf.NewID()
	if err := s.store.CreateKey(s.t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: tenant, Name: scope, Scopes: []string{scope}}, api.HashKey(secret)); err != nil {
		s.t.Fatal(err)
	}
	other := *s
	other.client = newClient(s.base, secret)
	return &other
}

// ask sends one request and returns its status and its answer.
func (s *service) ask(method, path, contentType string, body []byte) (*http.Response, string) {
	s.t.Helper()
	stream := method == "STREAM"
	if stream {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if stream {
		req.Header.Set("Accept", "text/event-stream")
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if strings.Contains(path, "/uploads") { // what the protocol asks for
		for k, v := range map[string]string{"Tus-Resumable": "1.0.0", "Upload-Length": "5", "Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"} {
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b []byte
	if stream && resp.StatusCode == http.StatusOK {
		b = make([]byte, 512) // it may never end: its beginning shows enough
		n, _ := io.ReadAtLeast(resp.Body, b, 64)
		b = b[:n]
	} else if b, err = io.ReadAll(resp.Body); err != nil {
		s.t.Fatal(err)
	}
	return resp, string(b)
}

// body is a request body for an operation that names values wherever it can.
func (d openapi) body(r route, values map[string]any) (contentType string, body []byte) {
	if r.op.RequestBody == nil {
		return "", nil
	}
	if _, upload := r.op.RequestBody.Content["application/octet-stream"]; upload {
		return "application/octet-stream", []byte("a line of the intruder's\n")
	}
	if _, piece := r.op.RequestBody.Content["application/offset+octet-stream"]; piece {
		return "application/offset+octet-stream", []byte("theft")
	}
	media, ok := r.op.RequestBody.Content["application/json"]
	if !ok {
		return "", nil
	}
	b, _ := json.Marshal(d.example("", media.Schema, values))
	return "application/json", b
}

// fill puts names into a path. pairs are name, value, …
func fill(path string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		path = strings.ReplaceAll(path, "{"+pairs[i]+"}", pairs[i+1])
	}
	return path
}

// victim is a tenant with a document that ended partially, so that every route
// has something to show.
type victim struct {
	*service
	dataset, document, job, task, rangeID, chunk, upload, webhook, apiKey, receipt, flow, edit, query, evaluation, run, split string
}

const victimsWord = "quetzalcoatlus"

func newVictim(s *service) victim {
	s.t.Helper()
	v := victim{service: s.tenant("alpha", "write", sheaf.Quota{})}
	var ds sheaf.Dataset
	v.post("/v1/datasets", map[string]any{"name": "vault"}, &ds)
	pages := map[int]string{1: "The first page speaks of the " + victimsWord + ".", 3: "CRASH"}
	answer, err := v.submitAnswer(s.t.Context(), "vault", []source{text("ledger-of-alpha.trial", trialPages(4, pages))}, map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	if job := v.ended(answer.Job.ID); job.State != sheaf.DocPartiallySucceeded {
		s.t.Fatalf("the victim's job ended %s", job.State)
	}
	v.dataset, v.document, v.job = ds.ID, answer.Documents[0].ID, answer.Job.ID
	var tasks api.List[api.Task]
	v.get("/v1/datasets/vault/documents/"+v.document+"/tasks", &tasks)
	for _, t := range tasks.Items {
		if t.RangeID != "" {
			v.task, v.rangeID = t.ID, t.RangeID
		}
	}
	var chunks api.List[sheaf.Chunk]
	v.get("/v1/datasets/vault/documents/"+v.document+"/chunks", &chunks)
	v.chunk = chunks.Items[0].ID
	resp, body := v.request("POST", "/v1/datasets/vault/uploads", "", "Authorization", "Bearer "+v.key, "Tus-Resumable", "1.0.0", "Upload-Length", "5", "Upload-Metadata", "filename "+base64.StdEncoding.EncodeToString([]byte("ledger-of-alpha.txt"))+",hold")
	v.upload = decodeAs[api.UploadStatus](s.t, body).ID
	if resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("the victim's upload: %s %s", resp.Status, body)
	}
	_, body = v.request("PATCH", "/v1/datasets/vault/documents/"+v.document+"/chunks/"+v.chunk, `{"keywords": ["safe"]}`, "Authorization", "Bearer "+v.key, "Content-Type", "application/json")
	v.edit = decodeAs[api.EditedChunk](s.t, body).Edit.ID
	var hook taskstore.Webhook
	v.post("/v1/datasets/vault/webhooks", map[string]any{"url": "https://hooks.invalid/secret-of-alpha"}, &hook)
	v.webhook = hook.ID
	keys, _, err := s.store.Keys(s.t.Context(), "alpha", taskstore.Page{})
	if err != nil || len(keys) == 0 {
		s.t.Fatalf("the victim has %d keys: %v", len(keys), err)
	}
	v.apiKey = keys[0].ID
	var flow api.FlowAnswer
	v.flow = "vault-flow"
	v.post("/v1/flows", map[string]any{"toml": victimsFlow(v.flow)}, &flow)
	var saved taskstore.SavedQuery
	v.post("/v1/datasets/vault/queries", map[string]any{"question": "who speaks of the " + victimsWord, "expected": []any{map[string]any{"document": v.document}}}, &saved)
	var evaluation api.EvaluationAnswer
	v.post("/v1/datasets/vault/evaluations", map[string]any{}, &evaluation)
	v.query, v.evaluation = saved.ID, evaluation.ID
	split, err := s.store.AddSplit(s.t.Context(), "alpha", ds.ID, []string{victimsWord, "its plural"})
	if err != nil {
		s.t.Fatal(err)
	}
	v.split = split.ID
	for _, kind := range []string{"mindmap", "raptor"} {
		var begun api.RunStarted
		v.post("/v1/datasets/vault/"+kind, map[string]any{}, &begun)
		if r := v.over("vault", begun.ID); r.State != taskstore.RunSucceeded {
			s.t.Fatalf("the victim's run: %+v", r)
		}
		v.run = begun.ID
	}
	var drawer sheaf.Dataset
	v.post("/v1/datasets", map[string]any{"name": "drawer"}, &drawer)
	_, body = v.request("DELETE", "/v1/datasets/drawer", "", "Authorization", "Bearer "+v.key)
	v.receipt = decodeAs[api.DeleteAnswer](s.t, body).ReceiptID
	return v
}

// victimsFlow is a flow of that name.
func victimsFlow(name string) string {
	return `name = "` + name + `"
node = [{ id = "read", kind = "parse" }, { id = "cut", kind = "chunk", from = ["read"] }, { id = "out", kind = "index", from = ["cut"] }]
`
}

// names are everything of the victim that no one else may read.
func (v victim) names() []string {
	return []string{v.dataset, v.document, v.job, v.task, v.rangeID, v.chunk, v.upload, v.webhook, v.apiKey, v.receipt, v.flow, v.edit, v.query, v.evaluation, v.run, v.split, victimsWord, "ledger-of-alpha", "secret-of-alpha", "vault"}
}

func TestAnotherTenantSeesAndChangesNothingOnAnyRoute(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) { c.Server.Auth, c.Webhooks.Hosts = true, []string{"hooks.invalid"} })
	v := newVictim(s)
	intruder := s.tenant("beta", "write", sheaf.Quota{})
	var own sheaf.Dataset
	intruder.post("/v1/datasets", map[string]any{"name": "own"}, &own)
	doc, routes := s.routes()
	values := map[string]any{
		"question": "theft", "expected": []any{map[string]any{"text": "theft"}}, "queries": []any{map[string]any{"question": "theft", "expected": []any{map[string]any{"text": "theft"}}}},
		"query": victimsWord, "document_ids": []string{v.document}, "ids": []string{v.task, v.upload},
		"document_id": v.document, "job_id": v.job, "job": v.job, "url": "https://example.invalid/a.pdf", "name": "theft", "text": "theft", "input": "theft", "toml": victimsFlow("theft"), "limit": 10, "fresh": true, "tag": "theft", "names": []string{"theft", "thief"},
	}
	// The victim's job is over, but what folds its progress may still be at work.
	before := ""
	waitFor(t, "the victim's tenant to come to rest", func() bool {
		last := before
		before = s.everythingOf("alpha")
		return last == before
	})
	path := func(p, dataset string) string {
		return fill(p, "ds", dataset, "doc", v.document, "job", v.job, "task", v.task, "range", v.rangeID, "upload", v.upload, "webhook", v.webhook, "n", "1", "receipt", v.receipt, "flow", v.flow, "chunk", v.chunk, "edit", v.edit, "query", v.query, "evaluation", v.evaluation, "run", v.run, "split", v.split, "node", "parse")
	}
	walked := 0
	undrawn := regexp.MustCompile(`"no_page_image"|"no_picture"`) // what its owner is told of a document without pictures
	for _, r := range routes {
		if r.path == "/v1/doctor" || strings.HasPrefix(r.path, "/v1/admin/") {
			continue // for operators: the next test
		}
		datasets := []string{v.dataset}
		if strings.Contains(r.path, "{ds}") {
			datasets = []string{v.dataset, "vault", own.ID}
		}
		for _, dataset := range datasets {
			p := path(r.path, dataset)
			if strings.HasSuffix(p, "/graph/entities") {
				p += "?q=" + victimsWord
			}
			if r.op.RequestBody != nil {
				if ct, _ := doc.body(r, values); ct == "application/octet-stream" {
					p += "?name=theft.txt"
				}
			}
			contentType, body := doc.body(r, values)
			resp, answer := intruder.ask(r.method, p, contentType, body)
			walked++
			// An address that names something of the victim's must not exist. With
			// the intruder's own dataset only the names inside can be the victim's.
			names := !strings.HasPrefix(p, "/v1/datasets/"+own.ID) && strings.Contains(r.path, "{") || strings.Contains(r.path, "{doc}") || strings.Contains(r.path, "{upload}") || strings.Contains(r.path, "{webhook}")
			switch {
			case strings.Contains(r.path, "/documents/{doc}") && r.method == http.MethodPut && dataset == own.ID:
				// An id of the caller's choice, taken by another tenant.
				if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusConflict {
					t.Errorf("%s %s answers %d: %s", r.method, p, resp.StatusCode, answer)
				}
			case names && resp.StatusCode != http.StatusNotFound:
				t.Errorf("%s %s answers %d, want 404: %s", r.method, p, resp.StatusCode, answer)
			case resp.StatusCode == http.StatusUnprocessableEntity || resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusUnauthorized || resp.StatusCode >= 500:
				t.Errorf("%s %s was not tried, it answers %d to %s: %s", r.method, p, resp.StatusCode, body, answer)
			}
			if undrawn.MatchString(answer) {
				t.Errorf("%s %s tells of a document of another tenant: %s", r.method, p, answer)
			}
			for _, name := range v.names() {
				repeated := resp.StatusCode == http.StatusNotFound && strings.Contains(p+string(body), name) // "there is no job …"
				if strings.Contains(answer, name) && !repeated {
					t.Errorf("%s %s shows %q of another tenant: %s", r.method, p, name, answer)
				}
			}
		}
		// The same address is there for its owner, else the walk proves nothing.
		if r.method == http.MethodGet || r.method == "STREAM" {
			p := path(r.path, v.dataset)
			if strings.HasSuffix(p, "/graph/entities") {
				p += "?q=" + victimsWord
			}
			if resp, answer := v.ask(r.method, p, "", nil); resp.StatusCode != http.StatusOK && !undrawn.MatchString(answer) {
				t.Errorf("%s %s answers %d to its owner: %s", r.method, r.path, resp.StatusCode, answer)
			}
		}
	}
	if after := s.everythingOf("alpha"); after != before {
		a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
		for _, l := range a {
			if !slices.Contains(b, l) {
				t.Errorf("gone: %.300s", l)
			}
		}
		for _, l := range b {
			if !slices.Contains(a, l) {
				t.Errorf("new: %.300s", l)
			}
		}
	}
	if len(v.findIn("vault", victimsWord)) == 0 {
		t.Error("the victim does not find its own page any more")
	}
	if walked < 80 {
		t.Errorf("only %d requests were tried", walked)
	}

	// Counts are of the caller's documents alone, also where a filter names what is another's.
	intruder.post("/v1/datasets", map[string]any{"name": "counted"}, nil)
	for _, query := range []string{"", "?job=" + v.job, "?id=" + v.document, "?parent=" + v.document, "?failure_code=parser_crash"} {
		var theirs, counted taskstore.Facets
		intruder.get("/v1/datasets/counted/documents/facets"+query, &counted)
		if v.get("/v1/datasets/vault/documents/facets"+strings.ReplaceAll(query, "?parent="+v.document, ""), &theirs); theirs.Documents == 0 {
			t.Errorf("the owner counts nothing by %q", query)
		}
		if counted.Documents != 0 || len(counted.Issues)+len(counted.Jobs) != 0 {
			t.Errorf("counted by %q: %+v", query, counted)
		}
		for _, name := range v.names() {
			if b, _ := json.Marshal(counted); strings.Contains(string(b), name) {
				t.Errorf("counts by %q show %q of another tenant", query, name)
			}
		}
	}

	// An Idempotency-Key belongs to its tenant too.
	for _, c := range []*service{v.service, intruder} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/v1/datasets", strings.NewReader(`{"name":"same"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+c.key)
		req.Header.Set("Idempotency-Key", "same")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated || resp.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("an Idempotency-Key that another tenant used answers %s", resp.Status)
		}
	}
}

func (s *service) findIn(dataset, query string) []string {
	s.t.Helper()
	r, err := s.search(s.t.Context(), dataset, map[string]any{"query": query, "mode": "text", "limit": 50})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, h := range r.Hits {
		out = append(out, h.Chunk.Text)
	}
	return out
}

func TestScopesHoldOnEveryRoute(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	if _, err := s.store.CreateTenant(t.Context(), sheaf.Tenant{ID: "alpha", Name: "alpha", Weight: 1, Cap: 4}); err != nil {
		t.Fatal(err)
	}
	reader, writer, admin := s.withKey("alpha", "read"), s.withKey("alpha", "write"), s.withKey("alpha", "admin")
	revoked := s.withKey("alpha", "write")
	keys, _, err := s.store.Keys(t.Context(), "alpha", taskstore.Page{})
	if err != nil {
		t.Fatal(err)
	}
	var newest sheaf.Key
	for _, k := range keys {
		if k.ID > newest.ID {
			newest = k
		}
	}
	if err := s.store.RevokeKey(t.Context(), "alpha", newest.ID); err != nil {
		t.Fatal(err)
	}
	stranger := &service{client: newClient(s.base, ""), t: t}
	unknown := &service{client: newClient(s.base, "sk-made-up"), t: t}
	doc, routes := s.routes()
	before := s.everythingOf("alpha")
	for _, r := range routes {
		p := fill(r.path, "ds", "none", "doc", "none", "job", "none", "task", "none", "range", "none", "upload", "none", "n", "1", "tenant", "none", "key", "none")
		contentType, body := doc.body(r, map[string]any{"name": "new"})
		for who, c := range map[string]*service{"no key": stranger, "an unknown key": unknown, "a revoked key": revoked} {
			if resp, _ := c.ask(r.method, p, contentType, body); resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s answers %d to %s, want 401", r.method, p, resp.StatusCode, who)
			}
		}
		operators := r.path == "/v1/doctor" || strings.HasPrefix(r.path, "/v1/admin/")
		reads := !operators && (r.method == http.MethodGet || r.method == http.MethodHead || r.method == http.MethodOptions || r.method == "STREAM" || strings.HasSuffix(r.path, "/search") || r.path == "/v1/embeddings" || r.path == "/v1/receipts:verify" || r.path == "/v1/flows:validate")
		if resp, _ := reader.ask(r.method, p, contentType, body); (resp.StatusCode == http.StatusForbidden) == reads {
			t.Errorf("%s %s answers %d to a key that may only read", r.method, p, resp.StatusCode)
		}
		if operators {
			if resp, _ := writer.ask(r.method, p, contentType, body); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s answers %d to a key that may write, want 403", r.method, p, resp.StatusCode)
			}
		}
		if r.path == "/v1/doctor" {
			if resp, answer := admin.ask(r.method, p, contentType, body); resp.StatusCode != http.StatusOK {
				t.Errorf("%s %s answers %d to an admin: %s", r.method, p, resp.StatusCode, answer)
			}
		}
	}
	if s.everythingOf("alpha") != before {
		t.Error("a key without the scope changed something")
	}
}

func TestFullQuotaSaysSoAndWhenToComeBack(t *testing.T) {
	for name, c := range map[string]struct {
		quota sheaf.Quota
		limit int64
	}{
		"documents":    {sheaf.Quota{Documents: 1}, 1},
		"bytes":        {sheaf.Quota{Bytes: 30}, 30},
		"queued tasks": {sheaf.Quota{QueuedTasks: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(c *config.Config) { c.Server.Auth = true })
			tenant := s.tenant("small", "write", c.quota)
			var ds sheaf.Dataset
			tenant.post("/v1/datasets", map[string]any{"name": "d"}, &ds)
			var q api.Paused
			tenant.post("/v1/queues:pause", nil, &q) // so that what is queued stays queued
			send := func() (*http.Response, string) {
				return tenant.ask(http.MethodPost, "/v1/datasets/d/documents?name=a.txt", "text/plain", []byte("twenty bytes of text"))
			}
			if resp, answer := send(); resp.StatusCode != http.StatusAccepted {
				t.Fatalf("the first upload answers %d: %s", resp.StatusCode, answer)
			}
			resp, answer := send()
			var p api.Problem
			if err := json.Unmarshal([]byte(answer), &p); err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
				t.Fatalf("beyond the quota: %s, Retry-After %q: %s", resp.Status, resp.Header.Get("Retry-After"), answer)
			}
			if p.Code != "usage_limit_exceeded" || p.Limit == nil || *p.Limit != c.limit || p.Current == nil || *p.Current < 1 || !strings.Contains(p.Detail, name) {
				t.Errorf("beyond the quota: %s", answer)
			}
			waitFor(t, "the refused bytes to go", func() bool {
				n := 0
				if err := s.blobStore.List(t.Context(), "originals/small/", func(blob.Info) bool { n++; return true }); err != nil {
					t.Fatal(err)
				}
				return n == 1
			})
		})
	}
}
