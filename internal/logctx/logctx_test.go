package logctx_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"sheaf/internal/logctx"
)

func TestLinesCarryWhatTheContextKnows(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(logctx.Handler(slog.NewTextHandler(&out, nil)))
	ctx := logctx.With(context.Background(), slog.String("request", "r1"), slog.String("job", ""))
	inner := logctx.With(ctx, slog.String("tenant", "a"), slog.String("request", "r2"))
	for _, c := range []struct {
		log  func()
		want string
	}{
		{func() { log.InfoContext(ctx, "m") }, `request=r1`},
		{func() { log.InfoContext(inner, "m") }, `tenant=a request=r2`},
		{func() { log.InfoContext(inner, "m", "tenant", "b") }, `tenant=b request=r2`},
		{func() { log.With("tenant", "c").InfoContext(inner, "m") }, `tenant=c request=r2`},
		{func() { log.Info("m") }, ``},
	} {
		out.Reset()
		c.log()
		_, got, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=m")
		if strings.TrimSpace(got) != c.want {
			t.Errorf("the line says %q, want %q", got, c.want)
		}
	}
}
