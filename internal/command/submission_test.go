package command

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
)

// receiver takes uploads as a server does, and makes documents of none.
type receiver struct {
	t       *testing.T
	mu      sync.Mutex
	uploads int
	pending map[string]bool
	most    int // pending at once
	jobs    map[string]int
	closed  map[string]bool
	late    bool // nothing is submitted before as much is pending as may be
	full    chan struct{}
	filled  sync.Once
	lost    sync.Once // the first answer to a submit is
}

func receives(t *testing.T, late bool) (*receiver, *client) {
	r := &receiver{t: t, pending: map[string]bool{}, jobs: map[string]int{}, closed: map[string]bool{}, late: late, full: make(chan struct{})}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return r, newClient(server.URL, "")
}

func fileIn(t *testing.T, dir, name string) source {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("# A\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return source{name: name, path: path, size: 4}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	answer := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	path := strings.TrimPrefix(req.URL.Path, "/v1/datasets/default")
	if path == "/uploads:submit" && r.late {
		<-r.full
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case req.Method == http.MethodGet:
		answer(200, api.List[api.UploadStatus]{})
	case path == "/uploads":
		r.uploads++
		id := fmt.Sprintf("u%d", r.uploads)
		r.pending[id] = true
		if r.most = max(r.most, len(r.pending)); r.most == mostReady {
			r.filled.Do(func() { close(r.full) })
		}
		answer(201, api.UploadStatus{ID: id, Complete: true, ExpiresAt: time.Now().Add(time.Hour)})
	case path == "/jobs":
		id := fmt.Sprintf("j%d", len(r.jobs)+1)
		r.jobs[id] = 0
		answer(201, sheaf.Job{ID: id})
	case path == "/uploads:submit":
		var in struct {
			IDs []string `json:"ids"`
			Job string   `json:"job"`
		}
		if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
			r.t.Error(err)
		}
		if r.closed[in.Job] || r.jobs[in.Job]+len(in.IDs) > sheaf.MaxJobDocuments {
			answer(409, api.Problem{Status: 409, Code: "conflict", Detail: "it takes no more files"})
			return
		}
		for _, id := range in.IDs {
			if r.pending[id] {
				r.jobs[in.Job]++
			}
			delete(r.pending, id)
		}
		r.lost.Do(func() { panic(http.ErrAbortHandler) })
		answer(202, api.SubmitAnswer{})
	case strings.HasSuffix(path, ":close"):
		id := strings.TrimSuffix(strings.TrimPrefix(path, "/v1/jobs/"), ":close")
		r.closed[id] = true
		answer(200, sheaf.Job{ID: id, Documents: sheaf.JobDocuments{Total: r.jobs[id]}})
	default:
		r.t.Errorf("%s %s", req.Method, req.URL)
	}
}

// A folder of more files than a tenant may upload ahead, and than a job takes, is
// submitted while it is uploaded, to as few jobs as possible.
func TestFilesAreSubmittedWhileOthersAreUploaded(t *testing.T) {
	const files = sheaf.MaxJobDocuments + 1234
	dir := t.TempDir()
	var all []source
	for i := range files {
		all = append(all, fileIn(t, dir, fmt.Sprintf("%05d.md", i)))
	}
	r, c := receives(t, true)
	d, err := c.deliver(t.Context(), "default", all, nil, "", "", &bar{silent: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.most != mostReady {
		t.Errorf("%d uploads were not submitted at a time; the bound is %d", r.most, mostReady)
	}
	sum := 0
	for _, j := range d.jobs.answer {
		if !r.closed[j.ID] {
			t.Errorf("job %s stays open", j.ID)
		}
		sum += j.Documents.Total
	}
	if len(d.jobs.answer) != 2 || len(r.jobs) != 2 || sum != files || len(r.pending) > 0 {
		t.Errorf("%d files became the jobs %v, and %d were not submitted", files, r.jobs, len(r.pending))
	}
}

// Files that are uploaded at once are one request, which opens no job.
func TestFewFilesAreOneRequest(t *testing.T) {
	r, c := receives(t, false)
	if _, err := c.deliver(t.Context(), "default", []source{fileIn(t, t.TempDir(), "a.md")}, nil, "", "", &bar{silent: true}); err != nil {
		t.Fatal(err)
	}
	if len(r.closed) > 0 || len(r.jobs) != 1 || r.jobs[""] != 1 {
		t.Errorf("the jobs: %v, closed %v", r.jobs, r.closed)
	}
}

// Files that are ready at the end are all submitted, however many requests they take.
func TestAllThatIsReadyIsSubmitted(t *testing.T) {
	for _, files := range []int{api.MaxSubmit, api.MaxSubmit + 1, 2*api.MaxSubmit + 1} {
		r, c := receives(t, false)
		s := submission{client: c, base: "/v1/datasets/default"}
		for i := range files {
			id := fmt.Sprint("u", i)
			r.pending[id] = true
			s.add(i, id)
		}
		if err := s.finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, n := range r.jobs {
			sum += n
		}
		if sum != files || len(r.pending) > 0 || len(r.jobs) != 1 {
			t.Errorf("of %d files %d were submitted, to %d jobs", files, sum, len(r.jobs))
		}
	}
}

// A summary of more failures or warnings than were read says so.
func TestSummaryThatWasCutSaysSo(t *testing.T) {
	o := ingested{Warnings: []verdict{{Code: "rows_clipped", Message: "Rows were left out.", Documents: []string{"a.csv"}}}}
	for _, cut := range []bool{false, true} {
		var b strings.Builder
		o.cut = cut
		if o.printWhy(&b); strings.Contains(b.String(), "The first 5,000 of a job are counted") != cut || !strings.Contains(b.String(), "rows_clipped (1)") {
			t.Errorf("cut %v: %s", cut, b.String())
		}
	}
}
