package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sheaf"
)

// mixture is how many documents of each format are sent at once: a typical team
// folder, including three manuals of thousands of pages. The formats need no
// optional program.
var mixture = []struct {
	dir   string
	files int
}{{"pdf-large", 3}, {"pdf", 52}, {"docx", 20}, {"xlsx", 8}, {"pptx", 5}, {"html", 5}, {"md", 5}, {"txt", 2}}

// firstSearchable sends 100 mixed documents in one request and measures when the
// first and when half of them are searchable: served purely by time, they would all
// become searchable only when nearly all work is done.
func (b *bench) firstSearchable(ctx context.Context) error {
	return b.served(ctx, "first", func(s *server) error { return b.depthFirst(ctx, s, "first.searchable") })
}

// fleetFirstSearchable is firstSearchable on a fleet.
func (b *bench) fleetFirstSearchable(ctx context.Context) error {
	return b.servedByFleet(ctx, "first", func(s *server, _ map[string]int) error { return b.depthFirst(ctx, s, "fleet.first.searchable") })
}

func (b *bench) depthFirst(ctx context.Context, s *server, name string) error {
	if b.corpus == "" {
		leftOut(name, "no corpus")
		return nil
	}
	files, err := b.mixed()
	if err != nil {
		return err
	}
	// A first document absorbs the processes' one-time work.
	warm, err := s.upload(ctx, sheaf.ParseConfig{}, onDisk(filepath.Join(b.corpus, "README.md")))
	if err == nil {
		_, err = s.ended(ctx, warm.ID)
	}
	if err != nil {
		return err
	}
	job, err := s.upload(ctx, sheaf.ParseConfig{}, files...)
	if err != nil {
		return err
	}
	begun := job.CreatedAt
	if job, err = s.ended(ctx, job.ID); err != nil {
		return err
	}
	var list struct {
		Items []sheaf.Document `json:"items"`
	}
	if err := s.call(ctx, "GET", "/v1/jobs/"+job.ID+"/documents?limit=1000", nil, &list); err != nil {
		return err
	}
	var at []time.Duration // since the job was queued, per searchable document
	var whole time.Duration
	for _, d := range list.Items {
		took := d.FinishedAt.Sub(begun)
		whole = max(whole, took)
		if d.LiveGeneration > 0 {
			at = append(at, took)
		}
	}
	if len(at) == 0 {
		return errors.New("no document can be searched")
	}
	slices.Sort(at)
	first, half := at[0], at[(len(at)-1)/2]
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / whole.Seconds() }
	b.atMost(name, first.Seconds(), "s", 2, fmt.Sprintf("of %d documents sent at once, %d of which can be searched; all done after %.1f s; load %s", len(list.Items), len(at), whole.Seconds(), load()))
	b.atMost(name+".share", share(first), "% of the whole", 5, "until the first can be searched")
	b.atMost(name+".half", share(half), "% of the whole", 60, "until half of them can be searched")
	return nil
}

// mixed picks the documents: evenly spaced files of each format by name, all in one
// deterministic order.
func (b *bench) mixed() ([]file, error) {
	var out []file
	for _, m := range mixture {
		entries, err := os.ReadDir(filepath.Join(b.corpus, m.dir))
		if err != nil {
			return nil, err
		}
		for i := range min(m.files, len(entries)) {
			out = append(out, onDisk(filepath.Join(b.corpus, m.dir, entries[i*len(entries)/m.files].Name())))
		}
	}
	rng := rand.New(rand.NewPCG(17, 0))
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}
