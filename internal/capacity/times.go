package capacity

import (
	"encoding/json"
	"errors"
	"fmt"
)

// input is the index of a measured cost.
type input int

// Costs of work. CPU values are for one core of the machine that was measured.
const (
	executorDocument input = iota
	executorPage
	executorTask
	executorWait
	executorSpread
	serveDocument
	servePage
	keeperDocument
	keeperPage
	databaseDocument
	databasePage
	databaseTask
	redisTask
	storeDocument
	storePage
	indexPage
	queueLatency
	feedPass
	feedTenant
	feedHint
	indexGather
	indexRefresh
	chunksPage
	originalPage
	documentRow
	taskRow
	eventRow
	eventsTask
	hintBytes
	inputs
)

// Input is an input of the model.
type Input struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Source string  `json:"source"` // of the default: the row of `make bench`, or what it is derived from
	row    string  // of `make bench` that directly is the value
}

// defaults were measured on two shared cores at 2.9 GHz, with sheaf-pdfium, MariaDB
// 10.11, Redis 7.0, MinIO and Elasticsearch 8.19. The costs of a document exclude
// its pages and include all of its tasks.
var defaults = [inputs]Input{
	executorDocument: {Name: "executor.document", Value: 25, Unit: "CPU-ms a document", row: "capacity.document.executor"},
	executorPage:     {Name: "executor.page", Value: 2.7, Unit: "CPU-ms a page", row: "capacity.page.executor"},
	executorTask:     {Name: "executor.task", Unit: "CPU-ms a task", Source: "0: in those of documents and pages"},
	executorWait:     {Name: "executor.wait", Unit: "ms a range", Source: "0: the embedding model is built in"},
	executorSpread:   {Name: "executor.spread", Value: .5, Unit: "σ of the logarithm of a range's time", Source: "assumed"},
	serveDocument:    {Name: "serve.document", Value: 1.8, Unit: "CPU-ms a document", row: "capacity.document.serve"},
	servePage:        {Name: "serve.page", Value: .05, Unit: "CPU-ms a page", row: "capacity.page.serve"},
	keeperDocument:   {Name: "keeper.document", Value: .08, Unit: "CPU-ms a document", Source: "fold.begun, fold.complete; more where each change is followed at once"},
	keeperPage:       {Name: "keeper.page", Value: .01, Unit: "CPU-ms a page", Source: "fold.complete, of a range"},
	databaseDocument: {Name: "database.document", Value: 16.6, Unit: "CPU-ms a document", row: "capacity.document.mysql"},
	databasePage:     {Name: "database.page", Value: .34, Unit: "CPU-ms a page", row: "capacity.page.mysql"},
	databaseTask:     {Name: "database.task", Unit: "CPU-ms a task", Source: "0: in those of documents and pages"},
	redisTask:        {Name: "redis.task", Value: .11, Unit: "CPU-ms a task", Source: "fleet.cycles.batch1; more where executors wait"},
	storeDocument:    {Name: "store.document", Value: 11.1, Unit: "CPU-ms a document", row: "capacity.document.minio"},
	storePage:        {Name: "store.page", Value: .32, Unit: "CPU-ms a page", row: "capacity.page.minio"},
	indexPage:        {Name: "index.page", Value: .93, Unit: "CPU-ms a page", row: "fleet.engines.es"},
	queueLatency:     {Name: "queue.latency", Value: 2.7, Unit: "ms, published to claimed", row: "queue.latency.p50"},
	feedPass:         {Name: "feed.pass", Value: 5, Unit: "ms a slice of 50 tenants", Source: "capacity.fleet.feed, by the numbers of its tenants"},
	feedTenant:       {Name: "feed.tenant", Value: .55, Unit: "ms a tenant with a backlog", Source: "capacity.fleet.feed"},
	feedHint:         {Name: "feed.hint", Value: .03, Unit: "ms a hint", Source: "queue.first, capacity.fleet.feed"},
	indexGather:      {Name: "index.gather", Value: 100, Unit: "ms between bulk requests", Source: "internal/index/elastic"},
	indexRefresh:     {Name: "index.refresh", Value: 1000, Unit: "ms between refreshes", Source: "internal/index/elastic"},
	chunksPage:       {Name: "chunks.page", Value: 2.3, Unit: "chunks a page", row: "capacity.page.chunks"},
	originalPage:     {Name: "original.page", Value: 41_000, Unit: "bytes a page", row: "capacity.page.original"},
	documentRow:      {Name: "row.document", Value: 1590, Unit: "bytes a row with its indexes", row: "capacity.row.documents"},
	taskRow:          {Name: "row.task", Value: 2450, Unit: "bytes a row with its indexes", row: "capacity.row.tasks"},
	eventRow:         {Name: "row.event", Value: 760, Unit: "bytes a row with its indexes", row: "capacity.row.events"},
	eventsTask:       {Name: "events.task", Value: 2.9, Unit: "events a task", row: "capacity.row.each"},
	hintBytes:        {Name: "redis.hint", Value: 200, Unit: "bytes a hint", Source: "docs/operations.md, Sizing"},
}

// Times are the costs of a fleet.
type Times [inputs]float64

// DefaultTimes returns the measured ones.
func DefaultTimes() (t Times) {
	for i, d := range defaults {
		t[i] = d.Value
	}
	return t
}

// ms converts a cost to seconds.
func (t *Times) ms(i input) float64 { return t[i] / 1000 }

// Inputs lists the costs with the sources of the defaults.
func (t *Times) Inputs() []Input {
	out := make([]Input, inputs)
	for i, d := range defaults {
		if d.Source == "" {
			d.Source = d.row
		}
		if t[i] != d.Value {
			d.Value, d.Source = t[i], "given"
		}
		out[i] = d
	}
	return out
}

// Read reads costs from JSON: an object of names and numbers, or the report of
// `make bench`, whose rows count if they directly are a cost.
func (t *Times) Read(text []byte) error {
	var bench struct {
		Rows []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"rows"`
	}
	if json.Unmarshal(text, &bench) == nil && len(bench.Rows) > 0 {
		for _, r := range bench.Rows {
			for i, d := range defaults {
				if d.row == r.Name {
					t[i] = r.Value
				}
			}
		}
		return t.check()
	}
	given := map[string]float64{}
	if err := json.Unmarshal(text, &given); err != nil {
		return errors.New(`the service times are neither a JSON object of names and numbers, such as {"executor.page": 3.8}, nor a report of make bench`)
	}
	for name, value := range given {
		known := false
		for i, d := range defaults {
			if d.Name == name {
				t[i], known = value, true
			}
		}
		if !known {
			return fmt.Errorf("there is no service time %q; `sheaf plan --json` lists them", name)
		}
	}
	return t.check()
}

func (t *Times) check() error {
	for i, v := range t {
		if !(v >= 0 && v < 1e9) {
			return fmt.Errorf("the service time %s is %g; give 0 to a billion", defaults[i].Name, v)
		}
	}
	return nil
}
