package ragflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
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

// chunk is one of our chunks with its edit.
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

// maxChunks bounds the chunks of a document read per response.
const maxChunks = 200_000

// chunks returns those of a document in reading order, without those that repeat
// others; none if the document is to be parsed again.
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

// chunkDocument finds the document of a chunk route.
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

// tags returns the tags of a chunk: the users', or those of its tag sets.
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

// positions returns the boxes as [page, left, right, top, bottom], in points.
func positions(k *sheaf.Chunk) [][]float64 {
	out := [][]float64{}
	for _, b := range k.Boxes {
		out = append(out, []float64{float64(b.Page), b.X0, b.X1, b.Y0, b.Y1})
	}
	return out
}

// samePositions rejects positions other than the chunk's.
func samePositions(v any, k *sheaf.Chunk) error {
	sent, ok := v.([]any)
	if !ok {
		return bad("`positions` should be a list")
	}
	have := positions(k)
	same := len(sent) == len(have)
	for i := 0; same && i < len(have); i++ {
		box, _ := sent[i].([]any)
		same = len(box) == len(have[i])
		for j := 0; same && j < len(box); j++ {
			n, ok := box[j].(json.Number)
			f, err := n.Float64()
			same = ok && err == nil && math.Abs(f-have[i][j]) < 0.01
		}
	}
	if !same {
		return bad("`positions` cannot be changed: they say where the chunk stands in the file. Leave them out")
	}
	return nil
}

func (c *call) shownChunk(d *document, k *chunk) object {
	return object{
		"id": k.ID, "content": k.Text, "document_id": d.ID, "dataset_id": d.DatasetID, "docnm_kwd": d.Name, "important_keywords": texts(k.Keywords), "questions": texts(k.Questions),
		"tag_kwd": d.tags(&k.Chunk), "image_id": d.imageID(&k.Chunk), "doc_type_kwd": docType(&k.Chunk), "available": k.available(), "positions": positions(&k.Chunk),
	}
}

// fullText tests whether a text contains one of the words, and marks them.
type fullText []string

// words returns the words of a question, lower-case, without duplicates.
func words(s string) (out fullText) {
	seen := map[string]bool{}
	eachWord(s, func(word string) {
		if !seen[word] {
			seen[word] = true
			out = append(out, word)
		}
	})
	return out
}

// eachWord calls each for the words of a text, lower-case. In Chinese, Japanese and
// Korean each character is a word.
func eachWord(s string, each func(word string)) {
	from := -1
	runes := []rune(strings.ToLower(s))
	flush := func(to int) {
		if from >= 0 {
			each(string(runes[from:to]))
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
}

// marked returns the text with the words in <em>, and whether it contains any.
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
	if err := c.counted(d); err != nil {
		return nil, err
	}
	if err := c.pictured(d); err != nil {
		return nil, err
	}
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

// lists reads a field that must be a list of strings. kept is whether it was sent.
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

// errNotText means that a list item is not a string.
var errNotText = refuse(codeException, "TypeError('sequence item 0: expected str instance')")

// labels returns the strings that our chunks accept: no blank or repeated ones.
func labels(list []string) []string {
	out := []string{}
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// tagged reads tag_kwd and tag_feas as our tags, weighted relative to the heaviest.
// was are the chunk's current tags; sent is whether there are any to change.
func tagged(in object, noList string, was []sheaf.Tag) (tags []sheaf.Tag, sent bool, err error) {
	names, named, err := lists(in, "tag_kwd", noList)
	if err == errNotText {
		err = bad("`tag_kwd` must be a list of strings")
	}
	if err != nil {
		return nil, false, err
	}
	weights, heaviest := map[string]float64{}, 1.0
	features, ok := in["tag_feas"].(object)
	if v := in["tag_feas"]; v != nil && !ok {
		return nil, false, errFeatures
	}
	for name, v := range features {
		n, ok := v.(json.Number)
		w, err := n.Float64()
		if !ok || err != nil || !(w > 0) || math.IsInf(w, 0) {
			return nil, false, errFeatures
		}
		weights[name], heaviest = w, max(heaviest, w)
	}
	if !named && in["tag_feas"] == nil {
		return nil, false, nil
	}
	if !named {
		for _, t := range was {
			names = append(names, t.Name)
		}
	}
	names = labels(append(names, slices.Sorted(maps.Keys(features))...))
	tags = []sheaf.Tag{}
	for _, name := range names {
		w, ok := weights[name]
		if !ok {
			w = heaviest
			if i := slices.IndexFunc(was, func(t sheaf.Tag) bool { return t.Name == name }); i >= 0 && in["tag_feas"] == nil {
				w = was[i].Weight * heaviest
			}
		}
		tags = append(tags, sheaf.Tag{Name: name, Weight: max(w/heaviest, 1e-6)})
	}
	return tags, true, nil
}

// errFeatures means that tag_feas is invalid.
var errFeatures = bad("`tag_feas` must be an object of strings and numbers above 0")

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
	tags, isTagged, err := tagged(in, "`%s` is required to be a list", nil)
	if err != nil {
		return nil, err
	}
	picture, err := pictureOf(in)
	if err != nil {
		return nil, err
	}
	if !d.parsed() && d.LiveGeneration > 0 {
		return nil, bad("The document was stopped, or its method was changed, and what was parsed of it does not count any more; parse it, then add the chunk")
	}
	defer d.lock()() // content added twice concurrently is one chunk
	change := object{"text": content, "keywords": labels(sent["important_keywords"]), "questions": labels(sent["questions"])}
	id, err := c.sameChunk(d, content)
	if err != nil {
		return nil, err
	}
	if id != "" {
		change["enabled"] = true
		isTagged = true
	}
	if isTagged {
		change["tags"] = append([]sheaf.Tag{}, tags...)
	}
	var made struct {
		Chunk *sheaf.Chunk `json:"chunk"`
	}
	method, path := http.MethodPost, c.chunksPath(d)
	if id != "" {
		method, path = http.MethodPatch, c.chunksPath(d, id)
	}
	err = c.Call(c.ctx, method, path, change, &made)
	if e, ok := errors.AsType[*facade.Error](err); ok && e.Status == http.StatusConflict && d.LiveGeneration == 0 {
		err = bad("The document is being parsed; add the chunk when that has ended")
	}
	if err != nil {
		return nil, err
	}
	if made.Chunk == nil {
		return nil, refuse(codeServer, "the chunk was added, and is not to be read; list the chunks")
	}
	if err := c.change(d, func(r *documentRecord) bool {
		was := r.Edited
		r.Edited = true
		if id == "" {
			return !was
		}
		if live := max(d.LiveGeneration, made.Chunk.Generation); r.RepeatsOf != live {
			r.Repeats, r.RepeatsOf = 0, live
		}
		r.Repeats++
		return true
	}); err != nil {
		return nil, err
	}
	if err := c.givePicture(d, made.Chunk.ID, picture); err != nil {
		return nil, err
	}
	if err := c.pictured(d); err != nil {
		return nil, err
	}
	now := time.Now()
	out := c.shownChunk(d, &chunk{Chunk: *made.Chunk})
	out["important_keywords"], out["questions"] = sent["important_keywords"], labels(sent["questions"])
	if len(sent["tag_kwd"]) > 0 {
		out["tag_kwd"] = sent["tag_kwd"]
	}
	out["create_time"], out["create_timestamp"] = now.UTC().Format(time.DateTime), float64(now.UnixMilli())/1000
	return &answer{data: object{"chunk": out}}, nil
}

// edit is a user's edit of one chunk.
type edit struct {
	ID      string  `json:"id"`
	State   string  `json:"state"`
	Added   bool    `json:"added"`
	Deleted bool    `json:"deleted"`
	ChunkID string  `json:"chunk_id"`
	Text    *string `json:"text"`
}

// edits returns those of a document; /v1 accepts at most maxEdits per document.
func (c *call) edits(d *document) (out []edit, err error) {
	q := url.Values{"limit": {strconv.Itoa(readAtOnce)}}
	for len(out) < 2*maxEdits {
		var list facade.List[edit]
		if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID, "edits")+"?"+q.Encode(), nil, &list); err != nil {
			return nil, err
		}
		out = append(out, list.Items...)
		if list.NextCursor == nil {
			break
		}
		q.Set("cursor", *list.NextCursor)
	}
	return out, nil
}

// maxEdits is how many edits /v1 accepts per document, including undone ones.
const maxEdits = 2000

// sameChunk returns the added chunk with this text, or "".
func (c *call) sameChunk(d *document, text string) (string, error) {
	all, err := c.edits(d)
	for _, e := range all {
		if e.Added && !e.Deleted && e.State == "applied" && e.Text != nil && *e.Text == text {
			return e.ChunkID, nil
		}
	}
	return "", err
}

// counted computes how many chunks users added, minus those they deleted.
func (c *call) counted(d *document) error {
	if d.extra = 0; !d.record.Edited || !d.parsed() {
		return nil
	}
	all, err := c.edits(d)
	if err != nil {
		return err
	}
	for _, e := range all {
		switch {
		case e.State == "unplaced":
		case e.Added && !e.Deleted:
			d.extra++
		case !e.Added && e.Deleted:
			d.extra--
		}
	}
	if d.record.RepeatsOf == d.LiveGeneration {
		d.extra += d.record.Repeats
	}
	return nil
}

// edited records that chunks of the document were added or deleted.
func (c *call) edited(d *document) error {
	if d.record.Edited {
		return nil
	}
	defer d.lock()()
	return c.change(d, func(r *documentRecord) bool {
		was := r.Edited
		r.Edited = true
		return !was
	})
}

// dropTags removes the tags of a chunk stored by an earlier version, since the
// chunk now has others.
func (c *call) dropTags(d *document, id string) error {
	if d.record.Tags[id] == nil {
		return nil
	}
	defer d.lock()()
	return c.change(d, func(r *documentRecord) bool {
		_, there := r.Tags[id]
		delete(r.Tags, id)
		return there
	})
}

func noChunk(id string) error {
	return &facade.Error{Status: http.StatusNotFound, Detail: "there is no chunk " + id}
}

// readOne reads a chunk by id.
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
	if err := c.pictured(d); err != nil {
		return nil, err
	}
	available := 0
	if k.available() {
		available = 1
	}
	return &answer{data: object{
		"id": k.ID, "content_with_weight": k.Text, "doc_id": d.ID, "kb_id": d.DatasetID, "docnm_kwd": d.Name, "important_kwd": texts(k.Keywords), "question_kwd": texts(k.Questions),
		"tag_kwd": d.tags(&k.Chunk), "tag_feas": features(&k.Chunk), "available_int": available, "img_id": d.imageID(&k.Chunk), "position_int": positions(&k.Chunk), "doc_type_kwd": docType(&k.Chunk),
	}}, nil
}

// features returns the tags of a chunk with their weights.
func features(k *sheaf.Chunk) object {
	out := object{}
	for _, t := range k.Tags {
		out[t.Name] = t.Weight
	}
	return out
}

// truth reads a value that Python would convert to an integer and then a boolean.
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
	k, err := c.readOne(d, c.path[2])
	if missing(err) {
		err = bad("Can't find this chunk %s", c.path[2])
	}
	if err != nil {
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
	tags, isTagged, err := tagged(in, "`%s` should be a list", k.Tags)
	if err != nil {
		return nil, err
	}
	if isTagged {
		change["tags"] = tags
	}
	picture, err := pictureOf(in)
	if err != nil {
		return nil, err
	}
	if picture != nil && change["keywords"] == nil { // stored by edit, so there must be one
		change["keywords"] = texts(k.Keywords)
	}
	if v := in["positions"]; v != nil {
		if err := samePositions(v, &k.Chunk); err != nil {
			return nil, err
		}
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
		err := c.Call(c.ctx, http.MethodPatch, c.chunksPath(d, c.path[2]), change, nil)
		if missing(err) { // deleted, or replaced by a version without it
			err = bad("Can't find this chunk %s", c.path[2])
		}
		if err != nil {
			return nil, err
		}
	}
	if isTagged {
		if err := c.dropTags(d, c.path[2]); err != nil {
			return nil, err
		}
	}
	if picture != nil {
		defer d.lock()()
		if err := c.givePicture(d, c.path[2], picture); err != nil {
			return nil, err
		}
	}
	return &answer{noData: true}, nil
}

// chunkIDs reads a field of string ids.
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

// chunksByID returns the chunks of a document by id.
func (c *call) chunksByID(d *document) (map[string]*chunk, error) {
	all, err := c.chunks(d)
	out := make(map[string]*chunk, len(all))
	for _, k := range all {
		out[k.ID] = k
	}
	return out, err
}

// mayEdit rejects a request that needs more edits than /v1 accepts per document.
func (c *call) mayEdit(d *document, there map[string]*chunk, ids []string) error {
	fresh := 0
	for _, id := range ids {
		if there[id].Edit == nil {
			fresh++
		}
	}
	if fresh == 0 {
		return nil
	}
	all, err := c.edits(d)
	if err == nil && len(all)+fresh > maxEdits {
		err = bad("A document has at most %d chunks that were added, changed, switched off or deleted, has %d and would have %d more; nothing was changed. Switch the document off, or parse it again from a corrected file", maxEdits, len(all), fresh)
	}
	return err
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
	there, err := c.chunksByID(d)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(ids, func(id string) bool { return there[id] == nil }) {
		return nil, bad("Index updating failure")
	}
	if err := c.mayEdit(d, there, ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if there[id].available() == on {
			continue
		}
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
	every := len(ids) == 0
	if every {
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
	there, err := c.chunksByID(d)
	if err != nil {
		return nil, err
	}
	asked := len(ids)
	ids = slices.DeleteFunc(ids, func(id string) bool { return there[id] == nil })
	if every { // chunks deleted concurrently are gone, too
		asked = len(ids)
	}
	if err := c.mayEdit(d, there, ids); err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		if err := c.edited(d); err != nil {
			return nil, err
		}
	}
	found := 0
	for _, id := range ids {
		err := c.Call(c.ctx, http.MethodDelete, c.chunksPath(d, id), nil, nil)
		gone := missing(err) // by a concurrent request
		if err != nil && !gone {
			return nil, err
		}
		if !gone || every { // when deleting all, it is gone either way
			found++
		}
	}
	if found < asked {
		return nil, bad("rm_chunk deleted chunks %d, expect %d", found, asked)
	}
	if len(repeated) > 0 {
		problems := []string{}
		for _, id := range repeated {
			problems = append(problems, fmt.Sprintf("Duplicate chunk ids: %s", id))
		}
		return &answer{data: object{"success_count": found, "errors": problems}}, nil
	}
	return &answer{noData: true}, nil
}
