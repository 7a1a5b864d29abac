// Package docling implements the protocol of docling-serve: files are converted or
// chunked, by blocking calls and by tasks. It is a facade of /v1: a task is a job,
// whose documents are deleted once their results have been fetched.
package docling

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/facade"
)

// resultLife is how long a task's result can be fetched after the task has ended.
const resultLife = time.Hour

// Prefix is the prefix of the routes, which are also served without it.
const Prefix = "/docling"

// Routes returns the routes of the API; version is the product's.
func Routes(v1 http.RoundTripper, version string) map[string]http.Handler {
	s := &service{v1: v1, sockets: make(chan struct{}, maxSockets)}
	out := map[string]http.Handler{}
	add := func(pattern string, h func(http.ResponseWriter, *http.Request)) {
		method, path, _ := strings.Cut(pattern, " ")
		out[method+" "+Prefix+path] = http.HandlerFunc(h)
		out[pattern] = http.HandlerFunc(h)
	}
	for _, kind := range []string{kindSource, kindFile} {
		add("POST /v1/convert/"+kind, s.waiting(kind))
		add("POST /v1/convert/"+kind+"/async", s.submitting(kind))
		add("POST /v1/chunk/{chunker}/"+kind, s.waiting(kind))
		add("POST /v1/chunk/{chunker}/"+kind+"/async", s.submitting(kind))
	}
	add("POST /v1/convert/source/batch", s.submitting(kindBatch))
	add("GET /v1/artifacts/{task}/{source}/{format}", s.artifact)
	add("GET /v1/status/poll/{task}", s.poll)
	add("GET /v1/status/ws/{task}", s.follow)
	add("GET /v1/result/{task}", s.result)
	add("DELETE /v1/task/{task}", s.cancel)
	add("DELETE /v1/result/{task}", s.cancel)
	add("GET /health", func(w http.ResponseWriter, _ *http.Request) { facade.Answer(w, nil, map[string]string{"status": "ok"}) })
	out[Prefix+"/"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: "Not Found: " + r.URL.Path})
	})
	// Without the prefix, GET /version belongs to Tika.
	out["GET "+Prefix+"/version"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		facade.Answer(w, nil, map[string]string{"sheaf": version})
	})
	return out
}

// Kinds of requests.
const (
	kindSource = "source" // JSON
	kindFile   = "file"   // multipart/form-data
	kindBatch  = "batch"  // JSON; the result has a URL for each format of each source
)

type service struct {
	v1      http.RoundTripper
	sockets chan struct{} // holds one entry per open socket
}

func refuse(w http.ResponseWriter, err error) {
	e := facade.AsError(err)
	facade.Answer(w, e, map[string]string{"detail": e.Detail})
}

// read reads a request and submits its sources as jobs.
func (s *service) read(r *http.Request, kind string) (*request, *task, error) {
	q := &request{plan: plan{formats: []string{"md"}, chunker: r.PathValue("chunker")}, settings: map[string]any{}, wait: facade.ConvertWait}
	q.batch = kind == kindBatch
	switch q.chunker {
	case "", "hybrid", "hierarchical":
	default:
		return nil, nil, &facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: "There are the chunkers hybrid and hierarchical"}
	}
	parts, err := q.body(r, kind == kindFile)
	if parts != nil {
		defer parts.RemoveAll() //nolint:errcheck // the system empties the folder
	}
	if err != nil {
		return nil, nil, err
	}
	t, err := s.submit(r.Context(), facade.Inside(s.v1, r.Header), q)
	return q, t, err
}

// submit creates one job for the sources.
func (s *service) submit(ctx context.Context, c *facade.Client, q *request) (*task, error) {
	t := &task{plan: q.plan}
	if err := c.EnsureDataset(ctx, facade.Conversions); err != nil {
		return nil, err
	}
	if len(q.sources) > 1 {
		var job sheaf.Job
		if err := c.Call(ctx, http.MethodPost, facade.Path("v1", "datasets", facade.Conversions, "jobs"), map[string]string{"name": q.sources[0].name}, &job); err != nil {
			return nil, err
		}
		t.job = job.ID
	}
	var sent []sheaf.Document
	err := func() error {
		for i := range q.sources {
			docs, err := submitOne(ctx, c, t, &q.sources[i], q.settings)
			if err != nil {
				return err
			}
			sent = append(sent, docs...)
		}
		if len(q.sources) > 1 {
			return c.Call(ctx, http.MethodPost, facade.Path("v1", "jobs", t.job)+":close", nil, nil)
		}
		return nil
	}()
	if err != nil {
		c.Drop(ctx, sent)
		if len(q.sources) > 1 {
			_ = c.Call(context.WithoutCancel(ctx), http.MethodPost, facade.Path("v1", "jobs", t.job)+":close", nil, nil) // it closes automatically later
		}
		return nil, err
	}
	return t, nil
}

func submitOne(ctx context.Context, c *facade.Client, t *task, s *source, settings map[string]any) ([]sheaf.Document, error) {
	in := facade.Conversion{Name: s.name, MediaType: s.media, URL: s.url, Dataset: facade.Conversions, Settings: settings, Job: t.job}
	if s.open != nil {
		body, err := s.open()
		if err != nil {
			return nil, err
		}
		defer body.Close()
		in.Body = body
	}
	job, docs, err := c.Submit(ctx, in)
	if err == nil {
		t.job = job.ID
	}
	return docs, err
}

// waiting answers with the result itself.
func (s *service) waiting(kind string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		q, t, err := s.read(r, kind)
		if err != nil {
			refuse(w, err)
			return
		}
		ctx, c := r.Context(), facade.Inside(s.v1, r.Header)
		st, err := t.wait(ctx, c, q.wait)
		if err == nil && !st.ended() {
			facade.Answer(w, &facade.Error{Status: http.StatusGatewayTimeout}, map[string]string{
				"detail": "The task did not end within " + q.wait.String() + "; follow it by its task_id", "task_id": t.id(),
			})
			return
		}
		defer t.drop(ctx, c)
		if err != nil {
			refuse(w, err)
			return
		}
		t.write(w, r, c)
	}
}

// submitting answers with a task.
func (s *service) submitting(kind string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, t, err := s.read(r, kind)
		c := facade.Inside(s.v1, r.Header)
		var st *status
		if err == nil {
			st, err = t.status(r.Context(), c, 0)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		facade.Answer(w, nil, st)
		sweep(r.Context(), c)
	}
}

// sweepLimit is how many documents one request examines: more than it adds.
const sweepLimit = 100

// sweep deletes conversions whose results have been available long enough.
func sweep(ctx context.Context, c *facade.Client) {
	var list facade.List[sheaf.Document]
	if c.Call(ctx, http.MethodGet, facade.Path("v1", "datasets", facade.Conversions, "documents")+"?order=oldest&limit="+strconv.Itoa(sweepLimit), nil, &list) != nil {
		return // the next request will do it
	}
	var old []sheaf.Document
	for _, d := range list.Items {
		if d.State.Terminal() && time.Since(d.FinishedAt) > resultLife {
			old = append(old, d)
		}
	}
	c.Drop(ctx, old)
}
