package executor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/internal/tagset"
)

// digestVersion changes when the encoding below does. Old digests then match
// nothing, which costs a parse and breaks nothing.
const digestVersion = "sheaf-digest/1"

// Fingerprint is everything except the bytes that determines a range's chunks and
// vectors: two ranges with equal bytes and equal fingerprints have equal results.
// Anything else (the document's id and name, the dataset, fields no parser reads)
// must stay out, or reuse is lost for nothing.
type Fingerprint struct {
	Parser         string // "pdf"
	ParserVersion  int
	Chunker        string
	ChunkerVersion int
	Options        []string          // config fields that the parser and chunker read, by JSON name; zero values are omitted
	Config         sheaf.ParseConfig // merged
	Model          string            // of the embedder
	Flow           string            // FlowRun.Names; "" without a flow
	Chat           string            // chat model and version of its prompts, when the settings use it
}

// hash32 hashes b with two xxhash64, 32 hex, so that a tenant never sees a
// collision.
func hash32(b []byte) string {
	first := xxhash.Sum64(b)
	return fmt.Sprintf("%016x%016x", first, xxhash.Sum64(append(strconv.AppendUint(nil, first, 16), b...)))
}

// Digest is the xxhash64 of the canonical encoding, 16 hex characters. The encoding
// is a list of length-prefixed name and value pairs, with fields sorted by name, so
// that neither order nor adjacency makes two fingerprints look alike.
func (s Fingerprint) Digest() string {
	h := xxhash.New()
	write := func(parts ...string) {
		for _, p := range parts {
			var n [8]byte
			binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
			_, _ = h.Write(n[:]) // xxhash never fails
			_, _ = h.WriteString(p)
		}
	}
	write(digestVersion)
	write("parser", s.Parser, fmt.Sprint(s.ParserVersion))
	write("chunker", s.Chunker, fmt.Sprint(s.ChunkerVersion))
	write("model", s.Model)
	if s.Chat != "" {
		write("chat", s.Chat)
	}
	if s.Flow != "" {
		write("flow", s.Flow)
	}
	options := slices.Clone(s.Options)
	slices.Sort(options)
	for _, name := range slices.Compact(options) {
		if v := configField(s.Config, name); v != "" {
			write("option", name, v)
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// configField returns the JSON of one config field, by its JSON name, or "" when it
// is empty: a new setting that no one has set must not invalidate results made
// before it existed. Zero numbers, empty strings and empty lists are empty; false is
// not.
func configField(c sheaf.ParseConfig, name string) string {
	v, set := settings.Value(c, name)
	if !set {
		return ""
	}
	switch b, _ := json.Marshal(v); string(b) { // plain fields always encode
	case "0", `""`, "null", "[]":
		return ""
	default:
		return string(b)
	}
}

// reuseKey identifies the result of a range: the fingerprint of its content and the
// digest of the settings. It includes the range itself, because page numbers and
// citations are part of the result, and the headings it starts under, when a table
// of contents gives them. A range that continues others has the same chunks wherever
// it is stitched. tags, from tagsOf, is here and not in the digest: when a tag set
// changes, model answers about a text stay valid.
func reuseKey(digest string, r sheaf.Range, content uint64, headings []string, levels []int, continues bool, tags string) string {
	h := xxhash.New()
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(r.From))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.To))
	binary.LittleEndian.PutUint64(b[16:], content)
	_, _ = h.Write(b[:])
	for _, s := range headings {
		binary.LittleEndian.PutUint64(b[:8], uint64(len(s)))
		_, _ = h.Write(b[:8])
		_, _ = h.WriteString(s)
	}
	for _, level := range levels {
		binary.LittleEndian.PutUint64(b[:8], uint64(level))
		_, _ = h.Write(b[:8])
	}
	if continues {
		_, _ = h.WriteString("\x00continues")
	}
	if tags != "" {
		_, _ = h.WriteString("\x00tags\x00" + tags)
	}
	return fmt.Sprintf("%016x%s", h.Sum64(), digest)
}

// tagsOf identifies the tags that chunks get: how many, from which results; "" for
// none.
func tagsOf(config sheaf.ParseConfig, tagSet []string, limits tagset.Limits) string {
	if len(tagSet) == 0 {
		return ""
	}
	tags := fmt.Sprintf("%d\n%s", config.TopNTags.V, strings.Join(tagSet, "\n"))
	if w := limits.Weight(); w != tagset.DefaultLimits.MinWeight {
		tags += fmt.Sprintf("\n%g", w)
	}
	return tags
}

// contentOf combines the fingerprints of a range's units, or hashes the whole file's
// SHA-256 when the format has none.
func contentOf(fingerprints []uint64, r sheaf.Range, sha256 string) uint64 {
	if r.To > len(fingerprints) {
		return xxhash.Sum64String(sha256)
	}
	h := xxhash.New()
	var b [8]byte
	for _, f := range fingerprints[r.From-1 : r.To] {
		binary.LittleEndian.PutUint64(b[:], f)
		_, _ = h.Write(b[:])
	}
	return h.Sum64()
}
