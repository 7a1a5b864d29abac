package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"sheaf"
)

// quietTime is how long something may take before a line is printed when there is
// no terminal.
const quietTime = time.Second

// lostServer is how long a watcher waits for an unreachable server.
const lostServer = time.Minute

// bar is a one-line progress display. A terminal redraws it in place; elsewhere a
// line is printed at each quarter.
type bar struct {
	w      io.Writer
	tty    bool
	silent bool
	drawn  bool
	last   float64 // share at the last line printed outside a terminal
	begun  time.Time
}

func (g *global) bar() *bar {
	return &bar{w: g.err, tty: g.isTerminal(g.err), silent: g.quiet, last: -1, begun: time.Now()}
}

// show draws a share between 0 and 1, with a caption.
func (b *bar) show(share float64, format string, args ...any) {
	if b.silent {
		return
	}
	const width = 24
	full := int(min(max(share, 0), 1) * width)
	percent := min(int(share*100), 100) // never rounded up to 100
	line := fmt.Sprintf("[%s%s] %3d %%  %s", strings.Repeat("█", full), strings.Repeat("·", width-full), percent, fmt.Sprintf(format, args...))
	if b.tty {
		if r, most := []rune(line), columns(b.w)-1; len(r) > most {
			line = string(r[:most])
		}
		fmt.Fprintf(b.w, "\r\x1b[K%s", line)
		b.drawn = true
		return
	}
	if time.Since(b.begun) > quietTime && (share-b.last >= 0.25 || share >= 1 && b.last < 1) {
		fmt.Fprintln(b.w, line)
		b.last = share
	}
}

// end clears the line, so that what follows takes its place.
func (b *bar) end() {
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn = false
	}
	b.last = -1
}

// follow shows the progress of jobs as one until all have ended. On error it
// returns the jobs as last seen.
func (c *client) follow(ctx context.Context, ids []string, b *bar) ([]*sheaf.Job, error) {
	defer b.end()
	jobs := make([]*sheaf.Job, len(ids))
	begun, seen := time.Now(), time.Now()
	var speed rate
	for {
		err := c.lookAt(ctx, ids, jobs)
		now := time.Now()
		switch {
		case err == nil:
			seen = now
			sum := sumOf(jobs)
			speed.add(now, sum.pages)
			b.show(sum.progress, "%s", sum.line(speed.perSecond()))
			if sum.ended == len(jobs) {
				return jobs, nil
			}
		case ctx.Err() != nil:
			return jobs, err
		case !isA[unreachableError](err) && !isBusy(err) || now.Sub(seen) > lostServer:
			return jobs, err
		default:
			b.show(0, "no answer from the server for %s; trying again", span(now.Sub(seen)))
		}
		// Each poll sums all tasks of the job: poll often at first, when it may end
		// any moment, and once a second if it takes long.
		select {
		case <-time.After(min(max(now.Sub(begun)/8, 50*time.Millisecond), time.Second)):
		case <-ctx.Done():
			return jobs, ctx.Err()
		}
	}
}

// lookAt rereads the jobs that have not ended.
func (c *client) lookAt(ctx context.Context, ids []string, jobs []*sheaf.Job) error {
	for i, id := range ids {
		if jobs[i] != nil && jobs[i].State.Terminal() {
			continue
		}
		job, err := c.job(ctx, url.PathEscape(id), "")
		if err != nil {
			return err
		}
		jobs[i] = job
	}
	return nil
}

func isBusy(err error) bool {
	a, ok := errors.AsType[*answerError](err)
	return ok && (a.status == 429 || a.status >= 500)
}

// jobSum aggregates several jobs.
type jobSum struct {
	jobs, ended      int
	documents, over  int
	pages, reused    int
	failed, canceled int
	ahead            int
	progress         float64 // weighted by documents
	p50, p90         float64
	timed            bool // p50 and p90 are known
	paused           bool
	delay            string
}

func sumOf(jobs []*sheaf.Job) jobSum {
	s := jobSum{jobs: len(jobs), timed: true}
	for _, j := range jobs {
		if j == nil {
			continue
		}
		if j.State.Terminal() {
			s.ended++
		}
		weight := max(j.Documents.Total, 1)
		s.documents += j.Documents.Total
		s.progress += j.Progress * float64(weight)
		s.pages += j.Usage.Pages + j.Reused.Pages
		s.reused += j.Reused.Pages
		s.paused = s.paused || j.Paused
		for state, n := range j.Documents.ByState {
			if state.Terminal() {
				s.over += n
			}
		}
		s.failed += j.Documents.ByState[sheaf.DocFailed]
		s.canceled += j.Documents.ByState[sheaf.DocCanceled]
		if j.State.Terminal() {
			continue
		}
		q := j.Queue
		if q == nil || q.ETASeconds.P50 == nil || q.ETASeconds.P90 == nil {
			s.timed = false
		} else {
			s.p50, s.p90 = max(s.p50, *q.ETASeconds.P50), max(s.p90, *q.ETASeconds.P90)
		}
		if q != nil {
			s.ahead = max(s.ahead, q.AheadOwn+q.AheadOthers)
			if q.Delayed != nil {
				s.delay = q.Delayed.Reason
			}
		}
	}
	s.progress /= float64(max(s.documents, s.jobs, 1))
	return s
}

// line describes the progress of the jobs.
func (s jobSum) line(perSecond float64) string {
	parts := []string{fmt.Sprintf("%s of %s", number(s.over), count(s.documents, "document"))}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.pages > 0 {
		add("%s", count(s.pages, "page"))
	}
	if s.reused > 0 {
		add("%s of them reused", number(s.reused))
	}
	if s.failed > 0 {
		add("%s failed", number(s.failed))
	}
	switch {
	case s.ended == s.jobs:
		if s.canceled > 0 {
			add("%s canceled", number(s.canceled))
		}
	case s.paused:
		add("paused")
	case s.delay != "":
		add("waiting: %s", s.delay)
	case s.progress == 0 && s.ahead > 0:
		add("%s ahead", count(s.ahead, "task"))
	case s.progress == 0:
		add("counting pages")
	default:
		if perSecond >= 0.05 {
			add("%s pages/s", rateOf(perSecond))
		}
		if s.timed {
			add("%s", left(s.p50, s.p90))
		} else {
			add("estimating time left")
		}
	}
	return strings.Join(parts, ", ")
}

// rate measures how fast a number grows over the last ten seconds.
type rate struct {
	at []time.Time
	n  []int
}

func (r *rate) add(now time.Time, n int) {
	r.at, r.n = append(r.at, now), append(r.n, n)
	for len(r.at) > 2 && now.Sub(r.at[0]) > 10*time.Second {
		r.at, r.n = r.at[1:], r.n[1:]
	}
}

func (r *rate) perSecond() float64 {
	last := len(r.at) - 1
	if last < 1 || r.at[last].Sub(r.at[0]) < time.Second {
		return 0
	}
	return float64(r.n[last]-r.n[0]) / r.at[last].Sub(r.at[0]).Seconds()
}
