package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// Previewer shows the effect of settings on a few units of a document, by processing
// them as a range up to its chunks. Nothing is stored, and no model that costs money
// is called. It is safe for concurrent use.
type Previewer struct {
	Planner  *Planner // for its store, files, formats and flows
	Parser   Parser
	Embedder func() embed.Embedder // for methods that split by meaning
	Pictures func() bool           // whether this process reads text in pictures; nil means it does
}

// Maximum units that a preview reads around the requested one: a page is chunked
// together with its neighbours, and users will not wait for more than these.
const (
	previewUnits = 32
	previewRows  = 2_000
)

// maxPreviewChunks bounds the chunks made from these units.
const maxPreviewChunks = 20_000

// Preview reads the units around one unit, within its range, with each of the
// settings, which have been checked. The file is read once for consecutive settings
// that read it alike. The error is a *sheaf.Failure, sheaf.ErrNotPlanned, of the
// kind sheaf.ErrNotFound if the unit does not exist, or of the kind sheaf.ErrInvalid
// if the settings exclude it.
func (p *Previewer) Preview(ctx context.Context, doc *sheaf.Document, unit int, configs ...sheaf.ParseConfig) ([]sheaf.Preview, error) {
	t, payload, err := p.rangeOf(ctx, doc, unit)
	if err != nil {
		return nil, err
	}
	format, ok := p.Planner.Formats.ByID(payload.Format)
	if !ok {
		return nil, parser.Unsupported(doc.Name, payload.MediaType)
	}
	var out []sheaf.Preview
	var units []sheaf.UnitResult
	for _, config := range configs {
		one, err := p.prepare(ctx, doc, t, payload, unit, config)
		if err != nil {
			return nil, err
		}
		if before := len(out) - 1; before < 0 || one.Range != out[before].Range || !readAlike(format, one.Config, out[before].Config) {
			if units, err = p.read(ctx, doc, t, payload, format, one); err != nil {
				return nil, lacking(err)
			}
		}
		if p.Pictures != nil && !p.Pictures() && picturesUnread(units) {
			one.Notes = append(one.Notes, "Text in pictures is left out here: the server that makes previews has no tesseract (parser.tesseract). Executors that have it read that text.")
		}
		if one.Chunks, err = p.chunks(ctx, doc, t, payload, one, units); err != nil {
			return nil, err
		}
		one.Ledger = ledgerOf(units)
		out = append(out, *one)
	}
	return out, nil
}

// lacking explains where a missing part is missing: executors may have it.
func lacking(err error) error {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code == "part_missing" {
		return sheaf.Fail(f.Category, f.Code, "Previews are made by the server that answers, which lacks a part that executors may have. %s", f.Message)
	}
	return err
}

// picturesUnread reports whether some units have pictures whose text was not read.
func picturesUnread(units []sheaf.UnitResult) bool {
	return slices.ContainsFunc(units, func(u sheaf.UnitResult) bool {
		return u.Code == "needs_ocr" || slices.ContainsFunc(u.Warnings, func(w sheaf.Warning) bool { return w.Code == "pictures_unread" })
	})
}

// rangeOf finds the range that contains a unit, in the live generation or else the
// newest.
func (p *Previewer) rangeOf(ctx context.Context, doc *sheaf.Document, unit int) (*sheaf.Task, *taskstore.ParsePayload, error) {
	generation := doc.LiveGeneration
	if generation == 0 {
		generation = doc.Generation
	}
	tasks, err := p.Planner.Store.GenerationTasks(ctx, doc.ID, generation)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the ranges of document %s: %w", doc.ID, err)
	}
	last := 0
	var found *sheaf.Task
	var payload *taskstore.ParsePayload
	for i := range tasks {
		t := &tasks[i]
		if t.Range.From < 1 || t.State == sheaf.TaskSuperseded || len(t.Payload) == 0 {
			continue
		}
		last = max(last, t.Range.To)
		// Units that were read again have ranges of their own inside the first.
		if !t.Range.Contains(unit) || found != nil && found.Range.Len() >= t.Range.Len() {
			continue
		}
		if read, err := parsePayload(t); err == nil && read.Format != "" {
			found, payload = t, read
		}
	}
	switch {
	case last == 0:
		return nil, nil, sheaf.ErrNotPlanned
	case found == nil && unit > doc.Units:
		return nil, nil, fmt.Errorf("%w: the document has %d %ss; %s %d is behind its end", sheaf.ErrNotFound, doc.Units, doc.Unit, doc.Unit, unit)
	case found == nil:
		return nil, nil, fmt.Errorf("%w: %s %d was left out when the document was parsed, by the setting pages; parse it again with that page first", sheaf.ErrInvalid, doc.Unit, unit)
	}
	return found, payload, nil
}

// prepare determines what is read, and with which settings.
func (p *Previewer) prepare(ctx context.Context, doc *sheaf.Document, t *sheaf.Task, payload *taskstore.ParsePayload, unit int, config sheaf.ParseConfig) (*sheaf.Preview, error) {
	with := *doc
	with.ParseConfig = config
	program, err := p.Planner.program(ctx, &with)
	if err != nil {
		return nil, err
	}
	out := &sheaf.Preview{Unit: t.Unit, Config: settings.WithDefaults(program.settings(config))}
	if of := out.Config.MediaType.V; of != "" {
		if f, ok := p.Planner.Formats.ByMediaType(of); !ok || f.ID() != payload.Format {
			return nil, fmt.Errorf("%w: parser_config: media_type: a preview reads the file as it was read before, as %s; parse the document again to read it as %s", sheaf.ErrInvalid, payload.MediaType, of)
		}
	}
	wanted, err := sheaf.SelectUnits(out.Config.Pages.V, max(doc.Units, t.Range.To))
	if err != nil {
		return nil, fmt.Errorf("%w: parser_config: %w", sheaf.ErrInvalid, err)
	}
	i := slices.IndexFunc(wanted, func(r sheaf.Range) bool { return r.Contains(unit) })
	if i < 0 {
		return nil, fmt.Errorf("%w: parser_config: pages leaves out %s %d; choose one that it names", sheaf.ErrInvalid, t.Unit, unit)
	}
	most := previewUnits
	if t.Unit == sheaf.UnitRow {
		most = previewRows
	}
	out.Range = around(sheaf.Range{From: max(t.Range.From, wanted[i].From), To: min(t.Range.To, wanted[i].To)}, unit, most)
	if program != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("The flow %s goes on from these chunks; its nodes are not run in a preview.", program.ref))
	}
	if settings.NeedsChat(out.Config) != "" {
		out.Notes = append(out.Notes, "What a language model adds to chunks is not made in a preview.")
	}
	if len(out.Config.TagKBIDs.V) > 0 {
		out.Notes = append(out.Notes, "Tags are not given in a preview.")
	}
	return out, nil
}

// around returns at most most units of r around one of them, with fewer before it
// than after it; when possible it keeps the start of r, where chunks begin.
func around(r sheaf.Range, unit, most int) sheaf.Range {
	if r.Len() <= most {
		return r
	}
	from := max(r.From, min(unit-most/4, r.To-most+1))
	return sheaf.Range{From: from, To: from + most - 1}
}

// readAlike reports whether a file is read the same way by both settings.
func readAlike(f parser.Format, a, b sheaf.ParseConfig) bool {
	for _, name := range append(slices.Clone(f.Options()), "password", "media_type", "pii") {
		if configField(a, name) != configField(b, name) {
			return false
		}
	}
	return true
}

// Time limit of one try at parsing some units, before they are split into halves.
const (
	previewTry     = 4 * time.Second
	previewTryUnit = 500 * time.Millisecond
)

func (p *Previewer) read(ctx context.Context, doc *sheaf.Document, t *sheaf.Task, payload *taskstore.ParsePayload, format parser.Format, one *sheaf.Preview) (units []sheaf.UnitResult, err error) {
	var path string
	var fill blob.Fill
	var release func()
	if _, sparse := format.(parser.Sparse); sparse {
		path, fill, release, err = p.Planner.Files.FetchBlocks(ctx, payload.SourceKey, payload.SHA256, payload.Size)
	} else {
		path, release, err = p.Planner.Files.Fetch(ctx, payload.SourceKey, payload.SHA256, payload.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", doc.Name, err)
	}
	defer release()
	src := child.Source{
		Path: path, Fill: fill, Format: payload.Format, Key: doc.ID + "/preview/" + payload.SourceKey,
		Options: parser.Options{Name: doc.Name, MediaType: payload.MediaType, Config: one.Config, Hint: payload.Hint, Beside: payload.Beside},
	}
	if t.Result.ArtifactKey != "" {
		src.Readings = &readings{load: func() []artifact.Readings {
			return readingsIn(ctx, p.Planner.Blobs, []string{t.Result.ArtifactKey})
		}}
	}
	try := func(n int) time.Duration { return previewTry + time.Duration(n)*previewTryUnit }
	err = p.Parser.ParseIsolating(ctx, src, one.Range, try, func(u sheaf.UnitResult) error {
		units = append(units, u)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	if mode := one.Config.PII.V; mode == "find" || mode == "redact" {
		if _, err := enrich.PersonalData(ctx, units, nil, mode == "redact"); err != nil {
			return nil, err
		}
	}
	return units, nil
}

func (p *Previewer) chunks(ctx context.Context, doc *sheaf.Document, t *sheaf.Task, payload *taskstore.ParsePayload, one *sheaf.Preview, units []sheaf.UnitResult) ([]sheaf.Chunk, error) {
	stack := under(payload)
	if o := t.Result.Outline; o != nil {
		stack = o.Under
	}
	in := chunker.Input{
		DocumentID: doc.ID, Generation: t.Generation, Range: one.Range, Units: units, Config: one.Config,
		Embed: func(texts []string) ([][]float32, error) {
			return embed.Each(ctx, p.Embedder(), texts, embed.Passage)
		},
	}
	for _, h := range stack {
		in.Headings, in.HeadingLevels = append(in.Headings, h.Title), append(in.HeadingLevels, h.Level)
	}
	if one.Config.PII.V == "redact" {
		for i := range in.Headings {
			in.Headings[i] = enrich.Redact(in.Headings[i], map[string]int{})
		}
	}
	chunks, err := chunksOf(ctx, in)
	if err != nil {
		return nil, err
	}
	if len(chunks) > maxPreviewChunks {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "too_many_chunks", "%ss %s yield %d chunks, more than the %d that a preview makes; raise chunk_token_num.", one.Unit, one.Range, len(chunks), maxPreviewChunks)
	}
	return chunks, nil
}

// chunksOf splits a range's units into chunks, and records labels and figures of the
// units on them.
func chunksOf(ctx context.Context, in chunker.Input) ([]sheaf.Chunk, error) {
	chunks, err := chunker.Chunk(ctx, in)
	if err != nil {
		return nil, err
	}
	if mode := in.Config.PII.V; mode == "find" || mode == "redact" {
		if err := enrich.MarkPersonalData(ctx, chunks); err != nil {
			return nil, err
		}
	}
	labelChunks(chunks, in.Units)
	return chunks, placeFigures(ctx, chunks, in.Units)
}
