package sheaf

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// ArtifactKey is the blob key of a range result.
func ArtifactKey(tenantID, documentID, rangeID string) string {
	return ArtifactPrefix(tenantID, documentID) + rangeID + ".parquet"
}

// ArtifactPrefix is the folder of everything made of a document.
func ArtifactPrefix(tenantID, documentID string) string {
	return "artifacts/" + tenantID + "/" + documentID + "/"
}

// PlanPrefix is the folder of what was made when a document with these bytes was
// planned, and is removed with them.
func PlanPrefix(tenantID, documentID, blobKey string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(blobKey)) // a hash never fails
	return fmt.Sprintf("%splans/%016x/", ArtifactPrefix(tenantID, documentID), h.Sum64())
}

// OriginalPrefix is the folder of a document's uploaded bytes.
func OriginalPrefix(tenantID, documentID string) string {
	return "originals/" + tenantID + "/" + documentID + "/"
}

// OriginalOf returns the document whose OriginalPrefix contains a blob key, or ""
// for other keys.
func OriginalOf(key string) (documentID string) {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 4 || parts[0] != "originals" {
		return ""
	}
	return parts[2]
}

// MemberKey is the blob key of a file of an archive. It is under the archive's
// prefix, so that files no document references are deleted with the archive, and it
// is unique to an attempt at a plan.
func MemberKey(tenantID, archiveID string, generation int, epoch int64, memberID string) string {
	return fmt.Sprintf("%smembers/%d-%d/%s", OriginalPrefix(tenantID, archiveID), generation, epoch, memberID)
}

// rank orders verdicts on one unit. Where ranges overlap the higher one wins: a unit
// that any attempt could read counts as read.
var rank = map[UnitStatus]int{UnitOK: 5, UnitOCR: 4, UnitBlank: 3, UnitSkipped: 2, UnitFailed: 1}

// MergeLedgers overlays ledgers; where they overlap, the better verdict wins. The
// runs of each may come in any order.
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

// Missing lists the units of wanted that the ledger does not cover.
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
