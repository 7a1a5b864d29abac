package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/internal/watch"
	"sheaf/taskstore"
)

// liveSource serves a request as a stream of events.
type liveSource func(w http.ResponseWriter, r *http.Request)

// streaming makes an operation serve live events to clients that accept them.
func (s *Server) streaming(op *huma.Operation, live liveSource) {
	op.Description = strings.TrimSpace(op.Description + " With Accept: text/event-stream the same URL streams its events live; Last-Event-ID resumes, and after, the number of an event or now, sets where a new stream begins. A stream takes no other parameter.")
	op.Metadata = map[string]any{metaStream: live}
}

func streamed(op *huma.Operation) bool { return op.Metadata[metaStream] != nil }

func wantsStream(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// status is what a stream shows besides events: how to read it, and whether a value
// means that no more events follow.
type status struct {
	scope watch.Scope
	read  func(context.Context) (any, error)
	ended func(any) bool
}

func (s *Server) jobStatus(tenant, job string) status {
	return status{
		scope: watch.Scope{TenantID: tenant, JobID: job, MayLag: true, What: "job"}, // all its documents are read
		read:  func(ctx context.Context) (any, error) { return s.cfg.Ingest.Job(ctx, tenant, job) },
		ended: func(v any) bool { return v.(*sheaf.Job).State.Terminal() },
	}
}

func (s *Server) streamJob(w http.ResponseWriter, r *http.Request) {
	job := r.PathValue("job")
	s.stream(w, r, taskstore.EventFilter{JobID: job}, s.jobStatus(tenantOf(r.Context()), job))
}

func (s *Server) streamDocument(w http.ResponseWriter, r *http.Request) {
	path := pathOf(r)
	s.stream(w, r, taskstore.EventFilter{DocumentID: path.Document}, status{
		scope: watch.Scope{TenantID: tenantOf(r.Context()), DocumentID: path.Document, What: "document in " + path.Dataset},
		read:  func(ctx context.Context) (any, error) { return s.document(ctx, path) },
		ended: func(v any) bool { return v.(*sheaf.Document).State.Terminal() },
	})
}

func (s *Server) streamDataset(w http.ResponseWriter, r *http.Request) {
	d, err := s.dataset(r.Context(), DatasetPath{r.PathValue("ds")})
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	s.stream(w, r, taskstore.EventFilter{DatasetID: d.ID}, status{
		scope: watch.Scope{TenantID: d.TenantID, DatasetID: d.ID, What: "dataset"},
		read:  func(ctx context.Context) (any, error) { return s.cfg.Catalog.CountedDataset(ctx, d.TenantID, d.ID) },
		ended: func(any) bool { return false }, // a dataset never ends
	})
}

const (
	// keepAlive bounds the silence of a stream.
	keepAlive = 15 * time.Second
	// statusEvery is how often a stream rereads its status without an event: other
	// work, for example, changes a job's place in the queue.
	statusEvery = 5 * time.Second
	// lastsTime bounds reading the newest events of ended jobs.
	lastsTime = 10 * time.Second
	// pastPage is how many past events one query reads.
	pastPage = 500
)

// eventFrame encodes an event as a stream frame.
func eventFrame(e sheaf.Event) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Kind, b)
}

// stream serves the events that f selects as they occur: past ones from the store,
// then live ones from the process's follower. A watcher that falls behind is
// disconnected and resumes from the last event it was sent.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, f taskstore.EventFilter, of status) {
	ctx, tenant := r.Context(), tenantOf(r.Context())
	if !s.streams.enter(tenant) {
		s.writeProblem(w, r, tooManyStreams(s.streams.most))
		return
	}
	defer s.streams.leave(tenant)
	after, now, err := s.streamStart(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	var sub *watch.Subscription
	var from int64
	if now { // start at the subscription, which needs no query while others watch
		if sub, from, err = s.hub.Subscribe(ctx, tenant, f); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		defer sub.Close()
		after = from
	}
	if s.cfg.Observe != nil {
		defer s.cfg.Observe.Streaming(s.routeLabel(r))()
	}
	snap, _, err := s.hub.Read(ctx, of.scope, of.read) // after the start is known: what happens in between is in both
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // keep proxies from buffering it
	out := &streamWriter{w: w, rc: http.NewResponseController(w), after: after}
	out.printf("retry: 2000\n\n")
	if after > 0 {
		out.printf("id: %d\n", after)
	}
	out.printf("event: status\ndata: %s\n\n", snap.JSON)
	shown := snap.ETag
	if out.flush() != nil {
		return
	}

	// Read old history before the subscription starts to fill.
	for more := sub == nil; more; {
		if more, err = s.past(ctx, out, tenant, f, 0); err != nil {
			return // the client reconnects and is told why
		}
	}
	if sub == nil {
		if sub, from, err = s.hub.Subscribe(ctx, tenant, f); err != nil {
			return
		}
		defer sub.Close()
	}
	for more := true; more; {
		if more, err = s.past(ctx, out, tenant, f, from); err != nil {
			return
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !s.awaitPace(ctx, sub) {
			return
		}
		select {
		case <-sub.Ready:
		case <-timer.C:
		case <-s.cfg.Stopping: // the client reconnects to another server
			return
		case <-ctx.Done():
			return
		}
		items, lost := sub.Take()
		for _, it := range items {
			if it.Seq > out.after {
				out.event(it.Seq, it.Data)
			}
		}
		if lost {
			_ = out.flush()
			return
		}
		snap, again, err := s.hub.Latest(ctx, of.scope, of.read)
		if err != nil {
			return
		}
		if snap.ETag != shown {
			shown = snap.ETag
			out.printf("event: status\ndata: %s\n\n", snap.JSON)
		}
		if again == 0 && of.ended(snap.Value) {
			last, gone := s.lasts.Do(ctx, lastOf{tenant, f})
			if gone != nil || last.err != nil {
				return
			}
			if last.seq <= out.after {
				out.printf("event: end\ndata: %s\n\n", snap.JSON)
				_ = out.flush()
				return
			}
			again = time.Second // they come with the follower, unless the document is deleted first
			s.hub.Notify()
		}
		if len(out.buf) == 0 && time.Since(out.flushed) > keepAlive-time.Second {
			out.printf(": still here\n\n")
		}
		if out.flush() != nil {
			return
		}
		if again == 0 {
			again = statusEvery
		}
		timer.Reset(again)
	}
}

// awaitPace waits for a watcher's next turn, which depends on how many there are.
// It reports whether the stream continues.
func (s *Server) awaitPace(ctx context.Context, sub *watch.Subscription) bool {
	pace := s.hub.Pace()
	if pace == 0 {
		return true
	}
	// Jitter, so streams that were opened together do not stay in step.
	timer := time.NewTimer(pace*3/4 + rand.N(pace/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sub.Filling:
	case <-s.cfg.Stopping:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// past writes events from the store and reports whether there are more. A nonzero
// until is the last one to write.
func (s *Server) past(ctx context.Context, out *streamWriter, tenant string, f taskstore.EventFilter, until int64) (more bool, err error) {
	if until > 0 && out.after >= until {
		return false, nil
	}
	evs, err := s.cfg.Catalog.Events(ctx, tenant, f, out.after, pastPage)
	if err != nil {
		return false, err
	}
	for _, e := range evs {
		if until > 0 && e.Seq > until {
			return false, out.flush()
		}
		out.event(e.Seq, eventFrame(e))
	}
	return len(evs) == pastPage, out.flush()
}

// streamWriter buffers a stream's frames, so a burst takes few writes.
type streamWriter struct {
	w       io.Writer
	rc      *http.ResponseController
	after   int64 // the last event written
	buf     []byte
	flushed time.Time
	err     error
}

const streamBuffer = 32 << 10

func (o *streamWriter) printf(format string, args ...any) {
	o.buf = fmt.Appendf(o.buf, format, args...)
	o.spill()
}

func (o *streamWriter) event(seq int64, frame []byte) {
	o.after = seq
	o.buf = append(o.buf, frame...)
	o.spill()
}

func (o *streamWriter) spill() {
	if len(o.buf) >= streamBuffer {
		_ = o.flush() // the error is kept
	}
}

func (o *streamWriter) flush() error {
	if o.err == nil && len(o.buf) > 0 {
		if _, o.err = o.w.Write(o.buf); o.err == nil {
			o.err = o.rc.Flush()
		}
		o.flushed = time.Now()
	}
	o.buf = o.buf[:0]
	return o.err
}

// lastOf asks for a tenant's newest event that a filter selects.
type lastOf struct {
	tenant string
	filter taskstore.EventFilter
}

type lastSeq struct {
	seq int64
	err error
}

// readLasts answers concurrent callers, such as everyone watching a job when it
// ends, with one query per job.
func (s *Server) readLasts(ctx context.Context, asked []lastOf) []lastSeq {
	type key struct{ tenant, dataset, document, job string }
	known := map[key]lastSeq{}
	out := make([]lastSeq, len(asked))
	for i, a := range asked {
		k := key{a.tenant, a.filter.DatasetID, a.filter.DocumentID, a.filter.JobID}
		last, ok := known[k]
		if !ok {
			last.seq, last.err = s.cfg.Catalog.LastEventOf(ctx, a.tenant, a.filter)
			known[k] = last
		}
		out[i] = last
	}
	return out
}

// streamStart returns the event after which a stream starts: the last one the
// client saw, or now with ?after=now.
func (s *Server) streamStart(r *http.Request) (after int64, now bool, _ error) {
	from := r.Header.Get("Last-Event-ID")
	if from == "" {
		from = r.URL.Query().Get("after")
	}
	if from == "now" || from == "" {
		return 0, from == "now", nil
	}
	n, err := strconv.ParseInt(from, 10, 64)
	if err != nil || n < 0 {
		return 0, false, newProblem(400, "", fmt.Sprintf("Last-Event-ID cannot be %s; send the id of an event of this stream, or leave it out to begin at the start", quoted(from)))
	}
	return n, false, nil
}
