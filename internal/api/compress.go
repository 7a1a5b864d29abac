package api

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// zipFrom is the size from which JSON is compressed. A smaller response fits into
// one packet uncompressed.
const zipFrom = 2 << 10

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // BestSpeed is a valid level
	return z
}}

// compressed gzips large JSON responses for clients that accept it. A list of a
// thousand documents shrinks to a tenth.
func (s *Server) compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead || !takesGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		z := &zipWriter{ResponseWriter: w}
		next.ServeHTTP(z, r)
		z.close() // skipped on panic: a truncated response must not look complete
	})
}

// takesGzip reports whether an Accept-Encoding header allows gzip.
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q = strings.TrimLeft(strings.TrimPrefix(strings.TrimSpace(q), "q="), "0.")
			return !strings.Contains(part, ";") || q != ""
		}
	}
	return false
}

// zipWriter buffers the start of a JSON response until it is clear whether it is
// large enough to compress.
type zipWriter struct {
	http.ResponseWriter
	status int // 0 until the header is written
	json   bool
	held   []byte
	z      *gzip.Writer // set once the response is large enough
	sent   bool         // the header was sent
}

func (w *zipWriter) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		w.ResponseWriter.WriteHeader(status) // 1xx, or a second call, which net/http logs
		return
	}
	w.status = status
	h := w.Header()
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	w.json = (media == "application/json" || strings.HasSuffix(media, "+json")) && h.Get("Content-Encoding") == ""
	if w.json {
		h.Add("Vary", "Accept-Encoding")
	} else {
		w.send()
	}
}

// send forwards the header.
func (w *zipWriter) send() {
	w.sent = true
	w.ResponseWriter.WriteHeader(w.status)
}

func (w *zipWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.z != nil:
		return w.z.Write(b)
	case w.sent:
		return w.ResponseWriter.Write(b)
	}
	w.held = append(w.held, b...)
	if len(w.held) < zipFrom {
		return len(b), nil
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Del("Content-Length")
	w.send()
	w.z = zippers.Get().(*gzip.Writer)
	w.z.Reset(w.ResponseWriter)
	if _, err := w.z.Write(w.held); err != nil {
		return 0, err
	}
	w.held = nil
	return len(b), nil
}

// FlushError forwards what is buffered: a handler that flushes wants it read.
func (w *zipWriter) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.z != nil {
		if err := w.z.Flush(); err != nil {
			return err
		}
	} else if err := w.pass(); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// pass forwards what is buffered, uncompressed.
func (w *zipWriter) pass() error {
	if !w.sent {
		w.send()
	}
	held := w.held
	w.held = nil
	if len(held) == 0 {
		return nil
	}
	_, err := w.ResponseWriter.Write(held)
	return err
}

func (w *zipWriter) close() {
	switch {
	case w.z != nil:
		_ = w.z.Close() // the client may be gone
		w.z.Reset(nil)
		zippers.Put(w.z)
	case w.status != 0:
		_ = w.pass()
	}
}

func (w *zipWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
