package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/settings"
)

// mostCompared bounds the chunks per version in a comparison: both versions are
// held in memory, without vectors.
const mostCompared = 50_000

// Comparison is the difference between two versions of a document.
type Comparison struct {
	From     int              `json:"from" doc:"the older generation"`
	To       int              `json:"to"`
	Settings []SettingChange  `json:"settings" nullable:"false"`
	Counts   ComparisonCounts `json:"counts"`
	List[ChunkChange]
}

// ComparisonCounts counts the chunks of a comparison by kind of change.
type ComparisonCounts struct {
	Same    int `json:"same"`
	Changed int `json:"changed"`
	Added   int `json:"added"`
	Removed int `json:"removed"`
}

// SettingChange is a setting, or the parser, that differs.
type SettingChange struct {
	Name string          `json:"name"`
	From json.RawMessage `json:"from" doc:"null means the default"`
	To   json.RawMessage `json:"to" doc:"null means the default"`
}

// ChunkChange is one chunk of a comparison, in reading order.
type ChunkChange struct {
	Change string       `json:"change" enum:"same,changed,added,removed"`
	From   *sheaf.Chunk `json:"from,omitempty" doc:"of the older version; absent when it was added"`
	To     *sheaf.Chunk `json:"to,omitempty" doc:"of the newer version; absent when it was removed"`
}

func (s *Server) versionRoutes() {
	type in struct {
		DocumentPath
		From   int      `query:"from" minimum:"0" doc:"the older generation; 0 means the one before to"`
		To     int      `query:"to" minimum:"0" doc:"the newer generation; 0 means the live one"`
		Change []string `query:"change,explode" enum:"same,changed,added,removed" doc:"only these; repeat for OR"`
		Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"50"`
		Cursor string   `query:"cursor" format:"count-cursor"`
	}
	op := get("/v1/datasets/{ds}/documents/{doc}/compare", "Compare two versions of a document")
	op.Description = "The chunks of both in reading order, and the settings that differ. The results of a replaced version are kept for keeper.keep_versions; then the answer is 410 with code generation_gone."
	handle(s, op, func(ctx context.Context, in *in) (*output[Comparison], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		out := Comparison{To: cmp.Or(in.To, d.LiveGeneration, d.Generation)}
		out.From = cmp.Or(in.From, max(out.To-1, 1))
		if out.Settings, err = s.settingChanges(ctx, d, out.From, out.To); err != nil {
			return nil, err
		}
		older, err := s.versionChunks(ctx, d, out.From)
		if err != nil {
			return nil, err
		}
		newer, err := s.versionChunks(ctx, d, out.To)
		if err != nil {
			return nil, err
		}
		var next string
		begin := max(atoi(in.Cursor), 0)
		out.Items = []ChunkChange{}
		for i, c := range compareChunks(older, newer) {
			out.Counts.add(c.Change)
			if i < begin || len(in.Change) > 0 && !slices.Contains(in.Change, c.Change) {
				continue
			}
			if len(out.Items) == in.Limit {
				next = cmp.Or(next, fmt.Sprint(i))
				continue
			}
			out.Items = append(out.Items, c)
		}
		if next != "" {
			out.NextCursor = &next
		}
		return &output[Comparison]{out}, nil
	})
}

func (c *ComparisonCounts) add(change string) {
	switch change {
	case "same":
		c.Same++
	case "changed":
		c.Changed++
	case "added":
		c.Added++
	case "removed":
		c.Removed++
	}
}

// settingChanges lists the settings that differ between two generations, as they
// were requested: null is the default.
func (s *Server) settingChanges(ctx context.Context, d *sheaf.Document, from, to int) ([]SettingChange, error) {
	gens, err := s.cfg.Catalog.Generations(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	find := func(n int) (*sheaf.Generation, error) {
		i := slices.IndexFunc(gens, func(g sheaf.Generation) bool { return g.Generation == n })
		if i < 0 {
			return nil, noVersion(d, n)
		}
		return &gens[i], nil
	}
	a, err := find(from)
	if err != nil {
		return nil, err
	}
	b, err := find(to)
	if err != nil {
		return nil, err
	}
	out := []SettingChange{}
	hidePassword(&a.ParseConfig)
	hidePassword(&b.ParseConfig)
	for _, set := range settings.Table {
		if p, q := settingJSON(a.ParseConfig, set.Name), settingJSON(b.ParseConfig, set.Name); string(p) != string(q) {
			out = append(out, SettingChange{Name: set.Name, From: p, To: q})
		}
	}
	if a.Parser != b.Parser {
		out = append(out, SettingChange{Name: "parser", From: jsonOrNull(a.Parser, a.Parser != ""), To: jsonOrNull(b.Parser, b.Parser != "")})
	}
	return out, nil
}

func settingJSON(c sheaf.ParseConfig, name string) json.RawMessage {
	return jsonOrNull(settings.Value(c, name))
}

func jsonOrNull(v any, set bool) json.RawMessage {
	if !set {
		return json.RawMessage("null")
	}
	b, _ := json.Marshal(v) // plain fields always encode
	return b
}

// versionTasks lists a generation's tasks that made chunks, in reading order. A
// version that no longer exists, or not yet, returns a problem; with unfinished,
// one in progress returns its completed tasks.
func (s *Server) versionTasks(ctx context.Context, d *sheaf.Document, generation int, unfinished bool) ([]sheaf.Task, error) {
	wanted := 0
	if generation != d.LiveGeneration { // the live one is readable even while part of it is retried
		gens, err := s.cfg.Catalog.Generations(ctx, d.TenantID, d.ID)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(gens, func(g sheaf.Generation) bool { return g.Generation == generation })
		switch {
		case i < 0:
			return nil, noVersion(d, generation)
		case !gens[i].State.Terminal() && unfinished:
			// What is done can be read; the total is not known yet.
		case !gens[i].State.Terminal():
			return nil, newProblem(http.StatusConflict, "generation_unfinished", fmt.Sprintf("version %d is still being made; ask again when it is complete", generation))
		}
		if gens[i].State.Terminal() {
			wanted = gens[i].Chunks
		}
	}
	tasks, err := s.cfg.Catalog.Tasks(ctx, d.TenantID, d.ID, generation)
	if err != nil {
		return nil, err
	}
	held := 0
	tasks = slices.DeleteFunc(tasks, func(t sheaf.Task) bool { return t.State != sheaf.TaskDone || t.Result.Chunks == 0 })
	for i := range tasks {
		held += tasks[i].Result.Chunks
		tasks[i].Result.ArtifactKey = cmp.Or(tasks[i].Result.ArtifactKey, tasks[i].Result.FormerArtifact)
	}
	if held < wanted { // retention has removed some tasks
		return nil, generationGone(generation)
	}
	slices.SortStableFunc(tasks, func(a, b sheaf.Task) int { return cmp.Compare(a.Range.From, b.Range.From) })
	return tasks, nil
}

func noVersion(d *sheaf.Document, n int) error {
	return fmt.Errorf("%w: the document has no version %d; its newest is %d", sheaf.ErrNotFound, n, d.Generation)
}

func generationGone(n int) error {
	return newProblem(http.StatusGone, "generation_gone", fmt.Sprintf("the stored results of version %d have been removed: what a newer version replaced is kept for keeper.keep_versions. Its settings and counts are still listed under …/generations", n))
}

// versionChunks reads all chunks of a generation, in reading order.
func (s *Server) versionChunks(ctx context.Context, d *sheaf.Document, generation int) ([]sheaf.Chunk, error) {
	tasks, err := s.versionTasks(ctx, d, generation, false)
	if err != nil {
		return nil, err
	}
	var out []sheaf.Chunk
	for _, t := range tasks {
		if len(out)+t.Result.Chunks > mostCompared {
			return nil, newProblem(http.StatusUnprocessableEntity, "too_large", fmt.Sprintf("version %d has more than %d chunks, too many to compare at once; read …/chunks?generation= page by page instead", generation, mostCompared))
		}
		f, err := artifact.Load(ctx, s.cfg.Blobs, t.Result.ArtifactKey)
		if errors.Is(err, sheaf.ErrNotFound) {
			return nil, generationGone(generation)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the chunks of %s: %w", t.Range, err)
		}
		for _, c := range f.Chunks {
			c.Generation = generation
			out = append(out, c)
		}
	}
	return out, nil
}

// compareChunks aligns two lists of chunks. Identical chunks are matched in order,
// along the longest run of texts that are unique in each list; chunks between two
// matches are paired by shared words.
func compareChunks(older, newer []sheaf.Chunk) []ChunkChange {
	a, b := chunkKeys(older), chunkKeys(newer)
	out := make([]ChunkChange, 0, max(len(older), len(newer)))
	i, j := 0, 0
	for _, m := range append(matches(a, b), [2]int{len(a), len(b)}) {
		out = append(out, pairGap(older[i:m[0]], newer[j:m[1]])...)
		if m[0] < len(a) {
			out = append(out, ChunkChange{Change: "same", From: &older[m[0]], To: &newer[m[1]]})
		}
		i, j = m[0]+1, m[1]+1
	}
	return out
}

// chunkKeys returns what makes two chunks identical: not their page, which shifts
// when something is inserted before them.
func chunkKeys(chunks []sheaf.Chunk) []string {
	out := make([]string, len(chunks))
	for i, c := range chunks {
		out[i] = strings.Join(append([]string{string(c.Kind), c.Text}, c.HeadingPath...), "\x00")
	}
	return out
}

// matches aligns equal entries of two lists: first those unique in both, in their
// longest common order, then equal neighbors of those.
func matches(a, b []string) [][2]int {
	type seen struct{ inA, inB, at, to int }
	count := map[string]*seen{}
	for i, k := range a {
		if count[k] == nil {
			count[k] = &seen{}
		}
		count[k].inA++
		count[k].at = i
	}
	for j, k := range b {
		if c := count[k]; c != nil {
			c.inB++
			c.to = j
		}
	}
	var once [][2]int
	for i, k := range a {
		if c := count[k]; c.inA == 1 && c.inB == 1 {
			once = append(once, [2]int{i, c.to})
		}
	}
	var out [][2]int
	i, j := 0, 0
	for _, m := range append(increasing(once), [2]int{len(a), len(b)}) {
		for i < m[0] && j < m[1] && a[i] == b[j] { // forward from the previous match
			out = append(out, [2]int{i, j})
			i, j = i+1, j+1
		}
		var tail [][2]int
		for p, q := m[0]-1, m[1]-1; p >= i && q >= j && a[p] == b[q]; p, q = p-1, q-1 { // backward from this one
			tail = append(tail, [2]int{p, q})
		}
		slices.Reverse(tail)
		out = append(out, tail...)
		if m[0] < len(a) {
			out = append(out, m)
		}
		i, j = m[0]+1, m[1]+1
	}
	return out
}

// increasing returns the longest subsequence of pairs, ordered by their first
// number, whose second numbers increase: O(n log n), by patience sorting.
func increasing(pairs [][2]int) [][2]int {
	var tops []int // of each pile: index of its top pair
	before := make([]int, len(pairs))
	for i, p := range pairs {
		at, _ := slices.BinarySearchFunc(tops, p[1], func(top, v int) int { return cmp.Compare(pairs[top][1], v) })
		before[i] = -1
		if at > 0 {
			before[i] = tops[at-1]
		}
		if at == len(tops) {
			tops = append(tops, i)
		} else {
			tops[at] = i
		}
	}
	if len(tops) == 0 {
		return nil
	}
	out := make([][2]int, len(tops))
	for n, i := len(tops)-1, tops[len(tops)-1]; i >= 0; n, i = n-1, before[i] {
		out[n] = pairs[i]
	}
	return out
}

// A pair is sought among this many of the next chunks, and must share at least half
// of its words.
const (
	pairWindow = 4
	pairShare  = 0.5
)

// pairGap classifies the chunks between two matches as changed, added or removed.
func pairGap(older, newer []sheaf.Chunk) []ChunkChange {
	var out []ChunkChange
	j := 0
	for i := range older {
		best, share := -1, pairShare
		for k := j; k < min(j+pairWindow, len(newer)); k++ {
			if s := shared(older[i].Text, newer[k].Text); s >= share && (best < 0 || s > share) {
				best, share = k, s
			}
		}
		if best < 0 {
			out = append(out, ChunkChange{Change: "removed", From: &older[i]})
			continue
		}
		for ; j < best; j++ {
			out = append(out, ChunkChange{Change: "added", To: &newer[j]})
		}
		out = append(out, ChunkChange{Change: "changed", From: &older[i], To: &newer[j]})
		j++
	}
	for ; j < len(newer); j++ {
		out = append(out, ChunkChange{Change: "added", To: &newer[j]})
	}
	return out
}

// shared returns the fraction of words that both texts have in common, 0–1.
func shared(a, b string) float64 {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x)+len(y) == 0 {
		return 1
	}
	left := map[string]int{}
	for _, w := range x {
		left[w]++
	}
	both := 0
	for _, w := range y {
		if left[w] > 0 {
			left[w]--
			both++
		}
	}
	return float64(2*both) / float64(len(x)+len(y))
}
