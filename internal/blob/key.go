package blob

import (
	"fmt"
	"strings"

	"sheaf"
)

// Limits of keys: the length is S3's, the segment length that of common file
// systems.
const (
	MaxKeyBytes     = 1024
	MaxSegmentBytes = 255
)

// CheckKey returns an error that wraps sheaf.ErrInvalid unless key is one or
// more segments of [A-Za-z0-9._-] joined by "/", none of them "." or "..", of
// at most MaxKeyBytes and MaxSegmentBytes. Every store calls it first, so that
// no key can reach outside the store.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: the key of an object is empty", sheaf.ErrInvalid)
	}
	if len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: the key %.40q… has %d bytes, more than %d", sheaf.ErrInvalid, key, len(key), MaxKeyBytes)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("%w: the key %q has an empty or relative segment", sheaf.ErrInvalid, key)
		}
		if len(segment) > MaxSegmentBytes {
			return fmt.Errorf("%w: the key %.40q… has a segment of %d bytes, more than %d", sheaf.ErrInvalid, key, len(segment), MaxSegmentBytes)
		}
		for i := range len(segment) {
			c := segment[i]
			if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
				continue
			}
			return fmt.Errorf("%w: the key %q has a character other than A-Z, a-z, 0-9, dot, underscore and hyphen", sheaf.ErrInvalid, key)
		}
	}
	return nil
}

// CheckPrefix is CheckKey for prefixes, which end in "/". The empty prefix means
// everything and is valid only if all is true.
func CheckPrefix(prefix string, all bool) error {
	if prefix == "" && all {
		return nil
	}
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("%w: the prefix %q does not end in /", sheaf.ErrInvalid, prefix)
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

// CheckSpan returns an error that wraps sheaf.ErrInvalid unless offset and length
// are valid for Store.Open.
func CheckSpan(offset, length int64) error {
	if offset < 0 || length < -1 {
		return fmt.Errorf("%w: cannot read %d bytes from offset %d", sheaf.ErrInvalid, length, offset)
	}
	return nil
}

// CheckParts returns an error that wraps sheaf.ErrInvalid unless key and parts are
// valid for Store.Compose.
func CheckParts(key string, parts []string) error {
	if len(parts) == 0 || len(parts) > MaxParts {
		return fmt.Errorf("%w: %s cannot be composed of %d objects", sheaf.ErrInvalid, key, len(parts))
	}
	for _, k := range append([]string{key}, parts...) {
		if err := CheckKey(k); err != nil {
			return err
		}
	}
	return nil
}

// CheckPart returns an error that wraps sheaf.ErrInvalid unless the i-th of n parts
// may have size bytes.
func CheckPart(key string, i, n int, size int64) error {
	if i < n-1 && size < MinPartBytes {
		return fmt.Errorf("%w: %s has %d bytes, and only the last part may have fewer than %d", sheaf.ErrInvalid, key, size, MinPartBytes)
	}
	return nil
}
