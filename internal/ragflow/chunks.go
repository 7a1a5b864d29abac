package ragflow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"sheaf"
	"sheaf/internal/facade"
)

// chunk is one of ours, with what people made of it.
type chunk struct {
	sheaf.Chunk
	Edit *struct {
		ID      string    `json:"id"`
		Added   bool      `json:"added"`
		Enabled bool      `json:"enabled"`
		Created time.Time `json:"created_at"`
	} `json:"edit"`
}

func (k *chunk) available() bool { return k.Edit == nil || k.Edit.Enabled }

// maxChunks of a document are read for one answer.
const maxChunks = 200_000

// chunks are those of a document in reading order, without those that repeat
// text of others; none of one that is to be parsed anew.
func (c *call) chunks(d *document) (out []*chunk, err error) {
	if !d.parsed() {
		return nil, nil
	}
	q := url.Values{"limit": {strconv.Itoa(readAtOnce)}}
	for len(out) < maxChunks {
		var list facade.List[*chunk]
		if err := c.Call(c.ctx, http.MethodGet, c.chunksPath(d)+"?"+q.Encode(), nil, &list); err != nil {
			return nil, err
		}
		for _, k := range list.Items {
			if k.Role == "" {
				out = append(out, k)
			}
		}
		if list.NextCursor == nil {
			break
		}
		q.Set("cursor", *list.NextCursor)
	}
	return out, nil
}

func (c *call) chunksPath(d *document, more ...string) string {
	return facade.Path(append([]string{"v1", "datasets", d.DatasetID, "documents", d.ID, "chunks"}, more...)...)
}

// chunkDocument finds the document of a route about chunks.
func (c *call) chunkDocument() (*document, error) {
	ds, err := c.owned(c.path[0])
	if err != nil {
		return nil, err
	}
	d, err := c.document(ds, c.path[1])
	if missing(err) {
		err = bad("you don't own the document %s", c.path[1])
	}
	return d, err
}

func texts(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// tags of a chunk: those that were given here, or those of its tag sets.
func (d *document) tags(k *sheaf.Chunk) []string {
	out := []string{}
	if list, ok := d.record.Tags[k.ID].([]any); ok {
		return append(out, values(list)...)
	}
	for _, t := range k.Tags {
		out = append(out, t.Name)
	}
	return out
}

func docType(k *sheaf.Chunk) string {
	switch k.Kind {
	case sheaf.ChunkTable:
		return "table"
	case sheaf.ChunkImage:
		return "image"
	}
	return "text"
}

// positions are the boxes as [page, left, right, top, bottom], in points.
func positions(k *sheaf.Chunk) [][]float64 {
	out := [][]float64{}
	for _, b := range k.Boxes {
		out = append(out, []float64{float64(b.Page), b.X0, b.X1, b.Y0, b.Y1})
	}
	return out
}

func (c *call) shownChunk(d *document, k *chunk) object {
	return object{
		"id": k.ID, "content": k.Text, "document_id": d.ID, "dataset_id": d.DatasetID, "docnm_kwd": d.Name, "important_keywords": texts(k.Keywords), "questions": texts(k.Questions),
		"tag_kwd": d.tags(&k.Chunk), "image_id": "", "doc_type_kwd": docType(&k.Chunk), "available": k.available(), "positions": positions(&k.Chunk),
	}
}

// fullText tests whether a text has one of the words, and marks them up.
type fullText []string

// words of a question, lower-case. Chinese, Japanese and Korean are words by
// character.
func words(s string) fullText {
	var out fullText
	from := -1
	runes := []rune(strings.ToLower(s))
	flush := func(to int) {
		if from >= 0 && !slices.Contains(out, string(runes[from:to])) {
			out = append(out, string(runes[from:to]))
		}
		from = -1
	}
	for i, r := range runes {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			flush(i)
			from = i
			flush(i + 1)
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush(i)
		case from < 0:
			from = i
		}
	}
	flush(len(runes))
	return out
}

// marked is the text with the words in <em>, and whether it has any.
func (f fullText) marked(text string) (string, bool) {
	var b strings.Builder
	found, from := false, 0
	runes := []rune(text)
	for i := 0; i <= len(runes); i++ {
		cjk := i < len(runes) && unicode.In(runes[i], unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
		if i < len(runes) && !cjk && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i])) {
			continue
		}
		write := func(to int) {
			word := string(runes[from:to])
			if word != "" && slices.Contains(f, strings.ToLower(word)) {
				found = true
				word = "<em>" + word + "</em>"
			}
			b.WriteString(word)
			from = to
		}
		write(i)
		if i < len(runes) {
			write(i + 1)
		}
	}
	return b.String(), found
}

func listChunks(c *call) (*answer, error) {
	d, err := c.chunkDocument()
	if err != nil {
		return nil, err
	}
	all, err := c.chunks(d)
	if err != nil {
		return nil, err
	}
	q := c.r.URL.Query()
	ids := listed(q["chunk_ids"])
	if len(ids) > maxIDs {
		return nil, bad("chunk_ids are %d; give at most %d", len(ids), maxIDs)
	}
	if id := q.Get("id"); id != "" {
		if ids = []string{id}; !slices.ContainsFunc(all, func(k *chunk) bool { return k.ID == id }) {
			return nil, bad("Chunk not found: %s/%s", c.path[0], id)
		}
	}
	find := words(q.Get("keywords"))
	available := strings.ToLower(q.Get("available"))
	out := []object{}
	for _, k := range all {
		switch {
		case len(ids) > 0 && !slices.Contains(ids, k.ID):
			continue
		case (available == "true" || available == "1") && !k.available(), (available == "false" || available == "0") && k.available():
			continue
		}
		one := c.shownChunk(d, k)
		if len(find) > 0 {
			text, ok := find.marked(k.Text)
			if !ok {
				continue
			}
			one["content"] = text
		}
		out = append(out, one)
	}
	from, to := c.page()
	return &answer{data: object{"chunks": cut(out, from, to), "doc": c.shownDocument(d), "total": len(out)}}, nil
}

// lists reads a field that must be a list of texts. kept is whether it was sent.
func lists(in object, key, noList string) (out []string, kept bool, err error) {
	v, ok := in[key]
	if !ok || v == nil {
		return nil, false, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, false, bad(noList, key)
	}
	out = []string{}
	for _, one := range list {
		s, ok := one.(string)
		if !ok {
			return nil, false, errNotText
		}
		out = append(out, s)
	}
	return out, true, nil
}

// errNotText is that a member of a list is no text.
var errNotText = refuse(codeException, "TypeError('sequence item 0: expected str instance')")

// labels are the texts that a chunk of ours takes: without blank and repeated ones.
func labels(list []string) []string {
	out := []string{}
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func addChunk(c *call) (*answer, error) {
	d, err := c.chunkDocument()
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	content, ok := in["content"].(string)
	if v := in["content"]; v != nil && !ok {
		content = pyText(v)
	}
	if strings.TrimSpace(content) == "" {
		return nil, bad("`content` is required")
	}
	sent := map[string][]string{}
	for _, key := range []string{"important_keywords", "questions", "tag_kwd"} {
		list, _, err := lists(in, key, "`%s` is required to be a list")
		if err == errNotText {
			err = bad("`%s` must be a list of strings", key)
		}
		if err != nil {
			return nil, err
		}
		sent[key] = texts(list)
	}
	if !d.parsed() {
		return nil, bad("The document is not parsed, so that there is nothing to add a chunk to; parse it first")
	}
	change := object{"text": content, "keywords": labels(sent["important_keywords"]), "questions": labels(sent["questions"])}
	id, err := c.sameChunk(d, content)
	if err != nil {
		return nil, err
	}
	var made struct {
		Chunk *sheaf.Chunk `json:"chunk"`
	}
	method, path := http.MethodPost, c.chunksPath(d)
	if id != "" {
		method, path = http.MethodPatch, c.chunksPath(d, id)
	}
	if err := c.Call(c.ctx, method, path, change, &made); err != nil {
		return nil, err
	}
	if made.Chunk == nil {
		return nil, refuse(codeServer, "the chunk was added, and is not to be read; list the chunks")
	}
	if err := c.keepTags(d, made.Chunk.ID, sent["tag_kwd"]); err != nil {
		return nil, err
	}
	now := time.Now()
	out := c.shownChunk(d, &chunk{Chunk: *made.Chunk})
	out["important_keywords"], out["questions"] = sent["important_keywords"], labels(sent["questions"])
	out["create_time"], out["create_timestamp"] = now.UTC().Format(time.DateTime), float64(now.UnixMilli())/1000
	return &answer{data: object{"chunk": out}}, nil
}

// sameChunk is the chunk that was added with this text, "" for none.
func (c *call) sameChunk(d *document, text string) (string, error) {
	q := url.Values{"limit": {strconv.Itoa(readAtOnce)}, "state": {"applied"}}
	for {
		var list facade.List[struct {
			Added   bool    `json:"added"`
			Deleted bool    `json:"deleted"`
			ChunkID string  `json:"chunk_id"`
			Text    *string `json:"text"`
		}]
		if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID, "edits")+"?"+q.Encode(), nil, &list); err != nil {
			return "", err
		}
		for _, e := range list.Items {
			if e.Added && !e.Deleted && e.Text != nil && *e.Text == text {
				return e.ChunkID, nil
			}
		}
		if list.NextCursor == nil {
			return "", nil
		}
		q.Set("cursor", *list.NextCursor)
	}
}

// keepTags writes the tags that were given to a chunk.
func (c *call) keepTags(d *document, id string, tags []string) error {
	if len(tags) == 0 && d.record.Tags[id] == nil {
		return nil
	}
	list := []any{}
	for _, t := range tags {
		list = append(list, t)
	}
	d.record.Tags = laid(d.record.Tags, object{id: list})
	return c.keep(d, "")
}

func noChunk(id string) error {
	return &facade.Error{Status: http.StatusNotFound, Detail: "there is no chunk " + id}
}

// readOne reads a chunk by its id.
func (c *call) readOne(d *document, id string) (*chunk, error) {
	if !d.parsed() {
		return nil, noChunk(id)
	}
	var out struct {
		Chunk *sheaf.Chunk    `json:"chunk"`
		Edit  json.RawMessage `json:"edit"`
	}
	if err := c.Call(c.ctx, http.MethodGet, c.chunksPath(d, id), nil, &out); err != nil {
		return nil, err
	}
	if out.Chunk == nil {
		return nil, noChunk(id)
	}
	k := &chunk{Chunk: *out.Chunk}
	if len(out.Edit) > 0 {
		if err := json.Unmarshal(out.Edit, &k.Edit); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func readChunk(c *call) (*answer, error) {
	d, err := c.chunkDocument()
	if err != nil {
		return nil, err
	}
	k, err := c.readOne(d, c.path[2])
	if missing(err) {
		return nil, &refusal{code: codeData, message: "Chunk not found!", data: false}
	}
	if err != nil {
		return nil, err
	}
	available := 0
	if k.available() {
		available = 1
	}
	return &answer{data: object{
		"id": k.ID, "content_with_weight": k.Text, "doc_id": d.ID, "kb_id": d.DatasetID, "docnm_kwd": d.Name, "important_kwd": texts(k.Keywords), "question_kwd": texts(k.Questions),
		"tag_kwd": d.tags(&k.Chunk), "available_int": available, "img_id": "", "position_int": positions(&k.Chunk), "doc_type_kwd": docType(&k.Chunk),
	}}, nil
}

// truth reads what is converted to an integer and then to a boolean.
func truth(v any) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case json.Number:
		f, err := v.Float64()
		return f != 0, err
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil {
			return false, refuse(codeException, "ValueError(\"invalid literal for int() with base 10: %s\")", pyRepr(v))
		}
		return n != 0, nil
	}
	return false, refuse(codeException, "TypeError(\"int() argument must be a string, a bytes-like object or a real number, not '%s'\")", pyType(v))
}

func updateChunk(c *call) (*answer, error) {
	d, err := c.chunkDocument()
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	if _, err := c.readOne(d, c.path[2]); missing(err) {
		return nil, bad("Can't find this chunk %s", c.path[2])
	} else if err != nil {
		return nil, err
	}
	change := object{}
	if v := in["content"]; v != nil {
		text := pyText(v)
		if strings.TrimSpace(text) == "" {
			return nil, bad("`content` is required")
		}
		change["text"] = text
	}
	for key, ours := range map[string]string{"important_keywords": "keywords", "questions": "questions"} {
		list, sent, err := lists(in, key, "`%s` should be a list")
		if err != nil {
			return nil, err
		}
		if sent {
			change[ours] = labels(list)
		}
	}
	tags, tagged, err := lists(in, "tag_kwd", "`%s` should be a list")
	if err == errNotText {
		err = bad("`tag_kwd` must be a list of strings")
	}
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"available", "available_int"} {
		if v, ok := in[key]; ok {
			on, err := truth(v)
			if err != nil {
				return nil, err
			}
			change["enabled"] = on
		}
	}
	if len(change) > 0 {
		if err := c.Call(c.ctx, http.MethodPatch, c.chunksPath(d, c.path[2]), change, nil); err != nil {
			return nil, err
		}
	}
	if tagged {
		if err := c.keepTags(d, c.path[2], tags); err != nil {
			return nil, err
		}
	}
	return &answer{noData: true}, nil
}

// chunkIDs reads a field of ids that are texts.
func chunkIDs(in object) ([]string, error) {
	v := in["chunk_ids"]
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, bad("`chunk_ids` should be a list")
	}
	var ids []string
	for _, one := range list {
		ids = append(ids, pyText(one))
	}
	return ids, nil
}

func switchChunks(c *call) (*answer, error) {
	d, err := c.chunkDocument()
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	ids, err := chunkIDs(in)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, bad("`chunk_ids` is required.")
	}
	v, ok := in["available_int"]
	if !ok {
		v, ok = in["available"]
	}
	if !ok {
		return nil, bad("`available_int` or `available` is required.")
	}
	on, err := truth(v)
	if err != nil {
		return nil, err
	}
	ids, _ = unique(ids)
	for _, id := range ids {
		err := c.Call(c.ctx, http.MethodPatch, c.chunksPath(d, id), object{"enabled": on}, nil)
		if missing(err) {
			err = bad("Index updating failure")
		}
		if err != nil {
			return nil, err
		}
	}
	return &answer{data: true}, nil
}

func deleteChunks(c *call) (*answer, error) {
	d, err := c.chunkDocument()
	if err != nil {
		return nil, err
	}
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	ids, err := chunkIDs(in)
	if err != nil {
		return nil, err
	}
	ids, repeated := unique(ids)
	if len(ids) == 0 {
		if in["delete_all"] != true {
			return &answer{noData: true}, nil
		}
		all, err := c.chunks(d)
		if err != nil {
			return nil, err
		}
		for _, k := range all {
			ids = append(ids, k.ID)
		}
	}
	found := 0
	for _, id := range ids {
		// A chunk that was deleted is there for /v1, as an edit.
		if _, err := c.readOne(d, id); err == nil {
			err = c.Call(c.ctx, http.MethodDelete, c.chunksPath(d, id), nil, nil)
			if err == nil {
				found++
				continue
			}
			if !missing(err) {
				return nil, err
			}
		} else if !missing(err) {
			return nil, err
		}
	}
	if found < len(ids) {
		return nil, bad("rm_chunk deleted chunks %d, expect %d", found, len(ids))
	}
	if len(repeated) > 0 {
		errors := []string{}
		for _, id := range repeated {
			errors = append(errors, fmt.Sprintf("Duplicate chunk ids: %s", id))
		}
		return &answer{data: object{"success_count": found, "errors": errors}}, nil
	}
	return &answer{noData: true}, nil
}
