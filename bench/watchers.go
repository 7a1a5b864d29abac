package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/internal/search"
)

const (
	watchStreams  = 500
	watchPollers  = 500
	watchPoll     = 2 * time.Second
	watchJobs     = 8                // that work is fed by, each followed by its share of the watchers
	watchPhase    = 15 * time.Second // measured without and with watchers, by turns
	watchRounds   = 3
	watchDocument = 100 << 10 // bytes of text
)

// watchers measures what 500 event streams and 500 pollers cost a fleet: on one
// that does nothing the CPU of its processes and engines, on one at work the
// pages it makes searchable and how long an upload and a search take. The
// watchers run beside it on the same machine, whose other CPU time is the
// fleet's: what they use themselves is no cost of being watched.
func (b *bench) watchers(ctx context.Context) error {
	return b.servedByFleet(ctx, "watchers", func(s *server, parts map[string]int) error {
		if _, err := b.idleWatchers(ctx, s, parts); err != nil {
			return err
		}
		return b.watchersAtWork(ctx, s, parts)
	}, fmt.Sprintf("SHEAF_SERVER_MAX_STREAMS=%d", watchStreams))
}

// crowd is watchers of jobs, which end with stop.
type crowd struct {
	stop            context.CancelFunc
	all             sync.WaitGroup
	open            atomic.Int64 // streams
	frames, answers atomic.Int64
	same            atomic.Int64 // answers 304
	failed          atomic.Pointer[string]
}

// watch starts streams and pollers; job names the job that the i-th follows now.
func watch(ctx context.Context, s *server, streams, pollers int, job func(i int) string) *crowd {
	ctx, stop := context.WithCancel(ctx)
	c := &crowd{stop: stop}
	for i := range streams {
		c.all.Go(func() { c.keep(ctx, func() error { return c.stream(ctx, s, job(i)) }) })
	}
	for i := range pollers {
		c.all.Go(func() {
			select {
			case <-time.After(time.Duration(i) * watchPoll / time.Duration(pollers)):
			case <-ctx.Done():
			}
			c.keep(ctx, func() error { return c.poll(ctx, s, func() string { return job(i) }) })
		})
	}
	return c
}

func (c *crowd) keep(ctx context.Context, f func() error) {
	for ctx.Err() == nil {
		if err := f(); err != nil && ctx.Err() == nil {
			text := err.Error()
			c.failed.Store(&text)
			return
		}
	}
}

// stream follows one job to its end.
func (c *crowd) stream(ctx context.Context, s *server, job string) error {
	conn, r, err := dial(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn, "GET /v1/jobs/%s?after=now HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", job, conn.RemoteAddr())
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a stream was answered %s", resp.Status)
	}
	c.open.Add(1)
	defer c.open.Add(-1)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: ") {
			c.frames.Add(1)
		}
	}
	return nil // over, or the server wants it to come back
}

// poll asks for a job on one connection, as a client does that keeps answers.
func (c *crowd) poll(ctx context.Context, s *server, job func() string) error {
	conn, r, err := dial(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	tick := time.NewTicker(watchPoll)
	defer tick.Stop()
	etag := ""
	for {
		fmt.Fprintf(conn, "GET /v1/jobs/%s HTTP/1.1\r\nHost: %s\r\nIf-None-Match: %s\r\n\r\n", job(), conn.RemoteAddr(), etag)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		switch resp.StatusCode {
		case http.StatusNotModified:
			c.same.Add(1)
		case http.StatusOK:
			etag = resp.Header.Get("ETag")
		default:
			return fmt.Errorf("a poll was answered %s", resp.Status)
		}
		c.answers.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func dial(ctx context.Context, s *server) (net.Conn, *bufio.Reader, error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, nil, err
	}
	return conn, bufio.NewReaderSize(conn, 4096), nil
}

// end stops the watchers, and answers what went wrong with one.
func (c *crowd) end() error {
	c.stop()
	c.all.Wait()
	if text := c.failed.Load(); text != nil {
		return fmt.Errorf("a watcher gave up: %s", *text)
	}
	return nil
}

// text is a document of random words that no other equals.
func (b *bench) text(n int) file {
	b.texts++
	head := fmt.Sprintf("document %d\n", b.texts)
	words := generated("", int64(n))
	return file{name: fmt.Sprintf("text%d.txt", b.texts), open: func() (io.ReadCloser, error) {
		r, err := words.open()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(head), r), r}, nil
	}}
}

// cpuOf is the CPU time that processes have used.
func cpuOf(pids map[string]int) (t time.Duration) {
	for _, pid := range pids {
		t += cpuTime(pid)
	}
	return t
}

func (b *bench) idleWatchers(ctx context.Context, s *server, parts map[string]int) (float64, error) {
	job, err := s.upload(ctx, sheaf.ParseConfig{}, b.text(1000))
	if err == nil {
		_, err = s.ended(ctx, job.ID)
	}
	if err == nil { // one that waits for long, since a stream of one that is over ends
		err = s.call(ctx, http.MethodPost, "/v1/datasets/default:pause", nil, nil)
	}
	if err == nil {
		job, err = s.upload(ctx, sheaf.ParseConfig{}, b.text(1000))
	}
	if err != nil {
		return 0, err
	}
	spent := func() float64 { // CPU-ms in a second
		before, begun := cpuOf(parts), time.Now()
		time.Sleep(watchPhase)
		return (cpuOf(parts) - before).Seconds() * 1e3 / time.Since(begun).Seconds()
	}
	without := spent()
	c := watch(ctx, s, watchStreams, 0, func(int) string { return job.ID })
	time.Sleep(3 * time.Second)
	open := c.open.Load()
	with := spent()
	if err := c.end(); err != nil {
		return 0, err
	}
	if open < watchStreams*9/10 {
		return 0, fmt.Errorf("%d of %d streams are open", open, watchStreams)
	}
	each := (with - without) / watchStreams
	b.atMost("watchers.idle", each, "CPU-ms/s per watcher", 0.1, fmt.Sprintf("%d streams of a job that waits; all processes and engines %.1f CPU-ms/s without and %.1f with them", open, without, with))
	return each, s.call(ctx, http.MethodPost, "/v1/datasets/default:resume", nil, nil)
}

func (b *bench) watchersAtWork(ctx context.Context, s *server, parts map[string]int) error {
	ctx, stop := context.WithCancel(ctx)
	var jobs [watchJobs]atomic.Pointer[string]
	var background sync.WaitGroup
	var failed atomic.Pointer[error]
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			failed.Store(&err)
		}
	}
	defer background.Wait()
	defer stop()
	var mu sync.Mutex // of b.texts
	for i := range jobs {
		first := make(chan struct{})
		background.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				mu.Lock()
				var files []file
				for range 30 {
					files = append(files, b.text(watchDocument))
				}
				mu.Unlock()
				job, err := s.upload(ctx, sheaf.ParseConfig{}, files...)
				if err == nil {
					jobs[i].Store(&job.ID)
				}
				if n == 0 {
					close(first)
				}
				if err == nil {
					_, err = s.ended(ctx, job.ID)
				}
				fail(err)
			}
		})
		<-first
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	var uploads, searches [2][]time.Duration // without and with watchers
	var with atomic.Int64
	timed := func(every time.Duration, into *[2][]time.Duration, f func() error) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			begun, in := time.Now(), with.Load()
			fail(f())
			if in >= 0 && in == with.Load() {
				mu.Lock()
				into[in] = append(into[in], time.Since(begun))
				mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	with.Store(-1)
	background.Go(func() {
		timed(300*time.Millisecond, &uploads, func() error {
			mu.Lock()
			f := b.text(2000)
			mu.Unlock()
			_, err := s.upload(ctx, sheaf.ParseConfig{}, f)
			return err
		})
	})
	background.Go(func() {
		timed(200*time.Millisecond, &searches, func() error {
			return s.call(ctx, http.MethodPost, "/v1/datasets/default/search", search.Request{Query: "claim worker lease"}, nil)
		})
	})
	done := func() (sum int, at time.Time, err error) {
		var list struct {
			Items []sheaf.Job `json:"items"`
		}
		err = s.call(ctx, http.MethodGet, "/v1/jobs?limit=1000", nil, &list)
		for _, j := range list.Items {
			sum += j.Stages[0].Done
		}
		return sum, time.Now(), err
	}
	var rates, costs [2][]float64 // pages/s, and CPU-ms/page of all processes and engines
	var frames, answers, same int64
	var own [2]time.Duration
	for range watchRounds {
		for in := range 2 {
			var c *crowd
			if in == 1 {
				c = watch(ctx, s, watchStreams, watchPollers, func(i int) string { return *jobs[i%watchJobs].Load() })
			}
			time.Sleep(3 * time.Second)
			before, from, err := done()
			if err != nil {
				return err
			}
			used, fleet := ownTime(), cpuOf(parts)
			with.Store(int64(in))
			time.Sleep(watchPhase)
			with.Store(-1)
			used, fleet = ownTime()-used, cpuOf(parts)-fleet
			after, until, err := done()
			if err != nil {
				return err
			}
			rates[in] = append(rates[in], float64(after-before)/until.Sub(from).Seconds())
			costs[in] = append(costs[in], ms(fleet)/max(float64(after-before), 1))
			own[in] += used
			if c == nil {
				continue
			}
			frames, answers, same = frames+c.frames.Load(), answers+c.answers.Load(), same+c.same.Load()
			if err := c.end(); err != nil {
				return err
			}
		}
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	const measured = watchRounds * watchPhase
	watching := (own[1] - own[0]).Seconds() / measured.Seconds() // CPUs
	left := 1 - watching/float64(runtime.NumCPU())
	var changes []float64
	for i := range rates[0] {
		changes = append(changes, 100*(1-rates[1][i]/left/rates[0][i]))
	}
	b.atMost("watchers.pages", median(changes), "% fewer pages/s", 3, fmt.Sprintf("pages/s without %.1f, with %.1f; %d streams were sent %d frames, %d pollers took %d answers, %d of them 304; the watchers themselves used %.0f CPU-ms/s of the machine, which are taken out; load %s",
		rates[0], rates[1], watchStreams, frames, watchPollers, answers, same, watching*1e3, load()))
	b.tell("watchers.cpu", 100*(median(costs[1])/median(costs[0])-1), "% more CPU a page", fmt.Sprintf("CPU-ms/page of all processes and engines without %.1f, with %.1f", costs[0], costs[1]))
	for name, took := range map[string][2][]time.Duration{"watchers.upload": uploads, "watchers.search": searches} {
		slices.Sort(took[0])
		slices.Sort(took[1])
		b.atMost(name, 100*(quantile(took[1], 0.95).Seconds()/quantile(took[0], 0.95).Seconds()-1), "% more at p95", 20,
			fmt.Sprintf("%.0f ms without, %.0f with; median %.0f and %.0f", ms(quantile(took[0], 0.95)), ms(quantile(took[1], 0.95)), ms(quantile(took[0], 0.5)), ms(quantile(took[1], 0.5))))
	}
	return nil
}
