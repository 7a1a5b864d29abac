package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// written makes contributions of texts, read with splits.
func written(splits *Splits, texts ...string) (out []Contribution) {
	for i, text := range texts {
		c := chunk("d", fmt.Sprintf("c%d", i), text)
		c.Extraction = Extract(text, "en", false, splits)
		out = append(out, c)
	}
	return out
}

// told makes contributions of what a model named in chunks, all of it together.
func told(splits *Splits, chunks ...[]string) (out []Contribution) {
	for i, names := range chunks {
		var s Said
		for k, n := range names {
			s.Entities = append(s.Entities, SaidEntity{Name: n, Description: n + " is told of."})
			if k > 0 {
				s.Relations = append(s.Relations, SaidRelation{Source: names[k-1], Target: n})
			}
		}
		out = append(out, Contribution{Source: Source{DocumentID: "d", RangeID: "r", ChunkID: fmt.Sprintf("c%d", i)}, Extraction: s.Extraction(splits)})
	}
	return out
}

// namesOf describes how chunks name an entity; "none" where there is none.
func namesOf(g *Graph, name string) string {
	e, ok := g.Find(name)
	if !ok {
		return "none"
	}
	out := g.Entities[e].Key
	for _, n := range g.Entities[e].Names {
		out += fmt.Sprintf(", %s %s%d", n.Name, n.Reason, len(n.Chunks))
	}
	return out
}

func TestAMergeIsToldAndUndone(t *testing.T) {
	texts := []string{
		"The Information Technology (IT) unit runs PostgreSQL. Our IT unit runs Linux.",
		"With Linux and PostgreSQL the Information Technology unit is happy. They told Bob Jones of Linux.",
		"So Acme Corp runs Server Farms. So Acme Corp likes Server Farms.",
		"So SRF likes Server Room Fans. So SRF met Acme Corp.",
		"So the Server Room Fan met Acme Corp.",
		"So the Server Farm of Acme Corp stands. So our Server Farm hums with Acme Corp.",
	}
	twice := []string{"So SF runs Server Farms. So San Francisco likes SF.", "So SF hums in San Francisco."}
	for _, c := range []struct {
		lists [][]string
		want  string
	}{{nil, "sf"}, {[][]string{{"SF", "San Francisco"}}, "server farms, Server Farms 1, SF acronym2"}} {
		s := NewSplits(c.lists)
		if got := namesOf(Build(written(s, twice...), Options{WeakestShare: -1, MinCount: 1, Splits: s}), "SF"); got != c.want {
			t.Errorf("of two that an acronym may stand for, with %q: %s, want %s", c.lists, got, c.want)
		}
	}
	shortest := [][]string{{"IT", "Information Technology"}}
	for _, c := range []struct {
		name, find string
		lists      [][]string
		want       string
	}{
		{"an acronym", "IT", nil, "information technology, Information Technology 2, IT acronym1"},
		{"by its name", "information technology", shortest, "information technology"},
		{"by its acronym", "IT", shortest, "it"},
		{"a plural", "server farms", nil, "server farm, Server Farm 1, Server Farms plural1"},
		{"a plural that is none", "server farms", [][]string{{"Server Farms", "Server Farm"}}, "server farms"},
		{"its singular", "server farm", [][]string{{"Server Farms", "Server Farm"}}, "server farm"},
		{"an acronym of a plural that is none", "SRF", [][]string{{"Server Room Fans", "Server Room Fan"}}, "server room fans, Server Room Fans 1, SRF acronym1"},
		{"another split leaves it", "server farms", shortest, "server farm, Server Farm 1, Server Farms plural1"},
		{"one that names nothing", "IT", [][]string{{"IT", "Nobody"}, {"x", "y", "z"}}, "information technology, Information Technology 2, IT acronym1"},
	} {
		s := NewSplits(c.lists)
		all := written(s, texts...)
		want := namesOf(Build(all, Options{WeakestShare: -1, Splits: s}), c.find)
		if want != c.want {
			t.Errorf("%s: %s, want %s", c.name, want, c.want)
		}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if again := namesOf(Build(all, Options{WeakestShare: -1, Splits: s}), c.find); again != want {
			t.Errorf("%s: %s in another order, %s before", c.name, again, want)
		}
	}
}

// TestSpellingsAreTakenApart: a key that names share by their capitals alone
// becomes several, also for what stands in one chunk and for what a model said.
func TestSpellingsAreTakenApart(t *testing.T) {
	chunks := [][]string{{"Apple", "Steve"}, {"apple", "Orchard"}, {"Apple", "apple", "APPLE"}, {"US", "Us", "us"}, {"US", "Senate"}, {"Us", "Band"}}
	texts := func(s *Splits) []Contribution { return told(s, chunks...) }
	for _, c := range []struct {
		find  string
		lists [][]string
		want  string
	}{
		{"APPLE", nil, "apple, Apple 2, apple 1"},
		{"Apple", [][]string{{"Apple", "apple"}}, "Apple"},
		{"apple", [][]string{{"Apple", "apple"}}, "apple"},
		{"APPLE's", [][]string{{"Apple", "apple"}}, "apple"},
		{"us", [][]string{{"US", "Us"}}, "us"},
		{"US", [][]string{{"US", "Us"}, {"Us", "us"}}, "US"},
		{"Us", [][]string{{"US", "Us"}, {"Us", "us"}}, "Us"},
		{"sEnate", [][]string{{"US", "Us"}}, "senate"},
	} {
		s := NewSplits(c.lists)
		g := Build(texts(s), Options{WeakestShare: -1, Splits: s})
		if got := namesOf(g, c.find); got != c.want {
			t.Errorf("%q with %q: %s, want %s", c.find, c.lists, got, c.want)
		}
	}
	// Of a name of which no other spelling is left, the best part is found.
	s := NewSplits([][]string{{"Senate", "SENATE"}})
	g := Build(told(s, []string{"Senate", "House"}, []string{"Senate", "SENATE"}), Options{WeakestShare: -1, Splits: s})
	if got := namesOf(g, "senate"); got != "Senate" {
		t.Errorf("a name without capitals finds %s", got)
	}
	if a, _ := g.Find("Senate"); g.Entities[a].About[0].Text != "Senate is told of." || !g.Writes(a, "Senate's") || g.Writes(a, "SENATE") {
		t.Errorf("a part is %+v", g.Entities[a])
	}
	// Rules read a text in the same way.
	x := Extract("So Apple met Orchard Ltd. So APPLE met Orchard Ltd.", "en", false, NewSplits([][]string{{"Apple", "APPLE"}}))
	var keys []string
	for _, m := range x.Mentions {
		keys = append(keys, m.Key.Value())
	}
	if got := strings.Join(keys, ", "); got != "Apple, orchard ltd, APPLE" {
		t.Errorf("rules read %s", got)
	}
}

// TestNoUnionJoinsWhatIsApart: whatever is kept apart, by whichever way unions
// lead, no two names of a list are one entity, and what is not kept apart stays as
// it is.
func TestNoUnionJoinsWhatIsApart(t *testing.T) {
	names := []string{"Information Technology", "IT", "Mills", "Mill", "mill", "MILLS", "National Aeronautics Space Agency", "NASA", "NASAs", "Party", "Parties", "Partys"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var chunks [][]string
		for range 1 + random.IntN(6) {
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			chunks = append(chunks, slices.Clone(names[:2+random.IntN(len(names)-2)]))
		}
		var lists [][]string
		for range random.IntN(4) {
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			lists = append(lists, slices.Clone(names[:2+random.IntN(3)]))
		}
		s := NewSplits(lists)
		g := Build(told(s, chunks...), Options{WeakestShare: -1, Splits: s})
		seen := map[string]bool{}
		for _, c := range chunks {
			for _, n := range c {
				seen[n] = true
			}
		}
		for _, list := range lists {
			at := map[int32]string{}
			for _, n := range list {
				e, ok := g.Find(n)
				if seen[n] && !ok {
					t.Fatalf("%q is gone from %q with %q", n, chunks, lists)
				}
				if other, twice := at[e]; ok && seen[n] && twice {
					t.Fatalf("%q and %q are one entity in %q with %q: %+v", n, other, chunks, lists, g.Unions)
				}
				if ok && seen[n] {
					at[e] = n
				}
			}
		}
		for n := range seen {
			if _, ok := g.Find(n); !ok {
				t.Fatalf("%q is gone from %q with %q", n, chunks, lists)
			}
		}
	}
}
