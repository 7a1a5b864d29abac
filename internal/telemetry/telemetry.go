// Package telemetry exports metrics in the Prometheus text format: counters and
// histograms of what executors do, and gauges of what is waiting.
package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sheaf"
	"sheaf/internal/keeper"
	"sheaf/taskstore"
)

// Metrics holds one process's metrics. It is a worker.Observer and an
// executor.Observer.
type Metrics struct {
	registry  *prometheus.Registry
	claims    *prometheus.CounterVec
	refused   *prometheus.CounterVec
	finished  *prometheus.CounterVec
	waited    *prometheus.HistogramVec
	promotion *prometheus.HistogramVec
	took      *prometheus.HistogramVec
	stages    *prometheus.HistogramVec
	stale     *prometheus.CounterVec
	leaseLost *prometheus.CounterVec
	pages     *prometheus.CounterVec
	chunks    *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	embedded  *prometheus.CounterVec
	messages  *prometheus.CounterVec
	retries   prometheus.Counter
	drift     *prometheus.GaugeVec
	audited   prometheus.Gauge
	leads     prometheus.Gauge
	leadsFrom prometheus.Gauge
	loops     *prometheus.HistogramVec
	requests  *prometheus.HistogramVec
	streams   *prometheus.GaugeVec
	searches  *prometheus.HistogramVec
	reranks   *prometheus.HistogramVec
	backlog   backlogCollector
	protected *prometheus.GaugeVec
	fairness  *prometheus.GaugeVec
}

// New returns an empty set of metrics.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sheaf_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sheaf_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 3, 14)}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.claims = counter("claims_total", "Tasks claimed.", "kind")
	m.refused = counter("claims_refused_total", "Hints that led to no claim, by the state the task was in.", "kind", "state")
	m.finished = counter("tasks_total", "Attempts that ended, by the state the task went to.", "kind", "state")
	m.stale = counter("stale_writes_rejected_total", "Results dropped because the task had another owner.", "kind")
	m.leaseLost = counter("lease_losses_total", "Attempts stopped because their lease was lost.", "kind")
	m.pages = counter("pages_total", "Pages, or the equal in rows and slides, that done tasks read.", "kind")
	m.chunks = counter("chunks_total", "Chunks that done tasks made.", "kind", "reused")
	m.tokens = counter("tokens_total", "Tokens of those chunks.", "kind", "reused")
	m.embedded = counter("embeddings_total", "Vectors computed.", "kind")
	m.messages = counter("webhook_attempts_total", "Messages posted to webhooks, by what became of them: delivered, pending (tried again) or dead (given up).", "state")
	m.retries = prometheus.NewCounter(prometheus.CounterOpts{Name: "sheaf_index_retries_total", Help: "Requests to the index that were repeated because it was busy or did not answer."})
	m.drift = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sheaf_index_drift", Help: "Disagreements of database, index and blob store in the latest audit, on the keeper that leads."}, []string{"code"})
	m.audited = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sheaf_index_audit_timestamp_seconds", Help: "When the latest audit ended, 0 before the first."})
	m.leads = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sheaf_keeper_leads", Help: "1 on the keeper that leads."})
	m.leadsFrom = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sheaf_keeper_leads_since_timestamp_seconds", Help: "When this keeper began to lead, 0 while it does not."})
	m.loops = histogram("keeper_loop_seconds", "Time of one run of a keeper loop.", "loop")
	m.requests = histogram("http_request_seconds", "From the head of a request to the end of its answer, by route and status class. Event streams are not in it.", "route", "status")
	m.streams = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sheaf_http_streams", Help: "Event streams that are open."}, []string{"route"})
	m.searches = histogram("search_seconds", "Time of a search, without reading the request and writing the answer.", "mode")
	m.reranks = histogram("rerank_seconds", "Time that searches waited for the rerank server, by what became of it: used, budget, breaker or error.", "outcome")
	m.registry.MustRegister(m.streams, &m.backlog)
	m.began()
	m.protected = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sheaf_parser_protection", Help: "1 where a protection confines the parsers of this process; absent before the first has started."}, []string{"protection"})
	m.registry.MustRegister(m.protected)
	m.fairness = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sheaf_fairness_index", Help: "Jain's index of what tenants with work waiting got in the last minutes, by weight: 1 is fair. Absent unless two tenants or more wait; on the keeper that leads."}, nil)
	m.registry.MustRegister(m.fairness)
	m.waited = histogram("task_wait_seconds", "From due to claimed.", "kind")
	m.promotion = histogram("promotion_seconds", "Tasks that waited for their time (a retry, or work for later): from due to queued, and from due to claimed.", "until", "lane")
	m.took = histogram("task_seconds", "From claimed to ended.", "kind")
	m.stages = histogram("stage_seconds", "Time of one stage of a task.", "kind", "stage")
	m.registry.MustRegister(m.retries)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics. Those that cannot be read, such as queue depths while
// the database is down, are omitted: during an outage the rest matters most.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

func (m *Metrics) Claimed(t *sheaf.Task) {
	waited := max(0, t.StartedAt.Sub(t.RunAt).Seconds())
	m.claims.WithLabelValues(string(t.Kind)).Inc()
	m.waited.WithLabelValues(string(t.Kind)).Observe(waited)
	if t.RunAt.After(t.CreatedAt) {
		m.promotion.WithLabelValues("claimed", lanes[t.Lane]).Observe(waited)
	}
}

// Promoted records how late a task became due.
func (m *Metrics) Promoted(lane sheaf.Lane, late time.Duration) {
	m.promotion.WithLabelValues("queued", lanes[lane]).Observe(max(0, late.Seconds()))
}

func (m *Metrics) Refused(k sheaf.TaskKind, s sheaf.TaskState) {
	m.refused.WithLabelValues(string(k), string(s)).Inc()
}

func (m *Metrics) Finished(k sheaf.TaskKind, s sheaf.TaskState, took time.Duration) {
	m.finished.WithLabelValues(string(k), string(s)).Inc()
	m.took.WithLabelValues(string(k)).Observe(took.Seconds())
}

func (m *Metrics) Produced(k sheaf.TaskKind, r sheaf.TaskResult) {
	kind, reused := string(k), strconv.FormatBool(r.Reused)
	m.pages.WithLabelValues(kind).Add(float64(r.Usage.Pages))
	m.chunks.WithLabelValues(kind, reused).Add(float64(r.Chunks))
	m.tokens.WithLabelValues(kind, reused).Add(float64(r.Tokens))
	if !r.Reused {
		m.embedded.WithLabelValues(kind).Add(float64(r.Chunks))
	}
}

// Protected exports whether a protection sandboxes this process's parsers.
func (m *Metrics) Protected(name string, inForce bool) {
	m.protected.WithLabelValues(name).Set(map[bool]float64{true: 1}[inForce])
}

// Told counts a webhook delivery attempt.
func (m *Metrics) Told(state taskstore.DeliveryState) {
	m.messages.WithLabelValues(string(state)).Inc()
}

// IndexRetried counts a retried request.
func (m *Metrics) IndexRetried() { m.retries.Inc() }

// Leads exports whether this process's keeper leads. The audit findings of an
// earlier term are dropped with the term, since another keeper reports now.
func (m *Metrics) Leads(leads bool) {
	m.leads.Set(0)
	m.leadsFrom.Set(0)
	m.backlog.set(nil)
	m.fairness.Reset()
	if leads {
		m.leads.Set(1)
		m.leadsFrom.SetToCurrentTime()
		return
	}
	m.drift.Reset()
	m.audited.Set(0)
}

// Fair exports how evenly tenants were served; nil means unknown.
func (m *Metrics) Fair(f *taskstore.Fairness) {
	m.fairness.Reset()
	if f != nil {
		m.fairness.WithLabelValues().Set(f.Index)
	}
}

// Drift exports an audit: every possible code, so that zero shows as zero.
func (m *Metrics) Drift(counts map[string]int) {
	for code, n := range counts {
		m.drift.WithLabelValues(code).Set(float64(n))
	}
	m.audited.SetToCurrentTime()
}

func (m *Metrics) Stage(k sheaf.TaskKind, stage string, took time.Duration) {
	m.stages.WithLabelValues(string(k), stage).Observe(took.Seconds())
}

func (m *Metrics) StaleWrite(k sheaf.TaskKind) { m.stale.WithLabelValues(string(k)).Inc() }
func (m *Metrics) LeaseLost(k sheaf.TaskKind)  { m.leaseLost.WithLabelValues(string(k)).Inc() }

// WatchKeeper exports the activity of the keeper's loops.
func (m *Metrics) WatchKeeper(k *keeper.Keeper) {
	m.registry.MustRegister(m.drift, m.audited, m.leads, m.leadsFrom)
	for name, c := range k.Loops() {
		for kind, v := range map[string]func() float64{
			"runs":    func() float64 { return float64(c.Runs.Load()) },
			"changed": func() float64 { return float64(c.Changed.Load()) },
			"scanned": func() float64 { return float64(c.Scanned.Load()) },
			"failed":  func() float64 { return float64(c.Failed.Load()) },
		} {
			m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "sheaf_keeper_loop_" + kind + "_total", Help: "Keeper loops.", ConstLabels: prometheus.Labels{"loop": name},
			}, v))
		}
	}
}

// WatchBreakers exports the state of an executor's breakers by dependency: 0
// closed, 1 half-open, 2 open.
func (m *Metrics) WatchBreakers(dependencies []string, state func(dependency string) int) {
	for _, d := range dependencies {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sheaf_breaker_state", Help: "Circuit breaker of the executor: 0 closed, 1 half-open, 2 open.", ConstLabels: prometheus.Labels{"dependency": d},
		}, func() float64 { return float64(state(d)) }))
	}
}
