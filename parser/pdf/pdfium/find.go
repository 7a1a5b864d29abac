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
	Auto   = "auto"   // sheaf-pdfium if present and working, otherwise WebAssembly
	Helper = "helper" // sheaf-pdfium, or an error
	Wasm   = "wasm"   // WebAssembly
)

// Program is the name of the helper, next to the executable.
const Program = "sheaf-pdfium"

// maxProgramBytes limits what is read as a helper; it has some 7 MB.
const maxProgramBytes = 64 << 20

// Found describes what reads PDFs here.
type Found struct {
	Path string // location of the program, "" if there is none
	Run  string // what parsers start, "" for WebAssembly
	// File is the program in memory, which parsers inherit under the path Run. Nil
	// if Run is in the file system.
	File *os.File
	// Filtered reports whether the kernel restricts the program's system calls.
	Filtered bool
	// Why is the reason WebAssembly is used although a program was looked for;
	// otherwise "".
	Why string
	// Absent means that there is no program, on a system for which one can be built.
	Absent bool
}

// String describes f in one line.
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

// Close releases the program in memory; running parsers keep it.
func (f Found) Close() error {
	if f.File == nil {
		return nil
	}
	return f.File.Close()
}

// Find looks for the helper: at path, else embedded in this program, else next to
// it. It is copied into memory, verified against the checksum file next to it, and
// tested on a page. inherited is the path under which parsers see the inherited
// file. Only engine Helper returns an error: otherwise a helper that does not work
// is ignored, and Found gives the reason.
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

// buildable reports whether `make helper` builds a program for this system.
const buildable = runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")

// inMemory is replaced in tests, to act like other systems.
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
	// Some systems cannot execute a program in memory.
	if f.Path == "embedded" {
		return f, fmt.Errorf("the embedded %s does not run: %w", Program, err)
	}
	if again := try(f.Path); again != nil {
		return f, fmt.Errorf("%s does not work: %w", f.Path, again)
	}
	f.Run = f.Path
	return f, nil
}

// read returns the program if it matches the checksum next to it.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0: // a container image without a helper has an empty file
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
