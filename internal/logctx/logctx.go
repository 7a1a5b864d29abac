// Package logctx carries in the context the attributes that every log line of a
// request or task has: its handler adds to them once, and the shared logger reads
// them.
package logctx

import (
	"context"
	"log/slog"
	"slices"
)

type key struct{}

// With returns a context whose log lines also carry attrs. An attribute replaces an
// existing one with the same key; empty ones are omitted.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	old, _ := ctx.Value(key{}).([]slog.Attr)
	all := slices.Clone(old)
	for _, a := range attrs {
		all = slices.DeleteFunc(all, func(o slog.Attr) bool { return o.Key == a.Key })
		if a.Value.String() != "" {
			all = append(all, a)
		}
	}
	return context.WithValue(ctx, key{}, all)
}

// Handler writes to h, adding to each record the attributes in its context. Only
// calls with a context (InfoContext, …) have any.
func Handler(h slog.Handler) slog.Handler { return handler{h, nil} }

type handler struct {
	slog.Handler
	own []string // keys given to the logger by With: they are not repeated
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	attrs, _ := ctx.Value(key{}).([]slog.Attr)
	if len(attrs) == 0 {
		return h.Handler.Handle(ctx, r)
	}
	seen := slices.Clone(h.own)
	r.Attrs(func(a slog.Attr) bool { seen = append(seen, a.Key); return true })
	r = r.Clone()
	for _, a := range attrs {
		if !slices.Contains(seen, a.Key) {
			r.AddAttrs(a)
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := slices.Clone(h.own)
	for _, a := range attrs {
		own = append(own, a.Key)
	}
	return handler{h.Handler.WithAttrs(attrs), own}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), nil}
}
