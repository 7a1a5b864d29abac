// Package flow describes the processing of a document as a graph of nodes that a
// tenant owns: how such a graph is written, which graphs are rejected, in which
// order the nodes run, and what distinguishes two versions. It runs and stores
// nothing: taskstore stores the versions, executor runs them.
package flow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf"
)

// Limits on a flow.
const (
	MaxBytes  = 64 << 10 // of its text
	MaxNodes  = 100
	maxInputs = 32 // per node
	maxDepth  = 8  // nesting of a config
)

// Flow is one version of a graph. It is immutable after Parse.
type Flow struct {
	Name  string `json:"name"`
	Scope Scope  `json:"scope,omitempty"` // default document
	Mode  Mode   `json:"mode,omitempty"`  // default auto
	Nodes []Node `json:"node"`            // as written: from may name later nodes
}

// Scope is what one run of a flow covers.
type Scope string

const (
	ScopeDocument Scope = "document" // a generation of a document
	ScopeDataset  Scope = "dataset"  // the live documents of a dataset at a point in time
)

// Mode is how nodes become tasks.
type Mode string

const (
	ModeAuto  Mode = "auto"  // whichever is cheaper
	ModeWhole Mode = "whole" // all nodes of a range in one task
	ModeNodes Mode = "nodes" // one task per node
)

// Node is a step of a flow.
type Node struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"`
	From      []string       `json:"from,omitempty"` // ids of the nodes whose outputs it reads, in this order
	When      string         `json:"when,omitempty"` // CEL; if false, the node is skipped
	Config    map[string]any `json:"config,omitempty"`
	Pool      string         `json:"pool,omitempty"` // of executors; default "default"
	Retry     *Retry         `json:"retry,omitempty"`
	Timeout   Duration       `json:"timeout,omitempty"`    // per attempt; 0 means the executor's
	OnFailure OnFailure      `json:"on_failure,omitempty"` // default fail
}

// Retry bounds the attempts of a node.
type Retry struct {
	Attempts int      `json:"attempts,omitempty"` // 1 to 20; 0 means the executor's
	Base     Duration `json:"base,omitempty"`     // wait before the second attempt; it doubles
	Max      Duration `json:"max,omitempty"`      // longest wait
}

// OnFailure is how a run proceeds when a node has failed permanently.
type OnFailure string

const (
	FailRun    OnFailure = "fail"    // the run fails
	SkipNode   OnFailure = "skip"    // the node is skipped, and whatever only it feeds
	UseDefault OnFailure = "default" // it passes on an empty output
)

// Duration is a time.Duration written as "10s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Problem is one reason why a flow is rejected.
type Problem struct {
	Node    string `json:"node,omitempty"`  // its id; "" for the flow itself
	Field   string `json:"field,omitempty"` // of the node or the flow
	Message string `json:"message"`         // a sentence that says what to do
	Line    int    `json:"line,omitempty"`  // line of the text, from 1
}

// Invalid is the error of a rejected flow: everything that is wrong with it.
type Invalid []Problem

func (v Invalid) Error() string {
	lines := make([]string, len(v))
	for i, p := range v {
		lines[i] = p.Message
		if p.Field != "" {
			lines[i] = p.Field + ": " + lines[i]
		}
		if p.Node != "" {
			lines[i] = "node " + p.Node + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns sheaf.ErrInvalid.
func (v Invalid) Unwrap() error { return sheaf.ErrInvalid }

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Ref names a flow, or one version of it.
type Ref struct {
	Name    string
	Version int // from 1; 0 means the latest
}

func (r Ref) String() string {
	if r.Version == 0 {
		return r.Name
	}
	return r.Name + "@" + strconv.Itoa(r.Version)
}

// ParseRef reads "contracts", "contracts@latest" or "contracts@3".
func ParseRef(s string) (Ref, error) {
	name, version, pinned := strings.Cut(s, "@")
	r := Ref{Name: name}
	if !nameRule.MatchString(name) {
		return Ref{}, fmt.Errorf("%w: %q is no name of a flow: use lower-case letters, digits, - and _, up to 63", sheaf.ErrInvalid, name)
	}
	if pinned && version != "latest" {
		n, err := strconv.ParseUint(version, 10, 31)
		if err != nil || n == 0 || version[0] == '0' || version[0] == '+' {
			return Ref{}, fmt.Errorf("%w: %q is no version of a flow: use a number from 1, or latest", sheaf.ErrInvalid, version)
		}
		r.Version = int(n)
	}
	return r, nil
}

// Change is a difference between two versions of a flow.
type Change struct {
	Node  string `json:"node,omitempty"` // "" for the flow itself
	Field string `json:"field"`          // as in JSON; "node" for an added or removed one
	Was   any    `json:"was,omitempty"`
	Is    any    `json:"is,omitempty"`
}

// Diff lists the changes from old to new: the flow's fields, then the nodes of new
// in order, then removed nodes. It is empty when both do the same.
func Diff(old, new *Flow) (changes []Change) {
	changes = diffFields("", *old, *new, "node")
	was := map[string]Node{}
	for _, n := range old.Nodes {
		was[n.ID] = n
	}
	for _, n := range new.Nodes {
		o, ok := was[n.ID]
		if !ok {
			changes = append(changes, Change{Node: n.ID, Field: "node", Is: n})
			continue
		}
		changes = append(changes, diffFields(n.ID, o, n, "id")...)
	}
	for _, n := range old.Nodes {
		if !slices.ContainsFunc(new.Nodes, func(m Node) bool { return m.ID == n.ID }) {
			changes = append(changes, Change{Node: n.ID, Field: "node", Was: n})
		}
	}
	return changes
}

// diffFields compares two structs by their JSON names.
func diffFields[T any](node string, old, new T, except string) (changes []Change) {
	o, n := reflect.ValueOf(old), reflect.ValueOf(new)
	for i := range o.NumField() {
		name, _, _ := strings.Cut(o.Type().Field(i).Tag.Get("json"), ",")
		if name == except || reflect.DeepEqual(o.Field(i).Interface(), n.Field(i).Interface()) {
			continue
		}
		c := Change{Node: node, Field: name}
		if !o.Field(i).IsZero() {
			c.Was = o.Field(i).Interface()
		}
		if !n.Field(i).IsZero() {
			c.Is = n.Field(i).Interface()
		}
		changes = append(changes, c)
	}
	return changes
}

// Order lists the nodes so that each follows those it reads; ties keep the order in
// which they were written.
func (f *Flow) Order() []*Node {
	order, _ := f.order()
	return order
}

// order also returns the nodes that cannot be ordered: those in cycles, and those
// they feed.
func (f *Flow) order() (order []*Node, stuck []*Node) {
	done := map[string]bool{}
	left := make([]*Node, len(f.Nodes))
	for i := range f.Nodes {
		left[i] = &f.Nodes[i]
	}
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(n *Node) bool {
			return !slices.ContainsFunc(n.From, func(id string) bool { return !done[id] })
		})
		if i < 0 {
			return order, left
		}
		done[left[i].ID] = true
		order, left = append(order, left[i]), slices.Delete(left, i, i+1)
	}
	return order, nil
}

// JSON returns the flow in canonical form: equal flows give equal bytes.
func (f *Flow) JSON() ([]byte, error) { return json.Marshal(f) } // map keys are sorted

// Skip is a node that does not run, and why.
type Skip struct {
	Node   string
	Reason string
}

// Skipped decides which nodes do not run: those whose condition is false for given,
// those that read only skipped nodes, and those that only skipped nodes read. The
// error is a sentence: an expression has no value, or nothing would reach the index.
func (f *Flow) Skipped(given map[string]any) (skipped []Skip, err error) {
	var conditions *Conditions
	out := map[string]bool{}
	for _, n := range f.Order() {
		reason := ""
		switch {
		case len(n.From) > 0 && !slices.ContainsFunc(n.From, func(id string) bool { return !out[id] }):
			reason = "all that it reads was skipped"
		case n.When != "":
			if conditions == nil {
				if conditions, err = NewConditions(); err != nil {
					return nil, err
				}
			}
			c, err := conditions.Compile(n.When)
			if err != nil {
				return nil, fmt.Errorf("node %s: when: %w", n.ID, err)
			}
			holds, err := c.Holds(given)
			if err != nil {
				return nil, fmt.Errorf("node %s: when: %w; ask 'key' in document.metadata before document.metadata['key'] is read", n.ID, err)
			}
			if !holds {
				reason = n.When + " is false"
			}
		}
		if reason == "" {
			continue
		}
		if n.Kind == "index" {
			return nil, fmt.Errorf("node %s: %s, so that nothing would be found; give the arms conditions of which one holds", n.ID, reason)
		}
		out[n.ID] = true
		skipped = append(skipped, Skip{n.ID, reason})
	}
	// Outputs that only skipped nodes would read are not made: they may cost money and
	// could fail for nothing.
	read := map[string]bool{}
	for _, n := range slices.Backward(f.Order()) {
		switch {
		case out[n.ID]:
			continue
		case n.Kind != "index" && !Writes(n.Kind) && Over(n.Kind) == "" && !read[n.ID]:
			out[n.ID] = true
			skipped = append(skipped, Skip{n.ID, "all that reads it was skipped"})
			continue
		}
		for _, id := range n.From {
			read[id] = true
		}
	}
	return skipped, nil
}
