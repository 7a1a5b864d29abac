package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// maxMutant limits the size of a mutant: hostile files are small ones that claim to
// be large.
const maxMutant = 4 << 20

// seed is a file to mutate.
type seed struct {
	name string // with the extension of its format
	data []byte
}

// mutation damages a file the way accidents and attackers do. It returns nil if it
// does not apply to the file.
type mutation struct {
	name  string
	apply func(r *rand.Rand, s seed, all []seed) []byte
}

var mutations = []mutation{
	{"bit flips", flipBits},
	{"truncation", truncate},
	{"splice", splice},
	{"lying sizes", lie},
	{"zip members", rezip},
	{"nesting", nest},
	{"repetition", repeat},
	{"wrong name", misname},
}

// flipBits flips a few bits, or many in one place.
func flipBits(r *rand.Rand, s seed, _ []seed) []byte {
	b := slices.Clone(s.data)
	if r.IntN(3) == 0 {
		at := r.IntN(len(b))
		for i := at; i < min(len(b), at+1+r.IntN(256)); i++ {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for range 1 + r.IntN(64) {
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	}
	return b
}

// truncate keeps the start, or removes a piece from the middle.
func truncate(r *rand.Rand, s seed, _ []seed) []byte {
	n := r.IntN(len(s.data))
	if r.IntN(2) == 0 {
		return slices.Clone(s.data[:n])
	}
	return slices.Delete(slices.Clone(s.data), n, n+r.IntN(len(s.data)-n+1))
}

// splice inserts a piece of another file, or of the same one, somewhere.
func splice(r *rand.Rand, s seed, all []seed) []byte {
	from := all[r.IntN(len(all))].data
	if r.IntN(2) == 0 {
		from = s.data
	}
	at, n := r.IntN(len(from)), r.IntN(min(len(from), 64<<10))+1
	piece := from[at:min(len(from), at+n)]
	to := r.IntN(len(s.data) + 1)
	end := to
	if r.IntN(2) == 0 {
		end = min(len(s.data), to+len(piece)) // replaces the same amount
	}
	return slices.Replace(slices.Clone(s.data), to, end, piece...)
}

// numbers matches counts and sizes in text formats.
var numbers = regexp.MustCompile(`(?i)(/(?:Count|Length|Size|First|N|W|Width|Height|Columns|Predictor|Index)\s+|startxref\s+|(?:count|uniqueCount|colspan|rowspan|r:id|width|height|cx|cy|repeated)="|ref="[A-Z]+|\\bin|Content-Length: )(\d+)`)

// lie changes numbers that declare sizes.
func lie(r *rand.Rand, s seed, _ []seed) []byte {
	b := slices.Clone(s.data)
	lies := []uint64{0, 1, 0xff, 0x7fff, 0xffff, 1 << 20, 0x7fffffff, 0xffffffff, 1_000_000_000}
	if headers := zipHeaders(b); len(headers) > 0 && r.IntN(4) > 0 {
		for range 1 + r.IntN(4) {
			h := headers[r.IntN(len(headers))]
			binary.LittleEndian.PutUint32(b[h:], uint32(lies[r.IntN(len(lies))]))
		}
		return b
	}
	found := numbers.FindAllSubmatchIndex(b, 4096)
	if len(found) == 0 || r.IntN(4) == 0 {
		// Binary formats: any aligned word may be a size.
		if len(b) < 8 {
			return nil
		}
		for range 1 + r.IntN(8) {
			at := r.IntN(len(b)-7) &^ 3
			binary.LittleEndian.PutUint32(b[at:], uint32(lies[r.IntN(len(lies))]))
		}
		return b
	}
	for range 1 + r.IntN(3) {
		f := found[r.IntN(len(found))]
		b = slices.Concat(b[:f[4]], fmt.Append(nil, lies[r.IntN(len(lies))]), b[f[5]:])
		if found = numbers.FindAllSubmatchIndex(b, 4096); len(found) == 0 {
			break
		}
	}
	return b
}

// zipHeaders lists the offsets of the sizes in local and central headers.
func zipHeaders(b []byte) (at []int) {
	for i := 0; i+46 <= len(b) && len(at) < 4096; i++ {
		switch {
		case b[i] != 'P' || b[i+1] != 'K':
		case b[i+2] == 3 && b[i+3] == 4:
			at = append(at, i+18, i+22)
		case b[i+2] == 1 && b[i+3] == 2:
			at = append(at, i+20, i+24, i+42)
		}
	}
	return at
}

// rezip rewrites a zip file with members omitted, duplicated, swapped, mutated, or
// given hostile names.
func rezip(r *rand.Rand, s seed, all []seed) []byte {
	in, err := zip.NewReader(bytes.NewReader(s.data), int64(len(s.data)))
	if err != nil || len(in.File) == 0 {
		return nil
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	victim := r.IntN(len(in.File))
	how := r.IntN(6)
	for i, f := range in.File {
		rc, err := f.Open()
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(rc, maxMutant))
		_ = rc.Close()
		if err != nil || len(data) == 0 {
			continue
		}
		name, times := f.Name, 1
		if i == victim {
			part := seed{f.Name, data}
			switch how {
			case 0:
				continue
			case 1:
				times = 2 + r.IntN(50)
			case 2:
				data = all[r.IntN(len(all))].data
			case 3:
				inside := []func(*rand.Rand, seed, []seed) []byte{flipBits, truncate, lie, nest, repeat}
				if changed := inside[r.IntN(len(inside))](r, part, all); changed != nil {
					data = changed
				}
			case 4:
				name = []string{"../../../etc/passwd", "/etc/passwd", strings.Repeat("a/", 2000) + "x", "\x00", "con", "\u202efdp.exe", ""}[r.IntN(7)]
			case 5:
				data = bytes.Repeat(data, 1+r.IntN(200))
				data = data[:min(len(data), maxMutant)]
			}
		}
		for range times {
			if m, err := w.Create(name); err == nil {
				_, _ = m.Write(data) // into memory
			}
		}
	}
	if w.Close() != nil || out.Len() > maxMutant {
		return nil
	}
	return out.Bytes()
}

// nest opens what is never closed, or embeds a file in itself.
func nest(r *rand.Rand, s seed, _ []seed) []byte {
	depth := 1 << (4 + r.IntN(14))
	if r.IntN(3) == 0 { // zip in zip
		data := s.data
		for range 1 + r.IntN(12) {
			var out bytes.Buffer
			w := zip.NewWriter(&out)
			if m, err := w.Create(s.name); err == nil {
				_, _ = m.Write(data)
			}
			if w.Close() != nil {
				return nil
			}
			data = out.Bytes()
		}
		return data
	}
	open := [][2]string{{"<div>", "</div>"}, {"[", "]"}, {"{\"a\":", "}"}, {"{", "}"}, {"<<", ">>"}, {"> ", ""}, {"- ", ""}, {"(", ")"}, {"<table><tr><td>", ""}, {"\\begin{itemize}\\item ", "\\end{itemize}"}}[r.IntN(10)]
	at := r.IntN(len(s.data) + 1)
	b := slices.Concat(s.data[:at], []byte(strings.Repeat(open[0], depth)), s.data[at:], []byte(strings.Repeat(open[1], depth*r.IntN(2))))
	return b[:min(len(b), maxMutant)]
}

// repeat repeats a piece many times.
func repeat(r *rand.Rand, s seed, _ []seed) []byte {
	at := r.IntN(len(s.data))
	n := 1 + r.IntN(min(512, len(s.data)-at))
	times := 1 << r.IntN(14)
	times = max(1, min(times, (maxMutant-len(s.data))/n))
	return slices.Insert(slices.Clone(s.data), at, bytes.Repeat(s.data[at:at+n], times)...)
}

// misname sends a file as another format. The caller changes the name.
func misname(_ *rand.Rand, s seed, _ []seed) []byte { return s.data }

// rezipAll packs files into an archive; nil on failure.
func rezipAll(files []seed) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		m, err := w.Create("folder/" + f.name)
		if err != nil {
			return nil
		}
		_, _ = m.Write(f.data) // into memory
	}
	if w.Close() != nil {
		return nil
	}
	return out.Bytes()
}
