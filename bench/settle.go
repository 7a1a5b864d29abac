package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	files "sheaf/internal/blob/file"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/elastic"
)

// Limits of letting Elasticsearch settle.
const (
	settleMost = 60 // portions
	settleTime = 6 * time.Minute
)

// settle brings both sides to the state they reach after a day. Elasticsearch keeps
// compiling code as it becomes hotter: freshly started it spends three times as
// much on a page as later. What counts is the cost of a page on fleets that have
// been up for hours. So Elasticsearch receives the results of the set's documents,
// as executors write them, repeatedly, until it has not become cheaper for a while.
// Parsing them each time would take an hour. The embedded default produces those
// chunks, and a fleet finally processes one portion: each side has done all of its
// work once before it is measured.
func (b *bench) settle(ctx context.Context, set pdfSet) error {
	var documents [][][]index.Entry
	var pages int
	if err := b.served(ctx, "settle", func(s *server) error {
		w, err := b.wholeWay(ctx, s, set)
		if err != nil {
			return err
		}
		pages = w.pages
		documents, err = results(ctx, filepath.Join(s.data, "blobs"))
		return err
	}); err != nil {
		return err
	}
	vars, err := b.engine(ctx, "es")
	if err != nil {
		return err
	}
	var costs []float64 // CPU-ms per page
	for begun := time.Now(); len(costs) < settleMost && time.Since(begun) < settleTime && !settled(costs); {
		before := cpuTime(b.enginePID("es"))
		if err := indexed(ctx, vars["SHEAF_TEST_ES_URL"], documents); err != nil {
			return err
		}
		costs = append(costs, (cpuTime(b.enginePID("es"))-before).Seconds()*1e3/float64(pages))
	}
	documents = nil
	if err := b.servedByFleet(ctx, "settle", func(s *server, _ map[string]int) error {
		_, err := b.wholeWay(ctx, s, set)
		return err
	}); err != nil {
		return err
	}
	var nodes struct {
		Nodes map[string]struct {
			JVM struct {
				Version string `json:"version"`
			} `json:"jvm"`
		} `json:"nodes"`
	}
	if err := (&server{url: vars["SHEAF_TEST_ES_URL"]}).call(ctx, http.MethodGet, "/_nodes/jvm", nil, &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Nodes {
		b.tell("fleet.settled", costs[len(costs)-1], "CPU-ms/page",
			fmt.Sprintf("of Elasticsearch on Java %s, for each portion before it was measured %.2f", n.JVM.Version, costs))
	}
	return nil
}

// settled reports whether the last portions were no cheaper than those before. A
// single one means little: other load on the machine shifts it by a tenth.
func settled(costs []float64) bool {
	const last = 5
	n := len(costs) - last
	return n >= last && slices.Min(costs[n:]) > 0.97*slices.Min(costs[:n])
}

// results reads the results of documents: for each document the entries of each of
// its ranges.
func results(ctx context.Context, dir string) (documents [][][]index.Entry, err error) {
	blobs, err := files.Open(dir)
	if err != nil {
		return nil, err
	}
	var keys []string
	if err := blobs.List(ctx, "artifacts/", func(i blob.Info) bool {
		if strings.HasSuffix(i.Key, ".parquet") { // plans are stored next to them
			keys = append(keys, i.Key)
		}
		return true
	}); err != nil {
		return nil, err
	}
	last := ""
	for _, key := range keys { // those of a document are adjacent
		stored, err := artifact.Load(ctx, blobs, key)
		if err != nil {
			return nil, err
		}
		h := stored.Header
		if h.DocumentID != last {
			last, documents = h.DocumentID, append(documents, nil)
		}
		of := index.Entry{TenantID: sheaf.LocalTenant, DatasetID: "ds-bench", Name: h.Name, MediaType: pdfType}
		d := &documents[len(documents)-1]
		*d = append(*d, index.Entries(of, stored.Chunks, stored.Vectors))
	}
	if len(documents) == 0 {
		return nil, errors.New("the documents became nothing that could be indexed")
	}
	return documents, nil
}

// indexed writes documents to a separate index as executors do: range by range,
// with the same number waiting for the index concurrently, and a document made
// visible and counted at its end. Then the index is removed.
func indexed(ctx context.Context, url string, documents [][][]index.Entry) (err error) {
	prefix := "settle" + sheaf.NewID()
	model := static.Default().Model()
	x, err := elastic.Open(ctx, elastic.Config{URLs: []string{url}, Prefix: prefix, ModelID: model.ID, Dim: model.Dim})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(), dropIndexes(ctx, url, prefix)) }()
	all, within := errgroup.WithContext(ctx)
	const waiting = 48 // for the six workers of two cores
	all.SetLimit(waiting)
	within = index.WithConcurrency(within, waiting)
	for _, ranges := range documents {
		want := map[string]int{}
		for _, entries := range ranges {
			if len(entries) > 0 {
				want[entries[0].Chunk.RangeID] = len(entries)
			}
		}
		var written atomic.Int32
		for _, entries := range ranges {
			all.Go(func() error {
				if err := x.Write(within, entries); err != nil || int(written.Add(1)) < len(ranges) {
					return err
				}
				if err := x.Refresh(within); err != nil {
					return err
				}
				found, err := x.Count(within, sheaf.LocalTenant, slices.Collect(maps.Keys(want)))
				if err == nil && !maps.Equal(found, want) {
					err = fmt.Errorf("of the ranges %v the index has %v chunks", want, found)
				}
				return err
			})
		}
	}
	return all.Wait()
}

// dropIndexes removes the indexes of a prefix once their merges have finished:
// pending ones would run while something else is measured.
func dropIndexes(ctx context.Context, url, prefix string) error {
	es := &server{url: url}
	var stats struct {
		All struct {
			Total struct {
				Merges struct {
					Current int `json:"current"`
				} `json:"merges"`
			} `json:"total"`
		} `json:"_all"`
		Indices map[string]json.RawMessage `json:"indices"`
	}
	for range 600 {
		if err := es.call(ctx, http.MethodGet, "/"+prefix+"*/_stats/merge", nil, &stats); err != nil {
			return err
		}
		if stats.All.Total.Merges.Current == 0 {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for name := range stats.Indices {
		if err := es.call(ctx, http.MethodDelete, "/"+name, nil, nil); err != nil {
			return err
		}
	}
	return nil
}
