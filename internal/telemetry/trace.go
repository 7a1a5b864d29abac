package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"sheaf/internal/logctx"
)

// TraceConfig configures where spans are sent.
type TraceConfig struct {
	Endpoint    string // of an OTLP/HTTP collector, such as http://collector:4318; /v1/traces is appended if it has no path
	Headers     string // "name=value,…" sent along, for collectors that require a key
	SampleRatio float64
	Service     string // service.name, such as sheaf-executor
	Version     string
	Log         *slog.Logger
	// Exporter replaces the collector in tests.
	Exporter sdktrace.SpanExporter
}

// Tracer traces a request: from the upload through the queue, whose tasks carry the
// traceparent, to the stages of the executor. It is an api.Tracer, a worker.Tracer
// and an executor.Tracer.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

var traceContext propagation.TraceContext

// NewTracer starts a tracer. An unreachable collector only costs spans, which are
// sent in the background from a bounded buffer.
func NewTracer(ctx context.Context, c TraceConfig) (*Tracer, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var processor sdktrace.TracerProviderOption
	if c.Exporter != nil {
		processor = sdktrace.WithSyncer(c.Exporter)
	} else {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("trace.endpoint is %q; it must be the URL of an OTLP/HTTP collector, such as http://collector:4318", c.Endpoint)
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = "/v1/traces"
		}
		client := &otlpClient{url: u.String(), headers: map[string]string{}, http: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
		if c.Headers != "" {
			for p := range strings.SplitSeq(c.Headers, ",") {
				k, v, ok := strings.Cut(p, "=")
				if !ok {
					return nil, fmt.Errorf("trace.headers must be name=value, separated by commas")
				}
				client.headers[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		}
		exporter, err := otlptrace.New(ctx, client)
		if err != nil {
			return nil, fmt.Errorf("trace.endpoint: %w", err)
		}
		processor = sdktrace.WithBatcher(exporter)
		otel.SetErrorHandler(sparingly(c.Log))
	}
	provider := sdktrace.NewTracerProvider(processor,
		// The ratio is for traces that start here; callers decide for their own.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cmp.Or(c.SampleRatio, 1)))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cmp.Or(c.Service, "sheaf")), attribute.String("service.version", c.Version))),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("sheaf")}, nil
}

// sparingly logs export errors, at most once a minute.
func sparingly(log *slog.Logger) otel.ErrorHandlerFunc {
	var last atomic.Int64
	return func(err error) {
		now := time.Now().Unix()
		if then := last.Load(); now-then >= 60 && last.CompareAndSwap(then, now) {
			log.Warn("spans could not be sent and are lost; check trace.endpoint and the collector", "error", err)
		}
	}
}

// Close sends what is left, waiting at most five seconds.
func (t *Tracer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Request starts the span of an HTTP request, in the caller's trace if its header
// names one.
func (t *Tracer) Request(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, func(error)) {
	return t.start(ctx, traceparent, name, trace.SpanKindServer, attrs)
}

// Task starts the span of an attempt, in the trace of the request that caused the
// task.
func (t *Tracer) Task(ctx context.Context, traceparent, name string, attrs ...slog.Attr) (context.Context, func(error)) {
	return t.start(ctx, traceparent, name, trace.SpanKindConsumer, attrs)
}

// Stage starts a span within the context's.
func (t *Tracer) Stage(ctx context.Context, name string) (context.Context, func(error)) {
	return t.start(ctx, "", name, trace.SpanKindInternal, nil)
}

func (t *Tracer) start(ctx context.Context, traceparent, name string, kind trace.SpanKind, attrs []slog.Attr) (context.Context, func(error)) {
	if traceparent != "" {
		ctx = traceContext.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes(attrs)...))
	if kind != trace.SpanKindInternal {
		ctx = logctx.With(ctx, slog.String("trace", span.SpanContext().TraceID().String()))
	}
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Annotate adds attributes to the context's span.
func (t *Tracer) Annotate(ctx context.Context, attrs ...slog.Attr) {
	trace.SpanFromContext(ctx).SetAttributes(attributes(attrs)...)
}

// Traceparent identifies the context's span for a task that continues its trace.
func (t *Tracer) Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// attributes adds the prefix to Sheaf's own names; names with a dot are
// OpenTelemetry's.
func attributes(attrs []slog.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		name := a.Key
		if !strings.Contains(name, ".") {
			name = "sheaf." + name
		}
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindInt64:
			out = append(out, attribute.Int64(name, v.Int64()))
		case slog.KindBool:
			out = append(out, attribute.Bool(name, v.Bool()))
		default:
			if s := v.String(); s != "" {
				out = append(out, attribute.String(name, s))
			}
		}
	}
	return out
}
