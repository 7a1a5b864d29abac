package pdfium

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"sheaf/parser/pdf/pdfiumhelper"
	"sheaf/parser/pdf/pdfiumwasm"
)

// Values of the setting pdf.engine.
const (
	Auto   = "auto"   // sheaf-pdfium where it is there and works, else WebAssembly
	Helper = "helper" // sheaf-pdfium, or an error
	Wasm   = "wasm"   // WebAssembly
)

// Program is the name of the helper, beside the executable.
const Program = "sheaf-pdfium"

// maxProgramBytes bounds what is read as a helper; it has some 7 MB.
const maxProgramBytes = 64 << 20

// Found is what reads PDFs here.
type Found struct {
	Path string // where the program lies, "" where there is none
	Run  string // what parsers start, "" for WebAssembly
	// File is the program in memory, which parsers inherit under the path Run.
	// Nil where Run lies in the file system.
	File *os.File
	// Filtered says that the kernel keeps the program from system calls.
	Filtered bool
	// Why says why WebAssembly is used although a program was looked for; "" else.
	Why string
	// Absent says that there is no program, on a system for which one can be built.
	Absent bool
}

// String says it in a line.
func (f Found) String() string {
	switch {
	case f.Run == "" && f.Why != "":
		return "PDFium in WebAssembly: " + f.Why
	case f.Run == "":
		return "PDFium in WebAssembly"
	}
	how := "from memory"
	if f.File == nil {
		how = "as a file"
	}
	if !f.Filtered {
		how += ", without a filter of system calls"
	}
	return fmt.Sprintf("PDFium ahead of time: %s, run %s, made of module %.12s", f.Path, how, pdfiumwasm.ModuleSHA256())
}

// Close gives up the program in memory; parsers that run keep it.
func (f Found) Close() error {
	if f.File == nil {
		return nil
	}
	return f.File.Close()
}

// Find looks for the helper: at path, else embedded in this program, else beside
// it. What is found is copied into memory, checked against the checksum that
// stands beside it, and made to read a page. inherited is the path under which
// parsers see the file that they inherit. The error is of engine Helper alone:
// with the others a helper that does not work is left alone, and Found says why.
func Find(ctx context.Context, engine, path, inherited string) (Found, error) {
	if engine == Wasm {
		return Found{}, nil
	}
	f, err := find(ctx, path, inherited)
	if err == nil {
		return f, nil
	}
	f = Found{Path: f.Path, Why: err.Error(), Absent: errors.Is(err, errAbsent) && buildable}
	if engine == Helper {
		return f, fmt.Errorf("pdf.engine is %q: %w", Helper, err)
	}
	if errors.Is(err, errAbsent) && path == "" {
		f.Why = ""
	}
	return f, nil
}

// buildable says whether `make helper` makes a program for this system.
const buildable = runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")

// inMemory is replaced in tests, by what other systems do.
var inMemory = pdfiumhelper.InMemory

var errAbsent = errors.New("there is no " + Program)

func find(ctx context.Context, path, inherited string) (f Found, err error) {
	program := embedded
	f.Path = "embedded"
	if path != "" || len(program) == 0 {
		if path == "" {
			self, err := os.Executable()
			if err != nil {
				return Found{}, errAbsent
			}
			path = filepath.Join(filepath.Dir(self), Program)
		}
		f.Path = path
		if program, err = read(path); err != nil {
			return f, err
		}
	}
	try := func(run string) (err error) {
		f.Filtered, err = pdfiumhelper.Check(ctx, pdfiumhelper.Config{Path: run, Module: pdfiumwasm.ModuleSHA256()})
		return err
	}
	file, err := inMemory(program)
	if err == nil {
		if err = try(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())); err == nil {
			f.Run, f.File = inherited, file
			return f, nil
		}
		_ = file.Close()
	}
	// Some systems start nothing that lies in memory.
	if f.Path == "embedded" {
		return f, fmt.Errorf("the embedded %s does not run: %w", Program, err)
	}
	if again := try(f.Path); again != nil {
		return f, fmt.Errorf("%s does not work: %w", f.Path, again)
	}
	f.Run = f.Path
	return f, nil
}

// read returns the program if it is the one whose checksum stands beside it.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0: // an image for which none is made has an empty one
		return nil, fmt.Errorf("%w at %s", errAbsent, path)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxProgramBytes:
		return nil, fmt.Errorf("%s is no program", path)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(path + ".sha256")
	if errors.Is(err, fs.ErrNotExist) {
		return program, nil
	}
	if err != nil {
		return nil, err
	}
	if want, _, _ := strings.Cut(string(bytes.TrimSpace(sum)), " "); want != fmt.Sprintf("%x", sha256.Sum256(program)) {
		return nil, fmt.Errorf("%s is not the one whose checksum stands in %s.sha256: build or copy both anew", path, path)
	}
	return program, nil
}
