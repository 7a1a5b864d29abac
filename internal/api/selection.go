package api

import (
	"encoding/json"
	"errors"

	"sheaf"
	"sheaf/taskstore"
)

// OneOf lists allowed values of a property. nil means the property is absent; an
// empty list is present and selects nothing.
type OneOf[T ~string] []T

// errNull rejects null in a selection: it comes from an unset variable and must not
// select more than intended.
var errNull = errors.New("a property of the selection is null; give it a value, or leave it out to select by the others alone")

// UnmarshalJSON implements json.Unmarshaler.
func (l *OneOf[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return errNull
	}
	all := []T{}
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*l = all
	return nil
}

// none reports whether the list is present but empty.
func (l OneOf[T]) none() bool { return l != nil && len(l) == 0 }

// Given is a string in a selection; "" means absent.
type Given string

// UnmarshalJSON implements json.Unmarshaler.
func (g *Given) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return errNull
	}
	return json.Unmarshal(b, (*string)(g))
}

// Selection selects the documents of a batch action.
type Selection struct {
	Filter *SelectionFilter `json:"filter,omitempty" doc:"all conditions must hold; an empty list selects nothing; an empty filter is refused"`
	All    bool             `json:"all,omitempty" doc:"every document of the dataset; excludes a filter"`
	DryRun bool             `json:"dry_run,omitempty" doc:"return the plan and change nothing"`
}

// SelectionFilter selects documents of a dataset.
type SelectionFilter struct {
	DocumentIDs OneOf[string]              `json:"document_ids,omitempty" nullable:"false" maxItems:"10000"`
	State       OneOf[sheaf.DocumentState] `json:"state,omitempty" nullable:"false" enum:"unstarted,queued,running,finalizing,succeeded,partially_succeeded,failed,canceling,canceled"`
	MediaType   OneOf[string]              `json:"media_type,omitempty" nullable:"false" pattern:"^[^/ ]+/[^/ ]+$" patternDescription:"a media type such as application/pdf"`
	Query       Given                      `json:"q,omitempty" minLength:"1" maxLength:"255" doc:"part of the name"`
	FailureCode OneOf[string]              `json:"failure_code,omitempty" nullable:"false" maxItems:"100" doc:"of their failures, such as encrypted"`
	Warnings    OneOf[string]              `json:"warnings,omitempty" nullable:"false" maxItems:"100" doc:"codes of their warnings, such as rows_clipped"`
	JobIDs      OneOf[string]              `json:"job_ids,omitempty" nullable:"false" maxItems:"100" doc:"of the last jobs that processed them"`
	Languages   OneOf[string]              `json:"languages,omitempty" nullable:"false" maxItems:"100" doc:"declared languages"`
	Tags        OneOf[string]              `json:"tags,omitempty" nullable:"false" maxItems:"100" doc:"of the attribute sheaf.tag"`
}

// documents returns the selection as a filter.
func (sel *Selection) documents() (taskstore.DocumentFilter, error) {
	f := sel.Filter
	switch {
	case sel.All && f != nil:
		return taskstore.DocumentFilter{}, newProblem(400, "", `the body says "all": true and has a filter; leave one of them out`)
	case sel.All:
		return taskstore.DocumentFilter{}, nil
	case f == nil || f.DocumentIDs == nil && f.State == nil && f.MediaType == nil && f.Query == "" && f.FailureCode == nil && f.Warnings == nil && f.JobIDs == nil && f.Languages == nil && f.Tags == nil:
		return taskstore.DocumentFilter{}, newProblem(400, "empty_filter", `nothing says which documents are meant; name them in filter by document_ids, state, media_type, q, failure_code, warnings, job_ids, languages or tags, or send "all": true for every document of the dataset`)
	}
	return taskstore.DocumentFilter{
		IDs: f.DocumentIDs, States: f.State, MediaTypes: f.MediaType, Query: string(f.Query),
		Issues: f.FailureCode, Warnings: f.Warnings, JobIDs: f.JobIDs, Languages: f.Languages, Tags: f.Tags,
		None: f.DocumentIDs.none() || f.State.none() || f.MediaType.none() || f.FailureCode.none() || f.Warnings.none() || f.JobIDs.none() || f.Languages.none() || f.Tags.none(),
	}, nil
}

// DeadSelection selects the dead tasks of an action; all conditions must hold.
type DeadSelection struct {
	IDs      OneOf[string] `json:"ids,omitempty" nullable:"false" maxItems:"10000" doc:"an empty list selects nothing"`
	Kind     Given         `json:"kind,omitempty" enum:"plan,parse,index,finalize,raptor,graphrag,mindmap,dataflow,gc"`
	Code     Given         `json:"code,omitempty" minLength:"1" maxLength:"128" doc:"of the failure, such as parse_timeout"`
	Category Given         `json:"category,omitempty" enum:"policy,capacity,bad_input,encrypted,source_unavailable,target_unavailable,timeout,parser_crash,canceled,internal"`
	Document Given         `json:"document_id,omitempty" minLength:"1" maxLength:"64"`
	Job      Given         `json:"job_id,omitempty" minLength:"1" maxLength:"64"`
	All      bool          `json:"all,omitempty" doc:"every dead task; excludes all other fields"`
	DryRun   bool          `json:"dry_run,omitempty" doc:"count and change nothing"`
}

// tasks returns the selection as a filter, for tenantID unless it is "".
func (d *DeadSelection) tasks(tenantID string) (taskstore.DeadLetterFilter, error) {
	some := d.IDs != nil || tenantID != "" || d.Kind+d.Code+d.Category+d.Document+d.Job != ""
	switch {
	case d.All && some:
		return taskstore.DeadLetterFilter{}, newProblem(400, "", `the body says "all": true and selects by more; leave one of them out`)
	case !d.All && !some:
		return taskstore.DeadLetterFilter{}, newProblem(400, "empty_filter", `nothing says which dead tasks are meant; name them by ids, kind, code, category, document_id or job_id, or send "all": true for every one`)
	}
	return taskstore.DeadLetterFilter{
		IDs: d.IDs, Kind: sheaf.TaskKind(d.Kind), Code: string(d.Code), Category: sheaf.Category(d.Category), DocumentID: string(d.Document), JobID: string(d.Job),
		None: d.IDs.none(),
	}, nil
}

// Units lists ranges of pages, rows or parts; nil means absent.
type Units []sheaf.Range

// UnmarshalJSON implements json.Unmarshaler.
func (u *Units) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return errNull
	}
	return json.Unmarshal(b, (*[]sheaf.Range)(u))
}
