package api

import (
	"bytes"
	"io"
	"net/http"
)

// Interfaces are the routes of third-party protocols, by net/http pattern
// ("PUT /tika"). They translate to /v1, called through v1 with each request's own
// credentials, so /v1 checks keys, scopes and quotas.
type Interfaces func(v1 http.RoundTripper) map[string]http.Handler

// local serves requests to /v1 in this process, without a connection.
type local struct{ s *Server }

// RoundTrip implements http.RoundTripper. It buffers the response, so read lists in
// pages.
func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	in.RequestURI = in.URL.RequestURI()
	in.Host = "localhost" // the outer request was checked on arrival
	switch {
	case in.Body == nil:
		in.Body = http.NoBody
	case in.ContentLength == 0 && in.Body != http.NoBody:
		in.ContentLength = -1 // 0 means unknown for a client, but empty for a server
	}
	defer in.Body.Close()
	out := &localResponse{header: http.Header{}, status: http.StatusOK}
	l.s.handler.ServeHTTP(out, in)
	return &http.Response{
		StatusCode: out.status, Status: http.StatusText(out.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: out.header, Body: io.NopCloser(&out.body), ContentLength: int64(out.body.Len()), Request: r,
	}, nil
}

type localResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *localResponse) Header() http.Header         { return w.header }
func (w *localResponse) Write(p []byte) (int, error) { return w.body.Write(p) }
func (w *localResponse) WriteHeader(status int)      { w.status = status }
