// Package formattest checks what every format promises, for the tests of each.
package formattest

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sheaf"
	"sheaf/parser"
)

// Update is set by -update: golden files are rewritten.
var Update = flag.Bool("update", false, "write the golden files anew")

// Zip packs parts, given as alternating names and contents.
func Zip(parts ...string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i+1 < len(parts); i += 2 {
		w, err := z.Create(parts[i])
		if err == nil {
			_, err = w.Write([]byte(parts[i+1]))
		}
		if err != nil {
			panic(err) // writing to a buffer never fails
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// ZipDirectory packs one part and lists it under each of the names, which are as
// long as the part's own. edit, which may be nil, modifies each record of the
// directory (APPNOTE.TXT 4.3.12).
func ZipDirectory(name, content string, edit func(record []byte), names ...string) []byte {
	b := Zip(name, content)
	end := bytes.LastIndex(b, []byte("PK\x05\x06"))
	from := int(binary.LittleEndian.Uint32(b[end+16:]))
	record, tail := bytes.Clone(b[from:end]), bytes.Clone(b[end:])
	out := bytes.Clone(b[:from])
	for _, n := range names {
		r := bytes.Clone(record)
		copy(r[46:], n)
		if edit != nil {
			edit(r)
		}
		out = append(out, r...)
	}
	binary.LittleEndian.PutUint16(tail[8:], uint16(len(names)))
	binary.LittleEndian.PutUint16(tail[10:], uint16(len(names)))
	binary.LittleEndian.PutUint32(tail[12:], uint32(len(record)*len(names)))
	return append(out, tail...)
}

// maxFuzzed is a hundred times what the slowest fuzzer input takes.
const maxFuzzed = 20 * time.Second

// Read plans and parses content as a task would, range by range, and checks the
// contract of parser.Document on the way. shards reads the ranges that have a
// shard; it may be nil for formats without any.
//
// In a fuzz worker, content that takes longer than maxFuzzed ends the process, so
// that it is recorded as a finding: the fuzzer itself does not limit one input.
func Read(t testing.TB, f parser.Format, content []byte, o parser.Options, shards parser.Format) (*parser.Plan, []sheaf.UnitResult, error) {
	t.Helper()
	if w := flag.Lookup("test.fuzzworker"); w != nil && w.Value.String() == "true" {
		slow := time.AfterFunc(maxFuzzed, func() { panic(fmt.Sprintf("reading %d bytes takes more than %s", len(content), maxFuzzed)) })
		defer slow.Stop()
	}
	o.TempDir = t.TempDir()
	path := filepath.Join(o.TempDir, "original")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var plan *parser.Plan
	err := with(f, path, o, func(d parser.Document) (err error) {
		plan, err = d.Plan(context.Background())
		return err
	})
	if err != nil {
		failure(t, err)
		return nil, nil, err
	}
	if plan.Units < 1 {
		t.Fatalf("plan of %d units", plan.Units)
	}
	kind, _ := parser.NewRegistry(f).TypeOf(o.MediaType)
	if kind.Unit != "" && plan.Unit != kind.Unit && !(kind.Unit == sheaf.UnitFile && plan.Unit == sheaf.UnitPart && kind.Ranges != "") {
		t.Fatalf("%s is counted in units of %q and declares %q", o.MediaType, plan.Unit, kind.Unit)
	}
	if plan.Fingerprints != nil && len(plan.Fingerprints) != plan.Units {
		t.Fatalf("%d fingerprints of %d units", len(plan.Fingerprints), plan.Units)
	}
	if _, err := json.Marshal(plan); err != nil {
		t.Fatal(err)
	}
	ranges := plan.Ranges
	if ranges == nil {
		for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: plan.Units}}, plan.RangeSize) {
			ranges = append(ranges, parser.PlannedRange{Range: r})
		}
	}
	var units []sheaf.UnitResult
	next := 1
	for _, r := range ranges {
		if r.Range.From != next {
			t.Fatalf("range %s does not follow unit %d", r.Range, next-1)
		}
		format, from := f, path
		o := o
		o.Hint, o.Beside = r.Hint, plan.Beside
		if r.Shard != "" {
			format, from, o.MediaType = shards, filepath.Join(o.TempDir, r.Shard), r.MediaType
		}
		err := with(format, from, o, func(d parser.Document) error {
			return d.Parse(context.Background(), r.Range, func(u sheaf.UnitResult) error {
				if u.Unit != next {
					t.Fatalf("unit %d was emitted in place of %d", u.Unit, next)
				}
				next = max(u.Unit, u.LastUnit) + 1
				check(t, &u)
				units = append(units, u)
				return nil
			})
		})
		if err != nil {
			failure(t, err)
			return plan, units, err
		}
		if next != r.Range.To+1 {
			t.Fatalf("range %s ended after unit %d", r.Range, next-1)
		}
	}
	if next != plan.Units+1 {
		t.Fatalf("the ranges end at unit %d of %d", next-1, plan.Units)
	}
	return plan, units, nil
}

func with(f parser.Format, path string, o parser.Options, do func(parser.Document) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	d, err := f.Open(context.Background(), file, o)
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

func failure(t testing.TB, err error) {
	t.Helper()
	f, ok := errors.AsType[*sheaf.Failure](err)
	if !ok || f.Code == "" || f.Message == "" || !utf8.ValidString(f.Message) {
		t.Fatalf("not a failure with code and sentence: %v", err)
	}
}

func check(t testing.TB, u *sheaf.UnitResult) {
	t.Helper()
	if u.Status == sheaf.UnitOK && len(u.Blocks) == 0 {
		t.Fatal("a unit without blocks is called ok")
	}
	if (u.Status == sheaf.UnitFailed || u.Status == sheaf.UnitSkipped) && (u.Code == "" || u.Message == "") {
		t.Fatalf("unit %d is %s without a reason", u.Unit, u.Status)
	}
	for _, b := range u.Blocks {
		if (b.Table != nil) != (b.Kind == sheaf.BlockTable) || b.Table == nil && b.Picture == "" && strings.TrimSpace(b.Text) == "" {
			t.Fatalf("empty block %+v", b)
		}
		cleanText(t, b.Text)
		for _, s := range b.Spans {
			if s.Start < 0 || s.End < s.Start || s.End > len(b.Text) {
				t.Fatalf("span %+v outside of %d bytes", s, len(b.Text))
			}
		}
		if b.Table == nil {
			continue
		}
		for _, c := range b.Table.Columns {
			cleanText(t, c)
		}
		for _, r := range b.Table.Rows {
			if b.Table.Columns != nil && len(r) != len(b.Table.Columns) {
				t.Fatalf("row of %d cells under %d columns", len(r), len(b.Table.Columns))
			}
			for _, c := range r {
				cleanText(t, c)
			}
		}
	}
}

func cleanText(t testing.TB, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Fatalf("not UTF-8: %q", s)
	}
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			t.Fatalf("control character in %q", s)
		}
	}
}

// Golden compares the result with testdata/name.json; -update rewrites it.
func Golden(t *testing.T, name string, plan *parser.Plan, units []sheaf.UnitResult) {
	t.Helper()
	got, err := json.MarshalIndent(struct {
		Plan  *parser.Plan
		Units []sheaf.UnitResult
	}{plan, units}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".json")
	if *Update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if !bytes.Equal(bytes.TrimSpace(want), got) {
		t.Errorf("%s differs; look at it and run with -update if it is right:\n%s", path, got)
	}
}
