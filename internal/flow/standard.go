package flow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/taskstore"
)

// StandardName is the flow of documents that name no other. Every tenant has it, in
// a single immutable version.
const StandardName = "standard"

// StandardFlow is the pipeline of documents that name no flow.
func StandardFlow() *Flow {
	return &Flow{Name: StandardName, Scope: ScopeDocument, Mode: ModeWhole, Nodes: []Node{
		{ID: "parse", Kind: "parse"},
		{ID: "chunk", Kind: "chunk", From: []string{"parse"}},
		{ID: "enrich", Kind: "enrich", From: []string{"chunk"}},
		{ID: "embed", Kind: "embed", From: []string{"enrich"}},
		{ID: "index", Kind: "index", From: []string{"embed"}},
	}}
}

// DefaultChecker checks against the kinds that executors run. It is made on first
// use, because declaring the expressions takes milliseconds and a megabyte.
var DefaultChecker = sync.OnceValues(func() (*Checker, error) { return NewChecker(Kinds()...) })

// Read reads a flow from JSON or TOML, and rejects one that executors cannot run.
// Errors about the flow are an Invalid.
func Read(text []byte, isTOML bool) (*Flow, error) {
	c, err := DefaultChecker()
	if err != nil {
		return nil, err
	}
	parse := c.ParseJSON
	if isTOML {
		parse = c.ParseTOML
	}
	read, err := parse(text)
	if err != nil {
		return nil, err
	}
	if problems := unsupported(read); problems != nil {
		return nil, problems.located(text, isTOML)
	}
	return read, nil
}

// Digest identifies what a flow does: the xxhash64 of its canonical form without its
// name, 16 hex.
func (f *Flow) Digest() (string, error) {
	unnamed := *f
	unnamed.Name = ""
	b, err := unnamed.JSON()
	return fmt.Sprintf("%016x", xxhash.Sum64(b)), err
}

// unsupported reports what executors cannot do in a valid flow. In the mode nodes,
// the chunk node's task also parses, the index node's task also embeds, and each
// working node between them has a task.
func unsupported(f *Flow) (problems Invalid) {
	add := func(node, field, format string, args ...any) {
		problems = append(problems, Problem{Node: node, Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if f.Name == StandardName {
		add("", "name", "%q is the flow that everybody has; choose another name", f.Name)
	}
	if f.Scope == ScopeDataset {
		add("", "scope", "flows run over documents; leave scope out")
	}
	count := map[string][]string{}
	for _, n := range f.Nodes {
		count[n.Kind] = append(count[n.Kind], n.ID)
		own := map[string]bool{"pool": n.Pool != "" && n.Pool != "default", "retry": n.Retry != nil, "on_failure": n.OnFailure != "" && n.OnFailure != FailRun}
		for _, field := range []string{"on_failure", "pool", "retry"} {
			switch {
			case !own[field]:
			case f.Mode == ModeWhole && !Writes(n.Kind) && Over(n.Kind) == "": // reported below
				add(n.ID, field, "in the mode whole all nodes of a range run in one task; leave %s out, or set mode to nodes", field)
			case n.Kind == "parse":
				add(n.ID, field, "the task of the node of kind chunk parses too; leave %s out, or give it to that", field)
			case n.Kind == "embed":
				add(n.ID, field, "the task of the node of kind index embeds too; leave %s out, or give it to that", field)
			case field == "on_failure" && (n.Kind == "chunk" || n.Kind == "index"):
				add(n.ID, field, "without the node of kind %s nothing is found; leave on_failure out", n.Kind)
			case n.Kind != "chunk" && n.Kind != "index" && !Works(n.Kind):
				add(n.ID, field, "the kind %s passes on what it reads and has no task; leave %s out", n.Kind, field)
			}
		}
		if f.Mode == ModeWhole && Writes(n.Kind) {
			add(n.ID, "kind", "in the mode whole all nodes of a range run in one task, and the kind %s has one of its own; leave mode out, or set it to nodes", n.Kind)
		}
		if n.Timeout != 0 && (n.Kind == "parse" || n.Kind == "chunk" || n.Kind == "embed" || n.Kind == "index") {
			add(n.ID, "timeout", "the kind %s has the time-outs of every range; leave timeout out", n.Kind)
		}
		if n.When != "" && (n.Kind == "parse" || n.Kind == "chunk" || n.Kind == "index") {
			add(n.ID, "when", "the kind %s is a part of every run; put the condition on another node", n.Kind)
		}
	}
	for _, kind := range []string{"parse", "chunk", "index"} {
		if ids := count[kind]; len(ids) != 1 {
			add("", "node", "a flow has exactly one node of the kind %s; this one has %s", kind, orNone(ids))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		ids := count[kind]
		if (kind == "embed" || Over(kind) != "") && len(ids) > 1 {
			add("", "node", "a flow has at most one node of the kind %s; this one has %s", kind, strings.Join(ids, ", "))
		}
	}
	return problems
}

// Versions reads stored versions of flows.
type Versions interface {
	// Flow reads a version; 0 is the latest.
	Flow(ctx context.Context, tenantID, name string, version int) (*taskstore.FlowVersion, error)
}

// Find reads a version that a tenant has: its own, or the standard one.
func Find(ctx context.Context, store Versions, tenantID string, ref Ref) (*taskstore.FlowVersion, error) {
	if ref.Name != StandardName {
		return store.Flow(ctx, tenantID, ref.Name, ref.Version)
	}
	if ref.Version > 1 {
		return nil, fmt.Errorf("%w: flow %s", sheaf.ErrNotFound, ref)
	}
	f := StandardFlow()
	body, err := f.JSON()
	if err != nil {
		return nil, err
	}
	digest, err := f.Digest()
	return &taskstore.FlowVersion{Name: StandardName, Version: 1, Digest: digest, Body: body}, err
}
