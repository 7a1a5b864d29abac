package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sheaf"
)

func mapKeys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

// served runs f against a fresh service and discards it.
func (b *bench) served(ctx context.Context, name string, f func(s *server) error) error {
	s, err := b.start(ctx, filepath.Join(b.tmp, name))
	if err != nil {
		return err
	}
	defer s.discard()
	return f(s)
}

// e2eRounds is how often the documents are ingested, each time paired with parsing
// alone: the speed of a machine's cores drifts by a tenth and more within minutes,
// and the median of three pairs does not.
const e2eRounds = 3

// endToEnd uploads the PDFs that were parsed alone and waits until they are
// searchable, with vectors. The CPU time is that of the service and everything it
// starts, from the first byte of the upload to the end of the job.
func (b *bench) endToEnd(ctx context.Context) error {
	if b.noop == 0 {
		if err := b.storeCycles(ctx); err != nil {
			return err
		}
	}
	var ratios, walls, rates, shares, memories []float64
	var last string
	for round := range e2eRounds {
		alone, err := b.parseAlone(ctx)
		if err != nil {
			return err
		}
		var r way
		err = b.served(ctx, fmt.Sprintf("e2e%d", round), func(s *server) error {
			r, err = b.wholeWay(ctx, s, alone.pdfSet)
			return err
		})
		if err != nil {
			return err
		}
		ratios = append(ratios, r.cpu.Seconds()/alone.cpu.Seconds())
		walls = append(walls, r.wall.Seconds()/r.cpu.Seconds())
		rates = append(rates, r.rate())
		shares = append(shares, 100*b.noop.Seconds()*float64(r.tasks)/r.cpu.Seconds())
		memories = append(memories, megabytes(r.memory))
		last = fmt.Sprintf("%s; last round %.1f s, %.1f CPU-s; parsing alone %.1f CPU-s for %d pages", r.note, r.wall.Seconds(), r.cpu.Seconds(), alone.cpu.Seconds(), alone.pages)
	}
	b.atMost("e2e.cpu", median(ratios), "× CPU of parsing alone", 1.6, fmt.Sprintf("rounds %.2f", ratios))
	b.atMost("e2e.wall", median(walls), "× CPU", 0.65, fmt.Sprintf("rounds %.2f, load %s", walls, load()))
	b.tell("e2e.pages", median(rates), "pages/s", last)
	b.tell("e2e.memory", slices.Max(memories), "MB", "peak over all processes")
	b.atMost("store.share", median(shares), "% of e2e CPU", 5,
		fmt.Sprintf("tasks × %.2f CPU-ms, which is store.cycles.cpu: plan, queue, claim, complete, fold and publish around tasks that do nothing", b.noop.Seconds()*1e3))
	return nil
}

// way is the result of one round of endToEnd.
type way struct {
	cpu, wall    time.Duration
	pages, tasks int
	memory       int64 // bytes, peak over all processes
	note         string
}

func (r way) rate() float64 { return float64(r.pages) / r.wall.Seconds() } // pages/s

func (b *bench) wholeWay(ctx context.Context, s *server, set pdfSet) (r way, err error) {
	var short, long, whole []file
	for i, f := range set.files {
		r.tasks += (f.pages+rangePages-1)/rangePages + 2 // its ranges, the plan and the end
		switch {
		case i >= set.realistic:
			whole = append(whole, onDisk(f.path))
		case f.pages == realisticPages:
			long = append(long, onDisk(f.path))
		default:
			short = append(short, onDisk(f.path))
		}
	}
	peak := watchMemory(s.pid(), true)
	cpu, begun := cpuTime(s.pid()), time.Now()
	var jobs []string
	for _, part := range []struct {
		files  []file
		config sheaf.ParseConfig
	}{{whole, sheaf.ParseConfig{}}, {long, sheaf.ParseConfig{Pages: sheaf.Set([]sheaf.Range{{From: 1, To: realisticPages}})}}, {short, sheaf.ParseConfig{}}} {
		if len(part.files) == 0 {
			continue
		}
		job, err := s.upload(ctx, part.config, part.files...)
		if err != nil {
			return r, err
		}
		jobs = append(jobs, job.ID)
	}
	var documents, good, reused int
	for _, id := range jobs {
		job, err := s.ended(ctx, id)
		if err != nil {
			return r, err
		}
		r.pages += job.Usage.Pages
		reused += job.Reused.Pages
		documents += job.Documents.Total
		good += job.Documents.ByState[sheaf.DocSucceeded] + job.Documents.ByState[sheaf.DocPartiallySucceeded]
	}
	r.wall = time.Since(begun)
	r.cpu = cpuTime(s.pid()) - cpu
	r.memory = peak()
	r.note = fmt.Sprintf("%d of %d documents searchable, %d pages", good, documents, r.pages)
	if reused > 0 {
		r.note += fmt.Sprintf(", %d more reused from equal files", reused)
	}
	return r, nil
}

// bigPDF ingests one PDF of thousands of pages and then requests it again unchanged.
func (b *bench) bigPDF(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("memory.pdf, reparse", "no corpus")
		return nil
	}
	path := filepath.Join(b.corpus, "pdf-large", "fullrefman.pdf")
	return b.served(ctx, "pdf", func(s *server) error {
		peak := watchMemory(s.pid(), true)
		cpu, begun := cpuTime(s.pid()), time.Now()
		job, err := s.upload(ctx, sheaf.ParseConfig{}, onDisk(path))
		if err != nil {
			return err
		}
		if job, err = s.ended(ctx, job.ID); err != nil {
			return err
		}
		wall, used := time.Since(begun), cpuTime(s.pid())-cpu
		b.atMost("memory.pdf", megabytes(peak()), "MB", 600, fmt.Sprintf("peak over all processes, %d pages", job.Usage.Pages))
		b.tell("memory.pdf.wall", wall.Seconds(), "s", fmt.Sprintf("%.1f CPU-s", used.Seconds()))

		const rounds = 10
		var again sheaf.Job
		var walls []time.Duration
		parsed, embedded := 0, 0
		cpu = cpuTime(s.pid())
		for range rounds {
			begun := time.Now()
			var answer struct{ Job *sheaf.Job }
			if err := s.call(ctx, http.MethodPost, "/v1/datasets/default/documents:reparse", map[string]any{"all": true}, &answer); err != nil {
				return err
			}
			if answer.Job == nil {
				return fmt.Errorf("asking for the document again made no job")
			}
			ended, err := s.ended(ctx, answer.Job.ID)
			if err != nil {
				return err
			}
			again = *ended
			walls = append(walls, time.Since(begun))
			parsed, embedded = parsed+again.Usage.Pages, embedded+again.Usage.EmbeddedTokens
		}
		cost := (cpuTime(s.pid()) - cpu) / rounds
		took := median(walls)
		b.atLeast("reparse.unchanged.wall", wall.Seconds()/took.Seconds(), "× faster", 50, fmt.Sprintf("%d ms, the median of %d, load %s; %d ranges reused", took.Milliseconds(), rounds, load(), again.Reused.Ranges))
		b.atLeast("reparse.unchanged.cpu", used.Seconds()/max(cost, time.Millisecond).Seconds(), "× less", 50, fmt.Sprintf("%d CPU-ms each, idle loops included", cost.Milliseconds()))
		b.atMost("reparse.unchanged.pages", float64(parsed), "pages parsed", 0, "")
		b.atMost("reparse.unchanged.tokens", float64(embedded), "tokens embedded", 0, "")
		return nil
	})
}

// bigUpload sends a gigabyte that is not parsed: the queue is paused.
func (b *bench) bigUpload(ctx context.Context) error {
	const size = 1 << 30
	return b.served(ctx, "upload", func(s *server) error {
		if err := s.call(ctx, http.MethodPost, "/v1/queues:pause", nil, nil); err != nil {
			return err
		}
		// A small one first, for the one-time work of uploads.
		if _, err := s.upload(ctx, sheaf.ParseConfig{}, generated("small.txt", 1<<20)); err != nil {
			return err
		}
		before := resident(s.pid())
		peak := watchMemory(s.pid(), false)
		begun := time.Now()
		if _, err := s.upload(ctx, sheaf.ParseConfig{}, generated("large.txt", size)); err != nil {
			return err
		}
		wall := time.Since(begun)
		b.atMost("memory.upload", megabytes(peak()-before), "MB", 64, fmt.Sprintf("growth of the API process by a file of 1 GiB; %.0f MB/s", megabytes(size)/wall.Seconds()))
		return nil
	})
}

// generated is a text file of n bytes, generated while it is read.
func generated(name string, n int64) file {
	return file{name: name, open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(&words{r: rand.New(rand.NewPCG(7, 7))}, n)), nil
	}}
}

// words is an endless text.
type words struct {
	r    *rand.Rand
	rest string
}

func (w *words) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if w.rest == "" {
			var line strings.Builder
			for range 12 {
				fmt.Fprintf(&line, "%s%d ", syllables[w.r.IntN(len(syllables))], w.r.IntN(1000))
			}
			line.WriteByte('\n')
			w.rest = line.String()
		}
		k := copy(p[n:], w.rest)
		w.rest, n = w.rest[k:], n+k
	}
	return n, nil
}

var syllables = strings.Fields("re con ta ble form vec tor page chunk in dex queue claim lease worker digest range")

// bigTable ingests a million rows.
func (b *bench) bigTable(ctx context.Context, kind string) error {
	const rows = 1_000_000
	path := filepath.Join(b.tmp, "table."+kind)
	if err := writeTable(path, kind, rows); err != nil {
		return err
	}
	defer os.Remove(path)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return b.served(ctx, kind, func(s *server) error {
		peak := watchMemory(s.pid(), true)
		cpu, begun := cpuTime(s.pid()), time.Now()
		job, err := s.upload(ctx, sheaf.ParseConfig{}, onDisk(path))
		if err != nil {
			return err
		}
		if job, err = s.ended(ctx, job.ID); err != nil {
			return err
		}
		wall, used := time.Since(begun), cpuTime(s.pid())-cpu
		if job.State != sheaf.DocSucceeded {
			return fmt.Errorf("the job ended %s: %s", job.State, s.why(ctx, job.ID))
		}
		b.atMost("memory."+kind, megabytes(peak()), "MB", 600, fmt.Sprintf("peak over all processes, %d rows, a file of %.0f MB", rows, megabytes(info.Size())))
		b.tell("memory."+kind+".wall", wall.Seconds(), "s", fmt.Sprintf("%.1f CPU-s, load %s", used.Seconds(), load()))
		return nil
	})
}
