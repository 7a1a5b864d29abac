package sheaf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// PlanPayload tells a plan task what to plan.
type PlanPayload struct {
	// Scope is "" for the whole document or "failed" for the units that
	// generation Base could not read; what it could read is listed again.
	Scope string `json:"scope,omitempty"`
	Base  int    `json:"base,omitempty"`
	// Stage, with a Base, repeats that stage and what follows it for what
	// generation Base could read: StageEmbed or StageIndex.
	Stage string `json:"stage,omitempty"`
	// Only narrows the scope failed; what else failed stays so. nil means all.
	Only *RetryOnly `json:"only,omitempty"`
	// Fresh ignores stored results: everything is parsed and embedded again.
	Fresh bool `json:"fresh,omitempty"`
}

// RetryOnly names some of the units that failed; both fields narrow.
type RetryOnly struct {
	Units []Range  `json:"units,omitempty"` // [from, to], 1-based inclusive; empty means all
	Codes []string `json:"codes,omitempty"` // of their failures; empty means all
}

// Empty reports whether nothing is narrowed.
func (r RetryOnly) Empty() bool { return len(r.Units)+len(r.Codes) == 0 }

// Select lists the runs of failed units that r names.
func (r RetryOnly) Select(ledger Ledger) []Range {
	var out []Range
	for _, run := range ledger {
		if run.Status != UnitFailed || len(r.Codes) > 0 && !slices.Contains(r.Codes, run.Code) {
			continue
		}
		failed := []Range{{From: run.From, To: run.To}}
		if len(r.Units) > 0 {
			failed = Overlaps(failed, r.Units)
		}
		out = append(out, failed...)
	}
	return out
}

// Continues reports whether the plan starts from what generation Base left,
// and not from the file.
func (p PlanPayload) Continues() bool { return p.Scope == "failed" || p.Stage != "" }

// PlanTask is the task that plans a document.
func PlanTask(p PlanPayload) NewTask {
	raw, _ := json.Marshal(p) // plain fields always encode
	return NewTask{ID: NewID(), Kind: KindPlan, Cost: 1, Payload: raw}
}

// ParsePayload tells a parse or index task where its bytes are and how to read
// them. It is written by the plan and holds all that an executor needs, so
// that a task means the same whatever happens to the document's row.
type ParsePayload struct {
	Format    string          `json:"format"`     // parser id
	MediaType string          `json:"media_type"` // as parsed
	SourceKey string          `json:"source_key"` // blob: the original, or a shard of it
	SHA256    string          `json:"sha256,omitempty"`
	Size      int64           `json:"size"`
	Hint      json.RawMessage `json:"hint,omitempty"`
	Config    ParseConfig     `json:"config"` // merged with dataset and defaults
	Headings  []string        `json:"headings,omitempty"`
	// HeadingLevels are those of Headings where they are not 1, 2, 3 …
	HeadingLevels []int `json:"heading_levels,omitempty"`
	// Continues says that nobody knew, when this was planned, which headings the
	// range begins under: its result says what stands in it, and finalize
	// compares.
	Continues bool `json:"continues,omitempty"`
	// Stitch takes the chunks of Reuse and puts them under Headings.
	Stitch bool `json:"stitch,omitempty"`
	// TagSet names the results whose tags the chunks get, by their blob keys:
	// those that the datasets of Config.TagKBIDs held when this was planned.
	TagSet []string `json:"tag_set,omitempty"`
	// Reuse is the stored result that an index task copies; when its artifact
	// is gone the task parses instead.
	Reuse *TaskResult `json:"reuse,omitempty"`
	// Embed computes the vectors of Reuse anew.
	Embed bool `json:"embed,omitempty"`
}

// Stages whose work can be repeated alone, since what goes into them is kept.
const (
	StageEmbed = "embed"
	StageIndex = "index"
)

// FinalizePayload guards the publication: it counts only while the document's
// FinalizeEpoch is still this one.
type FinalizePayload struct {
	FinalizeEpoch int64 `json:"fin_epoch"`
}

// ArtifactKey is the blob key of a range result.
func ArtifactKey(tenantID, documentID, rangeID string) string {
	return ArtifactPrefix(tenantID, documentID) + rangeID + ".parquet"
}

// ArtifactPrefix is the folder of a document's range results and shards.
func ArtifactPrefix(tenantID, documentID string) string {
	return "artifacts/" + tenantID + "/" + documentID + "/"
}

// OriginalPrefix is the folder of the bytes a document was uploaded as.
func OriginalPrefix(tenantID, documentID string) string {
	return "originals/" + tenantID + "/" + documentID + "/"
}

// MemberKey is the blob key of a file of an archive. It lies with the archive,
// so that what no document came to name goes when the archive does, and no two
// attempts at a plan write the same one.
func MemberKey(tenantID, archiveID string, generation int, epoch int64, memberID string) string {
	return fmt.Sprintf("%smembers/%d-%d/%s", OriginalPrefix(tenantID, archiveID), generation, epoch, memberID)
}

// rank orders verdicts on one unit: the higher counts where ranges overlap,
// since a unit that one attempt could read is read.
var rank = map[UnitStatus]int{UnitOK: 5, UnitOCR: 4, UnitBlank: 3, UnitSkipped: 2, UnitFailed: 1}

// MergeLedgers lays ledgers over each other: where they overlap the better
// verdict counts. The runs of each may come in any order.
func MergeLedgers(ledgers ...Ledger) Ledger {
	var runs Ledger
	for _, l := range ledgers {
		runs = append(runs, l...)
	}
	var cuts []int
	for _, r := range runs {
		cuts = append(cuts, r.From, r.To+1)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	slices.SortStableFunc(runs, func(a, b LedgerRun) int { return cmp.Compare(a.From, b.From) })

	var out Ledger
	var open []LedgerRun // runs that reach the current cut
	next := 0
	for i := 0; i+1 < len(cuts); i++ {
		from, to := cuts[i], cuts[i+1]-1
		for next < len(runs) && runs[next].From <= from {
			open = append(open, runs[next])
			next++
		}
		open = slices.DeleteFunc(open, func(r LedgerRun) bool { return r.To < from })
		if len(open) == 0 {
			continue
		}
		best := slices.MaxFunc(open, func(a, b LedgerRun) int { return cmp.Compare(rank[a.Status], rank[b.Status]) })
		best.From, best.To = from, to
		out = out.Add(best)
	}
	return out
}

// Missing lists the units of wanted that the ledger says nothing about.
func (l Ledger) Missing(wanted []Range) []Range {
	var out []Range
	for _, w := range wanted {
		at := w.From
		for _, r := range l {
			if r.To < at || r.From > w.To {
				continue
			}
			if r.From > at {
				out = append(out, Range{at, r.From - 1})
			}
			at = max(at, r.To+1)
		}
		if at <= w.To {
			out = append(out, Range{at, w.To})
		}
	}
	return out
}
