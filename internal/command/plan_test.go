package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf/internal/capacity"
)

// A fleet is planned without a service, by costs of one's own too.
func TestPlan(t *testing.T) {
	t.Setenv("SHEAF_DATA_DIR", t.TempDir())
	times := filepath.Join(t.TempDir(), "times.json")
	if err := os.WriteFile(times, []byte(`{"executor.page": 100}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o := typed{}.run("plan", "--executors", "2", "--tenants", "20", "--pages-per-day", "2e6", "--service-times", times)
	if o.code != 0 {
		t.Fatal(o.err)
	}
	for _, text := range []string{"keeps up with all of 2", "executors' cores", "add executors", "interactive", "largest 1 %", "artifacts", "Redis"} {
		if !strings.Contains(o.out, text) {
			t.Errorf("it says %q, without %q", o.out, text)
		}
	}
	o = typed{}.run("plan", "--json", "--pages-per-day", "1e5", "--service-times", times)
	var r capacity.Report
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || r.Docs == 0 || len(r.Parts) < 3 || r.Times[1].Value != 100 {
		t.Errorf("%v: %s", err, o.out)
	}
	if err := os.WriteFile(times, []byte(`{"executor.pages": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := (typed{}).run("plan", "--service-times", times); o.code != exitUsage || !strings.Contains(o.err, `"executor.pages"`) {
		t.Errorf("an unknown cost: %d %s", o.code, o.err)
	}
}
