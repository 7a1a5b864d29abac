package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/samples"
)

const (
	trialMedia = "application/x-scan" // lines are pages; a line that begins with SLOW takes 300 ms
	dataset    = "docs"
)

// document is what a client knows of a document it sent.
type document struct {
	tenant   string
	name     string
	token    string // a unique word, on every page; "" for the samples
	pages    int
	id       string
	job      string // job of the upload
	flow     string // flow it goes through; "" for the standard one
	canceled bool   // a cancel was requested, whatever its result
	deleted  bool   // a delete was requested
	gone     bool   // and answered
}

// answer is the part of an upload's answer that a client needs.
type answer struct {
	Job       sheaf.Job        `json:"job"`
	Documents []sheaf.Document `json:"documents"`
}

// load is clients of several tenants that send, search, cancel, re-parse and delete
// documents while faults are injected.
type load struct {
	urls []string
	keys map[string]string // by tenant
	http *http.Client
	// timeout of one request, and of a call with retries; 0 means 10 s and 45 s.
	timeout, patience time.Duration

	mu         sync.Mutex
	rng        *rand.Rand
	docs       []*document
	unanswered int // uploads that were never answered
	searches   int
	stopping   map[string]bool // runs over datasets whose cancel was requested
	stopped    map[string]bool // those of them whose cancel was answered
	violations []string
	cancels    []time.Duration // from request to answer
}

func (l *load) violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.violations) < 100 {
		l.violations = append(l.violations, fmt.Sprintf(format, args...))
	}
}

func (l *load) intn(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(n)
}

func (l *load) word() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b [6]byte
	for i := range b {
		b[i] = byte(l.rng.UintN(256))
	}
	return "zq" + hex.EncodeToString(b[:])
}

// status is a non-2xx answer.
type status struct {
	code int
	body string
}

func (s *status) Error() string { return fmt.Sprintf("%d: %s", s.code, s.body) }

// once sends one request to any API process.
func (l *load) once(ctx context.Context, tenant, method, path, contentType, key string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(l.timeout, 10*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, l.urls[l.intn(len(l.urls))]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer "+l.keys[tenant])
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return &status{resp.StatusCode, string(b[:min(len(b), 300)])}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// call retries a request until an API process has answered it conclusively.
func (l *load) call(ctx context.Context, tenant, method, path, contentType, key string, body []byte, out any) error {
	deadline := time.Now().Add(cmp.Or(l.patience, 45*time.Second))
	for {
		err := l.once(ctx, tenant, method, path, contentType, key, body, out)
		if s, ok := errors.AsType[*status](err); ok && s.code == 499 {
			l.violation("I17: a client that waited was told that it went away: %s %s", method, path)
		}
		if s, ok := errors.AsType[*status](err); ok && s.code < 500 && s.code != 429 && !strings.Contains(s.body, "in_progress") {
			return err
		}
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		pause(ctx, 300*time.Millisecond)
	}
}

func (l *load) post(ctx context.Context, tenant, path string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return l.call(ctx, tenant, http.MethodPost, path, "application/json", "", b, out)
}

// send uploads one new document with an idempotency key, as a client does that must
// neither lose nor duplicate it.
func (l *load) send(ctx context.Context, tenant string, slow bool) (*document, error) {
	d := &document{tenant: tenant, token: l.word()}
	if !slow && l.intn(4) == 0 {
		names, err := fs.Glob(samples.FS, "handbook.*")
		if err != nil {
			return nil, err
		}
		name := names[l.intn(len(names))]
		content, err := samples.FS.ReadFile(name)
		if err != nil {
			return nil, err
		}
		d.name, d.token = d.token+"-"+name, ""
		return l.upload(ctx, d, content, fmt.Sprintf(`{"chunk_token_num":%d}`, 128+l.intn(3)*128)) // sometimes a stored result can be reused
	}
	if n := l.intn(3 * len(flows)); !slow && n < len(flows) {
		d.flow = flowName(n)
	}
	pages := 4 + l.intn(28) // a document of four is read by its plan
	if slow {
		pages = max(pages, 9)
	}
	return l.sendTrial(ctx, d, pages, slow)
}

// sendTrial uploads d as a file of the trial format, whose tasks read four pages each.
func (l *load) sendTrial(ctx context.Context, d *document, pages int, slow bool) (*document, error) {
	d.name, d.pages = d.token+".trial", pages
	var b strings.Builder
	for i := 1; i <= d.pages; i++ {
		line := fmt.Sprintf("Page %d of %s speaks of %sp%d.", i, d.token, d.token, i)
		if slow || l.intn(4) == 0 {
			line = "SLOW " + line
		}
		b.WriteString(line + "\n")
	}
	through := ""
	if d.flow != "" {
		through = `,"flow":"` + d.flow + `"`
	}
	return l.upload(ctx, d, []byte(b.String()), `{"media_type":"`+trialMedia+`","task_page_size":4`+through+`}`)
}

// upload sends d's bytes with an idempotency key.
func (l *load) upload(ctx context.Context, d *document, content []byte, parserConfig string) (*document, error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	_ = w.WriteField("parser_config", parserConfig) // into memory
	part, _ := w.CreateFormFile("file", d.name)
	_, _ = part.Write(content)
	_ = w.Close()
	l.mu.Lock()
	l.docs = append(l.docs, d)
	l.mu.Unlock()
	var a answer
	if err := l.call(ctx, d.tenant, http.MethodPost, "/v1/datasets/"+dataset+"/documents", w.FormDataContentType(), d.name, body.Bytes(), &a); err != nil {
		l.mu.Lock()
		l.unanswered++
		l.mu.Unlock()
		return nil, err
	}
	if len(a.Documents) != 1 {
		return nil, fmt.Errorf("the upload of %s was answered with %d documents", d.name, len(a.Documents))
	}
	l.mu.Lock()
	d.id, d.job = a.Documents[0].ID, a.Job.ID
	l.mu.Unlock()
	return d, nil
}

// pick returns an accepted document that no client asked to delete, usually one of
// the latest.
func (l *load) pick() *document {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 20 {
		if len(l.docs) == 0 {
			return nil
		}
		recent := min(len(l.docs), 12)
		d := l.docs[len(l.docs)-1-l.rng.IntN(recent)]
		if d.id != "" && !d.deleted {
			return d
		}
	}
	return nil
}

// cancel, reparse and remove race with whatever the document's tasks do.
func (l *load) cancel(ctx context.Context, d *document) error {
	l.mu.Lock()
	d.canceled = true
	l.mu.Unlock()
	begun := time.Now()
	err := l.post(ctx, d.tenant, "/v1/datasets/"+dataset+"/documents:cancel", map[string]any{"filter": map[string]any{"document_ids": []string{d.id}}}, nil)
	l.mu.Lock()
	l.cancels = append(l.cancels, time.Since(begun))
	l.mu.Unlock()
	return err
}

func (l *load) reparse(ctx context.Context, d *document) error {
	config := map[string]any{"chunk_token_num": 96 + l.intn(4)*64}
	return l.post(ctx, d.tenant, "/v1/datasets/"+dataset+"/documents:reparse", map[string]any{
		"filter": map[string]any{"document_ids": []string{d.id}}, "parser_config": config, "fresh": l.intn(2) == 0}, nil)
}

func (l *load) remove(ctx context.Context, d *document) error {
	l.mu.Lock()
	d.deleted = true
	l.mu.Unlock()
	err := l.call(ctx, d.tenant, http.MethodDelete, "/v1/datasets/"+dataset+"/documents/"+d.id, "application/json", "", nil, nil)
	if s, ok := errors.AsType[*status](err); ok && s.code == 404 {
		err = nil // an earlier attempt, whose answer was lost, has done it
	}
	if err == nil {
		l.mu.Lock()
		d.gone = true
		l.mu.Unlock()
	}
	return err
}

// hits searches for a document's word and returns the matching texts.
func (l *load) hits(ctx context.Context, d *document) ([]string, error) {
	var r struct {
		Hits []struct {
			Document struct {
				ID string `json:"id"`
			} `json:"document"`
			Chunk struct {
				Text string `json:"text"`
			} `json:"chunk"`
		} `json:"hits"`
	}
	b, _ := json.Marshal(map[string]any{"query": d.token, "mode": "text", "kinds": []string{"text"}, "limit": 100})
	if err := l.once(ctx, d.tenant, http.MethodPost, "/v1/search", "application/json", "", b, &r); err != nil {
		return nil, err
	}
	var texts []string
	for _, h := range r.Hits {
		if !strings.Contains(h.Chunk.Text, d.token) {
			continue // matched another word of the analysed query
		}
		if d.id != "" && h.Document.ID != d.id {
			l.violation("I18: the words of %s are in document %s too: one upload became two documents", d.id, h.Document.ID)
		}
		texts = append(texts, h.Chunk.Text)
	}
	return texts, nil
}

// look searches for one document and checks what must hold at any moment: its pages
// are found once, so that no two generations mix, and never after a delete was
// answered.
func (l *load) look(ctx context.Context, d *document) {
	l.mu.Lock()
	gone := d.gone
	l.mu.Unlock()
	texts, err := l.hits(ctx, d)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.searches++
	l.mu.Unlock()
	if gone && len(texts) > 0 {
		l.violation("I8: document %s is found after its delete was answered", d.id)
	}
	pages := map[string]int{}
	for _, text := range texts {
		for word := range strings.FieldsSeq(text) {
			if strings.HasPrefix(word, d.token+"p") {
				pages[word]++
			}
		}
	}
	for word, n := range pages {
		if n > 1 {
			l.violation("I8: page %s of document %s is found %d times: two generations are visible at once", word, d.id, n)
			return
		}
	}
}

// run sends and searches until ctx ends.
func (l *load) run(ctx context.Context, backlog func() int) {
	var wg sync.WaitGroup
	for tenant := range l.keys {
		wg.Go(func() {
			for ctx.Err() == nil {
				if backlog() < 60 {
					_, _ = l.send(ctx, tenant, l.intn(5) == 0) // unanswered ones are counted
				}
				pause(ctx, time.Duration(300+l.intn(700))*time.Millisecond)
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				l.mu.Lock()
				var d *document
				if n := len(l.docs); n > 0 {
					d = l.docs[l.rng.IntN(n)]
				}
				l.mu.Unlock()
				if d != nil && d.token != "" && d.tenant == tenant {
					l.look(ctx, d)
				}
				pause(ctx, 200*time.Millisecond)
			}
		})
		wg.Go(func() { l.runOverDataset(ctx, tenant) })
	}
	wg.Wait()
}
