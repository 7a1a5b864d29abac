package executor_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/chunker"
	"sheaf/executor"
	"sheaf/internal/graph"
	"sheaf/internal/graphs"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// reads answers as a model that reads graphs: what has a capital is an entity, and
// those that follow each other are related. Of passages each is read alone, and two
// entities are one where both names begin with the same three letters.
func reads(instruction, text string) string {
	text, _, _ = strings.Cut(text, "\n\n(")
	if strings.HasPrefix(instruction, "You decide") {
		lines := strings.Split(text, "\n")
		return fmt.Sprintf(`{"same": %t}`, lines[0][:5] == lines[1][:5])
	}
	if strings.HasPrefix(instruction, "The text is passages") {
		var all []string
		for i, passage := range passagesOf(text) {
			all = append(all, strings.Replace(reads("", passage), "{", fmt.Sprintf(`{"passage": %d, `, i+1), 1))
		}
		return `{"passages": [` + strings.Join(all, ", ") + `]}`
	}
	if strings.HasPrefix(instruction, "You report") {
		lines := strings.Split(text, "\n")
		title := strings.Fields(strings.TrimPrefix(lines[1], "- "))[0]
		b, _ := json.Marshal(graph.Report{Title: "About " + title, Summary: "A community of reservoirs around " + title, Rating: 5, Findings: []graph.Finding{{Summary: "x", Explanation: "y"}}})
		return "```json\n" + string(b) + "\n```"
	}
	var s graph.Said
	last := ""
	for _, w := range strings.Fields(text) {
		w = strings.Trim(w, ".,")
		if w == "" || w[0] < 'A' || w[0] > 'Z' || w == last {
			continue
		}
		s.Entities = append(s.Entities, graph.SaidEntity{Name: w, Type: "Person", Description: w + " acts in: " + text})
		if last != "" {
			s.Relations = append(s.Relations, graph.SaidRelation{Source: last, Target: w, Description: last + " meets " + w})
		}
		last = w
	}
	b, _ := json.Marshal(s)
	return string(b)
}

// passagesOf are those that a text is put together of; the text itself of one.
func passagesOf(text string) []string {
	if !strings.HasPrefix(text, "[1]\n") {
		return []string{text}
	}
	parts := strings.Split(text, "\n\n[")
	for i := range parts {
		_, parts[i], _ = strings.Cut(parts[i], "]\n")
	}
	return parts
}

func newGraphs(t *testing.T, docs ...[]string) *trees {
	t.Helper()
	f := newTrees(t, docs...)
	f.kind, f.asks = sheaf.KindGraphRAG, true
	f.model.Reply(reads)
	return f
}

// view is the graph of the dataset as it is now.
func (f *trees) view() (*graphs.Service, *graphs.View) {
	f.T.Helper()
	s := &graphs.Service{Store: f.Store, Blobs: f.blobs, Bounds: graphs.Bounds{Fresh: time.Nanosecond, Wait: time.Minute}}
	v, err := s.View(f.T.Context(), "acme", f.docs[0].Dataset)
	f.OK(err)
	return s, v
}

func graphResult(t *testing.T, r *taskstore.DatasetRun) (out executor.GraphResult) {
	t.Helper()
	if err := json.Unmarshal(r.Result, &out); err != nil {
		t.Fatalf("%s: %v: %+v", r.Result, err, r)
	}
	return out
}

// families are n documents of chunks about people who meet within one family.
func families(n, chunks int) [][]string {
	out := make([][]string, n)
	for d := range out {
		for c := range chunks {
			out[d] = append(out[d], fmt.Sprintf("Anna%d met Bert%d and Carl%d in year %d.", d, d, d, 1900+c))
		}
	}
	return out
}

// The model's entities, relations and reports are searched, cite chunks with
// pages, and go with their documents at once.
func TestGraphOfAModelIsSearchedAndFollowsDocuments(t *testing.T) {
	f := newGraphs(t, families(3, 2)...)
	r := f.run(config(`{"method": "general"}`))
	out := graphResult(t, r)
	if r.State != taskstore.RunSucceeded || out.Documents != 3 || out.Chunks != 6 || out.Entities != 9 || out.Communities != 3 || out.Reports != 3 || r.Progress.Calls != 6 { // the two chunks of a document in one
		t.Fatalf("%+v of %+v", out, r)
	}
	ds := f.docs[0].Dataset
	all := func(*search.Hit) bool { return true }
	s, _ := f.view()
	hits, info, err := s.FindInGraph(t.Context(), "acme", ds, "Anna1", search.GraphLocal, 10, all)
	f.OK(err)
	if len(hits) != 2 || hits[0].Document.ID != f.docs[1].ID || len(hits[0].Chunk.Pages) == 0 || len(info.Entities) != 2 || info.Entities[0].Type != "person" || !strings.Contains(info.Entities[0].Description, "Anna1 acts in") || info.Relations[0].Description == "" {
		t.Fatalf("local: %d hits, %+v", len(hits), info)
	}
	hits, info, err = s.FindInGraph(t.Context(), "acme", ds, "which reservoirs are there", search.GraphGlobal, 10, all)
	f.OK(err)
	if len(info.Communities) != 3 || len(hits) != 6 { // every component has its report
		t.Fatalf("global: %d hits, %+v", len(hits), info.Communities)
	}
	for _, c := range info.Communities {
		if c.Report == nil || len(c.Report.Sources) == 0 || len(c.Report.Sources[0].Pages) == 0 || !strings.HasPrefix(c.Report.Title, "About") {
			t.Errorf("the report of %s: %+v", c.Title, c.Report)
		}
	}
	// A graph that is held follows; a document parsed anew is read by rules until
	// the next run.
	asked := len(f.model.Asked())
	_, err = f.Store.DeleteDocuments(t.Context(), "acme", []string{f.docs[0].ID})
	f.OK(err)
	f.change(f.docs[1], []string{"Dora1 met Emil1.", families(2, 1)[1][0]})
	_, info, err = s.FindInGraph(t.Context(), "acme", ds, "Anna0 Anna1 Anna2", search.GraphLocal, 10, all)
	f.OK(err)
	b, _ := json.Marshal(info)
	if strings.Contains(string(b), "Anna0") || strings.Contains(string(b), "Carl1 acts") || !strings.Contains(string(b), "Anna2 acts in") {
		t.Errorf("after a change: %s", b)
	}
	if n := len(f.model.Asked()); n != asked {
		t.Errorf("a deletion asked %d questions", n-asked)
	}
	next := f.run(config(`{"method": "light"}`))
	if got := graphResult(t, next); next.Progress.Calls != 1 || got.Kept != 1 || got.Made != 1 {
		t.Errorf("the next run made %d calls: %+v", next.Progress.Calls, got)
	}
	_, v := f.view()
	if _, ok := v.Graph.Find("Dora1"); !ok {
		t.Error("a changed document is not in the graph")
	}
	if n := f.Int("SELECT COUNT(*) FROM run_results WHERE layer>0"); n != 0 {
		t.Errorf("%d reports are left that were not asked for", n)
	}
	f.run(config(`{"method": "cooccurrence"}`))
	if n := f.Int("SELECT COUNT(*) FROM run_results"); n != 0 {
		t.Errorf("%d results are left of a method that stores none", n)
	}
}

// Of 200 documents one changes: at most 2 % of the calls of the first run are made.
// Deleting 17 of them makes none.
func TestGraphIsIncremental(t *testing.T) {
	f := newGraphs(t, families(200, 3)...)
	first := f.run(config(`{"method": "general"}`))
	if first.State != taskstore.RunSucceeded || first.Progress.Calls != 400 || len(f.twice()) > 0 {
		t.Fatalf("%+v, twice %q", first, f.twice())
	}
	f.change(f.docs[7], append(families(8, 2)[7], "Anna7 met Fritz7 on the last day."))
	second := f.run(config(`{"method": "general"}`))
	t.Logf("first run %d calls, after one of 200 documents changed %d", first.Progress.Calls, second.Progress.Calls)
	if second.State != taskstore.RunSucceeded || second.Progress.Calls == 0 || 50*second.Progress.Calls > first.Progress.Calls {
		t.Errorf("%d calls of %d", second.Progress.Calls, first.Progress.Calls)
	}
	var gone []string
	for _, d := range f.docs[20:37] {
		gone = append(gone, d.ID)
	}
	_, err := f.Store.DeleteDocuments(t.Context(), "acme", gone)
	f.OK(err)
	third := f.run(config(`{"method": "general"}`))
	t.Logf("after 17 of 200 were deleted %d", third.Progress.Calls)
	if got := graphResult(t, third); third.Progress.Calls != 0 || got.Documents != 183 || got.Reports != 183 {
		t.Errorf("after deletions: %d calls, %+v", third.Progress.Calls, got)
	}
}

// Wherever a run ends, nothing is paid for twice, and all of it is there in the end.
func TestGraphIsCutOffAnywhere(t *testing.T) {
	f := newGraphs(t, families(3, 3)...)
	r := f.start(config(`{"method": "general"}`))
	cuts := f.cutOff(r)
	got := f.read(r.ID)
	if twice := f.twice(); len(twice) > 0 || cuts < 5 || len(f.model.Asked()) != 6 {
		t.Errorf("after %d cuts %d questions, asked more than once: %q", cuts, len(f.model.Asked()), twice)
	}
	if out := graphResult(t, got); got.State != taskstore.RunSucceeded || out.Reports != 3 || out.Documents != 3 {
		t.Errorf("%+v", got)
	}
}

// An answer that is no JSON is asked for again; a chunk that the model fails at is
// told, is read by rules, and is all that a resumed run asks for.
func TestFailedChunksAreToldAndTriedAgain(t *testing.T) {
	f := newGraphs(t, []string{"Anna met Bert.", "Broken Carl met Dora. Broken Carl left."})
	var broken atomic.Int32
	f.model.Reply(func(instruction, text string) string {
		if passages := passagesOf(text); len(passages) > 1 { // the answer leaves the second out
			return `{"passages": [` + strings.Replace(reads("", passages[0]), "{", `{"passage": 1, `, 1) + `, {"passage": 2}, {"passage": 7, "entities": []}]}`
		}
		if strings.HasPrefix(text, "Broken") && broken.Add(1) <= 3 {
			return `{"entities": [{"name": "Carl`
		}
		return reads(instruction, text)
	})
	r := f.run(config(`{"method": "light"}`))
	out := graphResult(t, r)
	if r.State != taskstore.RunPartial || out.Failed != 1 || out.Chunks != 1 || len(out.Reasons) != 1 || out.Reasons[0].Code != "chat_bad_answer" || out.Reasons[0].ChunkID == "" || broken.Load() != 3 || r.Progress.Calls != 4 {
		t.Fatalf("%+v: %s", r, r.Result)
	}
	_, v := f.view()
	if _, ok := v.Graph.Find("Anna"); !ok {
		t.Error("what the model read is not there")
	}
	_, err := f.Store.ResumeRun(t.Context(), "acme", f.docs[0].Dataset, r.ID, r.Options, "")
	f.OK(err)
	f.OK(f.attempt(t.Context(), r, f.Store))
	got := f.read(r.ID)
	if got.State != taskstore.RunSucceeded || got.Progress.Calls != 5 || graphResult(t, got).Chunks != 2 {
		t.Errorf("resumed: %+v: %s", got, got.Result)
	}
	_, v = f.view()
	if _, ok := v.Graph.Find("Dora"); !ok {
		t.Error("what the model read at last is not there")
	}
}

// At its budget a run parks with what it has in the graph.
func TestParkedGraphHasWhatItPaidFor(t *testing.T) {
	f := newGraphs(t, families(4, 1)...)
	o := config(`{"method": "light"}`)
	o.MaxTokens = 2700
	r := f.run(o)
	if r.State != taskstore.RunParked || r.Progress.Tokens > o.MaxTokens || r.Progress.Calls == 0 || r.Progress.Calls >= 4 {
		t.Fatalf("%+v", r)
	}
	_, v := f.view()
	told := slices.ContainsFunc(v.Graph.Entities, func(e graph.Entity) bool { return e.Told })
	if !told {
		t.Error("nothing that was paid for is in the graph")
	}
	o.MaxTokens = 0
	_, err := f.Store.ResumeRun(t.Context(), "acme", f.docs[0].Dataset, r.ID, o, "")
	f.OK(err)
	f.OK(f.attempt(t.Context(), r, f.Store))
	if got := f.read(r.ID); got.State != taskstore.RunSucceeded || got.Progress.Calls != 4 || len(f.twice()) > 0 {
		t.Errorf("%+v", got)
	}
}

// The entities of ner are related by their sentences.
func TestNamedEntitiesAreRelatedBySentences(t *testing.T) {
	f := newGraphs(t, []string{"Anna met Bert. Carl slept."})
	f.run(config(`{"method": "ner", "entity_types": ["Person"]}`))
	_, v := f.view()
	if g := v.Graph; len(g.Entities) != 3 || len(g.Relations) != 1 || g.Entities[g.Relations[0].A].Key+g.Entities[g.Relations[0].B].Key == "" {
		t.Errorf("%+v, %+v", g.Entities, g.Relations)
	}
}

// batch_chunk_token_size bounds the text of one call; what is longer is read in
// parts, and all of it. Neither another size nor a neighbour that changes has the
// model read anything again.
func TestChunksAreReadTogetherWithinABound(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("Zeno met Yves near the old mill. ", 200))
	texts := []string{long}
	for i := range 12 {
		texts = append(texts, fmt.Sprintf("Anna%d met Bert%d. %s", i, i, strings.Repeat("They talked for a long while. ", 30)))
	}
	f := newGraphs(t, texts)
	words := func() (n int) {
		for _, text := range f.model.Asked() {
			for _, passage := range passagesOf(text) {
				n += len(strings.Fields(passage))
			}
		}
		return n
	}
	first := f.run(config(`{"batch_chunk_token_size": 512}`))
	together := 0
	for _, text := range f.model.Asked() {
		passages := passagesOf(text)
		together = max(together, len(passages))
		tokens := 0
		for _, passage := range passages {
			tokens += chunker.CountTokens(passage)
		}
		if tokens > 512 {
			t.Errorf("a call has %d tokens of chunks: %.60q", tokens, text)
		}
	}
	if want := len(strings.Fields(strings.Join(texts, " "))); first.State != taskstore.RunSucceeded || together < 2 || words() != want || graphResult(t, first).Chunks != 13 {
		t.Fatalf("%+v: at most %d together, %d words of %d were read", first, together, words(), want)
	}
	f.change(f.docs[0], append([]string{"Dora met Emil."}, texts[1:]...))
	asked := len(f.model.Asked())
	second := f.run(config(`{"batch_chunk_token_size": 8196}`))
	if now := f.model.Asked()[asked:]; second.Progress.Calls != 1 || len(now) != 1 || now[0] != "Dora met Emil." {
		t.Errorf("after one of 13 chunks changed: %q", now)
	}
	if _, err := graph.ReadRunOptions([]byte(`{"batch_chunk_token_size": 100}`)); err == nil {
		t.Error("a size below the bound is taken")
	}
}

// Without resolution no model is asked which entities are one, and none is merged
// by it. With it those are that the model says so of, and of no others; a split
// undoes it, and a document that goes takes it along.
func TestResolutionMergesWhatTheModelSays(t *testing.T) {
	docs := [][]string{{"Katherine met Bert."}, {"Katharine met Carl."}, {"Kathariny met Dora."}, {"Jean-Luc met Emil.", "Jeanluc met Fritz."}}
	f := newGraphs(t, docs...)
	decides := func() (n int) {
		for _, text := range f.model.Asked() {
			if strings.HasPrefix(text, "- ") {
				n++
			}
		}
		return n
	}
	f.model.Reply(func(instruction, text string) string {
		if strings.HasPrefix(instruction, "You decide") { // a wrong yes about one pair
			return fmt.Sprintf(`{"same": %t}`, strings.Contains(text, "- Katherine") && strings.Contains(text, "- Katharine ") || strings.Contains(text, "- Katharine ") && strings.Contains(text, "- Kathariny"))
		}
		return reads(instruction, text)
	})
	f.run(config(`{"method": "light"}`))
	_, v := f.view()
	plain := len(v.Graph.Entities)
	if decides() != 0 || len(v.Graph.Unions) != 0 {
		t.Fatalf("without resolution %d questions, %+v", decides(), v.Graph.Unions)
	}
	r := f.run(config(`{"method": "light", "resolution": true}`))
	out := graphResult(t, r)
	_, v = f.view()
	asked := decides()
	if r.State != taskstore.RunSucceeded || asked == 0 || r.Progress.Calls != asked || out.Merged != 2 || len(v.Graph.Entities) != plain-2 || len(v.Graph.Unions) != 2 {
		t.Fatalf("%+v: %d questions, %d entities of %d, %+v", out, asked, len(v.Graph.Entities), plain, v.Graph.Unions)
	}
	reasons := map[string]string{}
	for _, u := range v.Graph.Unions {
		reasons[u.Reason] = u.Key + " " + u.Into
	}
	if !strings.Contains(reasons[graph.SameModel], "katharine") || !strings.Contains(reasons[graph.SameSpelling], "jeanluc") {
		t.Errorf("%q", reasons)
	}
	if again := f.run(config(`{"method": "light", "resolution": true}`)); again.Progress.Calls != 0 || graphResult(t, again).Merged != 2 {
		t.Errorf("the same run again: %+v: %s", again.Progress, again.Result)
	}
	pair := strings.Fields(reasons[graph.SameModel])
	_, err := f.Store.AddSplit(t.Context(), "acme", f.docs[0].Dataset, pair)
	f.OK(err)
	_, v = f.view()
	_, one := v.Graph.Find(pair[0])
	_, other := v.Graph.Find(pair[1])
	if len(v.Graph.Unions) != 1 || !one || !other {
		t.Errorf("after a split: %+v", v.Graph.Unions)
	}
	_, err = f.Store.DeleteDocuments(t.Context(), "acme", []string{f.docs[3].ID})
	f.OK(err)
	if _, v = f.view(); len(v.Graph.Unions) != 0 || f.Int("SELECT COUNT(*) FROM run_results WHERE layer=2") != 1 {
		t.Errorf("after a deletion: %+v", v.Graph.Unions)
	}
	f.run(config(`{"method": "light"}`))
	if n := f.Int("SELECT COUNT(*) FROM run_results WHERE layer>0"); n != 0 {
		t.Errorf("%d results of a resolution are left that was not asked for", n)
	}
}

// Wherever a run with resolution ends, no verdict is paid for twice.
func TestResolutionIsCutOffAnywhere(t *testing.T) {
	f := newGraphs(t, []string{"Katherine met Bert.", "Dora slept."}, []string{"Katharine met Carl.", "Dorothea slept."}, []string{"Kathariny met Emil."})
	r := f.start(config(`{"method": "general", "resolution": true}`))
	cuts := f.cutOff(r)
	if twice := f.twice(); len(twice) > 0 || cuts < 5 {
		t.Errorf("after %d cuts asked more than once: %q", cuts, twice)
	}
	if got := f.read(r.ID); got.State != taskstore.RunSucceeded || graphResult(t, got).Merged == 0 {
		t.Errorf("%+v: %s", got, got.Result)
	}
}
