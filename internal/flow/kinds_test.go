package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/graph"
	"sheaf/internal/raptor"
)

// What a model may say to a schema, and what is taken of it.
func TestAnswersAreHeldAgainstTheSchema(t *testing.T) {
	schema := map[string]any{"parties": "list<string>", "months": "int", "rate": "float", "signed": "bool", "on": "date", "title": "string"}
	for answer, want := range map[string]any{
		`{"parties": ["A", "B", "A"], "months": 12, "rate": 1.5, "signed": true, "on": "2024-02-29", "title": " A\n title\u202e "}`: map[string]string{
			"parties": "A; B", "months": "12", "rate": "1.5", "signed": "true", "on": "2024-02-29", "title": "A title"},
		"Here it is:\n```json\n{\"months\": 12.0, \"other\": 1}\n```": map[string]string{"months": "12"},
		`{}`:                            map[string]string{},
		`{"months": null}`:              map[string]string{},
		`{"parties": ["a; b", null]}`:   map[string]string{"parties": "a, b"},
		`I do not know.`:                "no JSON object",
		`{"months": `:                   "no JSON object",
		`{"months": 12} {"months": 13}`: "cut off",
		`[{"months": 12}`:               map[string]string{"months": "12"},
		`{"months": "twelve"}`:          "The field months must be a whole number",
		`{"months": 1.5}`:               "The field months must be a whole number",
		`{"months": 1e300}`:             "The field months must be a whole number",
		`{"on": "2024-02-30"}`:          "The field on must be a date",
		`{"parties": "A"}`:              "The field parties must be an array",
		`{"signed": "yes"}`:             "The field signed must be true or false",
		`{"title": {"a": 1}}`:           "The field title must be a string",
	} {
		values, refused := readAnswer(answer, schema)
		if text, isRefusal := want.(string); isRefusal {
			if !strings.Contains(refused, text) {
				t.Errorf("%s: refused with %q, want %q", answer, refused, text)
			}
		} else if refused != "" || !reflect.DeepEqual(values, want) {
			t.Errorf("%s: %v (%s), want %v", answer, values, refused, want)
		}
	}
	long, _ := readAnswer(`{"title": "`+strings.Repeat("é", 10_000)+`"}`, schema)
	if n := len(long["title"]); n > maxAddedBytes || n < maxAddedBytes-2 {
		t.Errorf("a long value has %d bytes", n)
	}
}

// An answer that the schema refuses is asked for once more, then listed; equal
// texts are asked once; a node of which nothing came fails for good.
func TestExtractAsksOnceMoreThenLists(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	in := Input{
		Node: &Node{ID: "parties", Config: map[string]any{"schema": map[string]any{"months": "int"}}},
		Ask: func(_ context.Context, instruction, text string, _ int) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[text]++
			switch {
			case strings.Contains(text, "never"), strings.Contains(text, "second") && !strings.Contains(instruction, "refused"):
				return "I cannot say.", nil
			case strings.Contains(text, "away"):
				return "", sheaf.ErrUnavailable
			}
			return `{"months": 7}`, nil
		},
	}
	chunk := func(text string) sheaf.Chunk {
		return sheaf.Chunk{Text: text, Pages: []int{3}, Metadata: map[string]string{"mine": "x"}}
	}
	in.Chunks = []sheaf.Chunk{chunk("first"), chunk("second"), chunk("first"), chunk("never")}
	shared := in.Chunks[0].Metadata
	out, warnings, err := extract(t.Context(), in)
	if err != nil || len(out) != 4 || len(warnings) != 1 || warnings[0].Code != extractRefused || !strings.Contains(warnings[0].Message, "page 3") {
		t.Fatalf("%v, %+v, %d chunks", err, warnings, len(out))
	}
	for i, want := range []string{"7", "7", "7", ""} {
		if m := out[i].Metadata; m["months"] != want || m["mine"] != "x" || want != "" && m[sheaf.MetadataAdded] != "months" {
			t.Errorf("chunk %d has %v", i, m)
		}
	}
	if len(shared) != 1 {
		t.Errorf("metadata that others hold was written to: %v", shared)
	}
	if want := map[string]int{"first": 1, "second": 2, "never": 2}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	in.Chunks = []sheaf.Chunk{chunk("never")}
	if _, _, err := extract(t.Context(), in); sheaf.AsFailure(err, "").Code != extractRefused || sheaf.AsFailure(err, "").Retryable {
		t.Errorf("nothing came of it: %v", err)
	}
	in.Chunks = []sheaf.Chunk{chunk("away")}
	if _, _, err := extract(t.Context(), in); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("the model is away: %v", err)
	}
	in.Ask = nil
	if _, _, err := extract(t.Context(), in); sheaf.AsFailure(err, "").Code != "no_chat_model" {
		t.Errorf("no model: %v", err)
	}
}

// What a service may answer, and what is refused of it.
func TestAnswersOfServicesAreChecked(t *testing.T) {
	for answer, want := range map[string]string{
		``: "", `{}`: "", `{"chunks": []}`: "",
		`{"chunks": [{"id": "0", "metadata": {"class": "A"}}, {"id": "1", "drop": true}, {"id": "2", "text": "new", "keywords": ["k"], "questions": ["q?"], "context": "c"}]}`: "",
		`nonsense`: "it is not", `{"chunks": [{"id": "0"}]} x`: "something stands behind", `{"chunks": [{"id": "0", "vector": [1]}]}`: "unknown field",
		`{"chunks": [{"id": "3"}]}`: "no id of a chunk", `{"chunks": [{"id": "-1"}]}`: "no id", `{"chunks": [{"id": "01"}]}`: "no id", `{"chunks": [{"id": "0"}, {"id": "0"}]}`: "twice",
		`{"chunks": [{"id": "0", "text": ""}]}`:                                              "0 bytes",
		`{"chunks": [{"id": "0", "text": "` + strings.Repeat("x", maxServiceText+1) + `"}]}`: "bytes; 1 to",
		`{"chunks": [{"id": "0", "metadata": {"links": "x"}}]}`:                              "have of their own",
		`{"chunks": [{"id": "0", "metadata": {"A B": "x"}}]}`:                                "no name of metadata",
		`{"chunks": [{"id": "0", "keywords": [""]}]}`:                                        "keywords of the chunk 0",
	} {
		var sent []string
		in := Input{
			Node: &Node{ID: "ask", Config: map[string]any{"url": "https://x.test", "batch": int64(3)}}, CountTokens: func(string) int { return 42 },
			Chunks: []sheaf.Chunk{{Text: "a"}, {Text: "b"}, {Text: "c"}},
			Post: func(_ context.Context, url, id string, body []byte, most int64) ([]byte, error) {
				sent = append(sent, id)
				if answer == "" {
					return nil, nil
				}
				return []byte(answer), nil
			},
		}
		out, warnings, err := callService(t.Context(), in)
		if want != "" {
			if f := sheaf.AsFailure(err, ""); f.Code != answerRefused || !strings.Contains(f.Message, want) || f.Retryable {
				t.Errorf("%.60s: %v, want %q", answer, err, want)
			}
			continue
		}
		if err != nil || len(sent) != 1 {
			t.Fatalf("%.60s: %v, %d requests", answer, err, len(sent))
		}
		if strings.Contains(answer, "drop") {
			if len(out) != 2 || len(warnings) != 1 || warnings[0].Code != DroppedCode || out[0].Metadata["class"] != "A" || out[1].Text != "new" || out[1].Tokens != 42 || out[1].Keywords[0] != "k" || out[1].Questions[0] != "q?" || out[1].Context != "c" {
				t.Errorf("%+v, %+v", out, warnings)
			}
		} else if len(out) != 3 {
			t.Errorf("%d chunks are left", len(out))
		}
	}
}

// Requests are bounded by number and by bytes, and the same chunks give the same id.
func TestRequestsToServicesAreBounded(t *testing.T) {
	var sizes []int
	var ids []string
	in := Input{
		Node: &Node{ID: "ask", Config: map[string]any{"url": "https://x.test", "batch": 2.0}}, // as JSON is stored
		Post: func(_ context.Context, _, id string, body []byte, _ int64) ([]byte, error) {
			var r serviceRequest
			if err := json.Unmarshal(body, &r); err != nil {
				t.Fatal(err)
			}
			sizes, ids = append(sizes, len(r.Chunks)), append(ids, id)
			return nil, nil
		},
	}
	for i := range 5 {
		in.Chunks = append(in.Chunks, sheaf.Chunk{Text: fmt.Sprint(i)})
	}
	in.Chunks = append(in.Chunks, sheaf.Chunk{Text: strings.Repeat("x", maxServiceBody)}, sheaf.Chunk{Text: "y"})
	for range 2 {
		if _, _, err := callService(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{2, 2, 1, 1, 1, 2, 2, 1, 1, 1}; !reflect.DeepEqual(sizes, want) || !reflect.DeepEqual(ids[:5], ids[5:]) {
		t.Errorf("requests of %v chunks, ids %v", sizes, ids)
	}
}

// The configs of the kinds are refused when the flow is made.
func TestConfigsOfServicesSchemasAndFiles(t *testing.T) {
	of := func(node string) string {
		return `{"name":"x","node":[{"id":"a","kind":"parse"},{"id":"b","kind":"chunk","from":["a"]},` + node + `,{"id":"z","kind":"index","from":["n"]}]}`
	}
	many := make([]string, maxFields+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"f%d":"int"`, i)
	}
	for node, want := range map[string]string{
		`{"id":"n","kind":"http","from":["b"],"config":{"url":"https://x.test/a","batch":10}}`:                                                               "",
		`{"id":"n","kind":"http","from":["b"]}`:                                                                                                              "the kind http needs it",
		`{"id":"n","kind":"http","from":["b"],"config":{"url":"file:///etc/passwd"}}`:                                                                        "it is http:// or https://",
		`{"id":"n","kind":"http","from":["b"],"config":{"url":"https://u:p@x.test"}}`:                                                                        "without a name, password",
		`{"id":"n","kind":"http","from":["b"],"config":{"url":"https://x.test","batch":5000}}`:                                                               "not from 1 to 1000",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{"a":"int","b":"list<string>"},"into":"document"}}`:                                      "",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{}}}`:                                                                                    "it has 0 fields",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{` + strings.Join(many, ",") + `}}}`:                                                     "it has 25 fields",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{"a":"blob"}}}`:                                                                          "the type of a is blob; choose one of",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{"title":"string"}}}`:                                                                    "have of their own",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{"A":"int"}}}`:                                                                           "no name of metadata",
		`{"id":"n","kind":"extract","from":["b"],"config":{"schema":{"a":"int"},"instruction":"` + strings.Repeat("x", 2001) + `"}}`:                         "2001 bytes",
		`{"id":"n","kind":"branch","from":["b"]},{"id":"e","kind":"embed","from":["n"]},{"id":"f","kind":"export","from":["e"],"config":{"format":"jsonl"}}`: "",
		`{"id":"n","kind":"branch","from":["b"]},{"id":"f","kind":"export","from":["b"],"config":{"format":"csv"}}`:                                          "not one of parquet, jsonl",
		`{"id":"n","kind":"branch","from":["b"]},{"id":"f","kind":"export","from":["a"]}`:                                                                    "a gives units, and the kind export takes",
		`{"id":"n","kind":"branch","from":["b","f"]},{"id":"f","kind":"export","from":["b"]}`:                                                                "passes nothing on, and a node reads it",
	} {
		_, err := Read([]byte(of(node)), false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.110s: %v, want %q", node, err, want)
		}
	}
	whole := strings.Replace(of(`{"id":"n","kind":"branch","from":["b"]},{"id":"f","kind":"export","from":["b"]}`), `"name":"x"`, `"name":"x","mode":"whole"`, 1)
	if _, err := Read([]byte(whole), false); err == nil || !strings.Contains(err.Error(), "node f: kind: in the mode whole") {
		t.Errorf("a file in the mode whole: %v", err)
	}
}

// Nodes over the whole document stand behind index, in either mode and once each, and
// their settings are options of the runs that do the same over a dataset.
func TestNodesOverTheDocument(t *testing.T) {
	for node, want := range map[string]string{
		`{"id":"n","kind":"raptor","from":["z"],"config":{"prompt":"Sum up: {cluster_content}","max_token":256,"clustering_threshold":0.1,"clustering_ratio":0.3,"max_cluster":32,"auto_disable_for_structured_data":false},"on_failure":"skip","pool":"llm","retry":{"attempts":2},"when":"document.pages > 3","timeout":"1h"}`: "",
		`{"id":"n","kind":"graph","from":["z"],"config":{"method":"ner","entity_types":["bird"],"batch_chunk_token_size":1024,"retry_attempts":0}}`:                                                                                                                                                                              "",
		`{"id":"n","kind":"mindmap","from":["z"]}`:                                                                          "",
		`{"id":"n","kind":"mindmap","from":["b"]}`:                                                                          "b gives chunks, and the kind mindmap takes indexed",
		`{"id":"n","kind":"mindmap","from":["z"]},{"id":"m","kind":"mindmap","from":["z"]}`:                                 "at most one node of the kind mindmap; this one has n, m",
		`{"id":"n","kind":"filter","from":["z"],"config":{"keep":"true"}},{"id":"m","kind":"mindmap","from":["n"]}`:         "z gives indexed, and the kind filter takes chunks",
		`{"id":"n","kind":"raptor","from":["z"],"config":{"prompt":"Sum it up."}}`:                                          "it must hold {cluster_content}",
		`{"id":"n","kind":"raptor","from":["z"],"config":{"prompt":"{cluster_content}` + strings.Repeat("x", 8<<10) + `"}}`: "prompt has more than 8 KB",
		`{"id":"n","kind":"raptor","from":["z"],"config":{"scope":"dataset"}}`:                                              "the kind raptor has no such setting",
		`{"id":"n","kind":"raptor","from":["z"],"config":{"max_token":9}}`:                                                  "9 is not from 64 to 2048",
		`{"id":"n","kind":"graph","from":["z"],"config":{"method":"magic"}}`:                                                `"magic" is not one of light`,
		`{"id":"n","kind":"graph","from":["z"],"config":{"entity_types":[]}}`:                                               "entity_types must be 1 to 50 names",
		`{"id":"n","kind":"graph","from":["z"],"config":{"community":true}}`:                                                "the kind graph has no such setting",
		`{"id":"n","kind":"raptor","from":["z"]},{"id":"m","kind":"index","from":["n"]}`:                                    "passes nothing on, and a node reads it",
	} {
		for _, mode := range []string{"auto", "whole", "nodes"} {
			text := `{"name":"x","mode":"` + mode + `","node":[{"id":"a","kind":"parse"},{"id":"b","kind":"chunk","from":["a"]},{"id":"z","kind":"index","from":["b"]},` + node + `]}`
			if _, err := Read([]byte(text), false); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %.110s: %v, want %q", mode, node, err, want)
			}
		}
	}
	for kind, of := range map[string]struct {
		options any
		without []string // what is decided over all documents
	}{
		"raptor": {raptor.Options{}, []string{"random_seed", "scope"}},
		"graph":  {graph.RunOptions{}, []string{"community", "resolution"}},
	} {
		options := reflect.TypeOf(of.options)
		for i := range options.NumField() {
			name, _, _ := strings.Cut(options.Field(i).Tag.Get("json"), ",")
			if _, ok := registered[kind].Config[name]; ok == slices.Contains(of.without, name) {
				t.Errorf("%s of %s: a setting %v", name, kind, ok)
			}
		}
	}
}

// A flow that refers to itself, one of 10,000 nodes, and an expression that would
// cost too much are refused with a sentence.
func TestFlowsWithoutEndAreRefused(t *testing.T) {
	self := `{"name":"x","node":[{"id":"a","kind":"parse"},{"id":"b","kind":"chunk","from":["a"]},{"id":"c","kind":"filter","from":["b","c"],"config":{"keep":"true"}},{"id":"z","kind":"index","from":["c"]}]}`
	if _, err := Read([]byte(self), false); err == nil || !strings.Contains(err.Error(), "c → c") {
		t.Errorf("a flow that refers to itself: %v", err)
	}
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, `{"id":"n%d","kind":"x"},`, i)
	}
	if _, err := Read([]byte(`{"name":"x","node":[`+strings.TrimSuffix(b.String(), ",")+`]}`), false); err == nil || !strings.Contains(err.Error(), "are allowed") {
		t.Errorf("10,000 nodes: %v", err)
	}
	c, err := newConditions(chunkVariables)
	if err != nil {
		t.Fatal(err)
	}
	dear, err := c.Compile("chunk.text.matches('(a+)+$') && chunk.text.matches('(a+)+b') && chunk.text.matches('(a|aa)+c')")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dear.Holds(map[string]any{"chunk.text": strings.Repeat("a", 2_000_000)}); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("an expression that costs too much: %v", err)
	}
}
