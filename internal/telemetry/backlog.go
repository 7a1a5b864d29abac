package telemetry

import (
	"cmp"
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf"
	"sheaf/taskstore"
)

// TopTenants is the number of tenants with their own series. The sums cover all
// tenants; `sheaf queue` and /v1/queues show each.
const TopTenants = 100

// lanes are the names of lanes in labels.
var lanes = map[sheaf.Lane]string{1: "interactive", 2: "normal", 3: "backfill"}

// snapshot is what the leading keeper last read.
type snapshot struct {
	backlog    *taskstore.Backlog
	population *taskstore.Population
}

// backlogCollector exports a snapshot. Scrapes cost the store nothing, and while
// the database is down they show its last known state; the outage itself shows in
// sheaf_dependency_up and in sheaf_keeper_loop_failed_total.
type backlogCollector struct{ last atomic.Pointer[snapshot] }

func (c *backlogCollector) set(s *snapshot) { c.last.Store(s) }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sheaf_"+name, help, labels, nil)
}

var (
	descDepth     = desc("queue_depth", "Pending tasks of the busiest tenants, with those that are paused.", "tenant", "lane")
	descAge       = desc("queue_oldest_pending_seconds", "Age of the oldest pending task that is not paused, of the busiest tenants.", "tenant", "lane")
	descRunning   = desc("queue_running", "Running tasks of the busiest tenants.", "tenant")
	descDead      = desc("queue_dead", "Dead tasks of the busiest tenants.", "tenant")
	descPending   = desc("tasks_pending", "Pending tasks that are not paused, of all tenants.", "lane")
	descHeld      = desc("tasks_held", "Pending tasks that are paused, of all tenants.", "lane")
	descOldest    = desc("tasks_oldest_pending_seconds", "Age of the oldest pending task that is not paused, of all tenants.", "lane")
	descState     = desc("tasks", "Tasks of all tenants that are neither pending nor done: running, retry_wait, scheduled, parked and dead.", "state")
	descWaiting   = desc("tenants_waiting", "Tenants with pending tasks.")
	descExecutors = desc("executors", "Executors seen within the last minute.")
	descUnserved  = desc("pool_unserved_tasks", "Pending tasks of a pool that no executor serves; a pool that is served is left out.", "pool")
	descDocuments = desc("documents", "Documents that are not deleted.", "state")
	descJobs      = desc("jobs", "Jobs: queued, running and ended.", "state")
)

func (c *backlogCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descDepth, descAge, descRunning, descDead, descPending, descHeld, descOldest, descState, descWaiting, descExecutors, descUnserved, descDocuments, descJobs} {
		ch <- d
	}
}

func (c *backlogCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.last.Load()
	if s == nil {
		return // another process reports
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if b := s.backlog; b != nil {
		for _, l := range b.Lanes {
			gauge(descPending, float64(l.Pending), lanes[l.Lane])
			gauge(descHeld, float64(l.Held), lanes[l.Lane])
			gauge(descOldest, l.OldestPendingAge, lanes[l.Lane])
		}
		for state, n := range map[sheaf.TaskState]int{sheaf.TaskRunning: b.Running, sheaf.TaskRetryWait: b.RetryWait, sheaf.TaskScheduled: b.Scheduled, sheaf.TaskParked: b.Parked, sheaf.TaskDead: b.Dead} {
			gauge(descState, float64(n), string(state))
		}
		gauge(descWaiting, float64(b.Waiting))
		gauge(descExecutors, float64(b.Executors))
		for _, p := range b.Unserved[:min(len(b.Unserved), TopTenants)] { // tenants choose pool names, so their number needs a bound
			gauge(descUnserved, float64(p.Tasks), p.Pool)
		}
		for _, t := range b.Tenants {
			gauge(descRunning, float64(t.Running), t.TenantID)
			gauge(descDead, float64(t.Dead), t.TenantID)
			for _, l := range t.Lanes {
				gauge(descDepth, float64(l.Pending), t.TenantID, lanes[l.Lane])
				gauge(descAge, l.OldestPendingAge, t.TenantID, lanes[l.Lane])
			}
		}
	}
	if p := s.population; p != nil {
		for _, state := range []sheaf.DocumentState{sheaf.DocUnstarted, sheaf.DocQueued, sheaf.DocRunning, sheaf.DocFinalizing, sheaf.DocSucceeded, sheaf.DocPartiallySucceeded, sheaf.DocFailed, sheaf.DocCanceling, sheaf.DocCanceled} {
			gauge(descDocuments, float64(p.Documents[state]), string(state))
		}
		gauge(descJobs, float64(p.Queued), "queued")
		gauge(descJobs, float64(p.Running), "running")
		gauge(descJobs, float64(p.Jobs-p.Queued-p.Running), "ended")
	}
}

// Measured takes what the leading keeper has read; a nil population keeps the
// previous one.
func (m *Metrics) Measured(b *taskstore.Backlog, p *taskstore.Population) {
	if last := m.backlog.last.Load(); last != nil {
		p = cmp.Or(p, last.population)
	}
	m.backlog.set(&snapshot{b, p})
}

// Requested counts a finished request.
func (m *Metrics) Requested(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
}

// Streaming counts the start of a stream; call ended when it ends.
func (m *Metrics) Streaming(route string) (ended func()) {
	g := m.streams.WithLabelValues(route)
	g.Inc()
	return g.Dec
}

// Searched counts a search.
func (m *Metrics) Searched(mode string, took time.Duration) {
	m.searches.WithLabelValues(mode).Observe(took.Seconds())
}

// Reranked counts a call to the rerank server.
func (m *Metrics) Reranked(outcome string, took time.Duration) {
	m.reranks.WithLabelValues(outcome).Observe(took.Seconds())
}

// LoopRan counts a run of a keeper loop.
func (m *Metrics) LoopRan(loop string, took time.Duration) {
	m.loops.WithLabelValues(loop).Observe(took.Seconds())
}

// Build exports the version of this program.
func (m *Metrics) Build(version, commit, goVersion string) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sheaf_build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": goVersion}})
	g.Set(1)
	m.registry.MustRegister(g)
}

// dependencies exports whether a process can reach its dependencies. They are
// checked on scrape, and the check is shared with /readyz.
type dependencies func(ctx context.Context) map[string]bool

var descUp = desc("dependency_up", "1 while this process reaches a dependency.", "dependency")

// WatchDependencies exports what read returns; its checks must be bounded.
func (m *Metrics) WatchDependencies(read func(ctx context.Context) map[string]bool) {
	m.registry.MustRegister(dependencies(read))
}

func (dependencies) Describe(ch chan<- *prometheus.Desc) { ch <- descUp }

func (read dependencies) Collect(ch chan<- prometheus.Metric) {
	for name, up := range read(context.Background()) {
		ch <- prometheus.MustNewConstMetric(descUp, prometheus.GaugeValue, map[bool]float64{true: 1}[up], name)
	}
}

// poolCollector exports what read returns on scrape, from memory.
type poolCollector struct {
	read  func() map[string]taskstore.PoolUse
	descs [5]*prometheus.Desc
}

// WatchStore exports the store's connection pools.
func (m *Metrics) WatchStore(read func() map[string]taskstore.PoolUse) {
	m.registry.MustRegister(&poolCollector{read, [5]*prometheus.Desc{
		desc("store_connections_max", "Connections that a pool may open, 0 without a bound.", "pool"),
		desc("store_connections_open", "Connections that a pool has open.", "pool"),
		desc("store_connections_used", "Connections in use.", "pool"),
		desc("store_connection_waits_total", "Calls that waited for a connection.", "pool"),
		desc("store_connection_wait_seconds_total", "Time that they waited.", "pool"),
	}})
}

func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	for name, u := range c.read() {
		for i, v := range []float64{float64(u.Max), float64(u.Open), float64(u.Used), float64(u.Waits), u.Waited.Seconds()} {
			kind := prometheus.GaugeValue
			if i >= 3 {
				kind = prometheus.CounterValue
			}
			ch <- prometheus.MustNewConstMetric(c.descs[i], kind, v, name)
		}
	}
}

// WatchValues exports gauges read from memory on scrape, one for each value of
// label.
func (m *Metrics) WatchValues(name, help, label string, values map[string]func() float64) {
	for value, read := range values {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sheaf_" + name, Help: help, ConstLabels: prometheus.Labels{label: value}}, read))
	}
}

// began creates the series that rates are computed from before their first event:
// the rate of a missing series is nothing, so an alert on it would fire too late.
func (m *Metrics) began() {
	for _, kind := range []sheaf.TaskKind{sheaf.KindPlan, sheaf.KindParse, sheaf.KindIndex, sheaf.KindFinalize} {
		k := string(kind)
		m.claims.WithLabelValues(k)
		m.stale.WithLabelValues(k)
		m.leaseLost.WithLabelValues(k)
		for _, state := range []sheaf.TaskState{sheaf.TaskDone, sheaf.TaskRetryWait, sheaf.TaskDead, sheaf.TaskCanceled} {
			m.finished.WithLabelValues(k, string(state))
		}
	}
	for _, state := range []taskstore.DeliveryState{taskstore.DeliveryDelivered, taskstore.DeliveryPending, taskstore.DeliveryDead} {
		m.messages.WithLabelValues(string(state))
	}
	m.requests.WithLabelValues("unknown", "5xx")
	for _, mode := range []string{"hybrid", "text", "vector"} {
		m.searches.WithLabelValues(mode)
	}
}
