package e2e

import (
	"bytes"
	"context"
	"encoding"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"sheaf/internal/blob"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/internal/indexset"
	"sheaf/internal/keeper"
	"sheaf/parser"
	"sheaf/parser/formats"
	"sheaf/taskstore/sqlstore"
)

// product is what the tests start: Sheaf, and a format that misbehaves.
var product = command.Main{FormatsFunc: func(c formats.Config) []parser.Format { return append(formats.All(c), trialFormat{}) }}

// service is a running Sheaf. What its keeper works on is there for tests that
// prepare, damage or look at what no client can.
type service struct {
	*client
	t         *testing.T
	cfg       config.Config
	keeper    keeper.Config
	store     *sqlstore.Store
	index     *indexset.Set
	blobStore blob.Store
	handler   http.Handler // of the API and the page
	started   *started
	stop      func()
}

// path is that of a file of the data folder.
func (s *service) path(name string) string { return filepath.Join(s.cfg.DataDir, name) }

// start runs everything in this process on a fresh data folder.
func start(t *testing.T, change func(*config.Config), parts ...func(*command.Main)) *service {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir = filepath.Join(t.TempDir(), "data folder äö")
	cfg.Parser.UnitTimeout = config.Duration(time.Second)
	if change != nil {
		change(&cfg)
	}
	return startWith(t, cfg, parts...)
}

func startWith(t *testing.T, cfg config.Config, parts ...func(*command.Main)) *service {
	t.Helper()
	var log io.Writer = io.Discard
	if testing.Verbose() {
		log = os.Stderr
	}
	return startOn(t, cfg, log, parts...)
}

// startLogging is startWith with a log in JSON that the test reads.
func startLogging(t *testing.T, cfg config.Config, level string, log *safeBuffer, parts ...func(*command.Main)) *service {
	t.Helper()
	cfg.Log = config.Log{Level: level, Format: "json"}
	return startOn(t, cfg, log, parts...)
}

func startOn(t *testing.T, cfg config.Config, log io.Writer, parts ...func(*command.Main)) *service {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the whole service")
	}
	m, s := product, &service{t: t, cfg: cfg}
	for _, replace := range parts {
		replace(&m)
	}
	change := m.KeeperFunc
	m.KeeperFunc = func(c *keeper.Config) {
		s.keeper, s.store, s.index, s.blobStore = *c, c.Store.(*sqlstore.Store), c.Index.(*indexset.Set), c.Blobs
		if change != nil {
			change(c)
		}
	}
	handlers := make(chan http.Handler, 1)
	m.HandlerFunc = func(h http.Handler) http.Handler {
		handlers <- h
		return h
	}
	s.started = begin(t, m, cfg, log, "up", "--listen", "127.0.0.1:0")
	s.client, s.stop = newClient(s.started.address(), ""), s.started.stop
	select { // the address is told before there is a handler
	case s.handler = <-handlers:
	case <-s.started.ended:
		t.Fatalf("the service ended with %d: %s", s.started.code, s.started.said.text())
	}
	return s
}

// started is a process of the service that runs as a goroutine.
type started struct {
	t     *testing.T
	said  *streams
	ended chan struct{}
	code  int // once it has ended
	stop  func()

	refused bool // it need not end well
}

// begin runs one of the commands that serve until the test ends.
func begin(t *testing.T, m command.Main, cfg config.Config, log io.Writer, args ...string) *started {
	t.Helper()
	p := &started{t: t, said: &streams{log: log, url: make(chan string, 1)}, ended: make(chan struct{})}
	m.Out, m.Err = p.said.out(), p.said
	ctx, cancel := context.WithCancel(context.Background())
	args = append(args, "--config", configFile(t, cfg))
	go func() {
		defer close(p.ended)
		p.code = m.Execute(ctx, args)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-p.ended:
			if p.code != 0 && !p.refused {
				t.Errorf("sheaf %s ended with %d: %s", args[0], p.code, p.said.text())
			}
		case <-time.After(60 * time.Second):
			t.Error("the service did not stop")
		}
		if p.said.unclosed() {
			t.Error("a part of the service could not be closed; the log says which")
		}
	})
	t.Cleanup(p.stop)
	return p
}

// address waits until the process answers.
func (p *started) address() string {
	p.t.Helper()
	select {
	case url := <-p.said.url:
		return url
	case <-p.ended:
		p.t.Fatalf("the service ended with %d: %s", p.code, p.said.text())
	case <-time.After(2 * time.Minute):
		p.t.Fatal("the service did not start")
	}
	return ""
}

// fails waits for a process that cannot start, and returns what it says.
func (p *started) fails() string {
	p.t.Helper()
	select {
	case url := <-p.said.url:
		p.t.Fatalf("it was started at %s", url)
	case <-p.ended:
		if p.code == 0 {
			p.t.Fatal("it ended well")
		}
		p.refused = true
	case <-time.After(time.Minute):
		p.t.Fatal("it neither starts nor ends")
	}
	return p.said.text()
}

// giveUp stops a process that waits for what does not come.
func (p *started) giveUp() {
	p.refused = true
	p.stop()
}

// over reports whether the process has ended.
func (p *started) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// streams tells the log of a process from what it says beside it.
type streams struct {
	log io.Writer
	url chan string // of its page, once

	mu     sync.Mutex
	beside bytes.Buffer
	broken bool // a part was not closed
}

// Write takes the standard error, to which each line of the log is written whole.
func (s *streams) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.HasPrefix(b, []byte("time=")) && !bytes.HasPrefix(b, []byte(`{"time":`)) {
		return s.beside.Write(b)
	}
	s.broken = s.broken || bytes.Contains(b, []byte("msg=closing ")) || bytes.Contains(b, []byte(`"msg":"closing"`))
	return s.log.Write(b)
}

func (s *streams) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beside.String()
}

func (s *streams) unclosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// out takes the standard output, which names the page.
func (s *streams) out() io.Writer {
	return writeFunc(func(b []byte) (int, error) {
		if _, rest, ok := strings.Cut(string(b), "page  "); ok {
			url, _, _ := strings.Cut(rest, "\n")
			select {
			case s.url <- strings.TrimRight(url, "/"):
			default:
			}
		}
		return len(b), nil
	})
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(b []byte) (int, error) { return f(b) }

// configFile writes a configuration as a file that says all of it.
func configFile(t *testing.T, cfg config.Config) string {
	t.Helper()
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(inWords(reflect.ValueOf(cfg))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sheaf.toml")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := config.Load(file, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	want, got := config.Fields(&cfg), config.Fields(&read)
	for i := range want {
		if want[i].String() != got[i].String() {
			t.Fatalf("%s is read as %s instead of %s: does a variable of the environment set it?", want[i].Name, got[i], want[i])
		}
	}
	return file
}

// inWords is a value as TOML has it, secrets included, which show their text to
// nobody else.
func inWords(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case config.Secret:
		return x.Reveal()
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("%v: %v", x, err)) // a bug of the test
		}
		return string(b)
	}
	switch v.Kind() {
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Anonymous:
				for k, x := range inWords(v.Field(i)).(map[string]any) {
					out[k] = x
				}
			case f.IsExported():
				out[f.Tag.Get("toml")] = inWords(v.Field(i))
			}
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for k, x := range v.Seq2() {
			out[k.String()] = inWords(x)
		}
		return out
	case reflect.Slice:
		if v.IsNil() {
			return []string{}
		}
	}
	return v.Interface()
}
