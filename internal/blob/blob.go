// Package blob keeps bytes: originals from upload to parse, artifacts from
// parse to index and rebuild. file and s3 implement it; blobtest holds both to
// the same contract.
package blob

import (
	"context"
	"io"
	"time"
)

// Store keeps immutable objects under slash-separated keys of [A-Za-z0-9._-]
// segments ("." and ".." are refused with sheaf.ErrInvalid). An object is
// either there whole or not there. Errors: sheaf.ErrNotFound,
// sheaf.ErrUnavailable (retry may help), sheaf.ErrReadOnly (disk full or no
// permission to write), sheaf.ErrInvalid.
type Store interface {
	// Put stores r until EOF under key, replacing what was there, and returns
	// its size and the lower-case hex SHA-256. It holds at most a few MB in
	// memory whatever the size, and leaves nothing when r or ctx fails.
	// size is what the caller expects, -1 when unknown; another size than
	// expected is sheaf.ErrInvalid. An error of r itself comes back wrapped.
	Put(ctx context.Context, key string, r io.Reader, size int64) (Info, error)
	// Compose makes key of one or more objects, one behind the other, without
	// bringing their bytes here where the store can do it; they stay. All but
	// the last have at least MinPartBytes, else it is sheaf.ErrInvalid, and
	// there are at most 10,000. What was under key is replaced.
	Compose(ctx context.Context, key string, parts []string) error
	// Open reads length bytes from offset; length -1 means to the end. Reading
	// stops at the end of the object without an error; an offset behind it is
	// sheaf.ErrInvalid. The reader sees one version of the object, also when it
	// is replaced meanwhile, and fails when ctx ends.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes objects; absent ones are not an error.
	Delete(ctx context.Context, keys ...string) error
	// DeletePrefix removes every object under prefix, which ends in "/", and
	// returns how many, also when it fails on the way.
	DeletePrefix(ctx context.Context, prefix string) (int, error)
	// List calls each for every object under prefix ("" for all) in byte order
	// of the keys until it returns false.
	List(ctx context.Context, prefix string, each func(Info) bool) error
	// ListAfter is List of the keys that follow after, which need not be the key of
	// an object; "" is before all.
	ListAfter(ctx context.Context, prefix, after string, each func(Info) bool) error
	// Children calls each for what lies directly under prefix, in any order: keys of
	// objects, and prefixes of others, which end in "/", until it returns false.
	Children(ctx context.Context, prefix string, each func(name string) bool) error
	// Ping checks that the store can be reached and written to.
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

// Local is implemented by stores whose objects are files of this host:
// parsing then needs no copy.
type Local interface {
	Path(key string) (string, error)
}

// Fill brings bytes of a file with holes here before they are read. It is safe
// for concurrent use. Its errors are those of the store and of the disk.
type Fill func(ctx context.Context, offset, length int64) error

// Presigner is implemented by stores that clients can read from and write to
// directly. An address is valid for expires, 1 second to 7 days, and takes
// exactly size bytes; disposition is the Content-Disposition of the answer,
// empty for none.
type Presigner interface {
	PresignPut(ctx context.Context, key string, size int64, expires time.Duration) (string, error)
	PresignGet(ctx context.Context, key string, expires time.Duration, disposition string) (string, error)
}
