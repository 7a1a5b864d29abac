package docling

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf/internal/facade"
)

// Limits of a request.
const (
	maxJSONBytes   = 64 << 20 // for a request with base64 files
	maxFieldBytes  = 64 << 10 // per form field
	memoryBytes    = 1 << 20  // per form; larger parts go to a temporary file
	maxSources     = 1000
	maxPage        = 1_000_000
	maxIgnored     = 16 // ignored options listed by a task
	minChunkTokens = 16 // as for the setting chunk_token_num
	maxChunkTokens = 8191
)

// source is one file to read.
type source struct {
	name, media, url string
	open             func() (io.ReadCloser, error) // unless url is set
}

// request is a client's request.
type request struct {
	sources []source
	plan
	settings map[string]any // parser_config
	from     []string       // formats to read; nil for all
	wait     time.Duration  // for a blocking call
}

func unprocessable(format string, args ...any) error {
	return &facade.Error{Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: fmt.Sprintf(format, args...)}
}

// defaults are options whose value requests nothing special.
var defaults = map[string]string{
	"do_ocr": "true", "force_ocr": "false", "abort_on_error": "false", "do_table_structure": "true", "image_export_mode": "placeholder",
	"ocr_engine": "auto", "ocr_preset": "auto", "pipeline": "standard", "table_mode": "accurate", "pdf_backend": "threaded_docling_parse",
	"chunker": "", "merge_peers": "true", "use_markdown_tables": "true", "use_markdown_images": "false", "image_placeholder": "![IMAGE]",
	"tokenizer": "sentence-transformers/all-MiniLM-L6-v2",
}

// option applies one option of a conversion or of a chunker.
func (q *request) option(name string, values []string) error {
	if len(values) == 0 {
		return nil
	}
	switch name {
	case "to_formats":
		q.formats = nil
		for _, f := range values {
			if slices.Contains(formats, f) {
				q.formats = append(q.formats, f)
			} else {
				q.ignore(name + "_" + f)
			}
		}
		if len(q.formats) == 0 {
			return unprocessable("to_formats: Input should be 'md', 'json', 'html' or 'text'")
		}
		slices.Sort(q.formats)
		q.formats = slices.Compact(q.formats)
	case "from_formats":
		q.from = values
	case "page_range":
		if len(values) != 2 {
			return unprocessable("page_range: Input should be two numbers, such as [1, 10]")
		}
		from, err := strconv.ParseInt(values[0], 10, 64)
		to, err2 := strconv.ParseInt(values[1], 10, 64)
		if err != nil || err2 != nil || from < 1 || to < from {
			return unprocessable("page_range: Input should be two numbers from 1, such as [1, 10]")
		}
		if from > 1 || to < maxPage {
			q.settings["pages"] = [][2]int64{{min(from, maxPage), min(to, maxPage)}}
		}
	case "document_timeout":
		seconds, err := strconv.ParseFloat(values[0], 64)
		if err != nil || seconds <= 0 {
			return unprocessable("document_timeout: Input should be a number of seconds above 0")
		}
		q.wait = min(q.wait, time.Duration(min(seconds, q.wait.Seconds())*float64(time.Second)))
	case "max_tokens":
		n, err := strconv.Atoi(values[0])
		if err != nil || n < minChunkTokens || n > maxChunkTokens {
			return unprocessable("max_tokens: Input should be a number from %d to %d", minChunkTokens, maxChunkTokens)
		}
		q.settings["chunk_token_num"] = n
	case "include_raw_text":
		q.raw = values[0] == "true"
	default:
		if value, ok := defaults[name]; !ok || value != "" && (len(values) != 1 || values[0] != value) {
			q.ignore(name)
		}
	}
	return nil
}

var odd = regexp.MustCompile(`[^a-z0-9_]+`)

func (q *request) ignore(name string) {
	name = odd.ReplaceAllString(strings.ToLower(name), "_")
	if name = name[:min(len(name), 40)]; len(q.ignored) < maxIgnored && name != "" && !slices.Contains(q.ignored, name) {
		q.ignored = append(q.ignored, name)
	}
}

// target sets where the result goes.
func (q *request) target(kind string) error {
	switch kind {
	case "presigned_url":
		if q.batch {
			return nil
		}
		// Clients look for these words and then request inbody.
		return unprocessable("target presigned_url requires artifact storage to be configured, which is not; use inbody or zip")
	case "", "inbody", "zip":
		if !q.batch {
			q.zip = kind == "zip"
			return nil
		}
	}
	if q.batch {
		return unprocessable("target %q: Input should be 'presigned_url'", kind)
	}
	return unprocessable("target %q: Input should be 'inbody' or 'zip'", kind)
}

// formatOf returns a file's format under docling's names, "" if unknown.
func formatOf(name string) string {
	ext := strings.TrimPrefix(strings.ToLower(path.Ext(name)), ".")
	for format, extensions := range map[string]string{
		"html": "htm xhtml", "md": "markdown txt text", "image": "jpg jpeg png tif tiff bmp webp gif", "email": "eml msg", "asciidoc": "adoc asc",
		"audio": "mp3 wav m4a flac ogg", "docx": "dotx docm dotm", "pptx": "potx ppsx pptm", "xlsx": "xlsm", "latex": "tex",
	} {
		if slices.Contains(strings.Fields(extensions), ext) {
			return format
		}
	}
	return ext
}

// checked validates and completes a request.
func (q *request) checked() error {
	switch {
	case len(q.sources) == 0:
		return unprocessable("The request has no file; send sources, or files as multipart/form-data")
	case len(q.sources) > maxSources:
		return unprocessable("The request has %d files, %d are allowed; send the rest in another", len(q.sources), maxSources)
	}
	for _, s := range q.sources {
		if format := formatOf(s.name); q.from != nil && format != "" && !slices.Contains(q.from, format) {
			return unprocessable("%s is of the format %s, which from_formats does not list", s.name, format)
		}
	}
	return nil
}

// body reads a request in any encoding. The caller closes form.
func (q *request) body(r *http.Request, multipartForm bool) (form *multipart.Form, err error) {
	if multipartForm {
		return q.form(r)
	}
	return nil, q.json(r)
}

// broken is the error of an unreadable body.
func broken(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &facade.Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Detail: fmt.Sprintf("The request is larger than %d bytes; send the files as multipart/form-data to the route that ends in /file", large.Limit)}
	}
	if errors.Is(err, multipart.ErrMessageTooLarge) || strings.Contains(err.Error(), "too many parts") {
		return &facade.Error{Status: http.StatusRequestEntityTooLarge, Code: "too_many_parts", Detail: "The form has too many parts or fields that are too long; send fewer files in one request"}
	}
	return unprocessable("The body cannot be read: %s; send it again", facade.Unreadable(err))
}

type jsonSource struct {
	Kind     string            `json:"kind"`
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	File     *string           `json:"base64_string"`
	Filename string            `json:"filename"`
}

func (q *request) json(r *http.Request) error {
	var in struct {
		Options     map[string]any    `json:"options"`
		Convert     map[string]any    `json:"convert_options"`
		Chunking    map[string]any    `json:"chunking_options"`
		IncludeDoc  bool              `json:"include_converted_doc"`
		Sources     []jsonSource      `json:"sources"`
		HTTPSources []jsonSource      `json:"http_sources"` // from older clients
		FileSources []jsonSource      `json:"file_sources"`
		Callbacks   []json.RawMessage `json:"callbacks"`
		Target      *jsonTarget       `json:"target"`
		Targets     []jsonTarget      `json:"targets"`
	}
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxJSONBytes))
	dec.UseNumber()
	if err := dec.Decode(&in); err != nil {
		return broken(err)
	}
	if _, err := dec.Token(); err == nil {
		return unprocessable("The body goes on after its JSON; send one object")
	} else if err != io.EOF { // the bytes received may be complete by chance
		return broken(err)
	}
	if len(in.Callbacks) > 0 {
		return unprocessable("callbacks: there are none here; poll the task, or follow it over WebSocket")
	}
	for _, options := range []map[string]any{in.Options, in.Convert, in.Chunking} {
		for _, name := range slices.Sorted(maps.Keys(options)) {
			if err := q.option(name, plain(options[name])); err != nil {
				return err
			}
		}
	}
	q.includeDoc = in.IncludeDoc
	if in.Target != nil {
		in.Targets = append(in.Targets, *in.Target)
	}
	for _, t := range in.Targets {
		if err := q.target(t.Kind); err != nil {
			return err
		}
	}
	for _, s := range slices.Concat(in.Sources, in.HTTPSources, in.FileSources) {
		one, err := s.source()
		if err != nil {
			return err
		}
		q.sources = append(q.sources, one)
	}
	return q.checked()
}

type jsonTarget struct {
	Kind string `json:"kind"`
}

func (s *jsonSource) source() (source, error) {
	switch {
	case s.File != nil && (s.Kind == "" || s.Kind == "file"):
		file, err := base64.StdEncoding.DecodeString(*s.File)
		if err != nil {
			return source{}, unprocessable("base64_string of %q is no base64: %v", s.Filename, err)
		}
		if s.Filename == "" {
			return source{}, unprocessable("a file has no filename")
		}
		return source{name: s.Filename, open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil }}, nil
	case s.URL != "" && (s.Kind == "" || s.Kind == "http"):
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" {
			return source{}, unprocessable("url %q is none; give one such as https://example.org/report.pdf", s.URL)
		}
		if len(s.Headers) > 0 {
			return source{}, unprocessable("headers of a source are not supported; fetch the file, and send it with the kind file")
		}
		name := path.Base(u.Path)
		if name == "." || name == "/" {
			name = u.Host
		}
		return source{name: name, url: s.URL}, nil
	}
	return source{}, unprocessable("a source is {\"kind\": \"http\", \"url\": …} or {\"kind\": \"file\", \"base64_string\": …, \"filename\": …}; the kind %q is not supported", s.Kind)
}

// plain converts a JSON value to the values of a form field.
func plain(v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		var out []string
		for _, one := range v {
			out = append(out, plain(one)...)
		}
		return out
	case map[string]any:
		return []string{"{…}"}
	}
	return []string{fmt.Sprint(v)}
}

// form reads multipart/form-data. Options may precede or follow the files.
func (q *request) form(r *http.Request) (*multipart.Form, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "multipart/form-data" {
		return nil, unprocessable("The body is %q; send the files as multipart/form-data", media)
	}
	if err := r.ParseMultipartForm(memoryBytes); err != nil {
		return nil, broken(err)
	}
	form := r.MultipartForm
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		values := form.Value[name]
		if len(values) == 1 && (strings.HasPrefix(values[0], "[") || values[0] == "") {
			var list any
			dec := json.NewDecoder(strings.NewReader(values[0]))
			dec.UseNumber()
			if values[0] == "" || dec.Decode(&list) == nil {
				values = plain(list)
			}
		}
		for _, v := range values {
			if len(v) > maxFieldBytes {
				return form, unprocessable("%s is longer than %d bytes", name, maxFieldBytes)
			}
		}
		var err error
		switch {
		case name == "target_type" && len(values) > 0:
			err = q.target(values[0])
		case name == "include_converted_doc" && len(values) > 0:
			q.includeDoc = values[0] == "true" || values[0] == "True" || values[0] == "1"
		default:
			name = strings.TrimPrefix(strings.TrimPrefix(name, "convert_"), "chunking_")
			err = q.option(name, values)
		}
		if err != nil {
			return form, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		if name != "files" && name != "file" {
			return form, unprocessable("the field %q has a file; the field of files is called files", name)
		}
		for _, f := range form.File[name] {
			media, _, _ := mime.ParseMediaType(f.Header.Get("Content-Type"))
			if media == "application/octet-stream" {
				media = "" // the client's default says nothing about the file
			}
			q.sources = append(q.sources, source{name: f.Filename, media: media, open: func() (io.ReadCloser, error) { return f.Open() }})
		}
	}
	return form, q.checked()
}
