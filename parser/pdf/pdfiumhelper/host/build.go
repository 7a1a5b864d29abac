//go:build ignore

// Command build makes sheaf-pdfium: the WebAssembly module that the engine
// pdfiumwasm runs, translated to C by wasm2c, and host.c, linked into one static
// program. `make helper` runs it in the root of the repository. The same module,
// compilers and target produce the same bytes.
//
// The translation takes two minutes of CPU. Its objects are kept in a cache folder,
// so that a change to host.c takes half a minute, and with them the program, which is
// only copied if nothing has changed.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	modulePath = "parser/pdf/pdfiumwasm/module/pdfium.wasm.zst"
	hostPath   = "parser/pdf/pdfiumhelper/host/host.c"
)

// wabt is the version of wasm2c whose output is understood here: later ones use
// other names.
const wabt = "1.0.32"

// recipe changes with split and link: earlier objects are then made again.
const recipe = 2

// flags of every compilation. wasm2c's output does not follow C's aliasing rules.
// Products and sums are not fused: WebAssembly rounds each. The linker optimizes
// the program as a whole: measured, pages are read in 5 % less time.
var flags = strings.Fields("-O2 -flto -w -std=gnu11 -fno-strict-aliasing -ffp-contract=off -fno-math-errno -fno-pie -fno-plt -fno-stack-protector -fno-asynchronous-unwind-tables -fomit-frame-pointer -fno-ident")

// memoryBase is the address of the 4 GB linear memory, followed by as much again:
// it is a constant of the code. Below 2 GB it fits into an instruction on amd64,
// and no register is needed. Elsewhere it is where every kernel has room.
func memoryBase(machine string) string {
	if strings.HasPrefix(machine, "x86_64-") {
		return "-DMEMORY_BASE=0x20000000ull"
	}
	return "-DMEMORY_BASE=0x1000000000ull"
}

func main() {
	var b build
	flag.StringVar(&b.out, "o", "bin/sheaf-pdfium", "the program to write; its checksum goes into a file of the same name with .sha256 behind it")
	flag.StringVar(&b.cc, "cc", "musl-gcc", "the C compiler, with a static C library; aarch64-linux-gnu-gcc builds for arm64")
	flag.StringVar(&b.cache, "cache", "", "folder for compiled objects; default sheaf/helper in the user's cache folder")
	flag.IntVar(&b.jobs, "j", runtime.NumCPU(), "compilers at once")
	flag.Parse()
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

type build struct {
	out, cc, cache string
	jobs           int
	flags          []string
}

func (b *build) run() error {
	if err := b.look(); err != nil {
		return err
	}
	module, err := readModule()
	if err != nil {
		return err
	}
	b.flags = append(append([]string{}, flags...), memoryBase(output(b.cc, "-dumpmachine")))
	moduleSum := fmt.Sprintf("%x", sha256.Sum256(module))
	objects, err := b.objects(module)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(b.out), ".helper-")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(b.out), 0o755); err == nil {
			tmp, err = os.MkdirTemp(filepath.Dir(b.out), ".helper-")
		}
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made, err := b.link(objects, moduleSum)
	if err != nil {
		return err
	}
	program := filepath.Join(tmp, "sheaf-pdfium")
	if err := os.WriteFile(program, made, 0o755); err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(made))
	// The checksum goes first: a wrong one is refused, a missing one is not.
	if err := os.WriteFile(filepath.Join(tmp, "sum"), []byte(sum+"  "+filepath.Base(b.out)+"\n"), 0o644); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(program, 0o755), os.Rename(filepath.Join(tmp, "sum"), b.out+".sha256"), os.Rename(program, b.out)); err != nil {
		return err
	}
	fmt.Printf("%s  %s (%.1f MB)\n%s  %s\n", sum, b.out, float64(len(made))/1e6, moduleSum, "pdfium.wasm")
	return nil
}

// link returns the program, made of host.c and the module's objects, with which it is
// kept.
func (b *build) link(objects, moduleSum string) ([]byte, error) {
	source, err := os.ReadFile(hostPath)
	if err != nil {
		return nil, err
	}
	header, err := os.ReadFile(filepath.Join(filepath.Dir(hostPath), "copy.h"))
	if err != nil {
		return nil, err
	}
	kept := filepath.Join(objects, "linked-"+digest(source, header))
	if made, err := os.ReadFile(kept); err == nil {
		return made, nil
	}
	dir, err := os.MkdirTemp(b.cache, ".linking-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	host, linked := filepath.Join(dir, "host.o"), filepath.Join(dir, "linked")
	checked := slices.DeleteFunc(slices.Clone(b.flags), func(f string) bool { return f == "-w" })
	if err := command(b.cc, append(checked, "-Wall", "-Werror", "-DMODULE_SHA256=\""+moduleSum+"\"", "-I", objects, "-c", hostPath, "-o", host)...); err != nil {
		return nil, err
	}
	all, err := filepath.Glob(filepath.Join(objects, "*.o"))
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(b.flags), fmt.Sprintf("-flto=%d", max(b.jobs, 1)), "-static", "-no-pie", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,-z,now", "-o", linked, host)
	if err := command(b.cc, append(append(args, all...), "-lm")...); err != nil {
		return nil, err
	}
	old, _ := filepath.Glob(filepath.Join(objects, "linked-*"))
	for _, p := range old {
		_ = os.Remove(p) // of another host.c
	}
	made, err := os.ReadFile(linked)
	if err != nil {
		return nil, err
	}
	return made, os.Rename(linked, kept)
}

// digest names what is made of some parts.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d\n", len(part))
		h.Write(part)
	}
	return fmt.Sprintf("%.8x", h.Sum(nil))
}

// readModule returns the module that the program is made of.
func readModule() ([]byte, error) {
	packed, err := os.ReadFile(modulePath)
	if err != nil {
		return nil, fmt.Errorf("run this in the root of the repository: %w", err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	module, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", modulePath, err)
	}
	return module, nil
}

// look reports what must be installed.
func (b *build) look() error {
	_, noTranslator := exec.LookPath("wasm2c")
	_, noCompiler := exec.LookPath(b.cc)
	var packages []string
	if noTranslator != nil {
		packages = append(packages, "wabt")
	}
	if noCompiler != nil {
		packages = append(packages, map[string]string{"musl-gcc": "musl-tools", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu"}[b.cc])
	}
	if len(packages) > 0 {
		return fmt.Errorf("building sheaf-pdfium needs wasm2c and a C compiler (%s): install them with apt-get install %s", b.cc, strings.TrimSpace(strings.Join(packages, " ")))
	}
	if v := output("wasm2c", "--version"); v != wabt {
		return fmt.Errorf("wasm2c is of wabt %s; what it writes is understood as of %s, which Debian 12 has", v, wabt)
	}
	return nil
}

// objects returns the folder with the module's compiled functions and the header
// that host.c needs.
func (b *build) objects(module []byte) (string, error) {
	if b.cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("name a folder with -cache: %w", err)
		}
		b.cache = filepath.Join(base, "sheaf", "helper")
	}
	prefix := filepath.Base(b.cc) + "-"
	dir := filepath.Join(b.cache, prefix+digest(module, []byte{recipe}, []byte(strings.Join(b.flags, " ")), []byte(output(b.cc, "--version")), []byte(output(b.cc, "-dumpmachine"))))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(b.cache, ".making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintln(os.Stderr, "helper: translating PDFium to C and compiling it; that takes minutes, once")
	input := filepath.Join(tmp, "pdfium.wasm")
	if err := os.WriteFile(input, module, 0o644); err != nil {
		return "", err
	}
	if err := command("wasm2c", input, "-n", "pdfium", "-o", filepath.Join(tmp, "pdfium.c")); err != nil {
		return "", err
	}
	translator, err := exec.LookPath("wasm2c")
	if err != nil {
		return "", err
	}
	// The compiler searches only its own include folders.
	header, err := os.ReadFile(filepath.Join(filepath.Dir(translator), "..", "include", "wasm-rt.h"))
	if err == nil {
		err = os.WriteFile(filepath.Join(tmp, "wasm-rt.h"), header, 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("wabt's header: %w", err)
	}
	units, err := split(tmp)
	if err != nil {
		return "", err
	}
	if err := b.compile(tmp, units); err != nil {
		return "", err
	}
	for _, name := range append(units, "pdfium.c", "pdfium.wasm", "all.h") {
		if err := os.Remove(filepath.Join(tmp, name)); err != nil {
			return "", err
		}
	}
	old, _ := filepath.Glob(filepath.Join(b.cache, prefix+"*"))
	for _, d := range old {
		_ = os.RemoveAll(d) // of another module or compiler
	}
	return dir, os.Rename(tmp, dir)
}

// linesPerUnit is how much of the translation is compiled at once: that needs some
// 600 MB.
const linesPerUnit = 60_000

var (
	prototype = regexp.MustCompile(`(?m)^static (.*\bw2c_\w+\(.*\);)$`)
	function  = regexp.MustCompile(`^static (.*\bw2c_\w+\(Z_pdfium_instance_t)`)
)

// split cuts pdfium.c into units with a shared header, and makes the address of the
// memory a constant.
func split(dir string) (units []string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "pdfium.c"))
	if err != nil {
		return nil, err
	}
	source := string(b)
	fits := true
	replace := func(old, new string, n int) {
		fits = fits && strings.Count(source, old) == n
		source = strings.ReplaceAll(source, old, new)
	}
	replace("&mem->data[addr]", "(u8*)(MEMORY_BASE + addr)", 2)
	// A load whose value is unused need not be made.
	replace(`wasm_asm("" ::"r"(result));`, "", 2)
	replace("static u32 func_types[", "u32 func_types[", 1)
	types := strings.Index(source, "\nu32 func_types[")
	first := strings.Index(source, "\nstatic void init_globals(")
	exports := strings.Index(source, "\n/* export:")
	if !fits || types < 0 || first < types || exports < first {
		return nil, errors.New("wasm2c wrote something else than was expected")
	}
	write := func(name, text string) {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
		}
	}
	declared := source[types:first]
	size := regexp.MustCompile(`u32 func_types\[\d+\];`).FindString(declared)
	var shared strings.Builder
	shared.WriteString("#pragma once\n" + source[:types] + "\nextern " + size + "\n")
	for _, p := range prototype.FindAllStringSubmatch(declared, -1) {
		shared.WriteString(p[1] + "\n")
	}
	write("all.h", shared.String())
	declared = prototype.ReplaceAllString(declared, "")

	// Functions begin after the initialisers and end before the exports.
	lines := strings.Split(source[first:exports], "\n")
	begin := -1
	for i, l := range lines {
		if function.MatchString(l) && strings.HasSuffix(l, "{") {
			begin = i
			break
		}
	}
	if begin < 0 {
		return nil, errors.New("wasm2c wrote no function")
	}
	// There is nothing else between the initialisers and the first function; data
	// segments, tables and the start follow the last.
	var unit []string
	flush := func() {
		name := fmt.Sprintf("c%02d.c", len(units))
		write(name, "#include \"all.h\"\n"+strings.Join(unit, "\n")+"\n")
		units, unit = append(units, name), nil
	}
	for _, l := range lines[begin:] {
		unit = append(unit, function.ReplaceAllString(l, "$1"))
		if l == "}" && len(unit) > linesPerUnit {
			flush()
		}
	}
	flush()
	write("rest.c", "#include \"all.h\"\n"+declared+"\n"+strings.Join(lines[:begin], "\n")+source[exports:])
	return append(units, "rest.c"), err
}

func (b *build) compile(dir string, units []string) error {
	next := make(chan string)
	failed := make(chan error, len(units))
	var wait sync.WaitGroup
	for range max(b.jobs, 1) {
		wait.Go(func() {
			for name := range next {
				cmd := exec.Command(b.cc, append(append([]string{}, b.flags...), "-c", name, "-o", strings.TrimSuffix(name, ".c")+".o")...)
				cmd.Dir = dir // keeps paths of this machine out of the objects
				if out, err := cmd.CombinedOutput(); err != nil {
					failed <- fmt.Errorf("%s: %w\n%s", name, err, bytes.TrimSpace(out[:min(len(out), 2000)]))
				}
			}
		})
	}
	for _, name := range units {
		next <- name
	}
	close(next)
	wait.Wait()
	close(failed)
	return <-failed
}

func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output() // no output differs from every version
	return string(bytes.TrimSpace(out))
}
