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

// liveSource answers a request with a stream of events.
type liveSource func(w http.ResponseWriter, r *http.Request)

// streaming has an operation answer live events to those who ask for them.
func (s *Server) streaming(op *huma.Operation, live liveSource) {
	op.Description = strings.TrimSpace(op.Description + " With Accept: text/event-stream the same address answers its events live; Last-Event-ID resumes, and after, the number of an event or now, says where a new stream begins. No other parameter goes with a stream.")
	op.Metadata = map[string]any{metaStream: live}
}

func streamed(op *huma.Operation) bool { return op.Metadata[metaStream] != nil }

func wantsStream(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// status is what a stream shows beside the events: who reads it, and whether no
// more events come once it reads so.
type status struct {
	scope watch.Scope
	read  func(context.Context) (any, error)
	ended func(any) bool
}

func (s *Server) jobStatus(tenant, job string) status {
	return status{
		scope: watch.Scope{TenantID: tenant, JobID: job, What: "job"},
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
	// keepAlive is how long a stream says nothing.
	keepAlive = 15 * time.Second
	// statusEvery is how often a stream looks whether its status is another
	// though no event touched it: a place in the queue changes with the work of
	// others.
	statusEvery = 5 * time.Second
	// lastsTime bounds the reading of the newest events of jobs that have ended.
	lastsTime = 10 * time.Second
	// pastPage is how many events of the past one statement reads.
	pastPage = 500
)

// eventFrame is an event as a stream shows it.
func eventFrame(e sheaf.Event) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Kind, b)
}

// stream answers with the events that f selects as they come: those of the past
// from the store, then what the process's follower hands out. A watcher that
// falls behind is cut off, and resumes from the last event that it was sent.
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
	if now { // where the subscription begins, which takes no statement while others watch
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
	snap, err := s.hub.Read(ctx, of.scope, of.read) // after the start is known: what happens between is both in it and in the stream
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not hold it back
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

	// What is long past is read before the subscription begins to fill.
	for more := sub == nil; more; {
		if more, err = s.past(ctx, out, tenant, f, 0); err != nil {
			return // the client connects again and is told why
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
		case <-s.cfg.Stopping: // the client connects again, to another server
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
			again = time.Second // they come with the follower, unless their document is deleted meanwhile
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

// awaitPace waits until it is time to serve a watcher again, which depends on how
// many there are. It reports whether the stream goes on.
func (s *Server) awaitPace(ctx context.Context, sub *watch.Subscription) bool {
	pace := s.hub.Pace()
	if pace == 0 {
		return true
	}
	// Streams that were opened at once are not served at once ever after.
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

// past writes events of the store, and reports whether there are more. With
// until they end there.
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

// streamWriter gathers the frames of a stream, so that a burst is few writes.
type streamWriter struct {
	w       io.Writer
	rc      *http.ResponseController
	after   int64 // the last event that was written
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
		_ = o.flush() // the error stays
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

// lastOf asks for the newest event of a tenant that a filter selects.
type lastOf struct {
	tenant string
	filter taskstore.EventFilter
}

type lastSeq struct {
	seq int64
	err error
}

// readLasts answers those who ask at once, as all who watch a job do when it
// ends, with one statement for each job.
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

// streamStart is the event behind which a stream begins: the one the client
// saw last; or now, with ?after=now.
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
