package ragflow

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/facade"
)

// documentRecord is what is stored for a document.
type documentRecord struct {
	Method   string `json:"chunk_method,omitempty"` // if it is not the dataset's
	Config   object `json:"parser_config,omitempty"`
	Meta     object `json:"meta_fields,omitempty"`
	Disabled bool   `json:"disabled,omitempty"`
	// Reset is the newest generation whose chunks no longer count: the method was
	// changed, or parsing was stopped.
	Reset   int    `json:"reset,omitempty"`
	Stopped bool   `json:"stopped,omitempty"` // by Reset
	Tags    object `json:"tags,omitempty"`    // tag_kwd of chunks stored here by an earlier version, by id
	Edited  bool   `json:"edited,omitempty"`  // chunks were added or deleted here
	// Repeats is how often existing content was added again while generation
	// RepeatsOf is live: each counts in chunk_count.
	Repeats   int    `json:"repeats,omitempty"`
	RepeatsOf int    `json:"repeats_of,omitempty"`
	Folder    string `json:"folder,omitempty"`   // parent_path of the upload
	Virtual   bool   `json:"virtual,omitempty"`  // created without a file
	Pictures  bool   `json:"pictures,omitempty"` // some chunks were given pictures: see picturesDataset
	Empty     bool   `json:"empty,omitempty"`    // the file was empty: stored as a newline, since /v1 accepts no empty file
}

// document is one of our documents with its record.
type document struct {
	sheaf.Document
	record  documentRecord
	dataset *dataset
	extra   int // chunks added by users, minus those deleted: see counted
	// pictures are the files of pictures given to chunks, by chunk: see pictured.
	pictures map[string]string
}

func (d *document) read() {
	if raw, ok := d.Attributes[attribute]; ok {
		_ = json.Unmarshal(raw, &d.record) // ignore what others wrote there
	}
	if d.Attributes = nil; d.record.Empty {
		d.Size = 0
	}
}

// runs are the values of run, indexed by their digits.
var runs = []string{"UNSTART", "RUNNING", "CANCEL", "DONE", "FAIL"}

// run returns the progress of a document. One scheduled for later counts as not
// started.
func (d *document) run() string {
	switch {
	case d.reset() && d.record.Stopped:
		return "CANCEL"
	case d.reset(), d.blank(), d.State == sheaf.DocUnstarted, d.State == sheaf.DocQueued && d.NotBefore.After(time.Now()):
		return "UNSTART"
	}
	switch d.State {
	case sheaf.DocSucceeded, sheaf.DocPartiallySucceeded:
		return "DONE"
	case sheaf.DocFailed:
		return "FAIL"
	case sheaf.DocCanceled, sheaf.DocCanceling:
		return "CANCEL"
	}
	return "RUNNING"
}

// reset reports whether the chunks of the document no longer count.
func (d *document) reset() bool { return d.record.Reset > 0 && d.Generation <= d.record.Reset }

// blank reports whether nothing of the document was parsed, and its version only
// holds what users added.
func (d *document) blank() bool {
	return d.State == sheaf.DocSucceeded && d.Units == 0 && d.Chunks == 0 && d.LiveGeneration == d.Generation
}

// hidden reports whether search results from the document do not count.
func (d *document) hidden() bool { return d.record.Disabled || !d.parsed() }

// parsed reports whether the document has chunks that count.
func (d *document) parsed() bool { return d.LiveGeneration > d.record.Reset }

// extensions maps accepted file extensions to the type shown.
var extensions = map[string]string{}

func init() {
	for kind, list := range map[string]string{
		"pdf":    "pdf",
		"doc":    "msg eml doc docx ppt pptx yml xml htm html json jsonl ldjson csv txt ini xls xlsx wps rtf hlp pages numbers key md mdx sql epub py js java c cpp h php go ts sh cs kt",
		"visual": "jpg jpeg png tif tiff gif pcx tga exif fpx svg psd cdr pcd dxf ufo eps ai raw wmf webp avif apng icon ico mpg mpeg avi rm rmvb mov wmv asf dat asx wvx mpe mpa mp4 mkv webm bmp heic",
		"aural":  "wav flac ape alac mp3 aac ogg wma m4a opus aiff amr midi realaudio vqf oggvorbis",
	} {
		for _, ext := range strings.Fields(list) {
			extensions[ext] = kind
		}
	}
}

func extension(name string) string {
	return strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))
}

// method returns the document's chunk method.
func (d *document) method() string {
	if d.record.Method != "" {
		return d.record.Method
	}
	ext := extension(d.Name)
	switch {
	case extensions[ext] == "visual":
		return "picture"
	case extensions[ext] == "aural":
		return "audio"
	case ext == "ppt" || ext == "pptx" || ext == "pages":
		return "presentation"
	case ext == "eml":
		return "email"
	case d.dataset != nil:
		return d.dataset.record.Method
	}
	return "naive"
}

// config merges the document's configuration over the dataset's.
func (d *document) config() object {
	under := object{}
	if d.dataset != nil {
		under = d.dataset.record.Config
	}
	return laid(under, d.record.Config)
}

// kind returns the type shown for the document.
func (d *document) kind() string {
	if d.record.Virtual {
		return "virtual"
	}
	return cmp.Or(extensions[extension(d.Name)], "doc")
}

func (c *call) shownDocument(d *document) object {
	progress, message, begin := d.Progress, "", any(nil)
	duration, chunks, tokens := 0.0, d.Chunks, d.Tokens
	if !d.StartedAt.IsZero() {
		begin = date(d.StartedAt)
		end := d.FinishedAt
		if end.IsZero() {
			end = time.Now()
		}
		duration = max(end.Sub(d.StartedAt).Seconds(), 0.001)
	}
	switch run := d.run(); run {
	case "DONE":
		progress, message = 1, fmt.Sprintf("%d chunks.\nTask done (%.2fs)", chunks, duration)
		if begin == nil { // nothing was left to do
			begin, duration = date(cmp.Or(d.FinishedAt, d.UpdatedAt)), 0.001
		}
		chunks += d.extra
	case "FAIL":
		chunks += d.extra
		progress, message = -1, "[ERROR]Parsing failed"
		if d.Failure != nil {
			message = "[ERROR]" + d.Failure.Message
		}
	case "CANCEL":
		progress, message, chunks, tokens = 0, "Task stopped by user.", 0, 0
	case "UNSTART":
		progress, chunks, tokens, begin, duration = 0, d.extra, 0, nil, 0
	default:
		chunks += d.extra
	}
	chunks = max(chunks, 0)
	status := "1"
	if d.record.Disabled {
		status = "0"
	}
	meta := d.record.Meta
	if meta == nil {
		meta = object{}
	}
	return object{
		"id": d.ID, "dataset_id": d.DatasetID, "name": d.Name, "type": d.kind(), "suffix": extension(d.Name), "size": d.Size, "location": path.Join(d.record.Folder, d.Name), "thumbnail": "", "source_type": "local",
		"created_by": c.tenant, "status": status, "run": d.run(), "progress": progress, "progress_msg": message, "process_begin_at": begin, "process_duration": duration,
		"chunk_method": d.method(), "parser_config": d.config(), "pipeline_id": nil, "chunk_count": chunks, "token_count": tokens, "meta_fields": meta,
		"create_time": d.CreatedAt.UnixMilli(), "create_date": date(d.CreatedAt), "update_time": d.UpdatedAt.UnixMilli(), "update_date": date(d.UpdatedAt),
	}
}

// maxDocuments bounds the documents of a dataset read per response.
const maxDocuments = 1_000_000

// documents returns those of a dataset that match a /v1 filter, newest first.
func (c *call) documents(datasetID string, filter url.Values) (out []*document, err error) {
	q := url.Values{"limit": {strconv.Itoa(readAtOnce)}}
	for key, v := range filter {
		q[key] = v
	}
	for len(out) < maxDocuments {
		var list facade.List[sheaf.Document]
		if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", datasetID, "documents")+"?"+q.Encode(), nil, &list); err != nil {
			return nil, err
		}
		for _, one := range list.Items {
			d := &document{Document: one}
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

// idsAtOnce bounds the ids per request to /v1, since they are in its URL.
const idsAtOnce = 500

// byID reads documents of a dataset by id; those that do not exist are omitted.
func (c *call) byID(ds *dataset, ids []string) (map[string]*document, error) {
	out := make(map[string]*document, len(ids))
	for some := range slices.Chunk(ids, idsAtOnce) {
		docs, err := c.documents(ds.ID, url.Values{"id": some})
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			d.dataset = ds
			out[d.ID] = d
		}
	}
	return out, nil
}

// document reads one document of a dataset.
func (c *call) document(ds *dataset, id string) (*document, error) {
	d := &document{dataset: ds}
	hex, ok := idOf(id)
	if !ok {
		return nil, &facade.Error{Status: http.StatusNotFound, Detail: "there is no document " + id}
	}
	if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", ds.ID, "documents", hex), nil, &d.Document); err != nil {
		return nil, err
	}
	d.read()
	return d, nil
}

// keep writes the record of a document, and its name unless that is "".
func (c *call) keep(d *document, name string) error {
	in := object{"attributes": object{attribute: d.record}}
	if name != "" {
		in["name"] = name
	}
	return c.Call(c.ctx, http.MethodPatch, facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID), in, nil)
}

// recordLocks keep concurrent requests to this process from changing a document's
// record, since each writes it as a whole.
var recordLocks [64]sync.Mutex

// lock keeps others in this process from changing a document until unlock.
func (d *document) lock() (unlock func()) {
	n := 0
	for _, b := range []byte(d.ID) {
		n = n*31 + int(b)
	}
	l := &recordLocks[uint(n)%uint(len(recordLocks))]
	l.Lock()
	return l.Unlock
}

// change applies lay to the current record of a document. The caller holds the
// document's lock.
func (c *call) change(d *document, lay func(*documentRecord) (changed bool)) error {
	now := &document{dataset: d.dataset}
	if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID), nil, &now.Document); err != nil {
		return err
	}
	now.read()
	if !lay(&now.record) {
		return nil
	}
	d.record = now.record
	return c.keep(d, "")
}

// maxNameBytes bounds a file name.
const maxNameBytes = 255

func upload(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		return nil, bad("Can't find the dataset with ID %s!", c.path[0])
	}
	if err != nil {
		return nil, err
	}
	switch kind := c.r.URL.Query().Get("type"); kind {
	case "", "local":
	case "web":
		return c.uploadURL(ds)
	case "empty":
		return c.uploadEmpty(ds)
	default:
		return nil, refuse(codeArgument, "type cannot be %s; it is local, web or empty", kind)
	}
	media, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return nil, refuse(codeArgument, "No file part!")
	}
	parts := multipart.NewReader(c.r.Body, params["boundary"])
	var docs []object
	var problems []string
	files, with := 0, &uploading{names: newNames()}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, errBrokenOff
		}
		_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		name, file := disposition["filename"]
		switch {
		case part.FormName() == "parser_config":
			if with.config, err = configOf(part); err != nil {
				return nil, err
			}
			continue
		case part.FormName() == "parent_path" && !file:
			if with.folder, err = folderOf(part); err != nil {
				return nil, err
			}
			continue
		case part.FormName() != "file" || !file && disposition["filename*"] == "":
			continue
		case name == "":
			return nil, refuse(codeArgument, "No file selected!")
		case len(name) > maxNameBytes:
			return nil, refuse(codeArgument, "File name must be %d bytes or less.", maxNameBytes)
		}
		files++
		d, err := c.store(ds, name, part.Header.Get("Content-Type"), part, with)
		if err == errBrokenOff {
			return nil, err
		}
		if r, ok := errors.AsType[*refusal](err); ok {
			problems = append(problems, r.message)
			continue
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, c.shownDocument(d))
	}
	switch {
	case files == 0:
		return nil, refuse(codeArgument, "No file part!")
	case len(problems) > 0:
		r := &refusal{code: codeServer, message: strings.Join(problems, "\n")}
		if docs != nil {
			r.data = docs
		}
		return nil, r
	}
	return &answer{data: docs}, nil
}

// configOf reads an upload's parser_config field.
func configOf(r io.Reader) (object, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil || len(b) > maxConfig {
		return nil, refuse(codeArgument, "parser_config is larger than %d bytes, or broke off", maxConfig)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, nil
	}
	v, err := decode(b)
	if err != nil {
		return nil, refuse(codeArgument, "parser_config must be valid JSON")
	}
	f := &faults{}
	config := f.config(v)
	return config, f.err(codeArgument)
}

// uploading applies to all files of one upload.
type uploading struct {
	config  object
	folder  string
	virtual bool
	names   *names
}

// errBrokenOff means that an upload was incomplete.
var errBrokenOff = refuse(codeArgument, "The upload broke off or is no valid multipart; send the files again that the document list lacks")

// maxFolder bounds the path of an upload, in bytes.
const maxFolder = 1024

// folderOf reads an upload's parent_path field, which is shown as location.
func folderOf(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFolder+1))
	switch text := strings.Trim(string(b), "/ "); {
	case err != nil:
		return "", errBrokenOff
	case len(b) > maxFolder || slices.Contains(strings.Split(text, "/"), ".."):
		return "", refuse(codeArgument, "parent_path is at most %d bytes, without ..", maxFolder)
	default:
		return text, nil
	}
}

// names caches the document names in a dataset, by requested name, so that many
// files with the same name in one request take one lookup.
type names struct {
	by   map[string]*taken
	made map[string]bool // by this request
}

type taken struct {
	names map[string]bool
	next  int // to try
}

func newNames() *names { return &names{map[string]*taken{}, map[string]bool{}} }

// free returns a name not taken in the dataset: stem(1).ext after stem.ext.
func (n *names) free(c *call, ds *dataset, name string) (string, error) {
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	t := n.by[name]
	if t == nil {
		q := url.Values{"fields": {"name"}}
		if part := []rune(stem); len(part) > 0 {
			q.Set("q", string(part[:min(len(part), 200)]))
		}
		docs, err := c.documents(ds.ID, q)
		if err != nil {
			return "", err
		}
		t = &taken{map[string]bool{}, 1}
		for _, d := range docs {
			t.names[d.Name] = true
		}
		n.by[name] = t
	}
	free := name
	for ; t.names[free] || n.made[free]; t.next++ {
		free = fmt.Sprintf("%s(%d)%s", stem, t.next, ext)
	}
	n.made[free] = true
	return free, nil
}

// store uploads one file without parsing it: it does not count toward any queue.
// Any refusal but errBrokenOff is about this file.
func (c *call) store(ds *dataset, name, media string, body io.Reader, with *uploading) (*document, error) {
	unsupported := func() error {
		_, _ = io.Copy(io.Discard, io.LimitReader(body, 1<<40)) // skip to the next part
		return refuse(codeServer, "%s: This type of file has not been supported yet!", name)
	}
	if extensions[extension(name)] == "" {
		return nil, unsupported()
	}
	name, err := with.names.free(c, ds, name)
	if err != nil {
		return nil, err
	}
	// If its content does not reveal a file's type, /v1 rejects it unless the
	// dataset's method accepts it; here that is reported when the file is parsed.
	q := url.Values{"name": {name}, "hold": {"true"}, "parser_config": {`{"chunk_method":"naive"}`}}
	header := http.Header{}
	if kind, _, err := mime.ParseMediaType(media); err == nil && kind != "application/octet-stream" && strings.HasPrefix(kind, "text/") {
		header.Set("Content-Type", kind)
	}
	sent := &facade.Watched{Reader: body}
	read := bufio.NewReader(sent)
	body = read
	_, err = read.Peek(1)
	if sent.Err != nil {
		return nil, errBrokenOff
	}
	if err == io.EOF {
		body = strings.NewReader("\n")
		header.Set("Content-Type", "text/plain")
	}
	record := documentRecord{Config: with.config, Folder: with.folder, Virtual: with.virtual, Empty: err == io.EOF}
	resp, err := c.Do(c.ctx, http.MethodPost, facade.Path("v1", "datasets", ds.ID, "documents")+"?"+q.Encode(), body, header)
	if err != nil && sent.Err != nil {
		return nil, errBrokenOff
	}
	if e, ok := errors.AsType[*facade.Error](err); ok && (e.Status == http.StatusUnsupportedMediaType || e.Code == "unsupported_type" || e.Code == "unsupported_format") {
		return nil, unsupported()
	}
	if e, ok := errors.AsType[*facade.Error](err); ok && e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusForbidden {
		_, _ = io.Copy(io.Discard, io.LimitReader(body, 1<<40))
		return nil, refuse(codeServer, "%s: %s", name, e.Detail)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return c.stored(ds, resp.Body, record)
}

// stored reads the response to a single-file upload, and stores its record.
func (c *call) stored(ds *dataset, answer io.Reader, record documentRecord) (*document, error) {
	var made struct {
		Documents []sheaf.Document `json:"documents"`
	}
	if err := json.NewDecoder(answer).Decode(&made); err != nil || len(made.Documents) != 1 {
		return nil, fmt.Errorf("reading the answer to an upload: %w", err)
	}
	d := &document{Document: made.Documents[0], dataset: ds, record: record}
	if len(record.Config) > 0 || record.Empty || record.Virtual || record.Folder != "" {
		if err := c.keep(d, ""); err != nil {
			return nil, err
		}
	}
	d.read()
	return d, nil
}

// uploadURL has a file fetched.
func (c *call) uploadURL(ds *dataset) (*answer, error) {
	c.r.Body = http.MaxBytesReader(nil, c.r.Body, maxBodyBytes)
	err := c.r.ParseForm()
	if err == nil {
		err = c.r.ParseMultipartForm(maxBodyBytes)
	}
	if err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return nil, refuse(codeArgument, "The form cannot be read, or broke off; send it again")
	}
	name, address := strings.TrimSpace(c.r.FormValue("name")), strings.TrimSpace(c.r.FormValue("url"))
	switch {
	case name == "":
		return nil, refuse(codeArgument, `Lack of "name"`)
	case address == "":
		return nil, refuse(codeArgument, `Lack of "url"`)
	case len(name) > maxNameBytes:
		return nil, refuse(codeArgument, "File name must be %d bytes or less.", maxNameBytes)
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, refuse(codeArgument, "The URL format is invalid")
	}
	if ext := extension(name); ext != "" && extensions[ext] == "" {
		return nil, refuse(codeServer, "%s: This type of file has not been supported yet!", name)
	}
	if name, err = newNames().free(c, ds, name); err != nil {
		return nil, err
	}
	b, err := json.Marshal(object{"url": address, "name": name, "parser_config": object{"chunk_method": "naive"}})
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(c.ctx, http.MethodPost, facade.Path("v1", "datasets", ds.ID, "documents")+"?hold=true", bytes.NewReader(b), http.Header{"Content-Type": {"application/json"}})
	switch e, _ := errors.AsType[*facade.Error](err); {
	case e != nil && (e.Code == "source_unavailable" || e.Code == "url_not_allowed"): // the requested URL is at fault, not this server
		return nil, bad("%s", e.Detail)
	case e != nil && (e.Status == http.StatusUnsupportedMediaType || e.Code == "unsupported_type" || e.Code == "unsupported_format"):
		return nil, refuse(codeServer, "%s: This type of file has not been supported yet!", name)
	case err != nil:
		return nil, err
	}
	defer resp.Body.Close()
	d, err := c.stored(ds, resp.Body, documentRecord{})
	if err != nil {
		return nil, err
	}
	return &answer{data: c.shownDocument(d)}, nil
}

// uploadEmpty creates a document without a file: an empty text.
func (c *call) uploadEmpty(ds *dataset) (*answer, error) {
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	name, _ := in["name"].(string)
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return nil, refuse(codeArgument, "File name can't be empty.")
	case len(name) > maxNameBytes:
		return nil, refuse(codeArgument, "File name must be %d bytes or less.", maxNameBytes)
	}
	if extensions[extension(name)] == "" {
		name += ".txt"
	}
	d, err := c.store(ds, name, "text/plain", strings.NewReader(""), &uploading{names: newNames(), virtual: true})
	if err != nil {
		return nil, err
	}
	return &answer{data: c.shownDocument(d)}, nil
}

// listFilter reads the filters of a document list.
func listFilter(q url.Values) (holds func(*document) bool, err error) {
	var wanted []string
	for _, r := range q["run"] {
		n, digit := strconv.Atoi(r)
		switch {
		case digit == nil && n >= 0 && n < len(runs):
			wanted = append(wanted, runs[n])
		case slices.Contains(runs, r):
			wanted = append(wanted, r)
		default:
			return nil, bad("Invalid filter run status conditions: %s", r)
		}
	}
	types := q["types"]
	for _, kind := range types {
		if !slices.Contains([]string{"pdf", "doc", "visual", "aural", "virtual"}, kind) {
			return nil, bad("Invalid filter conditions: %s type", kind)
		}
	}
	var condition *condition
	for _, key := range []string{"metadata_condition", "metadata"} {
		text := q.Get(key)
		if text == "" {
			continue
		}
		v, err := decode([]byte(text))
		if err != nil {
			return nil, bad("%s must be valid JSON.", key)
		}
		m, ok := v.(object)
		if !ok {
			return nil, bad("%s must be an object.", key)
		}
		if key == "metadata" {
			m = conditionOf(m)
		}
		more, err := readCondition(m)
		if err != nil {
			return nil, err
		}
		condition = condition.and(more)
	}
	suffixes := q["suffix"]
	return func(d *document) bool {
		return (len(wanted) == 0 || slices.Contains(wanted, d.run())) && (len(types) == 0 || slices.Contains(types, d.kind())) &&
			(len(suffixes) == 0 || slices.Contains(suffixes, extension(d.Name))) && condition.holds(d)
	}, nil
}

func listDocuments(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		return nil, bad("You don't own the dataset %s. ", c.path[0])
	}
	if err != nil {
		return nil, err
	}
	q := c.r.URL.Query()
	orderby := cmp.Or(q.Get("orderby"), "create_time")
	if !slices.Contains([]string{"create_time", "update_time", "name"}, orderby) {
		return nil, refuse(codeArgument, "invalid orderby field: %s", orderby)
	}
	holds, err := listFilter(q)
	if err != nil {
		return nil, err
	}
	filter := url.Values{}
	id, name := q.Get("id"), q.Get("name")
	if id != "" {
		if hex, ok := idOf(id); ok {
			filter["id"] = []string{hex}
		} else {
			return nil, bad("you don't own the document %s", id)
		}
	}
	if ids := listed(q["ids"]); len(ids) > 0 && id == "" {
		if len(ids) > readAtOnce {
			return nil, refuse(codeArgument, "ids are %d; give at most %d", len(ids), readAtOnce)
		}
		for _, one := range ids {
			if hex, ok := idOf(one); ok {
				filter.Add("id", hex)
			}
		}
		if len(filter["id"]) == 0 {
			return nil, bad("you don't own the document %s", ids[0])
		}
	}
	if words := q.Get("keywords"); words != "" {
		filter.Set("q", string([]rune(words)[:min(len([]rune(words)), 255)]))
	}
	docs, err := c.documents(ds.ID, filter)
	if err != nil {
		return nil, err
	}
	if id != "" && len(docs) == 0 && q.Get("keywords") == "" {
		return nil, bad("you don't own the document %s", id)
	}
	if name != "" {
		named := slices.DeleteFunc(slices.Clone(docs), func(d *document) bool { return d.Name != name })
		if len(named) == 0 {
			known, err := c.named(ds, name)
			if err != nil {
				return nil, err
			}
			if len(known) == 0 {
				return nil, bad("you don't own the document %s", name)
			}
		}
		docs = named
	}
	for _, d := range docs {
		d.dataset = ds
	}
	docs = slices.DeleteFunc(docs, func(d *document) bool { return !holds(d) })
	switch orderby {
	case "update_time":
		slices.SortStableFunc(docs, func(a, b *document) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	case "name":
		slices.SortStableFunc(docs, func(a, b *document) int { return cmp.Compare(b.Name, a.Name) })
	}
	if strings.EqualFold(q.Get("desc"), "false") {
		slices.Reverse(docs)
	}
	after, before := positive(q.Get("create_time_from"), 0), positive(q.Get("create_time_to"), 0)
	from, to := c.page()
	out := []object{}
	for _, d := range cut(docs, from, to) {
		if at := int(d.CreatedAt.UnixMilli()); at >= after && (before == 0 || at <= before) {
			if err := c.counted(d); err != nil {
				return nil, err
			}
			out = append(out, c.shownDocument(d))
		}
	}
	return &answer{data: object{"docs": out, "total": len(docs)}, more: object{"message": "success"}}, nil
}

// listed returns the values of a repeated parameter, which may be comma-separated.
func listed(values []string) (out []string) {
	for _, v := range values {
		for _, one := range strings.Split(v, ",") {
			if one = strings.TrimSpace(one); one != "" {
				out = append(out, one)
			}
		}
	}
	return out
}

// named returns the documents with exactly that name.
func (c *call) named(ds *dataset, name string) ([]*document, error) {
	r := []rune(name)
	docs, err := c.documents(ds.ID, url.Values{"q": {string(r[:min(len(r), 255)])}})
	return slices.DeleteFunc(docs, func(d *document) bool { return d.Name != name }), err
}

func download(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if err == nil {
		var d *document
		if d, err = c.document(ds, c.path[1]); err == nil {
			return c.content(d)
		}
	}
	if missing(err) {
		err = bad("document not found")
	}
	return nil, err
}

func downloadAny(c *call) (*answer, error) {
	d := &document{}
	hex, ok := idOf(c.path[0])
	if !ok {
		return nil, bad("document not found")
	}
	err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", "-", "documents", hex), nil, &d.Document)
	if missing(err) {
		err = bad("document not found")
	}
	if err != nil {
		return nil, err
	}
	d.read()
	return c.content(d)
}

// content returns the file of a document, buffered in memory.
func (c *call) content(d *document) (*answer, error) {
	if d.Size == 0 {
		return nil, bad("This file is empty.")
	}
	resp, err := c.Do(c.ctx, http.MethodGet, facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID, "content"), nil, nil)
	if missing(err) {
		err = bad("document not found")
	}
	if err != nil {
		return nil, err
	}
	resp.Header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.Name}))
	return &answer{file: resp}, nil
}

func deleteDocuments(c *call) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f := &faults{}
	ids := f.ids("ids", in["ids"])
	every := false
	if v := in["delete_all"]; v != nil {
		every, _ = f.boolean("delete_all", v)
	}
	f.extras("", in, "ids", "delete_all")
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	ds, err := c.owned(c.path[0])
	if err != nil {
		return nil, err
	}
	switch {
	case len(ids) == 0 && !every:
		return nil, bad("should either provide doc ids or set delete_all(true), dataset: %s. ", c.path[0])
	case len(ids) > 0 && every:
		return nil, bad("should not provide both doc ids and delete_all(true), dataset: %s. ", c.path[0])
	}
	if every {
		docs, err := c.documents(ds.ID, nil)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			ids = append(ids, d.ID)
		}
	} else {
		found, err := c.byID(ds, ids)
		if err != nil {
			return nil, err
		}
		if unknown := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return found[id] != nil }); len(unknown) > 0 {
			return nil, bad("These documents do not belong to dataset %s or Document not found: %s", c.path[0], strings.Join(unknown, ", "))
		}
	}
	for some := range slices.Chunk(ids, 10_000) {
		if err := c.Call(c.ctx, http.MethodPost, facade.Path("v1", "datasets", ds.ID, "documents:delete"), object{"filter": object{"document_ids": some}}, nil); err != nil {
			return nil, err
		}
	}
	if err := c.forgetPictures(); err != nil {
		return nil, err
	}
	return &answer{data: object{"deleted": len(ids)}}, nil
}

// selection reads the document_ids to parse or stop: those that exist, in request
// order, those that do not, and duplicates.
func (c *call) selection() (ds *dataset, docs []*document, unknown, repeated []string, err error) {
	if ds, err = c.owned(c.path[0]); err != nil {
		return
	}
	in, err := c.lenient()
	if err != nil {
		return
	}
	list, ok := in["document_ids"].([]any)
	if !ok || len(list) == 0 {
		err = bad("`document_ids` is required")
		return
	}
	var ids []string
	for _, v := range list {
		ids = append(ids, pyText(v))
	}
	ids, repeated = unique(ids)
	var known []string
	for _, id := range ids {
		if hex, ok := idOf(id); ok {
			known = append(known, hex)
		}
	}
	found, err := c.byID(ds, known)
	if err != nil {
		return
	}
	for _, id := range ids {
		hex, _ := idOf(id)
		if d := found[hex]; d != nil {
			docs = append(docs, d)
		} else {
			unknown = append(unknown, id)
		}
	}
	return
}

func duplicates(repeated []string) (out []string) {
	for _, id := range repeated {
		out = append(out, "Duplicate document ids: "+id)
	}
	return out
}

// begin parses documents, each by its method and configuration.
func (c *call) begin(ds *dataset, docs []*document) error {
	groups, order := map[string][]*document{}, []string{}
	for _, d := range docs {
		b, err := json.Marshal(settings(d.method(), d.config()))
		if err != nil {
			return err
		}
		if groups[string(b)] == nil {
			order = append(order, string(b))
		}
		groups[string(b)] = append(groups[string(b)], d)
	}
	for _, with := range order {
		var ids []string
		for _, d := range groups[with] {
			ids = append(ids, d.ID)
		}
		for some := range slices.Chunk(ids, 10_000) {
			in := object{"filter": object{"document_ids": some}, "parser_config": json.RawMessage(with)}
			if err := c.Call(c.ctx, http.MethodPost, facade.Path("v1", "datasets", ds.ID, "documents:reparse"), in, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func parse(c *call) (*answer, error) {
	ds, docs, unknown, repeated, err := c.selection()
	if err != nil {
		return nil, err
	}
	return c.parsed(ds, docs, unknown, repeated)
}

func (c *call) parsed(ds *dataset, docs []*document, unknown, repeated []string) (*answer, error) {
	if err := c.begin(ds, docs); err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, bad("Documents not found: %s", pyRepr(unknown))
	}
	out := object{"success_count": len(docs)}
	if len(repeated) > 0 {
		out["errors"] = duplicates(repeated)
	}
	return &answer{data: out}, nil
}

func parseBySDK(c *call) (*answer, error) {
	ds, docs, unknown, repeated, err := c.selection()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(docs, func(d *document) bool { return d.run() == "RUNNING" }) {
		return nil, bad("Can't parse document that is currently being processed")
	}
	out, err := c.parsed(ds, docs, unknown, repeated)
	return withoutData(out, repeated), err
}

// withoutData is the response of the SDK's routes.
func withoutData(out *answer, repeated []string) *answer {
	if out != nil && len(repeated) == 0 {
		return &answer{noData: true}
	}
	return out
}

// notRunning is the message for a document that cannot be stopped.
const notRunning = "Can't stop parsing document that has not started or already completed"

func stop(c *call) (*answer, error)      { return c.stopped(false) }
func stopBySDK(c *call) (*answer, error) { return c.stopped(true) }

func (c *call) stopped(sdk bool) (*answer, error) {
	ds, docs, unknown, repeated, err := c.selection()
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, bad("Documents not found: %s", pyRepr(unknown))
	}
	var running []*document
	problems := duplicates(repeated)
	for _, d := range docs {
		if d.run() == "RUNNING" {
			running = append(running, d)
			continue
		}
		if sdk {
			return nil, &refusal{code: codeData, message: notRunning, data: object{"error_code": "DOC_STOP_PARSING_INVALID_STATE"}}
		}
		problems = append(problems, notRunning)
	}
	if err := c.cancel(ds, running); err != nil {
		return nil, err
	}
	out := object{"success_count": len(running)}
	if len(problems) > 0 {
		out["errors"] = problems
	}
	if sdk {
		return withoutData(&answer{data: out}, repeated), nil
	}
	return &answer{data: out}, nil
}

// cancel stops documents; chunks of an earlier parse no longer count.
func (c *call) cancel(ds *dataset, docs []*document) error {
	if len(docs) == 0 {
		return nil
	}
	ids := make([]string, len(docs))
	for i, d := range docs {
		ids[i] = d.ID
	}
	for some := range slices.Chunk(ids, 10_000) {
		if err := c.Call(c.ctx, http.MethodPost, facade.Path("v1", "datasets", ds.ID, "documents:cancel"), object{"filter": object{"document_ids": some}}, nil); err != nil {
			return err
		}
	}
	for _, d := range docs {
		d.record.Reset, d.record.Stopped = d.Generation, true
		if err := c.keep(d, ""); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// ingest parses or stops documents of any dataset by id.
func ingest(c *call) (*answer, error) {
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	list, _ := in["doc_ids"].([]any)
	if len(list) == 0 {
		return nil, refuse(codeArgument, "required argument are missing: doc_ids; ")
	}
	run := pyText(in["run"])
	if run != "1" && run != "2" {
		return nil, refuse(codeArgument, "run must be 1 to parse or 2 to stop")
	}
	drop, isBool := in["delete"].(bool)
	if !isBool && in["delete"] != nil {
		return nil, refuse(codeArgument, "delete must be true or false")
	}
	groups, err := c.anywhere(list)
	if err != nil {
		return nil, err
	}
	for _, all := range groups {
		var docs []*document
		for _, d := range all {
			if run == "1" || d.run() == "RUNNING" {
				docs = append(docs, d)
			}
		}
		if run == "1" {
			if drop { // what was parsed no longer counts
				err = c.forget(docs)
			}
			if err == nil {
				err = c.begin(all[0].dataset, docs)
			}
		} else {
			err = c.cancel(all[0].dataset, docs)
		}
		if err != nil {
			return nil, err
		}
	}
	return &answer{data: true}, nil
}

// anywhere finds documents of any dataset by id, grouped by dataset.
func (c *call) anywhere(list []any) (groups [][]*document, err error) {
	var left []string
	for _, v := range list {
		hex, ok := idOf(pyText(v))
		if !ok {
			return nil, bad("Document not found!")
		}
		left = append(left, hex)
	}
	for left, _ = unique(left); len(left) > 0; {
		var first sheaf.Document
		err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", "-", "documents", left[0]), nil, &first)
		if missing(err) {
			err = bad("Document not found!")
		}
		if err != nil {
			return nil, err
		}
		ds, err := c.owned(first.DatasetID)
		if err != nil {
			return nil, err
		}
		found, err := c.byID(ds, left)
		if err != nil {
			return nil, err
		}
		if found[left[0]] == nil { // deleted in the meantime
			return nil, bad("Document not found!")
		}
		var group []*document
		left = slices.DeleteFunc(left, func(id string) bool {
			if found[id] != nil {
				group = append(group, found[id])
			}
			return found[id] != nil
		})
		groups = append(groups, group)
	}
	return groups, nil
}

// forget makes what was parsed of documents no longer count.
func (c *call) forget(docs []*document) error {
	for _, d := range docs {
		if d.LiveGeneration == 0 || d.reset() {
			continue
		}
		d.record.Reset, d.record.Stopped = d.Generation, false
		if err := c.keep(d, ""); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

func changeStatus(c *call) (*answer, error) {
	ds, err := c.owned(c.path[0])
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	list, _ := in["doc_ids"].([]any)
	status := pyText(in["status"])
	switch {
	case len(list) == 0:
		return nil, refuse(codeArgument, `"doc_ids" must be a non-empty list.`)
	case status != "0" && status != "1":
		return nil, refuse(codeArgument, `"status" must be either 0 or 1.`)
	}
	out, failed := object{}, false
	ids, hex := map[string]string{}, []string{}
	for _, v := range list {
		id := pyText(v)
		if ids[id], _ = idOf(id); ids[id] != "" {
			hex = append(hex, ids[id])
		}
	}
	hex, _ = unique(hex)
	found, err := c.byID(ds, hex)
	if err != nil {
		return nil, err
	}
	for id, hex := range ids {
		d := found[hex]
		if d == nil {
			out[id], failed = object{"error": "Document not found!"}, true
			continue
		}
		if d.record.Disabled != (status == "0") {
			d.record.Disabled = status == "0"
			if err := c.keep(d, ""); err != nil {
				return nil, err
			}
		}
		out[id] = object{"status": status}
	}
	if failed {
		return nil, &refusal{code: codeServer, message: "Partial failure", data: out}
	}
	return &answer{data: out}, nil
}

// sameNumber rejects a count other than the stored one.
func sameNumber(in object, key string, stored float64) error {
	v, ok := in[key]
	if !ok || v == nil {
		return nil
	}
	n, isNumber := v.(json.Number)
	got, err := n.Float64()
	if !isNumber || err != nil {
		return bad("%s", fault(key, "Input should be a valid number", v))
	}
	if got != stored {
		return bad("can't change `%s`", key)
	}
	return nil
}

func updateDocument(c *call) (*answer, error) {
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		return nil, bad("you don't own the dataset")
	}
	if err != nil {
		return nil, err
	}
	d, err := c.document(ds, c.path[1])
	if missing(err) {
		return nil, bad("the dataset doesn't own the document")
	}
	if err != nil {
		return nil, err
	}
	rename, resets, err := c.documentFields(d, in)
	if err != nil {
		return nil, err
	}
	if resets {
		if d.run() == "RUNNING" {
			if err := c.cancel(ds, []*document{d}); err != nil {
				return nil, err
			}
		}
		d.record.Reset, d.record.Stopped = d.Generation, false
	}
	if err := c.keep(d, rename); err != nil {
		return nil, err
	}
	if d, err = c.document(ds, d.ID); err == nil {
		err = c.counted(d)
	}
	if err != nil {
		return nil, err
	}
	return &answer{data: c.shownDocument(d)}, nil
}

// documentFields applies the fields that were sent to a document's record. rename
// is its new name, "" for the same; resets is whether it is to be parsed again.
func (c *call) documentFields(d *document, in object) (rename string, resets bool, err error) {
	f := &faults{}
	if v, ok := in["name"]; ok {
		f.str("name", v, 0, 0)
	}
	method, config := "", object(nil)
	if v := in["chunk_method"]; v != nil {
		switch s, text := v.(string); {
		case !text:
			f.add("chunk_method", "Input should be a valid string", v)
		case s == "":
			f.add("chunk_method", "`chunk_method` (empty string) is not valid", v)
		case !slices.Contains(documentMethods, s):
			f.add("chunk_method", fmt.Sprintf("`chunk_method` %s doesn't exist", s), v)
		default:
			method = s
		}
	}
	if v := in["parser_config"]; v != nil {
		config = f.config(v)
	}
	if v, ok := in["meta_fields"]; ok && v != nil {
		metaFields(f, v)
	}
	if v := in["enabled"]; v != nil {
		f.integer("enabled", v, 0, 1)
	}
	if err := f.err(codeData); err != nil {
		return "", false, err
	}
	if err := c.counted(d); err != nil {
		return "", false, err
	}
	shown := c.shownDocument(d)
	for _, key := range []string{"chunk_count", "token_count", "progress"} {
		stored, ok := shown[key].(float64)
		if n, whole := shown[key].(int); whole && !ok {
			stored = float64(n)
		}
		if err := sameNumber(in, key, stored); err != nil {
			return "", false, err
		}
	}
	if name, ok := in["name"].(string); ok && name != d.Name {
		switch {
		case extension(name) != extension(d.Name):
			return "", false, refuse(codeArgument, "The extension of file can't be changed")
		case len(name) > maxNameBytes:
			return "", false, refuse(codeArgument, "File name must be %d bytes or less.", maxNameBytes)
		}
		same, err := c.named(d.dataset, name)
		if err != nil {
			return "", false, err
		}
		if len(same) > 0 {
			return "", false, bad("Duplicated document name in the same dataset.")
		}
		rename = name
	}
	if v, ok := in["meta_fields"].(object); ok {
		d.record.Meta = v
	}
	if method != "" {
		if extensions[extension(d.Name)] == "visual" && method != "picture" || slices.Contains([]string{"ppt", "pptx", "pages"}, extension(d.Name)) && method != "presentation" {
			return "", false, bad("Not supported yet!")
		}
		if method != d.method() {
			resets = true
			if config == nil {
				d.record.Config = wholeDefault(method)
			}
		}
		d.record.Method = method
	}
	if config != nil {
		d.record.Config = laid(d.record.Config, config)
	}
	if n, ok := integer(in["enabled"]); ok {
		d.record.Disabled = n == 0
	}
	return rename, resets, nil
}

// metaFields checks the metadata of a document.
func metaFields(f *faults, v any) {
	m, ok := f.object("meta_fields", v)
	if !ok {
		return
	}
	plain := func(v any) bool {
		switch v.(type) {
		case string, json.Number:
			return true
		}
		return false
	}
	for _, one := range m {
		list, isList := one.([]any)
		switch {
		case isList:
			for _, member := range list {
				if !plain(member) {
					f.add("meta_fields", "The type is not supported in list: "+pyText(one), v)
				}
			}
		case !plain(one):
			f.add("meta_fields", "The type is not supported: "+pyText(one), v)
		}
	}
}
