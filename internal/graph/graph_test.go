package graph

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
)

func names(text, language string) []string {
	x := Extract(text, language, false, nil)
	var out []string
	for _, m := range x.Mentions {
		out = append(out, m.Name.Value())
	}
	return out
}

func TestNamesAreFound(t *testing.T) {
	for _, c := range []struct {
		language, text string
		want, not      []string
	}{
		{"en", "The European Central Bank raised rates. Dr. Angela Meyer of the Bank of England met Siemens AG in Berlin.",
			[]string{"European Central Bank", "Angela Meyer", "Bank of England", "Siemens AG", "Berlin"}, []string{"The European Central Bank", "Dr", "The"}},
		{"en", "We store data in PostgreSQL under ISO 27001. The notice period ends; the notice period counts.",
			[]string{"PostgreSQL", "ISO 27001", "notice period"}, []string{"We"}},
		{"de", "Die Deutsche Bahn AG haftet. Frau Müller vom Amt für Statistik prüft die Kündigungsfrist.",
			[]string{"Deutsche Bahn AG", "Müller", "Amt für Statistik", "Kündigungsfrist"}, []string{"Die", "Die Deutsche Bahn AG", "Frau"}},
		{"ja", "サンプルデータをアップロードする。", []string{"サンプルデータ", "アップロード"}, nil},
		{"en", "Alice met Bob, Carol and\u202e Dave\u202c.", []string{"Bob", "Carol", "Dave"}, []string{"Bob Carol"}},
	} {
		got := names(c.text, c.language)
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				t.Errorf("%q: %q has no %q", c.text, got, w)
			}
		}
		for _, w := range c.not {
			if slices.Contains(got, w) {
				t.Errorf("%q: %q has %q", c.text, got, w)
			}
		}
	}
}

func TestTypesFollowTheWordsOfANamesEnd(t *testing.T) {
	got := map[string]Type{}
	for _, m := range Extract("Siemens AG hired Dr. Meyer in Berlin for the notice period.", "en", false, nil).Mentions {
		got[m.Key.Value()] = m.Type
	}
	want := map[string]Type{"siemens ag": TypeOrganization, "meyer": TypePerson, "berlin": TypeName, "notice period": TypeTerm}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestHostileTextIsBounded(t *testing.T) {
	long := "A" + strings.Repeat("b", 1<<20)
	for _, text := range []string{long, long + " met Bob", strings.Repeat("Anna Berta ", 100_000), strings.Repeat("A.", 500_000), strings.Repeat("Xx, ", 300_000), "\xff\xfeBob\u202eevil\x00 Corp", strings.Repeat("\n", 1<<20)} {
		x := Extract(text, "", false, nil)
		if len(x.Mentions) > maxPerChunk || len(x.Links) > maxPerChunk*maxPerChunk {
			t.Errorf("%d mentions and %d links of %.20q", len(x.Mentions), len(x.Links), text)
		}
		for _, m := range x.Mentions {
			for _, s := range []string{m.Key.Value(), m.Name.Value()} {
				if len(s) > maxNameBytes || strings.ContainsAny(s, "\u202e\x00\ufffd\n") {
					t.Errorf("a name of %d bytes: %.40q", len(s), s)
				}
			}
		}
	}
}

func FuzzExtract(f *testing.F) {
	f.Add("Dr. Angela Meyer of the Bank of England.", "en")
	f.Add("サンプルデータをU.S.-A\u202e", "")
	f.Fuzz(func(t *testing.T, text, language string) {
		x := Extract(text, language, len(text)%2 == 0, nil)
		for _, l := range x.Links {
			if l.A >= l.B || int(l.B) >= len(x.Mentions) || l.Count < 1 {
				t.Fatalf("a link is %+v of %d", l, len(x.Mentions))
			}
		}
		for _, m := range x.Mentions {
			if m.Count < 1 || m.Key.Value() == "" || m.Name.Value() == "" {
				t.Fatalf("a mention is %+v", m)
			}
		}
	})
}

// chunk makes a contribution of a text.
func chunk(doc, id, text string) Contribution {
	return Contribution{Source: Source{DocumentID: doc, RangeID: doc + "-r", ChunkID: id, Pages: []int{1}, Boxes: []sheaf.Box{{Page: 1, X1: 10, Y1: 10}}}, Extraction: Extract(text, "en", false, nil)}
}

// stories are two subjects that one person ties together.
func stories() []Contribution {
	return []Contribution{
		chunk("d1", "c1", "So Alice Smith, Acme Corp signed with Globex Inc in Paris. So Acme Corp paid Globex Inc."),
		chunk("d1", "c2", "So Acme Corp and Globex Inc met in Paris. So Alice Smith told Acme Corp."),
		chunk("d2", "c3", "The Information Technology (IT) unit runs PostgreSQL. Our IT unit runs Linux under PostgreSQL."),
		chunk("d2", "c4", "With Linux and PostgreSQL the Information Technology unit is happy. They told Bob Jones of Linux."),
		chunk("d3", "c5", "So Bob Jones saw Linux and PostgreSQL."),
	}
}

func TestAGraphNamesWhatSupportsIt(t *testing.T) {
	g := Build(stories(), Options{WeakestShare: -1})
	acme, ok := g.Find("ACME Corp")
	if !ok {
		t.Fatalf("no Acme Corp in %+v", g.Entities)
	}
	globex, _ := g.Find("globex inc")
	linux, _ := g.Find("Linux")
	if e := g.Entities[acme]; e.Type != TypeOrganization.String() || e.Count != 4 || len(e.Chunks) != 2 || g.Sources[e.Chunks[0]].ChunkID != "c1" {
		t.Errorf("Acme Corp is %+v", e)
	}
	if g.Entities[acme].Community != g.Entities[globex].Community || g.Entities[acme].Community == g.Entities[linux].Community {
		t.Errorf("communities: Acme %d, Globex %d, Linux %d", g.Entities[acme].Community, g.Entities[globex].Community, g.Entities[linux].Community)
	}
	if it, ok := g.Find("IT"); !ok || g.Entities[it].Key != "information technology" {
		t.Errorf("IT is no Information Technology: unions %+v", g.Unions)
	}
	var ranks float64
	for _, e := range g.Entities {
		ranks += e.Rank
	}
	if math.Abs(ranks-1) > 1e-6 {
		t.Errorf("ranks add up to %g", ranks)
	}
}

func TestEveryComponentHasItsCommunities(t *testing.T) {
	g := Build(stories(), Options{WeakestShare: -1})
	for _, e := range g.Entities {
		if e.Community < 0 || !slices.ContainsFunc(g.Communities[e.Community].Entities, func(i int32) bool { return g.Entities[i].Key == e.Key }) {
			t.Errorf("%s is in community %d", e.Name, e.Community)
		}
	}
}

func TestAnAcronymOfTwoNamesIsNeither(t *testing.T) {
	g := Build([]Contribution{
		chunk("d", "1", "So IT means Information Technology. Also IT means Internal Transport."),
		chunk("d", "2", "So IT means Information Technology. Also IT means Internal Transport."),
	}, Options{})
	if it, ok := g.Find("it"); !ok || g.Entities[it].Key != "it" {
		t.Errorf("IT was taken as another: %+v", g.Unions)
	}
}

// TestAGraphIsWhatItsChunksMake: chunks come and go in any order; the graph is
// that of those which are left, and of none nothing.
func TestAGraphIsWhatItsChunksMake(t *testing.T) {
	words := []string{"Acme Corp", "Globex Inc", "Alice Smith", "Bob Jones", "Linux", "PostgreSQL", "Information Technology", "IT", "notice period", "notice periods"}
	rapid.Check(t, func(t *rapid.T) {
		var all []Contribution
		for i := range rapid.IntRange(0, 12).Draw(t, "chunks") {
			var b strings.Builder
			for range rapid.IntRange(1, 3).Draw(t, "sentences") {
				b.WriteString("there")
				for range rapid.IntRange(1, 4).Draw(t, "names") {
					b.WriteString(", " + rapid.SampledFrom(words).Draw(t, "name"))
				}
				b.WriteString(". ")
			}
			all = append(all, chunk(fmt.Sprint("d", i%3), fmt.Sprint("c", i), b.String()))
		}
		held := map[string]Contribution{}
		left := slices.Clone(all)
		for _, at := range rapid.Permutation(indexes(len(all))).Draw(t, "order") {
			held[all[at].Source.ChunkID] = all[at]
		}
		gone := rapid.IntRange(0, len(all)).Draw(t, "gone")
		for _, c := range all[:gone] {
			delete(held, c.Source.ChunkID)
		}
		left = left[gone:]
		var now []Contribution
		for _, c := range held {
			now = append(now, c) // in any order
		}
		got, want := Build(now, Options{}), Build(left, Options{})
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the graph depends on its history:\n%+v\n%+v", got, want)
		}
		for _, e := range got.Entities {
			if len(e.Chunks) == 0 {
				t.Fatalf("nothing supports %s", e.Name)
			}
		}
		for _, r := range got.Relations {
			if len(r.Chunks) == 0 || r.A >= r.B {
				t.Fatalf("a relation is %+v", r)
			}
		}
		if len(left) == 0 && len(got.Entities)+len(got.Relations)+len(got.Communities) > 0 {
			t.Fatalf("of nothing: %+v", got)
		}
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestTheLeastSupportedAreDropped(t *testing.T) {
	var all []Contribution
	for i := range 30 {
		text := ""
		for range 2 + i {
			text += fmt.Sprintf("So Person%dX met Place%dX. ", i, i)
		}
		all = append(all, chunk("d", fmt.Sprint(i), text))
	}
	g := Build(all, Options{MaxEntities: 20, MaxRelations: 5, WeakestShare: -1})
	if g.DroppedEntities != 40 || g.DroppedRelations != 5 || len(g.Relations) != 5 {
		t.Fatalf("dropped %d entities and %d relations; %d left", g.DroppedEntities, g.DroppedRelations, len(g.Relations))
	}
	if _, ok := g.Find("person29x"); !ok {
		t.Error("the best supported went")
	}
}

func TestSearchesOfAGraph(t *testing.T) {
	g := Build(stories(), Options{WeakestShare: -1})
	a := g.Local("who signed with globex?", 3)
	if len(a.Chunks) == 0 || g.Sources[a.Chunks[0].At].DocumentID != "d1" || g.Entities[a.Entities[0].At].Key != "globex inc" {
		t.Errorf("local: %+v", a)
	}
	if a := g.Local("nothing of this kind", 3); len(a.Chunks)+len(a.Entities) != 0 {
		t.Errorf("of nothing: %+v", a)
	}
	a = g.Global("what is this about?", nil, 4)
	docs := map[string]bool{}
	for _, c := range a.Chunks {
		docs[g.Sources[c.At].DocumentID] = true
	}
	if len(a.Communities) < 2 || !docs["d1"] || !docs["d2"] {
		t.Errorf("global: %+v of %v", a, docs)
	}
	if got := g.Suggest("globx acme", 3); !slices.Contains(got, "Acme Corp") {
		t.Errorf("suggested %q", got)
	}
	acme, _ := g.Find("acme corp")
	p := g.Around(acme, 1, 2)
	if len(p.Entities) != 2 || !p.More || p.Entities[0] != acme || len(p.Relations) == 0 {
		t.Errorf("around Acme: %+v", p)
	}
	if p := g.Around(acme, 3, 100); slices.ContainsFunc(p.Entities, func(i int32) bool { return g.Entities[i].Key == "linux" }) {
		t.Error("what Acme never stands with is near it")
	}
}

// TestLouvainFindsPlantedGroups: groups that were made denser inside are found,
// in every component, and equal turns give equal groups.
func TestLouvainFindsPlantedGroups(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const groups, size = 8, 25
	var relations []Relation
	for a := range int32(groups * size) {
		for b := a + 1; b < groups*size; b++ {
			same := a/size == b/size
			if same && random.Float64() < 0.4 || !same && a/size/4 == b/size/4 && random.Float64() < 0.01 { // two components of four groups
				relations = append(relations, Relation{A: a, B: b, Weight: 1 + random.Float64()})
			}
		}
	}
	turns := make([]uint64, groups*size)
	for i := range turns {
		turns[i] = random.Uint64()
	}
	levels := Louvain(groups*size, relations, turns)
	of := levels[len(levels)-1]
	for i, c := range of {
		if c != of[i/size*size] {
			t.Fatalf("node %d is in %d, its group in %d", i, c, of[i/size*size])
		}
	}
	if n := slices.Max(of) + 1; n != groups {
		t.Errorf("%d groups of %d", n, groups)
	}
	if !reflect.DeepEqual(levels, Louvain(groups*size, relations, turns)) {
		t.Error("equal turns give other groups")
	}
	planted := make([]int32, len(of))
	for i := range planted {
		planted[i] = int32(i / size)
	}
	if got, want := Modularity(len(of), relations, of), Modularity(len(of), relations, planted); got < want-1e-9 {
		t.Errorf("modularity %g, of the planted groups %g", got, want)
	}
}

// TestPageRankSolvesItsEquation: the ranks are where a step changes nothing.
// Communities far from what changed stay: what was said of them is paid for.
func TestAChangeLeavesCommunitiesFarFromItAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const topics, docs = 40, 160
	var all []Contribution
	for d := range docs {
		for c := range 6 {
			var text strings.Builder
			for range 5 { // names of its topic, and now and then of another
				topic := d % topics
				if random.IntN(12) == 0 {
					topic = random.IntN(topics)
				}
				fmt.Fprintf(&text, "Topic%dx%d met Topic%dx%d. ", topic, random.IntN(9), topic, random.IntN(9))
			}
			all = append(all, chunk(fmt.Sprint("d", d), fmt.Sprint("c", d, "-", c), text.String()))
		}
	}
	groups := func(all []Contribution) map[string]bool {
		g, out := Build(all, Options{}), map[string]bool{}
		for _, c := range g.Communities {
			if c.Level == 0 {
				var keys []string
				for _, e := range c.Entities {
					keys = append(keys, g.Entities[e].Key)
				}
				slices.Sort(keys)
				out[strings.Join(keys, " ")] = true
			}
		}
		return out
	}
	before := groups(all)
	if len(before) < topics/2 {
		t.Fatalf("%d communities of %d topics", len(before), topics)
	}
	others := 0
	for d := range 10 {
		after := groups(slices.DeleteFunc(slices.Clone(all), func(c Contribution) bool { return c.Source.DocumentID == fmt.Sprint("d", d) }))
		for key := range after {
			if !before[key] {
				others++
			}
		}
	}
	// Each time a document goes, with names of its topic and a few of others.
	if t.Logf("%d of %d communities are others", others, 10*len(before)); others > len(before)/2 {
		t.Errorf("%d of %d communities are others after one of %d documents went, ten times", others, 10*len(before), docs)
	}
}

func TestPageRankSolvesItsEquation(t *testing.T) {
	relations := []Relation{{A: 0, B: 1, Weight: 2}, {A: 0, B: 2, Weight: 1}, {A: 3, B: 4, Weight: 5}}
	ranks := PageRank(6, relations) // the last stands alone
	weight := []float64{3, 2, 1, 5, 5, 0}
	for i := range ranks {
		want := 0.15/6 + 0.85*ranks[5]/6
		for _, r := range relations {
			if int(r.A) == i {
				want += 0.85 * ranks[r.B] * r.Weight / weight[r.B]
			}
			if int(r.B) == i {
				want += 0.85 * ranks[r.A] * r.Weight / weight[r.A]
			}
		}
		if math.Abs(ranks[i]-want) > 1e-7 {
			t.Errorf("node %d has %g, its equation says %g", i, ranks[i], want)
		}
	}
}

func TestGraphMLIsWellFormedAndHidesWhatMayNotBeShown(t *testing.T) {
	all := append(stories(), chunk("d4", "c6", "So Tom&Jerry met Globex Inc in Paris. So Tom&Jerry met Globex Inc in Paris."))
	g := Build(all, Options{WeakestShare: -1})
	var out bytes.Buffer
	if err := g.WriteGraphML(&out, func(s Source) bool { return s.DocumentID != "d2" }); err != nil {
		t.Fatal(err)
	}
	for dec := xml.NewDecoder(&out); ; {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	_ = g.WriteGraphML(&out, func(s Source) bool { return s.DocumentID != "d2" })
	if s := out.String(); strings.Contains(s, "Information Technology") || strings.Contains(s, "c3") || !strings.Contains(s, "Tom&amp;Jerry") || !strings.Contains(s, "c6") {
		t.Errorf("the export is\n%s", s)
	}
}
