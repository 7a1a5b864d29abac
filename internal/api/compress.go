package api

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// zipFrom is the size from which JSON is compressed: a smaller answer fits into
// one packet as it is.
const zipFrom = 2 << 10

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one that exists
	return z
}}

// compressed sends large JSON answers compressed to those who take them so. A
// list of a thousand documents is a tenth of its size then.
func (s *Server) compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead || !takesGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		z := &zipWriter{ResponseWriter: w}
		next.ServeHTTP(z, r)
		z.close() // not after a panic: half an answer must not pass for a whole one
	})
}

// takesGzip reads an Accept-Encoding header.
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

// zipWriter holds back the beginning of a JSON answer until it is clear whether
// it is large enough.
type zipWriter struct {
	http.ResponseWriter
	status int // 0 before the header
	json   bool
	held   []byte
	z      *gzip.Writer // once the answer is large enough
	sent   bool         // the header is on its way
}

func (w *zipWriter) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		w.ResponseWriter.WriteHeader(status) // 1xx; or net/http says that it came twice
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

// send passes the header on.
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

// FlushError passes on what is held: who flushes wants it to be read.
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

// pass sends what is held as it is.
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
