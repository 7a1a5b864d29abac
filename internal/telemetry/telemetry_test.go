package telemetry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// While the database is away, what the process itself knows is still there,
// and what was last known of the queues.
func TestMetricsOutliveTheDatabase(t *testing.T) {
	m := New()
	m.Claimed(&sheaf.Task{Kind: sheaf.KindParse, Lane: 2, CreatedAt: time.UnixMilli(0), RunAt: time.UnixMilli(500), StartedAt: time.UnixMilli(1500)})
	m.Promoted(2, 100*time.Millisecond)
	for _, line := range []string{`sheaf_task_wait_seconds_sum{kind="parse"} 1`, `sheaf_promotion_seconds_sum{lane="normal",until="claimed"} 1`, `sheaf_promotion_seconds_sum{lane="normal",until="queued"} 0.1`} {
		if body := scrape(t, m); !strings.Contains(body, line+"\n") {
			t.Errorf("%q is not in %s", line, body)
		}
	}
	if body := scrape(t, m); !strings.Contains(body, `sheaf_claims_total{kind="parse"} 1`) || strings.Contains(body, "sheaf_tasks_pending") {
		t.Error("before the keeper has measured:", body)
	}
	m.Leads(true)
	m.Measured(&taskstore.Backlog{Lanes: []taskstore.LaneBacklog{{Lane: 1, Pending: 3, Held: 2, OldestPendingAge: 4}}, Executors: 1, Tenants: []taskstore.TenantQueue{{TenantID: "acme", Dead: 5}}}, &taskstore.Population{Documents: map[sheaf.DocumentState]int{sheaf.DocFailed: 6}, Jobs: 7, Running: 1})
	m.Measured(&taskstore.Backlog{Lanes: []taskstore.LaneBacklog{{Lane: 1, Pending: 8}}}, nil)
	body := scrape(t, m)
	for _, line := range []string{`sheaf_tasks_pending{lane="interactive"} 8`, `sheaf_documents{state="failed"} 6`, `sheaf_documents{state="running"} 0`, `sheaf_jobs{state="ended"} 6`, `sheaf_executors 0`} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("%q is not in %s", line, body)
		}
	}
	m.Fair(&taskstore.Fairness{Index: 0.5, Tenants: 2})
	if body := scrape(t, m); !strings.Contains(body, "sheaf_fairness_index 0.5\n") {
		t.Error("the fairness is missing:", body)
	}
	if m.Fair(nil); strings.Contains(scrape(t, m), "\nsheaf_fairness_index") {
		t.Error("a fairness of nobody is told")
	}
	m.Fair(&taskstore.Fairness{Index: 0.5, Tenants: 2})
	m.Leads(false)
	if body := scrape(t, m); strings.Contains(body, "sheaf_tasks_pending") || strings.Contains(body, "sheaf_documents") || strings.Contains(body, "\nsheaf_fairness_index") {
		t.Error("a keeper that leads no more still tells:", body)
	}
}

// A rate of a series that begins with its first event misses that event.
func TestSeriesExistBeforeTheirFirstEvent(t *testing.T) {
	body := scrape(t, New())
	for _, line := range []string{`sheaf_tasks_total{kind="parse",state="dead"} 0`, `sheaf_lease_losses_total{kind="plan"} 0`, `sheaf_webhook_attempts_total{state="dead"} 0`, `sheaf_search_seconds_count{mode="hybrid"} 0`} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	return w.Body.String()
}
