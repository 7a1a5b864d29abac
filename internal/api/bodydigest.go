package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// bodyDigest hashes a request body as it streams, buffering only the last write.
// multipart/form-data bodies that differ only in their boundary have the same
// digest, because a client picks a new boundary for each attempt.
type bodyDigest struct {
	sum       hash.Hash // of the body, or of the lengths and hashes of its parts
	delimiter []byte    // newline, "--" and the boundary; nil if the body is not multipart
	part      hash.Hash
	partBytes int64
	held      []byte // may be the start of a delimiter
	n         int64  // bytes so far, without delimiters
}

// newBodyDigest returns a digest for a body of the given content type.
func newBodyDigest(contentType string) *bodyDigest {
	d := &bodyDigest{sum: sha256.New()}
	if media, params, err := mime.ParseMediaType(contentType); err == nil && media == "multipart/form-data" && params["boundary"] != "" {
		// A body may start with the first delimiter. A line may end in a bare LF; a
		// preceding CR then counts as part data, in every attempt alike.
		d.delimiter, d.held, d.part = []byte("\n--"+params["boundary"]), []byte("\n"), sha256.New()
	}
	return d
}

// Write never fails.
func (d *bodyDigest) Write(p []byte) (int, error) {
	if d.delimiter == nil {
		_, _ = d.sum.Write(p)
		d.n += int64(len(p))
		return len(p), nil
	}
	d.held = append(d.held, p...)
	rest := d.held
	for {
		before, after, found := bytes.Cut(rest, d.delimiter)
		if !found {
			break
		}
		d.add(before)
		d.endPart()
		rest = after
	}
	keep := min(len(rest), len(d.delimiter)-1)
	d.add(rest[:len(rest)-keep])
	d.held = append(d.held[:0], rest[len(rest)-keep:]...)
	return len(p), nil
}

func (d *bodyDigest) add(p []byte) {
	_, _ = d.part.Write(p)
	d.partBytes += int64(len(p))
	d.n += int64(len(p))
}

func (d *bodyDigest) endPart() {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(d.partBytes))
	_, _ = d.sum.Write(length[:])
	_, _ = d.sum.Write(d.part.Sum(nil))
	d.part.Reset()
	d.partBytes = 0
}

// String finishes the digest and returns the hash in hex and the byte count.
func (d *bodyDigest) String() string {
	if d.delimiter != nil {
		d.add(d.held)
		d.endPart()
	}
	return fmt.Sprintf("%x/%d", d.sum.Sum(nil), d.n)
}

// digestBytes returns the byte count in a digest, or -1 if it has none.
func digestBytes(digest string) int64 {
	_, length, _ := strings.Cut(digest, "/")
	n, err := strconv.ParseInt(length, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// keyedHeaders are the headers that, besides the body, define a request. A retry
// sends the same ones.
var keyedHeaders = []string{"Content-Type", "Content-Encoding", "Content-Disposition", "X-Http-Method-Override", "Upload-Length", "Upload-Offset", "Upload-Metadata", "Upload-Checksum", "If-Match"}

// requestDigest returns the hex SHA-256 of what a request asks for, excluding its
// body.
func requestDigest(r *http.Request) string {
	sum := sha256.New()
	write := func(s string) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(s)))
		_, _ = sum.Write(length[:])
		_, _ = sum.Write([]byte(s))
	}
	write(r.Method)
	write(r.URL.EscapedPath())
	write(r.URL.Query().Encode()) // sorted by name
	for _, name := range keyedHeaders {
		for _, value := range r.Header.Values(name) {
			if name == "Content-Type" {
				value = withoutBoundary(value)
			}
			write(name)
			write(value)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

func withoutBoundary(contentType string) string {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "multipart/form-data" {
		return contentType
	}
	delete(params, "boundary")
	return mime.FormatMediaType(media, params)
}
