// Package graphs holds the graphs of datasets: it reads the chunks that search may
// show, has package graph build a graph of them, and answers searches, neighbour
// queries and exports from it. A graph is a view in memory. It is built on first
// use, updated with what has changed before each answer, and dropped when idle;
// nothing is stored, so that a deletion leaves nothing behind.
package graphs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/graph"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// Store is the database access this package needs.
type Store interface {
	// DatasetStamp changes with each change to the results of DatasetResults,
	// Visible and SplitNames for the dataset.
	DatasetStamp(ctx context.Context, tenantID, datasetID string) (string, error)
	DatasetResults(ctx context.Context, tenantID, datasetID, after string, limit int) ([]taskstore.LiveResult, error)
	Visible(ctx context.Context, tenantID string, rangeIDs []string) (map[string]taskstore.VisibleRange, error)
	// SplitNames lists names that are kept apart.
	SplitNames(ctx context.Context, tenantID, datasetID string) ([][]string, error)
	RunResults(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, documentID, after string, limit int) ([]taskstore.RunResult, error)
}

// Bounds are the limits of a Service. Zero fields default to the constants below.
type Bounds struct {
	Chunks int           // maximum chunks of a dataset with a graph
	Bytes  int64         // approximate total size of graphs; the most recently used one may exceed it
	Idle   time.Duration // after which an unused graph is dropped
	Fresh  time.Duration // within which a graph is not compared with the dataset again
	Wait   time.Duration // for a graph that is being built
}

const (
	maxChunks   = 100_000
	maxBytes    = 512 << 20 // one of 10,000 chunks of 300 words takes about 200 MB
	idle        = 10 * time.Minute
	rest        = 10 * time.Second // before a failed build is retried
	fresh       = time.Second
	wait        = 10 * time.Second
	buildTime   = 15 * time.Minute
	listed      = 1000 // results per listing
	visibleMost = 500  // ranges per query
	maxSources  = 5    // chunks cited per entity or relation
	lookedAt    = 20   // of its chunks examined for those
	hitsLooked  = 4    // hits examined per hit wanted, since some may be filtered out
)

// Service is safe for concurrent use.
type Service struct {
	Store  Store
	Blobs  blob.Store
	Bounds Bounds
	Log    *slog.Logger

	mu    sync.Mutex
	held  []*dataset // most recently used first
	sweep *time.Timer
	build sync.Mutex // one graph is built at a time
}

type dataset struct {
	tenantID, id string
	used         time.Time // guarded by Service.mu, like size
	size         int64     // bytes, 0 until built

	mu      sync.Mutex
	ranges  map[string]*contents
	view    *View  // nil until first built
	stamp   string // of the dataset when it was read
	checked time.Time
	changed bool          // since the last refresh began: compare it at once
	running chan struct{} // closed when the current refresh ends; nil for none
	done    int           // ranges read by this refresh
	of      int
	err     error     // of the last refresh
	again   time.Time // when it may be retried
}

// contents are the contributions of one range.
type contents struct {
	key    string // of the artifact
	hidden string // chunks edited by users, sorted
	told   string // the range with a model's statements about the document; "" for none
	spelt  string // graph.Splits.Spelled when it was read
	all    []graph.Contribution
}

func (c *contents) size() int64 {
	n := int64(200 + len(c.key) + len(c.hidden))
	for i := range c.all {
		n += 96 + c.all[i].Extraction.Size() // the graph counts the pages, boxes and id
	}
	return n
}

// View is the graph of a dataset at one point in time.
type View struct {
	Graph   *graph.Graph
	BuiltAt time.Time
	Stale   bool // the dataset has changed since
	Failed  int  // ranges that could not be read

	keys    map[string]string       // artifact keys, by range
	size    int64                   // bytes, including its input
	told    *told                   // results of runs
	apart   [][]string              // names of splits
	reports map[int32]*graph.Report // by community
}

// View returns the graph of a dataset, current if that can be determined within
// Bounds.Wait, otherwise the previous one. If a graph is being built for the first
// time, it returns a failure that reports the progress.
func (s *Service) View(ctx context.Context, tenantID, datasetID string) (*View, error) {
	d := s.of(tenantID, datasetID)
	d.mu.Lock()
	if d.running == nil && !time.Now().Before(d.again) && (d.view == nil || d.changed || time.Since(d.checked) >= cmp.Or(s.Bounds.Fresh, fresh)) {
		d.running, d.changed = make(chan struct{}), false
		d.done, d.of = 0, 0
		go s.refresh(context.WithoutCancel(ctx), d)
	}
	running := d.running
	d.mu.Unlock()
	if running != nil {
		timer := time.NewTimer(cmp.Or(s.Bounds.Wait, wait))
		defer timer.Stop()
		select {
		case <-running:
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.view == nil && d.running != nil:
		return nil, sheaf.FailRetryable(sheaf.CategoryTarget, "graph_building", "The graph of this dataset is being made: %d of %d ranges are read. Ask again in a few seconds.", d.done, d.of)
	case d.view == nil || d.err != nil && !errors.Is(d.err, sheaf.ErrUnavailable):
		return nil, d.err
	case d.running != nil || d.err != nil:
		v := *d.view
		v.Stale = true
		return &v, nil
	}
	return d.view, nil
}

// Changed marks a dataset as changed, so that the next answer is current.
func (s *Service) Changed(tenantID, datasetID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.held {
		if d.tenantID == tenantID && d.id == datasetID {
			d.mu.Lock()
			d.changed = true
			d.mu.Unlock()
		}
	}
}

// of finds or creates the entry of a dataset.
func (s *Service) of(tenantID, datasetID string) *dataset {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.held, func(d *dataset) bool { return d.tenantID == tenantID && d.id == datasetID })
	d := &dataset{tenantID: tenantID, id: datasetID, ranges: map[string]*contents{}}
	if i >= 0 {
		d = s.held[i]
		s.held = slices.Delete(s.held, i, i+1)
	}
	d.used = time.Now()
	s.held = slices.Insert(s.held, 0, d)
	s.forget()
	return d
}

// forget drops graphs that have been idle for a while, and the least recently used
// ones while all together exceed their limit. s.mu is held.
func (s *Service) forget() {
	now, most, sum := time.Now(), cmp.Or(s.Bounds.Bytes, maxBytes), int64(0)
	keep := s.held[:0]
	for i, d := range s.held {
		size := d.size + emptySize
		wanted := now.Sub(d.used) < cmp.Or(s.Bounds.Idle, idle) && (i == 0 || sum+size <= most)
		if wanted || d.busy() {
			keep, sum = append(keep, d), sum+size
		}
	}
	clear(s.held[len(keep):])
	s.held = keep
	if s.sweep != nil {
		s.sweep.Stop()
		s.sweep = nil
	}
	if len(s.held) > 0 {
		s.sweep = time.AfterFunc(cmp.Or(s.Bounds.Idle, idle), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.forget()
		})
	}
}

// emptySize is the approximate size of an empty dataset entry.
const emptySize = 1 << 10

// busy reports whether a refresh is running: a graph dropped meanwhile would be
// built twice.
func (d *dataset) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running != nil
}

// refresh brings a graph up to date with the dataset.
func (s *Service) refresh(ctx context.Context, d *dataset) {
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	s.build.Lock()
	defer s.build.Unlock()
	ranges, view, stamp, err := s.tryRead(ctx, d)
	s.mu.Lock()
	if err == nil {
		d.size = view.size
	}
	s.forget() // before the new one is published
	s.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; err == nil {
		d.ranges, d.view, d.stamp, d.checked = ranges, view, stamp, time.Now()
	} else {
		if !errors.Is(err, sheaf.ErrUnavailable) {
			d.again = time.Now().Add(rest)
		}
		if s.Log != nil {
			s.Log.WarnContext(ctx, "the graph of a dataset could not be made", "dataset", d.id, "error", err)
		}
	}
	close(d.running)
	d.running = nil
}

// tryRead is read with panics turned into errors: the process serves others too.
func (s *Service) tryRead(ctx context.Context, d *dataset) (ranges map[string]*contents, view *View, stamp string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = sheaf.Fail(sheaf.CategoryInternal, "graph_failed", "The graph of this dataset could not be made. Searches without a graph work; please report this with the diagnostics (sheaf diagnostics).")
			if s.Log != nil {
				buf := make([]byte, 4096)
				s.Log.ErrorContext(ctx, "making a graph panicked", "dataset", d.id, "panic", r, "stack", string(buf[:runtime.Stack(buf, false)]))
			}
		}
	}()
	if stamp, err = s.Store.DatasetStamp(ctx, d.tenantID, d.id); err != nil {
		return nil, nil, "", err
	}
	if d.view != nil && d.view.Failed == 0 && stamp == d.stamp {
		return d.ranges, d.view, stamp, nil
	}
	ranges, view, err = s.read(ctx, d)
	return ranges, view, stamp, err
}

// read lists the live results and reads new ones. Only one refresh of a dataset
// runs at a time, so that its ranges do not change meanwhile.
func (s *Service) read(ctx context.Context, d *dataset) (map[string]*contents, *View, error) {
	var results []taskstore.LiveResult
	chunks, after := 0, ""
	for {
		some, err := s.Store.DatasetResults(ctx, d.tenantID, d.id, after, listed)
		if err != nil {
			return nil, nil, err
		}
		if len(some) == 0 {
			break
		}
		for _, r := range some {
			chunks += r.Chunks
		}
		if most := cmp.Or(s.Bounds.Chunks, maxChunks); chunks > most {
			return nil, nil, sheaf.Fail(sheaf.CategoryPolicy, "graph_too_large", "A graph can have at most %d chunks and this dataset has more: split it into several datasets.", most)
		}
		results, after = append(results, some...), some[len(some)-1].Cursor
	}
	visible, err := s.visible(ctx, d.tenantID, results)
	if err != nil {
		return nil, nil, err
	}
	told, err := s.told(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	apart, err := s.Store.SplitNames(ctx, d.tenantID, d.id)
	if err != nil {
		return nil, nil, err
	}
	splits := graph.NewSplits(apart)
	spelt := splits.Spelled()
	d.mu.Lock()
	d.of = len(results)
	d.mu.Unlock()
	now := make(map[string]*contents, len(results))
	keys := make(map[string]string, len(results))
	changed, failed := d.view == nil || !slices.EqualFunc(d.view.apart, apart, slices.Equal) || !slices.Equal(d.view.told.same, told.same), 0
	var said map[string]graph.Extraction
	saidIn := "" // the range that said was read from
	for _, r := range results {
		v, ok := visible[r.RangeID]
		if !ok {
			continue // it was deleted meanwhile
		}
		var hidden []string
		for id := range v.Hidden {
			hidden = append(hidden, id)
		}
		slices.Sort(hidden)
		c := &contents{key: r.ArtifactKey, hidden: strings.Join(hidden, " "), told: told.of[v.DocumentID], spelt: spelt}
		if known := d.ranges[r.RangeID]; known != nil && known.key == c.key && known.hidden == c.hidden && known.told == c.told && known.spelt == c.spelt {
			c = known
		} else {
			stored, err := artifact.Load(ctx, s.Blobs, r.ArtifactKey)
			switch {
			case errors.Is(err, sheaf.ErrNotFound), errors.Is(err, sheaf.ErrInvalid):
				failed++ // the next refresh tries again, and rebuilds the graph only if it can be read
				continue
			case err != nil:
				return nil, nil, fmt.Errorf("reading the chunks of a graph: %w", err)
			}
			if c.told != "" && c.told != saidIn {
				if said, err = s.said(ctx, d.tenantID, v.DocumentID, c.told, splits); err != nil {
					return nil, nil, err
				}
				saidIn = c.told
			}
			changed = true
			for i := range stored.Chunks {
				k := &stored.Chunks[i]
				if v.Hidden[k.ID] || k.Role != "" && k.Role != sheaf.RoleChild {
					continue
				}
				x, ok := said[k.ID]
				if !ok && v.Edited != nil { // it replaces another chunk, whose id it has in search
					x, ok = said[v.Edited.ChunkID]
				}
				if ok && c.told != "" {
					c.all = append(c.all, graph.Contribution{Source: sourceOf(k, r.RangeID, &v), Extraction: x})
				} else {
					c.all = append(c.all, contribution(k, r.RangeID, &v, splits))
				}
			}
		}
		now[r.RangeID], keys[r.RangeID] = c, r.ArtifactKey
		d.mu.Lock()
		d.done++
		d.mu.Unlock()
	}
	if !changed && len(now) == len(d.ranges) {
		v := *d.view
		v.Failed, v.told = failed, told
		v.reports = assign(v.Graph, told.reports)
		return now, &v, nil
	}
	sum, size := 0, int64(0)
	for _, c := range now {
		sum += len(c.all)
		size += c.size()
	}
	all := make([]graph.Contribution, 0, sum)
	for _, c := range now {
		all = append(all, c.all...)
	}
	v := &View{Graph: graph.Build(all, graph.Options{Splits: splits, Same: told.same}), BuiltAt: time.Now().UTC(), Failed: failed, keys: keys, told: told, apart: apart}
	v.reports = assign(v.Graph, told.reports)
	v.size = size + v.Graph.Size()
	return now, v, nil
}

// contribution returns what a chunk adds: nothing if it is code or repeats other
// chunks.
func contribution(k *sheaf.Chunk, rangeID string, v *taskstore.VisibleRange, splits *graph.Splits) graph.Contribution {
	c := graph.Contribution{Source: sourceOf(k, rangeID, v)}
	if k.Kind != sheaf.ChunkCode && k.Kind != sheaf.ChunkSummary {
		c.Extraction = graph.Extract(k.Text, k.Language, k.Kind == sheaf.ChunkTable, splits)
	}
	return c
}

func sourceOf(k *sheaf.Chunk, rangeID string, v *taskstore.VisibleRange) graph.Source {
	return graph.Source{DocumentID: v.DocumentID, RangeID: rangeID, ChunkID: k.ID, Pages: k.Pages, Boxes: k.Boxes}
}

func (s *Service) visible(ctx context.Context, tenantID string, results []taskstore.LiveResult) (map[string]taskstore.VisibleRange, error) {
	ids := make([]string, len(results))
	for i, r := range results {
		ids[i] = r.RangeID
	}
	return s.seen(ctx, tenantID, ids)
}

func (s *Service) seen(ctx context.Context, tenantID string, ids []string) (map[string]taskstore.VisibleRange, error) {
	all := make(map[string]taskstore.VisibleRange, len(ids))
	slices.Sort(ids)
	for part := range slices.Chunk(slices.Compact(ids), visibleMost) {
		some, err := s.Store.Visible(ctx, tenantID, part)
		if err != nil {
			return nil, err
		}
		for id, v := range some {
			all[id] = v
		}
	}
	return all, nil
}

// Part is some entities of a graph, the relations between them, and their
// communities. All of it is supported by visible chunks.
type Part struct {
	search.GraphInfo
	Total     Totals `json:"total" doc:"totals of the whole graph"`
	Truncated bool   `json:"truncated" doc:"the result is truncated to the limit"`
}

// Totals are the size of a graph and what it omits.
type Totals struct {
	Entities         int `json:"entities" doc:"number in the graph"`
	Relations        int `json:"relations" doc:"number in the graph"`
	Communities      int `json:"communities" doc:"communities of the finest level"`
	DroppedEntities  int `json:"dropped_entities" doc:"the least supported ones beyond 50,000"`
	DroppedRelations int `json:"dropped_relations" doc:"the least supported ones beyond 200,000"`
	FailedRanges     int `json:"failed_ranges" doc:"ranges whose chunks could not be read"`
}

// Around returns up to limit entities around one, at most depth relations away;
// entity "" means the highest-ranked ones. An unknown entity is sheaf.ErrNotFound,
// with similar names.
func (s *Service) Around(ctx context.Context, tenantID, datasetID, entity string, depth, limit int) (*Part, error) {
	v, err := s.View(ctx, tenantID, datasetID)
	if err != nil {
		return nil, err
	}
	g := v.Graph
	part, named := g.Top(limit), int32(-1)
	if entity != "" {
		if named, err = find(g, entity); err != nil {
			return nil, err
		}
		part = g.Around(named, depth, limit)
	}
	var communities []int32
	for _, e := range part.Entities {
		if c := g.Entities[e].Community; c >= 0 && !slices.Contains(communities, c) {
			communities = append(communities, c)
		}
	}
	info, err := s.info(ctx, tenantID, v, part.Entities, part.Relations, communities, named)
	if err != nil {
		return nil, err
	}
	out := &Part{GraphInfo: *info, Truncated: part.More, Total: Totals{Entities: len(g.Entities), Relations: len(g.Relations),
		DroppedEntities: g.DroppedEntities, DroppedRelations: g.DroppedRelations, FailedRanges: v.Failed}}
	for i := range g.Communities {
		if g.Communities[i].Level == 0 {
			out.Total.Communities++
		}
	}
	return out, nil
}

// find returns the entity that a name refers to.
func find(g *graph.Graph, name string) (int32, error) {
	at, ok := g.Find(name)
	if !ok {
		hint := "list the entities without a name"
		if alike := g.Suggest(name, 3); len(alike) > 0 {
			hint = "perhaps you mean " + strings.Join(alike, " or ")
		}
		return -1, fmt.Errorf("%w: the graph has no entity of the name %s; %s", sheaf.ErrNotFound, graph.Line(name, 100), hint)
	}
	return at, nil
}

// Matching returns up to limit entities whose name contains a text, those that
// begin with it first.
func (s *Service) Matching(ctx context.Context, tenantID, datasetID, text string, limit int) ([]search.GraphEntity, error) {
	v, err := s.View(ctx, tenantID, datasetID)
	if err != nil {
		return nil, err
	}
	info, err := s.info(ctx, tenantID, v, v.Graph.Match(text, limit), nil, nil, -1)
	if err != nil {
		return nil, err
	}
	return info.Entities, nil
}

const communityNames = 10 // entities named per community

// info describes parts of a graph, without what no visible chunk supports. It lists
// the names of the entity named; -1 for none.
func (s *Service) info(ctx context.Context, tenantID string, v *View, entities, relations, communities []int32, named int32) (*search.GraphInfo, error) {
	g := v.Graph
	var ids []string
	add := func(chunks []int32) {
		for _, c := range chunks[:min(len(chunks), lookedAt)] {
			ids = append(ids, g.Sources[c].RangeID)
		}
	}
	for _, e := range entities {
		add(g.Entities[e].Chunks)
	}
	for _, r := range relations {
		add(g.Relations[r].Chunks)
	}
	for _, c := range communities {
		for _, e := range g.Communities[c].Entities[:min(communityNames, len(g.Communities[c].Entities))] {
			add(g.Entities[e].Chunks)
		}
		if r := v.reports[c]; r != nil {
			for _, src := range r.Sources {
				ids = append(ids, src.RangeID)
			}
		}
	}
	for _, e := range entities {
		for _, a := range g.Entities[e].About {
			ids = append(ids, g.Sources[a.Chunk].RangeID)
		}
	}
	if named >= 0 {
		for i := range g.Entities[named].Names {
			add(g.Entities[named].Names[i].Chunks)
		}
	}
	for _, r := range relations {
		for _, a := range g.Relations[r].About {
			ids = append(ids, g.Sources[a.Chunk].RangeID)
		}
	}
	visible, err := s.seen(ctx, tenantID, ids)
	if err != nil {
		return nil, err
	}
	sources := func(chunks []int32) []search.GraphSource {
		var out []search.GraphSource
		for _, c := range chunks[:min(len(chunks), lookedAt)] {
			src := &g.Sources[c]
			if r, ok := visible[src.RangeID]; !ok || r.Hidden[src.ChunkID] {
				continue
			}
			if out = append(out, search.GraphSource(*src)); len(out) == maxSources {
				break
			}
		}
		return out
	}
	describe := func(all []graph.About) string {
		var texts []string
		for _, a := range all {
			src := &g.Sources[a.Chunk]
			if r, ok := visible[src.RangeID]; ok && !r.Hidden[src.ChunkID] && !slices.Contains(texts, a.Text) && len(texts) < maxSources {
				texts = append(texts, a.Text)
			}
		}
		return strings.Join(texts, " ")
	}
	out := &search.GraphInfo{Entities: []search.GraphEntity{}, Relations: []search.GraphRelation{}, Communities: []search.GraphCommunity{}, BuiltAt: v.BuiltAt, Stale: v.Stale}
	shown := map[int32]bool{}
	for _, i := range entities {
		e := &g.Entities[i]
		from := sources(e.Chunks)
		if shown[i] = from != nil; !shown[i] {
			continue
		}
		made := search.GraphEntity{ID: e.Key, Name: e.Name, Type: e.Type, Description: describe(e.About), Count: e.Count, Degree: e.Degree, Rank: e.Rank, Sources: from, Chunks: len(e.Chunks)}
		if i == named {
			for _, n := range e.Names {
				if from := sources(n.Chunks); from != nil {
					made.Names = append(made.Names, search.GraphName{Name: n.Name, Reason: cmp.Or(n.Reason, "spelling"), Count: n.Count, Sources: from})
				}
			}
		}
		if e.Community >= 0 {
			made.Community = new(int(e.Community))
		}
		out.Entities = append(out.Entities, made)
	}
	for _, i := range relations {
		r := &g.Relations[i]
		if from := sources(r.Chunks); from != nil {
			out.Relations = append(out.Relations, search.GraphRelation{Source: g.Entities[r.A].Key, Target: g.Entities[r.B].Key, Description: describe(r.About), Count: r.Count, Weight: r.Weight, Sources: from, Chunks: len(r.Chunks)})
		}
	}
	for _, i := range communities {
		c := &g.Communities[i]
		made := search.GraphCommunity{ID: int(i), Size: len(c.Entities), Report: shownReport(v.reports[i], visible)}
		var names []string
		for _, e := range c.Entities[:min(communityNames, len(c.Entities))] {
			if sources(g.Entities[e].Chunks) != nil {
				made.Entities = append(made.Entities, g.Entities[e].Key)
				names = append(names, g.Entities[e].Name)
			}
		}
		if made.Title = strings.Join(names[:min(3, len(names))], ", "); names != nil {
			out.Communities = append(out.Communities, made)
		}
	}
	return out, nil
}

// FindInGraph implements search.Grapher.
func (s *Service) FindInGraph(ctx context.Context, tenantID, datasetID, query string, mode search.GraphMode, limit int, keep func(*search.Hit) bool) ([]search.Hit, *search.GraphInfo, error) {
	v, err := s.View(ctx, tenantID, datasetID)
	if err != nil {
		return nil, nil, err
	}
	var a graph.Answer
	if mode == search.GraphGlobal {
		a = v.Graph.Global(query, v.mentioned(query), limit*hitsLooked)
	} else {
		a = v.Graph.Local(query, limit*hitsLooked)
	}
	entities := make([]int32, len(a.Entities))
	for i, e := range a.Entities {
		entities[i] = e.At
	}
	info, err := s.info(ctx, tenantID, v, entities, a.Relations, a.Communities, -1)
	if err != nil {
		return nil, nil, err
	}
	hits, err := s.hits(ctx, tenantID, datasetID, v, a.Chunks, limit, keep)
	return hits, info, err
}

// hits reads the chunks of an answer that are visible.
func (s *Service) hits(ctx context.Context, tenantID, datasetID string, v *View, chunks []graph.Scored, limit int, keep func(*search.Hit) bool) ([]search.Hit, error) {
	ids := make([]string, len(chunks))
	for i, c := range chunks {
		ids[i] = v.Graph.Sources[c.At].RangeID
	}
	visible, err := s.seen(ctx, tenantID, ids)
	if err != nil {
		return nil, err
	}
	read := map[string]map[string]*sheaf.Chunk{}
	out := []search.Hit{}
	for _, c := range chunks {
		src := &v.Graph.Sources[c.At]
		r, ok := visible[src.RangeID]
		if !ok || r.DatasetID != datasetID || r.DocumentID != src.DocumentID || r.Hidden[src.ChunkID] {
			continue
		}
		if read[src.RangeID] == nil {
			stored, err := artifact.Load(ctx, s.Blobs, v.keys[src.RangeID])
			if errors.Is(err, sheaf.ErrNotFound) || errors.Is(err, sheaf.ErrInvalid) {
				continue
			} else if err != nil {
				return nil, err
			}
			read[src.RangeID] = map[string]*sheaf.Chunk{}
			for i := range stored.Chunks {
				read[src.RangeID][stored.Chunks[i].ID] = &stored.Chunks[i]
			}
		}
		chunk := read[src.RangeID][src.ChunkID]
		if chunk == nil {
			continue
		}
		h := search.Hit{Scores: search.Scores{Graph: c.Score / chunks[0].Score}, Chunk: *chunk,
			Document: search.Document{ID: r.DocumentID, Name: r.Name, DatasetID: r.DatasetID, MediaType: r.MediaType}}
		h.Chunk.Generation = r.Generation
		if r.Edited != nil {
			h.Chunk.ID, h.Chunk.RangeID = r.Edited.ChunkID, cmp.Or(r.Edited.RangeID, h.Chunk.RangeID)
		}
		if keep(&h) {
			if out = append(out, h); len(out) == limit {
				break
			}
		}
	}
	return out, nil
}

// WriteGraphML writes the whole graph of a dataset.
func (s *Service) WriteGraphML(ctx context.Context, tenantID, datasetID string, w io.Writer) error {
	v, err := s.View(ctx, tenantID, datasetID)
	if err != nil {
		return err
	}
	ids := make([]string, 0, len(v.keys))
	for id := range v.keys {
		ids = append(ids, id)
	}
	visible, err := s.seen(ctx, tenantID, ids)
	if err != nil {
		return err
	}
	return v.Graph.WriteGraphML(w, func(src graph.Source) bool {
		r, ok := visible[src.RangeID]
		return ok && !r.Hidden[src.ChunkID]
	})
}
