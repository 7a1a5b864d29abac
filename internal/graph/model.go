package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
	"unique"

	"sheaf"
)

// Methods of a run, by RAGFlow's names, and one that does not use a model.
const (
	MethodLight        = "light"        // a model finds entities and relations
	MethodGeneral      = "general"      // and writes reports on the communities
	MethodNER          = "ner"          // a model names entities; those of one sentence are related
	MethodCooccurrence = "cooccurrence" // only rules: Extract
)

// RunOptions are the options of a run, under RAGFlow's names.
type RunOptions struct {
	Method        string   `json:"method"` // "": light if there is a model, otherwise cooccurrence
	EntityTypes   []string `json:"entity_types"`
	Community     *bool    `json:"community,omitempty"` // nil: only with general
	RetryAttempts int      `json:"retry_attempts"`      // after an unusable answer
	// Resolution has a model decide which similarly named entities are identical.
	Resolution bool `json:"resolution"`
	// BatchTokens limits the text of chunks per model call; a longer chunk takes
	// several calls.
	BatchTokens int `json:"batch_chunk_token_size"`
}

// Limits of RunOptions.BatchTokens.
const (
	minBatchTokens     = 512
	maxBatchTokens     = 8196
	defaultBatchTokens = 4096
)

// Resolves reports whether a model decides which entities are identical.
func (o RunOptions) Resolves() bool { return o.Resolution && o.Method != MethodCooccurrence }

// Reports reports whether a model writes reports on the communities.
func (o RunOptions) Reports() bool {
	if o.Community != nil {
		return *o.Community && o.Method != MethodCooccurrence
	}
	return o.Method == MethodGeneral
}

// Limits of options.
const (
	maxTypes     = 50
	maxTypeBytes = 50
	maxAttempts  = 10
)

// ReadRunOptions reads options as JSON, with RAGFlow's defaults for missing ones.
// Errors are sheaf.ErrInvalid.
func ReadRunOptions(data []byte) (RunOptions, error) {
	o := RunOptions{EntityTypes: []string{"organization", "person", "geo", "event", "category"}, RetryAttempts: 2, BatchTokens: defaultBatchTokens}
	if len(bytes.TrimSpace(data)) > 0 {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil {
			return o, fmt.Errorf("%w: the options of the run: %s", sheaf.ErrInvalid, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	for i, t := range o.EntityTypes {
		o.EntityTypes[i] = strings.ToLower(Clean(t))
	}
	bad := func(t string) bool { return t == "" || len(t) > maxTypeBytes }
	switch {
	case !slices.Contains([]string{"", MethodLight, MethodGeneral, MethodNER, MethodCooccurrence}, o.Method):
		return o, fmt.Errorf("%w: method must be light, general, ner or cooccurrence", sheaf.ErrInvalid)
	case len(o.EntityTypes) == 0 || len(o.EntityTypes) > maxTypes || slices.ContainsFunc(o.EntityTypes, bad):
		return o, fmt.Errorf("%w: entity_types must be 1 to %d names of at most %d bytes", sheaf.ErrInvalid, maxTypes, maxTypeBytes)
	case o.RetryAttempts < 0 || o.RetryAttempts > maxAttempts:
		return o, fmt.Errorf("%w: retry_attempts must be 0 to %d", sheaf.ErrInvalid, maxAttempts)
	case o.BatchTokens < minBatchTokens || o.BatchTokens > maxBatchTokens:
		return o, fmt.Errorf("%w: batch_chunk_token_size must be %d to %d tokens", sheaf.ErrInvalid, minBatchTokens, maxBatchTokens)
	}
	return o, nil
}

// Said is what a language model found in a chunk.
type Said struct {
	Entities  []SaidEntity   `json:"entities"`
	Relations []SaidRelation `json:"relations"`
}

// SaidEntity is an entity named by a model.
type SaidEntity struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
}

// SaidRelation is a relation named by a model.
type SaidRelation struct {
	Source      string `json:"source"`
	Target      string `json:"target"`
	Description string `json:"description"`
}

const maxDescription = 500 // bytes of a chunk's text about an entity or relation

// DecodeAnswer reads the JSON object of an answer, even if a model surrounded it
// with text or a fence.
func DecodeAnswer(answer string, to any) error {
	from, end := strings.IndexByte(answer, '{'), strings.LastIndexByte(answer, '}')
	if from < 0 || end < from {
		return fmt.Errorf("%w: the answer holds no JSON object", sheaf.ErrInvalid)
	}
	if err := json.Unmarshal([]byte(answer[from:end+1]), to); err != nil {
		return fmt.Errorf("%w: the answer is no JSON as it was asked for: %s", sheaf.ErrInvalid, Line(err.Error(), maxNameBytes))
	}
	return nil
}

// ReadSaid reads an answer; names and texts become one clean line of limited length
// each. A type that was not requested becomes "". Errors are sheaf.ErrInvalid.
func ReadSaid(answer string, types []string) (Said, error) {
	var raw struct {
		Entities  *[]SaidEntity
		Relations []SaidRelation
	}
	if err := DecodeAnswer(answer, &raw); err != nil {
		return Said{}, err
	}
	if raw.Entities == nil {
		return Said{}, fmt.Errorf("%w: the answer has no entities, not even an empty list", sheaf.ErrInvalid)
	}
	s := Said{}
	for _, e := range *raw.Entities {
		e = SaidEntity{Name: Line(e.Name, maxNameBytes), Type: strings.ToLower(Line(e.Type, maxTypeBytes)), Description: Line(e.Description, maxDescription)}
		if !slices.Contains(types, e.Type) {
			e.Type = ""
		}
		if Key(e.Name) != "" && len(s.Entities) < maxPerChunk {
			s.Entities = append(s.Entities, e)
		}
	}
	for _, r := range raw.Relations {
		r = SaidRelation{Source: Line(r.Source, maxNameBytes), Target: Line(r.Target, maxNameBytes), Description: Line(r.Description, maxDescription)}
		if Key(r.Source) != "" && Key(r.Target) != "" && len(s.Relations) < maxSaidRelations {
			s.Relations = append(s.Relations, r)
		}
	}
	return s, nil
}

const maxSaidRelations = 500 // per chunk

// SplitSaid splits a model's answer about n passages: for each, the answer for that
// passage alone, or "" if it is missing or has no entities.
func SplitSaid(answer string, n int) []string {
	out := make([]string, n)
	var all struct{ Passages []json.RawMessage }
	if DecodeAnswer(answer, &all) != nil {
		return out
	}
	for _, raw := range all.Passages[:min(len(all.Passages), n)] {
		var of struct {
			Passage  int
			Entities *[]SaidEntity
		}
		if json.Unmarshal(raw, &of) == nil && of.Entities != nil && of.Passage >= 1 && of.Passage <= n && out[of.Passage-1] == "" {
			out[of.Passage-1] = string(raw)
		}
	}
	return out
}

// Add appends what a model said about another part of the same text.
func (s *Said) Add(more Said) {
	s.Entities, s.Relations = append(s.Entities, more.Entities...), append(s.Relations, more.Relations...)
}

// Line is Clean limited to most bytes.
func Line(s string, most int) string {
	if len(s) > 8*most { // the far end is not examined
		s = strings.ToValidUTF8(s[:8*most], "")
	}
	if s = Clean(s); len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = strings.TrimSpace(s[:most])
	}
	return s
}

// Relate relates the entities that occur in the same sentence of the text.
func (s *Said) Relate(text string, lines bool) {
	s.Relations = nil
	seen := map[[2]int]bool{}
	n := 0
	for sentence := range sentences(text, lines) {
		if n++; n > maxSentences {
			return
		}
		lower := strings.ToLower(Clean(sentence))
		var here []int
		for i := range s.Entities {
			if strings.Contains(lower, Key(s.Entities[i].Name)) && len(here) < maxPerSentence {
				here = append(here, i)
			}
		}
		for i, a := range here {
			for _, b := range here[i+1:] {
				if !seen[[2]int{a, b}] && len(s.Relations) < maxSaidRelations {
					seen[[2]int{a, b}] = true
					s.Relations = append(s.Relations, SaidRelation{Source: s.Entities[a].Name, Target: s.Entities[b].Name})
				}
			}
		}
	}
}

// Told is what a model stated beyond what rules can find.
type Told struct {
	Types     []string // per mention; "" for none
	Mentions  []string // descriptions, per mention
	Relations []string // descriptions, per link
}

// Extraction converts a model's statements to a chunk's contribution to a graph:
// the chunk counts as one sentence. Names that splits keep apart are separate
// mentions.
func (s Said) Extraction(splits *Splits) Extraction {
	x := Extraction{Sentences: 1, Told: &Told{}}
	at := map[string]int{}
	mention := func(name, kind, about string) int {
		key := splits.Key(name)
		i, known := at[key]
		if !known {
			if len(x.Mentions) == maxPerChunk {
				return -1
			}
			i = len(x.Mentions)
			at[key] = i
			x.Mentions = append(x.Mentions, Mention{Key: unique.Make(key), Name: unique.Make(name), Count: 1})
			x.Told.Types, x.Told.Mentions = append(x.Told.Types, kind), append(x.Told.Mentions, about)
		}
		return i
	}
	for _, e := range s.Entities {
		mention(e.Name, e.Type, e.Description)
	}
	links := map[[2]int]bool{}
	for _, r := range s.Relations {
		a, b := mention(r.Source, "", ""), mention(r.Target, "", "")
		if a > b {
			a, b = b, a
		}
		if a < 0 || a == b || links[[2]int{a, b}] {
			continue
		}
		links[[2]int{a, b}] = true
		x.Links = append(x.Links, Link{uint8(a), uint8(b), 1})
		x.Told.Relations = append(x.Told.Relations, r.Description)
	}
	return x
}

// Metadata of a run's stored result for a chunk: the chunk's id and its range.
const (
	ofChunk = "chunk_id"
	ofRange = "range_id"
)

// Pack converts a model's statements about a chunk to the form that a run stores
// for a document. They are not searched.
func Pack(said Said, of *sheaf.Chunk) sheaf.Chunk {
	b, _ := json.Marshal(said) // strings always encode
	return sheaf.Chunk{Kind: sheaf.ChunkText, Text: string(b), Pages: of.Pages, Boxes: of.Boxes, Metadata: map[string]string{ofChunk: of.ID, ofRange: of.RangeID}}
}

// Unpack reads the results of Pack for the chunks of a document.
func Unpack(stored []sheaf.Chunk, splits *Splits) ([]Contribution, error) {
	out := make([]Contribution, len(stored))
	for i := range stored {
		c := &stored[i]
		var said Said
		if err := json.Unmarshal([]byte(c.Text), &said); err != nil || c.Metadata[ofChunk] == "" {
			return nil, fmt.Errorf("%w: what a model said of chunk %s does not decode", sheaf.ErrInvalid, c.Metadata[ofChunk])
		}
		out[i] = Contribution{Source: Source{DocumentID: c.DocumentID, RangeID: c.Metadata[ofRange], ChunkID: c.Metadata[ofChunk], Pages: c.Pages, Boxes: c.Boxes}, Extraction: said.Extraction(splits)}
	}
	return out, nil
}

// About is a chunk's statement about an entity or relation, in a model's words.
type About struct {
	Chunk int32 // in Sources
	Text  string
}

const maxAbout = 10 // chunks whose text is kept per entity or relation

func addAbout(all *[]About, chunk int, text string) {
	if text != "" && len(*all) < maxAbout {
		*all = append(*all, About{int32(chunk), text})
	}
}

// tell keeps a model's statements about the entities and relations of a graph.
func (g *Graph) tell(f *fold, entityOf []int32) {
	var relations map[[2]int32]int
	for i := range f.all {
		x := &f.all[i].Extraction
		if x.Told == nil {
			continue
		}
		if relations == nil {
			relations = make(map[[2]int32]int, len(g.Relations))
			for n, r := range g.Relations {
				relations[[2]int32{r.A, r.B}] = n
			}
		}
		of := f.mentions(i)
		for k, n := range of {
			if e := entityOf[n]; e >= 0 {
				g.Entities[e].Told = true
				addAbout(&g.Entities[e].About, i, x.Told.Mentions[k])
			}
		}
		for k, l := range x.Links {
			a, b := entityOf[of[l.A]], entityOf[of[l.B]]
			if n, ok := relations[[2]int32{min(a, b), max(a, b)}]; ok {
				addAbout(&g.Relations[n].About, i, x.Told.Relations[k])
			}
		}
	}
}

// Report is a model's report on a community, with the supporting chunks.
type Report struct {
	Title             string    `json:"title"`
	Summary           string    `json:"summary"`
	Rating            float64   `json:"rating"`
	RatingExplanation string    `json:"rating_explanation"`
	Findings          []Finding `json:"findings"`
	Entities          []string  `json:"entities,omitempty"` // keys of the members
	Sources           []Source  `json:"sources,omitempty"`
}

// Finding is a single statement of a report.
type Finding struct {
	Summary     string `json:"summary"`
	Explanation string `json:"explanation"`
}

const (
	maxReportText = 4000 // bytes per text of a report
	maxFindings   = 20
)

// ReadReport reads a report and limits its texts. Errors are sheaf.ErrInvalid.
func ReadReport(answer string) (Report, error) {
	var r Report
	if err := DecodeAnswer(answer, &r); err != nil {
		return r, err
	}
	r.Title, r.Summary, r.RatingExplanation = Line(r.Title, maxNameBytes), Line(r.Summary, maxReportText), Line(r.RatingExplanation, maxReportText)
	r.Entities, r.Sources = nil, nil
	r.Rating = min(max(r.Rating, 0), 10)
	r.Findings = r.Findings[:min(len(r.Findings), maxFindings)]
	for i, f := range r.Findings {
		r.Findings[i] = Finding{Line(f.Summary, maxReportText), Line(f.Explanation, maxReportText)}
	}
	if r.Title == "" || r.Summary == "" {
		return r, fmt.Errorf("%w: the report has no title or no summary", sheaf.ErrInvalid)
	}
	return r, nil
}

// Text returns the full text of a report.
func (r *Report) Text() string {
	parts := []string{r.Title, r.Summary}
	for _, f := range r.Findings {
		parts = append(parts, f.Summary, f.Explanation)
	}
	return strings.Join(parts, "\n")
}

// ReportText returns the model's input for a community, and the chunks it is based
// on, as numbers in Sources: at most reportLines entities and relations each, with
// the text of one chunk each.
func (g *Graph) ReportText(community int32) (text string, chunks []int32) {
	c := &g.Communities[community]
	var b strings.Builder
	b.WriteString("Entities:\n")
	cited := func(about []About, of []int32) string {
		said, at := cite(about, of)
		chunks = append(chunks, at)
		return said
	}
	members := map[int32]bool{}
	for _, e := range c.Entities {
		members[e] = true
	}
	for _, e := range c.Entities[:min(len(c.Entities), reportLines)] {
		n := &g.Entities[e]
		fmt.Fprintf(&b, "- %s (%s)%s\n", n.Name, n.Type, cited(n.About, n.Chunks))
	}
	b.WriteString("Relations:\n")
	related := g.among(members)
	for _, i := range related[:min(len(related), reportLines)] {
		r := &g.Relations[i]
		fmt.Fprintf(&b, "- %s – %s%s\n", g.Entities[r.A].Name, g.Entities[r.B].Name, cited(r.About, r.Chunks))
	}
	slices.Sort(chunks)
	return b.String(), slices.Compact(chunks)
}

const reportLines = 20

// cite returns one chunk's statement, and the chunk; the text is empty if no model
// stated anything.
func cite(about []About, of []int32) (said string, chunk int32) {
	if len(about) > 0 {
		return ": " + about[0].Text, about[0].Chunk
	}
	return "", of[0]
}
