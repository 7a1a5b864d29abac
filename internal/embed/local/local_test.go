package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/embedtest"
	"sheaf/internal/models"
)

// install gives the folder of installed models and the program sheaf-embed, which
// scripts/test.sh prepares.
func install(t *testing.T) (store *models.Store, program string) {
	t.Helper()
	dir, program := os.Getenv("SHEAF_TEST_MODELS"), os.Getenv("SHEAF_TEST_EMBED_PROGRAM")
	if dir == "" || program == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("SHEAF_TEST_MODELS and SHEAF_TEST_EMBED_PROGRAM name no models and no sheaf-embed, and SHEAF_TEST_REQUIRE asks for them; run make test")
		}
		t.Skip("SHEAF_TEST_MODELS and SHEAF_TEST_EMBED_PROGRAM are not set")
	}
	return &models.Store{Dir: dir}, program
}

// model is one of the catalogue.
func model(t *testing.T, name string) models.Model {
	t.Helper()
	m, err := models.Find(models.Catalogue, name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const small = "all-minilm-l6-v2" // half the work of the other

func open(t *testing.T, c Config) *Embedder {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	e, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func (e *Embedder) childPID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pid
}

func TestModelsKeepTheContract(t *testing.T) {
	store, program := install(t)
	for _, m := range models.Catalogue {
		t.Run(m.Name, func(t *testing.T) {
			e := open(t, Config{Store: store, Model: m, Program: program})
			if got := e.Model(); got.ID != m.ID() || got.Weight != m.Weight || got.Floor != m.Floor || got.Dim != m.Dim {
				t.Errorf("it says of itself %+v", got)
			}
			embedtest.Run(t, e, embedtest.Options{})
		})
	}
}

// The references come from Python's onnxruntime and tokenizers with the same
// files. Versions of the runtime round int8 differently.
func TestVectorsAreThoseOfTheReference(t *testing.T) {
	store, program := install(t)
	data, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var references map[string][]struct {
		Text   string
		Vector []float64
	}
	if err := json.Unmarshal(data, &references); err != nil || len(references) != 2 {
		t.Fatalf("%d models, %v", len(references), err)
	}
	for name, rows := range references {
		e := open(t, Config{Store: store, Model: model(t, name), Program: program})
		for _, r := range rows {
			vs, err := e.Embed(t.Context(), []string{r.Text}, embed.Passage)
			if err != nil {
				t.Fatal(err)
			}
			dot := 0.0
			for i, x := range vs[0] {
				dot += float64(x) * r.Vector[i]
			}
			if dot < 0.98 {
				t.Errorf("%s: cosine %.4f for %.30q", name, dot, r.Text)
			}
		}
	}
}

// Texts are cut where the model's sight ends, and the rest changes nothing.
func TestLongTextsAreCut(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, small), Program: program})
	start := strings.Repeat("harbor ", 510)
	vs, err := e.Embed(t.Context(), []string{start, start + strings.Repeat("violin sonata ", 400), start[:7*300] + strings.Repeat("violin sonata ", 105)}, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	if c := dot(vs[0], vs[1]); c < 0.99999 {
		t.Errorf("what follows 512 tokens changes the vector: cosine %g", c)
	}
	if c := dot(vs[0], vs[2]); c > 0.99 {
		t.Errorf("what stands within 512 tokens does not change the vector: cosine %g", c)
	}
}

func dot(a, b []float32) (s float64) {
	for i := range a {
		s += float64(a[i]) * float64(b[i])
	}
	return s
}

func TestMultilingualModelFindsTranslations(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, "multilingual-e5-small"), Program: program})
	queries, err := e.Embed(t.Context(), []string{"When must the invoice be paid?", "How do plants make sugar?"}, embed.Query)
	if err != nil {
		t.Fatal(err)
	}
	passages, err := e.Embed(t.Context(), []string{"Die Rechnung ist innerhalb von dreißig Tagen zu begleichen.", "植物通过光合作用制造糖分。"}, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	for i := range queries {
		if right, wrong := dot(queries[i], passages[i]), dot(queries[i], passages[1-i]); right <= wrong {
			t.Errorf("query %d: %.3f to its answer, %.3f to the other", i, right, wrong)
		}
	}
}

// embedAgain asks until it gets an answer; the bound is for machines under load.
func embedAgain(t *testing.T, e *Embedder) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, err := e.Embed(t.Context(), []string{"again"}, embed.Passage)
		if err == nil { // by a program that may not have been found healthy yet
			err = e.Ping(t.Context())
		}
		if err == nil {
			return
		}
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || !f.Retryable {
			t.Fatalf("%v is not retryable", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer since it was started again: %v", err)
		}
	}
}

func TestKilledProgramIsStartedAgain(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, small), Program: program, Backoff: 10 * time.Millisecond})
	for range 2 {
		pid := e.childPID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, pid)
		embedAgain(t, e)
		if got := e.childPID(); got == pid {
			t.Errorf("the program still has the number %d", pid)
		}
		if err := e.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestHungProgramIsKilledAndStartedAgain(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, small), Program: program, Backoff: 10 * time.Millisecond, CheckEvery: 500 * time.Millisecond})
	pid := e.childPID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pid)
	embedAgain(t, e)
}

// awaitGone waits until a process is no more than a zombie.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// copyOf is a store with the files of one model, of which the test may change some.
func copyOf(t *testing.T, store *models.Store, m models.Model) *models.Store {
	t.Helper()
	c := &models.Store{Dir: t.TempDir()}
	for _, part := range m.Parts {
		if err := os.CopyFS(c.Path(part.Name), os.DirFS(store.Path(part.Name))); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// flip changes a byte of a file, or changes it back.
func flip(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], 5000)
	b[0] ^= 1
	if err == nil {
		_, err = f.WriteAt(b[:], 5000)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedFilesAreNotLoaded(t *testing.T) {
	store, program := install(t)
	m := model(t, small)
	store = copyOf(t, store, m)
	e := open(t, Config{Store: store, Model: m, Program: program, Backoff: 10 * time.Millisecond})
	for _, file := range []string{m.Weights, m.Tokenizer, m.Library} {
		path := store.Path(file)
		flip(t, path)
		other, err := Open(t.Context(), Config{Store: store, Model: m, Program: program, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			other.Close()
			t.Fatalf("%s is loaded although it is damaged", file)
		}
		if !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "sheaf models install "+small) {
			t.Errorf("%s: %v, want what to do", file, err)
		}
		flip(t, path)
	}
	// What damages the file under a service that runs shows when the program is
	// started again, and the service goes on when the file is whole.
	path := store.Path(m.Weights)
	flip(t, path)
	pid := e.childPID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pid)
	deadline := time.Now().Add(time.Minute)
	for {
		err := e.Ping(t.Context())
		if err != nil && strings.Contains(err.Error(), "damaged") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("ping says %v, not that the file is damaged", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	flip(t, path)
	embedAgain(t, e)
}

// A call may come when the program has ended and nobody has noticed yet.
func TestQueuedCallEndsWithTheProgram(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, small), Program: program})
	e.Close()
	if err := e.listen(); err != nil { // a queue that nobody reads
		t.Fatal(err)
	}
	defer e.unlisten()
	e.set(nil)
	answered := make(chan error)
	go func() { answered <- e.Ping(t.Context()) }()
	ended := time.AfterFunc(50*time.Millisecond, func() { e.set(errors.New("killed")) })
	defer ended.Stop()
	if err := <-answered; !errors.Is(err, sheaf.ErrUnavailable) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want why the program ended", err)
	}
}

func TestMissingModelSaysHowToInstallIt(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Store: &models.Store{Dir: t.TempDir()}, Model: model(t, small)}, "sheaf models install " + small},
		{Config{Store: empty(t), Model: models.Model{Name: "m", Parts: []models.Part{{Name: "m", For: map[string]models.Package{"": {}}}}}, Program: "no-such-program"}, "embed.program"},
	} {
		if _, err := Open(t.Context(), c.config); !errors.Is(err, sheaf.ErrNotFound) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want ErrNotFound and %q", err, c.want)
		}
	}
}

func empty(t *testing.T) *models.Store { return &models.Store{Dir: t.TempDir()} }

// script is a program that does not do what sheaf-embed does.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sheaf-embed")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgramThatDoesNotStartIsAnError(t *testing.T) {
	m := models.Model{Name: "m", Dim: 3, Parts: []models.Part{{Name: "m", For: map[string]models.Package{"": {}}}}}
	for text, c := range map[string]struct {
		within time.Duration
		want   string
	}{
		"echo 'libstdc++.so.6 is missing' >&2; exit 3": {time.Minute, "exit status 3: libstdc++.so.6 is missing"},
		"exec sleep 600": {100 * time.Millisecond, "not loaded within 100ms"},
		"exit 0":         {time.Minute, "ended by itself"},
	} {
		_, err := Open(t.Context(), Config{Store: empty(t), Model: m, Program: script(t, text), StartTimeout: c.within, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", text, err, c.want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	store, program := install(t)
	_, err := Open(t.Context(), Config{Store: store, Model: model(t, small), Program: program, MemoryBytes: 24 << 20, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Fatal("a model of 23 MB is loaded into 24 MB")
	}
	t.Log(err)
}

const asParent = "SHEAF_TEST_AS_PARENT"

// The program ends with the service, however that ends.
func TestProgramEndsWithItsParent(t *testing.T) {
	if os.Getenv(asParent) != "" {
		store, program := install(t)
		e, err := Open(t.Context(), Config{Store: store, Model: model(t, small), Program: program, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child %d\n", e.childPID())
		select {}
	}
	install(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestProgramEndsWithItsParent$")
	cmd.Env = append(os.Environ(), asParent+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var pid int
	if _, err := fmt.Fscanf(out, "child %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pid)
}

// ONNX Runtime keeps what it is about to report in a database in the user's
// cache folder, open for as long as it runs.
func TestProgramReportsNothingToItsVendor(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, small), Program: program})
	folder := fmt.Sprintf("/proc/%d/fd", e.childPID())
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if path, _ := os.Readlink(filepath.Join(folder, f.Name())); strings.Contains(path, ".onnxruntime") {
			t.Errorf("the program writes %s", path)
		}
	}
}

func TestClosedEmbedderLeavesNothing(t *testing.T) {
	store, program := install(t)
	e := open(t, Config{Store: store, Model: model(t, small), Program: program})
	pid, folder := e.childPID(), e.folder
	e.Close()
	awaitGone(t, pid)
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the socket: %v", err)
	}
}
