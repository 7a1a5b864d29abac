package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
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
	watchJobs     = 8                // jobs that supply the work, each followed by its share of the watchers
	watchIdle     = 15 * time.Second // measured on an idle fleet, without and with watchers
	watchPhase    = 15 * time.Second // measured under load, alternating with and without watchers
	watchSettle   = 2 * time.Second  // before each
	watchRounds   = 8
	watchFiles    = 100      // per job
	watchDocument = 10 << 10 // bytes of text per document
)

// watchers measures the cost of 500 event streams and 500 pollers to a fleet: on an
// idle one the CPU of its processes and engines, on a busy one the rate of
// searchable pages and the latency of uploads and searches. The watchers run on the
// same machine, and their own CPU time must not count: in the phases without
// watchers, as much CPU time is burned.
func (b *bench) watchers(ctx context.Context) error {
	return b.servedByFleet(ctx, "watchers", func(s *server, parts map[string]int) error {
		if _, err := b.idleWatchers(ctx, s, parts); err != nil {
			return err
		}
		return b.watchersAtWork(ctx, s, parts)
	}, fmt.Sprintf("SHEAF_SERVER_MAX_STREAMS=%d", 2*watchStreams))
}

// crowd is watchers of jobs, until stop.
type crowd struct {
	stop            context.CancelFunc
	all             sync.WaitGroup
	open            atomic.Int64 // streams
	frames, answers atomic.Int64
	same            atomic.Int64 // 304 answers
	failed          atomic.Pointer[string]
}

// watch starts streams and pollers; job names the job that the i-th currently follows.
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
	return nil // over, or the server wants a reconnect
}

// poll polls a job on one connection, as a client with a cache does.
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

// end stops the watchers, and returns the first error.
func (c *crowd) end() error {
	c.stop()
	c.all.Wait()
	if text := c.failed.Load(); text != nil {
		return fmt.Errorf("a watcher gave up: %s", *text)
	}
	return nil
}

// text returns a unique document of random words.
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

// cpuOf returns the CPU time used by processes.
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
	if err == nil { // one that waits for long, since the stream of a finished job ends
		err = s.call(ctx, http.MethodPost, "/v1/datasets/default:pause", nil, nil)
	}
	if err == nil {
		job, err = s.upload(ctx, sheaf.ParseConfig{}, b.text(1000))
	}
	if err != nil {
		return 0, err
	}
	spent := func() float64 { // CPU-ms per second
		before, begun := cpuOf(parts), time.Now()
		time.Sleep(watchIdle)
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
	db, err := sql.Open("mysql", s.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	var mu sync.Mutex // for b.texts and the measurements
	for i := range jobs {
		first := make(chan struct{})
		begun := sync.OnceFunc(func() { close(first) })
		background.Go(func() {
			before := ""
			for ctx.Err() == nil {
				mu.Lock()
				var files []file
				for range watchFiles {
					files = append(files, b.text(watchDocument))
				}
				mu.Unlock()
				job, err := s.upload(ctx, sheaf.ParseConfig{}, files...)
				if err == nil {
					jobs[i].Store(&job.ID)
				}
				if before == "" {
					begun()
				} else if err == nil { // one more job always waits, so that the executor never runs idle
					_, err = s.ended(ctx, before)
				}
				fail(err)
				if err == nil {
					before = job.ID
				}
			}
		})
		<-first
	}
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
		timed(150*time.Millisecond, &uploads, func() error {
			mu.Lock()
			f := b.text(2000)
			mu.Unlock()
			_, err := s.upload(ctx, sheaf.ParseConfig{}, f)
			return err
		})
	})
	background.Go(func() {
		timed(150*time.Millisecond, &searches, func() error {
			return s.call(ctx, http.MethodPost, "/v1/datasets/default/search", search.Request{Query: "claim worker lease"}, nil)
		})
	})
	// From the store: what watchers see of a job may be seconds old.
	done := func() (n int, at time.Time, err error) {
		err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE state='done' AND kind='parse'").Scan(&n)
		return n, time.Now(), err
	}
	var rates, costs [2][]float64 // pages/s, and CPU-ms/page of all processes and engines
	var frames, answers, same int64
	var parted [2]map[string]float64 // CPU-ms of each process and engine
	parted[0], parted[1] = map[string]float64{}, map[string]float64{}
	var base, watching float64 // CPUs that this process uses besides its watchers, and for them
	turn := func(in int) error {
		time.Sleep(watchSettle)
		before, from, err := done()
		if err != nil {
			return err
		}
		used, fleet := ownTime(), cpuOf(parts)
		part := map[string]time.Duration{}
		for name, pid := range parts {
			part[name] = cpuTime(pid)
		}
		with.Store(int64(in))
		time.Sleep(watchPhase)
		with.Store(-1)
		used, fleet = ownTime()-used, cpuOf(parts)-fleet
		for name, pid := range parts {
			part[name] = cpuTime(pid) - part[name]
		}
		after, until, err := done()
		if err != nil {
			return err
		}
		own := used.Seconds() / until.Sub(from).Seconds()
		switch in {
		case -1: // neither watchers nor burning
			base = own
			return nil
		case 1:
			watching = max(own-base, 0)
		}
		rates[in] = append(rates[in], float64(after-before)/until.Sub(from).Seconds())
		for name, d := range part {
			parted[in][name] += ms(d)
		}
		costs[in] = append(costs[in], ms(fleet)/max(float64(after-before), 1))
		return nil
	}
	if err := turn(-1); err != nil {
		return err
	}
	watched := func() error {
		c := watch(ctx, s, watchStreams, watchPollers, func(i int) string { return *jobs[i%watchJobs].Load() })
		err := turn(1)
		frames, answers, same = frames+c.frames.Load(), answers+c.answers.Load(), same+c.same.Load()
		return errors.Join(err, c.end())
	}
	unwatched := func() error {
		defer burn(ctx, watching)()
		return turn(0)
	}
	if err := watched(); err != nil { // determines how much to burn, and is not counted
		return err
	}
	rates[1], costs[1], parted[1], uploads, searches = nil, nil, map[string]float64{}, [2][]time.Duration{}, [2][]time.Duration{}
	for round := range watchRounds {
		turns := []func() error{watched, unwatched}
		if round%2 == 1 { // cancels out drift in the machine's speed
			slices.Reverse(turns)
		}
		for _, t := range turns {
			if err := t(); err != nil {
				return err
			}
		}
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	rate := func(r []float64) (sum float64) {
		for _, v := range r {
			sum += v
		}
		return sum / float64(len(r))
	}
	var halves [2][]float64 // of the phases without watchers, alternating: their difference is noise
	for i, r := range rates[0] {
		halves[i%2] = append(halves[i%2], r)
	}
	b.atMost("watchers.pages", 100*(1-rate(rates[1])/rate(rates[0])), "% fewer pages/s", 3, fmt.Sprintf("pages/s without %.1f, with %.1f; every other turn without differs from the rest by %.1f %%; %d streams were sent %d frames, %d pollers took %d answers, %d of them 304; the watchers themselves used %.2f CPUs, and as much was burned without them; load %s",
		rates[0], rates[1], 100*(rate(halves[1])/rate(halves[0])-1), watchStreams, frames, watchPollers, answers, same, watching, load()))
	b.tell("watchers.cpu", 100*(median(costs[1])/median(costs[0])-1), "% more CPU a page", fmt.Sprintf("CPU-ms/page of all processes and engines without %.1f, with %.1f", costs[0], costs[1]))
	const measured = watchRounds * watchPhase
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		notes = append(notes, fmt.Sprintf("%s %.0f and %.0f", name, parted[0][name]/measured.Seconds(), parted[1][name]/measured.Seconds()))
	}
	b.tell("watchers.serve", (parted[1]["serve"]-parted[0]["serve"])/measured.Seconds(), "CPU-ms/s more of the API", "CPU-ms/s without and with: "+strings.Join(notes, ", "))
	for name, took := range map[string][2][]time.Duration{"watchers.upload": uploads, "watchers.search": searches} {
		slices.Sort(took[0])
		slices.Sort(took[1])
		b.atMost(name, 100*(quantile(took[1], 0.95).Seconds()/quantile(took[0], 0.95).Seconds()-1), "% more at p95", 20,
			fmt.Sprintf("%.0f ms without, %.0f with; median %.0f and %.0f; %d and %d of them", ms(quantile(took[0], 0.95)), ms(quantile(took[1], 0.95)), ms(quantile(took[0], 0.5)), ms(quantile(took[1], 0.5)), len(took[0]), len(took[1])))
	}
	return nil
}

// burn uses that many CPUs until stopped.
func burn(ctx context.Context, cpus float64) (stop func()) {
	const slice = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			share := time.Duration(cpus / float64(runtime.NumCPU()) * float64(slice))
			tick := time.NewTicker(slice)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				for begun := time.Now(); time.Since(begun) < share; { //nolint:revive // to use the CPU is the point
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}
