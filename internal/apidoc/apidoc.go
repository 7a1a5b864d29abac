// Package apidoc renders the API reference served at /docs from the OpenAPI
// description. It works without scripts; those of the page add a filter and copy
// buttons.
package apidoc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Operations lists the operations of a description, by path and method.
func Operations(api *huma.OpenAPI) []*huma.Operation {
	var out []*huma.Operation
	for _, item := range api.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete, item.Head, item.Options} {
			if op != nil {
				out = append(out, op)
			}
		}
	}
	slices.SortFunc(out, func(a, b *huma.Operation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(rank(a.Method), rank(b.Method)))
	})
	return out
}

// rank orders the operations of one path: reads before writes.
func rank(method string) int {
	return slices.Index([]string{http.MethodHead, http.MethodGet, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, method)
}

// first are the groups that people look for; the others follow by name, and
// operator-only ones come last.
var first = []string{"datasets", "documents", "uploads", "chunks", "search", "jobs", "tasks"}

func order(tag string) string {
	if i := slices.Index(first, tag); i >= 0 {
		return strconv.Itoa(i)
	}
	if tag == "admin" {
		return "~"
	}
	return tag
}

type page struct {
	bytes.Buffer
	schemas map[string]*huma.Schema
}

// Page returns the reference as HTML. base is the address used in examples.
func Page(api *huma.OpenAPI, base string) []byte {
	p := &page{schemas: api.Components.Schemas.Map()}
	groups := map[string][]*huma.Operation{}
	for _, op := range Operations(api) {
		groups[op.Tags[0]] = append(groups[op.Tags[0]], op)
	}
	tags := slices.SortedFunc(maps.Keys(groups), func(a, b string) int { return strings.Compare(order(a), order(b)) })

	p.WriteString(head)
	p.put(`<main id="view" tabindex="-1" data-base="%s">`, base)
	p.WriteString(`<div class="api"><nav class="api-index" aria-label="Operations"><label class="hidden" for="api-filter">Filter operations</label><input id="api-filter" type="search" placeholder="Filter operations" autocomplete="off" hidden>`)
	for _, tag := range tags {
		p.put(`<section><h2><a href="#tag-%s">%s</a></h2><ul>`, tag, title(tag))
		for _, op := range groups[tag] {
			p.put(`<li><a href="#%s" data-text="%s">%s</a></li>`, op.OperationID, strings.ToLower(op.Method+" "+op.Path+" "+op.Summary), op.Summary)
		}
		p.WriteString(`</ul></section>`)
	}
	p.WriteString(`<section><h2><a href="#schemas">Schemas</a></h2></section></nav><div class="api-body">`)
	p.put(intro, api.Info.Version, base)
	for _, tag := range tags {
		p.put(`<h2 id="tag-%s">%s</h2>`, tag, title(tag))
		for _, op := range groups[tag] {
			p.operation(op, base)
		}
	}
	p.WriteString(`<h2 id="schemas">Schemas</h2>`)
	for _, name := range slices.Sorted(maps.Keys(p.schemas)) {
		p.put(`<details class="op" id="schema-%s"><summary><code>%s</code></summary>`, name, name)
		p.schema(p.schemas[name], name)
		p.WriteString(`</details>`)
	}
	p.WriteString(foot)
	return p.Bytes()
}

// put writes a format with escaped values.
func (p *page) put(format string, values ...string) {
	escaped := make([]any, len(values))
	for i, v := range values {
		escaped[i] = html.EscapeString(v)
	}
	fmt.Fprintf(p, format, escaped...)
}

func title(tag string) string {
	s := strings.ReplaceAll(tag, "-", " ")
	return strings.ToUpper(s[:1]) + s[1:]
}

func (p *page) operation(op *huma.Operation, base string) {
	p.put(`<details class="op" id="%s"><summary><span class="method %s">%s</span> <code>%s</code> <span>%s</span></summary>`, op.OperationID, strings.ToLower(op.Method), op.Method, op.Path, op.Summary)
	if op.Description != "" {
		p.put(`<p>%s</p>`, op.Description)
	}
	if scope := scopeOf(op); scope != "" {
		p.put(`<p class="muted">Operation <code>%s</code>. Where the server asks for keys, one with the scope <code>%s</code>.</p>`, op.OperationID, scope)
	}
	if len(op.Parameters) > 0 {
		p.put(`<h3>Parameters</h3><div class="scroll-x" tabindex="0" role="region" aria-label="Parameters of %s"><table class="plain"><thead><tr><th>Name</th><th>In</th><th>Type</th><th>Description</th></tr></thead><tbody>`, op.OperationID)
		for _, q := range op.Parameters {
			p.row(q.Name, q.Required, q.In, q.Schema, cmp.Or(q.Description, q.Schema.Description))
		}
		p.WriteString(`</tbody></table></div>`)
	}
	if op.RequestBody != nil {
		p.WriteString(`<h3>Request body</h3>`)
		p.contents(op.RequestBody.Content, "the body of "+op.OperationID, true)
	}
	p.WriteString(`<h3>Example</h3><div class="copied"><pre tabindex="0"><code>`)
	p.put("%s", Curl(op, base))
	p.WriteString(`</code></pre><button type="button" class="copy" hidden>Copy</button></div>`)
	p.try(op)
	p.WriteString(`<h3>Answers</h3>`)
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		name := "Any other status"
		if code, err := strconv.Atoi(status); err == nil {
			name = status + " " + http.StatusText(code)
		}
		p.put(`<p><strong>%s</strong> %s</p>`, name, description(r.Description, name))
		for _, h := range slices.Sorted(maps.Keys(r.Headers)) {
			p.put(`<p class="muted">Header <code>%s</code> %s</p>`, h, r.Headers[h].Description)
		}
		p.contents(r.Content, "answer "+status+" of "+op.OperationID, false)
	}
	p.WriteString(`</details>`)
}

// try writes what the page's script turns into a form: the request with its
// example, if that is JSON or has no body.
func (p *page) try(op *huma.Operation) {
	body := ""
	if op.RequestBody != nil {
		media := op.RequestBody.Content["application/json"]
		if media == nil || media.Example == nil {
			return
		}
		b, err := json.MarshalIndent(media.Example, "", "  ")
		if err != nil {
			return
		}
		body = string(b)
	}
	if op.Method == http.MethodHead || op.Method == http.MethodOptions {
		return
	}
	p.put(`<div class="try" data-method="%s" data-path="%s" data-body="%s" hidden></div>`, op.Method, op.Path, body)
}

// description omits a text that only repeats the status.
func description(text, name string) string {
	if strings.HasSuffix(name, text) {
		return ""
	}
	return text
}

func scopeOf(op *huma.Operation) string {
	for _, s := range op.Security {
		for _, scopes := range s {
			if len(scopes) > 0 {
				return scopes[0]
			}
		}
	}
	return ""
}

// contents writes bodies by media type; with open, also the properties of types
// described below.
func (p *page) contents(of map[string]*huma.MediaType, what string, open bool) {
	for _, media := range slices.Sorted(maps.Keys(of)) {
		sc := of[media].Schema
		p.put(`<p class="muted"><code>%s</code>`, media)
		if sc == nil {
			p.WriteString(`</p>`)
			continue
		}
		if sc.Ref != "" || sc.Type == "array" || sc.Format == "binary" {
			p.WriteString(` `)
			p.kind(sc)
			p.WriteString(`</p>`)
			if s := p.schemas[named(sc)]; open && s != nil {
				p.schema(s, what)
			}
		} else {
			p.WriteString(`</p>`)
			p.schema(sc, what+" as "+media)
		}
	}
}

func (p *page) row(name string, required bool, second string, sc *huma.Schema, text string) {
	p.put(`<tr><th scope="row"><code>%s</code></th><td>%s</td><td>`, name, cmp.Or(second, map[bool]string{true: "yes", false: "no"}[required]))
	p.kind(sc)
	p.put(`</td><td>%s`, text)
	if required && second != "" && second != "path" {
		p.WriteString(` <em>Required.</em>`)
	}
	p.WriteString(`</td></tr>`)
}

// schema writes the properties of an object, or whatever else a schema is.
func (p *page) schema(sc *huma.Schema, name string) {
	if sc.Description != "" {
		p.put(`<p>%s</p>`, sc.Description)
	}
	if len(sc.Properties) == 0 {
		p.WriteString(`<p>`)
		p.kind(sc)
		p.WriteString(`</p>`)
		return
	}
	p.put(`<div class="scroll-x" tabindex="0" role="region" aria-label="Properties of %s"><table class="plain"><thead><tr><th>Property</th><th>Required</th><th>Type</th><th>Description</th></tr></thead><tbody>`, name)
	for _, name := range slices.Sorted(maps.Keys(sc.Properties)) {
		of := sc.Properties[name]
		p.row(name, slices.Contains(sc.Required, name), "", of, of.Description)
	}
	p.WriteString(`</tbody></table></div>`)
}

// named returns the type that a schema refers to, or "".
func named(sc *huma.Schema) string { return sc.Ref[strings.LastIndexByte(sc.Ref, '/')+1:] }

// kind writes the type of a value and its bounds.
func (p *page) kind(sc *huma.Schema) {
	if sc.Ref != "" {
		name := named(sc)
		p.put(`<a href="#schema-%s">%s</a>`, name, name)
		return
	}
	switch {
	case sc.Type == "array" && sc.Items != nil:
		p.WriteString(`list of `)
		p.kind(sc.Items)
	case len(sc.Enum) > 0:
		for i, v := range sc.Enum {
			if i > 0 {
				p.WriteString(` | `)
			}
			p.put(`<code>%s</code>`, fmt.Sprint(v))
		}
	case sc.Type == "object" && len(sc.Properties) == 0:
		p.WriteString(`object`)
		if of, ok := sc.AdditionalProperties.(*huma.Schema); ok {
			p.WriteString(` of `)
			p.kind(of)
		}
	default:
		p.put(`%s`, cmp.Or(sc.Type, "any value"))
		if sc.Format != "" && !strings.HasPrefix(sc.Format, "int") && sc.Format != "double" {
			p.put(` (%s)`, sc.Format)
		}
	}
	p.put(`%s`, bounds(sc))
	if sc.Nullable {
		p.WriteString(` or null`)
	}
	if sc.Default != nil {
		if b, err := json.Marshal(sc.Default); err == nil {
			p.put(`, default <code>%s</code>`, string(b))
		}
	}
}

func bounds(sc *huma.Schema) string {
	var out []string
	number := func(f *float64) string { return strconv.FormatFloat(*f, 'f', -1, 64) }
	switch {
	case sc.Minimum != nil && sc.Maximum != nil:
		out = append(out, number(sc.Minimum)+"–"+number(sc.Maximum))
	case sc.Minimum != nil:
		out = append(out, "at least "+number(sc.Minimum))
	case sc.Maximum != nil:
		out = append(out, "at most "+number(sc.Maximum))
	}
	if sc.MaxLength != nil {
		out = append(out, fmt.Sprintf("at most %d characters", *sc.MaxLength))
	}
	if sc.MaxItems != nil {
		out = append(out, fmt.Sprintf("at most %d", *sc.MaxItems))
	}
	if len(out) == 0 {
		return ""
	}
	return ", " + strings.Join(out, ", ")
}

// Curl returns a curl command for an operation, with the examples of the description.
func Curl(op *huma.Operation, base string) string {
	path := op.Path
	var query, headers []string
	for _, q := range op.Parameters {
		value := fmt.Sprint(q.Example)
		switch {
		case q.In == "path":
			path = strings.ReplaceAll(path, "{"+q.Name+"}", value)
		case q.Example == nil:
		case q.In == "query":
			query = append(query, q.Name+"="+value)
		case q.In == "header":
			headers = append(headers, q.Name+": "+value)
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	out := []string{"curl"}
	switch op.Method {
	case http.MethodGet:
	case http.MethodHead:
		out[0] = "curl --head"
	default:
		out[0] = "curl -X " + op.Method
	}
	out[0] += " " + quoted(base+path)
	for _, h := range headers {
		out = append(out, "-H "+quoted(h))
	}
	if op.RequestBody != nil {
		content := op.RequestBody.Content
		switch {
		case content["multipart/form-data"] != nil:
			out = append(out, "-F file=@report.pdf")
		case content["application/json"] != nil:
			if b, err := json.Marshal(content["application/json"].Example); err == nil && content["application/json"].Example != nil {
				out = append(out, "-H 'Content-Type: application/json'", "-d "+quoted(string(b)))
			}
		default:
			for media := range content {
				out = append(out, "-H "+quoted("Content-Type: "+media), "--data-binary @report.pdf")
				break
			}
		}
	}
	return strings.Join(out, " \\\n  ")
}

// quoted quotes a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

const head = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API reference · Sheaf</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/style.css">
<link rel="stylesheet" href="/docs.css">
<script type="module" src="/js/docs.js"></script>
</head>
<body>
<a class="skip" href="#view">Skip to the content</a>
<header id="top">
  <a class="mark" href="/"><svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 3v18M12 14C7 13 5 9 5 4c4 1 6.5 4 7 8M12 14c5-1 7-5 7-10-4 1-6.5 4-7 8M7 20h10"/></svg>Sheaf</a>
  <nav id="nav" aria-label="Main">
    <a href="/datasets/default">Documents</a>
    <a href="/datasets">Datasets</a>
    <a href="/jobs">Jobs</a>
    <a href="/operations">Operations</a>
  </nav>
</header>
`

const intro = `<h1>API reference</h1>
<p class="muted">Version %s. The same as a machine reads it: <a href="/openapi.json">openapi.json</a>, <a href="/openapi.yaml">openapi.yaml</a>.</p>
<ul>
<li>Examples ask this server, <code>%s</code>, and name a dataset <code>default</code>; put in the ids of your own documents.</li>
<li>Where the server asks for keys, send <code>-H "Authorization: Bearer $SHEAF_KEY"</code> or <code>X-Api-Key</code>.</li>
<li>Lists have a <code>limit</code>, and a <code>next_cursor</code> that is <code>cursor</code> of the next request; null ends them.</li>
<li>An <code>Idempotency-Key</code> makes a request that changes something safe to repeat for a day.</li>
<li>Unknown parameters and properties are refused, with the nearest right name.</li>
</ul>
<h2 id="errors">Errors</h2>
<p>Errors are <code>application/problem+json</code> with a stable <code>code</code> for programs and a <code>detail</code> that says what to do: <a href="#schema-Problem">Problem</a>. <code>retryable</code> tells those that may pass when tried again.</p>
<div class="scroll-x" tabindex="0" role="region" aria-label="Statuses of errors"><table class="plain"><thead><tr><th>Status</th><th>When</th></tr></thead><tbody>
<tr><th scope="row">400</th><td>The request is wrong; <code>errors</code> names each field at fault.</td></tr>
<tr><th scope="row">401, 403</th><td>No valid key; a key without the scope.</td></tr>
<tr><th scope="row">404</th><td>There is no such thing, or it is another tenant's.</td></tr>
<tr><th scope="row">409</th><td>What is asked for does not go with the present state, or a name is taken.</td></tr>
<tr><th scope="row">412</th><td>It was changed since the <code>If-Match</code> that was sent.</td></tr>
<tr><th scope="row">413, 415</th><td>A body that is too large; a type that nobody reads.</td></tr>
<tr><th scope="row">429</th><td>A quota is full or too much is asked for at once; <code>Retry-After</code> says when to try again.</td></tr>
<tr><th scope="row">503</th><td>Something that the answer needs is away; <code>/readyz</code> says what.</td></tr>
<tr><th scope="row">507</th><td>The server's storage is full.</td></tr>
</tbody></table></div>
`

const foot = `</div></div></main></body></html>
`
