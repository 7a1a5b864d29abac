package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/internal/indexset"
	"sheaf/internal/keeper"
)

// After the settings name another embedding model every search is answered in
// full, by the old model and then by the new one, and the old index goes. A
// deleted index is filled anew, and until it is whole, answers say so.
func TestEmbeddingModelChangesWithoutAGap(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var hold chan struct{} // not nil: requests wait until it is closed
	asked := make(chan struct{}, 1)
	var embedded atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		wait := hold
		mu.Unlock()
		if wait != nil {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-wait
		}
		var ask struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		data := make([]map[string]any, len(ask.Input))
		for i, text := range ask.Input {
			embedded.Add(1)
			v := make([]float32, 512)
			for word := range strings.FieldsSeq(text) {
				v[xxhash.Sum64String(strings.Trim(word, "."))%512]++
			}
			data[i] = map[string]any{"index": i, "embedding": v}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(front.Close)

	fill := make(chan struct{}) // closed: the keeper fills
	close(fill)
	quick := func(m *command.Main) {
		m.IndexesFunc = func(c *indexset.Config) {
			c.Follow, c.Grace, c.Slice = 20*time.Millisecond, 20*time.Millisecond, 2
		}
		m.KeeperFunc = func(c *keeper.Config) {
			step, may := c.Fill, fill
			c.FillEvery = 20 * time.Millisecond
			c.Fill = func(ctx context.Context) (bool, error) {
				select {
				case <-may:
					return step(ctx)
				case <-ctx.Done():
					return false, ctx.Err()
				}
			}
		}
	}
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	s := startWith(t, cfg, quick)
	birds := []string{"heron", "stork", "egret", "ibis", "bittern", "spoonbill", "curlew", "dunlin", "godwit", "plover"}
	sentence := func(bird string) source {
		return text(bird+".txt", fmt.Sprintf("In the early morning the %s waits beside the water until something moves. Nobody disturbs a %s that waits.", bird, bird))
	}
	var files []source
	for _, b := range birds {
		files = append(files, sentence(b))
	}
	if job, _ := s.send(nil, files...); job.State != sheaf.DocSucceeded {
		t.Fatalf("the job ended %s", job.State)
	}
	status := func() *indexset.Status {
		t.Helper()
		var answer api.StatsAnswer
		s.get("/v1/stats", &answer)
		return answer.Index
	}
	// found is by which model the document of a bird is found, "" where it is not.
	found := func(bird string) (model string, stale bool, err error) {
		answer, err := s.search(t.Context(), defaultDataset, map[string]any{"query": bird, "limit": 5})
		if err != nil {
			return "", false, err
		}
		for _, h := range answer.Hits {
			if h.Document.Name == bird+".txt" {
				model = answer.Index.Model
			}
		}
		return model, answer.Index.Stale, nil
	}
	before := status().Model
	s.stop()

	cfg.Embed.Driver, cfg.Embed.URL, cfg.Embed.Model = "openai", front.URL+"/v1", "words"
	s = startWith(t, cfg, quick)
	after := status().Configured
	if st := status(); st.Model != before || after == before || st.Stale || st.Migration != nil {
		t.Fatalf("after the restart: %+v", st)
	}
	searching, enough := context.WithCancel(t.Context())
	var models []string
	gap := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			bird := birds[i%len(birds)]
			model, stale, err := found(bird)
			if err == nil && (model == "" || stale) {
				err = fmt.Errorf("%s is found by %q, stale %v", bird, model, stale)
			}
			if err != nil || searching.Err() != nil {
				gap <- err
				return
			}
			if !slices.Contains(models, model) {
				models = append(models, model)
			}
		}
	}()
	mu.Lock()
	hold = make(chan struct{})
	mu.Unlock()
	act := func(a indexset.Action) {
		t.Helper()
		s.post("/v1/index/migration", map[string]any{"action": a}, nil)
	}
	act(indexset.Start)
	<-asked // texts are under way to the new model
	if m := status().Migration; m == nil || m.Phase != indexset.Filling || m.Ranges != 0 || m.TotalRanges != len(birds) || m.To != after {
		t.Fatalf("while it is filled: %+v", m)
	}
	if model, _, err := found("ibis"); model != before {
		t.Fatalf("while it is filled ibis is found by %q: %v", model, err)
	}
	mu.Lock()
	close(hold)
	hold = nil
	mu.Unlock()
	if job, _ := s.send(nil, sentence("avocet")); job.State != sheaf.DocSucceeded {
		t.Fatalf("an upload meanwhile ended %s", job.State)
	}
	phase := func(p indexset.Phase) {
		t.Helper()
		waitFor(t, string(p), func() bool {
			m := status().Migration
			if m != nil && m.Phase == indexset.Refused {
				t.Fatalf("the gate refuses: %+v", m.Gate)
			}
			return m != nil && m.Phase == p && m.Wanted == ""
		})
	}
	phase(indexset.Ready)
	if model, _, err := found("avocet"); model != before {
		t.Fatalf("before the switch avocet is found by %q: %v", model, err)
	}
	act(indexset.Switch)
	phase(indexset.Switched)
	for _, b := range append(birds, "avocet") {
		if model, _, err := found(b); model != after {
			t.Errorf("after the switch %s is found by %q: %v", b, model, err)
		}
	}
	act(indexset.Confirm)
	waitFor(t, "the former index to go", func() bool { return missing(filepath.Join(cfg.DataDir, "index.db")) })
	enough()
	if err := <-gap; err != nil {
		t.Error("a search meanwhile:", err)
	}
	if !slices.Equal(models, []string{before, after}) {
		t.Errorf("searches were answered by %q", models)
	}
	s.stop()

	// A deleted index: the vectors are stored, so that nothing is embedded.
	left, err := filepath.Glob(filepath.Join(cfg.DataDir, "index*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("no index in the data folder: %v", err)
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	fill = make(chan struct{})
	s = startWith(t, cfg, quick)
	if model, stale, err := found("heron"); err != nil || model != "" || !stale {
		t.Errorf("of a deleted index: found by %q, stale %v, %v", model, stale, err)
	}
	if st := status(); !st.Stale || st.Reason == "" || st.Migration == nil || !st.Migration.Rebuild {
		t.Errorf("of a deleted index the statistics say %+v", st)
	}
	texts := embedded.Load()
	close(fill)
	waitFor(t, "the index to be whole", func() bool { return !status().Stale })
	if n := embedded.Load(); n != texts {
		t.Errorf("%d texts were embedded anew", n-texts)
	}
	for _, b := range append(birds, "avocet") {
		if model, stale, err := found(b); model != after || stale {
			t.Errorf("of the index that was filled anew %s is found by %q, stale %v: %v", b, model, stale, err)
		}
	}
}
