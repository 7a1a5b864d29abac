package flow

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/cputest"
)

// kinds are the standard ones and one of each form that they lack.
func checker(t testing.TB) *Checker {
	t.Helper()
	c, err := NewChecker(append(Kinds(), Kind{Name: "merge", In: []Port{Units, Chunks, Vectors, Records, Text}, Same: true},
		Kind{Name: "index", In: []Port{Chunks, Vectors, Records}, Needs: []Port{Chunks, Vectors}}, Kind{Name: "extract", In: []Port{Chunks, Units}, Out: Records, Config: map[string]Field{
			"schema": {Type: "object", Required: true}, "into": {Type: "string", Values: []string{"metadata", "chunks"}}, "share": {Type: "float", Max: 1}, "words": {Type: "strings"},
		}})...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const contracts = `
name  = "contracts"

[[node]]
id = "out"
kind = "index"
from = ["pieces", "parties"]

[[node]]
id = "read"
kind = "parse"

[[node]]
id = "pieces"
kind = "chunk"
from = ["read"]
config = { chunk_method = "laws", chunk_token_num = 384 }

[[node]]
id = "parties"
kind = "extract"
from = ["pieces"]
when = "document.pages <= 400 && document.metadata['class'] == 'contract'"
config = { schema = { parties = "list<string>", term_months = "int" }, into = "metadata", share = 0.5, words = ["a", "b"] }
pool = "llm"
retry = { attempts = 8, base = "10s", max = "30m" }
timeout = "5m"
on_failure = "skip"
`

func TestTOMLAndJSONSayTheSame(t *testing.T) {
	c := checker(t)
	f, err := c.ParseTOML([]byte(contracts))
	if err != nil {
		t.Fatal(err)
	}
	parties := f.Nodes[3]
	if f.Scope != ScopeDocument || f.Mode != ModeAuto || time.Duration(parties.Retry.Max) != 30*time.Minute || parties.Config["share"] != 0.5 || f.Nodes[2].Config["chunk_token_num"] != int64(384) {
		t.Errorf("%+v", f)
	}
	var order []string
	for _, n := range f.Order() {
		order = append(order, n.ID)
	}
	if got := strings.Join(order, " "); got != "read pieces parties out" {
		t.Errorf("order %s", got)
	}
	same(t, c, f)
}

// same holds that a flow survives both forms, and that its JSON is canonical.
func same(t interface{ Fatalf(string, ...any) }, c *Checker, f *Flow) {
	text, err := f.JSON()
	if err != nil {
		t.Fatalf("%v", err)
	}
	again, err := c.ParseJSON(text)
	if err != nil || !reflect.DeepEqual(again, f) {
		t.Fatalf("through JSON: %v\n%+v\n%+v\n%s", err, again, f, text)
	}
	asTOML, err := f.TOML()
	if err != nil {
		t.Fatalf("%v", err)
	}
	again, err = c.ParseTOML(asTOML)
	if err != nil || !reflect.DeepEqual(again, f) {
		t.Fatalf("through TOML: %v\n%+v\n%+v\n%s", err, again, f, asTOML)
	}
	if canonical, _ := again.JSON(); string(canonical) != string(text) {
		t.Fatalf("two JSON forms:\n%s\n%s", canonical, text)
	}
	if changes := Diff(f, again); len(changes) > 0 {
		t.Fatalf("a flow differs from itself: %+v", changes)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	const read = `{"id":"a","kind":"parse"},{"id":"b","kind":"chunk","from":["a"]},`
	flow := func(nodes string) string { return `{"name":"f","node":[` + nodes + `]}` }
	var many []string
	for i := range MaxNodes + 1 {
		many = append(many, fmt.Sprintf(`{"id":"n%d","kind":"parse"}`, i))
	}
	for name, c := range map[string]struct {
		text string
		want []string // parts of one line each, in order
	}{
		"no name":               {`{"node":[]}`, []string{`name: "" is no name`, "has no nodes"}},
		"scope and mode":        {`{"name":"f","scope":"page","mode":"fast","node":[` + read + `{"id":"c","kind":"index","from":["b"]}]}`, []string{"scope: \"page\" is not one of", "mode: \"fast\""}},
		"not JSON":              {`{"name"`, []string{"the JSON is wrong near byte"}},
		"two values":            {flow(read+`{"id":"c","kind":"index","from":["b"]}`) + "{}", []string{"more than one JSON value"}},
		"a key twice":           {`{"name":"f","name":"g","node":[]}`, []string{`"name" is given twice`}},
		"a number out of range": {flow(read + `{"id":"c","kind":"extract","from":["b"],"config":{"share":1e999}}`), []string{"out of range"}},
		"nested without end":    {strings.Repeat("[", 5000), []string{"nested more than"}},
		"an unknown field":      {flow(read + `{"id":"c","kind":"index","from":["b"],"form":["b"]}`), []string{`node c: unknown field "form"`}},
		"a wrong type":          {flow(`{"id":"a","kind":"parse","from":"b"}`), []string{"node a: from is a string"}},
		"a wrong time":          {flow(`{"id":"a","kind":"parse","timeout":"soon"}`), []string{"node a: time: invalid duration"}},
		"too many nodes":        {flow(strings.Join(many, ",")), []string{"101 nodes; 100 are allowed"}},
		"too long":              {flow(strings.Repeat(" ", MaxBytes)), []string{"bytes; 65536 are allowed"}},
		"an unknown kind":       {flow(`{"id":"a","kind":"pars"}`), []string{`node a: kind: there is no kind "pars"; there are branch, chunk, embed`}},
		"ids":                   {flow(`{"id":"A","kind":"parse"},{"kind":"parse"},{"id":"a","kind":"parse"},{"id":"a","kind":"parse"}`), []string{"node A: id", "node #2: id", "node a: id: another node", "node A: nothing", "node #2: nothing", "node a: nothing", "node a: nothing"}},
		"nothing reads it":      {flow(read + `{"id":"c","kind":"index","from":["b"]},{"id":"d","kind":"embed","from":["b"]}`), []string{"node d: nothing reads its output"}},
		"a sink is read":        {flow(read + `{"id":"c","kind":"index","from":["b"]},{"id":"d","kind":"index","from":["b","c"]}`), []string{"node c: the kind index passes nothing on"}},
		"inputs":                {flow(`{"id":"a","kind":"parse","from":["b"]},{"id":"b","kind":"chunk"},{"id":"c","kind":"index","from":["b","b","x"]}`), []string{"node a: from: the kind parse reads", "node a: nothing", "node b: from: the kind chunk needs", "node c: from: b is named twice", `node c: from: there is no node "x"`}},
		"a cycle":               {flow(`{"id":"a","kind":"parse"},{"id":"out","kind":"index","from":["d"]},{"id":"b","kind":"enrich","from":["d"]},{"id":"c","kind":"enrich","from":["b"]},{"id":"d","kind":"merge","from":["c"]},{"id":"z","kind":"chunk","from":["a"]},{"id":"y","kind":"index","from":["z"]}`), []string{"wait for each other: d → b → c → d; take"}},
		"itself":                {flow(`{"id":"b","kind":"enrich","from":["b"]},{"id":"out","kind":"index","from":["b"]}`), []string{"wait for each other: b → b; take"}},
		"ports":                 {flow(`{"id":"a","kind":"parse"},{"id":"c","kind":"index","from":["a"]}`), []string{"node c: from: a gives units, and the kind index takes chunks or vectors or records", "node c: from: the kind index needs an input of chunks or vectors"}},
		"ports of one type":     {flow(read + `{"id":"c","kind":"embed","from":["b"]},{"id":"m","kind":"merge","from":["b","c"]},{"id":"out","kind":"index","from":["m"]}`), []string{"node m: from: b gives chunks and c gives vectors"}},
		"needs another":         {flow(read + `{"id":"c","kind":"extract","from":["b"],"config":{"schema":{}}},{"id":"out","kind":"index","from":["c"]}`), []string{"node out: from: the kind index needs an input of chunks or vectors"}},
		"settings": {flow(read + `{"id":"c","kind":"extract","from":["b"],"config":{"into":"file","share":2,"words":[1],"more":null}},{"id":"out","kind":"index","from":["b","c"]}`), []string{
			`node c: config.into: "file" is not one of metadata, chunks`, "config.more: the kind extract has no such setting; it has into, schema, share, words", "config.share: 2 is not from 0 to 1", "config.words: it is of type list", "config.schema: the kind extract needs it"}},
		"no setting at all": {flow(read + `{"id":"c","kind":"embed","from":["b"],"config":{"dim":3}},{"id":"out","kind":"index","from":["c"]}`), []string{"node c: config.dim: the kind embed has no such setting; it has none"}},
		"an expression": {flow(`{"id":"a","kind":"parse","when":"document.page > 3"},{"id":"b","kind":"chunk","from":["a"],"when":"document.pages"},{"id":"c","kind":"index","from":["b"],"when":"document.pages > '3'"}`), []string{
			"node a: when: at column", "node b: when: the expression yields int and must yield true or false", "node c: when: at column 16: found no matching overload"}},
		"bounds": {flow(`{"id":"a","kind":"parse","pool":"A B","timeout":"-1s","on_failure":"stop","retry":{"attempts":21,"base":"2h","max":"1h"}},{"id":"b","kind":"chunk","from":["a"]},{"id":"c","kind":"index","from":["b"]}`), []string{
			"node a: pool", `node a: on_failure: "stop" is not one of`, "node a: timeout: -1s is not from 0s to 24h0m0s", "retry.attempts: 21 is not from 1 to 20", "retry.base: 2h0m0s is not from", "retry.max: it is shorter"}},
	} {
		_, err := checker(t).ParseJSON([]byte(c.text))
		if !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		ok := len(lines) == len(c.want)
		for i := range c.want {
			ok = ok && strings.Contains(lines[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s:\n%s\nwant\n%s", name, err, strings.Join(c.want, "\n"))
		}
	}
	for text, want := range map[string]string{
		"name = ":                  "the TOML is wrong in line 1",
		"name = 'f'\nname = 'g'":   "the TOML is wrong in line 2",
		"name = 2026-01-02":        "name is a string", // a date has no type of its own in JSON
		strings.Repeat("#", 1<<17): "65536 are allowed",
	} {
		if _, err := checker(t).ParseTOML([]byte(text)); !errors.Is(err, sheaf.ErrInvalid) || want != "name is a string" && !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %s", text, err, want)
		}
	}
}

// Texts within MaxBytes that cost the TOML library seconds and minutes.
func TestNestingCostsNothing(t *testing.T) {
	c := checker(t)
	for name, text := range map[string]string{
		"dotted keys":    strings.Repeat("a.", 30_000) + "b = 1",
		"quoted keys":    strings.Repeat(`"a".'b'.`, 7_000) + "b = 1",
		"headers":        "[" + strings.Repeat("a.", 30_000) + "b]",
		"inline tables":  "a = " + strings.Repeat("{a = ", 12_000) + "1" + strings.Repeat("}", 4_000),
		"arrays":         "a = " + strings.Repeat("[", 60_000),
		"behind strings": "a = \"\"\"\\\"\"\"\"\"\"\nb = '''\\'''''\nc = \"\\\"#\" # '\n" + strings.Repeat("a.", 30_000) + "b = 1",
	} {
		before := cputest.Used(t)
		_, err := c.ParseTOML([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "nested more than 8 deep") {
			t.Errorf("%s: %v", name, err)
		}
		if took := cputest.Used(t) - before; took > cputest.Slowdown*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	text := "name = 'f'\n[[node]]\nid = 'a'\nkind = 'parse'\n[[node]]\nid = 'b'\nkind = 'chunk'\nfrom = ['a']\n[node.config]\ndelimiter = '''" + strings.Repeat("[.{", 1000) + "'''''\n[[node]]\nid = 'c'\nkind = 'index'\nfrom = ['b'] # " + strings.Repeat("[.", 100)
	if _, err := c.ParseTOML([]byte(text)); err != nil {
		t.Errorf("brackets in strings and comments are no nesting: %v", err)
	}
}

func TestConditionsAreBounded(t *testing.T) {
	c, err := NewConditions()
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]any{"document.name": "a.pdf", "document.media_type": "application/pdf", "document.size": 10, "document.pages": 3, "document.metadata": map[string]string{"class": "x"}}
	for expr, want := range map[string]bool{
		"document.pages <= 400":                                      true,
		"document.name.endsWith('.pdf') && document.size != 10":      false,
		"'class' in document.metadata":                               true,
		"document.name in ['a.pdf', 'b.pdf']":                        true,
		"document.media_type.matches('^application/(pdf|zip)$')":     true,
		"has(document.metadata.other) ? false : document.pages == 3": true,
	} {
		p, err := c.Compile(expr)
		if strings.HasPrefix(expr, "has(") {
			if err == nil {
				t.Errorf("%s: macros are loops, and are refused", expr)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if got, err := p.Holds(given); err != nil || got != want {
			t.Errorf("%s is %t, %v", expr, got, err)
		}
	}
	for _, expr := range []string{"[1, 2].exists(x, x > 1)", "[1, 2].map(x, x * 2) == []", strings.Repeat("!", 2000) + "true", strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100), "os.getenv('HOME') == ''", "1"} {
		if _, err := c.Compile(expr); err == nil {
			t.Errorf("%.40s is accepted", expr)
		}
	}
	costly, err := c.Compile("document.name + document.name + document.name == '' || document.name.matches('(a+)+$')")
	if err != nil {
		t.Fatal(err)
	}
	given["document.name"] = strings.Repeat("a", 4<<20)
	if _, err := costly.Holds(given); err == nil {
		t.Error("an expression may cost whatever its texts make of it")
	}
	delete(given, "document.pages")
	if p, _ := c.Compile("document.pages == 3"); p != nil {
		if _, err := p.Holds(given); err == nil {
			t.Error("a variable that is missing is taken for something")
		}
	}
}

func TestRefs(t *testing.T) {
	for text, want := range map[string]Ref{"contracts": {"contracts", 0}, "contracts@latest": {"contracts", 0}, "a-b_c@12": {"a-b_c", 12}} {
		got, err := ParseRef(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseRef(got.String()); err != nil || again != got {
			t.Errorf("%s became %s", text, got)
		}
	}
	for _, text := range []string{"", "A", "a@", "a@0", "a@-1", "a@01", "a@+1", "a@3@4", "a@99999999999", strings.Repeat("a", 64), "a b"} {
		if got, err := ParseRef(text); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestDiffNamesWhatChanged(t *testing.T) {
	c := checker(t)
	old, err := c.ParseTOML([]byte(contracts))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`chunk_token_num = 384`, `chunk_token_num = 512`, `pool = "llm"`, ``, `[[node]]
id = "out"
kind = "index"
from = ["pieces", "parties"]`, "[[node]]\nid = 'vectors'\nkind = 'embed'\nfrom = ['pieces']\n[[node]]\nid = 'found'\nkind = 'index'\nfrom = ['vectors', 'parties']").Replace("mode = 'whole'\n" + contracts)
	changed, err := c.ParseTOML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range Diff(old, changed) {
		got = append(got, fmt.Sprintf("%s.%s %t %t", d.Node, d.Field, d.Was != nil, d.Is != nil))
	}
	if want := []string{".mode true true", "vectors.node false true", "found.node false true", "pieces.config true true", "parties.pool true false", "out.node true false"}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Any acyclic graph of fitting ports is accepted, survives both forms, and is
// ordered; with one edge turned back it is refused for its cycle.
func TestGraphs(t *testing.T) {
	c := checker(t)
	rapid.Check(t, func(rt *rapid.T) {
		f := &Flow{Name: "g", Scope: ScopeDocument, Mode: ModeAuto, Nodes: []Node{{ID: "r", Kind: "parse"}, {ID: "c0", Kind: "chunk", From: []string{"r"}}}}
		chunks := []string{"c0"}
		for i := range rapid.IntRange(0, 20).Draw(rt, "nodes") {
			id := fmt.Sprintf("c%d", i+1)
			n := Node{ID: id, Kind: rapid.SampledFrom([]string{"enrich", "merge"}).Draw(rt, "kind")}
			for range rapid.IntRange(1, 3).Draw(rt, "inputs") {
				if from := rapid.SampledFrom(chunks).Draw(rt, "from"); !slices.Contains(n.From, from) {
					n.From = append(n.From, from)
				}
			}
			chunks = append(chunks, id)
			f.Nodes = append(f.Nodes, n)
		}
		out := Node{ID: "out", Kind: "index"}
		for _, id := range chunks {
			if !slices.ContainsFunc(f.Nodes, func(n Node) bool { return slices.Contains(n.From, id) }) {
				out.From = append(out.From, id)
			}
		}
		f.Nodes = rapid.Permutation(append(f.Nodes, out)).Draw(rt, "order")
		same(rt, c, f)
		seen := map[string]bool{}
		order := f.Order()
		for _, n := range order {
			for _, from := range n.From {
				if !seen[from] {
					rt.Fatalf("%s stands before %s, which it reads", n.ID, from)
				}
			}
			seen[n.ID] = true
		}
		if len(order) != len(f.Nodes) {
			rt.Fatalf("%d of %d nodes are ordered", len(order), len(f.Nodes))
		}
		// Close a way around: the first chunks read what comes from them.
		late := order[len(order)-2]
		if late.Kind == "parse" || late.Kind == "chunk" {
			return
		}
		for i := range f.Nodes {
			if f.Nodes[i].ID == "c0" {
				f.Nodes[i].Kind, f.Nodes[i].From = "merge", []string{"r", late.ID}
			}
		}
		b, err := f.JSON()
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := c.ParseJSON(b); err == nil || !strings.Contains(err.Error(), "wait for each other: ") {
			rt.Fatalf("a cycle: %v", err)
		}
	})
}

// FuzzParse holds that no text makes the parser panic, and that what it accepts
// survives both forms.
func FuzzParse(f *testing.F) {
	f.Add(contracts)
	f.Add(`{"name":"f","node":[{"id":"a","kind":"parse"},{"id":"b","kind":"chunk","from":["a"],"when":"document.pages > 1 + 2"},{"id":"c","kind":"index","from":["b"],"retry":{}}]}`)
	f.Add(`{"name":"f","node":[{"id":"b","kind":"merge","from":["b"]}]}`)
	f.Add(`{"name":"f","node":[{"id":"b","kind":"extract","from":["a"],"config":{"schema":{"a":[1e20,2.0,{}]},"share":1}}]}`)
	c := checker(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func([]byte) (*Flow, error){c.ParseTOML, c.ParseJSON} {
			flow, err := parse([]byte(text))
			if err == nil {
				same(t, c, flow)
			} else if !errors.Is(err, sheaf.ErrInvalid) {
				t.Fatal(err)
			}
		}
	})
}

// A node runs unless its condition is false or nothing that it reads ran: the
// same as going through the order by hand.
func TestSkippedFollowsTheConditions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &Flow{Name: "g", Nodes: []Node{{ID: "r", Kind: "parse"}, {ID: "c0", Kind: "chunk", From: []string{"r"}}}}
		ran := map[string]bool{"r": true, "c0": true}
		for i := range rapid.IntRange(0, 12).Draw(rt, "nodes") {
			n := Node{ID: fmt.Sprintf("c%d", i+1), Kind: "branch"}
			for range rapid.IntRange(1, 3).Draw(rt, "inputs") {
				if from := fmt.Sprintf("c%d", rapid.IntRange(0, i).Draw(rt, "from")); !slices.Contains(n.From, from) {
					n.From = append(n.From, from)
				}
			}
			holds := rapid.IntRange(0, 3).Draw(rt, "holds")
			n.When = []string{"", "document.pages == 3", "document.pages > 3", "document.name == 'b'"}[holds]
			ran[n.ID] = holds < 2 && slices.ContainsFunc(n.From, func(id string) bool { return ran[id] })
			f.Nodes = append(f.Nodes, n)
		}
		out := Node{ID: "out", Kind: "index"}
		for i := range rapid.IntRange(1, 3).Draw(rt, "ends") {
			if from := fmt.Sprintf("c%d", rapid.IntRange(0, len(f.Nodes)-2).Draw(rt, "end")); i == 0 || !slices.Contains(out.From, from) {
				out.From = append(out.From, from)
			}
		}
		found := slices.ContainsFunc(out.From, func(id string) bool { return ran[id] })
		f.Nodes = rapid.Permutation(append(f.Nodes, out)).Draw(rt, "order")
		skipped, err := f.Skipped(map[string]any{"document.pages": 3, "document.name": "a"})
		if (err == nil) != found {
			rt.Fatalf("something reaches the index: %t, and the answer is %v", found, err)
		}
		if err != nil {
			return
		}
		// What only feeds nodes that do not run does not run either.
		feeds := map[string]bool{"out": true}
		for changed := true; changed; {
			changed = false
			for _, n := range f.Nodes {
				for _, id := range n.From {
					if feeds[n.ID] && ran[id] && !feeds[id] {
						feeds[id], changed = true, true
					}
				}
			}
		}
		for id, runs := range ran {
			runs = runs && feeds[id]
			if slices.ContainsFunc(skipped, func(s Skip) bool { return s.Node == id }) == runs {
				rt.Fatalf("%s runs: %t, and skipped are %v", id, runs, skipped)
			}
		}
	})
}

// What a kind is said to take is what the check lets its nodes have.
func TestKindsTakeWhatIsNotRefused(t *testing.T) {
	set := map[string]func(*Node){
		"when":           func(n *Node) { n.When = "true" },
		"pool":           func(n *Node) { n.Pool = "llm" },
		"on_failure":     func(n *Node) { n.OnFailure = SkipNode },
		"timeout":        func(n *Node) { n.Timeout = Duration(time.Minute) },
		"retry.attempts": func(n *Node) { n.Retry = &Retry{Attempts: 2} },
		"retry.base":     func(n *Node) { n.Retry = &Retry{Base: Duration(time.Second)} },
		"retry.max":      func(n *Node) { n.Retry = &Retry{Max: Duration(time.Minute)} },
	}
	for setting := range Common {
		with := set[setting]
		if with == nil {
			t.Errorf("%s is not tried here", setting)
			continue
		}
		for _, k := range Kinds() {
			n := Node{ID: "it", Kind: k.Name}
			with(&n)
			field, _, _ := strings.Cut(setting, ".")
			refused := slices.ContainsFunc(unsupported(&Flow{Name: "f", Nodes: []Node{n}}), func(p Problem) bool { return p.Node == "it" && p.Field == field })
			if refused == Takes(k.Name, setting) {
				t.Errorf("%s of a node of kind %s: refused %v, taken %v", setting, k.Name, refused, Takes(k.Name, setting))
			}
		}
	}
}
