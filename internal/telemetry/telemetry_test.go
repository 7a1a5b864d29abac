package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// While the database is away, what the process itself knows is still there.
func TestMetricsOutliveTheDatabase(t *testing.T) {
	m := New()
	m.WatchQueues(func(context.Context) ([]sheaf.TenantQueue, error) { return nil, sheaf.ErrUnavailable })
	m.Claimed(sheaf.KindParse, time.Second)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, `sheaf_claims_total{kind="parse"} 1`) || strings.Contains(body, "sheaf_queue_depth{") {
		t.Errorf("%d %s", w.Code, body)
	}
}
