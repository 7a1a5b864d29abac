package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
)

// walker sends each route of the description what it cannot understand.
type walker struct {
	*testServer
	ids   things
	tried int
}

// refused sends a request that is wrong, and reads the answer: 400 (or the
// status given), with a sentence that has all the words.
func (w *walker) refused(want int, method, path, body string, headers []string, words ...string) {
	w.t.Helper()
	w.tried++
	status, b := w.ask(method, path, body, headers...)
	what := fmt.Sprintf("%s %s %.200s %q", method, path, body, headers)
	if status != want {
		w.t.Errorf("%s answers %d, want %d: %.300s", what, status, want, b)
		return
	}
	if method == http.MethodHead {
		return // it has no body
	}
	p := w.problem(what, b)
	for _, word := range words {
		if !strings.Contains(p.Detail, word) {
			w.t.Errorf("%s: %q does not say %q", what, p.Detail, word)
		}
	}
}

// wrongValues are values that a parameter or property of the schema cannot have.
func wrongValues(sc *huma.Schema) []any {
	switch {
	case len(sc.Enum) > 0:
		return []any{fmt.Sprint(sc.Enum[0]) + "x", "NONE"}
	case sc.Type == huma.TypeBoolean:
		return []any{"yes", "1", "TRUE"}
	case sc.Type == huma.TypeInteger:
		out := []any{"ten", "1.5", "0x10"}
		if sc.Minimum != nil {
			out = append(out, int(*sc.Minimum)-1)
		}
		if sc.Maximum != nil {
			out = append(out, int(*sc.Maximum)+1)
		}
		return out
	case sc.Type == huma.TypeNumber:
		return []any{"much"}
	case sc.Format == "date-time":
		return []any{"yesterday", "2026-01-31"}
	case sc.Format == formatDuration:
		return []any{"foo", "30", "-5s"}
	case cursors[sc.Format] != nil:
		return []any{"foo", "-1", "page 2"}
	case sc.MaxLength != nil:
		return []any{strings.Repeat("x", *sc.MaxLength+1)}
	}
	return nil
}

func (w *walker) parameters(method, path string, headers []string, params []*huma.Param) {
	w.t.Helper()
	for _, p := range params {
		sc := p.Schema
		slip := p.Name + "s"
		w.refused(400, method, path+"?"+slip+"=1", "", headers, slip, p.Name)
		if sc.Type == huma.TypeArray {
			sc = sc.Items
		} else {
			w.refused(400, method, path+"?"+p.Name+"=1&"+p.Name+"=2", "", headers, p.Name, "once")
		}
		for _, v := range wrongValues(sc) {
			w.refused(400, method, path+"?"+p.Name+"="+strings.ReplaceAll(fmt.Sprint(v), " ", "+"), "", headers, p.Name)
		}
		if !slices.Contains(emptyParams, p.Name) {
			w.refused(400, method, path+"?"+p.Name+"=", "", headers, p.Name, "empty")
		}
	}
	w.refused(400, method, path+"?surprise=1", "", headers, `"surprise"`)
	w.refused(400, method, path+"?%zz", "", headers, "query")
	if !slices.ContainsFunc(params, func(p *huma.Param) bool { return p.Name == "dry_run" }) {
		w.refused(400, method, path+"?dry_run=true", "", headers, "dry_run")
	}
}

// bodies sends what is wrong in one place of a body that would do otherwise.
func (w *walker) bodies(method, path string, sc *huma.Schema) {
	w.t.Helper()
	reg := w.api.api.OpenAPI().Components.Schemas
	send := func(body any, words ...string) {
		w.t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		w.refused(400, method, path, string(b), []string{"Content-Type", asJSON}, words...)
	}
	w.refused(400, method, path, "", []string{"Content-Type", asJSON}, "needs a body")
	w.refused(400, method, path, "{", []string{"Content-Type", asJSON})
	w.refused(400, method, path, "[]", []string{"Content-Type", asJSON}, "object")
	w.refused(415, method, path, "{}", []string{"Content-Type", "application/x-www-form-urlencoded"}, "application/json")
	sc = resolved(sc, reg)
	send(map[string]any{"surprise": 1}, `"surprise"`)
	for name, property := range sc.Properties {
		property = resolved(property, reg)
		send(map[string]any{name + "x": 1}, `"`+name+`x"`, name)
		w.refused(400, method, path, fmt.Sprintf(`{%q: 1, %q: 2}`, name, name), []string{"Content-Type", asJSON}, "twice")
		var wrong []any
		switch property.Type {
		case huma.TypeString:
			wrong = append(wrongValues(property), 7, true, []any{}, map[string]any{})
		case huma.TypeBoolean:
			wrong = []any{"true", 1, []any{}}
		case huma.TypeInteger, huma.TypeNumber:
			wrong = []any{"1", true, map[string]any{}}
		case huma.TypeArray:
			wrong = []any{"one", 1, map[string]any{}, []any{map[string]any{"a": 1}}}
			if items := resolved(property.Items, reg); len(items.Enum) > 0 {
				wrong = append(wrong, []any{fmt.Sprint(items.Enum[0]) + "x"})
			}
		case huma.TypeObject:
			wrong = []any{"one", 1, []any{}}
			for inner := range property.Properties {
				wrong = append(wrong, map[string]any{inner + "x": 1})
			}
		}
		for _, v := range wrong {
			send(map[string]any{name: v}, name)
		}
	}
}

func TestEveryRouteRefusesWhatItDoesNotUnderstand(t *testing.T) {
	s := newTestServer(t, nil)
	w := &walker{testServer: s, ids: s.fillIn()}
	before := s.dump()
	for _, pattern := range slices.Sorted(maps.Keys(s.api.table)) {
		rt := s.api.table[pattern]
		method, path, _ := strings.Cut(rt.pattern, " ")
		at := w.ids.fill(path)
		var headers []string
		if strings.Contains(path, "/uploads") {
			headers = []string{"Tus-Resumable", tusVersion, "X-HTTP-Method-Override", "PATCH"}
		}
		w.parameters(method, at, headers, rt.query)
		if rt.stream {
			w.parameters(method, at, []string{"Accept", "text/event-stream"}, streamParams)
			w.refused(400, method, at+"?after=soon", "", []string{"Accept", "text/event-stream"}, "after", "now")
			w.refused(400, method, at+"?limit=5", "", []string{"Accept", "text/event-stream"}, "limit")
			w.refused(400, method, at, "", []string{"Accept", "text/event-stream", "Last-Event-ID", "x"}, "Last-Event-ID")
		}
		w.refused(400, method, at, "", append(headers, "Upload-Lenght", "5"), "Upload-Lenght")
		w.refused(400, method, at, "", append(headers, "X-Idempotency-Key", "5"), "Idempotency-Key")
		op := operationsOf(s.api.api.OpenAPI().Paths[path])[method]
		switch {
		case !rt.body && method != http.MethodHead: // a client sends no body with HEAD
			w.refused(400, method, at, `{"dry_run": true}`, append(headers, "Content-Type", asJSON), "body")
		case rt.body && op.RequestBody.Content["application/octet-stream"] == nil && op.RequestBody.Content[asJSON] != nil:
			w.bodies(method, at, op.RequestBody.Content[asJSON].Schema)
		}
	}
	if w.tried < 900 {
		t.Errorf("only %d mistakes were tried", w.tried)
	}
	if after := s.dump(); after != before {
		t.Errorf("a request that was refused changed something:\n%s", difference(before, after))
	}
}

// Typical slips, and what is said of each.
func TestMistakesAreAnsweredWithTheRightName(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.AllowURLs = []string{"files.invalid"} })
	w := &walker{testServer: s, ids: s.fillIn()}
	ds := "/v1/datasets/files"
	doc, job := ds+"/documents/"+w.ids["doc"], "/v1/jobs/"+w.ids["job"]
	j := []string{"Content-Type", asJSON}
	tus := []string{"Tus-Resumable", tusVersion}
	var multi = []string{"Content-Type", "multipart/form-data; boundary=b"}
	field := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	file := func(name string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\n\r\nSome text.\r\n"
	}
	const end = "--b--\r\n"
	before, blobs := s.dump(), len(s.blobKeys())
	for _, m := range []struct {
		method, path, body string
		headers            []string
		status             int
		code, says         string
	}{
		{"DELETE", doc + "?dryrun=true", "", nil, 400, "invalid", `did you mean dry_run?`},
		{"DELETE", doc + "?dry_run", "", nil, 400, "invalid", "dry_run is empty; give true or false"},
		{"DELETE", doc + "?dry_run=1", "", nil, 400, "invalid", `dry_run cannot be "1"; give true or false`},
		{"DELETE", doc + "?dry-run=true", "", nil, 400, "invalid", "did you mean dry_run?"},
		{"DELETE", doc + "?dry_run=true&dry_run=false", "", nil, 400, "invalid", "2 times; give it once"},
		{"DELETE", doc, `{"dry_run": true}`, j, 400, "invalid", "takes no body"},
		{"POST", ds + ":pause?dry_run=true", "", nil, 400, "invalid", "cannot be tried without being carried out"},
		{"DELETE", ds + "/webhooks/" + w.ids["webhook"] + "?dry_run=true", "", nil, 400, "invalid", "cannot be tried"},
		{"DELETE", ds + "/uploads/" + w.ids["upload"] + "?dry_run=true", "", tus, 400, "invalid", "cannot be tried"},
		{"PATCH", ds + "/webhooks/" + w.ids["webhook"], `{"enabled": null}`, j, 400, "invalid", "enabled is null"},
		{"PATCH", "/v1/admin/tenants/" + sheaf.LocalTenant, `{"weigth": 2}`, j, 400, "invalid", "did you mean weight?"},
		{"POST", "/v1/admin/tenants", `{"id": "a/b"}`, j, 400, "invalid", "begin with a letter or digit"},
		{"POST", ds + "/documents:delete", `{}`, j, 400, "empty_filter", `"all": true`},
		{"POST", ds + "/documents:delete", `{"filter": {}}`, j, 400, "empty_filter", "document_ids, state, media_type, q"},
		{"POST", ds + "/documents:delete", `{"filter": null}`, j, 400, "empty_filter", `"all": true`},
		{"POST", ds + "/documents:delete", `{"filter": {"document_ids": null}}`, j, 400, "invalid", "null"},
		{"POST", ds + "/documents:delete", `{"filter": {"state": ["failed"], "q": null}}`, j, 400, "invalid", "null"},
		{"POST", ds + "/documents:delete", `{"filter": {"q": ""}}`, j, 400, "invalid", "filter.q has 0 characters; give at least 1"},
		{"POST", ds + "/documents:delete", `{"all": true, "filter": {"state": ["failed"]}}`, j, 400, "invalid", "leave one of them out"},
		{"POST", ds + "/documents:delete", `{"all": "true"}`, j, 400, "invalid", `all cannot be "true"; give true or false`},
		{"POST", ds + "/documents:delete", `{"filter": {"state": ["faild"]}}`, j, 400, "invalid", `filter.state[0] cannot be "faild"; did you mean failed?`},
		{"POST", ds + "/documents:delete", `{"filter": {"states": ["failed"]}}`, j, 400, "invalid", `no property "states" in filter; did you mean state?`},
		{"POST", ds + "/documents:delete", `{"filter": {"document_ids": "` + w.ids["doc"] + `"}}`, j, 400, "invalid", "filter.document_ids cannot be"},
		{"POST", ds + "/documents:delete", `{"filter": {"media_type": ["pdf"]}}`, j, 400, "invalid", `filter.media_type[0] cannot be "pdf"; give a media type such as application/pdf`},
		{"POST", ds + "/documents:delete", `{"document_ids": []}`, j, 400, "invalid", `no property "document_ids" here`},
		{"POST", ds + "/documents:delete", `{"all": true, "scope": "failed"}`, j, 400, "invalid", `no property "scope"`},
		{"POST", ds + "/documents:cancel", `{"all": true, "fresh": true}`, j, 400, "invalid", `no property "fresh"`},
		{"POST", ds + "/documents:reparse", `{"all": true, "scope": "all"}`, j, 400, "invalid", `no property "scope"`},
		{"POST", ds + "/documents:retry", `{"all": true, "fresh": true}`, j, 400, "invalid", `no property "fresh"`},
		{"POST", ds + "/documents:retry", `{"all": true, "scope": "fail"}`, j, 400, "invalid", "did you mean failed?"},
		{"POST", ds + "/documents:retry", `{"all": true, "scope": "all", "codes": ["a"]}`, j, 400, "invalid", "narrow the scope failed"},
		{"POST", ds + "/documents:retry", `{"filter": {"state": ["failed"]}, "filter": {"state": ["queued"]}}`, j, 400, "invalid", `"filter" is given twice`},
		{"POST", ds + "/documents:reparse", `{"all": true, "parser_config": {"chunk_tokens": 5}}`, j, 400, "invalid", `no property "chunk_tokens" in parser_config`},
		{"POST", "/v1/dead-letters:purge", `{}`, j, 400, "empty_filter", `"all": true`},
		{"POST", "/v1/dead-letters:retry", `{"kind": null}`, j, 400, "invalid", "null"},
		{"POST", "/v1/dead-letters:retry", `{"kind": "prase"}`, j, 400, "invalid", "did you mean parse?"},
		{"POST", "/v1/dead-letters:purge", `{"all": true, "code": "bad"}`, j, 400, "invalid", "leave one of them out"},
		{"POST", "/v1/admin/dead-letters:purge", `{}`, j, 400, "empty_filter", `"all": true`},
		{"POST", ds + "/webhooks/" + w.ids["webhook"] + ":replay", `{}`, j, 400, "empty_filter", `{"state": ["dead"]}`},
		{"GET", ds + "/documents?state=done", "", nil, 400, "invalid", `state cannot be "done"; there are`},
		{"GET", ds + "/documents?state=Failed", "", nil, 400, "invalid", "did you mean failed?"},
		{"GET", ds + "/documents?media_type=pdf", "", nil, 400, "invalid", "give a media type such as application/pdf"},
		{"GET", ds + "/documents?page=2", "", nil, 400, "invalid", `no parameter "page"`},
		{"GET", ds + "/documents?offset=50", "", nil, 400, "invalid", `no parameter "offset"; there are`},
		{"GET", ds + "/documents?order=desc", "", nil, 400, "invalid", "there are newest and oldest"},
		{"GET", ds + "/documents?limit=0", "", nil, 400, "invalid", "give a whole number from 1 to 1000"},
		{"GET", ds + "/documents/runs?cursor=nonsense", "", nil, 400, "invalid", "next_cursor of the page before"},
		{"GET", "/v1/jobs?state=done", "", nil, 400, "invalid", "state"},
		{"GET", ds + "/documents?cursor=2", "", nil, 400, "invalid", "next_cursor of the page before"},
		{"GET", ds + "/documents?created_after=yesterday", "", nil, 400, "invalid", "such as 2026-01-31T12:00:00Z"},
		{"GET", "/v1/dead-letters?category=parser-crash", "", nil, 400, "invalid", "did you mean parser_crash?"},
		{"GET", job + "?wait=30", "", nil, 400, "invalid", "with its unit, such as 30s"},
		{"GET", job + "?wait=foo", "", nil, 400, "invalid", "with its unit, such as 30s"},
		{"GET", doc + "/pages/1/image?dpi=10000", "", nil, 400, "invalid", "from 36 to 300"},
		{"GET", doc + "/pages/one/image", "", nil, 400, "invalid", `The page cannot be "one"`},
		{"GET", doc + "/content?redirect=yes", "", nil, 400, "invalid", "give true or false"},
		{"POST", "/v1/search", `{"query": "x", "mode": "hybird"}`, j, 400, "invalid", "did you mean hybrid?"},
		{"POST", "/v1/search", `{"query": "x", "filters": {}}`, j, 400, "invalid", "did you mean filter?"},
		{"POST", "/v1/embeddings", `{"inputs": "x"}`, j, 400, "invalid", "did you mean input?"},
		{"POST", "/v1/embeddings", `{"input": "x", "encoding_format": "base46"}`, j, 400, "invalid", "did you mean base64?"},
		{"POST", "/v1/search", `{"qeury": "x"}`, j, 400, "invalid", "did you mean query?"},
		{"POST", ds + "/search", `{"query": "x", "limit": 100000}`, j, 400, "invalid", "1 to 100"},
		{"POST", ds + "/search", `query=x`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", "Content-Type: application/json"},
		{"POST", "/v1/datasets", `{"name": "files"}`, j, 409, "conflict", `a dataset named "files" already`},
		{"POST", "/v1/datasets", `{"nmae": "new"}`, j, 400, "invalid", "did you mean name?"},
		{"POST", "/v1/datasets", `{"name": "a/b"}`, j, 400, "invalid", "without slashes"},
		{"POST", "/v1/datasets", `{"name": "new", "parser_config": {"chunk_method": "generall"}}`, j, 400, "invalid", "chunk_method"},
		{"POST", "/v1/datasets", `{"name": "new"`, j, 400, "invalid", "with every bracket and quote closed"},
		{"POST", "/v1/datasets", `{name: "new"}`, j, 400, "invalid", "The body is no JSON: invalid character 'n'"},
		{"PATCH", ds, `{"name": ""}`, j, 400, "invalid", "give at least 1"},
		{"GET", "/v1/datasts", "", nil, 404, "not_found", "did you mean /v1/datasets?"},
		{"GET", "/v1/dataset/files", "", nil, 404, "not_found", "did you mean /v1/datasets/{ds}?"},
		{"POST", job + ":cancle", "", nil, 404, "not_found", "did you mean /v1/jobs/{job}:cancel?"},
		{"PUT", "/v1/datasets", "", nil, 405, "method_not_allowed", "use GET, HEAD or POST"},
		{"POST", "/healthz", "", nil, 405, "method_not_allowed", "use GET or HEAD"},
		{"GET", "/v1/datasets/filse", "", nil, 404, "not_found", "There is no dataset filse"},
		{"POST", ds + "/documents?nmae=a.txt", "text", nil, 400, "invalid", "did you mean name?"},
		{"POST", ds + "/documents?name=a.txt&dry_run=yes", "text", nil, 400, "invalid", "give true or false"},
		{"POST", ds + "/documents?name=a.txt&lane=9", "text", nil, 400, "invalid", "from 1 to 3"},
		{"POST", ds + "/documents?name=a.txt&wait=soon", "text", nil, 400, "invalid", "such as 30s"},
		{"POST", ds + `/documents?name=a.txt&parser_config={"chunk_token":5}`, "text", nil, 400, "invalid", "did you mean chunk_token_num?"},
		{"POST", ds + `/documents?name=a.txt&parser_config={"chunk_token_num":"5"}`, "text", nil, 400, "invalid", "chunk_token_num is a JSON string; give a whole number"},
		{"POST", ds + "/documents?name=a.txt", "text", []string{"Upload-Checksum", "md5 YQ=="}, 400, "invalid", "Upload-Checksum does nothing here"},
		{"POST", ds + "/documents?lane=1", `{"url": "http://files.invalid/a"}`, j, 400, "invalid", "give lane in the body"},
		{"POST", ds + "/documents", `{"ulr": "http://files.invalid/a"}`, j, 400, "invalid", "did you mean url?"},
		{"POST", ds + "/documents?name=x", file("a.txt") + end, multi, 400, "invalid", "name does nothing for a multipart body"},
		{"POST", ds + "/documents", end, multi, 400, "no_file", "carries no file"},
		{"POST", ds + "/documents", field("lane", "1") + end, multi, 400, "no_file", "curl -F file=@"},
		{"POST", ds + "/documents", field("file", "text") + end, multi, 400, "no_file", "-F file=@FILE"},
		{"POST", ds + "/documents", file("a.txt") + field("parser_config", "{}") + end, multi, 400, "field_after_file", "send parser_config before the first file"},
		{"POST", ds + "/documents", file("a.txt") + field("lane", "1") + file("b.txt") + end, multi, 400, "field_after_file", "nothing was kept"},
		{"POST", ds + "/documents", field("lane", "1") + file("a.txt") + field("lane", "2") + end, multi, 400, "field_after_file", "send lane before the first file"},
		{"POST", ds + "/documents", field("parserconfig", "{}") + file("a.txt") + end, multi, 400, "invalid", "did you mean parser_config?"},
		{"POST", ds + "/documents", field("lane", "1") + field("lane", "2") + file("a.txt") + end, multi, 400, "invalid", "twice"},
		{"POST", ds + "/documents", field("lane", "fast") + file("a.txt") + end, multi, 400, "invalid", "1 (interactive), 2 (normal) or 3 (backfill)"},
		{"POST", ds + "/documents", strings.Replace(file("c.json"), `"file"`, `"parser_config"`, 1) + file("a.txt") + end, multi, 400, "invalid", "came as a file"},
		{"PUT", doc, field("id", sheaf.NewID()) + file("a.txt") + end, multi, 400, "invalid", "another document than the address names"},
		{"PUT", ds + "/documents/my-report?name=a.txt", "text", nil, 400, "invalid", "32 lower-case hex characters"},
		{"POST", ds + "/uploads", "", append(tus, "Upload-Length", "5", "Upload-Metadata", "filname YQ=="), 400, "invalid", "did you mean filename?"},
		{"POST", ds + "/uploads", "", append(tus, "Upload-Length", "5", "Upload-Concat", "partial"), 400, "invalid", "Upload-Concat does nothing here"},
		{"POST", ds + "/uploads", "", append(tus, "Upload-Length", "5", "Upload-Metadata", "hold bm8="), 400, "invalid", "give true or false"},
		{"PATCH", doc, `{"nmae": "b.txt"}`, j, 400, "invalid", "did you mean name?"},
		{"PATCH", doc, `{"attributes": null}`, j, 400, "invalid", "attributes is null"},
		{"PATCH", doc + "/chunks/x", `{"txt": "b"}`, j, 400, "invalid", "did you mean text?"},
		{"PATCH", doc + "/chunks/x", `{"enabled": "no"}`, j, 400, "invalid", `enabled cannot be "no"; give true or false`},
		{"PATCH", doc + "/chunks/x?dry_run=true", `{"enabled": false}`, j, 400, "invalid", "cannot be tried without being carried out"},
		{"DELETE", doc + "/chunks/x?dry_run=true", "", nil, 400, "invalid", "cannot be tried without being carried out"},
		{"POST", doc + "/chunks", `{"after": "x", "txt": "b"}`, j, 400, "invalid", "did you mean text?"},
		{"GET", doc + "/edits?state=unplacd", "", nil, 400, "invalid", "did you mean unplaced?"},
		{"POST", doc + "/edits/x:undoo", `{}`, j, 404, "not_found", "did you mean /v1/datasets/{ds}/documents/{doc}/edits/{edit}:undo?"},
		{"POST", "/v1/flows", `{"flwo": "x"}`, j, 400, "invalid", "did you mean flow?"},
		{"POST", "/v1/flows:validate?dry_run=true", `{}`, j, 400, "invalid", "dry_run"},
		{"GET", "/v1/flows/standrad", "", nil, 404, "not_found", "There is no flow standrad"},
		{"DELETE", "/v1/flows/standard", "", nil, 409, "conflict", "standard"},
		{"GET", "/v1/flows/standard/diff?form=1", "", nil, 400, "invalid", "did you mean from?"},
		{"POST", ds + `/documents?name=a.txt&parser_config={"flow":"standrad"}`, "text", nil, 400, "invalid", "standrad"},
		{"POST", "/v1/index/migration", `{"acton": "start"}`, j, 400, "invalid", "did you mean action?"},
		{"POST", "/v1/index/migration", `{"action": "strat"}`, j, 400, "invalid", "did you mean start?"},
		{"POST", "/v1/index/migration", `{"action": "start", "tenant": "acme"}`, j, 400, "invalid", "belong to the actions dedicate and share"},
		{"POST", "/v1/index/migration", `{"action": "share", "tenant": "acme", "shards": 3}`, j, 400, "invalid", "belong to the action dedicate"},
		{"POST", "/v1/index/migration", `{"action": "dedicate", "tenant": "acme", "shards": 0}`, j, 400, "invalid", "shards"},
		{"POST", "/v1/index/rebuild?dryrun=true", "", nil, 400, "invalid", "did you mean dry_run?"},
		{"POST", "/v1/doctor", `{"repare": true}`, j, 400, "invalid", "did you mean repair?"},
	} {
		status, b := s.ask(m.method, strings.NewReplacer("{", "%7B", "}", "%7D", `"`, "%22").Replace(m.path), m.body, m.headers...)
		what := fmt.Sprintf("%s %s %s", m.method, m.path, m.body)
		p := s.problem(what, b)
		if status != m.status || p.Status != m.status || p.Code != m.code || !strings.Contains(p.Detail, m.says) {
			t.Errorf("%s\n  answers %d %s: %s\n  want    %d %s: … %s", what, status, p.Code, p.Detail, m.status, m.code, m.says)
		}
	}
	if after := s.dump(); after != before {
		t.Errorf("a request that was refused changed something:\n%s", difference(before, after))
	}
	if now := s.blobKeys(); len(now) != blobs {
		t.Errorf("a request that was refused left bytes behind: %q", now)
	}
}
