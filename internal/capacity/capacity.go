// Package capacity predicts the performance of a fleet: a discrete-event simulation
// of uploads, feed, fair queue, executors, engines and keepers, with measured
// costs. It is independent of the product and imports only what the model must
// agree with.
package capacity

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/internal/settings"
)

// rangePages is the number of pages per task.
var rangePages = int32(settings.Default.TaskPageSize.V)

// Size is a document size and its relative frequency.
type Size struct {
	Pages int     `json:"pages"`
	Share float64 `json:"share"`
}

// Config describes the fleet and its load. Defaults sets what most callers leave
// unchanged.
type Config struct {
	Executors int `json:"executors"`
	Cores     int `json:"cores"` // per executor
	Slots     int `json:"slots"` // per executor; 0: 2 × cores + 2, as executor.workers
	Cap       int `json:"cap"`   // concurrent tasks per tenant; 0: sheaf.FleetCap
	Window    int `json:"window"`

	Tenants int     `json:"tenants"`
	Zipf    float64 `json:"zipf"` // exponent of the distribution of uploads over tenants; 0: uniform

	PagesPerDay float64                   `json:"pages_per_day"`
	CorpusPages float64                   `json:"corpus_pages"` // pages stored; 0: those of 30 days
	Sizes       []Size                    `json:"documents"`
	Lanes       [len(sheaf.Lanes)]float64 `json:"lanes"` // shares of documents

	Serves        int `json:"serves"`  // API processes, one core each
	Keepers       int `json:"keepers"` // one core each
	Database      int `json:"database_cores"`
	Elasticsearch int `json:"elasticsearch_cores"`
	ObjectStore   int `json:"object_store_cores"`
	Redis         int `json:"redis_servers"`

	CorePrice float64 `json:"core_price"` // per core-hour, in any currency
	DiskPrice float64 `json:"disk_price"` // per gigabyte-month on the disks of database and index
	BlobPrice float64 `json:"blob_price"` // per gigabyte-month in the object store

	Seed  uint64 `json:"seed"`
	Times Times  `json:"-"`

	// NoFeed is a queue that reads the database directly, without Redis.
	NoFeed bool `json:"-"`
	// Batch is uploaded instead of PagesPerDay, and the run ends when it is
	// searchable, or after Until seconds. Anything before Warm is not counted.
	Batch       []Upload `json:"-"`
	Warm, Until float64  `json:"-"`
}

// Upload is a document of a batch.
type Upload struct {
	Tenant, Pages int
	Lane          sheaf.Lane // 0: normal
	At            float64    // seconds after the start
}

// Defaults is one two-core executor with one tenant.
func Defaults() Config {
	return Config{
		Executors: 1, Cores: 2, Window: 256, Tenants: 1, Zipf: 1, PagesPerDay: 100_000,
		Sizes: []Size{{1, 30}, {5, 40}, {20, 25}, {200, 5}}, Lanes: [...]float64{10, 80, 10},
		Serves: 2, Keepers: 2, Database: 4, Elasticsearch: 4, ObjectStore: 4, Redis: 1,
		CorePrice: .05, Seed: 1, Times: DefaultTimes(),
	}
}

// ParseLanes parses the shares of the lanes, such as 10,80,10.
func ParseLanes(text string) (lanes [len(sheaf.Lanes)]float64, err error) {
	parts := strings.Split(text, ",")
	for i := range lanes {
		if len(parts) == len(lanes) {
			lanes[i], err = strconv.ParseFloat(parts[i], 64)
		}
		if err != nil || len(parts) != len(lanes) {
			return lanes, fmt.Errorf("%q is not a list of lane shares; give those of interactive, normal and backfill, such as 10,80,10", text)
		}
	}
	return lanes, nil
}

// ParseSizes parses document sizes, such as 1:30,20:70.
func ParseSizes(text string) (sizes []Size, err error) {
	for part := range strings.SplitSeq(text, ",") {
		pages, share, shared := strings.Cut(part, ":")
		s := Size{Share: 1}
		if s.Pages, err = strconv.Atoi(pages); err == nil && shared {
			s.Share, err = strconv.ParseFloat(share, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a list of document sizes; give pages and shares, such as 1:30,20:70", text)
		}
		sizes = append(sizes, s)
	}
	return sizes, nil
}

// Bounds of a simulation: some seconds, and some hundred megabytes.
const (
	mostTenants   = 100_000
	mostExecutors = 10_000
	mostCores     = 100_000
	mostPages     = 1_000_000 // per document
	usualTasks    = 3_000_000
	mostTasks     = 5_000_000
	leastSeconds  = 60
	mostSeconds   = 30 * 86_400
	mostRounds    = 20            // of the feed per second
	mostLooks     = 3_000_000_000 // at tenants, in all rounds
	warmUp        = .2            // fraction of the time
)

func (c *Config) check() error {
	whole := func(name string, v, most int) error {
		if v < 1 || v > most {
			return fmt.Errorf("%s is %d; give 1 to %d", name, v, most)
		}
		return nil
	}
	for _, w := range []struct {
		name    string
		v, most int
	}{
		{"executors", c.Executors, mostExecutors}, {"cores", c.Cores, 1000}, {"slots", c.Slots, 10_000}, {"cap", c.Cap, mostCores}, {"window", c.Window, 10_000},
		{"tenants", c.Tenants, mostTenants}, {"serves", c.Serves, mostCores}, {"keepers", c.Keepers, mostCores}, {"database-cores", c.Database, mostCores},
		{"elasticsearch-cores", c.Elasticsearch, mostCores}, {"object-store-cores", c.ObjectStore, mostCores}, {"redis-servers", c.Redis, mostCores},
	} {
		if err := whole(w.name, w.v, w.most); err != nil {
			return err
		}
	}
	sum := 0.0
	for _, s := range c.Sizes {
		if s.Pages < 1 || s.Pages > mostPages || !(s.Share >= 0) {
			return fmt.Errorf("a document size has %d pages and a share of %g; give 1 to %d pages and a share of at least 0", s.Pages, s.Share, mostPages)
		}
		sum += s.Share
	}
	lanes := 0.0
	for _, share := range c.Lanes {
		if !(share >= 0) {
			return fmt.Errorf("a lane has a share of %g; give at least 0", share)
		}
		lanes += share
	}
	if sum <= 0 || lanes <= 0 || math.IsInf(sum+lanes, 0) {
		return fmt.Errorf("document shares add up to %g and lane shares to %g; both must be more than 0", sum, lanes)
	}
	if !(c.Zipf >= 0 && c.Zipf <= 10) {
		return fmt.Errorf("zipf is %g; give 0, for equal tenants, to 10", c.Zipf)
	}
	if c.Batch == nil && !(c.PagesPerDay >= 1 && c.PagesPerDay < 1e15) {
		return fmt.Errorf("pages-per-day is %g; give at least 1 and less than 1e15", c.PagesPerDay)
	}
	if !(c.CorpusPages >= 0 && c.CorpusPages < 1e18) {
		return fmt.Errorf("corpus-pages is %g; give 0, for 30 days of uploads, to less than 1e18", c.CorpusPages)
	}
	for _, p := range []float64{c.CorePrice, c.DiskPrice, c.BlobPrice} {
		if !(p >= 0 && p < 1e9) {
			return fmt.Errorf("a price is %g; give at least 0", p)
		}
	}
	return c.Times.check()
}

// sums converts shares to cumulative sums up to 1.
func sums(shares []float64) []float64 {
	out, sum := make([]float64, len(shares)), 0.0
	for i, s := range shares {
		sum += s
		out[i] = sum
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// means returns the mean pages and ranges per document.
func (c *Config) means() (pages, ranges float64) {
	sum := 0.0
	for _, s := range c.Sizes {
		sum += s.Share
		pages += s.Share * float64(s.Pages)
		ranges += s.Share * float64((int32(s.Pages)+rangePages-1)/rangePages)
	}
	return pages / sum, ranges / sum
}

// Predict simulates a period and reports the results.
func Predict(c Config) (*Report, error) {
	s, err := newSim(&c)
	if err != nil {
		return nil, err
	}
	if err := s.run(); err != nil {
		return nil, err
	}
	return s.report(), nil
}

func newSim(c *Config) (*sim, error) {
	if c.Slots == 0 {
		c.Slots = 2*c.Cores + 2
	}
	if c.Cap == 0 {
		c.Cap = sheaf.FleetCap(c.Executors * c.Slots)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &sim{
		Config: c, random: rand.New(rand.NewPCG(c.Seed, 0)), queue: newFair(c.Tenants, c.Cap),
		serve: newStation(c.Serves), database: newStation(c.Database), elastic: newStation(c.Elasticsearch), store: newStation(c.ObjectStore),
		redis: newStation(c.Redis), keepers: newStation(c.Keepers),
	}
	s.feed.limit = feedEvery
	s.out.perTenant = make([]int, c.Tenants)
	if c.Tenants >= 10 {
		s.classes = []int32{int32(max(c.Tenants/100, 1)), int32(max(c.Tenants/10, 2))}
	}
	for i := range c.Executors {
		s.executors = append(s.executors, executor{cores: newStation(c.Cores), slots: c.Slots, waiting: true})
		s.idle = append(s.idle, int32(i))
	}
	if c.Batch != nil {
		if len(c.Batch) > mostTasks {
			return nil, errTooLong
		}
		s.warm, s.end = c.Warm, c.Until
		for i, u := range c.Batch {
			if u.Tenant < 0 || u.Tenant >= c.Tenants || u.Pages < 1 || u.Pages > mostPages {
				return nil, fmt.Errorf("a batch has a document of %d pages of tenant %d, of %d", u.Pages, u.Tenant, c.Tenants)
			}
			s.at(u.At, ofBatch, int32(i))
		}
		return s, nil
	}
	pages, ranges := c.means()
	s.rate = c.PagesPerDay / 86_400 / pages
	tasks := s.rate * (ranges + 2) // per second
	// The period must contain several rounds of the feed, which reads each tenant
	// with a backlog; scanning the tenants takes time here, too.
	round := float64(c.Tenants) * (c.Times.ms(feedPass)/feedTenants + c.Times.ms(feedTenant) + c.Times.ms(feedHint))
	least := max(leastSeconds, 10*round)
	if tasks*least > mostTasks {
		return nil, fmt.Errorf("%.0f tasks per second are too many to simulate with this many tenants; at most %.0f. Simulate a tenth of the fleet, tenants and pages instead", tasks, mostTasks/least)
	}
	looks := min(4*s.rate, mostRounds) * float64(c.Tenants)
	s.end = max(min(usualTasks/tasks, mostSeconds, mostLooks/looks), least)
	s.warm = warmUp * s.end
	zipf, sizes := make([]float64, c.Tenants), make([]float64, len(c.Sizes))
	for i := range zipf {
		zipf[i] = math.Pow(float64(i+1), -c.Zipf)
	}
	for i, size := range c.Sizes {
		sizes[i] = size.Share
	}
	s.byZipf, s.bySize = sums(zipf), sums(sizes)
	copy(s.byLane[:], sums(c.Lanes[:]))
	s.at(s.random.ExpFloat64()/s.rate, uploads, 0)
	return s, nil
}

// Quantiles are times in seconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Wait is how long a group of tasks and documents waited.
type Wait struct {
	Of         string    `json:"of"`
	Documents  int       `json:"documents"`
	Claimed    Quantiles `json:"claimed"`    // tasks, since due
	Searchable Quantiles `json:"searchable"` // documents, since upload
}

// Part is a part of the fleet and its utilization.
type Part struct {
	Name  string  `json:"name"`
	Used  float64 `json:"used"`              // share
	Full  float64 `json:"full_at,omitempty"` // pages/s at which it is fully used
	Cure  string  `json:"cure"`
	Cores int     `json:"cores,omitempty"`
}

// Stored is how much of something is stored.
type Stored struct {
	Name  string  `json:"name"`
	Count float64 `json:"count"`
	Bytes float64 `json:"bytes"`
}

// Report is the predicted performance of a fleet.
type Report struct {
	Fleet    Config   `json:"fleet"`
	Seconds  float64  `json:"seconds"` // simulated and counted
	Offered  float64  `json:"offered_pages_per_second"`
	Pages    float64  `json:"pages_per_second"`
	Docs     float64  `json:"documents_per_second"`
	Tasks    float64  `json:"tasks_per_second"`
	KeepsUp  bool     `json:"keeps_up"`
	Lanes    []Wait   `json:"lanes"`
	Tenants  []Wait   `json:"tenants"`
	Fold     float64  `json:"fold_seconds"` // delay of progress, p99
	Feed     float64  `json:"feed_seconds"` // the keeper's longest scan for tasks to feed
	Parts    []Part   `json:"parts"`        // most utilized first
	Stored   []Stored `json:"stored"`
	Redis    float64  `json:"redis_bytes"`
	RedisMax float64  `json:"redis_bytes_at_most"` // with every window full
	Shards   int      `json:"shards"`
	Cores    int      `json:"cores"`
	Money    float64  `json:"money_per_million_pages"`
	Least    float64  `json:"money_per_million_pages_full"` // when the most utilized part is full
	Storage  float64  `json:"money_storage_per_month"`
	Times    []Input  `json:"service_times"`
}

// full is the utilization of a part above which its queue grows without bound.
const full = .98

// What the index stores; docs/operations.md, Sizing.
const (
	shardChunks   = 10_000_000
	indexChunk    = 3000 // bytes on disk, once
	replicas      = 2
	artifactChunk = 2000 + 4*384
	tenantRedis   = 400 // bytes per tenant in the schedule
)

func (s *sim) report() *Report {
	c := s.Config
	seconds := s.now - s.warm
	pages, ranges := c.means()
	r := &Report{
		Fleet: *c, Seconds: seconds, Offered: s.out.offered / seconds, Pages: s.out.pages / seconds, Docs: float64(s.out.done) / seconds,
		Tasks: float64(s.out.tasks) / seconds, Feed: s.feed.longest, Fold: s.out.folds.at(.99), Times: c.Times.Inputs(),
	}
	waits := func(of string, claimed, found *histogram) Wait {
		return Wait{of, found.n, Quantiles{claimed.at(.5), claimed.at(.99)}, Quantiles{found.at(.5), found.at(.99)}}
	}
	for i, name := range []string{"interactive", "normal", "backfill"} {
		r.Lanes = append(r.Lanes, waits(name, &s.out.claimed[i], &s.out.found[i]))
	}
	for i := range len(s.classes) + 1 {
		r.Tenants = append(r.Tenants, waits([][]string{{"all"}, nil, {"largest 1 %", "next 9 %", "other 90 %"}}[len(s.classes)][i], &s.out.ofClass[i], &s.out.foundIn[i]))
	}
	cores, biggest := 0.0, 0.0
	for i := range s.executors {
		cores += s.executors[i].cores.busy
	}
	for i := range s.queue.tenants {
		t := &s.queue.tenants[i]
		s.queue.ran(t, s.now, 0)
		biggest = max(biggest, t.ran/s.now/float64(t.cap))
	}
	all := c.Executors * c.Cores
	for _, p := range []Part{
		{Name: "executors' cores", Used: cores / seconds / float64(all), Cores: all, Cure: "add executors, or cores to each"},
		{Name: "executors' slots", Used: s.heldTime / seconds / float64(c.Executors*c.Slots), Cure: "raise executor.workers, or add executors"},
		{Name: "caps of tenants", Used: biggest, Cure: "raise the cap of the largest tenants: sheaf tenant set NAME --cap N"},
		{Name: "database", Used: s.database.load(seconds), Cores: c.Database, Cure: "use a larger server"},
		{Name: "Elasticsearch", Used: s.elastic.load(seconds), Cores: c.Elasticsearch, Cure: "add data nodes, and shards for them"},
		{Name: "object store", Used: s.store.load(seconds), Cores: c.ObjectStore, Cure: "add nodes"},
		{Name: "Redis", Used: s.redis.load(seconds), Cores: c.Redis, Cure: "use a separate Redis per lane"},
		{Name: "serve", Used: s.serve.load(seconds), Cores: c.Serves, Cure: "add API processes"},
		{Name: "keepers' folding", Used: s.keepers.load(seconds), Cores: c.Keepers, Cure: "add keepers: each folds its share"},
		{Name: "feed", Used: s.feed.busy / seconds, Cure: "raise queue.window, or use faster database cores: a round reads each tenant with a backlog"},
	} {
		if p.Used = min(p.Used, 1); p.Used > 0 && p.Name != "feed" { // it delays, but limits nothing
			p.Full = r.Pages / p.Used
		}
		r.Cores += p.Cores
		r.Parts = append(r.Parts, p)
	}
	slices.SortStableFunc(r.Parts, func(a, b Part) int { return cmp.Compare(b.Used, a.Used) })
	// If the fleet keeps up, documents in progress do not increase: except for
	// noise, there are as many in the second half as in the first.
	grew := (s.out.inSystem - 2*s.out.halfway) / (seconds / 2)
	r.KeepsUp = r.Parts[0].Used < full && grew < .01*float64(s.out.arrived)/2+3*math.Sqrt(float64(s.out.arrived))

	kept := c.CorpusPages
	if kept == 0 {
		kept = 30 * c.PagesPerDay
	}
	docs, chunks := kept/pages, kept*c.Times[chunksPage]
	tasks := docs * (ranges + 2)
	events := c.PagesPerDay / pages * (ranges + 2) * c.Times[eventsTask] * 7 // days, as keeper.retention
	r.Shards = int(math.Ceil(chunks / shardChunks))
	r.Stored = []Stored{
		{"documents", docs, docs * c.Times[documentRow]},
		{"tasks", tasks, tasks * c.Times[taskRow]},
		{"events", events, events * c.Times[eventRow]},
		{"index", chunks, chunks * indexChunk * replicas},
		{"originals", docs, kept * c.Times[originalPage]},
		{"artifacts", docs * ranges, chunks * artifactChunk},
	}
	r.Redis = float64(s.mostHints)*c.Times[hintBytes] + float64(c.Tenants)*tenantRedis
	r.RedisMax = float64(c.Tenants) * (float64(len(sheaf.Lanes)*c.Window)*c.Times[hintBytes] + tenantRedis)
	if r.Pages > 0 {
		r.Money = float64(r.Cores) * c.CorePrice / 3600 / r.Pages * 1e6
		r.Least = r.Money * r.Parts[0].Used
	}
	for i, price := range []float64{c.DiskPrice, c.DiskPrice, c.DiskPrice, c.DiskPrice, c.BlobPrice, c.BlobPrice} {
		r.Storage += r.Stored[i].Bytes / 1e9 * price
	}
	return r
}
