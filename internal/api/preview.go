package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sheaf"
	"sheaf/internal/settings"
)

// Previewer chunks a few units of a document. *executor.Previewer implements it.
type Previewer interface {
	Preview(ctx context.Context, doc *sheaf.Document, unit int, configs ...sheaf.ParseConfig) ([]sheaf.Preview, error)
}

// Bounds of a preview. A tenant has two because a new one may start before the one
// it replaces, whose client is gone, has ended.
const (
	previewTime      = 20 * time.Second
	previewWait      = 10 * time.Second // for those of other tenants
	tenantPreviews   = 2
	allPreviews      = 16
	previewChunks    = 200     // of the page, per response
	previewText      = 1 << 20 // bytes of their text
	previewRowsShown = 50      // rows shown as a page, since a table has none
)

// PreviewRequest asks what a page would become with given settings.
type PreviewRequest struct {
	Page        int               `json:"page,omitempty" minimum:"1" default:"1" doc:"page, slide, part or row, from 1; for rows, the first of 50"`
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty" doc:"settings to try: they change the settings that over names; null resets one"`
	Over        string            `json:"over,omitempty" enum:"document,dataset" default:"document" doc:"what the settings change: those of the document, as documents:reparse would, or those of the dataset, as PATCH of the dataset would for documents without settings of their own"`
}

// SettingsPreview is what a page would become with given settings.
type SettingsPreview struct {
	Unit     sheaf.Unit        `json:"unit"`
	Shown    sheaf.Range       `json:"shown" doc:"the page whose chunks are listed, as [from, to]; 50 rows of a table"`
	Range    sheaf.Range       `json:"range" doc:"what was read and chunked together, as [from, to]"`
	Chunks   []sheaf.Chunk     `json:"chunks" nullable:"false" doc:"on the page, in reading order, at most 200; their ids are valid for this answer only"`
	LeftOff  int               `json:"left_off" doc:"chunks of the page that are not listed"`
	Before   *PreviewCounts    `json:"before" doc:"with the current settings; null if the document could not be read with them"`
	After    PreviewCounts     `json:"after" doc:"with the settings to try"`
	Failures []sheaf.LedgerRun `json:"failures" nullable:"false" doc:"units of the range that could not be read"`
	Notes    []string          `json:"notes" nullable:"false" doc:"sentences: what else a parse would do"`
}

// PreviewCounts sums how some units were chunked.
type PreviewCounts struct {
	Page  ChunkCounts `json:"page" doc:"of the chunks on the page"`
	Range ChunkCounts `json:"range" doc:"of all chunks of the range"`
}

// ChunkCounts sums chunks.
type ChunkCounts struct {
	Chunks       int `json:"chunks"`
	Tokens       int `json:"tokens"`
	MedianTokens int `json:"median_tokens" doc:"of a chunk; 0 without chunks"`
}

func countChunks(chunks []sheaf.Chunk) ChunkCounts {
	out := ChunkCounts{Chunks: len(chunks)}
	sizes := make([]int, len(chunks))
	for i := range chunks {
		sizes[i] = chunks[i].Tokens
		out.Tokens += sizes[i]
	}
	if slices.Sort(sizes); len(sizes) > 0 {
		out.MedianTokens = sizes[len(sizes)/2]
	}
	return out
}

// onUnits returns the chunks that are on the given units.
func onUnits(chunks []sheaf.Chunk, r sheaf.Range) []sheaf.Chunk {
	out := []sheaf.Chunk{}
	for _, c := range chunks {
		if slices.ContainsFunc(c.Pages, r.Contains) {
			out = append(out, c)
		}
	}
	return out
}

func (s *Server) previewRoutes() {
	op := post("/v1/datasets/{ds}/documents/{doc}:preview", "Preview a page with other settings")
	op.Description = "Reads the page, and those around it that it is chunked with, and returns the chunks. Nothing is stored, embedded, indexed or sent to a language model. A page that takes more than 20 seconds is given up. A tenant can run two previews at a time: beyond that the answer is 429."
	handle(s, op, func(ctx context.Context, in *struct {
		DocumentPath
		Body PreviewRequest
	}) (*output[*SettingsPreview], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		if s.cfg.Previewer == nil {
			return nil, newProblem(http.StatusNotFound, "no_preview", "this server reads no documents; ask one that does")
		}
		for gate, key := range map[*gate]string{s.previewing: d.TenantID, s.allPreviews: ""} {
			if !gate.enter(key) {
				return nil, tooManyPreviews()
			}
			defer gate.leave(key)
		}
		out, err := s.preview(ctx, d, in.Body)
		return &output[*SettingsPreview]{out}, err
	})
}

func tooManyPreviews() *Problem {
	p := newProblem(http.StatusTooManyRequests, "too_many_previews", "as many previews as may run at once are under way here; wait for one to end")
	p.Retryable = true
	return p
}

// preview tries settings on one page. d omits the document's password.
func (s *Server) preview(ctx context.Context, d *sheaf.Document, ask PreviewRequest) (*SettingsPreview, error) {
	d, err := s.cfg.Catalog.Document(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, err
	}
	ds, err := s.cfg.Catalog.Dataset(ctx, d.TenantID, d.DatasetID)
	if err != nil {
		return nil, err
	}
	now, tried := d.ParseConfig, settings.Patch(ask.ParseConfig, d.ParseConfig, ds.ParseConfig)
	if ask.Over == "dataset" {
		now, tried = ds.ParseConfig, settings.Patch(ask.ParseConfig, ds.ParseConfig, sheaf.ParseConfig{})
		if err := s.checkConfig(ctx, tried); err != nil {
			return nil, err
		}
		// These belong to the file, not to the dataset.
		for _, c := range []*sheaf.ParseConfig{&now, &tried} {
			*c = settings.Merge(*c, sheaf.ParseConfig{Password: d.ParseConfig.Password, MediaType: d.ParseConfig.MediaType})
		}
	}
	fits := func(c sheaf.ParseConfig) error {
		if err := s.cfg.Ingest.CheckConfig(c, d.MediaType); err != nil {
			return err
		}
		return s.cfg.Ingest.CheckNamed(ctx, d.TenantID, c)
	}
	if err := fits(tried); err != nil {
		return nil, err
	}
	waiting, stop := context.WithTimeout(ctx, previewWait)
	defer stop()
	if s.previewTurns.Acquire(waiting, 1) != nil {
		return nil, cmp.Or(ctx.Err(), error(tooManyPreviews()))
	}
	defer s.previewTurns.Release(1)
	within, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	configs := []sheaf.ParseConfig{tried, now}
	if fits(now) != nil {
		configs = configs[:1]
	}
	made, err := s.cfg.Previewer.Preview(within, d, ask.Page, configs...)
	if err != nil && len(configs) > 1 && within.Err() == nil && !errors.Is(err, sheaf.ErrNotPlanned) {
		// The page may be unreadable with the current settings; still show what the
		// new ones produce.
		made, err = s.cfg.Previewer.Preview(within, d, ask.Page, tried)
	}
	switch {
	case errors.Is(err, sheaf.ErrNotPlanned):
		return nil, newProblem(http.StatusConflict, "not_parsed", "the document has not been parsed yet; its preview is there when its pages have been counted")
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return nil, newProblem(http.StatusServiceUnavailable, "preview_timeout", fmt.Sprintf("this page was not read within %d seconds; choose another, or parse the document again with these settings", int(previewTime.Seconds())))
	case err != nil:
		return nil, err
	}
	after := made[0]
	out := &SettingsPreview{Unit: after.Unit, Shown: sheaf.Range{From: ask.Page, To: ask.Page}, Range: after.Range, Notes: after.Notes, Failures: []sheaf.LedgerRun{}}
	if out.Unit == sheaf.UnitRow {
		out.Shown.To = min(ask.Page+previewRowsShown-1, after.Range.To)
	}
	if out.Notes == nil {
		out.Notes = []string{}
	}
	for _, r := range after.Ledger {
		if r.Status == sheaf.UnitFailed {
			out.Failures = append(out.Failures, r)
		}
	}
	out.Chunks = onUnits(after.Chunks, out.Shown)
	out.After = PreviewCounts{countChunks(out.Chunks), countChunks(after.Chunks)}
	if len(made) > 1 {
		out.Before = &PreviewCounts{countChunks(onUnits(made[1].Chunks, out.Shown)), countChunks(made[1].Chunks)}
	}
	room := previewText
	n := 0
	for ; n < min(len(out.Chunks), previewChunks) && room > 0; n++ {
		room -= len(out.Chunks[n].Text) + len(out.Chunks[n].Parent) + len(out.Chunks[n].Context)
	}
	out.Chunks, out.LeftOff = out.Chunks[:n], len(out.Chunks)-n
	return out, nil
}
