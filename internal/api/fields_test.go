package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"sheaf"
)

func TestChosenFieldsAreThoseOfTheWhole(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
	}
	type item struct {
		Name  string         `json:"name"`
		Text  string         `json:"text"`
		List  []inner        `json:"list"`
		Map   map[string]any `json:"map"`
		None  *inner         `json:"none"`
		Small float64        `json:"small"`
		Last  bool           `json:"last"`
	}
	items := []item{
		{Name: `a "quoted" {name}, with: [all]`, Text: `ends in a backslash \\`, List: []inner{{"x"}, {`}"]`}}, Map: map[string]any{"name": "inner", "deep": []any{map[string]any{"last": 1}}}, Small: -1.5e-9, Last: true},
		{},
	}
	for _, names := range [][]string{{"name"}, {"last"}, {"name", "last"}, {"list", "none"}, {"map", "text", "small"}, {"name", "text", "list", "map", "none", "small", "last"}, {"unknown"}} {
		chosen, err := List[item]{Items: items}.only(names)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(chosen)
		if err != nil {
			t.Fatalf("%q: %v", names, err)
		}
		var got, want struct{ Items []map[string]any }
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v in %s", names, err, b)
		}
		whole, _ := json.Marshal(List[item]{Items: items})
		_ = json.Unmarshal(whole, &want)
		for _, w := range want.Items {
			for name := range w {
				if !slices.Contains(names, name) {
					delete(w, name)
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %s", names, b)
		}
	}
}

func BenchmarkChosenFields(b *testing.B) {
	l := List[sheaf.Document]{Items: make([]sheaf.Document, 1000)}
	for b.Loop() {
		if _, err := l.only([]string{"id", "name", "state"}); err != nil {
			b.Fatal(err)
		}
	}
}
