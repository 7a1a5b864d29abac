//go:build ignore

// Command build makes pdfium.wasm.zst, the module that the engine runs, compressed,
// from the one in go-pdfium. See README.md.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// source is the module to start from.
const (
	sourcePackage = "github.com/klippa-app/go-pdfium/webassembly"
	sourceSum     = "a9da632fc69e963f94c68dda017eec3e512284c9113d6e3be21f35086de3c0c3"
)

// features are those the source uses; wazero supports more, binaryen's -all
// includes some that wazero does not.
var features = strings.Fields("--mvp-features --enable-bulk-memory --enable-sign-ext --enable-nontrapping-float-to-int --enable-mutable-globals --enable-multivalue --enable-reference-types")

// optimise was chosen by measurement: more inlining does not make pages faster but
// slows the start of each child.
var optimise = strings.Fields("-O3")

// called are the exports that go-pdfium itself calls: everything but PDFium's own
// functions, plus these.
var called = []string{"FPDF_FILEACCESS_Create", "FPDF_FILEACCESS_Size", "FPDF_InitLibrary", "FPDF_DestroyLibrary"}

func main() {
	tools := flag.String("binaryen", "", "folder with wasm-as, wasm-merge and wasm-opt; default $PATH")
	out := flag.String("o", "pdfium.wasm.zst", "the compressed module to write")
	flag.Parse()
	if err := run(*tools, *out); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(tools, out string) error {
	source, err := readSource()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "pdfium-wasm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	at := func(name string) string { return filepath.Join(tmp, name) }
	tool := func(name string, args ...string) error {
		cmd := exec.Command(filepath.Join(tools, name), append(slices.Clone(features), args...)...)
		if tools == "" {
			cmd = exec.Command(name, cmd.Args[1:]...)
		}
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	step := func(from, to string, f func(*module) error) error {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		m, err := decode(b)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		if err := f(m); err != nil {
			return err
		}
		return os.WriteFile(to, m.encode(), 0o644)
	}

	keep, err := usedExports("../pdfiumwasm.go", "page.wat")
	if err != nil {
		return err
	}
	if err := os.WriteFile(at("source.wasm"), source, 0o644); err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error {
			return step(at("source.wasm"), at("pdfium.wasm"), func(m *module) error { return m.dropExports(keep) })
		},
		func() error { return tool("wasm-as", "page.wat", "-o", at("page.wasm")) },
		func() error { return tool("wasm-as", "malloc.wat", "-o", at("malloc.wasm")) },
		func() error {
			return tool("wasm-merge", at("pdfium.wasm"), "pdfium", at("page.wasm"), "page", at("malloc.wasm"), "malloc", "-o", at("merged.wasm"))
		},
		func() error {
			return step(at("merged.wasm"), at("swapped.wasm"), func(m *module) error {
				return errors.Join(m.replace("malloc", "sheaf_malloc"), m.replace("free", "sheaf_free"))
			})
		},
		func() error {
			return tool("wasm-opt", append(slices.Clone(optimise), at("swapped.wasm"), "-o", at("small.wasm"))...)
		},
		func() error { return step(at("small.wasm"), at("done.wasm"), (*module).joinData) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(at("done.wasm"))
	if err != nil {
		return err
	}
	fmt.Printf("%x  pdfium.wasm  %d bytes\n", sha256.Sum256(b), len(b))
	return pack(b, out)
}

// pack writes a module compressed.
func pack(module []byte, out string) error {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		return err
	}
	defer e.Close()
	return os.WriteFile(out, e.EncodeAll(module, nil), 0o644)
}

func readSource() ([]byte, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", sourcePackage).Output()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", sourcePackage, err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pdfium.wasm"))
	if err != nil {
		return nil, err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(b)); sum != sourceSum {
		return nil, fmt.Errorf("pdfium.wasm of %s has the checksum %s; this program was written for %s", sourcePackage, sum, sourceSum)
	}
	return b, nil
}

var exportName = regexp.MustCompile(`"(FPDF\w*_\w+)"`)

// usedExports returns the PDFium functions named in the files.
func usedExports(paths ...string) (map[string]bool, error) {
	keep := map[string]bool{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range exportName.FindAllSubmatch(b, -1) {
			keep[string(m[1])] = true
		}
	}
	for _, name := range called {
		keep[name] = true
	}
	return keep, nil
}

// module is a WebAssembly module of the core specification, version 1 with the
// data count section, cut into its sections.
type module struct {
	sections []section
}

type section struct {
	id   byte
	body []byte
}

const (
	sectionImport    = 2
	sectionExport    = 7
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

var header = []byte("\x00asm\x01\x00\x00\x00")

func decode(b []byte) (*module, error) {
	if !bytes.HasPrefix(b, header) {
		return nil, errors.New("no WebAssembly module")
	}
	r := reader{b: b, at: len(header)}
	m := &module{}
	for r.at < len(b) && r.err == nil {
		id := r.byte()
		m.sections = append(m.sections, section{id, r.bytes(r.number())})
	}
	return m, r.err
}

func (m *module) encode() []byte {
	out := slices.Clone(header)
	for _, s := range m.sections {
		out = append(out, s.id)
		out = binary.AppendUvarint(out, uint64(len(s.body)))
		out = append(out, s.body...)
	}
	return out
}

func (m *module) section(id byte) *section {
	for i := range m.sections {
		if m.sections[i].id == id {
			return &m.sections[i]
		}
	}
	return &section{}
}

// each calls f for every item of a vector section, and reassembles those it keeps.
func (s *section) each(f func(*reader) bool) error {
	r := reader{b: s.body}
	n, kept := r.number(), 0
	var body []byte
	for range n {
		from := r.at
		if f(&r) {
			body = append(body, s.body[from:r.at]...)
			kept++
		}
		if r.err != nil {
			return r.err
		}
	}
	s.body = append(binary.AppendUvarint(nil, uint64(kept)), body...)
	return nil
}

// dropExports removes all PDFium functions not in keep.
func (m *module) dropExports(keep map[string]bool) error {
	pdfium := regexp.MustCompile(`^(FPDF|FORM|FSDK)`)
	missing := map[string]bool{}
	for name := range keep {
		missing[name] = true
	}
	err := m.section(sectionExport).each(func(r *reader) bool {
		name := string(r.bytes(r.number()))
		r.byte()
		r.number()
		delete(missing, name)
		return keep[name] || !pdfium.MatchString(name)
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the module has no exports %v", missing)
	}
	return err
}

// replace substitutes the function exported as by for the one exported as name, for
// every caller, and redirects its own call of name to the original.
func (m *module) replace(name, by string) error {
	functions := map[string]int{}
	err := m.section(sectionExport).each(func(r *reader) bool {
		export := string(r.bytes(r.number()))
		kind, index := r.byte(), r.number()
		if kind == 0 {
			functions[export] = index
		}
		return export != by
	})
	if err != nil {
		return err
	}
	imported := 0
	err = m.section(sectionImport).each(func(r *reader) bool {
		r.bytes(r.number())
		r.bytes(r.number())
		if kind := r.byte(); kind != 0 {
			r.err = fmt.Errorf("import of kind %d", kind)
		}
		r.number()
		imported++
		return true
	})
	if err != nil {
		return err
	}
	var bodies [][]byte
	code := m.section(sectionCode)
	err = code.each(func(r *reader) bool {
		bodies = append(bodies, r.bytes(r.number()))
		return true
	})
	if err != nil {
		return err
	}
	old, oldOK := functions[name]
	shelf, shelfOK := functions[by]
	if !oldOK || !shelfOK {
		return fmt.Errorf("no exports %s and %s", name, by)
	}
	const opCall = 0x10
	call := func(index int) []byte { return binary.AppendUvarint([]byte{opCall}, uint64(index)) }
	body := bodies[shelf-imported]
	if bytes.Count(body, call(old)) != 1 {
		return fmt.Errorf("%s does not call %s once", by, name)
	}
	bodies[shelf-imported] = bodies[old-imported]
	bodies[old-imported] = bytes.Replace(body, call(old), call(shelf), 1)
	code.body = binary.AppendUvarint(nil, uint64(len(bodies)))
	for _, b := range bodies {
		code.body = binary.AppendUvarint(code.body, uint64(len(b)))
		code.body = append(code.body, b...)
	}
	return nil
}

// shelfEnd is the latest possible end of malloc.wat's list heads.
const shelfEnd = 1024

// gap is how many zero bytes between two pieces of data are written out: each piece
// costs every new document as much as copying some thousand bytes.
const gap = 256

// joinData merges the thousands of pieces of the data section into few.
func (m *module) joinData() error {
	type piece struct {
		at   int
		data []byte
	}
	var pieces []piece
	data := m.section(sectionData)
	err := data.each(func(r *reader) bool {
		const i32Const, end = 0x41, 0x0B
		flags, op := r.number(), r.byte()
		at := r.signed()
		if stop := r.byte(); flags != 0 || op != i32Const || stop != end {
			r.err = errors.New("data that is not placed at a constant")
			return false
		}
		body := r.bytes(r.number())
		if last := len(pieces) - 1; last >= 0 {
			p := &pieces[last]
			space := at - p.at - len(p.data)
			if space < 0 {
				r.err = errors.New("data out of order")
				return false
			}
			if space <= gap {
				p.data = append(append(p.data, make([]byte, space)...), body...)
				return false
			}
		}
		pieces = append(pieces, piece{at, slices.Clone(body)})
		return false
	})
	if err != nil {
		return err
	}
	if len(pieces) == 0 || pieces[0].at < shelfEnd {
		return errors.New("the module's data lies where malloc.wat keeps its lists")
	}
	data.body = binary.AppendUvarint(nil, uint64(len(pieces)))
	for _, p := range pieces {
		data.body = append(data.body, 0, 0x41)
		data.body = appendSigned(data.body, p.at)
		data.body = append(data.body, 0x0B)
		data.body = binary.AppendUvarint(data.body, uint64(len(p.data)))
		data.body = append(data.body, p.data...)
	}
	if count := m.section(sectionDataCount); count.id != 0 {
		count.body = binary.AppendUvarint(nil, uint64(len(pieces)))
	}
	return nil
}

// reader reads the integers of the binary format (LEB128).
type reader struct {
	b   []byte
	at  int
	err error
}

func (r *reader) byte() byte {
	if b := r.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) bytes(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.b)-r.at) {
		r.err = errors.New("the module ends early")
	}
	if r.err != nil {
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) number() int {
	n, k := binary.Uvarint(r.b[min(r.at, len(r.b)):])
	if k <= 0 || n > 1<<32 {
		r.err = errors.New("a number is damaged")
		return 0
	}
	r.at += k
	return int(n)
}

func (r *reader) signed() int {
	n, shift := 0, 0
	for {
		b := r.byte()
		n |= int(b&0x7F) << shift
		shift += 7
		if b < 0x80 || r.err != nil || shift > 35 {
			if b&0x40 != 0 {
				n |= -1 << shift
			}
			return n
		}
	}
}

func appendSigned(out []byte, n int) []byte {
	for {
		b := byte(n & 0x7F)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
