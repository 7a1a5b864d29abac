package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/child"
)

// manual writes a file of some pages of the largest manual of the corpus, with its
// bookmarks removed or replaced by one every twelve pages.
func (b *bench) manual(name string, bookmarks bool, pages ...string) (path string, err error) {
	path = filepath.Join(b.tmp, name)
	if err := api.CollectFile(filepath.Join(b.corpus, "pdf-large", "fullrefman.pdf"), path, pages, nil); err != nil {
		return "", fmt.Errorf("taking pages %v of the manual: %w", pages, err)
	}
	count, err := api.PageCountFile(path)
	if err != nil {
		return "", err
	}
	if !bookmarks {
		_ = api.RemoveBookmarksFile(path, path, nil) // it may have none
		return path, nil
	}
	var marks []pdfcpu.Bookmark
	for page := 1; page <= count; page += 12 {
		marks = append(marks, pdfcpu.Bookmark{Title: fmt.Sprintf("Part %d", len(marks)+1), PageFrom: page})
	}
	return path, api.AddBookmarksFile(path, path, marks, true, nil)
}

// planShare compares the time to plan a manual without bookmarks with the total,
// from upload to searchable.
func (b *bench) planShare(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("plan.share", "no corpus")
		return nil
	}
	for _, pages := range []int{300, 2400} {
		path, err := b.manual(fmt.Sprintf("plan%d.pdf", pages), false, fmt.Sprintf("1-%d", pages))
		if err != nil {
			return err
		}
		var all time.Duration
		if err := b.served(ctx, "plan", func(s *server) error {
			if err := s.warm(ctx, b.corpus); err != nil {
				return err
			}
			cpu := cpuTime(s.pid())
			job, err := s.upload(ctx, sheaf.ParseConfig{}, onDisk(path))
			if err == nil {
				job, err = s.ended(ctx, job.ID)
			}
			if err == nil && job.State != sheaf.DocSucceeded {
				err = fmt.Errorf("the manual ended %s: %s", job.State, s.why(ctx, job.ID))
			}
			all = cpuTime(s.pid()) - cpu
			return err
		}); err != nil {
			return err
		}
		plan, err := b.planOnly(ctx, path)
		if err != nil {
			return err
		}
		b.atMost(fmt.Sprintf("plan.share.%d", pages), 100*plan.Seconds()/all.Seconds(), "% of the document's CPU", 10,
			fmt.Sprintf("%.2f of %.1f CPU-s", plan.Seconds(), all.Seconds()))
	}
	return nil
}

// planOnly returns the CPU time a warm child takes to plan a file.
func (b *bench) planOnly(ctx context.Context, path string) (time.Duration, error) {
	pool, err := b.parsers(1, b.pdf)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	plan := func(key string) (time.Duration, error) {
		before := cpuTime(os.Getpid())
		_, _, cleanup, err := pool.Plan(ctx, child.Source{Path: path, Key: key, Format: "pdf", Options: parser.Options{Name: filepath.Base(path), MediaType: parser.MediaPDF}})
		cleanup()
		return cpuTime(os.Getpid()) - before, err
	}
	if _, err := plan("warm"); err != nil {
		return 0, err
	}
	return plan("measured")
}

// warm triggers the processes' one-time work.
func (s *server) warm(ctx context.Context, corpus string) error {
	job, err := s.upload(ctx, sheaf.ParseConfig{Pages: sheaf.Set([]sheaf.Range{{From: 1, To: 24}})}, onDisk(filepath.Join(corpus, "pdf-large", "octave.pdf")))
	if err == nil {
		_, err = s.ended(ctx, job.ID)
	}
	return err
}

// changedPages are the pages that change, one per new version of a document.
var changedPages = []int{250, 100, 400, 175, 325}

// changedPage repeatedly replaces one page of 500 by another, or a short line on
// one page, and compares the time of the new versions with that of the first.
func (b *bench) changedPage(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("changed.page", "no corpus")
		return nil
	}
	for _, bookmarks := range []bool{false, true} {
		pages := make([]string, 500)
		for i := range pages {
			pages[i] = fmt.Sprint(i + 1)
		}
		first, err := b.manual("first.pdf", bookmarks, pages...)
		if err != nil {
			return err
		}
		var replaced, stamped []string
		for k, n := range changedPages {
			pages[n-1] = fmt.Sprint(1700 + k)
			path, err := b.manual(fmt.Sprintf("replaced%d.pdf", k), bookmarks, pages...)
			if err != nil {
				return err
			}
			replaced = append(replaced, path)
			before := append([]string{first}, stamped...)[k]
			stamped = append(stamped, filepath.Join(b.tmp, fmt.Sprintf("stamped%d.pdf", k)))
			if err := api.AddTextWatermarksFile(before, stamped[k], []string{fmt.Sprint(n)}, true, "Checked and approved", "points:9, scale:1 abs, rot:0, pos:bc, off:0 40", nil); err != nil {
				return fmt.Errorf("stamping a page: %w", err)
			}
		}
		for name, paths := range map[string][]string{"replaced": replaced, "stamped": stamped} {
			if bookmarks {
				name += ".bookmarks"
			}
			var shares, news, firsts []float64
			var job *sheaf.Job
			for range changedRounds {
				whole, again, last, err := b.changed(ctx, first, paths)
				if err != nil {
					return err
				}
				job = last
				shares, news, firsts = append(shares, 100*again.Seconds()/whole.Seconds()), append(news, again.Seconds()), append(firsts, whole.Seconds())
			}
			b.atMost("changed.page."+name, median(shares), "% of the first parse", 5,
				fmt.Sprintf("%.3f of %.2f CPU-s, mean of %d versions, rounds %.2f; of the last %d pages read, %d reused, %d tokens embedded; load %s",
					median(news), median(firsts), len(paths), shares, job.Usage.Pages, job.Reused.Pages, job.Usage.EmbeddedTokens, load()))
		}
	}
	return nil
}

// changedRounds is the number of services whose median is taken. A new version
// takes a tenth of a second, and a garbage collection a tenth of that: which
// version it falls into is chance, hence several.
const changedRounds = 3

// changed has a separate service read a file and then its next versions, and
// returns the time of the first, the mean of the others, and the job of the last.
func (b *bench) changed(ctx context.Context, first string, next []string) (whole, again time.Duration, job *sheaf.Job, err error) {
	err = b.served(ctx, "changed", func(s *server) error {
		if err := s.warm(ctx, b.corpus); err != nil {
			return err
		}
		id := sheaf.NewID()
		put := func(path string) (time.Duration, error) {
			f, err := os.Open(path)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			cpu := cpuTime(s.pid())
			var answer struct {
				Job *sheaf.Job `json:"job"`
			}
			if err := s.send(ctx, http.MethodPut, "/v1/datasets/default/documents/"+id+"?name=manual.pdf", "application/pdf", f, &answer); err != nil {
				return 0, err
			}
			if job, err = s.ended(ctx, answer.Job.ID); err != nil {
				return 0, err
			}
			if job.State != sheaf.DocSucceeded {
				return 0, fmt.Errorf("the manual ended %s: %s", job.State, s.why(ctx, job.ID))
			}
			return cpuTime(s.pid()) - cpu, nil
		}
		var err error
		if whole, err = put(first); err != nil {
			return err
		}
		for _, path := range next {
			took, err := put(path)
			if err != nil {
				return err
			}
			again += took / time.Duration(len(next))
		}
		return nil
	})
	return whole, again, job, err
}
