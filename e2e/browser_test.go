package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"sheaf/parser/pdf/enginetest"
)

// chromium is where Debian puts it; without it the browser tests are skipped,
// or fail where SHEAF_TEST_REQUIRE says that everything must run.
func chromium(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("chromium is not installed: apt-get install chromium")
		}
		t.Skip("chromium is not installed: apt-get install chromium")
	}
	return path
}

// browser is a Chromium with one tab.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu      sync.Mutex
	faults  []string // exceptions and console errors
	deleted string   // id of a document that the test deletes
	edited  string   // id of a document whose chunks others change meanwhile
}

// openBrowser starts a Chromium that talks to the service.
func openBrowser(t *testing.T, s *service) *browser {
	t.Helper()
	// Not of the test: processes of the browser may write to it for a moment after
	// the one that was waited for has ended, and a test fails with what it cannot remove.
	profile, err := os.MkdirTemp("", "sheaf-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 50 {
			if err = os.RemoveAll(profile); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Log("a profile of the browser is left: ", err)
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Env("TZ=Europe/Berlin"))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	b := &browser{t: t, ctx: ctx, base: s.base}
	t.Cleanup(func() {
		cancel()
		stop()
	})
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			gone := b.deleted != "" && strings.Contains(e.Entry.URL, b.deleted) // asked for in the moment of its deletion
			conflict := b.edited != "" && strings.Contains(e.Entry.URL, b.edited) && strings.Contains(e.Entry.Text, "412")
			if e.Entry.Level == log.LevelError && !strings.Contains(e.Entry.Text, "ERR_ABORTED") && !gone && !conflict {
				b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
			}
		}
	})
	// Starts it; without a deadline, since the tab lives as long as this context.
	// A tab that is loaded anew has no focus of its own, and tells nobody what is focused in it.
	// Without the package of its translations --lang changes nothing, and American times are those of a clock of 12 hours.
	if err := chromedp.Run(ctx, emulation.SetFocusEmulationEnabled(true), emulation.SetLocaleOverride().WithLocale("en_GB")); err != nil {
		t.Fatal("starting chromium: ", err)
	}
	b.look(1280, 800, false)
	return b
}

// run does actions, each within a minute.
func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("the browser: %v%s", err, b.state())
	}
}

// state is what helps to understand a failure.
func (b *browser) state() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	var text, where string
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText.slice(0, 1500)`, &text), chromedp.Location(&where))
	return fmt.Sprintf("\nat %s the page says:\n%s\nfaults: %v", where, text, b.taken())
}

func (b *browser) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.faults...)
}

// noErrors fails when the page threw or logged an error since the last look.
func (b *browser) noErrors() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		b.t.Errorf("the page had errors:\n%s", strings.Join(b.faults, "\n"))
	}
	b.faults = nil
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.base+path), chromedp.WaitVisible("#view h1"))
}

// wait polls a script until it is truthy. A page that is being replaced by
// another cannot be asked for a moment.
func (b *browser) wait(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for {
		var ok bool
		err := chromedp.Run(ctx, chromedp.Evaluate("!!("+script+")", &ok))
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("waited in vain for %s (%v)%s", what, err, b.state())
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// sees waits until a text is in an element.
func (b *browser) sees(selector, text string) {
	b.t.Helper()
	q, _ := json.Marshal(selector)
	v, _ := json.Marshal(text)
	b.wait(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf(`[...document.querySelectorAll(%s)].some(e => e.textContent.includes(%s))`, q, v))
}

// seesTime waits for the time that the dry run in the dialog expects.
func (b *browser) seesTime() {
	b.t.Helper()
	b.wait("the time that is expected", `[...document.querySelectorAll("dialog .preview dt")].some(e => e.textContent === "Time" && /^~?\d/.test(e.nextElementSibling.textContent))`)
}

// eval runs a script.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	var out T
	b.run(chromedp.Evaluate(script, &out, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return out
}

// press clicks the button or link of that name, wherever it is.
func (b *browser) press(name string) {
	b.t.Helper()
	v, _ := json.Marshal(name)
	find := fmt.Sprintf(`[...document.querySelectorAll("dialog[open] button, dialog[open] a")].concat(document.querySelector("dialog[open]") ? [] : [...document.querySelectorAll("button, a")]).find(e => e.textContent.trim() === %s && !e.disabled && e.checkVisibility())`, v)
	b.wait("the button "+name, "!!"+find)
	b.run(chromedp.Evaluate(find+".click()", nil))
}

// drop drags files or folders from the file system onto the page.
func (b *browser) drop(paths ...string) {
	b.t.Helper()
	data := &input.DragData{Items: []*input.DragDataItem{}, Files: paths, DragOperationsMask: 1}
	for _, kind := range []input.DispatchDragEventType{input.DragEnter, input.DragOver, input.Drop} {
		b.run(input.DispatchDragEvent(kind, 300, 300, data))
	}
}

// keys types on the keyboard.
func (b *browser) keys(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// look chooses size and colours.
func (b *browser) look(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(chromedp.EmulateViewport(width, height), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
}

// shoot writes what the tab shows.
func (b *browser) shoot(path string) {
	b.t.Helper()
	var png []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	if err := os.WriteFile(path, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

var errNoAxe = errors.New("axe-core is not in the cache")

// axe is the accessibility checker: scripts/web-tools.sh fetches it.
func axe(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("SHEAF_CACHE")
	if cache == "" {
		cache = "/var/cache/sheaf-test"
		if os.Getuid() != 0 {
			cache = filepath.Join(os.Getenv("HOME"), ".cache", "sheaf-test")
		}
	}
	found, _ := filepath.Glob(filepath.Join(cache, "web-*", "node_modules", "axe-core", "axe.min.js"))
	if len(found) > 0 {
		b, err := os.ReadFile(found[len(found)-1])
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
		t.Fatal(errNoAxe, "; run scripts/web-tools.sh")
	}
	t.Skip(errNoAxe, "; run scripts/web-tools.sh")
	return ""
}

// checkAccess fails on every violation that axe finds in what the tab shows.
func (b *browser) checkAccess(script, what string) {
	b.t.Helper()
	type violation struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	b.run(chromedp.Evaluate(script, nil))
	found := eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 3).map(n => ({HTML: n.html.slice(0, 300), FailureSummary: n.failureSummary}))})))`)
	for _, v := range found {
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s (%s)\n  %s\n  %s", what, v.Help, v.ID, n.HTML, n.FailureSummary)
		}
	}
}

// report is a PDF with headings, prose and a table on every fourth page.
func report(pages int, subject string) []byte {
	words := strings.Fields("the harvest was stored dry and counted twice before any cart left for the market because a sheaf that is wet at the core looks sound from outside and spoils those around it so each keeper writes down where it lay when it was turned and who carried it")
	f := enginetest.File{Info: map[string]string{"Title": subject, "Author": "The Granary"}}
	for n := 1; n <= pages; n++ {
		var c strings.Builder
		y := 730.0
		c.WriteString(enginetest.Text("F2", 18, 72, y, fmt.Sprintf("%d. %s, part %d", n, subject, n)))
		y -= 34
		for para := range 4 {
			if para == 2 {
				c.WriteString(enginetest.Text("F2", 13, 72, y, fmt.Sprintf("%d.%d What was measured in store %d", n, para, n*7)))
				y -= 22
			}
			for line := range 5 {
				var s strings.Builder
				for w := range 13 {
					s.WriteString(words[(n*31+para*17+line*13+w)%len(words)] + " ")
				}
				c.WriteString(enginetest.Text("F1", 11, 72, y, strings.TrimSpace(s.String())))
				y -= 15
			}
			y -= 12
		}
		if n%4 == 1 {
			top := y + 12
			rows := [][]string{{"Store", "Sheaves", "Moisture", "Turned"}}
			for i := range 5 {
				rows = append(rows, []string{fmt.Sprintf("Barn %c", 'A'+i), fmt.Sprint(1200 + 37*i*n), fmt.Sprintf("%.1f %%", 11+math.Mod(float64(i*n)*1.3, 4)), fmt.Sprintf("%d times", 2+i)})
			}
			for i, r := range rows {
				for k, v := range r {
					font := "F1"
					if i == 0 {
						font = "F2"
					}
					c.WriteString(enginetest.Text(font, 10, 78+float64(k)*115, top-13-float64(i)*18, v))
				}
			}
			for i := range len(rows) + 1 {
				c.WriteString(enginetest.Line(72, top-float64(i)*18, 532, top-float64(i)*18))
			}
			for k := range 5 {
				c.WriteString(enginetest.Line(72+float64(k)*115, top, 72+float64(k)*115, top-float64(len(rows))*18))
			}
		}
		f.Pages = append(f.Pages, enginetest.Page{Content: c.String()})
	}
	return f.Bytes()
}

// put writes a file below a folder and answers its path.
func put(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func evaluate(script string) chromedp.Action { return chromedp.Evaluate(script, nil) }
