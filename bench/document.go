package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sheaf"
)

// fleetDocument measures the time from upload to searchable of a one-page document
// on an otherwise idle fleet, that is, how long a person waits, and the same for
// the embedded default. Nearly all of it is how soon one process learns what
// another has done.
func (b *bench) fleetDocument(ctx context.Context) error {
	var own, fleet []time.Duration
	if err := b.served(ctx, "document-own", func(s *server) (err error) {
		own, err = s.oneByOne(ctx)
		return err
	}); err != nil {
		return err
	}
	if err := b.servedByFleet(ctx, "document-fleet", func(s *server, _ map[string]int) (err error) {
		fleet, err = s.oneByOne(ctx)
		return err
	}); err != nil {
		return err
	}
	b.tell("fleet.document", ms(quantile(fleet, 0.5)), "ms", fmt.Sprintf("upload to searchable, %d documents of one page one by one, 90 %% within %.0f; embedded %.0f; load %s",
		len(fleet), ms(quantile(fleet, 0.9)), ms(quantile(own, 0.5)), load()))
	return nil
}

// oneByOne sends small documents, each once the previous one is searchable, and
// returns how long each took.
func (s *server) oneByOne(ctx context.Context) ([]time.Duration, error) {
	const warm, rounds = 3, 20
	var took []time.Duration
	for i := range warm + rounds {
		text := fmt.Sprintf("Page %d speaks of subject%d and of nothing else.", i, i)
		begun := time.Now()
		open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		job, err := s.upload(ctx, sheaf.ParseConfig{}, file{name: fmt.Sprintf("page%d.txt", i), open: open})
		if err != nil {
			return nil, err
		}
		// Poll often, since a long poll checks only now and then.
		for !job.State.Terminal() {
			if time.Since(begun) > time.Minute {
				return nil, fmt.Errorf("a document of one page is %s after a minute", job.State)
			}
			time.Sleep(5 * time.Millisecond)
			if err := s.call(ctx, http.MethodGet, "/v1/jobs/"+job.ID, nil, job); err != nil {
				return nil, err
			}
		}
		if job.State != sheaf.DocSucceeded {
			return nil, fmt.Errorf("a document of one page ended %s: %s", job.State, s.why(ctx, job.ID))
		}
		if i >= warm {
			took = append(took, time.Since(begun))
		}
	}
	return took, nil
}

// smallDocument is fleetDocument with everything in one process.
func (b *bench) smallDocument(ctx context.Context) error {
	return b.served(ctx, "document", func(s *server) error {
		took, err := s.oneByOne(ctx)
		if err != nil {
			return err
		}
		b.tell("document.small", ms(quantile(took, 0.5)), "ms", fmt.Sprintf("upload to searchable, %d documents of one page one by one, 90 %% within %.0f; load %s", len(took), ms(quantile(took, 0.9)), load()))
		return nil
	})
}
