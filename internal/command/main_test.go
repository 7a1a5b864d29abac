package command

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"sheaf/internal/config"
	"sheaf/parser/child"
	"sheaf/parser/formats"
)

func TestMain(m *testing.M) {
	child.MaybeRun(formats.All(formats.FromEnviron()))
	os.Exit(m.Run())
}

// ending is how a command line ended.
type ending struct {
	code     int
	out, err string
}

// typed is a command line as a test gives it.
type typed struct{ ctx context.Context }

func (c typed) run(args ...string) ending {
	var out, errs bytes.Buffer
	ctx := c.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	code := Main{In: strings.NewReader(""), Out: &out, Err: &errs}.Execute(ctx, args)
	return ending{code, out.String(), errs.String()}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// waitFor polls until ok holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// engine is the address of an engine; without one the test is skipped, unless the
// run demands every engine.
func engine(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not set, and this run must test every engine; `make services` starts them", name)
		}
		t.Skipf("%s is not set; `make services` starts the engines", name)
	}
	return v
}

// built has the parts of a process on a fresh data folder, of which none runs.
func built(t *testing.T, change func(*config.Config)) *app {
	t.Helper()
	if testing.Short() {
		t.Skip("opens the parts of a service")
	}
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := Main{}.build(t.Context(), cfg, roles{api: true, executor: true, keeper: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error("closing:", err)
		}
	})
	return a
}

// running lets the parts work until stop is called, or the test ends.
func running(t *testing.T, a *app) (c *client, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx, ln, nil) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error("stopping:", err)
		}
	}
	t.Cleanup(stop)
	return newClient("http://"+ln.Addr().String(), ""), stop
}

func reader(content string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
}

// send uploads files, waits for the end of their job and returns the documents' ids.
func send(t *testing.T, c *client, files ...source) (ids []string) {
	t.Helper()
	answer, err := c.submitAnswer(t.Context(), defaultDataset, files, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the job", func() bool {
		job, err := c.job(t.Context(), answer.Job.ID, "10s")
		return err == nil && job.State.Terminal()
	})
	for _, d := range answer.Documents {
		ids = append(ids, d.ID)
	}
	return ids
}
