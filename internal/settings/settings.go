// Package settings describes parser_config: its table of settings, the chunk
// methods, and how layers of settings merge. The API validates settings with it,
// ingest merges them, and the chunker asks which ones a method reads; the tables of
// the handbook and the API description are generated from it.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sheaf"
)

// Setting is a key of parser_config.
type Setting struct {
	Name    string // as in JSON
	Meaning string
	Min     int // for numbers
	Max     int // 0: not a number
	Unset   string
	Methods []string // that read it; nil means all
	// Enriches means that chunks of every method depend on it.
	Enriches bool
}

// Default describes what omitting the setting means.
func (s Setting) Default() string {
	if s.Unset != "" {
		return s.Unset
	}
	v, _ := Value(Default, s.Name)
	return fmt.Sprint(v)
}

// Describe describes the setting: effect, bounds, methods and default.
func (s Setting) Describe() string {
	text := s.Meaning
	if s.Max > 0 {
		text += fmt.Sprintf(", from %d to %d", s.Min, s.Max)
	}
	if s.Methods != nil {
		text += " (" + strings.Join(s.Methods, ", ") + ")"
	}
	return text + ". Default: " + s.Default()
}

// packing lists the methods that fill chunks up to chunk_token_num.
var packing = []string{"general", "paper", "book", "laws", "manual", "email", "resume", "audio", "qa", "semantic", "hierarchical", "code", MethodLate}

// prose lists those of packing whose chunks can repeat text or be split further.
var prose = []string{"general", "paper", "book", "laws", "manual", "email", "resume", "audio"}

// printed lists those of prose whose files have headings, tables and images.
var printed = []string{"general", "paper", "book", "laws", "manual", "email", "resume"}

// Default holds the values of settings that no layer sets, unless the chunk method
// has its own default.
var Default = sheaf.ParseConfig{
	ChunkMethod:   sheaf.Set("general"),
	ChunkTokenNum: sheaf.Set(512),
	Delimiter:     sheaf.Set("\n。；！？"),
	TaskPageSize:  sheaf.Set(12),
	TopNTags:      sheaf.Set(3),
	TableRows:     sheaf.Set(3000),
}

// Table has a row for each key of parser_config, in order of popularity.
var Table = []Setting{
	{Name: "chunk_method", Meaning: "how blocks become chunks; see the chunk methods"},
	{Name: "chunk_token_num", Min: 16, Max: 8191, Methods: packing, Meaning: "maximum tokens in a chunk"},
	{Name: "delimiter", Unset: "line end and full-width sentence marks", Methods: packing, Meaning: "characters at which a chunk may end; a string in backticks always ends one, except in tables and code"},
	{Name: "overlapped_percent", Max: 50, Methods: prose, Meaning: "percentage of a chunk that is repeated at the start of the next"},
	{Name: "children_delimiter", Unset: "none", Methods: prose, Meaning: "cuts each chunk into children that search finds; each has the whole chunk as its parent. Same syntax as delimiter"},
	{Name: "html4excel", Methods: []string{"general", "one"}, Meaning: "write tables as HTML instead of Markdown"},
	{Name: "toc_extraction", Methods: printed, Meaning: "add a chunk to each range that lists its headings with their pages"},
	{Name: "image_context_size", Max: 2048, Methods: printed, Meaning: "makes each image a separate chunk with its caption; this many tokens of text on each side are embedded and indexed with it"},
	{Name: "table_context_size", Max: 2048, Methods: printed, Meaning: "tokens of text on each side of a table that are embedded and indexed with it"},
	{Name: "ocr_pictures", Meaning: "read the text in pictures of DOCX, ODT, PPTX, ODP, EPUB and PDF files, of files that LibreOffice converts to them, and of mail; requires tesseract and takes about 2 seconds per picture"},
	{Name: "auto_keywords", Max: 32, Enriches: true, Meaning: "keywords for each chunk, from the chat model if one is configured, otherwise by counting; embedded and searched with the text"},
	{Name: "auto_questions", Max: 10, Enriches: true, Meaning: "questions that each chunk answers, from the chat model, which must be configured; embedded and searched with the text"},
	{Name: "auto_context", Enriches: true, Meaning: "one or two sentences about where each chunk stands in its document, from the chat model, which must be configured; embedded and searched with the text, like the name, the title and the headings, which are always included"},
	{Name: "pii", Unset: "none", Enriches: true, Meaning: "personal data in the text: find counts it in a warning and lists its kinds on each chunk in metadata.personal_data; redact also replaces it before anything is stored or embedded"},
	{Name: "tag_kb_ids", Unset: "none", Meaning: "ids of up to 8 datasets with the chunk method tag; each chunk gets the tags of their nearest rows"},
	{Name: "topn_tags", Min: 1, Max: 32, Meaning: "maximum tags per chunk from tag_kb_ids"},
	{Name: "flow", Unset: "standard", Meaning: "flow that processes the document, such as contracts for its latest version when the document is parsed, or contracts@3; settings in its nodes override these settings"},
	{Name: "task_page_size", Min: 1, Max: allPages, Unset: "12, of scans 4; 22 for paper; 1000 for one and resume", Meaning: "maximum pages per task"},
	{Name: "pages", Unset: "all", Meaning: "ranges of units to read, such as [[1, 10], [20, 25]]"},
	{Name: "table_rows", Min: 10, Max: 100_000, Meaning: "rows per task of a spreadsheet or CSV file"},
	{Name: "encoding", Unset: "guessed", Meaning: "encoding of text files, as an IANA name such as windows-1252"},
	{Name: "media_type", Unset: "found by content", Meaning: "overrides the detected type"},
	{Name: "password", Unset: "none", Meaning: "opens protected files; write-only"},
}

// Run is a key of parser_config that only datasets have: the options for runs of a
// kind.
type Run struct {
	Kind    sheaf.TaskKind
	Name    string // as in JSON
	Flag    string // key in the object: runs start automatically
	Meaning string
	of      func(c *sheaf.ParseConfig) *sheaf.Opt[sheaf.RunConfig]
}

// Runs lists those keys.
var Runs = []Run{
	{sheaf.KindRaptor, "raptor", "use_raptor", "of a dataset: what runs of raptor are asked for where a request has no options, with those names. use_raptor: true has a run begin by itself after documents are published; budget, such as {\"max_tokens\": 100000}, bounds what it may spend",
		func(c *sheaf.ParseConfig) *sheaf.Opt[sheaf.RunConfig] { return &c.Raptor }},
	{sheaf.KindGraphRAG, "graphrag", "use_graphrag", "of a dataset: what runs of graphrag are asked for where a request has no options, with those names. use_graphrag: true has a run begin by itself after documents are published, where a chat model is configured; budget, such as {\"max_tokens\": 100000}, bounds what it may spend",
		func(c *sheaf.ParseConfig) *sheaf.Opt[sheaf.RunConfig] { return &c.GraphRAG }},
}

// Describe describes the setting and its default.
func (r Run) Describe() string { return r.Meaning + ". Default: no run starts automatically" }

// In returns a dataset's setting: the options, nil if none, and whether runs start
// automatically.
func (r Run) In(c sheaf.ParseConfig) (options json.RawMessage, byItself bool) {
	said := *r.of(&c)
	if !said.IsSet() {
		return nil, false
	}
	rest := maps.Clone(said.V)
	byItself, _ = rest[r.Flag].(bool)
	delete(rest, r.Flag)
	if delete(rest, budgetKey); len(rest) > 0 {
		options, _ = json.Marshal(rest) // it came from JSON
	}
	return options, byItself
}

const budgetKey = "budget"

// Budget bounds what a run may spend, 0 for no bound.
type Budget struct {
	MaxTokens int64   `json:"max_tokens"` // read and written by the chat model
	MaxPrice  float64 `json:"max_price"`  // the same limit as a price
}

// BudgetIn returns the budget in a dataset's settings for runs started without
// their own.
func (r Run) BudgetIn(c sheaf.ParseConfig) (b Budget, err error) {
	said := *r.of(&c)
	if !said.IsSet() || said.V[budgetKey] == nil {
		return b, nil
	}
	text, _ := json.Marshal(said.V[budgetKey]) // it came from JSON
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if in.Decode(&b) != nil || b.MaxTokens < 0 || b.MaxPrice < 0 || b == (Budget{}) {
		return Budget{}, fmt.Errorf("%s.budget must have max_tokens, a whole number from 1, or max_price, a number above 0, or both", r.Name)
	}
	return b, nil
}

// OfDocument returns c without the dataset-only settings.
func OfDocument(c sheaf.ParseConfig) sheaf.ParseConfig {
	for _, r := range Runs {
		*r.of(&c) = sheaf.Opt[sheaf.RunConfig]{}
	}
	return c
}

// CheckDocument rejects dataset-only settings.
func CheckDocument(c sheaf.ParseConfig) error {
	for _, r := range Runs {
		if r.of(&c).IsSet() {
			return fmt.Errorf("%s is a setting of datasets, for runs over all of one; set it there", r.Name)
		}
	}
	return nil
}

// MethodLate is the chunk method whose chunks are embedded section by section.
const MethodLate = "late"

// Method is a way to split blocks into chunks, with RAGFlow's name for it if it has
// one.
type Method struct {
	Name     string
	Takes    []sheaf.FileFamily // nil means every format
	Ranges   string             // what a task covers
	Meaning  string
	Defaults sheaf.ParseConfig // where they differ from Default
}

// allPages is the largest task_page_size: one task for all but the longest.
const allPages = 1000

// Methods are the values of chunk_method, the default first.
var Methods = []Method{
	{Name: "general", Ranges: "task_page_size pages, table_rows rows", Meaning: "packs neighboring blocks up to chunk_token_num; chunks never span a heading, and tables are separate"},
	{Name: "naive", Ranges: "as general", Meaning: "another name for general"},
	{Name: "one", Ranges: "the whole document, up to 1,000 pages", Meaning: "the document as one chunk, or as few chunks of up to 8191 tokens as possible", Defaults: sheaf.ParseConfig{TaskPageSize: sheaf.Set(allPages)}},
	{Name: "qa", Takes: []sheaf.FileFamily{sheaf.FamilySpreadsheet, sheaf.FamilyText, sheaf.FamilyDocument, sheaf.FamilyPDF, sheaf.FamilyWeb}, Ranges: "table_rows rows, task_page_size pages", Meaning: "question and answer as one chunk: the first two filled cells of a row, a heading and the text after it, or lines that begin with Q: and A:"},
	{Name: "table", Takes: []sheaf.FileFamily{sheaf.FamilySpreadsheet}, Ranges: "table_rows rows", Meaning: "a row is a chunk of \"column: value\" lines; columns contain the typed values"},
	{Name: "tag", Takes: []sheaf.FileFamily{sheaf.FamilySpreadsheet}, Ranges: "table_rows rows", Meaning: "a row is a chunk: the first filled cell is the text, the second its tags, separated by commas"},
	{Name: "paper", Takes: []sheaf.FileFamily{sheaf.FamilyPDF}, Ranges: "22 pages", Meaning: "as general, by numbered sections; the abstract stays in one chunk", Defaults: sheaf.ParseConfig{TaskPageSize: sheaf.Set(22)}},
	{Name: "book", Takes: []sheaf.FileFamily{sheaf.FamilyPDF, sheaf.FamilyDocument, sheaf.FamilyText, sheaf.FamilyWeb, sheaf.FamilyEbook}, Ranges: "task_page_size pages", Meaning: "as general, by parts and chapters; lines of a printed table of contents are left out"},
	{Name: "laws", Takes: []sheaf.FileFamily{sheaf.FamilyPDF, sheaf.FamilyDocument, sheaf.FamilyText, sheaf.FamilyWeb}, Ranges: "task_page_size pages", Meaning: "as general, by part, chapter, section and article: an article never shares a chunk with another"},
	{Name: "manual", Takes: []sheaf.FileFamily{sheaf.FamilyPDF, sheaf.FamilyDocument, sheaf.FamilyText, sheaf.FamilyWeb}, Ranges: "task_page_size pages", Meaning: "by numbered sections; short neighboring subsections share a chunk"},
	{Name: "presentation", Takes: []sheaf.FileFamily{sheaf.FamilyPresentation, sheaf.FamilyPDF}, Ranges: "task_page_size slides or pages", Meaning: "a slide or page is a chunk"},
	{Name: "picture", Takes: []sheaf.FileFamily{sheaf.FamilyImage}, Ranges: "the whole file", Meaning: "an image is a chunk: its recognized text and its description"},
	{Name: "email", Takes: []sheaf.FileFamily{sheaf.FamilyMail}, Ranges: "the whole message", Meaning: "as general; each part is separate, and quoted mail is separate from new text"},
	{Name: "resume", Takes: []sheaf.FileFamily{sheaf.FamilyPDF, sheaf.FamilyDocument, sheaf.FamilyText}, Ranges: "the whole document, up to 1,000 pages", Meaning: "as general, by the usual sections: experience, education, skills …", Defaults: sheaf.ParseConfig{TaskPageSize: sheaf.Set(allPages)}},
	{Name: "audio", Takes: []sheaf.FileFamily{sheaf.FamilyAudio}, Ranges: "the whole recording", Meaning: "as general over the transcript, in whole sentences"},
	{Name: "semantic", Ranges: "as general", Meaning: "as general, but cut where the meaning changes most: between sentences whose vectors are farther apart than those of 95 in 100 neighbors"},
	{Name: "hierarchical", Ranges: "as general", Meaning: "chunks with a parent of up to four times their size, and for each longer section an additional summary chunk: by the chat model if one is configured, otherwise from its most typical sentences"},
	{Name: MethodLate, Ranges: "as general", Meaning: "as general; the vector of each chunk is computed from its whole section, as far as the model's window reaches (late chunking); requires embed.late_window"},
	{Name: "code", Takes: []sheaf.FileFamily{sheaf.FamilyCode}, Ranges: "the whole file, large ones in parts", Meaning: "by declaration, whose name is added to the heading path; short neighbors share a chunk. Go is cut by its syntax tree, other languages by indentation"},
}

// MethodByName returns the named chunk method; "" is the default.
func MethodByName(name string) (Method, bool) {
	if name == "" {
		name = Default.ChunkMethod.V
	}
	i := slices.IndexFunc(Methods, func(m Method) bool { return m.Name == name })
	if i < 0 {
		return Method{}, false
	}
	return Methods[i], true
}

// MethodNames lists the values of chunk_method.
func MethodNames() []string {
	names := make([]string, len(Methods))
	for i, m := range Methods {
		names[i] = m.Name
	}
	return names
}

// Names lists the keys of parser_config.
func Names() []string {
	names := make([]string, len(Table))
	for i, s := range Table {
		names[i] = s.Name
	}
	return names
}

// DatasetNames lists the keys of parser_config of a dataset.
func DatasetNames() []string {
	names := Names()
	for _, r := range Runs {
		names = append(names, r.Name)
	}
	return names
}

// MethodsFor lists the chunk methods that accept files of any of the families.
func MethodsFor(families []sheaf.FileFamily) []string {
	var names []string
	for _, m := range Methods {
		if m.TakesAny(families) {
			names = append(names, m.Name)
		}
	}
	return names
}

// TakesAny reports whether the method accepts files of any of the families.
func (m Method) TakesAny(families []sheaf.FileFamily) bool {
	return m.Takes == nil || slices.ContainsFunc(families, func(f sheaf.FileFamily) bool { return slices.Contains(m.Takes, f) })
}

// Reads reports whether the method reads a setting, by its JSON name.
func (m Method) Reads(setting string) bool {
	i := slices.IndexFunc(Table, func(s Setting) bool { return s.Name == setting })
	if i < 0 {
		return false
	}
	name := m.Name
	if name == "naive" {
		name = "general"
	}
	return Table[i].Methods == nil || slices.Contains(Table[i].Methods, name)
}

// maxTagSets bounds tag_kb_ids.
const maxTagSets = 8

// Check rejects settings that no parse could follow: an unknown chunk method,
// numbers out of bounds, inverted ranges. The error says what is allowed.
func Check(c sheaf.ParseConfig) error {
	if _, ok := MethodByName(c.ChunkMethod.V); !ok || c.ChunkMethod.IsSet() && c.ChunkMethod.V == "" {
		return fmt.Errorf("chunk_method %q is not one of %s; null stands for what holds without it", c.ChunkMethod.V, strings.Join(MethodNames(), ", "))
	}
	for _, s := range Table {
		v, set := valueOf(&c, s.Name)
		if n, ok := v.(int); ok && set && (n < s.Min || n > s.Max) {
			return fmt.Errorf("%s is %d; choose a number from %d to %d, or null for what holds without it", s.Name, n, s.Min, s.Max)
		}
	}
	if len(c.Delimiter.V) > 256 || len(c.ChildrenDelimiter.V) > 256 {
		return fmt.Errorf("delimiter or children_delimiter is longer than 256 bytes")
	}
	if !slices.Contains([]string{"", "none", "find", "redact"}, c.PII.V) {
		return fmt.Errorf("pii %q is not one of none, find, redact", c.PII.V)
	}
	if len(c.TagKBIDs.V) > maxTagSets {
		return fmt.Errorf("tag_kb_ids names %d datasets; at most %d are looked at", len(c.TagKBIDs.V), maxTagSets)
	}
	if len(c.TagKBIDs.V) > 0 && c.ChunkMethod.V == "tag" {
		return fmt.Errorf("tag_kb_ids is set with chunk_method tag: a tag set has its own tags; leave one of the two out")
	}
	for _, r := range Runs {
		if v, ok := r.of(&c).V[r.Flag]; ok {
			if _, is := v.(bool); !is {
				return fmt.Errorf("%s.%s must be true or false", r.Name, r.Flag)
			}
		}
	}
	if len(c.Pages.V) > 10_000 {
		return fmt.Errorf("pages has more than 10,000 ranges")
	}
	for _, r := range c.Pages.V {
		if r.From < 1 || r.To < r.From {
			return fmt.Errorf("pages [%d, %d]: a range is [from, to], counted from 1, both ends included", r.From, r.To)
		}
	}
	return nil
}

// CheckType rejects a chunk method that does not accept files of the families,
// which are those of the media type (parser.Registry.TypeOf).
func CheckType(c sheaf.ParseConfig, mediaType string, families []sheaf.FileFamily) error {
	m, ok := MethodByName(c.ChunkMethod.V)
	if !ok || m.TakesAny(families) {
		return nil
	}
	takes := make([]string, len(m.Takes))
	for i, f := range m.Takes {
		takes[i] = string(f)
	}
	return fmt.Errorf("chunk_method %s takes %s, not %s; for this file use one of %s", m.Name, strings.Join(takes, "; "), mediaType, strings.Join(MethodsFor(families), ", "))
}

// NeedsChat names the setting that requires a chat model, or "" if none does.
func NeedsChat(c sheaf.ParseConfig) string {
	switch {
	case c.AutoQuestions.V > 0:
		return "auto_questions"
	case c.AutoContext.V:
		return "auto_context"
	}
	return ""
}
