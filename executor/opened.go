package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
)

// A recording is transcribed and an old office file converted when its document is
// planned, by a service or a program. What they made is kept, and other settings of
// the document, which change how it is cut, do not call them again.

// openedPlan is what a format made of a file, and where its shards are stored.
type openedPlan struct {
	Plan   *parser.Plan
	Shards map[string]shard // by PlannedRange.Shard
}

// shard is a part of a file as a blob.
type shard struct {
	Key    string
	SHA256 string
	Size   int64
}

// shard returns the stored shard of a range. o may be nil.
func (o *openedPlan) shard(piece parser.PlannedRange) (shard, bool) {
	if o == nil {
		return shard{}, false
	}
	s, ok := o.Shards[piece.Shard]
	return s, ok
}

// openedKey is the blob key of what the format makes of these bytes: it depends on
// its version and on the settings that it reads.
func openedKey(doc *sheaf.Document, format parser.Format, mediaType string, config sheaf.ParseConfig) string {
	h := xxhash.New()
	fmt.Fprintf(h, "%s\x00%s\x00%d\x00%s\x00", doc.SHA256, format.ID(), format.Version(), mediaType)
	for _, name := range slices.Sorted(slices.Values(format.Options())) {
		fmt.Fprintf(h, "%s=%s\x00", name, configField(config, name))
	}
	return fmt.Sprintf("%s%016x.opened.json", sheaf.PlanPrefix(doc.TenantID, doc.ID, doc.BlobKey), h.Sum64())
}

// keepOpened stores what a format made, with its shards. It returns nil if there are
// none: then opening the file again is cheap.
func (p *Planner) keepOpened(ctx context.Context, key string, doc *sheaf.Document, plan *parser.Plan, dir string) (*openedPlan, error) {
	out := &openedPlan{Plan: plan, Shards: map[string]shard{}}
	for _, piece := range plan.Ranges {
		if _, stored := out.shard(piece); stored || piece.Shard == "" {
			continue
		}
		s, err := p.keepShard(ctx, doc, dir, piece)
		if err != nil {
			return nil, err
		}
		out.Shards[piece.Shard] = s
	}
	if len(out.Shards) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encoding the plan: %w", err)
	}
	_, err = p.Blobs.Put(ctx, key, bytes.NewReader(b), int64(len(b)))
	return out, err
}

// openedBefore reads what was made for an earlier version of the document. It returns
// nil on any problem: the file is then opened.
func (p *Planner) openedBefore(ctx context.Context, key string) *openedPlan {
	var out openedPlan
	if !p.decode(ctx, key, &out) || out.Plan == nil || out.Plan.Units < 1 || len(out.Shards) == 0 {
		return nil
	}
	return &out
}
