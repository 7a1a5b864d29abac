package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Checker parses flows and checks them against the known kinds. It is safe for
// concurrent use.
type Checker struct {
	kinds      map[string]Kind
	conditions *Conditions
}

// NewChecker returns a Checker for these kinds.
func NewChecker(kinds ...Kind) (*Checker, error) {
	conditions, err := NewConditions()
	if err != nil {
		return nil, err
	}
	c := &Checker{map[string]Kind{}, conditions}
	for _, k := range kinds {
		c.kinds[k.Name] = k
	}
	return c, nil
}

// ParseTOML reads a flow. The error is an Invalid.
func (c *Checker) ParseTOML(text []byte) (*Flow, error) {
	if len(text) > MaxBytes {
		return nil, tooLong(len(text))
	}
	if !shallowTOML(text) {
		return nil, Invalid{{Message: tooDeep}}
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		if at, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, Invalid{{Message: fmt.Sprintf("the TOML is wrong in line %d: %s", at.Position.Line, at.Message), Line: at.Position.Line}}
		}
		return nil, Invalid{{Message: "the TOML is wrong: " + err.Error()}}
	}
	// From here on it is treated as JSON, so that both formats behave the same.
	b, err := json.Marshal(tree)
	if err != nil {
		return nil, Invalid{{Message: "the TOML holds a value that JSON has not: " + err.Error()}}
	}
	f, err := c.parse(b)
	if invalid, ok := errors.AsType[Invalid](err); ok {
		return nil, invalid.located(text, true)
	}
	return f, err
}

// ParseJSON reads a flow. The error is an Invalid.
func (c *Checker) ParseJSON(text []byte) (*Flow, error) {
	if len(text) > MaxBytes {
		return nil, tooLong(len(text))
	}
	f, err := c.parse(text)
	if invalid, ok := errors.AsType[Invalid](err); ok {
		return nil, invalid.located(text, false)
	}
	return f, err
}

// maxOpen is how deep a text's values may be nested: a config is inside a node, the
// nodes and the flow.
const maxOpen = maxDepth + 4

var tooDeep = fmt.Sprintf("values are nested more than %d deep", maxDepth)

// shallowTOML reports whether brackets and dotted keys stay within maxOpen, before
// the TOML library sees them: its time is quadratic in their depth, and 60 KB of
// "a.a.a" took 107 seconds.
func shallowTOML(b []byte) bool {
	open, dots := 0, 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '#':
			for i+1 < len(b) && b[i+1] != '\n' {
				i++
			}
		case '"', '\'':
			i = endOfString(b, i)
		case '.':
			dots++
		case '[', '{':
			open, dots = open+1, 0
		case ']', '}':
			open--
		case '\n', ',', '=':
			dots = 0
		}
		if open > maxOpen || dots > maxOpen {
			return false
		}
	}
	return true
}

// endOfString returns where the string that starts at i ends, by TOML's rules: a
// triple-quoted string may have two quotes before the closing ones, and a backslash
// escapes in double-quoted strings.
func endOfString(b []byte, i int) int {
	quote := b[i]
	long := bytes.HasPrefix(b[i:], []byte{quote, quote, quote})
	if long {
		i += 2
	}
	for i++; i < len(b); i++ {
		switch {
		case b[i] == '\\' && quote == '"':
			i++
		case b[i] == '\n' && !long:
			return i // unterminated: the library reports it
		case b[i] == quote && !long:
			return i
		case b[i] == quote && bytes.HasPrefix(b[i:], []byte{quote, quote, quote}):
			i += 2
			for n := 0; n < 2 && i+1 < len(b) && b[i+1] == quote; n++ {
				i++
			}
			return i
		}
	}
	return i
}

func tooLong(n int) Invalid {
	return Invalid{{Message: fmt.Sprintf("the flow has %d bytes; %d are allowed", n, MaxBytes)}}
}

func (c *Checker) parse(text []byte) (*Flow, error) {
	if err := CheckJSON(text); err != nil {
		return nil, err
	}
	// Decode node by node, so that a problem names its node.
	var raw struct {
		Name  string            `json:"name"`
		Scope Scope             `json:"scope"`
		Mode  Mode              `json:"mode"`
		Nodes []json.RawMessage `json:"node"`
	}
	if err := strictly(text, &raw); err != nil {
		return nil, Invalid{{Message: err.Error()}}
	}
	f := &Flow{Name: raw.Name, Scope: raw.Scope, Mode: raw.Mode}
	var problems Invalid
	for i, r := range raw.Nodes {
		if i == MaxNodes {
			break // check reports this
		}
		var n Node
		if err := strictly(r, &n); err != nil {
			problems = append(problems, Problem{Node: label(n.ID, i), Message: err.Error()})
		}
		if n.Config, _ = plain(n.Config).(map[string]any); len(n.Config) == 0 {
			n.Config = nil
		}
		if len(n.From) == 0 {
			n.From = nil
		}
		f.Nodes = append(f.Nodes, n)
	}
	if problems == nil {
		problems = c.check(f, len(raw.Nodes))
	}
	if problems != nil {
		return nil, problems
	}
	return f, nil
}

// CheckJSON rejects a text that cannot be the JSON of a flow. The error is an
// Invalid, with the line of a syntax error.
func CheckJSON(text []byte) error {
	err := checkJSON(text)
	if err == nil {
		return nil
	}
	line := 0
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		line = 1 + bytes.Count(text[:min(max(int(at.Offset), 0), len(text))], []byte("\n"))
	}
	return Invalid{{Message: err.Error(), Line: line}}
}

// label names a node that may have no id.
func label(id string, i int) string {
	if id == "" {
		return fmt.Sprintf("#%d", i+1)
	}
	return id
}

// strictly decodes JSON and rejects fields that v does not have.
func strictly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("%s is a %s and cannot be one", wrong.Field, wrong.Value)
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// checkJSON rejects what decoding would accept: a duplicate key, a second value, and
// unlimited nesting.
func checkJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var keys []map[string]bool // of the open objects; nil for an array
	key := false               // the next token is a key
	for n := 0; ; n++ {
		t, err := d.Token()
		if err == io.EOF && n > 0 && len(keys) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the JSON is wrong near byte %d: %w", d.InputOffset(), err)
		}
		if n > 0 && len(keys) == 0 {
			return errors.New("the text holds more than one JSON value")
		}
		if name, ok := t.(string); ok && key {
			if open := keys[len(keys)-1]; open[name] {
				return fmt.Errorf("the key %q is given twice", name)
			} else {
				open[name] = true
			}
			key = false
			continue
		}
		if v, ok := t.(json.Number); ok {
			if _, err := v.Float64(); err != nil {
				return fmt.Errorf("the number %.40s is out of range", v)
			}
		}
		switch t {
		case json.Delim('{'):
			keys = append(keys, map[string]bool{})
		case json.Delim('['):
			keys = append(keys, nil)
		case json.Delim('}'), json.Delim(']'):
			keys = keys[:len(keys)-1]
		}
		if len(keys) > maxOpen {
			return errors.New(tooDeep)
		}
		key = len(keys) > 0 && keys[len(keys)-1] != nil
	}
}

// plain replaces json.Number by int64 or float64 throughout v.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // checkJSON has validated it
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f) // 2.0 is 2 in canonical form
		}
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

// TOML returns the flow as ParseTOML reads it.
func (f *Flow) TOML() ([]byte, error) {
	b, err := f.JSON()
	if err != nil {
		return nil, err
	}
	var head map[string]any
	var body struct {
		Nodes []map[string]any `json:"node"` // written as tables
	}
	for _, v := range []any{&head, &body} {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(v); err != nil {
			return nil, err
		}
	}
	for i := range body.Nodes {
		plain(body.Nodes[i])
	}
	head["node"] = body.Nodes
	var out bytes.Buffer
	e := toml.NewEncoder(&out)
	e.Indent = ""
	if err := e.Encode(head); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// check reports everything that is wrong with a flow of nodes nodes, nil for
// nothing, and fills in its defaults.
func (c *Checker) check(f *Flow, nodes int) (problems Invalid) {
	add := func(node, field, format string, args ...any) {
		problems = append(problems, Problem{Node: node, Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if !nameRule.MatchString(f.Name) {
		add("", "name", "%q is no name: use lower-case letters, digits, - and _, up to 63", f.Name)
	}
	if f.Scope == "" {
		f.Scope = ScopeDocument
	} else if f.Scope != ScopeDocument && f.Scope != ScopeDataset {
		add("", "scope", "%q is not one of document, dataset", f.Scope)
	}
	if f.Mode == "" {
		f.Mode = ModeAuto
	} else if f.Mode != ModeAuto && f.Mode != ModeWhole && f.Mode != ModeNodes {
		add("", "mode", "%q is not one of auto, whole, nodes", f.Mode)
	}
	if nodes == 0 {
		add("", "node", "the flow has no nodes; add one")
	}
	if nodes > MaxNodes {
		add("", "node", "the flow has %d nodes; %d are allowed", nodes, MaxNodes)
		return problems
	}
	known, read := map[string]bool{}, map[string]bool{}
	for i, n := range f.Nodes {
		if !nameRule.MatchString(n.ID) {
			add(label(n.ID, i), "id", "%q is no id: use lower-case letters, digits, - and _, up to 63", n.ID)
		} else if known[n.ID] {
			add(n.ID, "id", "another node has this id; give it one of its own")
		}
		known[n.ID] = true
		for _, from := range n.From {
			read[from] = true
		}
	}
	for i, n := range f.Nodes {
		c.node(&n, known, read, func(field, format string, args ...any) { add(label(n.ID, i), field, format, args...) })
	}
	if problems != nil {
		return problems // the rest would be consequential
	}
	order, stuck := f.order()
	if stuck != nil {
		add("", "node", "these nodes wait for each other: %s; take one of the edges out", strings.Join(cycle(stuck), " → "))
		return problems
	}
	c.ports(order, add)
	return problems
}

// node checks a node on its own.
func (c *Checker) node(n *Node, known, read map[string]bool, problem func(field, format string, args ...any)) {
	kind, ok := c.kinds[n.Kind]
	if !ok {
		problem("kind", "there is no kind %q; there are %s", n.Kind, strings.Join(slices.Sorted(maps.Keys(c.kinds)), ", "))
		return
	}
	if len(n.From) > maxInputs {
		problem("from", "it has %d inputs; %d are allowed", len(n.From), maxInputs)
	}
	for i, from := range n.From {
		switch {
		case !known[from]:
			problem("from", "there is no node %q", from)
		case slices.Contains(n.From[:i], from):
			problem("from", "%s is named twice", from)
		}
	}
	if kind.In == nil && len(n.From) > 0 {
		problem("from", "the kind %s reads the document itself and takes no inputs", n.Kind)
	}
	if kind.In != nil && len(n.From) == 0 {
		problem("from", "the kind %s needs an input; name the node whose output it reads", n.Kind)
	}
	if (kind.Out != "" || kind.Same) && !kind.Ends && !read[n.ID] {
		problem("", "nothing reads its output; name it in the from of another node, or take it out")
	}
	if kind.Out == "" && !kind.Same && read[n.ID] {
		problem("", "the kind %s passes nothing on, and a node reads it", n.Kind)
	}
	kind.config(n.Config, problem)
	if n.When != "" {
		if _, err := c.conditions.Compile(n.When); err != nil {
			problem("when", "%v", err)
		}
	}
	if n.Pool != "" && !nameRule.MatchString(n.Pool) {
		problem("pool", "%q is no name of a pool: use lower-case letters, digits, - and _, up to 63", n.Pool)
	}
	if !slices.Contains([]OnFailure{"", FailRun, SkipNode, UseDefault}, n.OnFailure) {
		problem("on_failure", "%q is not one of fail, skip, default", n.OnFailure)
	}
	within := func(field string, d Duration, most time.Duration) {
		if d < 0 || time.Duration(d) > most {
			problem(field, "%v is not from 0s to %v", time.Duration(d), most)
		}
	}
	within("timeout", n.Timeout, 24*time.Hour)
	if r := n.Retry; r != nil {
		if r.Attempts < 0 || r.Attempts > 20 {
			problem("retry.attempts", "%d is not from 1 to 20", r.Attempts)
		}
		within("retry.base", r.Base, time.Hour)
		within("retry.max", r.Max, 24*time.Hour)
		if r.Max != 0 && r.Max < r.Base {
			problem("retry.max", "it is shorter than retry.base")
		}
	}
}

// ports checks that each edge carries a type that its node accepts.
func (c *Checker) ports(order []*Node, add func(node, field, format string, args ...any)) {
	out := map[string]Port{}
	for _, n := range order {
		kind := c.kinds[n.Kind]
		out[n.ID] = kind.Out
		needed := kind.Needs == nil
		for i, from := range n.From {
			port := out[from]
			if port == "" {
				continue // reported for the node that feeds it
			}
			if !slices.Contains(kind.In, port) {
				add(n.ID, "from", "%s gives %s, and the kind %s takes %s", from, port, n.Kind, list(kind.In))
			} else if kind.Same && i > 0 && out[n.From[0]] != port {
				add(n.ID, "from", "%s gives %s and %s gives %s; inputs of the kind %s are of one type", n.From[0], out[n.From[0]], from, port, n.Kind)
			}
			needed = needed || slices.Contains(kind.Needs, port)
			if kind.Same && i == 0 {
				out[n.ID] = port
			}
		}
		if !needed {
			add(n.ID, "from", "the kind %s needs an input of %s", n.Kind, list(kind.Needs))
		}
	}
}

func list(ports []Port) string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = string(p)
	}
	return strings.Join(names, " or ")
}

// cycle finds a cycle among nodes that wait for each other.
func cycle(stuck []*Node) []string {
	by := map[string]*Node{}
	for _, n := range stuck {
		by[n.ID] = n
	}
	var path []string
	for n := stuck[0]; ; {
		if at := slices.Index(path, n.ID); at >= 0 {
			path = append(path[at:], n.ID)
			slices.Reverse(path) // from what is read to what reads it
			return path
		}
		path = append(path, n.ID)
		// A stuck node reads a stuck node.
		i := slices.IndexFunc(n.From, func(id string) bool { return by[id] != nil })
		n = by[n.From[i]]
	}
}
