package pdf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/child"
)

// TestEveryRealFileEndsInAVerdict sends real files, many of them broken on
// purpose, through child processes: each must end in a plan or a failure with
// a sentence, each page in a status, and nothing may crash or hang.
func TestEveryRealFileEndsInAVerdict(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	files := append(corpus(t, "pdf/*.pdf"), corpus(t, "pdf-large/*.pdf")...)
	pool, err := child.New(child.Config{TempDir: t.TempDir(), Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	verdicts, codes, blocks := map[string]int{}, map[string]int{}, map[sheaf.BlockKind]int{}
	pages := 0
	note := func(f string, err error) {
		known, ok := errors.AsType[*sheaf.Failure](err)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			verdicts["opened"]++
		case ok && strings.HasSuffix(known.Message, "."):
			verdicts[known.Code]++
			if known.Category == sheaf.CategoryCrash || known.Category == sheaf.CategoryTimeout || known.Category == sheaf.CategoryCapacity {
				t.Errorf("%s: %s: %s\n%s", filepath.Base(f), known.Code, known.Message, known.Detail)
			}
		default:
			t.Errorf("%s: no verdict: %v", filepath.Base(f), err)
		}
	}
	work := make(chan string)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for f := range work {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				src := child.Source{Path: f, Options: parser.Options{Name: filepath.Base(f), MediaType: parser.MediaPDF}}
				plan, _, cleanup, err := pool.Plan(ctx, src)
				cleanup()
				next := 1
				if err == nil {
					to := min(plan.Units, 60)
					for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: to}}, plan.RangeSize) {
						err = errors.Join(err, pool.ParseIsolating(ctx, src, r, func(int) time.Duration { return 30 * time.Second }, func(u sheaf.UnitResult) error {
							if u.Unit != next {
								t.Errorf("%s: page %d where %d was due", filepath.Base(f), u.Unit, next)
							}
							next++
							mu.Lock()
							defer mu.Unlock()
							pages++
							code := string(u.Status)
							if u.Code != "" {
								code += " " + u.Code
							}
							codes[code]++
							for i := range u.Blocks {
								blocks[u.Blocks[i].Kind]++
								if err := sound(&u, &u.Blocks[i]); err != nil {
									t.Errorf("%s page %d: %v", filepath.Base(f), u.Unit, err)
								}
							}
							return nil
						}))
					}
					if err == nil && next != to+1 {
						t.Errorf("%s: %d of %d pages", filepath.Base(f), next-1, to)
					}
				}
				cancel()
				note(f, err)
			}
		})
	}
	for _, f := range files {
		work <- f
	}
	close(work)
	wg.Wait()
	s := pool.Stats()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%d files: %s", len(files), counts(verdicts))
	t.Logf("%d pages: %s", pages, counts(codes))
	t.Logf("blocks: %v", blocks)
	t.Logf("%+v", s)
}

func counts(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}
