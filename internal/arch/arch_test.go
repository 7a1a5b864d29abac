// Package arch holds the import directions: which package may know which. The
// way of a document reads downwards only as long as no arrow points up.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type pkg struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	CgoFiles     []string
}

// list runs go list with CGO_ENABLED=0, as the product is built.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,CgoFiles"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// The contracts that stages are written against.
var contracts = []string{"taskstore", "internal/logctx", "internal/queue", "internal/blob", "internal/artifact", "internal/embed", "internal/index"}

// may lists what each folder may import from this module besides itself and
// the root. The longest matching folder decides. A trailing /... admits the
// packages below. A package that no line matches may import nothing.
var may = map[string][]string{
	"":                     {},
	"parser":               {"internal/settings"},
	"parser/child":         {"internal/garbage", "parser", "parser/internal/program"},
	"parser/internal":      {"parser", "parser/internal/...", "internal/settings"},
	"parser/...":           {"parser", "parser/internal/..."}, // a format
	"parser/pdf":           {"parser", "parser/internal/...", "parser/pdf/..."},
	"parser/pdf/...":       {"parser/pdf/engine", "parser/internal/program"},
	"parser/pdf/pdfium":    {"parser/pdf/..."},       // where the engines meet
	"parser/formats":       {"parser", "parser/..."}, // where the formats meet
	"chunker":              {"internal/settings"},
	"migrations":           {},
	"taskstore":            {},
	"taskstore/sqlstore":   {"taskstore", "internal/batching", "internal/pgdsn", "internal/secrets", "migrations"},
	"executor":             append([]string{"chunker", "internal/edits", "internal/enrich", "internal/flow", "internal/graph", "internal/indexset", "internal/mindmap", "internal/raptor", "internal/settings", "internal/tagset", "internal/webhook", "internal/worker", "parser", "parser/child"}, contracts...),
	"internal/worker":      {"internal/logctx", "internal/queue", "taskstore"}, // nothing of what a task does
	"ingest":               {"internal/blob", "internal/flow", "internal/queue", "internal/settings", "parser", "taskstore"},
	"internal/artifact":    {"internal/blob"},
	"internal/blob":        {},
	"internal/garbage":     {},
	"internal/backup":      {},
	"internal/batching":    {},
	"internal/pgdsn":       {},
	"internal/secrets":     {},
	"internal/receipt":     {"internal/secrets", "taskstore"},
	"internal/logctx":      {},
	"internal/settings":    {},
	"internal/enrich":      {"internal/settings"},
	"internal/embed":       {},
	"internal/index":       {},
	"internal/capacity":    {"internal/queue", "internal/settings"}, // what the model must agree with
	"internal/notify":      {},
	"internal/notify/...":  {"internal/notify", "internal/pgdsn"},
	"internal/queue":       {},
	"internal/blob/...":    {"internal/blob"}, // an adapter or a wrapper
	"internal/openaiapi":   {"internal/retryafter"},
	"internal/retryafter":  {},
	"internal/raptor":      {},
	"internal/mindmap":     {"internal/enrich", "internal/raptor"},
	"internal/chat":        {"internal/openaiapi"},
	"internal/chat/...":    {}, // for tests
	"internal/rerank":      {"internal/openaiapi"},
	"internal/embed/...":   {"internal/batching", "internal/embed", "internal/embed/wordpiece", "internal/openaiapi"},
	"internal/index/...":   {"internal/batching", "internal/index"},
	"internal/queue/...":   {"internal/batching", "internal/notify", "internal/pgdsn", "internal/queue", "taskstore"},
	"internal/keeper":      append([]string{"ingest", "internal/notify"}, contracts...),
	"internal/flow":        {"internal/artifact", "internal/graph", "internal/raptor", "internal/settings", "taskstore"},
	"internal/search":      {"internal/embed", "internal/index", "internal/queue", "internal/rerank", "internal/settings", "internal/tagset", "taskstore"},
	"internal/graph":       {"internal/enrich"},
	"internal/graphs":      {"internal/artifact", "internal/blob", "internal/graph", "internal/search", "taskstore"},
	"internal/eval":        {"internal/search", "taskstore"},
	"internal/indexset":    append([]string{"internal/edits", "internal/eval", "internal/search"}, contracts...),
	"internal/tagset":      {"internal/artifact", "internal/blob", "internal/embed", "taskstore"},
	"internal/edits":       append([]string{"chunker", "internal/enrich"}, contracts...),
	"internal/doctor":      contracts,
	"internal/telemetry":   {"internal/keeper", "internal/logctx", "internal/retryafter", "taskstore"}, // reads the counters of the loops
	"internal/api":         append([]string{"chunker", "internal/apidoc", "internal/batching", "internal/edits", "internal/notify", "internal/watch", "ingest", "parser", "parser/child", "internal/buildinfo", "internal/eval", "internal/graph", "internal/graphs", "internal/indexset", "internal/mindmap", "internal/raptor", "internal/search", "internal/doctor", "internal/flow", "internal/receipt", "internal/secrets", "internal/settings", "internal/webhook"}, contracts...),
	"internal/facade":      {},
	"internal/mcp":         {"internal/facade"},
	"internal/tika":        {"internal/facade"},
	"internal/openwebui":   {"internal/facade"},
	"internal/dify":        {"internal/facade"},
	"internal/openaistore": {"internal/facade"},
	"internal/docling":     {"internal/facade"},
	"internal/ragflow":     {"internal/facade"},
	"internal/watch":       {"internal/batching", "internal/notify", "taskstore"},
	"internal/apidoc":      {},
	"internal/web":         {},
	"internal/webhook":     {"internal/retryafter", "taskstore"},
	"internal/config":      {},
	"internal/buildinfo":   {},
	"internal/cputest":     {},
	"internal/deps":        {},
	"internal/arch":        {},
	"samples":              {},
	"samples/make":         {"samples/..."},
	"taskstore/storetest":  {"migrations", "taskstore", "taskstore/sqlstore"},
	"cmd":                  {"internal/command"},
	"internal/command":     {"..."},
	"e2e":                  {}, // its tests import what they need
	"bench":                {"..."},
	"chaos":                {"..."},

	// Models on this machine, and the program that runs them.
	"internal/models":      {},
	"internal/embed/local": {"internal/embed", "internal/embed/openai", "internal/models"},
	"internal/embedserver": {"internal/embed/onnx", "internal/models"},
	"cmd/sheaf-embed":      {"internal/embedserver"},
}

// ruleFor finds the line of may that governs a package.
func ruleFor(path string) (allowed []string, ok bool) {
	if allowed, ok = may[path]; ok {
		return allowed, true
	}
	for dir := path; dir != ""; {
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			break
		}
		dir = dir[:i]
		if allowed, ok = may[dir+"/..."]; ok {
			return allowed, true
		}
		if allowed, ok = may[dir]; ok {
			return allowed, true
		}
	}
	return nil, false
}

func admits(allowed []string, path string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		if below, ok := strings.CutSuffix(a, "..."); ok {
			return strings.HasPrefix(path, below)
		}
		return a == path
	})
}

// within returns a package's path in this module, "" for the root.
func within(importPath string) (string, bool) {
	if importPath == "sheaf" {
		return "", true
	}
	return strings.CutPrefix(importPath, "sheaf/")
}

// A test suite, a fault-injecting double or the tests of the whole service: for
// tests alone.
func testOnly(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasSuffix(name, "test") || name == "chaosqueue" || path == "e2e"
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range list(t, "./...") {
		path, ok := within(p.ImportPath)
		if !ok {
			t.Fatalf("%s is not of this module", p.ImportPath)
		}
		allowed, ok := ruleFor(path)
		if !ok {
			t.Errorf("%s has no line in the table of import directions: add one", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			to, ok := within(i)
			if !ok || to == "" || to == path {
				continue
			}
			if testOnly(to) && !testOnly(path) {
				t.Errorf("%s imports %s, which is for tests alone", p.ImportPath, i)
			}
			if !admits(allowed, to) {
				t.Errorf("%s must not import %s", p.ImportPath, i)
			}
		}
	}
}

func TestRootImportsTheStandardLibraryAlone(t *testing.T) {
	for _, p := range list(t, ".") {
		for _, i := range p.Imports {
			if first, _, _ := strings.Cut(i, "/"); first == "sheaf" || strings.Contains(first, ".") {
				t.Errorf("the root imports %s", i)
			}
		}
	}
}

func TestProductNeedsNoCompilerForC(t *testing.T) {
	for _, p := range list(t, "-deps", "./cmd/...") {
		if len(p.CgoFiles) > 0 {
			t.Errorf("%s needs cgo", p.ImportPath)
		}
		if path, ok := within(p.ImportPath); ok && testOnly(path) {
			t.Errorf("the product contains %s, which is for tests alone", p.ImportPath)
		}
	}
}

// mostPackages bounds what one build compiles, with the standard library.
// Raise it with a reason: each package is paid for by everybody who builds. The
// expressions of flows brought 25, of cel-go and its parser, and the SDK of the
// Model Context Protocol 26; flows and runs over datasets, mind maps, backups,
// OpenDocument and the program that reads PDFs are 12 packages of this repository.
const mostPackages = 902

func TestProductStaysSmall(t *testing.T) {
	all := list(t, "-deps", "./cmd/sheaf")
	if len(all) > mostPackages {
		t.Errorf("the product consists of %d packages, the bound is %d: look at what the newest dependency brings with go mod why", len(all), mostPackages)
	}
	for _, p := range all {
		// 861 packages, for the one method that esapi has too.
		if p.ImportPath == "github.com/elastic/go-elasticsearch/v8" {
			t.Errorf("the product contains %s: import esapi, not the whole client", p.ImportPath)
		}
		if p.ImportPath == "google.golang.org/grpc" {
			t.Errorf("the product contains %s: spans are sent over HTTP", p.ImportPath)
		}
		// It loads native libraries, and needs libc for that.
		if p.ImportPath == "github.com/ebitengine/purego" {
			t.Errorf("the product contains %s: only cmd/sheaf-embed may", p.ImportPath)
		}
	}
}

// The table must be able to say no: these arrows are the ones that it is for.
func TestTableRefusesForbiddenArrows(t *testing.T) {
	for _, arrow := range [][2]string{
		{"executor", "taskstore/sqlstore"}, {"ingest", "taskstore/sqlstore"}, {"ingest", "executor"}, {"executor", "internal/queue/sqlqueue"},
		{"internal/worker", "parser"}, {"internal/worker", "parser/child"}, {"internal/worker", "chunker"}, {"internal/worker", "executor"}, {"internal/worker", "internal/index"}, {"internal/keeper", "internal/queue/sqlqueue"},
		{"internal/blob/s3", "internal/blob/file"}, {"internal/index/elastic", "internal/blob"},
		{"parser/docx", "parser/pptx"}, {"parser", "chunker"}, {"chunker", "parser"}, {"internal/queue", "internal/blob"},
		{"internal/queue/redisstream", "taskstore/sqlstore"}, {"taskstore/sqlstore", "internal/queue"}, {"internal/api", "taskstore/sqlstore"}, {"taskstore", "taskstore/sqlstore"},
	} {
		allowed, ok := ruleFor(arrow[0])
		if !ok || admits(allowed, arrow[1]) {
			t.Errorf("%s -> %s is admitted", arrow[0], arrow[1])
		}
	}
	if _, ok := ruleFor("internal/unheard"); ok {
		t.Error("a package without a line is admitted")
	}
}

// The pages for contributors name files and tests. Each must be there.
func TestDocumentsNameWhatExists(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	quoted := regexp.MustCompile("`([^`\n]+)`")
	file := regexp.MustCompile(`^[a-z][a-zA-Z0-9_./-]*/[a-zA-Z0-9_.-]+$|^[a-z_]+\.go$`)
	for _, page := range []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/invariants.md"} {
		for _, m := range quoted.FindAllStringSubmatch(read(page), -1) {
			if !file.MatchString(m[1]) || strings.HasPrefix(m[1], "storetest/") || strings.HasPrefix(m[1], "queuetest/") {
				continue
			}
			if _, err := os.Stat("../../" + m[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}

	var tests strings.Builder
	if err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") && strings.HasSuffix(path, ".go") {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tests.Write(b)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(read("docs/invariants.md")) {
		if !strings.HasPrefix(line, "| **I") {
			continue
		}
		rows++
		cells := strings.Split(line, "|")
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			name := m[1][strings.LastIndexAny(m[1], "./")+1:]
			if !strings.Contains(tests.String(), "func "+name+"(") && !strings.Contains(tests.String(), `{"`+name+`", `) {
				t.Errorf("docs/invariants.md names the test %s, which does not exist", m[1])
			}
		}
	}
	if rows != 18 {
		t.Errorf("docs/invariants.md has %d invariants, want 18", rows)
	}
}
