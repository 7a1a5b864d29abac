// Command hostile sends damaged and malicious files to a running Sheaf and reports
// the outcome of each. Every file must end with a verdict, in time and within
// memory limits, and cancelling must work at any moment; the service must neither
// exit nor leak anything.
//
//	go run ./chaos/hostile -n 10000 -seed 7
//
// The same seed and files produce the same mutants. It exits with 1 if a promise is
// broken, and keeps the mutants responsible.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"
)

// Promises of the service under hostile input.
const (
	maxParentBytes = 1 << 30
	maxCancel      = 2 * time.Second
	maxVerdict     = 5 * time.Minute // for one file, with others queued
)

type config struct {
	n       int
	seed    uint64
	bin     string // the program
	corpus  string // a folder of files in addition to those of the repository; may be ""
	keep    string // where mutants at fault are kept
	root    string // of the repository
	clients int
	out     io.Writer // the table
	log     io.Writer // progress
}

func main() {
	var c config
	flag.IntVar(&c.n, "n", 1000, "files to send")
	flag.Uint64Var(&c.seed, "seed", 0, "of the mutations; 0 draws one")
	flag.StringVar(&c.bin, "sheaf", "bin/sheaf", "the program to test")
	flag.StringVar(&c.corpus, "corpus", os.Getenv("SHEAF_CORPUS"), "a folder of files to mutate beside those of the repository")
	flag.StringVar(&c.keep, "keep", "chaos/out/hostile", "where files that break a promise are kept")
	flag.IntVar(&c.clients, "clients", 8, "files under way at once")
	flag.Parse()
	c.out, c.log, c.root = os.Stdout, os.Stderr, "."
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	broken, err := run(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, "hostile: broken:", b)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}

// verdict is how one mutant ended.
type verdict struct {
	format, mutation, state, code string
	took                          time.Duration
	canceled                      time.Duration // from the request until it had stopped; 0 if not canceled
}

// run sends c.n mutants and returns the broken promises.
func run(ctx context.Context, c config) (broken []string, err error) {
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	seeds, err := seedFiles(c.root, c.corpus)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := start(ctx, c.bin, dir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	fmt.Fprintf(c.log, "hostile: seed %d, %d files to mutate, %s\n", c.seed, len(seeds), s.url)

	// The resources of a warmed-up service: measured now, and once more at the end.
	warm := rand.New(rand.NewPCG(c.seed, 0))
	for i := range min(8, len(seeds)) {
		if _, err := s.one(ctx, seeds[i].name, seeds[i].data, warm, false); err != nil {
			return nil, fmt.Errorf("an undamaged file: %w", err)
		}
	}
	before := s.holds()
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	peak := s.watchMemory(watch)

	var (
		mu   sync.Mutex
		all  []verdict
		next atomic.Int64
		wg   sync.WaitGroup
	)
	fault := func(name string, data []byte, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		what := fmt.Sprintf(format, args...)
		if len(data) > 0 && os.MkdirAll(c.keep, 0o755) == nil {
			path := filepath.Join(c.keep, fmt.Sprintf("%d-%s", c.seed, name))
			if os.WriteFile(path, data, 0o644) == nil {
				what += "; kept as " + path
			}
		}
		broken = append(broken, what)
	}
	for range c.clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil && s.alive() {
				i := int(next.Add(1))
				if i > c.n {
					return
				}
				r := rand.New(rand.NewPCG(c.seed, uint64(i)))
				name, m, data := mutant(r, i, seeds)
				v, err := s.one(ctx, name, data, r, r.IntN(10) == 0)
				v.format, v.mutation = strings.TrimPrefix(filepath.Ext(name), "."), m
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					fault(name, data, "%s (%s): %v", name, m, err)
				case v.canceled > maxCancel:
					fault(name, data, "%s (%s): cancel took %v", name, m, v.canceled.Round(time.Millisecond))
				case v.code == "internal" || v.code == "parser_start_failed" || v.code == "panic":
					fault(name, data, "%s (%s): ended with %s", name, m, v.code)
				}
				mu.Lock()
				all = append(all, v)
				if len(all)%500 == 0 {
					fmt.Fprintf(c.log, "hostile: %d of %d, parent at most %d MB\n", len(all), c.n, peak.Load()>>20)
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	unwatch()
	if ctx.Err() != nil {
		return broken, ctx.Err()
	}
	if !s.alive() {
		return append(broken, "the service ended: "+s.lastWords()), nil
	}
	if n := peak.Load(); n > maxParentBytes {
		broken = append(broken, fmt.Sprintf("the service used %d MB", n>>20))
	}
	broken = append(broken, s.leaks(ctx, before)...)
	report(c.out, all, peak.Load())
	return broken, nil
}

// mutant generates the i-th file of a run.
func mutant(r *rand.Rand, i int, seeds []seed) (name, how string, data []byte) {
	for {
		s := seeds[r.IntN(len(seeds))]
		m := mutations[r.IntN(len(mutations))]
		data := m.apply(r, s, seeds)
		if data == nil {
			continue
		}
		if r.IntN(4) == 0 { // damage seldom comes alone
			if again := flipBits(r, seed{s.name, append(data, 0)}, seeds); again != nil {
				data = again
			}
		}
		ext := filepath.Ext(s.name)
		if m.name == "wrong name" {
			ext = filepath.Ext(seeds[r.IntN(len(seeds))].name)
		}
		return fmt.Sprintf("%06d%s", i, ext), m.name, data
	}
}

// seedFiles lists the files to mutate: one or more of each format in the
// repository, small ones generated here, and those of a corpus up to 2 MB.
func seedFiles(root, corpus string) ([]seed, error) {
	var all []seed
	add := func(path string) {
		if b, err := os.ReadFile(path); err == nil && len(b) > 16 && len(b) <= 2<<20 {
			all = append(all, seed{filepath.Base(path), b})
		}
	}
	for _, pattern := range []string{"samples/handbook.*", "parser/*/testdata/*.*", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			add(p)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no files to mutate in %s: run this from the repository's root", root)
	}
	all = append(all, made(all)...)
	if corpus != "" {
		err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				add(path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// made generates files of formats missing from the repository.
func made(have []seed) []seed {
	var rows, mail strings.Builder
	rows.WriteString("id,name,amount,date\n")
	for i := range 400 {
		fmt.Fprintf(&rows, "%d,\"Item, no. %d\",%d.50,2026-01-%02d\n", i, i, i*7, i%28+1)
	}
	mail.WriteString("From: a@example.com\r\nTo: b@example.com\r\nSubject: Report\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"b1\"\r\n\r\n--b1\r\nContent-Type: text/plain\r\n\r\nThe report is attached.\r\n--b1\r\nContent-Type: text/csv; name=\"rows.csv\"\r\nContent-Disposition: attachment; filename=\"rows.csv\"\r\n\r\n" + rows.String() + "\r\n--b1--\r\n")
	out := []seed{
		{"rows.csv", []byte(rows.String())},
		{"mail.eml", []byte(mail.String())},
		{"box.mbox", []byte("From a@example.com Thu Jan  1 00:00:00 2026\n" + mail.String())},
		{"note.json", []byte(`{"title": "Report", "items": [{"id": 1, "text": "first"}, {"id": 2, "text": "second"}]}`)},
		{"lines.jsonl", []byte(strings.Repeat(`{"id": 1, "text": "one line of many"}`+"\n", 200))},
		{"book.ipynb", []byte(`{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "Text"]}, {"cell_type": "code", "metadata": {}, "source": ["print(1)"], "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]}]}`)},
		{"page.html", []byte("<html><body><h1>Title</h1><p>Text <b>bold</b></p><table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>")},
		{"data.xml", []byte(`<?xml version="1.0"?><catalog><book id="1"><title>One</title><price>10</price></book><book id="2"><title>Two</title><price>20</price></book></catalog>`)},
		{"conf.yaml", []byte("a:\n  b: [1, 2, 3]\n  c: &x {d: e}\nf: *x\n")},
		{"paper.tex", []byte("\\documentclass{article}\\begin{document}\\section{One}Text $x^2$ \\begin{tabular}{ll}a & b\\\\ c & d\\end{tabular}\\end{document}")},
		{"film.srt", []byte("1\n00:00:01,000 --> 00:00:02,000\nHello\n\n2\n00:00:03,000 --> 00:00:04,000\nWorld\n")},
		{"plain.txt", []byte(strings.Repeat("A line of plain text that says nothing.\n", 300))},
	}
	if zipped := rezipAll(append(slices.Clone(have[:min(4, len(have))]), out...)); zipped != nil {
		out = append(out, seed{"all.zip", zipped})
	}
	return out
}

// service is the Sheaf under test.
type service struct {
	cmd    *exec.Cmd
	dir    string
	url    string
	exited chan struct{}
	http   *http.Client
	ds     string
}

// start runs `sheaf up` on an empty folder.
func start(ctx context.Context, bin, dir string) (*service, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	s := &service{dir: dir, exited: make(chan struct{}), http: &http.Client{Timeout: time.Minute}, ds: "hostile"}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	s.cmd = exec.Command(bin, "up", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	s.cmd.Env = append(os.Environ(), "SHEAF_LOG_LEVEL=warn")
	s.cmd.Stdout, s.cmd.Stderr = logFile, logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; `make build` makes the program", err)
	}
	go func() { _ = s.cmd.Wait(); close(s.exited) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for s.url == "" {
		select {
		case <-tick.C:
			var at struct{ URL string }
			if b, err := os.ReadFile(filepath.Join(dir, "data", "server.json")); err == nil && json.Unmarshal(b, &at) == nil {
				s.url = at.URL
			}
		case <-s.exited:
			return nil, errors.New("the service did not start: " + s.lastWords())
		case <-deadline:
			s.stop()
			return nil, errors.New("the service did not start within a minute: " + s.lastWords())
		case <-ctx.Done():
			s.stop()
			return nil, ctx.Err()
		}
	}
	if err := s.call(ctx, http.MethodPost, "/v1/datasets", "application/json", strings.NewReader(`{"name":"hostile"}`), nil); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *service) alive() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

func (s *service) lastWords() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(bytes.TrimSpace(b[max(0, len(b)-4000):]))
}

func (s *service) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(time.Minute):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// problem is a non-2xx answer.
type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (p problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

func (s *service) call(ctx context.Context, method, path, contentType string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	answer, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, 32<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		p := problem{Status: answer.StatusCode}
		_ = json.Unmarshal(b, &p) // otherwise it keeps the status
		return p
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// ended are the terminal states of a document.
var ended = []string{"succeeded", "partially_succeeded", "failed", "canceled"}

type document struct {
	ID      string
	State   string
	JobID   string `json:"job_id"`
	Failure *struct{ Code, Message string }
}

// one sends a file and waits for its verdict; cancel stops it at a random moment. A
// refusal with a 4xx is a verdict too.
func (s *service) one(ctx context.Context, name string, data []byte, r *rand.Rand, cancel bool) (v verdict, err error) {
	begun := time.Now()
	ctx, stop := context.WithTimeoutCause(ctx, maxVerdict, fmt.Errorf("no verdict after %v", maxVerdict))
	defer stop()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", name)
	if err != nil {
		return v, err
	}
	_, _ = part.Write(data) // into memory
	if err := w.Close(); err != nil {
		return v, err
	}
	var answer struct {
		Documents []document
		Job       struct{ ID string }
	}
	err = s.call(ctx, http.MethodPost, "/v1/datasets/"+s.ds+"/documents", w.FormDataContentType(), &body, &answer)
	if p, ok := errors.AsType[problem](err); ok && p.Status < 500 {
		return verdict{state: "refused", code: p.Code, took: time.Since(begun)}, nil
	}
	if err != nil {
		return v, fmt.Errorf("upload: %w", err)
	}
	if len(answer.Documents) != 1 {
		return v, fmt.Errorf("an upload of one file made %d documents", len(answer.Documents))
	}
	var canceled time.Time
	var wait <-chan time.Time
	if cancel {
		wait = time.After(time.Duration(r.ExpFloat64() * float64(300*time.Millisecond)))
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-wait:
			wait = nil
			canceled = time.Now()
			err := s.call(ctx, http.MethodPost, "/v1/jobs/"+answer.Job.ID+":cancel", "application/json", strings.NewReader("{}"), nil)
			if p, ok := errors.AsType[problem](err); ok && p.Status < 500 {
				canceled = time.Time{} // it had already ended
			} else if err != nil {
				return v, fmt.Errorf("cancel: %w", err)
			}
		case <-poll.C:
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
		var d document
		if err := s.call(ctx, http.MethodGet, "/v1/datasets/"+s.ds+"/documents/"+answer.Documents[0].ID, "", nil, &d); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return v, err
		}
		if slices.Contains(ended, d.State) {
			v = verdict{state: d.State, took: time.Since(begun)}
			if d.Failure != nil {
				v.code = d.Failure.Code
			}
			if !canceled.IsZero() {
				v.canceled = time.Since(canceled)
			}
			return v, nil
		}
	}
}

// watchMemory tracks the peak resident memory of the service's own process.
func (s *service) watchMemory(ctx context.Context) *atomic.Int64 {
	var peak atomic.Int64
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			peak.Store(max(peak.Load(), s.status("VmRSS:")<<10))
		}
	}()
	return &peak
}

// status reads a number from /proc/PID/status, 0 if it does not exist.
func (s *service) status(key string) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return n
		}
	}
	return 0
}

// holding is the resources held by a service.
type holding struct{ files, threads, temporary int }

func (s *service) holds() holding {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	h := holding{files: len(fds), threads: int(s.status("Threads:"))}
	_ = filepath.WalkDir(filepath.Join(s.dir, "data", "tmp"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			h.temporary++
		}
		return nil
	})
	return h
}

// leaks compares the held resources of the idle service with before. It waits while
// they decrease.
func (s *service) leaks(ctx context.Context, before holding) (broken []string) {
	const files, threads, temporary = 64, 48, 64 // what connection pools, the runtime and idle parsers may keep
	var h holding
	for range 120 {
		h = s.holds()
		if h.files <= before.files+files && h.threads <= before.threads+threads && h.temporary <= before.temporary+temporary {
			return nil
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	return []string{fmt.Sprintf("held after the warm-up %+v, at the end %+v", before, h)}
}

// report prints the verdicts by mutation, and the slowest.
func report(w io.Writer, all []verdict, peak int64) {
	counts := map[[3]string]int{}
	var cancels, took []time.Duration
	for _, v := range all {
		counts[[3]string{v.mutation, v.state, v.code}]++
		took = append(took, v.took)
		if v.canceled > 0 {
			cancels = append(cancels, v.canceled)
		}
	}
	rows := make([][3]string, 0, len(counts))
	for k := range counts {
		rows = append(rows, k)
	}
	slices.SortFunc(rows, func(a, b [3]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), counts[b]-counts[a], cmp.Compare(a[2], b[2]))
	})
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "MUTATION\tVERDICT\tCODE\tFILES")
	for _, k := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", k[0], k[1], k[2], counts[k])
	}
	_ = t.Flush() // to a terminal or a buffer
	slices.Sort(cancels)
	slices.Sort(took)
	at := func(d []time.Duration, q float64) time.Duration {
		if len(d) == 0 {
			return 0
		}
		return d[min(len(d)-1, int(q*float64(len(d))))].Round(time.Millisecond)
	}
	fmt.Fprintf(w, "%d files; to the verdict p50 %v, p99 %v, most %v; %d cancels, p50 %v, most %v; service at most %d MB\n",
		len(all), at(took, .5), at(took, .99), at(took, 1), len(cancels), at(cancels, .5), at(cancels, 1), peak>>20)
}
