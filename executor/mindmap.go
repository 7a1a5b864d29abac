package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"sheaf"
	"sheaf/internal/mindmap"
	"sheaf/taskstore"
)

// Mindmap is the kind of run that makes a topic tree of each document. Each tree is
// a result that is stored but not indexed; clients request it explicitly.
type Mindmap struct{}

const (
	mindmapVersion = 1
	mindmapTokens  = 32   // of a topic's name
	mindmapText    = 6000 // characters of a topic that the model reads
)

const mindmapInstruction = "You name the topics of a text. Answer with the name alone: at most six words, in the language of the passages, without quotes."

// MindmapResult is the outcome of a mindmap run.
type MindmapResult struct {
	Documents int      `json:"documents"` // that have a mind map
	Made      int      `json:"made"`      // of these, in this attempt
	Kept      int      `json:"kept"`
	Gone      int      `json:"gone,omitempty"`
	Failed    int      `json:"failed,omitempty"` // topics the model failed to name; key phrases stand in for now
	Reasons   troubles `json:"reasons,omitempty"`
}

// Run implements RunKind.
func (Mindmap) Run(ctx context.Context, r *DatasetRun) (end taskstore.RunEnd, err error) {
	out := MindmapResult{}
	err = mindmaps(ctx, r, &out)
	end.Result, _ = json.Marshal(out) // strings and numbers always encode
	if err == nil && out.Failed > 0 {
		end.State = taskstore.RunPartial
		end.Cause = fmt.Sprintf("The model gave no usable name to %d topics; key phrases stand in for them. Resume the run to ask again.", out.Failed)
	}
	return end, err
}

// RunDocument implements DocumentKind.
func (Mindmap) RunDocument(ctx context.Context, r *DatasetRun, d taskstore.RunDocument) (left DocumentResult, err error) {
	out := MindmapResult{}
	_, err = mindmapOf(ctx, r, d, mindmapName(r, d), nil, &out)
	left.Reasons = out.Reasons
	if out.Failed > 0 {
		left.Failed = fmt.Sprintf("The model gave no usable name to %d topics; key phrases stand in for them. A run of mindmap over the dataset asks again.", out.Failed)
	}
	return left, err
}

func mindmapName(r *DatasetRun, d taskstore.RunDocument) string {
	return name32("mindmap", strconv.Itoa(mindmapVersion), r.Asks(), r.Model(), d.ID, strconv.Itoa(d.Generation), strconv.Itoa(d.Version))
}

func mindmaps(ctx context.Context, r *DatasetRun, out *MindmapResult) error {
	name := func(d taskstore.RunDocument) string { return mindmapName(r, d) }
	makes := func(ctx context.Context, d taskstore.RunDocument, name string, instead []string) (taskstore.RunResult, bool, error) {
		res, err := mindmapOf(ctx, r, d, name, instead, out)
		return res, err == nil, err
	}
	all, gone, err := r.eachDocument(ctx, name, makes, func(_ taskstore.RunDocument, _ taskstore.RunResult, kept bool) {
		if out.Documents++; kept {
			out.Kept++
		} else {
			out.Made++
		}
	})
	out.Gone = gone
	if err != nil {
		return err
	}
	return r.dropOthers(ctx, all)
}

// mindmapOf makes and stores a document's mind map.
func mindmapOf(ctx context.Context, r *DatasetRun, d taskstore.RunDocument, name string, instead []string, out *MindmapResult) (res taskstore.RunResult, err error) {
	chunks, vectors, err := r.Chunks(ctx, d)
	if err != nil {
		return res, err
	}
	failed := out.Failed
	tree, err := mindmap.Build(ctx, d.Name, chunks, vectors, func(ctx context.Context, text string) (string, error) {
		answer, err := r.Ask(ctx, Question{Documents: []string{d.ID}, Instruction: mindmapInstruction, Text: clipText(text, mindmapText), MaxTokens: mindmapTokens, Version: mindmapVersion, Check: saysSomething})
		switch {
		case errors.Is(err, ErrNoModel):
			return "", nil
		case err != nil && unusable(err):
			out.Failed++
			f := sheaf.AsFailure(err, "")
			out.Reasons.add(RunTrouble{DocumentID: d.ID, Code: f.Code, Message: f.Message})
			return "", nil
		}
		return answer, err
	})
	if err != nil {
		return res, err
	}
	if out.Failed > failed {
		name += failedMark
	}
	return r.put(ctx, d, taskstore.RunResult{Name: name, Sources: []taskstore.RunSource{{DocumentID: d.ID, Generation: d.Generation, Version: d.Version}}}, tree.Store(), instead, false)
}
