// Package artifact is the file format of a range result: what a task made of its
// range (chunks and vectors), kept in the blob store so that indexing, reuse and an
// index rebuild need neither parser nor model.
//
// A file is Parquet with one row per chunk; what it belongs to is in the footer's
// key-value metadata under "sheaf.*". Any Parquet reader can read it:
//
//	duckdb -c "select ordinal, pages, text from 'range.parquet' limit 5"
//	python -c "import pandas; print(pandas.read_parquet('range.parquet'))"
//
// The metadata entry "sheaf.checksum" covers every byte of the file and is verified
// before the bytes reach the Parquet decoder: a damaged or foreign file is an
// error, never a crash or a wrong result.
package artifact

import (
	"fmt"
	"strconv"
	"time"

	"sheaf"
)

// Version of the format; readers reject newer ones. Version 2 added what finds
// chunks besides their text, version 3 their tags.
const Version = 3

// Bounds that no range result exceeds; they keep a corrupt file from exhausting the
// reader's memory.
const (
	maxDim         = 16384
	maxFooterBytes = 2 << 20 // about 1,000 row groups, 2 GB of text and vectors
	maxRows        = 1 << 24
)

// Header identifies what the chunks of a file belong to.
type Header struct {
	DocumentID string
	Generation int // that first produced the result; later ones may share it
	RangeID    string
	Range      sheaf.Range
	ModelID    string // of the vectors, empty if there are none
	Dim        int    // width of the vectors, 0 if there are none
	Digest     string // reuse key of the range
	Created    time.Time
	// Name was the document's name when its chunks were embedded: the vectors
	// depend on it. "" in files of version 1.
	Name string
	// readings are packed, "" for none: few of those who read a file need them.
	readings string
}

// Keys of the footer.
const (
	keyVersion    = "sheaf.version"
	keyDocument   = "sheaf.document_id"
	keyGeneration = "sheaf.generation"
	keyRangeID    = "sheaf.range_id"
	keyRange      = "sheaf.range" // "3-7", 1-based units, both ends included
	keyModel      = "sheaf.model_id"
	keyDim        = "sheaf.dim"
	keyDigest     = "sheaf.digest"
	keyCreated    = "sheaf.created" // RFC 3339, UTC
	keyName       = "sheaf.name"
	keyReadings   = "sheaf.readings" // only where something took long to read
	keyChecksum   = "sheaf.checksum"
)

// keyChildren holds a summary's Children in the metadata column, one per line.
const keyChildren = "sheaf.children"

func (h Header) metadata() [][2]string {
	all := [][2]string{
		{keyVersion, strconv.Itoa(Version)},
		{keyDocument, h.DocumentID},
		{keyGeneration, strconv.Itoa(h.Generation)},
		{keyRangeID, h.RangeID},
		{keyRange, fmt.Sprintf("%d-%d", h.Range.From, h.Range.To)},
		{keyModel, h.ModelID},
		{keyDim, strconv.Itoa(h.Dim)},
		{keyDigest, h.Digest},
		{keyCreated, h.Created.UTC().Format(time.RFC3339Nano)},
		{keyName, h.Name},
		{keyChecksum, noChecksum},
	}
	if h.readings != "" {
		all = append(all, [2]string{keyReadings, h.readings})
	}
	return all
}

func parseHeader(get func(string) (string, bool)) (Header, error) {
	var h Header
	var err error
	text := func(key string) string {
		v, ok := get(key)
		if !ok && err == nil {
			err = fmt.Errorf("%s is missing", key)
		}
		return v
	}
	number := func(key string) int {
		n, perr := strconv.Atoi(text(key))
		if perr != nil && err == nil {
			err = fmt.Errorf("%s: %w", key, perr)
		}
		return n
	}
	if v := number(keyVersion); err == nil && (v < 1 || v > Version) {
		return h, fmt.Errorf("it has format version %d and this program reads up to %d; upgrade it", v, Version)
	}
	h.DocumentID, h.Generation, h.RangeID = text(keyDocument), number(keyGeneration), text(keyRangeID)
	if r := text(keyRange); err == nil {
		if _, serr := fmt.Sscanf(r, "%d-%d", &h.Range.From, &h.Range.To); serr != nil {
			err = fmt.Errorf("%s: %q is not a range", keyRange, r)
		}
	}
	h.ModelID, h.Dim, h.Digest = text(keyModel), number(keyDim), text(keyDigest)
	h.Name, _ = get(keyName)
	h.readings, _ = get(keyReadings)
	if created := text(keyCreated); err == nil {
		h.Created, err = time.Parse(time.RFC3339Nano, created)
	}
	if err == nil && (h.Dim < 0 || h.Dim > maxDim) {
		err = fmt.Errorf("%s is %d", keyDim, h.Dim)
	}
	return h, err
}

// row is the Parquet schema. Columns and metadata are JSON objects as text, which
// every Parquet reader accepts. Vectors are not compressed: their bits are close to
// noise, and zstd would dominate the cost of writing.
type row struct {
	ChunkID     string    `parquet:"chunk_id"`
	Ordinal     int64     `parquet:"ordinal"`
	Kind        string    `parquet:"kind,dict"`
	Text        string    `parquet:"text"`
	Tokens      int32     `parquet:"tokens"`
	Pages       []int32   `parquet:"pages,list"`
	Boxes       []box     `parquet:"boxes,list"`
	HeadingPath []string  `parquet:"heading_path,list"`
	Columns     *string   `parquet:"columns,optional"` // NULL, not "", if there are none: "" is not JSON
	Metadata    *string   `parquet:"metadata,optional"`
	Vector      []float32 `parquet:"vector,list" parquet-element:",uncompressed"`
	Role        string    `parquet:"role,dict"`
	Parent      string    `parquet:"parent"` // compresses well if neighbors share it
	Context     string    `parquet:"context"`
	Language    string    `parquet:"language,dict"`
	Keywords    []string  `parquet:"keywords,list"`
	Questions   []string  `parquet:"questions,list"`
	Tags        []tag     `parquet:"tags,list"`
}

// rowV1 and rowV2 are the schemas of earlier versions, written out because the
// library reads a nil pointer in an embedded struct as "".
type rowV1 struct {
	ChunkID     string    `parquet:"chunk_id"`
	Ordinal     int64     `parquet:"ordinal"`
	Kind        string    `parquet:"kind,dict"`
	Text        string    `parquet:"text"`
	Tokens      int32     `parquet:"tokens"`
	Pages       []int32   `parquet:"pages,list"`
	Boxes       []box     `parquet:"boxes,list"`
	HeadingPath []string  `parquet:"heading_path,list"`
	Columns     *string   `parquet:"columns,optional"`
	Metadata    *string   `parquet:"metadata,optional"`
	Vector      []float32 `parquet:"vector,list" parquet-element:",uncompressed"`
}

type rowV2 struct {
	ChunkID     string    `parquet:"chunk_id"`
	Ordinal     int64     `parquet:"ordinal"`
	Kind        string    `parquet:"kind,dict"`
	Text        string    `parquet:"text"`
	Tokens      int32     `parquet:"tokens"`
	Pages       []int32   `parquet:"pages,list"`
	Boxes       []box     `parquet:"boxes,list"`
	HeadingPath []string  `parquet:"heading_path,list"`
	Columns     *string   `parquet:"columns,optional"`
	Metadata    *string   `parquet:"metadata,optional"`
	Vector      []float32 `parquet:"vector,list" parquet-element:",uncompressed"`
	Role        string    `parquet:"role,dict"`
	Parent      string    `parquet:"parent"`
	Context     string    `parquet:"context"`
	Language    string    `parquet:"language,dict"`
	Keywords    []string  `parquet:"keywords,list"`
	Questions   []string  `parquet:"questions,list"`
}

type tag struct {
	Name   string  `parquet:"name"`
	Weight float64 `parquet:"weight"`
}

type box struct {
	Page int32   `parquet:"page"`
	X0   float64 `parquet:"x0"`
	Y0   float64 `parquet:"y0"`
	X1   float64 `parquet:"x1"`
	Y1   float64 `parquet:"y1"`
}
