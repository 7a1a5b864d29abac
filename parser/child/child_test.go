package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/program"
)

// badFormat does by unit number what formats do by accident. The file holds
// one word per unit; see the cases in Parse.
type badFormat struct{}

const badMedia = "application/x-bad"

func (badFormat) ID() string               { return "bad" }
func (badFormat) Version() int             { return 1 }
func (badFormat) Types() []parser.FileType { return parser.Types(parser.FileType{}, badMedia) }
func (badFormat) Options() []string        { return nil }

func (badFormat) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	if o.Fill != nil {
		st, err := f.Stat()
		if err != nil {
			return nil, err
		}
		o.Fill(0, st.Size()/2)
		o.Fill(st.Size()/2, st.Size()-st.Size()/2)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, err
	}
	d := &badDoc{words: strings.Fields(string(b)), options: o}
	if err := os.WriteFile(filepath.Join(o.TempDir, "scratch"), b, 0o600); err != nil {
		return nil, err
	}
	switch d.words[0] {
	case "refuse":
		return nil, sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The document needs a password.")
	case "die-on-open":
		os.Exit(9)
	}
	return d, nil
}

type badDoc struct {
	words   []string
	options parser.Options
}

func (d *badDoc) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitPage, Units: len(d.words), RangeSize: 4, Fingerprints: []uint64{1<<64 - 1, 2}, Metadata: map[string]string{"pid": fmt.Sprint(os.Getpid())}}
	if d.words[0] == "plan-hangs" {
		time.Sleep(time.Hour)
	}
	if d.words[0] == "shards" {
		if err := os.WriteFile(filepath.Join(d.options.TempDir, "one.csv"), []byte("a,b\n"), 0o600); err != nil {
			return nil, err
		}
		p.Ranges = []parser.PlannedRange{{Range: sheaf.Range{From: 1, To: len(d.words)}, Cost: 1, Hint: json.RawMessage(`{"at":7}`), Shard: "one.csv", MediaType: "text/csv"}}
	}
	return p, nil
}

var leaked [][]byte

func (d *badDoc) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		word := d.words[n-1]
		if what, ok := strings.CutPrefix(word, "try-"); ok {
			if err := emit(unit(n, attempt(what, d.options.TempDir))); err != nil {
				return err
			}
			continue
		}
		if key, ok := strings.CutPrefix(word, "dear-"); ok {
			read := parser.Recall(ctx, key)
			if read == nil {
				read = []byte("read\x00" + key)
				parser.Keep(ctx, key, read)
			}
			if err := emit(unit(n, string(read))); err != nil {
				return err
			}
			continue
		}
		switch word {
		case "crash":
			os.Exit(7)
		case "panic":
			panic("page made me panic")
		case "overflow": // cannot be recovered
			debug.SetMaxStack(1 << 20)
			var recurse func(int) int
			recurse = func(n int) int { return recurse(n+1) + 1 }
			recurse(0)
		case "hang":
			for {
				runtime.Gosched()
			}
		case "leak":
			for {
				b := make([]byte, 8<<20)
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1
				}
				leaked = append(leaked, b)
			}
		case "garbage":
			_, _ = os.NewFile(fdAnswers, "answers").WriteString(strings.Repeat("garbage!", 1000))
			select {}
		case "flood":
			fmt.Fprintln(os.Stderr, "flood begins")
			for range 10_000 {
				fmt.Fprintln(os.Stderr, "stderr is a stream of complaints")
			}
			fmt.Fprintln(os.Stderr, "flood ends")
			os.Exit(3)
		case "mutter":
			fmt.Fprintln(os.Stderr, "a secret of the first document")
		case "twice":
			if err := emit(sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK}); err != nil {
				return err
			}
		case "short":
			return nil
		case "orphan": // starts a program that would outlive it
			cmd := exec.Command("sleep", "3600")
			if err := cmd.Start(); err != nil {
				return err
			}
			word = fmt.Sprint(cmd.Process.Pid)
			if err := emit(unit(n, word)); err != nil {
				return err
			}
			os.Exit(4)
		case "print":
			fmt.Println("formats may print without harm")
		case "grow": // faster than anybody looks
			leaked = append(leaked, make([]byte, 3<<30))
		case "huge":
			if err := emit(unit(n, strings.Repeat("x", maxFrameBytes))); err != nil {
				return err
			}
			continue
		case "large":
			if err := emit(unit(n, strings.Repeat("x", 600<<10))); err != nil {
				return err
			}
			continue
		case "lie": // sends more than its budget allows
			out := bufio.NewWriter(os.NewFile(fdAnswers, "answers"))
			u := unit(n, strings.Repeat("x", 2<<20))
			sent, _ := encodeUnit(nil, &u)
			if err := errors.Join(writeFrame(out, kindUnit, sent), out.Flush()); err != nil {
				return err
			}
			time.Sleep(time.Minute)
		case "write":
			if err := os.WriteFile(filepath.Join(d.options.TempDir, "big"), make([]byte, 2<<20), 0o600); err != nil {
				return sheaf.Fail(sheaf.CategoryCapacity, "too_big", "%v", err)
			}
		case "busy": // for 50 ms of processor time
			for from := ownTime(); ownTime() < from+50*time.Millisecond; {
				runtime.Gosched()
			}
		case "program": // that takes as long
			run := program.Run{Path: "/bin/sh", Args: []string{"-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"}, Dir: d.options.TempDir, Timeout: time.Minute, OutputBytes: 1}
			if _, err := run.Do(ctx); err != nil {
				return err
			}
		case "slow":
			time.Sleep(50 * time.Millisecond)
		}
		if err := emit(unit(n, fmt.Sprint(os.Getpid()))); err != nil {
			return err
		}
	}
	return nil
}

func unit(n int, text string) sheaf.UnitResult {
	return sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockParagraph, Text: text}}}
}

func (d *badDoc) Render(_ context.Context, n, dpi int, _ *sheaf.Box) ([]byte, string, error) {
	return []byte(fmt.Sprintf("picture %d at %d\x00", n, dpi)), "image/png", nil
}

func (d *badDoc) Close() error { return nil }

func TestMain(m *testing.M) {
	MaybeRun([]parser.Format{badFormat{}})
	os.Exit(m.Run())
}

// bundle is a pool with a folder for documents and a check, at the end, that
// nothing is left of either.
type bundle struct {
	t    *testing.T
	pool *Pool
	temp string
	n    int
}

func setup(t *testing.T, cfg Config) *bundle {
	t.Helper()
	b := &bundle{t: t, temp: t.TempDir()}
	cfg.TempDir = b.temp
	var err error
	if b.pool, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var pids []int
		b.pool.mu.Lock()
		for c := range b.pool.children {
			pids = append(pids, c.pid)
		}
		b.pool.mu.Unlock()
		if err := b.pool.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("child %d is still there after Close", pid)
			}
		}
		left, err := os.ReadDir(b.temp)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind in the temporary folder: %v %v", left, err)
		}
	})
	return b
}

// alive is true for zombies too: they still have a number.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func (b *bundle) doc(words string) Source {
	b.t.Helper()
	b.n++
	path := filepath.Join(b.t.TempDir(), strconv.Itoa(b.n))
	if err := os.WriteFile(path, []byte(words), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return Source{Path: path, Key: words + strconv.Itoa(b.n), Options: parser.Options{Name: "doc", MediaType: badMedia}}
}

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

const long = 30 * time.Second

func failure(t *testing.T, err error, code string) *sheaf.Failure {
	t.Helper()
	f, ok := errors.AsType[*sheaf.Failure](err)
	if !ok || f.Code != code {
		if f != nil {
			t.Log(f.Detail)
		}
		t.Fatalf("got %v, want the failure %s", err, code)
	}
	return f
}

func (b *bundle) parse(ctx context.Context, src Source, from, to int) ([]sheaf.UnitResult, error) {
	var got []sheaf.UnitResult
	err := b.pool.Parse(ctx, src, sheaf.Range{From: from, To: to}, func(u sheaf.UnitResult) error {
		got = append(got, u)
		return nil
	})
	return got, err
}

func TestPlanParseAndRender(t *testing.T) {
	b := setup(t, Config{})
	src := b.doc("a print c")
	plan, dir, cleanup, err := b.pool.Plan(deadline(t, long), src)
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	if plan.Units != 3 || plan.Unit != sheaf.UnitPage || plan.RangeSize != 4 || plan.Fingerprints[0] != 1<<64-1 || dir != "" {
		t.Errorf("plan %+v in %q", plan, dir)
	}
	got, err := b.parse(deadline(t, long), src, 2, 3)
	if err != nil || len(got) != 2 || got[0].Unit != 2 || got[1].Unit != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
	if got[0].Blocks[0].Text != plan.Metadata["pid"] {
		t.Error("the range went to another child than the plan")
	}
	img, mt, err := b.pool.Render(deadline(t, long), src, 2, 72, nil)
	if err != nil || string(img) != "picture 2 at 72\x00" || mt != "image/png" {
		t.Errorf("Render: %q %q %v", img, mt, err)
	}
	if s := b.pool.Stats(); s.Opens != 1 || s.Reuses != 2 || s.Started != 1 {
		t.Errorf("opened once, used three times, got %+v", s)
	}
}

// sparse is a source whose file is holes until it is filled.
func (b *bundle) sparse(words string) (src Source, asked *[]int64) {
	b.t.Helper()
	src = b.doc(words)
	if err := errors.Join(os.Truncate(src.Path, 0), os.Truncate(src.Path, int64(len(words)))); err != nil {
		b.t.Fatal(err)
	}
	asked = new([]int64)
	path := src.Path
	src.Fill = func(_ context.Context, offset, length int64) error {
		*asked = append(*asked, offset, length)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte(words[offset:offset+length]), offset)
		return err
	}
	return src, asked
}

func TestHolesAreFilledBeforeTheyAreRead(t *testing.T) {
	b := setup(t, Config{Size: 1})
	src, asked := b.sparse("one two three")
	got, err := b.parse(deadline(t, long), src, 1, 3)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	if !slices.Equal(*asked, []int64{0, 6, 6, 7}) {
		t.Errorf("asked for %v", *asked)
	}
	// The document is open and asks for no more.
	if _, err := b.parse(deadline(t, long), src, 2, 2); err != nil || len(*asked) != 4 {
		t.Errorf("%v, asked for %v", err, *asked)
	}
}

// remembered are readings by key.
type remembered map[string]string

func (r remembered) Recall(key string) []byte        { return []byte(r[key]) }
func (r remembered) Keep(key string, reading []byte) { r[key] = string(reading) }

func TestReadingsAreAskedForAndKept(t *testing.T) {
	b := setup(t, Config{Size: 1})
	src := b.doc("dear-a b dear-c")
	known := remembered{"c": "known"}
	read := func(want ...string) {
		t.Helper()
		got, err := b.parse(deadline(t, long), src, 1, 3)
		if err != nil || len(got) != 3 || got[0].Blocks[0].Text != want[0] || got[2].Blocks[0].Text != want[1] {
			t.Errorf("%v, %+v", err, got)
		}
	}
	read("read\x00a", "read\x00c") // a caller without readings
	src.Readings = known
	read("read\x00a", "known")
	if len(known) != 2 || known["a"] != "read\x00a" {
		t.Errorf("kept %q", known)
	}
	known["a"] = "as before"
	read("as before", "known")
}

// What requests took is measured by processor time, with that of programs; waiting
// does not count, except for a request that exceeds its time limit.
func TestProcessorTimeIsMeasured(t *testing.T) {
	b := setup(t, Config{Size: 1})
	for _, c := range []struct {
		words       string
		limit       time.Duration
		code        string
		least, most time.Duration
	}{
		{"slow slow slow slow slow slow", long, "", 0, 200 * time.Millisecond},
		{"busy a busy", long, "", 100 * time.Millisecond, 200 * time.Millisecond},
		{"program", long, "", 10 * time.Millisecond, 2 * time.Second},
		{"hang", time.Second, "parse_timeout", 100 * time.Millisecond, long}, // while there is a child
		{"busy crash", long, "parser_crash", 40 * time.Millisecond, time.Second},
	} {
		var m Meter
		_, err := b.parse(WithMeter(deadline(t, c.limit), &m), b.doc(c.words), 1, len(strings.Fields(c.words)))
		if c.code != "" {
			failure(t, err, c.code)
		} else if err != nil {
			t.Error(err)
		}
		if got := m.Spent(); got < c.least || got > c.most {
			t.Errorf("%s: %v, want %v to %v", c.words, got, c.least, c.most)
		}
	}
}

// A page must not be called unreadable because the store of its file was away.
func TestWhatCannotBeFilledIsNotTheDocumentsFault(t *testing.T) {
	b := setup(t, Config{Size: 1})
	src, _ := b.sparse("one two three four")
	away := errors.New("the store is away")
	fill := src.Fill
	src.Fill = func(ctx context.Context, offset, length int64) error {
		if offset > 0 {
			return away
		}
		return fill(ctx, offset, length)
	}
	err := b.pool.ParseIsolating(deadline(t, long), src, sheaf.Range{From: 1, To: 4}, perTry, func(u sheaf.UnitResult) error {
		t.Errorf("unit %d: %s %s", u.Unit, u.Status, u.Code)
		return nil
	})
	if err != away {
		t.Errorf("got %v", err)
	}
	if s := b.pool.Stats(); s.Crashes != 0 {
		t.Errorf("%d crashes", s.Crashes)
	}
	src.Fill = fill
	if got, err := b.parse(deadline(t, long), src, 1, 4); err != nil || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestShardsOutliveTheDocument(t *testing.T) {
	b := setup(t, Config{Size: 1})
	plan, dir, cleanup, err := b.pool.Plan(deadline(t, long), b.doc("shards b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.pool.Parse(deadline(t, long), b.doc("crash"), sheaf.Range{From: 1, To: 1}, nil); err == nil {
		t.Fatal("no error")
	}
	got, err := os.ReadFile(filepath.Join(dir, plan.Ranges[0].Shard))
	if err != nil || string(got) != "a,b\n" || string(plan.Ranges[0].Hint) != `{"at":7}` {
		t.Errorf("%q %v %s", got, err, plan.Ranges[0].Hint)
	}
	cleanup()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("cleanup left %s: %v", dir, err)
	}
}

func TestRefusedDocumentIsAVerdictNotACrash(t *testing.T) {
	b := setup(t, Config{Size: 1})
	for range 3 {
		_, _, cleanup, err := b.pool.Plan(deadline(t, long), b.doc("refuse"))
		cleanup()
		if f := failure(t, err, "encrypted"); f.Category != sheaf.CategoryEncrypted {
			t.Errorf("category %s", f.Category)
		}
	}
	if s := b.pool.Stats(); s.Started != 1 || s.Crashes != 0 || s.OpenDocs != 0 {
		t.Errorf("%+v", s)
	}
	_, err := b.parse(deadline(t, long), Source{Path: "x", Options: parser.Options{MediaType: "a/b"}}, 1, 1)
	failure(t, err, "unsupported_type")
	_, err = b.parse(deadline(t, long), Source{Path: filepath.Join(b.temp, "none"), Options: parser.Options{MediaType: badMedia}}, 1, 1)
	failure(t, err, "source_unreadable")
}

func TestEveryWayToDieIsAFailureAndTheNextCallWorks(t *testing.T) {
	for _, c := range []struct {
		word, code string
		category   sheaf.Category
		detail     string
	}{
		{"crash", "parser_crash", sheaf.CategoryCrash, ""},
		{"panic", "parser_crash", sheaf.CategoryCrash, "badDoc"},
		{"overflow", "parser_crash", sheaf.CategoryCrash, "stack overflow"},
		{"garbage", "parser_crash", sheaf.CategoryCrash, ""},
		{"flood", "parser_crash", sheaf.CategoryCrash, "flood ends"},
		{"hang", "parse_timeout", sheaf.CategoryTimeout, ""},
		{"leak", "parser_out_of_memory", sheaf.CategoryCapacity, ""},
		{"twice", "parser_crash", sheaf.CategoryCrash, ""},
		{"short", "parser_crash", sheaf.CategoryCrash, ""},
	} {
		t.Run(c.word, func(t *testing.T) {
			b := setup(t, Config{Size: 1, MaxRSSBytes: 200 << 20})
			src := b.doc("ok " + c.word + " ok")
			limit := long
			if c.word == "hang" {
				limit = time.Second
			}
			got, err := b.parse(deadline(t, limit), src, 1, 3)
			f := failure(t, err, c.code)
			if f.Category != c.category || !strings.Contains(f.Detail, c.detail) || len(f.Detail) > 4<<10 {
				t.Errorf("category %s, detail of %d bytes: %s", f.Category, len(f.Detail), f.Detail)
			}
			if want := map[string]int{"twice": 2}[c.word]; len(got) != max(want, 1) {
				t.Errorf("units before the failure: %v", got)
			}
			if got, err := b.parse(deadline(t, long), src, 1, 1); err != nil || len(got) != 1 {
				t.Errorf("after it: %v, %v", got, err)
			}
			if s := b.pool.Stats(); s.Started != 2 || s.Crashes+s.Timeouts+s.OutOfMemory != 1 && c.word != "short" {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestDescendantsDieWithTheChild(t *testing.T) {
	b := setup(t, Config{Size: 1})
	got, err := b.parse(deadline(t, long), b.doc("orphan"), 1, 1)
	if err == nil || len(got) != 1 {
		// The unit left before the crash, so the range itself is complete.
		if len(got) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	pid, convErr := strconv.Atoi(got[0].Blocks[0].Text)
	if convErr != nil {
		t.Fatal(convErr)
	}
	until(t, func() bool { return !running(pid) })
}

// running is false for zombies: an orphan's parent is init, which reaps it.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}

// until polls: it waits for another process.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited 10 s in vain")
		}
	}
}

func TestCancelKillsAtOnce(t *testing.T) {
	b := setup(t, Config{Size: 1})
	src := b.doc("ok hang")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var canceled time.Time
	err := b.pool.Parse(ctx, src, sheaf.Range{From: 1, To: 2}, func(u sheaf.UnitResult) error {
		canceled = time.Now()
		cancel()
		return nil
	})
	took := time.Since(canceled)
	if !errors.Is(err, sheaf.ErrCanceled) || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
	t.Logf("canceled within %v", took)
	// And while waiting for a child.
	ctx2, cancel2 := context.WithCancel(context.Background())
	blocked := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		blocked <- b.pool.Parse(ctx2, src, sheaf.Range{From: 1, To: 2}, func(sheaf.UnitResult) error { close(started); return nil })
	}()
	<-started
	ctx3, cancel3 := context.WithCancel(context.Background())
	cancel3()
	if _, err := b.parse(ctx3, src, 1, 1); !errors.Is(err, sheaf.ErrCanceled) {
		t.Errorf("waiting: %v", err)
	}
	cancel2()
	if err := <-blocked; !errors.Is(err, sheaf.ErrCanceled) {
		t.Errorf("working: %v", err)
	}
}

func TestEmitErrorIsReturnedAsItIs(t *testing.T) {
	b := setup(t, Config{Size: 1})
	own := errors.New("disk full")
	src := b.doc("a b c")
	n := 0
	for name, parse := range map[string]func(func(sheaf.UnitResult) error) error{
		"Parse": func(emit func(sheaf.UnitResult) error) error {
			return b.pool.Parse(deadline(t, long), src, sheaf.Range{From: 1, To: 3}, emit)
		},
		"ParseIsolating": func(emit func(sheaf.UnitResult) error) error {
			return b.pool.ParseIsolating(deadline(t, long), src, sheaf.Range{From: 1, To: 3}, perTry, emit)
		},
	} {
		n = 0
		if err := parse(func(sheaf.UnitResult) error { n++; return own }); err != own || n != 1 {
			t.Errorf("%s: %v after %d units", name, err, n)
		}
	}
}

func TestDeadIdleChildIsReplacedWithoutBlame(t *testing.T) {
	b := setup(t, Config{Size: 1})
	src := b.doc("a b")
	got, err := b.parse(deadline(t, long), src, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(got[0].Blocks[0].Text)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// At once, when the pool may not know yet.
	if got, err = b.parse(deadline(t, long), src, 1, 2); err != nil || len(got) != 2 {
		t.Fatalf("got %v, %v", got, err)
	}
	if alive(pid) {
		t.Error("the dead child was not reaped")
	}
	// And when it had time to notice.
	pid, _ = strconv.Atoi(got[0].Blocks[0].Text)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return b.pool.Stats().Children == 0 && !alive(pid) })
	if got, err = b.parse(deadline(t, long), src, 1, 2); err != nil || len(got) != 2 {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestRangesOfADocumentGoToTheChildThatHasItOpen(t *testing.T) {
	b := setup(t, Config{Size: 2, MaxDocs: 2, KeepOpen: time.Hour})
	docs := []Source{b.doc("a b c d"), b.doc("e f g h"), b.doc("i j k l"), b.doc("m n o p")}
	for unit := 1; unit <= 4; unit++ {
		for _, d := range docs {
			if _, err := b.parse(deadline(t, long), d, unit, unit); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := b.pool.Stats(); s.Opens != 4 || s.Reuses != 12 || s.OpenDocs != 4 {
		t.Errorf("four documents in two children of two: %+v", s)
	}
	// A fifth document takes the place of the one unused for longest.
	if _, err := b.parse(deadline(t, long), b.doc("q"), 1, 1); err != nil {
		t.Fatal(err)
	}
	for _, d := range docs[1:] {
		if _, err := b.parse(deadline(t, long), d, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.pool.Stats(); s.Opens != 5 || s.OpenDocs != 4 {
		t.Errorf("the least recently used document should have been closed: %+v", s)
	}
}

func TestUnusedDocumentIsClosedWhenAnotherIsOpened(t *testing.T) {
	for keep, open := range map[time.Duration]int{time.Nanosecond: 1, time.Hour: 3} {
		b := setup(t, Config{Size: 1, KeepOpen: keep})
		docs := []Source{b.doc("a"), b.doc("b"), b.doc("c")}
		for _, d := range docs {
			if _, err := b.parse(deadline(t, long), d, 1, 1); err != nil {
				t.Fatal(err)
			}
			b.pool.mu.Lock()
			for c := range b.pool.children {
				for _, o := range c.docs {
					if o.opening <= 0 {
						t.Error("it is not known how long a document took to open")
					}
					o.opening = 1 // however slow this machine is
				}
			}
			b.pool.mu.Unlock()
		}
		if s := b.pool.Stats(); s.OpenDocs != open || s.Opens != 3 {
			t.Errorf("documents that stay open for %v: %+v", keep, s)
		}
		if got, err := b.parse(deadline(t, long), docs[0], 1, 1); err != nil || len(got) != 1 { // opened again, or open still
			t.Errorf("the first document gives %v, %v", got, err)
		}
	}
}

func TestChildIsReplacedAfterManyDocuments(t *testing.T) {
	b := setup(t, Config{Size: 1, DocsPerChild: 3})
	for range 7 {
		if _, err := b.parse(deadline(t, long), b.doc("a"), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.pool.Stats(); s.Started != 3 || s.Recycled != 2 {
		t.Errorf("%+v", s)
	}
}

func TestIdleChildIsEnded(t *testing.T) {
	b := setup(t, Config{Size: 1, IdleTimeout: 20 * time.Millisecond})
	if _, err := b.parse(deadline(t, long), b.doc("a"), 1, 1); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return b.pool.Stats().Children == 0 })
}

func TestLimitsOfAChild(t *testing.T) {
	b := setup(t, Config{Size: 1, MaxFileBytes: 1 << 20})
	_, err := b.parse(deadline(t, long), b.doc("write"), 1, 1)
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "too_big" && f.Code != "parser_crash" {
		t.Errorf("a file over the limit was written: %v", err)
	}
	got, err := b.parse(deadline(t, long), b.doc("huge ok"), 1, 2)
	if err != nil || len(got) != 2 || got[0].Status != sheaf.UnitFailed || got[0].Code != "range_too_large" || got[1].Status != sheaf.UnitOK {
		t.Errorf("a unit over the frame's limit: %d units, %v", len(got), err)
	}
}

func TestChildSeesNoSecrets(t *testing.T) {
	t.Setenv("SHEAF_SECRET_DSN", "root:password@db")
	b := setup(t, Config{Size: 1})
	if _, err := b.parse(deadline(t, long), b.doc("a"), 1, 1); err != nil {
		t.Fatal(err)
	}
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	for c := range b.pool.children {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.pid))
		if err != nil || bytes.Contains(env, []byte("password")) || !bytes.Contains(env, []byte(envChild+"=1")) {
			t.Errorf("environment of the child: %q, %v", env, err)
		}
	}
}

func TestStartFailureIsAFailure(t *testing.T) {
	b := setup(t, Config{Size: 1, Command: []string{filepath.Join(t.TempDir(), "none")}})
	_, err := b.parse(deadline(t, long), b.doc("a"), 1, 1)
	failure(t, err, "parser_start_failed")

	b = setup(t, Config{Size: 1, Command: []string{"/bin/sleep", "3600"}, StartTimeout: 50 * time.Millisecond})
	_, err = b.parse(deadline(t, long), b.doc("a"), 1, 1)
	failure(t, err, "parser_start_failed")
}

func TestCloseEndsWorkUnderWay(t *testing.T) {
	b := setup(t, Config{Size: 2})
	src := b.doc("ok hang")
	errs := make(chan error, 2)
	var started sync.WaitGroup
	started.Add(2)
	for range 2 {
		go func() {
			errs <- b.pool.Parse(context.Background(), src, sheaf.Range{From: 1, To: 2}, func(sheaf.UnitResult) error { started.Done(); return nil })
		}()
	}
	started.Wait()
	if err := b.pool.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, sheaf.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := b.parse(context.Background(), src, 1, 1); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func TestFoldersOfDeadPoolsAreSwept(t *testing.T) {
	temp := t.TempDir()
	dead := filepath.Join(temp, rootPrefix+"dead")
	if err := os.MkdirAll(filepath.Join(dead, "doc-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, ".lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := New(Config{TempDir: temp})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := New(Config{TempDir: temp})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the dead pool's folder is still there: %v", err)
	}
	if _, err := os.Stat(first.root); err != nil {
		t.Errorf("the living pool's folder is gone: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	b := setup(t, Config{Size: 3, MaxDocs: 2})
	words := []string{"ok slow ok ok", "ok ok ok", "ok crash ok", "a b c d e f"}
	docs := make([]Source, len(words))
	for i, w := range words {
		docs[i] = b.doc(w)
	}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			d := docs[i%len(docs)]
			n := len(strings.Fields(words[i%len(docs)]))
			var units []int
			err := b.pool.ParseIsolating(context.Background(), d, sheaf.Range{From: 1, To: n}, perTry, func(u sheaf.UnitResult) error {
				units = append(units, u.Unit)
				return nil
			})
			if err != nil || len(units) != n {
				t.Errorf("%s: units %v, %v", d.Key, units, err)
			}
		})
	}
	wg.Wait()
	if s := b.pool.Stats(); s.Busy != 0 || s.Children > 3 {
		t.Errorf("%+v", s)
	}
}

func perTry(units int) time.Duration { return 5*time.Second + time.Duration(units)*time.Second }

func TestPoisonUnitsAreIsolated(t *testing.T) {
	for _, c := range []struct {
		words string
		codes map[int]string
		most  int64 // children that may have been started
	}{
		{"a b c d e f g h i j k l", nil, 1},
		{"crash a b c d e f g h i j k", map[int]string{1: "parser_crash"}, 7},
		{"a b c d e f g h i j k crash", map[int]string{12: "parser_crash"}, 7},
		{"a b panic d e f g overflow i j k l", map[int]string{3: "parser_crash", 8: "parser_crash"}, 12},
		{"crash crash crash", map[int]string{1: "parser_crash", 2: "parser_crash", 3: "parser_crash"}, 8},
		{"a b c leak e", map[int]string{4: "parser_out_of_memory"}, 6},
		{"a hang c d", map[int]string{2: "parse_timeout"}, 6},
	} {
		t.Run(c.words, func(t *testing.T) {
			b := setup(t, Config{Size: 1, MaxRSSBytes: 200 << 20})
			n := len(strings.Fields(c.words))
			limit := perTry
			if strings.Contains(c.words, "hang") {
				limit = func(int) time.Duration { return 2 * time.Second } // in which a child must start, too
			}
			next := 1
			err := b.pool.ParseIsolating(deadline(t, time.Minute), b.doc(c.words), sheaf.Range{From: 1, To: n}, limit, func(u sheaf.UnitResult) error {
				if u.Unit != next {
					t.Errorf("unit %d where %d was due", u.Unit, next)
				}
				next++
				want, poison := c.codes[u.Unit]
				if poison != (u.Status == sheaf.UnitFailed) || u.Code != want {
					t.Errorf("unit %d: %s %s, want %q", u.Unit, u.Status, u.Code, want)
				}
				if poison && u.Message == "" {
					t.Errorf("unit %d failed without a sentence", u.Unit)
				}
				return nil
			})
			if err != nil || next != n+1 {
				t.Fatalf("ended at %d: %v", next, err)
			}
			if s := b.pool.Stats(); s.Started > c.most {
				t.Errorf("%d children were started", s.Started)
			}
		})
	}
}

// A failed unit comes with what the parser wrote before it stopped there, the
// others with nothing, and neither with what it wrote about another document.
func TestLastLinesAreOfTheUnitAndItsDocument(t *testing.T) {
	b := setup(t, Config{Size: 1})
	quiet := b.doc("mutter ok")
	for _, c := range []struct {
		words    string
		from, to int // range that is read
		said     []string
	}{
		{"ok flood ok", 2, 2, []string{"flood begins", "\n…\n", "flood ends"}}, // by the child that muttered
		{"ok flood ok", 1, 3, []string{"flood begins", "flood ends"}},
		{"ok panic ok", 1, 3, []string{"badDoc"}},
		{"ok crash ok", 1, 3, []string{""}},
	} {
		if _, err := b.parse(deadline(t, long), quiet, 1, 2); err != nil {
			t.Fatal(err)
		}
		started, failed := b.pool.Stats().Started, 0
		err := b.pool.ParseIsolating(deadline(t, time.Minute), b.doc(c.words), sheaf.Range{From: c.from, To: c.to}, perTry, func(u sheaf.UnitResult) error {
			if u.Status != sheaf.UnitFailed {
				if u.Detail != "" {
					t.Errorf("%s: unit %d was read and has last lines: %q", c.words, u.Unit, u.Detail)
				}
				return nil
			}
			failed++
			for _, said := range c.said {
				if !strings.Contains(u.Detail, said) || len(u.Detail) > 4<<10 || !utf8.ValidString(u.Detail) || strings.Contains(u.Detail, "secret") {
					t.Errorf("%s: unit %d has %d bytes of last lines, want %q in them: %q", c.words, u.Unit, len(u.Detail), said, u.Detail)
				}
			}
			return nil
		})
		if err != nil || failed != 1 {
			t.Errorf("%s: %d units failed, %v", c.words, failed, err)
		}
		if n := b.pool.Stats().Started; c.from == c.to && n != started {
			t.Errorf("%s: %d children were started before the crash", c.words, n-started)
		}
	}
	// A failure of the whole call speaks of its own document, too.
	if _, err := b.parse(deadline(t, long), quiet, 1, 2); err != nil {
		t.Fatal(err)
	}
	_, err := b.parse(deadline(t, long), b.doc("ok flood"), 1, 2)
	if f := failure(t, err, "parser_crash"); strings.Contains(f.Detail, "secret") || !strings.Contains(f.Detail, "flood ends") {
		t.Errorf("the detail is %q", f.Detail)
	}
}

func TestARangeFullOfPoisonIsGivenUp(t *testing.T) {
	b := setup(t, Config{Size: 1})
	const n = 400
	var failed, last int
	err := b.pool.ParseIsolating(deadline(t, time.Minute), b.doc(strings.Repeat("crash ", n)), sheaf.Range{From: 1, To: n}, perTry, func(u sheaf.UnitResult) error {
		if u.Unit != last+1 || u.Status != sheaf.UnitFailed {
			t.Errorf("unit %d (%s) after %d", u.Unit, u.Status, last)
		}
		last = max(u.Unit, u.LastUnit)
		failed++
		return nil
	})
	if err != nil || last != n {
		t.Fatalf("ended at %d of %d: %v", last, n, err)
	}
	if s := b.pool.Stats(); s.Started > 80 {
		t.Errorf("%d children were started for it", s.Started)
	}
}

func TestADocumentThatKillsOnOpeningIsNotBisected(t *testing.T) {
	b := setup(t, Config{Size: 1})
	err := b.pool.ParseIsolating(deadline(t, long), b.doc("die-on-open a b c d e f g"), sheaf.Range{From: 1, To: 8}, perTry, func(sheaf.UnitResult) error {
		t.Error("a unit of a document that does not open")
		return nil
	})
	failure(t, err, "parser_crash")
	if s := b.pool.Stats(); s.Started > 2 {
		t.Errorf("%+v", s)
	}
}

// Documents are closed with the request for the next one, and their folders
// go with the files in them.
func TestDocumentsThatHaveNoRoomAreClosed(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Size: 1, MaxDocs: 2})
	ctx := deadline(t, long)
	for _, words := range []string{"a", "b", "refuse", "c", "d"} {
		_, _, cleanup, err := b.pool.Plan(ctx, b.doc(words))
		cleanup()
		if words == "refuse" {
			failure(t, err, "encrypted")
		} else if err != nil {
			t.Fatal(err)
		}
		folders, err := filepath.Glob(filepath.Join(b.pool.root, "doc-*"))
		if err != nil || len(folders) != b.pool.Stats().OpenDocs || len(folders) > 2 {
			t.Errorf("after %q there are the folders %v (%v) for %d documents", words, folders, err, b.pool.Stats().OpenDocs)
		}
	}
	if s := b.pool.Stats(); s.Opens != 5 || s.Started != 1 {
		t.Errorf("%+v", s)
	}
}

func TestOnlyEmptyFoldersServeAgain(t *testing.T) {
	t.Parallel()
	p := setup(t, Config{Size: 1}).pool
	folder := func() string {
		t.Helper()
		dir, err := p.docDir()
		if err != nil {
			t.Fatal(err)
		}
		if !isEmpty(dir) {
			t.Errorf("%s is given to a document and is not an empty folder", dir)
		}
		return dir
	}
	gone := func(dir string) {
		t.Helper()
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	empty := folder()
	p.dropDir(empty, true)
	if again := folder(); again != empty {
		t.Errorf("got the folder %s, want the empty one %s", again, empty)
	}
	if err := os.WriteFile(filepath.Join(empty, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.dropDir(empty, true)
	gone(empty)
	killed := folder() // what wrote there may not be gone
	p.dropDir(killed, false)
	gone(killed)
	var dirs []string
	for range spareDirs + 1 {
		dirs = append(dirs, folder())
	}
	for _, dir := range dirs {
		p.dropDir(dir, true)
	}
	gone(dirs[spareDirs])
}

// A child that has gone on to another call is not killed for an earlier one.
func TestAWatchThatEndedKillsNobody(t *testing.T) {
	t.Parallel()
	for range 200 {
		c := &process{reaped: true} // killing it only leaves the reason
		ctx, cancel := context.WithCancel(t.Context())
		stop := c.watch(ctx, time.Nanosecond, 1)
		go cancel()
		stop()
		if why := c.reason(); why == killNone {
			<-ctx.Done()
			if why = c.reason(); why != killNone {
				t.Fatalf("killed for reason %d after the watch had ended", why)
			}
		}
	}
}
