// Package tika implements the protocol of the Apache Tika server: a client sends a
// file and receives its text and metadata. It is a facade of /v1, whose conversions
// it returns.
package tika

import (
	"encoding/csv"
	"fmt"
	"html"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sheaf/internal/facade"
)

// Metadata keys.
const (
	contentKey   = "X-TIKA:content"
	exceptionKey = "X-TIKA:EXCEPTION:runtime"
	typeKey      = "Content-Type"
	nameKey      = "resourceName"
	parserKey    = "X-TIKA:Parsed-By"
	pagesKey     = "xmpTPg:NPages"
	pathKey      = "X-TIKA:embedded_resource_path"
)

// Routes returns the routes of the API; version is the product's.
func Routes(v1 http.RoundTripper, version string) map[string]http.Handler {
	s := service{v1}
	plain := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, "text/plain; charset=utf-8", text) })
	}
	return map[string]http.Handler{
		"GET /version":    plain("Sheaf " + version),
		"GET /tika":       plain("This is Sheaf " + version + ", which speaks the protocol of the Tika server. Please PUT\n"),
		"PUT /tika":       s.converting(writeContent("text/plain", "application/json", "text/html", "text/xml", "application/xhtml+xml")),
		"PUT /tika/text":  s.converting(writeContent("text/plain", "application/json")),
		"PUT /meta":       s.converting(writeMeta),
		"PUT /rmeta":      s.converting(writeAll),
		"PUT /rmeta/text": s.converting(writeAll),
	}
}

type service struct{ v1 http.RoundTripper }

// converting passes the conversion of a request's file to write.
func (s service) converting(write func(http.ResponseWriter, *http.Request, []facade.Converted)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		media := r.Header.Get("Content-Type")
		if kind, _, _ := mime.ParseMediaType(media); strings.HasPrefix(kind, "multipart/") || kind == "application/x-www-form-urlencoded" {
			media = "" // the client's default says nothing about the file
		}
		dataset, err := facade.DatasetOf(r)
		var docs []facade.Converted
		if err == nil {
			docs, err = facade.Inside(s.v1, r.Header).Convert(r.Context(), facade.Conversion{Name: nameOf(r), MediaType: media, Body: r.Body, Dataset: dataset})
		}
		if err != nil {
			refuse(w, r, facade.AsError(err))
			return
		}
		write(w, r, docs)
	})
}

// refuse answers with an error in the client's format: clients that request JSON
// parse the answer whatever its status.
func refuse(w http.ResponseWriter, r *http.Request, e *facade.Error) {
	said := map[string]any{exceptionKey: e.Error()}
	switch {
	case strings.HasPrefix(r.URL.Path, "/rmeta"):
		facade.Answer(w, e, []map[string]any{said})
	case wanted(r, "text/plain", "application/json") == "application/json":
		facade.Answer(w, e, said)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		facade.Status(w, e.Status)
		_, _ = io.WriteString(w, e.Error()+"\n") // the client may be gone
	}
}

// nameOf returns the name of the file in a request.
func nameOf(r *http.Request) string {
	if _, params, err := mime.ParseMediaType(r.Header.Get("Content-Disposition")); err == nil && params["filename"] != "" {
		name := params["filename"]
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		return name
	}
	return "document"
}

// wanted returns the first of the types that the client accepts, otherwise types[0].
func wanted(r *http.Request, types ...string) string {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, _, _ := strings.Cut(part, ";")
		if media = strings.TrimSpace(media); slices.Contains(types, media) {
			return media
		}
	}
	return types[0]
}

func writeText(w http.ResponseWriter, media, text string) {
	w.Header().Set("Content-Type", media)
	_, _ = io.WriteString(w, text) // the client may be gone
}

func textOf(docs []facade.Converted) string {
	var parts []string
	for _, d := range docs {
		parts = append(parts, facade.Text(d.Chunks))
	}
	return strings.Join(parts, "\n\n")
}

func writeContent(types ...string) func(http.ResponseWriter, *http.Request, []facade.Converted) {
	return func(w http.ResponseWriter, r *http.Request, docs []facade.Converted) {
		switch media := wanted(r, types...); media {
		case "application/json":
			m := metaOf(&docs[0])
			m[contentKey] = textOf(docs)
			facade.Answer(w, nil, m)
		case "text/plain":
			writeText(w, "text/plain; charset=utf-8", textOf(docs))
		default:
			writeText(w, media+"; charset=utf-8", pageOf(docs))
		}
	}
}

// pageOf returns XHTML with one paragraph per paragraph of the text.
func pageOf(docs []facade.Converted) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<html xmlns="http://www.w3.org/1999/xhtml"><head><title>%s</title></head><body>`, html.EscapeString(docs[0].Name))
	for part := range strings.SplitSeq(textOf(docs), "\n\n") {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(part))
	}
	b.WriteString("</body></html>")
	return b.String()
}

// metaOf returns the metadata of a document.
func metaOf(d *facade.Converted) map[string]any {
	m := map[string]any{typeKey: d.MediaType, nameKey: d.Name, parserKey: []string{"sheaf." + d.Parser}, "Content-Length": strconv.FormatInt(d.Size, 10), pagesKey: strconv.Itoa(d.Units)}
	for key, value := range d.Metadata {
		if key == "title" {
			key = "dc:title"
		}
		m[key] = value
	}
	if len(d.Chunks) > 0 {
		if title := d.Chunks[0].Metadata["title"]; title != "" {
			m["dc:title"] = title
		}
		if d.Chunks[0].Language != "" {
			m["language"] = d.Chunks[0].Language
		}
	}
	return m
}

// writeMeta answers with metadata only: as JSON, or as CSV, the default.
func writeMeta(w http.ResponseWriter, r *http.Request, docs []facade.Converted) {
	m := metaOf(&docs[0])
	if wanted(r, "text/csv", "application/json") == "application/json" {
		facade.Answer(w, nil, m)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	out := csv.NewWriter(w)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value, ok := m[key].(string)
		if !ok {
			value = strings.Join(m[key].([]string), ",")
		}
		_ = out.Write([]string{key, value}) // the client may be gone
	}
	out.Flush()
}

// writeAll answers with an object per document: the file, then those inside it.
func writeAll(w http.ResponseWriter, _ *http.Request, docs []facade.Converted) {
	all := make([]map[string]any, len(docs))
	for i := range docs {
		all[i] = metaOf(&docs[i])
		all[i][contentKey] = facade.Text(docs[i].Chunks)
		if docs[i].ParentID != "" {
			all[i][pathKey] = "/" + docs[i].Path
		}
	}
	facade.Answer(w, nil, all)
}
