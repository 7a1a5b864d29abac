// Package mcp serves the Model Context Protocol: assistants search datasets, read
// pages and add documents. Every call is a request to /v1 with the assistant's key,
// like those of the other facades.
package mcp

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sheaf/internal/facade"
)

// maxRequestBytes limits a request: base64 adds a third to a file's size.
const maxRequestBytes = 64 << 20

const instructions = `Sheaf holds documents in datasets. Search first, then cite: each passage names its document, its pages and boxes, and page_image is a resource that shows the page with the passage framed. read_pages reads what surrounds a passage.`

// service holds what tools and resources need.
type service struct {
	// client returns the client for one call.
	client func(sdk.Request) *facade.Client
}

// serverOf returns a server, with tools that modify data only if write is set.
func (s *service) serverOf(version string, write bool, log *slog.Logger) *sdk.Server {
	m := sdk.NewServer(&sdk.Implementation{Name: "sheaf", Title: "Sheaf", Version: version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: log,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
	})
	s.readingTools(m)
	if write {
		s.writingTools(m)
	}
	s.resources(m)
	return m
}

// Handler serves the protocol over streamable HTTP. It is stateless, so that any
// API process can answer any request. Tools that a key may not use are hidden.
func Handler(v1 http.RoundTripper, version string, log *slog.Logger) http.Handler {
	log = slog.New(warnings{log.Handler()})
	s := &service{client: func(r sdk.Request) *facade.Client {
		if extra := r.GetExtra(); extra != nil {
			return facade.Inside(v1, extra.Header)
		}
		return facade.Inside(v1, http.Header{})
	}}
	reading, writing := s.serverOf(version, false, log), s.serverOf(version, true, log)
	stream := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		if write, _ := r.Context().Value(mayWrite{}).(bool); write {
			return writing
		}
		return reading
	}, &sdk.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: maxRequestBytes, Logger: log, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // foreign hosts are refused earlier if no key is required
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write, err := writes(r.Context(), facade.Inside(v1, r.Header))
		if err != nil {
			refuse(w, facade.AsError(err))
			return
		}
		stream.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), mayWrite{}, write)))
	})
}

// warnings drops what the SDK logs for every request.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// mayWrite is the context key for whether the caller may write.
type mayWrite struct{}

// writes reports whether the client's key has the scope write.
func writes(ctx context.Context, c *facade.Client) (bool, error) {
	var info struct {
		Scopes []string `json:"scopes"`
	}
	err := c.Call(ctx, http.MethodGet, "/v1/info", nil, &info)
	return slices.Contains(info.Scopes, "write") || slices.Contains(info.Scopes, "admin"), err
}

func refuse(w http.ResponseWriter, e *facade.Error) {
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": e.Detail}) // the client may be gone
}

// Stdio serves the protocol over a program's input and output, for the Sheaf that c
// connects to, until in or ctx ends. The error is a *facade.Error if the key is
// refused.
func Stdio(ctx context.Context, c *facade.Client, in io.ReadCloser, out io.WriteCloser, version string, log *slog.Logger) error {
	write, err := writes(ctx, c)
	if err != nil {
		return err
	}
	s := &service{client: func(sdk.Request) *facade.Client { return c }}
	return s.serverOf(version, write, log).Run(ctx, &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: maxRequestBytes})
}
