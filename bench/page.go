package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// The number of documents in the page, and of views.
const (
	pageDocuments = 10_000
	pageViews     = 7
	noBrowser     = "chromium is not installed (apt-get install chromium)"
)

// drawn records when the first row of the documents has been painted: two frames
// after it was inserted, since what is inserted during a frame is painted at its end.
const drawn = `new MutationObserver((_, o) => {
	if (!document.querySelector(".docs tr[data-id] a")) return;
	o.disconnect();
	requestAnimationFrame(() => requestAnimationFrame(() => { window.benchDrawn = performance.now(); }));
}).observe(document, {subtree: true, childList: true})`

// browse starts a browser with an empty cache and calls f with a tab.
func (b *bench) browse(ctx context.Context, browser string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.UserDataDir(filepath.Join(b.tmp, "page-browser")), chromedp.NoSandbox, chromedp.NoFirstRun,
		chromedp.DisableGPU, chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, closeTab := chromedp.NewContext(ctx)
	defer closeTab()
	if err := chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800)); err != nil {
		return fmt.Errorf("starting %s: %w", browser, err)
	}
	return f(ctx)
}

// shown performs an action on the page and measures the milliseconds until the
// frame after the one in which its effect appears.
func shown(act, there string, ms *float64) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf(`(async () => {
		const at = performance.now();
		%s;
		while (!(%s)) await new Promise(requestAnimationFrame);
		await new Promise(requestAnimationFrame);
		return performance.now() - at;
	})()`, act, there), ms, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })
}

// page measures how long the page takes to show its 10,000 documents, and to
// respond to typical actions, in a real browser on the same machine.
func (b *bench) page(ctx context.Context) error {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		leftOut("page", noBrowser)
		return nil
	}
	data := filepath.Join(b.tmp, "page")
	if err := pageFill(ctx, data); err != nil {
		return fmt.Errorf("making %d documents: %w", pageDocuments, err)
	}
	s, err := b.start(ctx, data)
	if err != nil {
		return err
	}
	defer s.discard()
	if err := b.browse(ctx, browser, func(ctx context.Context) error { return b.pageOfMany(ctx, s) }); err != nil {
		return err
	}
	if b.corpus == "" {
		leftOut("page.turn", "no corpus")
		return nil
	}
	return b.served(ctx, "page-work", func(s *server) error {
		job, err := s.upload(ctx, sheaf.ParseConfig{Pages: sheaf.Set([]sheaf.Range{{From: 1, To: 24}})}, onDisk(filepath.Join(b.corpus, "pdf-large", "octave.pdf")))
		if err == nil {
			_, err = s.ended(ctx, job.ID)
		}
		if err != nil {
			return err
		}
		var docs struct {
			Items []sheaf.Document `json:"items"`
		}
		if err := s.call(ctx, "GET", "/v1/jobs/"+job.ID+"/documents", nil, &docs); err != nil {
			return err
		}
		return b.browse(ctx, browser, func(ctx context.Context) error {
			return b.pageTurned(ctx, s, docs.Items[0].ID)
		})
	})
}

// pageOfMany opens the list of 10,000 documents, scrolls to the end, sorts it and
// selects all.
func (b *bench) pageOfMany(ctx context.Context, s *server) error {
	if err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(drawn).Do(ctx)
		return err
	})); err != nil {
		return err
	}
	var took, jump, sorted, selected []float64
	var size int
	for range pageViews {
		var first, end, sort, all float64
		if err := chromedp.Run(ctx, chromedp.Navigate("about:blank"), network.ClearBrowserCache(), chromedp.Navigate(s.url+"/datasets/default"),
			chromedp.Poll(`window.benchDrawn`, &first, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)),
			chromedp.Evaluate(`performance.getEntries().filter(e => e.transferSize && e.startTime < window.benchDrawn).reduce((n, e) => n + e.transferSize, 0)`, &size),
			chromedp.Poll(`document.querySelector("#line").dataset.state === "live"`, nil, chromedp.WithPollingTimeout(time.Minute)),
			shown(`document.querySelector(".scroller").scrollTop = 1e9`, fmt.Sprintf(`document.querySelector('.docs tr[aria-rowindex="%d"][data-id]')`, pageDocuments+1), &end),
			shown(`[...document.querySelectorAll(".docs th button")].find(b => b.textContent.startsWith("Name")).click()`, `document.querySelector('.docs tr[aria-rowindex="2"] a')?.title === "letter 00000 to the mill.pdf"`, &sort),
			shown(`document.querySelector(".docs thead input").click()`, `document.querySelector(".batch")?.textContent.includes("10,000")`, &all),
		); err != nil {
			return fmt.Errorf("opening the page: %w", err)
		}
		took, jump, sorted, selected = append(took, first), append(jump, end), append(sorted, sort), append(selected, all)
	}
	b.atMost("page.first", median(took), "ms", 1000, fmt.Sprintf("from the address to the first rows of %d documents on the screen, empty cache, median of %d, longest %s ms, load %s", pageDocuments, pageViews, number(slices.Max(took)), load()))
	b.atMost("page.bytes", float64(size)/1e3, "KB", 100, "sent for it")
	for _, r := range []struct {
		name, what string
		took       []float64
	}{{"page.end", "to the last row of them", jump}, {"page.sort", "until they stand in the order of their names", sorted}, {"page.select", "until all are selected", selected}} {
		b.atMost(r.name, median(r.took), "ms", 1000, fmt.Sprintf("%s, median of %d, longest %s ms", r.what, pageViews, number(slices.Max(r.took))))
	}
	return nil
}

// pageTurned turns pages of a PDF, waiting for each page's picture.
func (b *bench) pageTurned(ctx context.Context, s *server, id string) error {
	picture := func(n int) string {
		return fmt.Sprintf(`(i => i?.complete && i.naturalWidth && i.src.includes("/pages/%d/"))(document.querySelector(".page img"))`, n)
	}
	const first, turns = 3, 12
	if err := chromedp.Run(ctx, chromedp.Navigate(fmt.Sprintf("%s/datasets/default/documents/%s?page=%d", s.url, id, first)), chromedp.Poll(picture(first), nil, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		return fmt.Errorf("opening the document: %w", err)
	}
	var took []float64
	for n := first + 1; n <= first+turns; n++ {
		var ms float64
		if err := chromedp.Run(ctx, chromedp.Sleep(time.Second), shown(`[...document.querySelectorAll("button")].find(b => b.textContent === "Next").click()`, picture(n), &ms)); err != nil {
			return fmt.Errorf("turning to page %d: %w", n, err)
		}
		took = append(took, ms)
	}
	b.atMost("page.turn", median(took), "ms", 150, fmt.Sprintf("to the next page of a PDF, until its picture is drawn, once a second, median of %d, longest %s ms, load %s", turns, number(slices.Max(took)), load()))
	return nil
}

// pageBusy has a dataset ingest one job of 10,000 files while its page is open, and
// measures the CPU time of the page's thread: in the minute of the upload, in one
// in which the job only runs, and in one on the job's page. There are only two
// workers, so that the job outlasts all three.
func (b *bench) pageBusy(ctx context.Context) error {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		leftOut("page.busy", noBrowser)
		return nil
	}
	s, err := b.spawn(filepath.Join(b.tmp, "page-busy"), []string{"SHEAF_EXECUTOR_WORKERS=2"}, "up")
	if err != nil {
		return err
	}
	defer s.discard()
	if err := s.listening(ctx); err != nil {
		return err
	}
	return b.browse(ctx, browser, func(ctx context.Context) error {
		if err := chromedp.Run(ctx, performance.Enable()); err != nil {
			return err
		}
		if err := opened(ctx, s.url+"/datasets/default"); err != nil {
			return err
		}
		var job sheaf.Job
		if err := s.call(ctx, "POST", "/v1/datasets/default/jobs", map[string]string{}, &job); err != nil {
			return err
		}
		sent := make(chan error, 1)
		var taken time.Duration
		go func() {
			begun := time.Now()
			err := b.fillJob(ctx, s, job.ID)
			taken = time.Since(begun)
			sent <- err
		}()
		if err := b.busyMinute(ctx, s, job.ID, "page.busy.intake", "the list is open and the files of the job come in"); err != nil {
			return err
		}
		if err := <-sent; err != nil {
			return err
		}
		b.tell("page.intake", taken.Seconds(), "s", fmt.Sprintf("until %d files were taken in", pageDocuments))
		if err := b.busyMinute(ctx, s, job.ID, "page.busy", "the list is open and the job runs"); err != nil {
			return err
		}
		if err := opened(ctx, s.url+"/jobs/"+job.ID); err != nil {
			return err
		}
		return b.busyMinute(ctx, s, job.ID, "page.busy.job", "the job's own page is open and it runs")
	})
}

// opened navigates to a view and waits until it receives live updates.
func opened(ctx context.Context, url string) error {
	if err := chromedp.Run(ctx, chromedp.Navigate(url), chromedp.Poll(`document.querySelector("#line").dataset.state === "live"`, nil, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		return fmt.Errorf("opening %s: %w", url, err)
	}
	return nil
}

// fillJob adds 10,000 small files to an open job, and closes it.
func (b *bench) fillJob(ctx context.Context, s *server, job string) error {
	const atOnce = 1000
	for range pageDocuments / atOnce {
		var set []file
		for range atOnce {
			set = append(set, b.text(200))
		}
		if _, err := s.join(ctx, job, sheaf.ParseConfig{}, set...); err != nil {
			return err
		}
	}
	return s.call(ctx, "POST", "/v1/jobs/"+job+":close", nil, nil)
}

// busyMinute measures for one minute how long the page's thread is busy. It fails
// if the job ends before the minute does.
func (b *bench) busyMinute(ctx context.Context, s *server, id, row, while string) error {
	at := func() (metrics map[string]float64, done int, err error) {
		metrics = map[string]float64{}
		err = chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
			all, err := performance.GetMetrics().Do(ctx)
			for _, m := range all {
				metrics[m.Name] = m.Value
			}
			return err
		}))
		if err != nil {
			return nil, 0, err
		}
		var job sheaf.Job
		err = s.call(ctx, "GET", "/v1/jobs/"+id, nil, &job)
		for state, n := range job.Documents.ByState {
			if state.Terminal() {
				done += n
			}
		}
		return metrics, done, err
	}
	before, ended, err := at()
	if err != nil {
		return err
	}
	begun := time.Now()
	select {
	case <-time.After(time.Minute):
	case <-s.exited:
		return s.broken("the service ended at work")
	case <-ctx.Done():
		return ctx.Err()
	}
	after, endedAfter, err := at()
	if err != nil {
		return err
	}
	minutes := time.Since(begun).Minutes()
	if endedAfter >= pageDocuments {
		return fmt.Errorf("%s: the job ended before the minute did; the machine is faster than this measure thinks", row)
	}
	of := func(name string) float64 { return (after[name] - before[name]) / minutes }
	// In wall time its tasks take longer if others use the machine too.
	b.atMost(row, of("ThreadTime"), "s a minute", 2, fmt.Sprintf("of CPU that the page's main thread takes while %s, %d documents of %d ended in it; as the clock goes its tasks took %s s, scripts of that %s s, layout %s s, styles %s s; load %s",
		while, endedAfter-ended, pageDocuments, number(of("TaskDuration")), number(of("ScriptDuration")), number(of("LayoutDuration")), number(of("RecalcStyleDuration")), load()))
	return nil
}

// pageFill creates waiting documents, as after a large upload: their jobs are shown
// too.
func pageFill(ctx context.Context, data string) (err error) {
	store, err := openStore(ctx, sqlstore.Config{Driver: "sqlite", DSN: filepath.Join(data, "sheaf.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: sheaf.LocalTenant, Name: "Local", Weight: 1, Cap: 8}); err != nil {
		return err
	}
	const dataset = "ds-bench"
	if _, err := store.CreateDataset(ctx, sheaf.Dataset{ID: dataset, TenantID: sheaf.LocalTenant, Name: "default"}); err != nil {
		return err
	}
	if _, err := store.SetPaused(ctx, sheaf.LocalTenant, taskstore.PauseScope{DatasetID: dataset}, true); err != nil {
		return err
	}
	for from := 0; from < pageDocuments; from += 1000 {
		var docs []taskstore.NewDocument
		for i := from; i < from+1000; i++ {
			id := sheaf.NewID()
			docs = append(docs, taskstore.NewDocument{
				Document: sheaf.Document{ID: id, Name: fmt.Sprintf("letter %05d to the mill.pdf", i), MediaType: pdfType, Size: int64(1000 + i), SHA256: strings.Repeat("0", 32) + id, BlobKey: sheaf.OriginalPrefix(sheaf.LocalTenant, id) + "v1"},
				Plan:     sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(`{}`)},
			})
		}
		if _, err := store.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, DatasetID: dataset, Kind: sheaf.JobIngest}, docs, ""); err != nil {
			return err
		}
	}
	return nil
}
