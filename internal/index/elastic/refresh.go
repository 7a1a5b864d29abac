package elastic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"sheaf"
	"sheaf/internal/index"
)

// Writes become visible with a refresh, which makes a segment. If each publication
// requested one, refreshes would be most of Elasticsearch's work per chunk. The
// server automatically makes one every RefreshEvery, for all processes, if there is
// anything new, and publications wait for it. After a quiet period one is requested
// immediately, so that a lone document does not have to wait.

const (
	waitsAtOnce = 16 // requests of a process that wait for a refresh
	quietAfter  = 3  // periods without a refresh
	// busyShare is the share of periods with a refresh, since this process last
	// checked, from which others must be publishing.
	busyShare = 0.5
	lookBack  = time.Minute // an older check says nothing about now
	// marker is an id that no chunk has. Deleting it changes nothing, but is an
	// operation whose response can wait for the refresh.
	marker    = "refresh"
	routeable = 64 // routings tried per shard
)

// pace is what a process knows about the index's refreshes.
type pace struct {
	sync.Mutex
	asked    time.Time // when this process last wanted one
	looked   time.Time
	total    float64 // refreshes per shard until then
	settled  bool
	routings []string // one per shard
}

// interval is RefreshEvery as an index setting.
func (x *Index) interval() string {
	if x.config.RefreshEvery < 0 {
		return "30s"
	}
	return fmt.Sprintf("%dms", x.config.RefreshEvery.Milliseconds())
}

// settle sets this version's interval on an index of an earlier one, and finds a
// routing to each shard. It runs once.
func (x *Index) settle(ctx context.Context) error {
	x.pace.Lock()
	defer x.pace.Unlock()
	if x.pace.settled || x.config.RefreshEvery < 0 {
		return nil
	}
	var settings map[string]struct {
		Settings map[string]string `json:"settings"`
	}
	asked := []string{"index.refresh_interval", "index.number_of_shards"}
	if err := x.do(ctx, esapi.IndicesGetSettingsRequest{Index: []string{x.alias}, Name: asked, FlatSettings: esapi.BoolPtr(true)}, &settings); err != nil {
		return err
	}
	shards := 0
	for name, s := range settings {
		n, _ := strconv.Atoi(s.Settings[asked[1]])
		shards = max(shards, n)
		if s.Settings[asked[0]] == "30s" {
			every := map[string]any{"index": map[string]any{"refresh_interval": x.interval()}}
			if err := x.do(ctx, esapi.IndicesPutSettingsRequest{Index: []string{name}, Body: encoded(every)}, nil); err != nil {
				return err
			}
		}
	}
	routings, err := x.routings(ctx, shards)
	if err == nil {
		x.pace.settled, x.pace.routings = true, routings
	}
	return err
}

// routings finds one routing per shard; nil if that is not possible.
func (x *Index) routings(ctx context.Context, shards int) ([]string, error) {
	if shards == 1 {
		return []string{"0"}, nil
	}
	found := map[string]string{}
	for i := 0; i < shards*routeable && len(found) < shards; i++ {
		var answer struct {
			Shards [][]struct {
				Shard int    `json:"shard"`
				Index string `json:"index"`
			} `json:"shards"`
		}
		routing := strconv.Itoa(i)
		if err := x.do(ctx, esapi.SearchShardsRequest{Index: []string{x.alias}, Routing: routing}, &answer); err != nil {
			return nil, err
		}
		if len(answer.Shards) != 1 || len(answer.Shards[0]) == 0 { // several indexes
			return nil, nil
		}
		found[strconv.Itoa(answer.Shards[0][0].Shard)] = routing
	}
	if len(found) < shards {
		return nil, nil
	}
	all := make([]string, 0, shards)
	for _, r := range found {
		all = append(all, r)
	}
	return all, nil
}

// Refresh makes previous writes visible. It waits for the server's next refresh,
// for RefreshEvery and a little more, unless there has been none for a while.
func (x *Index) Refresh(ctx context.Context) error {
	if err := x.ensure(ctx); err != nil {
		return err
	}
	if x.quiet(ctx) {
		return x.refreshNow(ctx)
	}
	index.Waiting(ctx)
	failed, err := x.waits.DoWithin(ctx, struct{}{}, min(gatherTime, x.config.RefreshEvery/2))
	return cmp.Or(err, failed)
}

// quiet reports whether an extra refresh is cheap now.
func (x *Index) quiet(ctx context.Context) bool {
	now := time.Now()
	x.pace.Lock()
	before := x.pace.asked
	x.pace.asked = now
	routed := len(x.pace.routings) > 0
	x.pace.Unlock()
	if !routed {
		return true
	}
	if now.Sub(before) < quietAfter*x.config.RefreshEvery {
		return false
	}
	total, err := x.refreshCount(ctx)
	if err != nil {
		return true // the refresh reports what is wrong
	}
	x.pace.Lock()
	defer x.pace.Unlock()
	since, more := now.Sub(x.pace.looked), total-x.pace.total
	x.pace.looked, x.pace.total = now, total
	return since > lookBack || more < busyShare*float64(since)/float64(x.config.RefreshEvery)
}

// refreshCount is the average number of refreshes per shard.
func (x *Index) refreshCount(ctx context.Context) (float64, error) {
	var stats struct {
		Shards struct {
			Successful int `json:"successful"`
		} `json:"_shards"`
		All struct {
			Total struct {
				Refresh struct {
					Total int `json:"external_total"`
				} `json:"refresh"`
			} `json:"total"`
		} `json:"_all"`
	}
	err := x.do(ctx, esapi.IndicesStatsRequest{Index: []string{x.alias}, Metric: []string{"refresh"}}, &stats)
	return float64(stats.All.Total.Refresh.Total) / float64(max(stats.Shards.Successful, 1)), err
}

// refreshNow requests a refresh. Callers that arrive during one share the next.
func (x *Index) refreshNow(ctx context.Context) error {
	failed, err := x.refreshes.Do(ctx, struct{}{})
	return cmp.Or(err, failed)
}

// await returns once a refresh has started after the call. If the server makes
// none, it requests one.
func (x *Index) await(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, x.config.RefreshEvery+min(x.config.RefreshEvery, time.Second)/2)
	err := x.mark(limited)
	cancel()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return x.refreshNow(ctx)
}

// mark performs an operation in each shard whose response waits until it, and
// everything before it, is visible, on replicas too.
func (x *Index) mark(ctx context.Context) error {
	x.pace.Lock()
	routings := x.pace.routings
	x.pace.Unlock()
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	for _, r := range routings {
		if err := encoder.Encode(map[string]any{"delete": map[string]any{"_id": marker, "routing": r}}); err != nil {
			return err
		}
	}
	var answer bulkItems
	err := x.do(ctx, esapi.BulkRequest{
		Index: x.alias, Body: &body, Header: ndjson(), Refresh: "wait_for",
		RequireAlias: esapi.BoolPtr(true), FilterPath: []string{"errors", "items.*.status", "items.*.error"},
	}, &answer)
	if err != nil {
		return err
	}
	if len(answer.Items) != len(routings) {
		return fmt.Errorf("%w: Elasticsearch answered %d of %d items", sheaf.ErrUnavailable, len(answer.Items), len(routings))
	}
	for _, item := range answer.Items {
		for _, result := range item {
			if result.Status >= 300 && (result.Status != http.StatusNotFound || result.Error.Type != "") {
				return &answerError{result.Status, result.Error.Type, result.Error.text()}
			}
		}
	}
	return nil
}

// flatVectors have no graph: a search compares them one by one, which for some ten
// thousand takes no longer than the rest of it. A graph adds almost half to the
// work of Elasticsearch per chunk: measured, .59 CPU-ms with and .40 without.
const flatVectors = "int8_flat"

func graphOptions() map[string]any {
	return map[string]any{"type": "int8_hnsw", "m": 16, "ef_construction": graphEffort}
}

// growsLater reports whether a new index starts without a graph. Servers before
// 8.18, which cannot rescore, are never changed.
func (x *Index) growsLater() bool { return x.config.GraphFrom > 0 && x.rescores.Load() }

// wrote counts entries and occasionally checks whether a graph is due.
func (x *Index) wrote(ctx context.Context, n int) {
	if !x.flat.Load() || x.unseen.Add(int64(n)) < int64(max(x.config.GraphFrom/10, 1)) {
		return
	}
	x.unseen.Store(0)
	x.grow(ctx)
}

// grow enables a graph for new segments once the index is large; existing segments
// get one when they are merged. Failures are retried later.
func (x *Index) grow(ctx context.Context) {
	var stats struct {
		All struct {
			Primaries struct {
				Docs struct {
					Count int `json:"count"`
				} `json:"docs"`
			} `json:"primaries"`
		} `json:"_all"`
	}
	if err := x.do(ctx, esapi.IndicesStatsRequest{Index: []string{x.alias}, Metric: []string{"docs"}}, &stats); err != nil || stats.All.Primaries.Docs.Count < x.config.GraphFrom {
		return
	}
	vector := map[string]any{"type": "dense_vector", "dims": x.config.Dim, "index": true, "similarity": "cosine", "index_options": graphOptions()}
	if x.do(ctx, esapi.IndicesPutMappingRequest{Index: []string{x.alias}, Body: encoded(map[string]any{"properties": map[string]any{"vector": vector}})}, nil) == nil {
		x.flat.Store(false)
	}
}
