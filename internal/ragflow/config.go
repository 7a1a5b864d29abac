package ragflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// methods are the values of a dataset's chunk_method, as errors list them.
var methods = []string{"naive", "book", "email", "laws", "manual", "one", "paper", "picture", "presentation", "qa", "table", "tag", "resume"}

// documentMethods are those of a document. RAGFlow's audio is for recordings.
var documentMethods = []string{"naive", "manual", "qa", "table", "paper", "book", "laws", "presentation", "picture", "one", "knowledge_graph", "email", "tag"}

// Bounds of what is stored for a dataset.
const (
	maxText   = 65_535
	maxConfig = 65_535
)

type object = map[string]any

// prompt is that of a default configuration: it is shown but not used.
const prompt = "Sum up the following passages in a few sentences, and keep their numbers:\n{cluster_content}"

// entityTypes are those of a default configuration.
func entityTypes() []any {
	return []any{"organization", "person", "geo", "event", "category"}
}

// raptorDefault holds the defaults of omitted members.
func raptorDefault(use bool) object {
	return object{"use_raptor": use, "prompt": prompt, "max_token": 512, "clustering_threshold": 0.3, "clustering_ratio": 0.5, "max_cluster": 64, "random_seed": 0}
}

// wholeDefault is the configuration of a dataset without one.
func wholeDefault(method string) object {
	switch method {
	case "naive":
		return object{
			"layout_recognize": "DeepDOC", "chunk_token_num": 512, "delimiter": "\n", "auto_keywords": 0, "auto_questions": 0, "html4excel": false, "topn_tags": 3,
			"image_context_size": 0, "table_context_size": 0, "children_delimiter": "", "parent_child": object{"use_parent_child": false, "children_delimiter": "\n"},
			"raptor": raptorDefault(true),
			"graphrag": object{
				"use_graphrag": true, "entity_types": entityTypes(), "method": "light", "batch_chunk_token_size": 4096, "retry_attempts": 2, "retry_backoff_seconds": 2.0,
				"retry_backoff_max_seconds": 60.0, "build_subgraph_timeout_per_chunk_seconds": 300, "build_subgraph_min_timeout_seconds": 600, "merge_timeout_seconds": 180,
				"resolution_timeout_seconds": 1800, "community_timeout_seconds": 1800, "lock_acquire_timeout_seconds": 600,
			},
		}
	case "qa", "manual", "paper", "book", "laws", "presentation":
		return object{"raptor": object{"use_raptor": false}, "graphrag": object{"use_graphrag": false}, "image_context_size": 0, "table_context_size": 0}
	}
	return object{"image_context_size": 0, "table_context_size": 0}
}

// completed fills in the defaults of a partial configuration. It shares no object
// with in.
func completed(in object) object {
	out := object{
		"auto_keywords": 0, "auto_questions": 0, "chunk_token_num": 512, "delimiter": "\n", "html4excel": false, "layout_recognize": "DeepDOC", "tag_kb_ids": []any{}, "topn_tags": 1,
		"filename_embd_weight": 0.1, "task_page_size": nil, "pages": nil, "raptor": object{"use_raptor": false}, "graphrag": object{"use_graphrag": false},
	}
	for key, v := range in {
		m, ok := v.(object)
		switch {
		case key == "raptor" && ok:
			v = laid(raptorDefault(false), m)
		case key == "graphrag" && ok:
			v = laid(object{"use_graphrag": false, "entity_types": entityTypes(), "method": "light"}, m)
		case key == "parent_child" && ok:
			v = laid(object{"use_parent_child": false, "children_delimiter": "\n"}, m)
		}
		out[key] = v
	}
	return out
}

// laid deep-merges one object over another without modifying either.
func laid(under, over object) object {
	out := maps.Clone(under)
	if out == nil {
		out = object{}
	}
	for key, v := range over {
		was, a := out[key].(object)
		is, b := v.(object)
		if a && b {
			v = laid(was, is)
		}
		out[key] = v
	}
	return out
}

type rule func(f *faults, field string, v any)

func textRule(least int) rule {
	return func(f *faults, field string, v any) { f.str(field, v, least, 0) }
}

func intRule(least, most int) rule {
	return func(f *faults, field string, v any) { f.integer(field, v, least, most) }
}

func numberRule(least, most float64) rule {
	return func(f *faults, field string, v any) { f.number(field, v, least, most) }
}

func boolRule(f *faults, field string, v any)    { f.boolean(field, v) }
func objectRule(f *faults, field string, v any)  { f.object(field, v) }
func stringsRule(f *faults, field string, v any) { f.strings(field, v) }
func anyRule(*faults, string, any)               {}

func amongRule(values ...string) rule {
	return func(f *faults, field string, v any) { f.among(field, v, values) }
}

func orNull(r rule) rule {
	return func(f *faults, field string, v any) {
		if v != nil {
			r(f, field, v)
		}
	}
}

// pagesRule accepts a list of [from, to].
func pagesRule(f *faults, field string, v any) {
	list, ok := v.([]any)
	if !ok {
		f.add(field, "Input should be a valid list", v)
		return
	}
	for i, one := range list {
		pair, ok := one.([]any)
		at := fmt.Sprintf("%s.%d", field, i)
		if !ok {
			f.add(at, "Input should be a valid list", one)
			continue
		}
		for j, n := range pair {
			if _, ok := integer(n); !ok {
				f.add(fmt.Sprintf("%s.%d", at, j), "Input should be a valid integer", n)
			}
		}
	}
}

// member is one key of an object to check.
type member struct {
	name string
	rule rule
}

const unbounded = math.MaxInt32

var configMembers = []member{
	{"auto_keywords", intRule(0, 32)}, {"auto_questions", intRule(0, 10)}, {"chunk_token_num", intRule(1, 2048)}, {"delimiter", textRule(1)}, {"html4excel", boolRule},
	{"layout_recognize", textRule(0)}, {"tag_kb_ids", stringsRule}, {"topn_tags", intRule(1, 10)}, {"filename_embd_weight", orNull(numberRule(0, 1))},
	{"task_page_size", orNull(intRule(1, unbounded))}, {"pages", orNull(pagesRule)}, {"enable_children", boolRule}, {"children_delimiter", textRule(0)},
	{"parent_child", membersRule([]member{{"use_parent_child", boolRule}, {"children_delimiter", textRule(1)}})},
	{"raptor", membersRule([]member{
		{"use_raptor", boolRule}, {"prompt", promptRule}, {"max_token", intRule(math.MinInt32, 2048)}, {"clustering_threshold", numberRule(0, 1)}, {"clustering_ratio", numberRule(0, 1)},
		{"max_cluster", intRule(1, 1024)}, {"random_seed", intRule(0, unbounded)}, {"scope", amongRule("file", "dataset")}, {"auto_disable_for_structured_data", boolRule},
		{"threshold", anyRule}, {"clustering_method", anyRule}, {"tree_builder", anyRule}, {"ext", anyRule},
	})},
	{"graphrag", membersRule(append([]member{
		{"use_graphrag", boolRule}, {"entity_types", stringsRule}, {"method", amongRule("light", "general", "ner")}, {"community", boolRule}, {"resolution", boolRule},
	}, timeouts()...))},
	{"image_context_size", intRule(0, unbounded)}, {"table_context_size", intRule(0, unbounded)},
	{"table_column_mode", orNull(amongRule("auto", "manual"))}, {"table_column_roles", orNull(rolesRule)}, {"table_column_names", orNull(stringsRule)},
	{"metadata", anyRule}, {"llm_id", orNull(textRule(0))}, {"ext", objectRule},
}

// timeouts are the timeouts of graph jobs. Only the batch size and the attempts are
// used; the others are stored.
func timeouts() (out []member) {
	for _, name := range []string{
		"batch_chunk_token_size", "retry_attempts", "retry_backoff_seconds", "retry_backoff_max_seconds", "build_subgraph_timeout_per_chunk_seconds", "build_subgraph_min_timeout_seconds",
		"merge_timeout_seconds", "resolution_timeout_seconds", "community_timeout_seconds", "lock_acquire_timeout_seconds",
	} {
		out = append(out, member{name, numberRule(0, math.MaxInt32)})
	}
	return out
}

func promptRule(f *faults, field string, v any) {
	if s, ok := v.(string); ok {
		v = strings.TrimSpace(s)
	}
	f.str(field, v, 1, 0)
}

func rolesRule(f *faults, field string, v any) {
	roles, ok := f.object(field, v)
	if !ok {
		return
	}
	for _, column := range slices.Sorted(maps.Keys(roles)) {
		f.among(field+"."+column, roles[column], []string{"indexing", "metadata", "both"})
	}
}

func membersRule(members []member) rule {
	return func(f *faults, field string, v any) { f.members(field, v, members) }
}

// members checks an object's members, and rejects unknown ones.
func (f *faults) members(field string, v any, members []member) {
	in, ok := f.object(field, v)
	if !ok {
		return
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
		if v, ok := in[m.name]; ok {
			m.rule(f, field+"."+m.name, v)
		}
	}
	f.extras(field+".", in, names...)
}

// config checks and normalizes a parser_config: the old keys of raptor are dropped,
// and ext is merged in. nil for null or {}.
func (f *faults) config(v any) object {
	if v == nil {
		return nil
	}
	was := len(f.lines)
	f.members("parser_config", v, configMembers)
	in, ok := v.(object)
	if !ok || len(in) == 0 || len(f.lines) > was {
		return nil
	}
	if b, err := json.Marshal(in); err != nil || len([]rune(string(b))) > maxConfig {
		f.add("parser_config", fmt.Sprintf("Parser config exceeds size limit (max 65,535 characters). Current size: %d", len([]rune(string(b)))), v)
		return nil
	}
	out := laid(nil, in)
	if r, ok := out["raptor"].(object); ok {
		r = laid(nil, r)
		for _, old := range []string{"threshold", "clustering_method", "tree_builder", "ext"} {
			delete(r, old)
		}
		if n, ok := integer(r["max_token"]); ok && n < 512 {
			r["max_token"] = 512
		}
		if s, ok := r["prompt"].(string); ok {
			r["prompt"] = strings.TrimSpace(s)
		}
		out["raptor"] = r
	}
	if ext, ok := out["ext"].(object); ok {
		delete(out, "ext")
		out = laid(out, ext)
	}
	return out
}

// Bounds of our settings.
const (
	minChunkTokens = 16
	maxTaskPages   = 1000
	maxPages       = 1_000_000
)

// settings converts a method and a configuration to our parser_config. It names
// every setting of the interface, so that no previous one remains.
func settings(method string, config object) object {
	if method == "knowledge_graph" {
		method = "naive"
	}
	out := object{
		"chunk_method": method, "chunk_token_num": nil, "delimiter": nil, "html4excel": nil, "auto_keywords": nil, "auto_questions": nil, "tag_kb_ids": nil, "topn_tags": nil,
		"task_page_size": nil, "pages": nil, "image_context_size": nil, "table_context_size": nil, "children_delimiter": nil,
	}
	set := func(key string, least, most int) {
		if n, ok := number(config[key]); ok && n > 0 {
			out[key] = min(max(n, least), most)
		}
	}
	if method != "tag" {
		set("chunk_token_num", minChunkTokens, 8191)
		set("topn_tags", 1, 32)
		if ids, ok := config["tag_kb_ids"].([]any); ok && len(ids) > 0 {
			out["tag_kb_ids"] = ids
		}
	}
	set("auto_keywords", 1, 32)
	set("auto_questions", 1, 10)
	set("task_page_size", 1, maxTaskPages)
	set("image_context_size", 1, 2048)
	set("table_context_size", 1, 2048)
	if s, ok := config["delimiter"].(string); ok && s != "" {
		out["delimiter"] = s
	}
	if config["html4excel"] == true {
		out["html4excel"] = true
	}
	if child, ok := config["children_delimiter"].(string); ok && config["enable_children"] == true && child != "" {
		out["children_delimiter"] = child
	}
	if pc, ok := config["parent_child"].(object); ok && pc["use_parent_child"] == true {
		if child, ok := pc["children_delimiter"].(string); ok && child != "" {
			out["children_delimiter"] = child
		}
	}
	if pages, ok := config["pages"].([]any); ok && len(pages) > 0 {
		out["pages"] = units(pages)
	}
	return out
}

// sentRuns merges the run settings that were sent over those sent before.
func sentRuns(before, config object) object {
	sent := object{}
	for _, key := range []string{"raptor", "graphrag"} {
		if m, ok := config[key].(object); ok {
			sent[key] = m
		}
	}
	return laid(before, sent)
}

// runSettings converts run settings that were sent to ours, clamped to our bounds.
// Timeouts and waits have no equivalent.
func runSettings(sent object) object {
	out := object{"raptor": nil, "graphrag": nil}
	whole := func(to, from object, key string, least, most int) {
		if n, ok := number(from[key]); ok {
			to[key] = min(max(n, least), most)
		}
	}
	share := func(to, from object, key string, least, most float64) {
		if x, ok := from[key].(json.Number); ok {
			if f, err := x.Float64(); err == nil {
				to[key] = min(max(f, least), most)
			}
		} else if f, ok := from[key].(float64); ok {
			to[key] = min(max(f, least), most)
		}
	}
	same := func(to, from object, keys ...string) {
		for _, key := range keys {
			if v, ok := from[key]; ok && v != nil {
				to[key] = v
			}
		}
	}
	if r, ok := sent["raptor"].(object); ok && len(r) > 0 {
		to := object{}
		same(to, r, "use_raptor", "scope", "auto_disable_for_structured_data")
		whole(to, r, "max_token", 512, 2048)
		whole(to, r, "max_cluster", 2, 1024)
		whole(to, r, "random_seed", 0, unbounded)
		share(to, r, "clustering_threshold", 0, 1)
		share(to, r, "clustering_ratio", 0.01, 0.5)
		if text, ok := r["prompt"].(string); ok && len(text) <= maxPrompt {
			if !strings.Contains(text, "{cluster_content}") {
				text += "\n{cluster_content}"
			}
			to["prompt"] = text
		}
		out["raptor"] = to
	}
	if g, ok := sent["graphrag"].(object); ok && len(g) > 0 {
		to := object{}
		same(to, g, "use_graphrag", "method", "community", "resolution")
		whole(to, g, "batch_chunk_token_size", 512, 8196)
		whole(to, g, "retry_attempts", 0, 10)
		if types, ok := g["entity_types"].([]any); ok {
			if types = slices.DeleteFunc(slices.Clone(types), func(t any) bool { s, _ := t.(string); return strings.TrimSpace(s) == "" || len(s) > 50 }); len(types) > 0 {
				to["entity_types"] = types[:min(len(types), 50)]
			}
		}
		out["graphrag"] = to
	}
	return out
}

// maxPrompt is the maximum length, in bytes, of a prompt for summaries; a longer
// one is stored and shown, but ours is used.
const maxPrompt = 8<<10 - 20

// units converts pages to our ranges, nil for all of them.
func units(pages []any) any {
	var out []any
	for _, one := range pages {
		pair, ok := one.([]any)
		if !ok || len(pair) != 2 {
			continue
		}
		from, _ := number(pair[0])
		to, _ := number(pair[1])
		from, to = max(from, 1), min(to, maxPages)
		if from == 1 && to == maxPages {
			return nil
		}
		if to >= from {
			out = append(out, []int{from, to})
		}
	}
	if out == nil {
		return nil
	}
	return out
}

// number reads a whole number, whether decoded or ours.
func number(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case float64:
		return int(v), true
	}
	return integer(v)
}
