package pdfiumwasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/enginetest"
)

func start(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e := New(cfg)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := e.Warm(); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestContract(t *testing.T) { enginetest.Run(t, start(t, Config{})) }

// TestModuleIsReachable fails when go-pdfium moves the field that direct calls
// depend on.
func TestModuleIsReachable(t *testing.T) {
	e := start(t, Config{})
	inst, err := e.pool.GetInstance(0)
	if err != nil {
		inst, err = e.pool.GetInstanceWithContext(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	mod, im, err := moduleOf(inst.GetImplementation())
	if err != nil || mod == nil || im == nil {
		t.Fatal(mod, im, err)
	}
	source, err := os.ReadFile("pdfiumwasm.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"((FPDF\w*|sheaf)_\w+)"`).FindAllSubmatch(source, -1)
	if len(names) < 40 {
		t.Errorf("only %d exports are named in the package", len(names))
	}
	for _, name := range names {
		if mod.ExportedFunction(string(name[1])) == nil {
			t.Errorf("no export %s: make module/pdfium.wasm anew", name[1])
		}
	}
	for _, wrong := range []any{nil, 1, &struct{ Module int }{}, struct{}{}} {
		if _, _, err := moduleOf(wrong); err == nil {
			t.Errorf("%T passed for an instance", wrong)
		}
	}
}

func TestCacheFolderIsUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the module, 3 s")
	}
	dir := t.TempDir()
	start(t, Config{CacheDir: dir})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Errorf("the cache is empty: %v", err)
	}
}

func TestOutOfMemoryIsAnErrorOfTheDocument(t *testing.T) {
	e := start(t, Config{MemoryPages: 400}) // 25 MB: the module starts, a large picture does not fit
	b := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "x")}}}.Bytes()
	d, err := e.Open(context.Background(), enginetest.Write(t, b), int64(len(b)), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Render(0, 6000, 6000); err == nil {
		t.Fatal("36 million pixels in 25 MB")
	} else if !errors.Is(err, engine.ErrPage) && !errors.Is(err, engine.ErrBroken) {
		t.Errorf("unexpected kind: %v", err)
	}
}

func TestMemoryIsGivenBack(t *testing.T) {
	e := start(t, Config{})
	b := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "x")}}}.Bytes()
	f := enginetest.Write(t, b)
	for range 3 * maxOpen { // more than may be open at once
		d, err := e.Open(context.Background(), f, int64(len(b)), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
		if err := d.Page(0, &engine.Page{}); !errors.Is(err, engine.ErrBroken) {
			t.Errorf("a closed document gave a page: %v", err)
		}
	}
}

func checksum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// TestModuleIsTheOneThatWasMade holds the embedded file to its checksum, and
// what it was made of to the version of go-pdfium that go.mod asks for.
func TestModuleIsTheOneThatWasMade(t *testing.T) {
	want, err := os.ReadFile("module/pdfium.wasm.sha256")
	if err != nil {
		t.Fatal(err)
	}
	module, err := unpack()
	if err != nil {
		t.Fatal(err)
	}
	if got := checksum(module); !strings.HasPrefix(string(want), got+" ") {
		t.Errorf("module/pdfium.wasm.zst holds a module with the checksum %s, pdfium.wasm.sha256 says %s", got, want)
	}
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/klippa-app/go-pdfium/webassembly").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pdfium.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	build, err := os.ReadFile("module/build.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(build, []byte(checksum(source))) {
		t.Errorf("go-pdfium carries another module (%s) than the one that module/pdfium.wasm was made of; make it anew", checksum(source))
	}
}

// inside starts an instance and returns calls of its exports.
func inside(t *testing.T) (api.Module, func(name string, args ...uint64) uint64) {
	t.Helper()
	inst, err := start(t, Config{}).pool.GetInstanceWithContext(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inst.Close() })
	mod, _, err := moduleOf(inst.GetImplementation())
	if err != nil {
		t.Fatal(err)
	}
	return mod, func(name string, args ...uint64) uint64 {
		t.Helper()
		out, err := mod.ExportedFunction(name).Call(context.Background(), args...)
		if err != nil {
			t.Fatalf("%s%v: %v", name, args, err)
		}
		if len(out) == 0 {
			return 0
		}
		return out[0]
	}
}

func TestModuleKnowsTheSameSpaces(t *testing.T) {
	_, call := inside(t)
	units := []uint32{0xFFFE, 0xFFFF, 0x10020, 1 << 31, 1<<32 - 1}
	for u := range uint32(0x3100) {
		units = append(units, u)
	}
	for _, u := range units {
		if got := call("sheaf_space", uint64(u)) != 0; got != engine.Space(u) {
			t.Errorf("U+%04X separates words: %v inside the module, %v outside", u, got, engine.Space(u))
		}
	}
}

// TestShelfHandsOutEachBlockOnce drives malloc.wat against a model: every
// block keeps what was written into it from the first byte to the last.
func TestShelfHandsOutEachBlockOnce(t *testing.T) {
	mod, call := inside(t)
	type block struct{ at, size uint32 }
	var held []block
	r := rand.New(rand.NewPCG(1, 2))
	fill := func(b block) []byte {
		pattern := make([]byte, 4)
		binary.LittleEndian.PutUint32(pattern, b.at)
		return bytes.Repeat(pattern, int(b.size/4)+1)[:b.size]
	}
	check := func(i int) {
		b := held[i]
		if got, ok := mod.Memory().Read(b.at, b.size); !ok || !bytes.Equal(got, fill(b)) {
			t.Fatalf("the block of %d bytes at %#x was written by another", b.size, b.at)
		}
	}
	for range 20_000 {
		switch n := r.IntN(100); {
		case n < 55 || len(held) == 0:
			size := uint32(r.IntN(300))
			if n == 0 {
				size = uint32(r.IntN(100_000))
			}
			b := block{uint32(call("malloc", uint64(size))), size}
			if b.at == 0 || b.at%8 != 0 {
				t.Fatalf("%d bytes at %#x", size, b.at)
			}
			mod.Memory().Write(b.at, fill(b))
			held = append(held, b)
		case n < 65: // grows or shrinks
			i := r.IntN(len(held))
			check(i)
			old, size := held[i], uint32(1+r.IntN(600))
			b := block{uint32(call("realloc", uint64(old.at), uint64(size))), size}
			keep := min(old.size, size)
			if got, ok := mod.Memory().Read(b.at, keep); !ok || !bytes.Equal(got, fill(old)[:keep]) {
				t.Fatalf("the block of %d bytes at %#x lost what it held", old.size, old.at)
			}
			mod.Memory().Write(b.at, fill(b))
			held[i] = b
		case n < 70: // cleared
			b := block{uint32(call("calloc", 1, uint64(1+r.IntN(300)))), 1}
			if got, ok := mod.Memory().Read(b.at, 1); !ok || got[0] != 0 {
				t.Fatalf("a cleared block holds %v", got)
			}
			mod.Memory().Write(b.at, fill(b))
			held = append(held, b)
		default:
			i := r.IntN(len(held))
			check(i)
			call("free", uint64(held[i].at))
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
	}
	for i := range held {
		check(i)
	}
	call("free", 0)
}

// TestShelfIsBounded: what was given back in small pieces can be had again in
// large ones, but for the 8 MiB that may wait.
func TestShelfIsBounded(t *testing.T) {
	mod, call := inside(t)
	const n, size = 200_000, 200
	var blocks []uint64
	for range n {
		blocks = append(blocks, call("malloc", size))
	}
	for _, b := range blocks {
		call("free", b)
	}
	before := mod.Memory().Size()
	if at := call("malloc", n*size/2); at == 0 {
		t.Fatal("no memory")
	}
	if grown := mod.Memory().Size() - before; grown > 10<<20 {
		t.Errorf("20 MB could not be had of 40 MB that were given back: the memory grew by %d bytes", grown)
	}
}
