package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/api"
)

// submission makes documents of stored uploads, while others are being uploaded. They
// join an open job, or as few as the server allows, which is closed when the last one
// has been submitted. An interrupted command leaves it open, and the next run goes on
// with it.
type submission struct {
	client *client
	base   string // URL path of the dataset
	name   string // of the jobs, "" for that of their first files
	query  string // of each request
	open   []*openJob
	answer []*sheaf.Job   // the jobs, once all is submitted
	refuse []api.Rejected // files that did not become documents

	room  chan struct{} // one for each file that is being uploaded or not submitted
	mu    sync.Mutex
	ready []upload // stored and not submitted
}

// openJob is a job that takes more files.
type openJob struct {
	job   *sheaf.Job
	files int
	full  bool // or closed by somebody else
}

// upload is a stored one of a command's files.
type upload struct {
	file int // its place among the files
	id   string
}

// submitEvery is how long a stored file waits for others before it is submitted.
// Whatever takes less than this is one request.
const submitEvery = 2 * time.Second

// jobIdle is how long an interrupted command can be resumed: its uploads are kept as
// long by default.
const jobIdle = "24h"

// mostReady bounds the files that are not submitted: where that takes longer than the
// uploads, these wait. A tenant has room for some of them only.
const mostReady = 4 * api.MaxSubmit

// add leaves a stored file to be submitted. It has room.
func (s *submission) add(file int, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, upload{file, id})
}

// take returns uploads to submit in one request, in the order of the files. With
// full, it returns none before there are as many as a request takes.
func (s *submission) take(full bool) []upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 || full && len(s.ready) < api.MaxSubmit {
		return nil
	}
	slices.SortFunc(s.ready, func(a, b upload) int { return a.file - b.file })
	n := min(len(s.ready), api.MaxSubmit)
	some := slices.Clone(s.ready[:n])
	s.ready = slices.Delete(s.ready, 0, n)
	return some
}

// run submits what is stored until ended is closed.
func (s *submission) run(ctx context.Context, ended <-chan struct{}) error {
	for last := time.Now(); ; {
		select {
		case <-time.After(submitEvery / 20):
		case <-ended:
			return nil
		}
		some := s.take(time.Since(last) < submitEvery)
		if len(some) == 0 {
			continue
		}
		last = time.Now()
		if err := s.join(ctx, some); err != nil {
			return err
		}
		for range some {
			<-s.room
		}
	}
}

// finish submits the rest and closes the jobs, once no more files are added.
func (s *submission) finish(ctx context.Context) error {
	// What the server does is known even after Ctrl-C; this is short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTimeout)
	defer cancel()
	if n := len(s.ready); n > 0 && n <= api.MaxSubmit && len(s.open) == 0 && s.name == "" { // one request says it all
		answer, err := s.submit(ctx, s.take(false), "")
		if err == nil && answer.Job != nil {
			s.answer = append(s.answer, answer.Job)
		}
		return err
	}
	for some := s.take(false); len(some) > 0; some = s.take(false) {
		if err := s.join(ctx, some); err != nil {
			return err
		}
	}
	for _, o := range s.open {
		job := &sheaf.Job{}
		if err := s.again(ctx, func() error { return s.client.call(ctx, http.MethodPost, "/v1/jobs/"+o.job.ID+":close", nil, job) }); err != nil {
			return err
		}
		if job.Documents.Total > 0 {
			s.answer = append(s.answer, job)
		}
	}
	return nil
}

// join adds uploads to the open job, or to a new one where it is full or was closed.
func (s *submission) join(ctx context.Context, some []upload) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTimeout)
	defer cancel()
	for opened := false; len(some) > 0; {
		o := s.taking()
		if o == nil {
			var err error
			if o, err = s.openJob(ctx); err != nil {
				return err
			}
			opened = true
		}
		n := min(len(some), sheaf.MaxJobDocuments-o.files)
		_, err := s.submit(ctx, some[:n], o.job.ID)
		if isConflict(err) && !opened {
			o.full = true // somebody closed it, or added to it
			continue
		}
		if err != nil {
			if o.files == 0 { // nothing leads a later run to it
				_ = s.client.call(ctx, http.MethodPost, "/v1/jobs/"+o.job.ID+":close", nil, nil) // otherwise it closes later
			}
			return err
		}
		o.files += n
		o.full = o.files == sheaf.MaxJobDocuments
		some = some[n:]
	}
	return nil
}

// taking returns a job that takes more files, nil if there is none.
func (s *submission) taking() *openJob {
	for _, o := range s.open {
		if !o.full {
			return o
		}
	}
	return nil
}

func (s *submission) openJob(ctx context.Context) (*openJob, error) {
	body, err := json.Marshal(map[string]string{"name": s.name, "idle": jobIdle})
	if err != nil {
		return nil, err
	}
	o, key := &openJob{job: &sheaf.Job{}}, sheaf.NewID()
	err = s.again(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.client.base+s.base+"/jobs", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key) // otherwise an answer that is lost leaves an empty job
		resp, err := s.client.send(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(o.job)
	})
	if err == nil {
		s.open = append(s.open, o)
	}
	return o, err
}

// submit makes documents of uploads. Repeating it changes nothing.
func (s *submission) submit(ctx context.Context, some []upload, job string) (*api.SubmitAnswer, error) {
	ids := make([]string, len(some))
	for i, u := range some {
		ids[i] = u.id
	}
	body := map[string]any{"ids": ids}
	if job != "" {
		body["job"] = job
	}
	answer := &api.SubmitAnswer{}
	err := s.again(ctx, func() error {
		*answer = api.SubmitAnswer{}
		return s.client.call(ctx, http.MethodPost, s.base+"/uploads:submit"+s.query, body, answer)
	})
	if err == nil {
		s.refuse = append(s.refuse, answer.Rejected...)
	}
	return answer, err
}

// again repeats a request that failed for a passing reason.
func (s *submission) again(ctx context.Context, request func() error) error {
	for attempt := 1; ; attempt++ {
		err := request()
		if err == nil || attempt == pieceAttempts || isConflict(err) || isMissing(err) || !passing(err) {
			return err
		}
		if pause(ctx, attempt) != nil {
			return err
		}
	}
}

// joined is the number of files in open jobs.
func (s *submission) joined() (n int) {
	for _, o := range s.open {
		n += o.files
	}
	return n
}

// inWords names the open jobs.
func (s *submission) inWords() string {
	if len(s.open) == 1 {
		return "job " + s.open[0].job.ID
	}
	return fmt.Sprintf("%s, the last of them %s", count(len(s.open), "job"), s.open[len(s.open)-1].job.ID)
}

// isConflict reports whether the server refused a request for the state of what it
// names.
func isConflict(err error) bool {
	a, ok := errors.AsType[*answerError](err)
	return ok && a.status == http.StatusConflict && a.code == "conflict"
}
