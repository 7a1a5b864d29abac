package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watcher follows a job's events more slowly than they come, across server restarts
// and aborted answers.
type watcher struct {
	d     *document
	seen  []int64 // sequence numbers, in order of arrival
	ended bool    // the server signaled the end of the stream
}

// watchers are the watchers of a run.
type watchers struct {
	l   *load
	mu  sync.Mutex
	all []*watcher
	wg  sync.WaitGroup
}

const (
	// watcherPace is how fast a watcher reads: about 10 KB/s.
	watcherPace  = 20 * time.Millisecond
	watcherPiece = 256
	// deafWatchers is how many clients that never read are opened at once.
	deafWatchers = 20
)

// narrow connects with a minimal receive buffer, so that a server notices at once
// that its client does not read.
var narrow = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if t, ok := c.(*net.TCPConn); ok && err == nil {
		err = t.SetReadBuffer(2 << 10)
	}
	return c, err
}}}

// slowReader reads a little at a time.
type slowReader struct {
	ctx context.Context
	r   *bufio.Reader
}

func (s slowReader) Read(p []byte) (int, error) {
	pause(s.ctx, watcherPace)
	return s.r.Read(p[:min(len(p), watcherPiece)])
}

// open starts a stream after the given event.
func (w *watchers) open(ctx context.Context, tenant, path, after string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.l.urls[w.l.intn(len(w.l.urls))]+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+w.l.keys[tenant])
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	return narrow.Do(req)
}

// follow starts a watcher for d's job until its end.
func (w *watchers) follow(ctx context.Context, d *document) {
	one := &watcher{d: d}
	w.mu.Lock()
	w.all = append(w.all, one)
	w.mu.Unlock()
	w.wg.Go(func() {
		for ctx.Err() == nil && !one.ended {
			after := ""
			if n := len(one.seen); n > 0 {
				after = fmt.Sprint(one.seen[n-1])
			}
			resp, err := w.open(ctx, d.tenant, "/v1/jobs/"+d.job, after)
			if err == nil {
				if resp.StatusCode == http.StatusOK {
					one.read(ctx, resp)
				} else if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
					w.l.violation("a watcher of job %s is answered %s", d.job, resp.Status)
					one.ended = true
				}
				_ = resp.Body.Close()
			}
			pause(ctx, 200*time.Millisecond)
		}
	})
}

// read records events until the stream breaks or ends.
func (o *watcher) read(ctx context.Context, resp *http.Response) {
	lines := bufio.NewScanner(slowReader{ctx, bufio.NewReaderSize(resp.Body, watcherPiece)})
	lines.Buffer(nil, 4<<20)
	var id int64
	kind := ""
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "id: "):
			id, _ = strconv.ParseInt(line[len("id: "):], 10, 64)
		case strings.HasPrefix(line, "event: "):
			kind = line[len("event: "):]
		case line == "": // only now is it complete
			switch {
			case kind == "end":
				o.ended = true
			case kind != "status" && id > 0:
				o.seen = append(o.seen, id)
			}
			id, kind = 0, ""
		}
	}
}

// deaf opens streams of a tenant's dataset that are never read, for a while.
func (w *watchers) deaf(ctx context.Context, tenant string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var opened atomic.Int32
	var all sync.WaitGroup
	for range deafWatchers {
		all.Go(func() {
			for ctx.Err() == nil { // the servers are being broken too
				resp, err := w.open(ctx, tenant, "/v1/datasets/"+dataset, "0")
				if err == nil && resp.StatusCode == http.StatusOK {
					opened.Add(1)
					<-ctx.Done()
				}
				if err == nil {
					_ = resp.Body.Close()
				}
				pause(ctx, 200*time.Millisecond)
			}
		})
	}
	all.Wait()
	if opened.Load() == 0 {
		return fmt.Errorf("no stream could be opened")
	}
	return nil
}

// check waits for the watchers, and compares what each has seen with the log: every
// event of its job, once and in order.
func (w *watchers) check(ctx context.Context, e *engines) error {
	done := make(chan struct{})
	go func() { w.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(90 * time.Second):
		w.l.violation("watchers have not come to the end of jobs that have ended")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, one := range w.all {
		var want []int64
		rs, err := e.db.QueryContext(ctx, "SELECT seq FROM events WHERE job_id=? ORDER BY seq", one.d.job)
		if err != nil {
			return err
		}
		for rs.Next() {
			var seq int64
			if err := rs.Scan(&seq); err != nil {
				return err
			}
			want = append(want, seq)
		}
		if err := rs.Close(); err != nil {
			return err
		}
		if one.d.deleted {
			continue // its log is gone, or about to be
		}
		if why := differ(one.seen, want); why != "" {
			w.l.violation("a slow watcher of job %s saw %d of %d events: %s", one.d.job, len(one.seen), len(want), why)
		}
	}
	return nil
}

// differ describes how two lists of sequence numbers differ, "" if they do not.
func differ(seen, want []int64) string {
	for i := range max(len(seen), len(want)) {
		switch {
		case i >= len(want):
			return fmt.Sprintf("%d is not in the log", seen[i])
		case i >= len(seen) || seen[i] > want[i]:
			return fmt.Sprintf("%d is missing", want[i])
		case seen[i] < want[i]:
			return fmt.Sprintf("%d came twice or too late", seen[i])
		}
	}
	return ""
}
