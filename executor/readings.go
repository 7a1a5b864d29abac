package executor

import (
	"context"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/taskstore"
)

// A page that is read by text recognition takes seconds. What was recognized is kept
// in the result of its range, and the next version of the document, with other
// settings or another page, does not recognize it again.

// maxReadingArtifacts bounds the results that one range searches for readings:
// pages move to a neighboring range when others are inserted.
const maxReadingArtifacts = 3

// readings implements parser.Readings for one range of a document. Nothing is loaded
// before the first Recall: most documents have no readings.
type readings struct {
	load   func() []artifact.Readings // the earlier ones
	loaded bool
	before []artifact.Readings
	now    artifact.Readings // of this version
	bytes  int
}

// Recall implements parser.Readings. What is used again is kept again.
func (r *readings) Recall(key string) []byte {
	if b := r.now[key]; b != nil {
		return b
	}
	if !r.loaded {
		r.loaded, r.before = true, r.load()
	}
	for _, old := range r.before {
		if b := old[key]; len(b) > 0 {
			r.Keep(key, b)
			return b
		}
	}
	return nil
}

// Keep implements parser.Readings.
func (r *readings) Keep(key string, reading []byte) {
	size := len(key) + len(reading)
	if r.now[key] != nil || r.bytes+size > artifact.MaxReadingBytes {
		return
	}
	if r.now == nil {
		r.now = artifact.Readings{}
	}
	r.now[key] = reading
	r.bytes += size
}

// readingsIn loads the readings of stored results. Any failure only costs reading
// again.
func readingsIn(ctx context.Context, blobs blob.Store, keys []string) (out []artifact.Readings) {
	for _, key := range keys {
		stored, err := artifact.Load(ctx, blobs, key)
		if err != nil {
			continue
		}
		if kept, err := stored.Header.Readings(); err == nil && len(kept) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// readingsOf returns those of a task's range.
func (e *Executor) readingsOf(ctx context.Context, run *run, doc *sheaf.Document, p *taskstore.ParsePayload) *readings {
	return &readings{load: func() []artifact.Readings {
		var keys []string
		if p.Replaces != "" {
			keys = append(keys, p.Replaces)
		}
		if !p.Fresh {
			for _, o := range e.nearest(ctx, run.task, doc) {
				if len(keys) < maxReadingArtifacts {
					keys = append(keys, o.ArtifactKey)
				}
			}
		}
		return readingsIn(ctx, e.cfg.Blobs, keys)
	}}
}
