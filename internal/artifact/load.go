package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"

	"sheaf"
	"sheaf/internal/blob"
)

// maxLoadBytes bounds what Load reads: a range with the maximum chunks per task,
// long texts and wide vectors stays well below it.
const maxLoadBytes = 1 << 30

// Result is an entire range result in memory.
type Result struct {
	Header  Header
	Chunks  []sheaf.Chunk
	Vectors [][]float32 // one entry per chunk, nil for a chunk without a vector
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

// CopyKey is the key of a copy of the result under key with the vectors of another
// model.
func CopyKey(key, modelID string) string {
	sum := sha256.Sum256([]byte(modelID))
	return path.Dir(key) + "/models/" + hex.EncodeToString(sum[:6]) + "/" + path.Base(key)
}

// LoadFor loads the result with the vectors of a model: the original or a copy. If
// neither has them, it returns the original: see Header.ModelID.
func LoadFor(ctx context.Context, store blob.Store, key, modelID string) (*Result, error) {
	made, err := Load(ctx, store, key)
	if err != nil || modelID == "" || made.Header.ModelID == modelID {
		return made, err
	}
	other, err := Load(ctx, store, CopyKey(key, modelID))
	if err == nil && other.Header.ModelID == modelID && len(other.Chunks) == len(made.Chunks) {
		return other, nil
	}
	if err != nil && !errors.Is(err, sheaf.ErrNotFound) && !errors.Is(err, sheaf.ErrInvalid) {
		return nil, err
	}
	return made, nil
}
