package flow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Each problem has the line of what it is about, however the flow is written.
func TestProblemsHaveTheirLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name = \"x\"\nnode = [\n", "2:"},
		{"# first\nname = \"X!\"\n\nnode = [\n  { id = \"read\", kind = \"parse\" },\n  { id = \"cut\",\n    kind = \"chunk\", from = [\n      \"reed\" ], when = 'a # b' },\n  { id = \"out\", kind = \"index\", from = [\"cut\"], pool = \"A B\" },\n]\n",
			"2:name 7:cut.from 8:cut.when 9:out.pool"},
		{"name = \"x\"\n[[node]]\nid = \"read\"\nkind = \"parse\"\n\n[[node]]\nid = \"cut\"\nkind = \"chunk\"\nfrom = [\"read\"]\n[node.config]\n# [[node]]\nchunk_token_num = 3\ndelimiter = \"\"\"\n[[node]]\nid = \"no\"\"\"\"\n[[node]]\nid = \"out\"\nkind = \"index\"\nfrom = [\"cut\"]\nretry.attempts = 99\n",
			"12:cut.config.chunk_token_num 20:out.retry.attempts"},
		{"name = \"x\"\n[[node]]\nid = \"a\"\nkind = \"parse\"\n[[node]]\nid = \"a\"\nkind = \"chunk\"\nfrom = [\"a\"]\n[[node]]\nkind = \"index\"\nfrom = [\"a\"]\n", "6:a.id 9:#3.id"},
		{"name = \"x\"\nnode = [\n { id = \"a\", kind = \"parse\" },\n { id = \"b\", kind = \"chunk\",\n from = [\"a\"], froms = 1 } ]\n", "5:b."},
		{"name = \"x\"\n[[node]]\nkind = \"parse\"\nid = \"read\"\n", "4:read."},
		{"name = \"x\"\nmode = \"fast\"\n", "2:mode 1:node"},
		{"{\n \"name\": \"X!\",\n \"node\": [\n  {\"id\": \"read\", \"kind\": \"parse\"},\n  {\"id\": \"cut\",\n   \"kind\": \"chunk\", \"from\": [\n    \"reed\"], \"when\": \"a # b\"},\n  {\"id\": \"out\", \"kind\": \"index\", \"from\": [\"cut\"],\n   \"pool\": \"A B\"}\n ]\n}\n",
			"2:name 6:cut.from 7:cut.when 9:out.pool"},
		{"{\"name\": \"x\", \"node\": [\n{\"kind\": \"parse\", \"id\": \"read\"},\n{\"id\": \"cut\", \"kind\": \"chunk\", \"from\": [\"read\"], \"config\": {\n  \"delimiter\": \"\\n\",\n\n  \"chunk_token_num\": 3}},\n{\"id\": \"out\", \"kind\": \"index\", \"from\": [\"cut\"], \"retry\": {\"attempts\":\n 99}}]}",
			"6:cut.config.chunk_token_num 7:out.retry.attempts"},
		{"{\"name\": \"x\", \"node\": [\n{\"id\": \"a\", \"kind\": \"parse\"},\n{\"id\": \"a\", \"kind\": \"chunk\", \"from\": [\"a\"]},\n{\"kind\": \"index\", \"from\": [\"a\"]}]}", "3:a.id 4:#3.id"},
		{"{\"name\": \"x\",\n\"node\": [\n}", "3:"},
		{"{\n\"name\": \"x\",\n\n\"modes\": null}", "4:"},
	} {
		_, err := Read([]byte(c.text), !strings.HasPrefix(c.text, "{"))
		invalid, ok := errors.AsType[Invalid](err)
		if !ok {
			t.Fatalf("%v of\n%s", err, c.text)
		}
		var got []string
		for _, p := range invalid {
			got = append(got, strings.TrimSuffix(fmt.Sprintf("%d:%s", p.Line, strings.TrimPrefix(p.Node+"."+p.Field, ".")), " "))
		}
		for _, want := range strings.Fields(c.want) {
			if !slices.Contains(got, want) {
				t.Errorf("no %s in %q of %v:\n%s", want, got, err, c.text)
			}
		}
	}
}

// The lines of nodes are found in all ways to write them.
func TestLinesOfNodes(t *testing.T) {
	text := "name = \"x\" # node = [\nnode = [ { id = 'a', kind = \"parse\" }, { id = \"b\", config = { id = \"c\", x = [ { id = \"d\" } ] } },\n\n  { kind = \"x\",\n    id = \"e\" },\n]\n"
	if got := Lines([]byte(text)); !maps.Equal(got, map[string]int{"a": 2, "b": 2, "e": 5}) {
		t.Errorf("%v", got)
	}
	text = "[[node]]\nid = \"a\"\n[node.retry]\nattempts = 2\n[[node]]\nid = \"b\"\n"
	if got := Lines([]byte(text)); !maps.Equal(got, map[string]int{"a": 2, "b": 6}) {
		t.Errorf("%v", got)
	}
	for _, broken := range []string{"[", "[[", "node = [", "node = [ {", "node = [ { id = \"", "= = =", "]]]}}}", "a.b.", "node = [ { id = 1 } }", strings.Repeat("[", 60_000), "a = " + strings.Repeat("{b=", 20_000)} {
		Lines([]byte(broken)) // ends
	}
}

// Everything that a node can be, and be set to, is described.
func TestKindsAreDescribed(t *testing.T) {
	check := func(of string, fields map[string]Field) {
		for name, f := range fields {
			if f.Doc == "" {
				t.Errorf("%s.%s says nothing of itself", of, name)
			}
		}
	}
	for _, k := range Kinds() {
		if k.Doc == "" {
			t.Errorf("%s says nothing of itself", k.Name)
		}
		check(k.Name, k.Config)
	}
	check("a node", Common)
}
