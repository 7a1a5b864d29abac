package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/flow"
	"sheaf/taskstore"
)

// FlowPath names a flow, or one version of it.
type FlowPath struct {
	Flow string `path:"flow" maxLength:"80" doc:"a flow such as contracts, or a version such as contracts@3; default: the latest"`
}

// NewFlow is a flow in one of its two notations.
type NewFlow struct {
	Flow json.RawMessage `json:"flow,omitempty" doc:"the flow as JSON"`
	TOML string          `json:"toml,omitempty" maxLength:"65536" doc:"the flow as TOML, in place of flow"`
}

// FlowListed is a version of a flow without its nodes.
type FlowListed struct {
	Ref       string    `json:"ref" doc:"name and version, as parser_config.flow takes them"`
	Name      string    `json:"name"`
	Version   int       `json:"version"`
	Digest    string    `json:"digest" doc:"of what it does: flows with the same digest differ at most in name"`
	Nodes     int       `json:"nodes"`
	BuiltIn   bool      `json:"built_in,omitempty" doc:"it always exists and cannot be changed"`
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// FlowAnswer is a version of a flow.
type FlowAnswer struct {
	FlowListed
	Flow   *flow.Flow `json:"flow"`
	TOML   string     `json:"toml" doc:"the flow as TOML"`
	DryRun bool       `json:"dry_run,omitempty" doc:"nothing was created: a preview"`
}

// FlowChecked reports whether a flow can be created and, if not, why.
type FlowChecked struct {
	Valid    bool          `json:"valid"`
	Problems []FlowProblem `json:"problems" nullable:"false"`
	// Lines are the nodes' line numbers in the TOML.
	Lines map[string]int `json:"lines,omitempty" doc:"of each node in the TOML, from 1, by id; absent for JSON"`
}

// FlowProblem is one reason why a flow is rejected.
type FlowProblem struct {
	Node    string `json:"node,omitempty" doc:"its id; absent for the flow itself"`
	Field   string `json:"field,omitempty" doc:"of the node or the flow"`
	Message string `json:"message" doc:"explains what to do"`
	Line    int    `json:"line,omitempty" doc:"of the TOML, or of the JSON as it was sent, from 1"`
}

// FlowDiff lists the differences between two versions of a flow.
type FlowDiff struct {
	From    string       `json:"from" doc:"the older version; empty if there is none"`
	To      string       `json:"to"`
	Changes []FlowChange `json:"changes" nullable:"false" doc:"empty if both do the same"`
}

// FlowChange is one difference.
type FlowChange struct {
	Node  string `json:"node,omitempty" doc:"its id; absent for the flow itself"`
	Field string `json:"field" doc:"what changed; node for one added or removed"`
	Was   any    `json:"was,omitempty"`
	Is    any    `json:"is,omitempty"`
}

// FlowsDeleted names the versions that were, or would be, deleted.
type FlowsDeleted struct {
	Deleted []string `json:"deleted" nullable:"false"`
	DryRun  bool     `json:"dry_run,omitempty" doc:"nothing was deleted"`
}

// read decodes the flow from either notation.
func (n NewFlow) read() (*flow.Flow, error) {
	if (n.Flow == nil) == (n.TOML == "") {
		return nil, newProblem(400, "", "give the flow in exactly one of the two forms, flow (JSON) or toml")
	}
	if n.TOML != "" {
		return flow.Read([]byte(n.TOML), true)
	}
	return flow.Read(n.Flow, false)
}

// refused is the response to an invalid flow.
func refused(err error) error {
	invalid, ok := errors.AsType[flow.Invalid](err)
	if !ok {
		return err
	}
	p := newProblem(400, "invalid_flow", strings.SplitN(invalid.Error(), "\n", 2)[0])
	if len(invalid) > 1 {
		p.Detail += fmt.Sprintf(" (and %d more, see errors)", len(invalid)-1)
	}
	for _, one := range invalid {
		at := strings.Trim("node."+one.Node+"."+one.Field, ".")
		if one.Node == "" {
			at = strings.Trim("flow."+one.Field, ".")
		}
		p.Errors = append(p.Errors, ProblemDetail{Location: at, Message: capital(one.Message)})
	}
	return p
}

// version decodes a stored version of a flow. It is not validated again: checks
// added later do not apply to it.
func version(v *taskstore.FlowVersion) (FlowAnswer, error) {
	var f flow.Flow
	if err := json.Unmarshal(v.Body, &f); err != nil {
		return FlowAnswer{}, fmt.Errorf("reading flow %s@%d: %w", v.Name, v.Version, err)
	}
	text, err := f.TOML()
	return FlowAnswer{
		FlowListed: FlowListed{Ref: flow.Ref{Name: v.Name, Version: v.Version}.String(), Name: v.Name, Version: v.Version, Digest: v.Digest, Nodes: len(f.Nodes), CreatedAt: v.CreatedAt},
		Flow:       &f, TOML: string(text),
	}, err
}

// flow finds a version of a flow.
func (s *Server) flow(ctx context.Context, ref flow.Ref) (FlowAnswer, error) {
	v, err := flow.Find(ctx, s.cfg.Catalog, tenantOf(ctx), ref)
	if err != nil {
		return FlowAnswer{}, err
	}
	out, err := version(v)
	out.BuiltIn = ref.Name == flow.StandardName
	return out, err
}

func listedFlows(vs []taskstore.FlowVersion) ([]FlowListed, error) {
	out := make([]FlowListed, len(vs))
	for i := range vs {
		v, err := version(&vs[i])
		if err != nil {
			return nil, err
		}
		out[i] = v.FlowListed
		out[i].BuiltIn = v.Name == flow.StandardName
	}
	return out, nil
}

// FlowKind is a kind of flow node.
type FlowKind struct {
	Name   string        `json:"name" doc:"as a node's kind gives it"`
	Doc    string        `json:"doc" doc:"what it does, in a sentence"`
	In     []flow.Port   `json:"in" nullable:"false" doc:"what its inputs may be: units, chunks, vectors, records, text or indexed (the chunks of the whole document as search has them); none for a node that reads the document itself"`
	Out    flow.Port     `json:"out,omitempty" doc:"its output; absent if it has none, or passes on its input"`
	Config []FlowSetting `json:"config" nullable:"false" doc:"settings of its nodes, by name"`
	Common []string      `json:"common" nullable:"false" doc:"names of the common settings that its nodes may have"`
}

// FlowKinds are the kinds, and the settings common to nodes of any kind.
type FlowKinds struct {
	List[FlowKind]
	Common []FlowSetting `json:"common" nullable:"false" doc:"settings that do not depend on the kind of node; a kind names those that it takes"`
}

// FlowSetting is a setting of a kind of node.
type FlowSetting struct {
	Name     string   `json:"name" doc:"of the setting"`
	Doc      string   `json:"doc" doc:"what it does, in a phrase"`
	Type     string   `json:"type" enum:"string,int,float,bool,strings,object,keep,duration" doc:"of its value; keep: an expression over a chunk; duration: such as 10s or 5m"`
	Required bool     `json:"required,omitempty" doc:"a node must have it"`
	Values   []string `json:"values,omitempty" doc:"allowed values; absent: any"`
}

// flowKinds describes the kinds that executors run.
func flowKinds() []FlowKind {
	var out []FlowKind
	for _, k := range flow.Kinds() {
		described := FlowKind{Name: k.Name, In: append([]flow.Port{}, k.In...), Out: k.Out, Common: []string{}}
		for _, name := range slices.Sorted(maps.Keys(flow.Common)) {
			if flow.Takes(k.Name, name) {
				described.Common = append(described.Common, name)
			}
		}
		described.Doc, described.Config = k.Doc, flowSettings(k.Config)
		out = append(out, described)
	}
	return out
}

func flowSettings(fields map[string]flow.Field) []FlowSetting {
	out := []FlowSetting{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := fields[name]
		out = append(out, FlowSetting{name, f.Doc, f.Type, f.Required, f.Values})
	}
	return out
}

func (s *Server) flowRoutes() {
	handle(s, get("/v1/node-kinds", "List the kinds of nodes and their settings"), func(context.Context, *struct{}) (*output[FlowKinds], error) {
		return &output[FlowKinds]{FlowKinds{listOf(flowKinds(), "").Body, flowSettings(flow.Common)}}, nil
	})
	handle(s, get("/v1/flows", "List flows, each in its latest version"), func(ctx context.Context, in *struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"items per page"`
		Cursor string `query:"cursor" maxLength:"64" doc:"previous page's next_cursor: the name of its last flow"`
	}) (*output[List[FlowListed]], error) {
		vs, next, err := s.cfg.Catalog.Flows(ctx, tenantOf(ctx), taskstore.Page{Limit: in.Limit, Cursor: in.Cursor})
		if err != nil {
			return nil, err
		}
		if in.Cursor == "" { // in addition to limit, which counts the tenant's own flows
			standard, err := flow.Find(ctx, s.cfg.Catalog, "", flow.Ref{Name: flow.StandardName})
			if err != nil {
				return nil, err
			}
			vs = append([]taskstore.FlowVersion{*standard}, vs...)
		}
		items, err := listedFlows(vs)
		return listOf(items, next), err
	})
	create := post("/v1/flows", "Create a flow, or its next version")
	create.Description = "A version never changes. A flow that does the same as its latest version creates none; that version is returned."
	handle(s, create, func(ctx context.Context, in *struct {
		DryRunParam
		Body NewFlow
	}) (*output[FlowAnswer], error) {
		f, err := in.Body.read()
		if err != nil {
			return nil, refused(err)
		}
		body, err := f.JSON()
		if err != nil {
			return nil, err
		}
		v := &taskstore.FlowVersion{TenantID: tenantOf(ctx), Name: f.Name, Body: body}
		if v.Digest, err = f.Digest(); err != nil {
			return nil, err
		}
		if v, err = s.cfg.Catalog.CreateFlow(ctx, *v, in.DryRun); err != nil {
			return nil, err
		}
		out, err := version(v)
		out.DryRun = in.DryRun
		return &output[FlowAnswer]{out}, err
	})
	check := needs(post("/v1/flows:validate", "Validate a flow"), scopeRead)
	check.Description = "Returns 200 with every problem, each with the node's id. Nothing is created."
	handle(s, check, func(_ context.Context, in *struct{ Body NewFlow }) (*output[FlowChecked], error) {
		out := FlowChecked{Problems: []FlowProblem{}}
		_, err := in.Body.read()
		invalid, ok := errors.AsType[flow.Invalid](err)
		if err != nil && !ok {
			return nil, err
		}
		for _, p := range invalid {
			out.Problems = append(out.Problems, FlowProblem{p.Node, p.Field, capital(p.Message), p.Line})
		}
		if out.Valid = err == nil; in.Body.TOML != "" {
			out.Lines = flow.Lines([]byte(in.Body.TOML))
		}
		return &output[FlowChecked]{out}, nil
	})
	handle(s, get("/v1/flows/{flow}", "Read a flow"), func(ctx context.Context, in *FlowPath) (*output[FlowAnswer], error) {
		ref, err := flow.ParseRef(in.Flow)
		if err != nil {
			return nil, err
		}
		out, err := s.flow(ctx, ref)
		return &output[FlowAnswer]{out}, err
	})
	handle(s, get("/v1/flows/{flow}/versions", "List the versions of a flow, newest first"), func(ctx context.Context, in *FlowPath) (*output[List[FlowListed]], error) {
		ref, err := flow.ParseRef(in.Flow)
		if err != nil {
			return nil, err
		}
		var vs []taskstore.FlowVersion
		if ref.Name == flow.StandardName {
			var v *taskstore.FlowVersion
			if v, err = flow.Find(ctx, s.cfg.Catalog, "", ref); err == nil {
				vs = append(vs, *v)
			}
		} else {
			vs, err = s.cfg.Catalog.FlowVersions(ctx, tenantOf(ctx), ref.Name)
		}
		if err != nil {
			return nil, err
		}
		items, err := listedFlows(vs)
		return listOf(items, ""), err
	})
	handle(s, get("/v1/flows/{flow}/diff", "Compare two versions of a flow"), func(ctx context.Context, in *struct {
		FlowPath
		From int `query:"from" minimum:"1" doc:"the older version; default: the previous"`
	}) (*output[FlowDiff], error) {
		ref, err := flow.ParseRef(in.Flow)
		if err != nil {
			return nil, err
		}
		to, err := s.flow(ctx, ref)
		if err != nil {
			return nil, err
		}
		out, old := FlowDiff{To: to.Ref, Changes: []FlowChange{}}, &flow.Flow{Name: to.Name}
		if in.From > 0 || to.Version > 1 {
			from := flow.Ref{Name: to.Name, Version: in.From}
			if in.From == 0 {
				from.Version = to.Version - 1
			}
			was, err := s.flow(ctx, from)
			if err != nil {
				return nil, err
			}
			out.From, old = was.Ref, was.Flow
		}
		for _, c := range flow.Diff(old, to.Flow) {
			out.Changes = append(out.Changes, FlowChange(c))
		}
		return &output[FlowDiff]{out}, nil
	})
	remove := change(http.MethodDelete, "/v1/flows/{flow}", "Delete a flow, or one version of it")
	remove.Description = "The numbers of deleted versions are not reused. Refused while a dataset names what would be deleted; documents that it processed stay."
	handle(s, remove, func(ctx context.Context, in *struct {
		FlowPath
		DryRunParam
	}) (*output[FlowsDeleted], error) {
		ref, err := flow.ParseRef(in.Flow)
		if err != nil {
			return nil, err
		}
		if ref.Name == flow.StandardName {
			return nil, newProblem(409, "", "the flow standard is built in and cannot be deleted")
		}
		vs, err := s.cfg.Catalog.FlowVersions(ctx, tenantOf(ctx), ref.Name)
		if err != nil {
			return nil, err
		}
		out := FlowsDeleted{Deleted: []string{}, DryRun: in.DryRun}
		for _, v := range vs {
			if ref.Version == 0 || ref.Version == v.Version {
				out.Deleted = append(out.Deleted, flow.Ref{Name: v.Name, Version: v.Version}.String())
			}
		}
		if len(out.Deleted) == 0 {
			return nil, fmt.Errorf("%w: flow %s", sheaf.ErrNotFound, ref)
		}
		if in.DryRun {
			return &output[FlowsDeleted]{out}, nil
		}
		deleted, err := s.cfg.Catalog.DeleteFlow(ctx, tenantOf(ctx), ref.Name, ref.Version)
		if err != nil {
			return nil, err
		}
		out.Deleted = out.Deleted[:0]
		for _, n := range deleted {
			out.Deleted = append(out.Deleted, flow.Ref{Name: ref.Name, Version: n}.String())
		}
		return &output[FlowsDeleted]{out}, nil
	})
}
