package graph

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sheaf"
)

// Whatever a model says, names and texts are bounded lines without marks that turn
// the direction of writing.
func TestWhatAModelSaysIsBoundedAndClean(t *testing.T) {
	long := strings.Repeat("ü", 1<<19)
	in, _ := json.Marshal(Said{
		Entities:  []SaidEntity{{long, "person", long}, {"\u202eEvil\u2066 Corp\nInc", "ORGANIZATION", "a\x00b"}, {"\u202e", "person", ""}, {"Odd", "unicorn", ""}},
		Relations: []SaidRelation{{"Evil Corp Inc", "Odd", "\u202emeets"}, {"Odd", "", ""}, {"Odd", "Odd", ""}},
	})
	s, err := ReadSaid("Here it is:\n```json\n"+string(in)+"\n```", []string{"person", "organization"})
	if err != nil || len(s.Entities) != 3 || s.Entities[1] != (SaidEntity{"Evil Corp Inc", "organization", "ab"}) || s.Entities[2].Type != "" || s.Relations[0].Description != "meets" {
		t.Fatalf("%+v, %v", s, err)
	}
	if e := s.Entities[0]; len(e.Name) > maxNameBytes || len(e.Name) < maxNameBytes-4 || len(e.Description) > maxDescription || !utf8.ValidString(e.Name+e.Description) {
		t.Errorf("%d and %d bytes", len(e.Name), len(e.Description))
	}
	x := s.Extraction(nil)
	if len(x.Mentions) != 3 || len(x.Links) != 1 || len(x.Told.Relations) != 1 || len(x.Told.Types) != 3 {
		t.Errorf("%+v", x)
	}
	for _, bad := range []string{"", "no", "}{", `{"entities": [{"name": "cut`, `{"other": 1}`, `{"entities": 3}`} {
		if _, err := ReadSaid(bad, nil); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if s, err := ReadSaid(`{"entities": []}`, nil); err != nil || len(s.Entities) != 0 {
		t.Errorf("a text that names nothing: %+v, %v", s, err)
	}
}

func FuzzReadSaid(f *testing.F) {
	f.Add(`{"entities": [{"name": "A", "type": "x", "description": "d"}], "relations": [{"source": "A", "target": "B"}]}`)
	f.Fuzz(func(t *testing.T, answer string) {
		s, err := ReadSaid(answer, []string{"x"})
		if err != nil {
			return
		}
		for _, e := range s.Entities {
			if len(e.Name) > maxNameBytes || !utf8.ValidString(e.Name) || strings.ContainsFunc(e.Name, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }) {
				t.Errorf("%q", e.Name)
			}
		}
		x := s.Extraction(nil)
		if len(x.Mentions) > maxPerChunk || len(x.Told.Mentions) != len(x.Mentions) || len(x.Told.Types) != len(x.Mentions) || len(x.Told.Relations) != len(x.Links) {
			t.Errorf("%d mentions, %d links", len(x.Mentions), len(x.Links))
		}
		for _, l := range x.Links {
			if l.A >= l.B || int(l.B) >= len(x.Mentions) {
				t.Errorf("%+v", l)
			}
		}
	})
}

func TestOptionsOfARun(t *testing.T) {
	for in, good := range map[string]bool{``: true, `{"method": "general", "entity_types": ["Product"]}`: true, `{"method": "best"}`: false, `{"entity_types": []}`: false,
		`{"entity_types": [""]}`: false, `{"retry_attempts": -1}`: false, `{"resolutions": true}`: false} {
		o, err := ReadRunOptions([]byte(in))
		if (err == nil) != good || err != nil && !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %+v, %v", in, o, err)
		}
		if in == "" && (len(o.EntityTypes) != 5 || o.RetryAttempts != 2 || o.Reports()) {
			t.Errorf("defaults: %+v", o)
		}
	}
}
