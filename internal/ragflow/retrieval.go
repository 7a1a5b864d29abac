package ragflow

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/facade"
)

// maxHits bounds the hits per question: the maximum of a /v1 search.
const maxHits = 1000

// hit is a search hit.
type hit struct {
	Highlight string `json:"highlight"`
	Scores    struct {
		Text   float64 `json:"text"`
		Vector float64 `json:"vector"`
	} `json:"scores"`
	Chunk    sheaf.Chunk `json:"chunk"`
	Document struct {
		ID        string `json:"id"`
		Name      string `json:"name"`
		DatasetID string `json:"dataset_id"`
	} `json:"document"`
	term, similarity float64
	of               *document
}

// question is a question with its datasets and documents.
type question struct {
	text      string
	datasets  []*dataset
	documents []string // nil for all
	threshold float64
	weight    float64 // of the vector
	top       int     // how many nearest chunks by vector get a vector score
	highlight bool
}

// ask finds the chunks that contain words of the question. The vector side adds to
// their similarity, but no further chunks.
func (c *call) ask(q question) ([]*hit, error) {
	if strings.TrimSpace(q.text) == "" {
		return nil, nil
	}
	var ids []string
	known := map[string]*dataset{}
	for _, ds := range q.datasets {
		ids = append(ids, ds.ID)
		known[ds.ID] = ds
	}
	search := func(mode string, limit int) (hits []*hit, err error) {
		in := object{"query": q.text, "datasets": ids, "limit": limit, "mode": mode, "highlight": mode == "text"}
		if q.documents != nil {
			in["filter"] = object{"document_ids": q.documents}
		}
		var out struct {
			Hits []*hit `json:"hits"`
		}
		err = c.Call(c.ctx, http.MethodPost, "/v1/search", in, &out)
		return out.Hits, err
	}
	hits, err := search("text", maxHits)
	if err != nil || len(hits) == 0 {
		return nil, err
	}
	if q.weight != 0 {
		near, err := search("vector", min(q.top, maxHits))
		if err != nil {
			if e := facade.AsError(err); e.Status < http.StatusInternalServerError && e.Code != "no_embedder" || c.ctx.Err() != nil {
				return nil, err
			}
			q.weight = 0 // without vectors, only the words count
		}
		vectors := map[string]float64{}
		for _, h := range near {
			vectors[h.Chunk.ID] = h.Scores.Vector
		}
		for _, h := range hits {
			h.Scores.Vector = min(max(vectors[h.Chunk.ID], 0), 1)
		}
	}
	if err := c.documentsOf(hits, known); err != nil {
		return nil, err
	}
	terms := words(q.text)
	for _, h := range hits {
		h.term = terms.share(h.Chunk.Context + " " + h.Chunk.Text + " " + strings.Join(h.Chunk.Keywords, " ") + " " + strings.Join(h.Chunk.Questions, " "))
		h.similarity = (1-q.weight)*h.term + q.weight*h.Scores.Vector
	}
	hits = slices.DeleteFunc(hits, func(h *hit) bool {
		return h.of == nil || h.of.hidden() || h.similarity < q.threshold || !h.has(terms)
	})
	slices.SortStableFunc(hits, func(a, b *hit) int { return cmp.Compare(b.similarity, a.similarity) })
	return hits, nil
}

// has reports whether the chunk itself contains a word of the question. A /v1
// search also finds chunks by their document's name and by headings far above them,
// which no client sees in the hit.
func (h *hit) has(terms fullText) bool {
	return len(terms) == 0 || strings.Contains(h.Highlight, "<mark>") ||
		terms.within(h.Chunk.Text) || terms.touch(h.Chunk.Context) || terms.touch(strings.Join(h.Chunk.Keywords, " ")) || terms.touch(strings.Join(h.Chunk.Questions, " "))
}

// within reports whether a text contains one of the words inside a longer one or
// across signs: 2018 in FY2018, cocacola in Coca-Cola.
func (f fullText) within(text string) bool {
	var bare strings.Builder
	eachWord(text, func(word string) { bare.WriteString(word) })
	return slices.ContainsFunc(f, func(asked string) bool {
		return utf8.RuneCountInString(asked) > 2 && strings.Contains(bare.String(), asked)
	})
}

// touch reports whether a text contains one of the words, or one with the same
// beginning, which may be another form.
func (f fullText) touch(text string) (found bool) {
	eachWord(text, func(word string) {
		found = found || slices.ContainsFunc(f, func(asked string) bool { return stem(asked) == stem(word) })
	})
	return found
}

// stem returns the first four letters of a word.
func stem(word string) string {
	letters := 0
	for i := range word {
		if letters++; letters > 4 {
			return word[:i]
		}
	}
	return word
}

// share is the fraction, 0–1, of the words in a text that was found by them: at
// least one, perhaps in another form.
func (f fullText) share(text string) float64 {
	if len(f) == 0 {
		return 1
	}
	left := make(map[string]bool, len(f))
	for _, w := range f {
		left[w] = true
	}
	eachWord(text, func(word string) { delete(left, word) })
	return float64(max(len(f)-len(left), 1)) / float64(len(f))
}

// documentsOf reads the documents of hits.
func (c *call) documentsOf(hits []*hit, known map[string]*dataset) error {
	wanted := map[string][]string{}
	for _, h := range hits {
		if list := wanted[h.Document.DatasetID]; !slices.Contains(list, h.Document.ID) {
			wanted[h.Document.DatasetID] = append(list, h.Document.ID)
		}
	}
	for id, ids := range wanted {
		ds := known[id]
		if ds == nil {
			continue
		}
		docs, err := c.byID(ds, ids)
		if err != nil {
			return err
		}
		for _, h := range hits {
			if d := docs[h.Document.ID]; d != nil {
				h.of = d
			}
		}
	}
	return nil
}

func round(f float64) float64 { return math.Round(f*1e6) / 1e6 }

// lenientFloat converts like Python's float; absent and null are want.
func lenientFloat(in object, key string, want float64) (float64, error) {
	switch v := in[key].(type) {
	case nil:
		return want, nil
	case json.Number:
		return v.Float64()
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case string:
		if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return f, nil
		}
		return 0, refuse(codeException, "ValueError(\"could not convert string to float: %s\")", pyRepr(v))
	default:
		return 0, refuse(codeException, "TypeError(\"float() argument must be a string or a real number, not '%s'\")", pyType(v))
	}
}

// lenientPage reads a page number or size; an invalid one is want.
func lenientPage(in object, key string, want int) int {
	if s := pyText(in[key]); in[key] != nil {
		return positive(s, want)
	}
	return want
}

func retrieve(c *call) (*answer, error) {
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	if v := in["dataset_ids"]; empty(v) {
		return nil, bad("`dataset_ids` is required.")
	}
	list, ok := in["dataset_ids"].([]any)
	if !ok {
		return nil, bad("`dataset_ids` should be a list")
	}
	q := question{}
	if q.datasets, err = c.ownedDatasets(values(list)); err != nil {
		return nil, err
	}
	if _, ok := in["question"]; !ok {
		return nil, bad("`question` is required.")
	}
	if in["question"] != nil {
		q.text = pyText(in["question"])
	}
	docs, ok := in["document_ids"].([]any)
	if !ok && in["document_ids"] != nil {
		return nil, bad("`documents` should be a list")
	}
	if len(docs) > maxMatching {
		return nil, bad("`document_ids` are %d; give at most %d, or none for all documents of the datasets", len(docs), maxMatching)
	}
	if q.documents, err = c.ownedDocuments(q.datasets, values(docs)); err != nil {
		return nil, err
	}
	if q.threshold, err = lenientFloat(in, "similarity_threshold", 0.2); err != nil {
		return nil, err
	}
	if q.weight, err = lenientFloat(in, "vector_similarity_weight", 0.3); err != nil {
		return nil, err
	}
	top, err := lenientFloat(in, "top_k", 1024)
	if err != nil {
		return nil, err
	}
	if top <= 0 {
		return nil, bad("`top_k` must be greater than 0")
	}
	q.top = int(min(max(top, 1), maxHits))
	switch v := in["highlight"].(type) {
	case nil:
	case bool:
		q.highlight = v
	default:
		text, _ := v.(string)
		if q.highlight = strings.EqualFold(text, "true"); !q.highlight && !strings.EqualFold(text, "false") {
			return nil, bad("`highlight` should be a boolean")
		}
	}
	if id := in["rerank_id"]; !empty(id) {
		return nil, noReranker(id)
	}
	if m, ok := in["metadata_condition"].(object); ok && len(m) > 0 && len(docs) == 0 {
		condition, err := readCondition(m)
		if err != nil {
			return nil, err
		}
		if len(condition.tests) > 0 {
			if q.documents, err = c.matching(q.datasets, condition); err != nil {
				return nil, err
			}
			if len(q.documents) == 0 {
				return &answer{data: object{"chunks": []any{}, "doc_aggs": []any{}, "total": 0}}, nil
			}
		}
	}
	hits, err := c.ask(q)
	if err != nil {
		return nil, err
	}
	from, to := span(lenientPage(in, "page", 1), lenientPage(in, "page_size", defaultPage))
	chunks := []object{}
	for _, h := range cut(hits, from, to) {
		if err := c.pictured(h.of); err != nil {
			return nil, err
		}
		one := object{
			"id": h.Chunk.ID, "content": h.Chunk.Text, "document_id": h.Document.ID, "dataset_id": h.Document.DatasetID, "document_keyword": h.Document.Name,
			"important_keywords": texts(h.Chunk.Keywords), "questions": texts(h.Chunk.Questions), "tag_kwd": h.of.tags(&h.Chunk), "image_id": h.of.imageID(&h.Chunk), "positions": positions(&h.Chunk),
			"doc_type_kwd": docType(&h.Chunk), "similarity": round(h.similarity), "term_similarity": round(h.term), "vector_similarity": round(h.Scores.Vector),
		}
		if q.highlight {
			one["highlight"] = emphasis.Replace(h.Highlight)
		}
		chunks = append(chunks, one)
	}
	return &answer{data: object{"chunks": chunks, "doc_aggs": aggregated(hits), "total": len(hits)}}, nil
}

// fewDatasets are read individually.
const fewDatasets = 16

// ownedDatasets finds datasets by id, without duplicates.
func (c *call) ownedDatasets(ids []string) (out []*dataset, err error) {
	known := map[string]*dataset{}
	if ids, _ = unique(ids); len(ids) > fewDatasets {
		all, err := c.datasets()
		if err != nil {
			return nil, err
		}
		for _, ds := range all {
			known[ds.ID] = ds
		}
	}
	seen := map[string]bool{}
	for _, id := range ids {
		hex, _ := idOf(id)
		ds := known[hex]
		if ds == nil { // or created in the meantime
			if ds, err = c.owned(id); err != nil {
				return nil, err
			}
		}
		if !seen[ds.ID] {
			seen[ds.ID] = true
			out = append(out, ds)
		}
	}
	return out, nil
}

// ownedDocuments finds documents of datasets by id; nil for no ids.
func (c *call) ownedDocuments(datasets []*dataset, ids []string) (out []string, err error) {
	var left, hexes []string
	ids, _ = unique(ids)
	for _, id := range ids {
		hex, ok := idOf(id)
		if !ok {
			return nil, bad("The datasets don't own the document %s", id)
		}
		left, hexes = append(left, id), append(hexes, hex)
	}
	for _, ds := range datasets {
		if len(left) == 0 {
			break
		}
		found, err := c.byID(ds, hexes)
		if err != nil {
			return nil, err
		}
		var restIDs, rest []string
		for i, hex := range hexes {
			if found[hex] != nil {
				out = append(out, hex)
				continue
			}
			restIDs, rest = append(restIDs, left[i]), append(rest, hex)
		}
		left, hexes = restIDs, rest
	}
	if len(left) > 0 {
		return nil, bad("The datasets don't own the document %s", left[0])
	}
	return out, nil
}

// emphasis converts our marks to the expected ones.
var emphasis = strings.NewReplacer("<mark>", "<em>", "</mark>", "</em>")

// maxMatching bounds the documents a metadata condition selects for a question.
const maxMatching = 10_000

// matching returns the ids of the documents that match a condition.
func (c *call) matching(datasets []*dataset, condition *condition) (ids []string, err error) {
	for _, ds := range datasets {
		docs, err := c.documents(ds.ID, nil)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if condition.holds(d) {
				ids = append(ids, d.ID)
			}
		}
	}
	if len(ids) > maxMatching {
		return nil, bad("The condition holds for %d documents; narrow it to at most %d", len(ids), maxMatching)
	}
	return ids, nil
}

// aggregated counts the hits by document, most first.
func aggregated(hits []*hit) []object {
	out, at := []object{}, map[string]int{}
	for _, h := range hits {
		i, ok := at[h.Document.ID]
		if !ok {
			i = len(out)
			at[h.Document.ID] = i
			out = append(out, object{"doc_id": h.Document.ID, "doc_name": h.Document.Name, "count": 0})
		}
		out[i]["count"] = out[i]["count"].(int) + 1
	}
	slices.SortStableFunc(out, func(a, b object) int { return cmp.Compare(b["count"].(int), a["count"].(int)) })
	return out
}

func noReranker(id any) error {
	return bad("Model(%s) not found; leave rerank_id out, the server ranks with the model that it is configured with", pyText(id))
}

func searchDataset(c *call) (*answer, error) { return c.searched(c.path[:1]) }

func searchDatasets(c *call) (*answer, error) { return c.searched(nil) }

// searched runs a search by the strict rules; of is nil if the body names the
// datasets.
func (c *call) searched(of []string) (*answer, error) {
	in, err := c.strict()
	if err != nil {
		return nil, err
	}
	f, q := &faults{}, question{}
	if of == nil {
		if v, ok := in["dataset_ids"]; !ok {
			f.add("dataset_ids", "Field required", in)
		} else if list, ok := f.strings("dataset_ids", v); ok {
			if of = list; len(list) == 0 {
				f.add("dataset_ids", "List should have at least 1 item after validation, not 0", v)
			}
		}
	}
	if v, ok := in["question"]; !ok {
		f.add("question", "Field required", in)
	} else {
		if s, ok := v.(string); ok {
			v = strings.TrimSpace(s)
		}
		q.text, _ = f.str("question", v, 1, 0)
	}
	if v := in["doc_ids"]; v != nil {
		if ids, ok := f.strings("doc_ids", v); ok && len(ids) > 0 {
			q.documents = ids
		}
	}
	whole := func(key string, want, least, most int) int {
		if v := in[key]; v != nil {
			n, _ := f.integer(key, v, least, most)
			return n
		}
		return want
	}
	page, size := whole("page", 1, 1, unbounded), whole("size", defaultPage, 1, maxPage)
	q.top = whole("top_k", 1024, 1, unbounded)
	q.weight = 0.3
	for key, to := range map[string]*float64{"similarity_threshold": &q.threshold, "vector_similarity_weight": &q.weight} {
		if v := in[key]; v != nil {
			f.number(key, v, 0, 1)
			if n, ok := v.(json.Number); ok {
				*to, _ = n.Float64()
			}
		}
	}
	for _, key := range []string{"use_kg", "keyword"} {
		if v := in[key]; v != nil {
			f.boolean(key, v)
		}
	}
	if v := in["cross_languages"]; v != nil {
		f.strings("cross_languages", v)
	}
	for _, key := range []string{"search_id", "rerank_id"} {
		if v := in[key]; v != nil {
			f.str(key, v, 0, 0)
		}
	}
	var condition *condition
	if v := in["meta_data_filter"]; v != nil {
		m, ok := f.object("meta_data_filter", v)
		switch method := m["method"]; {
		case !ok || empty(method) || method == "disabled":
		case method != "manual":
			f.add("meta_data_filter.method", "Input should be 'manual' or 'disabled'", method)
		default:
			if condition, err = readCondition(object{"logic": m["logic"], "conditions": m["manual"]}); err != nil {
				return nil, err
			}
		}
	}
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	switch {
	case !empty(in["rerank_id"]):
		return nil, noReranker(in["rerank_id"])
	case !empty(in["search_id"]):
		return nil, bad("Search application %s not found; leave search_id out, the settings of a search stand in its request", pyText(in["search_id"]))
	case len(q.documents) > maxMatching:
		return nil, bad("doc_ids are %d; give at most %d", len(q.documents), maxMatching)
	}
	for _, id := range of {
		ds, err := c.dataset(id)
		if missing(err) {
			err = bad("Only owner of dataset %s authorized for this operation.", id)
		}
		if err != nil {
			return nil, err
		}
		q.datasets = append(q.datasets, ds)
	}
	if condition != nil && len(condition.tests) > 0 && q.documents == nil {
		if q.documents, err = c.matching(q.datasets, condition); err != nil {
			return nil, err
		}
		if q.documents == nil {
			q.documents = []string{}
		}
	}
	hits, err := c.ask(q)
	if err != nil {
		return nil, err
	}
	from, to := span(page, size)
	chunks := []object{}
	for _, h := range cut(hits, from, to) {
		if err := c.pictured(h.of); err != nil {
			return nil, err
		}
		chunks = append(chunks, object{
			"chunk_id": h.Chunk.ID, "content_with_weight": h.Chunk.Text, "doc_id": h.Document.ID, "kb_id": h.Document.DatasetID, "docnm_kwd": h.Document.Name,
			"important_kwd": texts(h.Chunk.Keywords), "question_kwd": texts(h.Chunk.Questions), "tag_kwd": h.of.tags(&h.Chunk), "image_id": h.of.imageID(&h.Chunk), "positions": positions(&h.Chunk),
			"doc_type_kwd": docType(&h.Chunk), "similarity": round(h.similarity), "term_similarity": round(h.term), "vector_similarity": round(h.Scores.Vector),
		})
	}
	return &answer{data: object{"chunks": chunks, "total": len(hits), "labels": []any{}, "doc_aggs": aggregated(hits)}}, nil
}

func cancelTask(c *call) (*answer, error) {
	err := c.Call(c.ctx, http.MethodPost, facade.Path("v1", "tasks", c.path[0]+":cancel"), object{}, nil)
	if e := facade.AsError(err); err != nil && e.Status != http.StatusNotFound && e.Status != http.StatusConflict {
		return nil, err
	}
	return &answer{data: true}, nil
}

func stopTask(c *call) (*answer, error) {
	in, err := c.lenient()
	if err != nil {
		return nil, err
	}
	if in["action"] != "stop" {
		return nil, refuse(codeArgument, "Invalid action %s. Only 'stop' is supported.", pyRepr(in["action"]))
	}
	return cancelTask(c)
}
