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
	"github.com/chromedp/chromedp"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// What the page is opened on, and how often.
const (
	pageDocuments = 10_000
	pageViews     = 7
)

// drawn notes the moment at which the first row of the documents has been
// painted: two frames after it came into the table, since what is put in
// during a frame is painted at its end.
const drawn = `new MutationObserver((_, o) => {
	if (!document.querySelector(".docs tr[data-id] a")) return;
	o.disconnect();
	requestAnimationFrame(() => requestAnimationFrame(() => { window.benchDrawn = performance.now(); }));
}).observe(document, {subtree: true, childList: true})`

// page measures how long the page takes to show its documents where there are
// 10,000, in a real browser with an empty cache on the same machine.
func (b *bench) page(ctx context.Context) error {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		leftOut("page", "chromium is not installed (apt-get install chromium)")
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
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.UserDataDir(filepath.Join(b.tmp, "page-browser")), chromedp.NoSandbox, chromedp.NoFirstRun,
		chromedp.DisableGPU, chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, closeTab := chromedp.NewContext(ctx)
	defer closeTab()
	if err := chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(drawn).Do(ctx)
		return err
	})); err != nil {
		return fmt.Errorf("starting %s: %w", browser, err)
	}
	var took []float64
	var size int
	for range pageViews {
		var ms float64
		if err := chromedp.Run(ctx, chromedp.Navigate("about:blank"), network.ClearBrowserCache(), chromedp.Navigate(s.url+"/datasets/default"),
			chromedp.Poll(`window.benchDrawn`, &ms, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)),
			chromedp.Evaluate(`performance.getEntries().filter(e => e.transferSize && e.startTime < window.benchDrawn).reduce((n, e) => n + e.transferSize, 0)`, &size)); err != nil {
			return fmt.Errorf("opening the page: %w", err)
		}
		took = append(took, ms)
	}
	b.atMost("page.first", median(took), "ms", 1000, fmt.Sprintf("from the address to the first rows of %d documents on the screen, empty cache, median of %d, longest %s ms, load %s", pageDocuments, pageViews, number(slices.Max(took)), load()))
	b.atMost("page.bytes", float64(size)/1e3, "KB", 200, "sent for it")
	return nil
}

// pageFill makes documents that wait, as after a large upload: what shows them
// has their jobs to show, too.
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
