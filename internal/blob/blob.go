// Package blob stores bytes: originals from upload to parse, artifacts from parse
// to index and rebuild. file and s3 implement it; blobtest holds both to the same
// contract.
package blob

import (
	"context"
	"io"
	"time"
)

// Store holds immutable objects under slash-separated keys of [A-Za-z0-9._-]
// segments ("." and ".." are rejected with sheaf.ErrInvalid). An object exists
// completely or not at all. Errors: sheaf.ErrNotFound, sheaf.ErrUnavailable (retry
// may help), sheaf.ErrReadOnly (disk full or no write permission),
// sheaf.ErrInvalid.
type Store interface {
	// Put stores r until EOF under key, replacing any previous object, and returns
	// its size and lower-case hex SHA-256. It buffers at most a few MB whatever the
	// size, and leaves nothing behind if r or ctx fails. size is the expected size,
	// -1 if unknown; a different size is sheaf.ErrInvalid. An error of r is
	// returned wrapped.
	Put(ctx context.Context, key string, r io.Reader, size int64) (Info, error)
	// Compose concatenates one or more objects into key, without transferring their
	// bytes here if the store supports that; the parts are kept. All but the last
	// have at least MinPartBytes, otherwise it is sheaf.ErrInvalid, and there are
	// at most 10,000. Any previous object is replaced.
	Compose(ctx context.Context, key string, parts []string) error
	// Open reads length bytes from offset; length -1 means to the end. Reading
	// stops at the end of the object without an error; an offset past it is
	// sheaf.ErrInvalid. The reader sees one version of the object, even if that is
	// replaced in the meantime, and fails when ctx ends.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes objects; missing ones are not an error.
	Delete(ctx context.Context, keys ...string) error
	// DeletePrefix removes every object under prefix, which ends in "/", and
	// returns their number, even if it fails midway.
	DeletePrefix(ctx context.Context, prefix string) (int, error)
	// List calls each for every object under prefix ("" for all) in byte order
	// of the keys until it returns false.
	List(ctx context.Context, prefix string, each func(Info) bool) error
	// ListAfter is List of the keys after after, which need not exist; "" precedes
	// all keys.
	ListAfter(ctx context.Context, prefix, after string, each func(Info) bool) error
	// Children calls each for everything directly under prefix, in any order, until
	// it returns false: keys of objects, and prefixes of others, ending in "/".
	Children(ctx context.Context, prefix string, each func(name string) bool) error
	// Ping checks that the store is reachable and writable.
	Ping(ctx context.Context) error
}

// MinPartBytes is S3's smallest part.
const MinPartBytes = 5 << 20

// MaxParts is how many objects one can be composed of, S3's limit.
const MaxParts = 10_000

// Info describes an object. SHA256 is set by Put; Stat and List may leave it empty.
type Info struct {
	Key      string
	Size     int64
	SHA256   string
	Modified time.Time
}

// Local is implemented by stores whose objects are local files, so that parsing
// needs no copy.
type Local interface {
	Path(key string) (string, error)
}

// Fill fetches bytes of a sparse file before they are read. It is safe for
// concurrent use. Its errors are those of the store and the disk.
type Fill func(ctx context.Context, offset, length int64) error

// Presigner is implemented by stores that clients can access directly. A URL is
// valid for expires, 1 second to 7 days, and accepts exactly size bytes;
// disposition is the Content-Disposition of the response, empty for none.
type Presigner interface {
	PresignPut(ctx context.Context, key string, size int64, expires time.Duration) (string, error)
	PresignGet(ctx context.Context, key string, expires time.Duration, disposition string) (string, error)
}
