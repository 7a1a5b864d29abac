package ragflow

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
)

func TestValuesAreShownAsPythonShowsThem(t *testing.T) {
	for in, want := range map[string]string{
		`null`: "None", `true`: "True", `1`: "1", `3.14`: "3.14", `"a'b"`: `a'b`, `[1,"a",null]`: `[1, 'a', None]`, `{"a":"b","c":[true]}`: `{'a': 'b', 'c': [True]}`, `["it's"]`: `["it's"]`, `["a\nb"]`: `['a\nb']`,
	} {
		v, err := decode([]byte(in))
		if err != nil {
			t.Fatal(in, err)
		}
		if got := pyText(v); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}

// Any spelling of a UUID is an id; what is one is found under the same 32 characters.
func TestIDsOfAnySpelling(t *testing.T) {
	const id = "01a21016dcd5700687c8766dc3cba67a"
	for in, want := range map[string]string{
		id: id, "01A21016-DCD5-7006-87C8-766DC3CBA67A": id, "{01a21016-dcd5-7006-87c8-766dc3cba67a}": id, "urn:uuid:" + id: id,
		"": "", "x": "", id + "0": "", "01a21016dcd5700687c8766dc3cba67g": "",
	} {
		if got, ok := idOf(in); got != want || ok != (want != "") {
			t.Errorf("%q is the id %q, want %q", in, got, want)
		}
	}
}

func TestWordsAreMarked(t *testing.T) {
	for _, c := range []struct {
		keywords, text, want string
		found                bool
	}{
		{"7", "It eats 7 fish, not 17.", "It eats <em>7</em> fish, not 17.", true},
		{"heron", "Herons. HERON!", "Herons. <em>HERON</em>!", true},
		{"stork", "A heron", "A heron", false},
		{"鹭", "白鹭鸟", "白<em>鹭</em>鸟", true},
		{"a b", "b", "<em>b</em>", true},
	} {
		if got, found := words(c.keywords).marked(c.text); got != c.want || found != c.found {
			t.Errorf("%q in %q: %q, %v", c.keywords, c.text, got, found)
		}
	}
}

// Whatever a text is, marking it up changes nothing else.
func TestMarkingKeepsTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab 1é鹭,\n"))).Draw(t, "text")
		if got, found := words("nothing").marked(text); got != text || found {
			t.Fatalf("%q becomes %q", text, got)
		}
	})
}

func TestConditionsHold(t *testing.T) {
	d := &document{record: documentRecord{Meta: object{"author": "Ada Lovelace", "year": 1843.0, "tags": []any{"a", "b"}}}}
	d.Metadata = map[string]string{"title": "Notes"}
	for text, want := range map[string]bool{
		`{"name":"author","comparison_operator":"is","value":"ada lovelace"}`:       true,
		`{"name":"author","comparison_operator":"not is","value":"Ada"}`:            true,
		`{"name":"author","comparison_operator":"contains","value":"LOVE"}`:         true,
		`{"name":"author","comparison_operator":"not contains","value":"love"}`:     false,
		`{"name":"author","comparison_operator":"start with","value":"ada"}`:        true,
		`{"name":"author","comparison_operator":"end with","value":"ada"}`:          false,
		`{"name":"year","comparison_operator":"≥","value":1843}`:                    true,
		`{"name":"year","comparison_operator":">","value":"999"}`:                   true,
		`{"name":"year","comparison_operator":"<","value":1843}`:                    false,
		`{"name":"year","comparison_operator":"in","value":"1842, 1843"}`:           true,
		`{"name":"year","comparison_operator":"not in","value":[1842,1843]}`:        false,
		`{"name":"tags","comparison_operator":"is","value":"b"}`:                    true,
		`{"name":"tags","comparison_operator":"not is","value":"b"}`:                false,
		`{"name":"nobody","comparison_operator":"empty"}`:                           true,
		`{"name":"nobody","comparison_operator":"not empty"}`:                       false,
		`{"name":"nobody","comparison_operator":"≠","value":1}`:                     true,
		`{"name":"title","comparison_operator":"=","value":"notes"}`:                true,
		`{"name":"author","comparison_operator":"contains","value":"Ada, Babbage"}`: false,
	} {
		for _, logic := range []string{"and", "or"} {
			v, err := decode([]byte(`{"logic":"` + logic + `","conditions":[` + text + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			c, err := readCondition(v.(object))
			if err != nil || c.holds(d) != want {
				t.Errorf("%s %s: %v, want %v", logic, text, err, want)
			}
		}
	}
	for _, text := range []string{`{"conditions":[{"name":"a","comparison_operator":"like","value":"b"}]}`, `{"conditions":[{"name":"a","comparison_operator":"is"}]}`, `{"conditions":{}}`} {
		v, _ := decode([]byte(text))
		if _, err := readCondition(v.(object)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// Every default passes the rules that it would be held to, and the settings of
// ours that come of any configuration are those that /v1 reads.
func TestDefaultsAreValid(t *testing.T) {
	for _, method := range append(slices.Clone(methods), "knowledge_graph") {
		for _, config := range []object{wholeDefault(method), completed(object{"auto_keywords": 3})} {
			b, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			v, err := decode(b)
			if err != nil {
				t.Fatal(err)
			}
			f := &faults{}
			if f.config(v); f.err(codeArgument) != nil {
				t.Errorf("%s: %v", method, f.lines)
			}
			if b, err = json.Marshal(settings(method, v.(object))); err != nil {
				t.Fatal(err)
			}
			var ours sheaf.ParseConfig
			if err := json.Unmarshal(b, &ours); err != nil || !ours.ChunkMethod.IsSet() {
				t.Errorf("%s becomes %s: %v", method, b, err)
			}
		}
	}
	v, _ := decode([]byte(`{"chunk_token_num":1,"pages":[[1,1000000]],"parent_child":{"use_parent_child":true,"children_delimiter":"。"},"task_page_size":5000}`))
	got := settings("naive", v.(object))
	if got["chunk_token_num"] != minChunkTokens || got["pages"] != nil || got["children_delimiter"] != "。" || got["task_page_size"] != maxTaskPages {
		t.Errorf("settings are %v", got)
	}
}

// What is sent of runs counts within our bounds; a default begins nothing.
func TestRunsThatAreSentCount(t *testing.T) {
	for _, c := range []struct{ before, sent, want string }{
		{`{}`, `{"chunk_token_num":9}`, `{"graphrag":null,"raptor":null}`},
		{`{}`, `{"raptor":{"use_raptor":true,"max_token":99,"clustering_ratio":0.9,"clustering_threshold":0.2,"prompt":"Sum up.","max_cluster":1}}`,
			`{"graphrag":null,"raptor":{"clustering_ratio":0.5,"clustering_threshold":0.2,"max_cluster":2,"max_token":512,"prompt":"Sum up.\n{cluster_content}","use_raptor":true}}`},
		{`{"graphrag":{"use_graphrag":true,"method":"general"}}`, `{"graphrag":{"resolution":true,"batch_chunk_token_size":100000,"merge_timeout_seconds":9,"entity_types":[" ","person"]}}`,
			`{"graphrag":{"batch_chunk_token_size":8196,"entity_types":["person"],"method":"general","resolution":true,"use_graphrag":true},"raptor":null}`},
	} {
		before, _ := decode([]byte(c.before))
		sent, _ := decode([]byte(c.sent))
		if b, err := json.Marshal(runSettings(sentRuns(before.(object), sent.(object)))); err != nil || string(b) != c.want {
			t.Errorf("%s over %s: %s, %v, want %s", c.sent, c.before, b, err, c.want)
		}
	}
}
