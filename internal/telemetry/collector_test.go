package telemetry

import (
	"strings"
	"testing"
)

func TestUnusableCollectorIsAnErrorAtOnce(t *testing.T) {
	for _, endpoint := range []string{"collector:4318", "ftp://collector", "://"} {
		if _, err := NewTracer(t.Context(), TraceConfig{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "trace.endpoint") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	const secret = "hunter2"
	if _, err := NewTracer(t.Context(), TraceConfig{Endpoint: "http://127.0.0.1:1", Headers: secret}); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("headers that cannot be read: %v", err)
	}
}
