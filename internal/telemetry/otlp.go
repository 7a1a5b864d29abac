package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"sheaf/internal/retryafter"
)

const (
	otlpTimeout     = 10 * time.Second // per batch, including retries
	otlpBackoff     = 500 * time.Millisecond
	maxOTLPResponse = 64 << 10
)

// otlpClient sends spans as OTLP/HTTP in protobuf. It implements otlptrace.Client.
// The library's own client, otlptracehttp, brings in gRPC and its gateway: 100
// packages, and a page of templates that keeps the linker from dropping a fifth of
// the binary.
//
// https://opentelemetry.io/docs/specs/otlp/#otlphttp
type otlpClient struct {
	url     string
	headers map[string]string
	http    *http.Client
}

func (c *otlpClient) Start(context.Context) error { return nil }

func (c *otlpClient) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends one batch. Responses that the specification calls retryable
// (429, 502, 503, 504) and unreachable collectors are retried until the batch times
// out.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// A message with the fields and numbers of ExportTraceServiceRequest, whose
	// package is generated with a gRPC service.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, otlpTimeout)
	defer cancel()
	for backoff := otlpBackoff; ; backoff *= 2 {
		after, err := c.post(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		timer := time.NewTimer(max(after, backoff))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// post makes one attempt. On error, after is the delay that the collector asks for,
// 0 if it specifies none, and negative if a retry is pointless.
func (c *otlpClient) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	for k, v := range c.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "sheaf")
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxOTLPResponse))
	if err != nil {
		return 0, err
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after = retryafter.Parse(res.Header.Get("Retry-After"), time.Now())
	default:
		after = -1
	}
	return after, fmt.Errorf("the collector answered %s: %.300q", res.Status, answer)
}
