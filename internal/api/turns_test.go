package api

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"sheaf"
)

// A tenant that asks for hundreds of images waits for its own, others for at most
// two of them; and nothing is kept of tenants that ask no more.
func TestImagesWaitForThoseOfTheirTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 100 * time.Millisecond
		s := &Server{drawing: newTurns(tenantImages)}
		parser := semaphore.NewWeighted(1) // serves in the order of requests, as a pool does
		image := func(ctx context.Context, tenant string) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if err != nil {
				return err
			}
			ctx, end, err := s.draw(r, &sheaf.Document{TenantID: tenant})
			if err != nil {
				return err
			}
			defer end()
			if err := parser.Acquire(ctx, 1); err != nil {
				return sheaf.FailRetryable(sheaf.CategoryCapacity, "parser_busy", "No parser was free.")
			}
			defer parser.Release(1)
			time.Sleep(each)
			return nil
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		late := 0
		for range 400 {
			all.Go(func() {
				if err := image(t.Context(), "many"); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if f := sheaf.AsFailure(err, ""); f.Code != "parser_busy" || !f.Retryable {
						t.Error(err)
					}
					late++
				}
			})
		}
		time.Sleep(time.Second)
		for range 10 {
			begun := time.Now()
			if err := image(t.Context(), "one"); err != nil || time.Since(begun) > (tenantImages+1)*each {
				t.Errorf("after %s: %v", time.Since(begun), err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if image(gone, "many") == nil {
			t.Error("an image that nobody waits for was drawn")
		}
		all.Wait()
		if late == 0 || late > 130 {
			t.Errorf("%d images were given up", late)
		}
		if len(s.drawing.of) != 0 {
			t.Errorf("%d tenants are kept", len(s.drawing.of))
		}
	})
}
