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

// bodyDigest digests a request's body as it streams by. It holds no more than
// what was written last. Bodies of multipart/form-data that differ in their
// boundary alone have one digest: a client makes up a new one for each try.
type bodyDigest struct {
	sum       hash.Hash // of the body, or of the lengths and sums of its parts
	delimiter []byte    // line end, two hyphens and the boundary; nil where the body is one piece
	part      hash.Hash
	partBytes int64
	held      []byte // may be the begin of a delimiter
	n         int64  // bytes so far, without delimiters
}

// newBodyDigest is for a body of a content type.
func newBodyDigest(contentType string) *bodyDigest {
	d := &bodyDigest{sum: sha256.New()}
	if media, params, err := mime.ParseMediaType(contentType); err == nil && media == "multipart/form-data" && params["boundary"] != "" {
		// The first delimiter may be what a body begins with. A line may end in
		// LF alone; a CR before it belongs to the part then, in each try alike.
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

// String ends the digest: the sum in hex and the number of bytes it is of.
func (d *bodyDigest) String() string {
	if d.delimiter != nil {
		d.add(d.held)
		d.endPart()
	}
	return fmt.Sprintf("%x/%d", d.sum.Sum(nil), d.n)
}

// digestBytes is how many bytes a digest is of, -1 when it does not say.
func digestBytes(digest string) int64 {
	_, length, _ := strings.Cut(digest, "/")
	n, err := strconv.ParseInt(length, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// keyedHeaders are the headers that say what a request asks for, apart from its
// body. A repetition has the same ones.
var keyedHeaders = []string{"Content-Type", "Content-Encoding", "Content-Disposition", "X-Http-Method-Override", "Upload-Length", "Upload-Offset", "Upload-Metadata", "Upload-Checksum", "If-Match"}

// requestDigest is the SHA-256 of all that a request asks for before its body,
// in hex.
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
