package artifact

import (
	"context"
	"fmt"
	"io"

	"sheaf"
	"sheaf/internal/blob"
)

// maxLoadBytes bounds what Load reads: a range of the most chunks a task may
// make, with long texts and wide vectors, stays well below it.
const maxLoadBytes = 1 << 30

// Result is a whole range result in memory.
type Result struct {
	Header  Header
	Chunks  []sheaf.Chunk
	Vectors [][]float32 // one entry a chunk, nil for a chunk without a vector
}

// Load reads the result stored under key. Errors: sheaf.ErrNotFound,
// sheaf.ErrInvalid for a damaged file, and those of the store.
func Load(ctx context.Context, store blob.Store, key string) (*Result, error) {
	r, err := store.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxLoadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	if len(data) > maxLoadBytes {
		return nil, fmt.Errorf("%w: %s is larger than an artifact can be", sheaf.ErrInvalid, key)
	}
	var out Result
	if out.Header, out.Chunks, out.Vectors, err = Decode(data); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", key, err)
	}
	return &out, nil
}
